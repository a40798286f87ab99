//! Doorbell: how peers wake the threads of one process, at the price of one RMW if none sleeps.
//!
//! All of it is one 64-bit word. The kernel compares and sleeps on its upper half.
//!
//! ```text
//!   63 ........... 32   31 ........... 3   2      1        0
//!   rings so far (seq)  registrations      Idle   Lenient  Strict   <- somebody of that kind may sleep
//! ```
//! A thread that wants to sleep *registers* (sets the flag of its kind, counts the registration,
//! and learns seq, in one RMW), looks at its condition once more, and sleeps on that seq. A ringer
//! publishes what it has to say, adds one to seq, and the value that this RMW returns says whether
//! somebody needs a wake-up call.
//!
//! # No wake-up is lost (BELL-1)
//! Let P be what the ringer published before it rang, and let the sleeper S look for P.
//! 1. Ring and registration are RMWs of one word, so that one of them comes first.
//! 2. Ring first: the registration reads the ring's Release (or a later RMW of the same release
//!    sequence) with Acquire; P happened before; S sees P when it looks, and does not sleep.
//! 3. Registration first: the ring's RMW returns S's flag, and seq has moved past what S learned.
//!    If S enters the kernel after that, the kernel compares and refuses (FUTEX-1). If S is
//!    already asleep, the ringer's wake, which follows its RMW, reaches it (FUTEX-2).
//!
//! # A flag is dropped only when nobody needs it (BELL-2)
//! After the wake, the ringer clears the flags it woke, but only if the registration count is
//! still the one that its ring returned. Every thread counted there has either been woken or will
//! be refused by the kernel (its seq is old), and nobody has registered since. A ringer that dies
//! before it clears leaves a flag too many: one needless system call for somebody. A sleeper that
//! does not need its registration any more takes its flag back by the same rule; if it dies, that
//! also costs somebody one call. So nothing leaks, and no count can be wrong. Whoever takes a flag that another
//! thread may have set wakes that thread afterwards: `reset` too.
//!
//! # A sleeper that does not sleep here
//! A thread that waits for descriptors as well (the carrier in `epoll`) registers by `prepare`, looks once more, and sleeps there instead
//! of in [`Sleeper::sleep`]. Who rings that process wakes it by what it sleeps on ([`Doorbell::ring_with`]); all else is the same, with
//! "enters the kernel" in step 3 being the wait for a descriptor that stays readable until the sleeper has read it.
//!
//! Why the count never goes back: otherwise a flag taken back and set again by another thread
//! would look unchanged to a ringer that is about to clear it. It wraps after 2^29 registrations,
//! seq after 2^32 rings; either would have to happen within one ringer's or one sleeper's window.

use core::num::NonZeroU32;
use core::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// How badly a ringer needs the other process to run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Wake those who cannot go on without us (a worker without work): `Strict` only.
    Lazy,
    /// Wake also those who would like to know: `Strict` and `Lenient`.
    Eager,
    /// Wake everybody, idle progress threads too.
    Must,
}

/// What a thread sleeps for, and so which rings are worth waking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepKind {
    /// Any ring wakes.
    Strict,
    /// `Eager` and `Must` rings wake.
    Lenient,
    /// Only `Must` rings wake.
    Idle,
}

/// How a sleep ended. In each case the caller looks at its condition again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// The bell rang since `prepare`, or (rarely) nothing happened at all.
    Woken,
    /// The timeout passed.
    TimedOut,
    /// A signal handler ran (the bell may have rung, too): let Python look at its signals first.
    Interrupted,
}

/// One process's bell, in shared memory; two cache lines, since processors fetch them in pairs.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Doorbell {
    word: AtomicU64,
    #[cfg(loom)]
    kernel: model::Kernel,
}

/// A registered thread. Dropping it without sleeping takes the registration back.
#[must_use = "look at the condition again, then sleep"]
#[derive(Debug)]
pub struct Sleeper<'a> {
    bell: &'a Doorbell,
    kind: SleepKind,
    /// The lower half as it was before our registration.
    before: u32,
    seq: u32,
}

impl Doorbell {
    /// A silent bell (in shared memory, zeroes do as well).
    pub fn new() -> Doorbell {
        Doorbell::default()
    }

