//! Whether the entries of a log follow one another: a file that was taken away leaves a gap.

use super::frame::Kind;

/// Entries are numbered without gaps, but for what a snapshot covers.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Entries before the first base may begin anywhere; the first of them.
    older: Option<u64>,
    based: bool,
    /// What the next entry must be; 0: anything.
    next: u64,
}

impl Order {
    /// `Err`: this record cannot come here.
    pub(super) fn take(&mut self, kind: Kind, index: u64) -> Result<(), String> {
        match kind {
            Kind::Entry => {
                if self.next != 0 && index != self.next {
                    return Err(format!("entry {index} is here where {} should be", self.next));
                }
                if !self.based {
                    self.older.get_or_insert(index);
                }
                self.next = index.saturating_add(1);
            }
            Kind::Base | Kind::Chunk => {
                let covered = index.saturating_add(1);
                if kind == Kind::Base && !std::mem::replace(&mut self.based, true) {
                    let older = self.older.filter(|_| self.next > covered);
                    if older.is_some_and(|first| first > covered) {
                        return Err(format!("entry {covered} is missing before it"));
                    }
                }
                self.next = self.next.max(covered);
            }
            Kind::Truncated if index == 0 => *self = Self { next: 1, ..Self::default() },
            Kind::Truncated => self.next = self.next.min(index.saturating_add(1)),
        }
        Ok(())
    }

    /// At the end of the log.
    pub(super) fn finish(&self) -> Result<(), String> {
        match self.older {
            Some(first) if !self.based && first > 1 => {
                Err(format!("it begins with entry {first} and no snapshot covers what was before"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(records: &[(Kind, u64)]) -> Result<(), String> {
        let mut order = Order::default();
        records.iter().try_for_each(|(kind, index)| order.take(*kind, *index))?;
        order.finish()
    }

    #[test]
    fn gaps_are_found_and_what_snapshots_cover_is_none() {
        use Kind::{Base, Chunk, Entry, Truncated};
        let good: [&[(Kind, u64)]; 7] = [
            &[],
            &[(Entry, 1), (Entry, 2)],
            &[(Base, 5), (Entry, 6), (Chunk, 6), (Entry, 7)],
            &[(Entry, 4), (Entry, 5), (Entry, 6), (Base, 5), (Entry, 7)],
            &[(Entry, 4), (Base, 9), (Entry, 10)],
            &[(Entry, 1), (Entry, 2), (Truncated, 1), (Entry, 2)],
            &[(Entry, 1), (Truncated, 0), (Base, 8), (Entry, 9)],
        ];
        good.iter().for_each(|records| assert_eq!(follow(records), Ok(()), "{records:?}"));
        let bad: [&[(Kind, u64)]; 6] = [
            &[(Entry, 2)],
            &[(Entry, 1), (Entry, 3)],
            &[(Base, 5), (Entry, 7)],
            &[(Entry, 7), (Base, 5)],
            &[(Entry, 1), (Truncated, 0), (Entry, 2)],
            &[(Base, 0), (Entry, 1), (Truncated, 1), (Entry, 1)],
        ];
        bad.iter().for_each(|records| assert!(follow(records).is_err(), "{records:?}"));
    }
}
