//! Exactly once: which batch of each client was applied last, and outcomes that it may not have seen.
//!
//! ```text
//!   (none) --seq 1--> last 1 --seq 2--> last 2 ... --ended by the head, after long silence--> (none)
//! ```
//! A session's batches are applied in the order of their seqs, without gaps (the head sees to it), so one number
//! says what was applied. Outcomes are kept until the client says that it has `answered` them, so that
//! a batch that is sent again gets the answer of the first time.
//!
//! Nothing is kept of a session that ended, but one number for all of them: `over`, the newest entry that ended
//! any. A session says when it was `born`: which `over` its client knew. One that ended was born before the
//! entry that ended it, so a batch of a session that is not here and was born before `over` is refused; only
//! `born == over` may begin. So a batch that was applied is never taken again, however late a copy
//! of it comes.
//!
//! # Invariants
//! - CHAIN-4: a batch is applied at most once.
//! - SESS-1: the outcomes are those of the last batches, without gaps, up to `last_seq`.
//! - SESS-2: `bytes` counts all sessions.
//! - SESS-3: no session is born after `over`.

use std::collections::{BTreeMap, VecDeque};

use hoplo_base::limits::CONTROL_SESSION_OVERHEAD;
use hoplo_wire::control::{ClientId, ClientSession, Outcome};

#[derive(Clone, Debug, Default)]
pub struct ClientSessions {
    held: BTreeMap<ClientId, Held>,
    /// The newest entry that ended sessions; 0 if none did.
    over: u64,
    bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    born: u64,
    last_seq: u64,
    /// Index of the entry, and outcomes of its operations.
    outcomes: VecDeque<(u64, Vec<Outcome>)>,
}

/// One of a client's batches in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchId {
    /// Of its session.
    pub born: u64,
    pub seq: u64,
}

/// What is known of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// It was not applied yet.
    New,
    Applied {
        index: u64,
        outcomes: Vec<Outcome>,
    },
    /// It was applied, and the client said that it knows.
    Forgotten,
}

fn outcome_bytes(outcomes: &[Outcome]) -> u64 {
    (size_of_val(outcomes) + size_of::<(u64, Vec<Outcome>)>()) as u64
}

impl ClientSessions {
    pub fn new() -> Self {
        Self::default()
    }

    /// The batch was applied by entry `index`.
    pub fn applied(
        &mut self,
        client: ClientId,
        batch: BatchId,
        answered: u64,
        index: u64,
        outcomes: Vec<Outcome>,
    ) {
        let BatchId { born, seq } = batch;
        let held = self.held.entry(client).or_insert_with(|| {
            self.bytes += CONTROL_SESSION_OVERHEAD as u64;
            Held { born, last_seq: seq - 1, outcomes: VecDeque::new() }
        });
        let follows = BatchId { born: held.born, seq: held.last_seq + 1 };
        assert_eq!(batch, follows, "CHAIN-4: {client:?} at entry {index}");
        held.last_seq = seq;
        self.bytes += outcome_bytes(&outcomes);
        held.outcomes.push_back((index, outcomes));
        // Never this one: its client cannot have seen it.
        while held.outcomes.len() > 1 && seq - (held.outcomes.len() as u64) < answered {
            let (_, outcomes) = held.outcomes.pop_front().expect("more than one");
            self.bytes -= outcome_bytes(&outcomes);
        }
    }

    /// Entry `index` ended these clients' sessions.
    pub fn ended(&mut self, index: u64, clients: &[ClientId]) {
        for client in clients {
            self.over = index;
            if let Some(held) = self.held.remove(client) {
                self.bytes -= CONTROL_SESSION_OVERHEAD as u64;
                self.bytes -= held.outcomes.iter().map(|(_, it)| outcome_bytes(it)).sum::<u64>();
            }
        }
    }

    /// Who begins a session now is born here.
    pub fn over(&self) -> u64 {
        self.over
    }

    pub fn remembered(&self, client: ClientId, seq: u64) -> Remembered {
        let Some(held) = self.held.get(&client).filter(|held| seq <= held.last_seq) else {
            return Remembered::New;
        };
        let back = usize::try_from(held.last_seq - seq).unwrap_or(usize::MAX);
        match held.outcomes.len().checked_sub(back.saturating_add(1)) {
            Some(place) => {
                let (index, outcomes) = held.outcomes[place].clone();
                Remembered::Applied { index, outcomes }
            }
            None => Remembered::Forgotten,
        }
    }

