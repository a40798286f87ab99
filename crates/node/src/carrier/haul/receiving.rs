//! One object, or one part, that comes: what of it has landed, and what of that is there for good.

use hoplo_base::NodeNumber;
use hoplo_core::collective::Lap;
use hoplo_shm::{Claim, FileRoom};
use hoplo_wire::Rest;
use hoplo_wire::layout::{Front, Layout};

use super::folding::Folding;

pub(super) struct Receiving {
    /// Absent: it is made here.
    pub(super) from: Option<NodeNumber>,
    pub(super) slot: u32,
    /// Up to which byte of its object it comes. Else than of a part, these are all.
    pub(super) len: u64,
    /// Of a part: the first byte of its object that comes.
    pub(super) part: Option<u64>,
    /// So much is there for good: all that landed, or what of that could be folded.
    pub(super) written: u64,
    pub(super) landed: u64,
    /// Of so much all pieces have arrived.
    pub(super) came: u64,
    pub(super) room: Room,
    pub(super) fold: Option<Folding>,
}

pub(super) enum Room {
    Arena(Claim),
    File(FileRoom),
}

impl Receiving {
    pub(super) fn is_whole(&self) -> bool {
        self.written == self.len
    }

    pub(super) fn lap(&self) -> Option<&Lap> {
        self.fold.as_ref().and_then(Folding::lap)
    }

    /// Up to where it may be sent on.
    pub(super) fn mark(&self) -> u64 {
        self.lap().map_or(self.written, |lap| lap.reach(self.written))
    }

    /// These bytes come behind those that landed.
    pub(super) fn land(&mut self, bytes: &[u8]) {
        let begin = self.part.unwrap_or(0);
        let (at, end) = (self.landed - begin, self.landed - begin + bytes.len() as u64);
        let lap = self.fold.as_ref().and_then(Folding::lap);
        match (&mut self.room, lap) {
            (Room::Arena(claim), None) => claim[at as usize..end as usize].copy_from_slice(bytes),
            (Room::Arena(claim), Some(lap)) => {
                let mut rest = bytes;
                for (_, place) in lap.coming(at, end) {
                    let these = rest.split_off(..(place.end - place.start) as usize);
                    let these = these.expect("they are as many as come");
                    claim[place.start as usize..place.end as usize].copy_from_slice(these);
                }
            }
            (Room::File(room), _) => room.write(at as usize, bytes),
        }
        self.landed += bytes.len() as u64;
    }

    /// What landed is for good, as far as it can be.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        let (Some(fold), Room::Arena(total)) = (&mut self.fold, &mut self.room) else {
            self.written = self.landed;
            return Ok(());
        };
        self.written = fold.go_on(total, self.written, self.landed)?;
        Ok(())
    }

    /// What lies in front of the rest that is folded, beside numbers. Operands have to fit that.
    pub(super) fn lay(&mut self, rest: Rest) -> Result<(), String> {
        let (Some(fold), Room::Arena(total)) = (&mut self.fold, &mut self.room) else {
            return Ok(());
        };
        let Rest { from, front } = rest;
        let there = total.get_mut(..from as usize).filter(|_| from == self.written);
        if !there.is_some_and(|there| front.lay(there)) {
            return Err("the front is longer than what is folded".to_string());
        }
        fold.begin_behind(total, from)
    }

    /// What lies in what is written beside numbers, if it is folded and could go on from elsewhere.
    pub(super) fn front(&self) -> Option<Front> {
        let (Some(fold), Room::Arena(total)) = (&self.fold, &self.room) else { return None };
        let total = fold.lap().is_none().then_some(&total[..self.written as usize])?;
        Layout::front(total, self.len as usize).ok()
    }

    /// At least up to there.
    pub(super) fn make(&mut self, wanted: u64) -> Result<(), String> {
        let (Some(fold), Room::Arena(total)) = (&self.fold, &mut self.room) else { return Ok(()) };
        let upto = fold.beyond(wanted);
        if upto > self.landed {
            fold.copy(total, self.landed, upto);
            self.landed = upto;
        }
        self.finish()
    }
}
