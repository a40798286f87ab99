//! What really went wrong in a run: a fault that never happens proves nothing.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Killed,
    Restarted,
    /// The machine lost its power, and its log what was not synced.
    PowerLost,
    /// A part of what was written and not synced was kept.
    LogTorn,
    /// Acknowledged entries were among what was lost (the policy does not sync).
    UnsyncedLost,
    DiskWiped,
    /// A bit of a log flipped, its end or its newest file is gone.
    LogRotted,
    /// Which was found: the log was set aside.
    DamageRefused,
    /// A host never came back.
    Buried,
    /// All processes at once.
    AllDied,
    /// Something went wrong before all shards had begun.
    BeforeFormation,
    /// All disks were lost, which was told, and an operator put up with it.
    LossAccepted,
    Stopped,
    /// A direction between two hosts.
    Cut,
    /// Not the other direction.
    CutOneWay,
    ConnectionBroken,
    /// It took more than 10 ms.
    MessageLate,
    /// By one that was sent later, over another connection.
    MessageOvertaken,
    MessageDoubled,
    /// A batch came to a replica again.
    BatchAgain,
    DiskFull,
    DiskSlow,
    StoreAway,
    /// It did what it was asked for, and nobody heard.
    StoreAnswerLost,
    /// Another coordinator acts.
    CoordinatorChanged,
    /// A host's clock, by more than a thousandth.
    ClockDrifts,
    OperatorWished,
    SnapshotWanted,
    SessionEnded,
    /// A client was told that it has no session.
    SessionRefused,
    SubscriberMissed,
}

impl What {
    pub const ALL: [Self; 31] = [
        Self::Killed,
        Self::Restarted,
        Self::PowerLost,
        Self::LogTorn,
        Self::UnsyncedLost,
        Self::DiskWiped,
        Self::LogRotted,
        Self::DamageRefused,
        Self::Buried,
        Self::AllDied,
        Self::BeforeFormation,
        Self::LossAccepted,
        Self::Stopped,
        Self::Cut,
        Self::CutOneWay,
        Self::ConnectionBroken,
        Self::MessageLate,
        Self::MessageOvertaken,
        Self::MessageDoubled,
        Self::BatchAgain,
        Self::DiskFull,
        Self::DiskSlow,
        Self::StoreAway,
        Self::StoreAnswerLost,
        Self::CoordinatorChanged,
        Self::ClockDrifts,
        Self::OperatorWished,
        Self::SnapshotWanted,
        Self::SessionEnded,
        Self::SessionRefused,
        Self::SubscriberMissed,
    ];
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts([u64; What::ALL.len()]);

impl Counts {
    pub fn add(&mut self, what: What) {
        self.0[what as usize] += 1;
    }

    pub fn include(&mut self, others: &Self) {
        self.0.iter_mut().zip(others.0).for_each(|(sum, more)| *sum += more);
    }

    pub fn never(&self) -> Vec<What> {
        What::ALL.into_iter().filter(|what| self.0[*what as usize] == 0).collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = What::ALL.map(|what| format!("{what:?} {}", self.0[what as usize]));
        text.write_str(&counts.join(", "))
    }
}
