//! Whatever is delivered, lost or doubled in whatever order.

use proptest::prelude::*;

use super::*;

impl World {
    /// One thing that may happen, chosen by this number.
    fn step(&mut self, choice: u32) {
        let (kind, pick) = (choice % 64, (choice / 64) as usize);
        let places = self.acceptors.len();
        match kind {
            0..36 if !self.messages.is_empty() => {
                let message = self.messages.swap_remove(pick % self.messages.len());
                self.deliver(message);
            }
            // It comes again later.
            36..39 if !self.messages.is_empty() && self.messages.len() < 200 => {
                let message = self.messages[pick % self.messages.len()].clone();
                self.deliver(message);
            }
            39..41 if !self.messages.is_empty() => {
                self.messages.swap_remove(pick % self.messages.len());
            }
            41..52 => {
                let at = pick % self.proposers.len();
                if self.working[at].is_none() {
                    let back = (pick / 7 % 8 == 0) as u64;
                    let known = self.judge.floor.saturating_sub(back);
                    match pick / 64 % 3 {
                        0 => self.begin(at, Wanted::Load),
                        _ => self.swap(at, Some(known).filter(|version| *version > 0)),
                    }
                }
            }
            52..57 => {
                let at = pick % self.proposers.len();
                if let Some(due) = self.proposers[at].next_deadline() {
                    // Seldom so far that its time is over.
                    let far = self.working[at].is_some() && pick / 64 % 16 == 0;
                    self.now = self.now.max(if far { self.now + PATIENCE } else { due });
                    self.tell(at, Event::Tick);
                }
            }
            57..58 => self.restarts(pick % self.proposers.len()),
            58..60 => {
                let at = pick % self.proposers.len();
                self.tell(at, Event::Gone { place: pick / 64 % places });
            }
            60..62 => {
                // As many as a minority at a time.
                let place = pick % places;
                let minority = (places - 1) / 2;
                if self.emptied.contains(&place) || self.emptied.len() < minority {
                    self.loses_disk(place);
                }
            }
            62 => {
                self.full.insert(pick % places);
            }
            63 => self.full.clear(),
            _ => {}
        }
    }

    /// Everything is well again: what was acknowledged is there, and swaps go on.
    fn heals(&mut self) {
        self.full.clear();
        self.settle();
        if self.too_many {
            return;
        }
        let last = self.proposers.len() - 1;
        let mut stored = 0;
        for _ in 0..4 {
            let version = match self.load(0) {
                Outcome::Loaded(found) => found.map(|(version, _)| version),
                other => panic!("{other:?}"),
            };
            // A minority may hold what nobody was told of: the first swap finishes that.
            match self.swapped(last, version) {
                Outcome::Stored(_) => stored += 1,
                Outcome::Conflict => assert_eq!(stored, 0, "nobody else swaps"),
                other => panic!("{other:?}"),
            }
        }
        assert!(stored >= 3 && self.emptied.is_empty(), "all have the value again");
    }
}

fn goes_well(places: usize, proposers: usize, begun: bool, choices: &[u32]) {
    let mut world = World::new(places, proposers);
    if begun {
        assert_eq!(world.swapped(0, None), Outcome::Stored(1));
    }
    choices.iter().for_each(|choice| world.step(*choice));
    // Seldom: a word that was late by two lost disks took its seat from a third node of that place.
    if !world.too_many {
        world.heals();
    }
}

proptest! {
    #[test]
    fn what_was_acknowledged_is_never_lost(
        places in prop::sample::select(vec![1_usize, 2, 3, 3, 3, 5]),
        proposers in 1_usize..4,
        begun in any::<bool>(),
        choices in prop::collection::vec(any::<u32>(), 0..600),
    ) {
        goes_well(places, proposers, begun, &choices);
    }
}
