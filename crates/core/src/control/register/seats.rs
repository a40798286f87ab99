//! Seats: which node's votes count at each place, as far as somebody knows.

use hoplo_base::NodeId;
use hoplo_wire::register::Seat;

/// What two know together. Both lists are of the same length.
pub(super) fn joined(one: &[Seat], other: &[Seat]) -> Vec<Seat> {
    one.iter().zip(other).map(|(one, other)| *one.max(other)).collect()
}

/// With seats for those nodes that are at their places now, if they may have some: all at once when nobody ever sat, else whoever is
/// another one than the node that sat there.
pub(super) fn taken(seats: &[Seat], present: &[Option<NodeId>]) -> Vec<Seat> {
    if !are_taken(seats) && present.iter().any(Option::is_none) {
        return seats.to_vec();
    }
    let take = |(seat, node): (&Seat, &Option<NodeId>)| match node {
        Some(node) if *node != seat.node || seat.turn == 0 => {
            Seat { turn: seat.turn + 1, node: *node }
        }
        Some(_) | None => *seat,
    };
    seats.iter().zip(present).map(take).collect()
}

/// Whether a register was ever begun.
pub(super) fn are_taken(seats: &[Seat]) -> bool {
    seats.iter().any(|seat| seat.turn > 0)
}
