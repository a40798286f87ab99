//! When memory is given back: a table that was large has become small.
//!
//! Tables keep their room when their entries go, and the allocator keeps what was freed. That is right while they
//! come again, and wrong once a program is done with a million objects. The owner of a table asks here when entries
//! go; on yes it makes the table smaller, and has its shell give what is free back to the system
//! (`hoplo_shm::heap`). Each yes follows as many removals as there were entries, so that it costs them little.

use crate::limits::{TABLE_LOOKED_AT_EVERY, TABLE_ROOM_KEPT, TABLE_ROOM_SHARE};

/// For who removes entries one by one in a hot path: whether it is time to ask `is_found`. A table that empties passes
/// several such counts after most of its room is too much.
#[inline]
pub fn is_due(entries: usize) -> bool {
    entries.is_multiple_of(TABLE_LOOKED_AT_EVERY)
}

/// Whether a table has much more room than its entries need.
#[inline]
pub fn is_found(entries: usize, room: usize) -> bool {
    room > TABLE_ROOM_KEPT && entries <= room / TABLE_ROOM_SHARE
}

/// The room that such a table shall have: it may double before it must grow.
pub fn room_for(entries: usize) -> usize {
    2 * entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_empties_is_made_smaller_a_few_times_and_a_small_one_never() {
        let (mut room, mut times) = (1 << 20, 0);
        for entries in (0..1 << 20).rev() {
            if is_found(entries, room) {
                (room, times) = (room_for(entries), times + 1);
            }
        }
        assert!(room <= TABLE_ROOM_KEPT, "{room}");
        assert_eq!(times, 3);
    }

    #[test]
    fn who_asks_only_when_it_is_due_makes_every_table_smaller_all_the_same() {
        for most in [TABLE_ROOM_KEPT + 1, 100_000, 1 << 20] {
            let mut room = most;
            for entries in (1..most).rev() {
                if is_due(entries) && is_found(entries, room) {
                    room = room_for(entries);
                }
            }
            assert!(room <= TABLE_ROOM_KEPT, "{most}: {room}");
        }
    }
}