    /// Absent: the client has no session.
    pub fn last(&self, client: ClientId) -> Option<BatchId> {
        self.held.get(&client).map(|held| BatchId { born: held.born, seq: held.last_seq })
    }

    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.held.keys().copied()
    }

    /// For the last chunk of a snapshot.
    pub fn to_wire(&self) -> Vec<ClientSession> {
        let session = |(client, held): (&ClientId, &Held)| ClientSession {
            client: *client,
            born: held.born,
            last_seq: held.last_seq,
            outcomes: held.outcomes.iter().cloned().collect(),
        };
        self.held.iter().map(session).collect()
    }

    pub fn from_wire(sessions: &[ClientSession], over: u64) -> Self {
        let mut new = Self { over, ..Self::default() };
        for session in sessions {
            let outcomes = VecDeque::from(session.outcomes.clone());
            new.bytes += CONTROL_SESSION_OVERHEAD as u64;
            new.bytes += outcomes.iter().map(|(_, it)| outcome_bytes(it)).sum::<u64>();
            let (born, last_seq) = (session.born, session.last_seq);
            new.held.insert(session.client, Held { born, last_seq, outcomes });
        }
        new
    }

    pub fn len(&self) -> usize {
        self.held.len()
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn check(&self) {
        let mut bytes = 0;
        for held in self.held.values() {
            assert!(held.outcomes.len() as u64 <= held.last_seq, "SESS-1");
            assert!(held.outcomes.iter().is_sorted_by_key(|(index, _)| *index), "SESS-1");
            assert!(held.born <= self.over, "SESS-3");
            bytes += CONTROL_SESSION_OVERHEAD as u64;
            bytes += held.outcomes.iter().map(|(_, it)| outcome_bytes(it)).sum::<u64>();
        }
        assert_eq!(bytes, self.bytes, "SESS-2");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(7);

    fn at(seq: u64) -> BatchId {
        BatchId { born: 0, seq }
    }

    fn outcome(version: u64) -> Vec<Outcome> {
        vec![Outcome::Done { version }]
    }

    #[test]
    fn a_batch_that_is_sent_again_gets_its_first_answer() {
        let mut sessions = ClientSessions::new();
        assert_eq!(sessions.remembered(CLIENT, 1), Remembered::New);
        sessions.applied(CLIENT, at(1), 0, 10, outcome(1));
        sessions.applied(CLIENT, at(2), 0, 12, outcome(2));
        let first = Remembered::Applied { index: 10, outcomes: outcome(1) };
        assert_eq!(sessions.remembered(CLIENT, 1), first);
        assert_eq!(sessions.remembered(CLIENT, 3), Remembered::New);
        sessions.check();
    }

    #[test]
    fn outcomes_go_when_the_client_knows_them_and_with_the_session() {
        let mut sessions = ClientSessions::new();
        for seq in 1..=4 {
            sessions.applied(CLIENT, at(seq), seq.saturating_sub(2), 10 + seq, outcome(seq));
        }
        assert_eq!(sessions.remembered(CLIENT, 2), Remembered::Forgotten);
        let third = Remembered::Applied { index: 13, outcomes: outcome(3) };
        assert_eq!(sessions.remembered(CLIENT, 3), third);
        sessions.applied(CLIENT, at(5), u64::MAX, 20, outcome(5));
        let last = Remembered::Applied { index: 20, outcomes: outcome(5) };
        assert_eq!(sessions.remembered(CLIENT, 5), last, "a client cannot know what it waits for");
        let copy = ClientSessions::from_wire(&sessions.to_wire(), sessions.over());
        assert_eq!(copy.remembered(CLIENT, 5), last);
        copy.check();
        sessions.ended(21, &[CLIENT]);
        assert_eq!((sessions.bytes(), sessions.last(CLIENT), sessions.over()), (0, None, 21));
    }

    #[test]
    #[should_panic(expected = "CHAIN-4")]
    fn no_batch_is_applied_twice() {
        let mut sessions = ClientSessions::new();
        sessions.applied(CLIENT, at(1), 0, 10, outcome(1));
        sessions.applied(CLIENT, at(1), 0, 11, outcome(2));
    }
}