    /// Tells the process that something which it may wait for has been published. Wakes its
    /// sleepers of the kinds that `urgency` reaches; returns whether that took a system call.
    #[inline]
    pub fn ring(&self, urgency: Urgency) -> bool {
        // Release: pairs with the Acquire in prepare() and sleep() (BELL-1, step 2).
        // The flags are those of BELL-1, step 3.
        let before = self.word.fetch_add(SEQ_ONE, Ordering::AcqRel);
        match NonZeroU32::new(low(before) & urgency.reaches()) {
            None => false,
            Some(kinds) => {
                self.wake(kinds, low(before));
                true
            }
        }
    }

    /// As `ring`, for a process that sleeps elsewhere: `wake` wakes it there.
    pub fn ring_with(&self, urgency: Urgency, wake: impl FnOnce()) -> bool {
        // As in ring().
        let before = self.word.fetch_add(SEQ_ONE, Ordering::AcqRel);
        let kinds = low(before) & urgency.reaches();
        if kinds != 0 {
            wake();
            self.drop_flags(kinds, low(before));
        }
        kinds != 0
    }

    /// As `ring(Urgency::Lazy)`, and as `Urgency::Eager` if that would wake somebody more and `wakes` says
    /// yes: it is not asked otherwise.
    #[inline]
    pub fn ring_lenient(&self, wakes: impl FnOnce() -> bool) -> bool {
        // As in ring().
        let before = self.word.fetch_add(SEQ_ONE, Ordering::AcqRel);
        let (lazy, eager) = (Urgency::Lazy.reaches(), Urgency::Eager.reaches());
        let more = low(before) & eager & !lazy != 0;
        match NonZeroU32::new(low(before) & if more && wakes() { eager } else { lazy }) {
            None => false,
            Some(kinds) => {
                self.wake(kinds, low(before));
                true
            }
        }
    }

    /// Registers the calling thread as a sleeper. It then looks at its condition **again**, and
    /// either drops the result or calls [`Sleeper::sleep`].
    pub fn prepare(&self, kind: SleepKind) -> Sleeper<'_> {
        // Acquire: pairs with the Release in ring() (BELL-1, step 2).
        let before = self.update(Ordering::AcqRel, |word| {
            let registrations = low(word).wrapping_add(REGISTRATION_ONE) & !KINDS;
            Some(join(high(word), registrations | low(word) & KINDS | kind.flag()))
        });
        let before = before.expect("prepare always changes the word");
        Sleeper { bell: self, kind, before: low(before), seq: high(before) }
    }

    /// Rings so far, modulo 2^32. Acquire: what was published before the last ring is visible.
    pub fn rings(&self) -> u32 {
        high(self.word.load(Ordering::Acquire))
    }

    /// Whether a thread of one of these kinds may be asleep; a snapshot, for `explain` and tests.
    pub fn may_sleep(&self, kind: SleepKind) -> bool {
        low(self.word.load(Ordering::Relaxed)) & kind.flag() != 0
    }

    /// Silences the bell when the daemon gives the slot to another process: a last ring, which takes all flags
    /// with it. A thread of the old process may sleep here all the same (a driver that has left hoplo, or whose
    /// daemon ends): its flag goes, so it is woken (BELL-2). If it registers again after that, it rings for
    /// itself.
    pub fn reset(&self) {
        let before = self.update(Ordering::AcqRel, |word| {
            let registrations = low(word).wrapping_add(REGISTRATION_ONE) & !KINDS;
            Some(join(high(word).wrapping_add(1), registrations))
        });
        let flags = low(before.expect("reset always changes the word")) & KINDS;
        if let Some(kinds) = NonZeroU32::new(flags) {
            self.kernel_wake(kinds);
        }
    }

    #[cold]
    fn wake(&self, kinds: NonZeroU32, rung_at: u32) {
        self.kernel_wake(kinds);
        self.drop_flags(kinds.get(), rung_at);
    }

    /// BELL-2: clears `kinds` if nobody has registered since the lower half was `seen`.
    fn drop_flags(&self, kinds: u32, seen: u32) {
        // Relaxed: publishes nothing, and as an RMW it continues the release sequence of a ring.
        self.update(Ordering::Relaxed, |word| {
            let same_registrations = low(word) & !KINDS == seen & !KINDS;
            (same_registrations && low(word) & kinds != 0)
                .then(|| join(high(word), low(word) & !kinds))
        });
    }

    /// Replaces the word; returns the one before, or `None` if `next` wanted no change.
    fn update(&self, order: Ordering, next: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let new = next(word)?;
            match self.word.compare_exchange_weak(word, new, order, Ordering::Relaxed) {
                Ok(before) => return Some(before),
                Err(found) => word = found,
            }
        }
    }
}

impl Sleeper<'_> {
    /// Whether the bell has rung since `prepare`: for those who spin a little before they sleep.
    pub fn rung(&self) -> bool {
        self.bell.rings() != self.seq
    }

    /// Sleeps until a ring of the right urgency, for at most `timeout` (`None`: for ever).
    /// Returns at once if the bell has rung since `prepare`, whatever the urgency.
    pub fn sleep(self, timeout: Option<Duration>) -> Slept {
        if self.rung() {
            return Slept::Woken;
        }
        let slept = self.bell.kernel_sleep(self.seq, self.kind, timeout);
        // Acquire, through rings(): who was woken sees what was published before the ring.
        let rung = self.rung();
        if rung && slept != Slept::Interrupted { Slept::Woken } else { slept }
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        let flag = self.kind.flag();
        if self.before & flag == 0 {
            self.bell.drop_flags(flag, self.before.wrapping_add(REGISTRATION_ONE));
        }
    }
}

impl SleepKind {
    const fn flag(self) -> u32 {
        match self {
            SleepKind::Strict => 1,
            SleepKind::Lenient => 2,
            SleepKind::Idle => 4,
        }
    }
}

impl Urgency {
    const fn reaches(self) -> u32 {
        match self {
            Urgency::Lazy => SleepKind::Strict.flag(),
            Urgency::Eager => SleepKind::Strict.flag() | SleepKind::Lenient.flag(),
            Urgency::Must => KINDS,
        }
    }
}

const KINDS: u32 = 7;
const REGISTRATION_ONE: u32 = 8;
const SEQ_ONE: u64 = 1 << 32;

const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn join(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

#[cfg(not(loom))]
impl Doorbell {
    fn kernel_sleep(&self, seq: u32, kind: SleepKind, timeout: Option<Duration>) -> Slept {
        let flag = NonZeroU32::new(kind.flag()).expect("a flag is one bit");
        match crate::futex::wait(self.seq_word(), seq, flag, timeout) {
            crate::futex::Wait::Woken | crate::futex::Wait::Changed => Slept::Woken,
            crate::futex::Wait::TimedOut => Slept::TimedOut,
            crate::futex::Wait::Interrupted => Slept::Interrupted,
        }
    }

    fn kernel_wake(&self, kinds: NonZeroU32) {
        crate::futex::wake(self.seq_word(), kinds, u32::MAX);
    }

    /// The upper half as the kernel sees it. Only the kernel reads through this reference: our own
    /// accesses all go to the whole word, so that sizes are never mixed within the process.
    fn seq_word(&self) -> &core::sync::atomic::AtomicU32 {
        let upper = self.word.as_ptr().cast::<u32>().wrapping_add(1);
        // SAFETY: inside our own word, aligned to 4, lives as long as self (little endian).
        unsafe { core::sync::atomic::AtomicU32::from_ptr(upper) }
    }
}

/// The kernel's part under loom: a bucket lock, and one queue a kind.
#[cfg(loom)]
mod model {
    use super::*;
    use loom::sync::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub(super) struct Kernel {
        bucket: Mutex<()>,
        queues: [Condvar; 3],
    }

    impl Doorbell {
        pub(super) fn kernel_sleep(
            &self,
            seq: u32,
            kind: SleepKind,
            _timeout: Option<Duration>,
        ) -> Slept {
            let bucket = self.kernel.bucket.lock().expect("loom locks are not poisoned");
            if self.rings() == seq {
                let queue = kind.flag().trailing_zeros() as usize;
                drop(self.kernel.queues[queue].wait(bucket));
            }
            Slept::Woken
        }

        pub(super) fn kernel_wake(&self, kinds: NonZeroU32) {
            let _bucket = self.kernel.bucket.lock().expect("loom locks are not poisoned");
            for (index, queue) in self.kernel.queues.iter().enumerate() {
                if kinds.get() & 1 << index != 0 {
                    queue.notify_all();
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
