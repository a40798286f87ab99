//! Who may wait at the door: connections that were accepted, and whose peers did not say yet who they are.
//!
//! Anybody who reaches a port may make as many as he likes, and each costs a descriptor and some memory. So they are
//! bounded: in all, and from one address. At the bound the oldest of those who said nothing makes room for who comes: of many that
//! stay silent each is there for a moment, and who wants something says so in less. Where all have begun to speak, one that had time
//! enough to say who he is makes room; where nobody had, who comes is turned away. An address where a member of the cluster is known
//! has room of its own beyond the bound, and nobody from there is turned away: when that is used up, too, nothing is accepted until
//! the next has had its time.
//!
//! # Invariants
//! - DOOR-1: no more than `most + known_most` wait.
//! - DOOR-2: nobody makes room who has begun to speak, or comes from a member's address, and has not had [`NET_STRANGER_GRACE`].
//! - DOOR-3: who comes from a member's address is never turned away, and makes room only for others from such addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use hoplo_base::limits::{NET_STRANGER_GRACE, NET_STRANGERS_OF_ADDRESS_MAX};

use crate::link::LinkId;

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// This machine, over a unix socket: its file says who may.
    Local,
    Host(IpAddr),
}

#[derive(Debug)]
pub(crate) struct Door {
    waiting: BTreeMap<LinkId, Stranger>,
    most: usize,
    known_most: usize,
}

#[derive(Debug)]
struct Stranger {
    origin: Origin,
    known: bool,
    since: Instant,
    /// Something came from it, and it is not answered.
    spoke: bool,
}

/// What becomes of who comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Enters,
    /// That one has had its time, or said nothing.
    InsteadOf(LinkId),
    TurnedAway,
}

impl Door {
    pub(crate) fn new(most: usize, known_most: usize) -> Self {
        assert!(most > 0 && known_most > 0, "somebody has to be let in");
        Self { waiting: BTreeMap::new(), most, known_most }
    }

    /// Nobody can be let in before that.
    pub(crate) fn shut_until(&self, now: Instant) -> Option<Instant> {
        if self.waiting.len() < self.most + self.known_most {
            return None;
        }
        if self.waiting.values().any(Stranger::is_mute) {
            return None;
        }
        let first = self.waiting.values().map(|it| it.since).min()?;
        Some(first + NET_STRANGER_GRACE).filter(|until| *until > now)
    }

    /// `known`: a member of the cluster is at that address.
    pub(crate) fn knock(&self, now: Instant, origin: Origin, known: bool) -> Entry {
        if !known && self.of(origin) >= NET_STRANGERS_OF_ADDRESS_MAX {
            return instead(self.oldest(now, |it| it.origin == origin));
        }
        if self.waiting.len() < self.most {
            return Entry::Enters;
        }
        let unknown = self.crowd().and_then(|crowd| self.oldest(now, |it| it.origin == crowd));
        if let Some(one) = unknown.or_else(|| self.oldest(now, |it| !it.known)) {
            return Entry::InsteadOf(one);
        }
        if !known {
            return Entry::TurnedAway;
        }
        if self.waiting.len() < self.most + self.known_most {
            return Entry::Enters;
        }
        instead(self.oldest(now, |_| true))
    }

    pub(crate) fn enters(&mut self, now: Instant, link: LinkId, origin: Origin, known: bool) {
        self.waiting.insert(link, Stranger { origin, known, since: now, spoke: false });
        assert!(self.waiting.len() <= self.most + self.known_most, "DOOR-1");
    }

    /// Something came from it, and not yet who it is.
    pub(crate) fn spoke(&mut self, link: LinkId) {
        if let Some(it) = self.waiting.get_mut(&link) {
            it.spoke = true;
        }
    }

    /// It was answered, and only reads that.
    pub(crate) fn leaves(&mut self, link: LinkId) {
        if let Some(it) = self.waiting.get_mut(&link) {
            it.spoke = false;
        }
    }

    /// It said who it is, or is gone.
    pub(crate) fn forget(&mut self, link: LinkId) {
        self.waiting.remove(&link);
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn of(&self, origin: Origin) -> usize {
        self.waiting.values().filter(|it| it.origin == origin).count()
    }

    /// The address that most of those come from of which no member is known.
    fn crowd(&self) -> Option<Origin> {
        let mut counts = BTreeMap::new();
        for it in self.waiting.values().filter(|it| !it.known) {
            *counts.entry(it.origin).or_insert(0_usize) += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(origin, _)| origin)
    }

    /// Of those who said nothing, else of those who have had their time.
    fn oldest(&self, now: Instant, of: impl Fn(&Stranger) -> bool) -> Option<LinkId> {
        let had_time =
            |it: &Stranger| now.saturating_duration_since(it.since) >= NET_STRANGER_GRACE;
        let found = self.waiting.iter().filter(|(_, it)| of(it) && (it.is_mute() || had_time(it)));
        found.min_by_key(|(id, it)| (!it.is_mute(), it.since, **id)).map(|(id, _)| *id)
    }
}

impl Stranger {
    /// A member may be on a slow way.
    fn is_mute(&self) -> bool {
        !self.spoke && !self.known
    }
}

fn instead(one: Option<LinkId>) -> Entry {
    one.map_or(Entry::TurnedAway, Entry::InsteadOf)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    struct Street {
        door: Door,
        now: Instant,
        next: u64,
    }

    impl Street {
        fn new(most: usize, known_most: usize) -> Self {
            Self { door: Door::new(most, known_most), now: Instant::now(), next: 0 }
        }

        /// And says a word.
        fn speaks(&mut self, origin: Origin, known: bool) -> Entry {
            let entry = self.comes(origin, known);
            if entry != Entry::TurnedAway {
                self.door.spoke(LinkId(self.next - 1));
            }
            entry
        }

        fn comes(&mut self, origin: Origin, known: bool) -> Entry {
            if self.door.shut_until(self.now).is_some() {
                return Entry::TurnedAway;
            }
            let entry = self.door.knock(self.now, origin, known);
            match entry {
                Entry::TurnedAway => return entry,
                Entry::InsteadOf(one) => self.door.forget(one),
                Entry::Enters => {}
            }
            self.door.enters(self.now, LinkId(self.next), origin, known);
            self.next += 1;
            entry
        }
    }

    fn host(last: u8) -> Origin {
        Origin::Host(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn silent_ones_kept_others_of_their_address_out() {
        let mut street = Street::new(200, 10);
        for _ in 0..NET_STRANGERS_OF_ADDRESS_MAX {
            assert_eq!(street.comes(host(1), false), Entry::Enters);
        }
        street.door.spoke(LinkId(0));
        for number in 1..1000 {
            let oldest = Entry::InsteadOf(LinkId(number));
            assert_eq!(street.comes(host(1), false), oldest, "and not the one that speaks");
        }
        // It is no way to push out others, either.
        for number in 2..5 {
            assert_eq!(street.comes(host(number), false), Entry::Enters);
        }
    }

    #[test]
    fn one_address_does_not_take_the_places_of_others() {
        let mut street = Street::new(200, 10);
        for _ in 0..NET_STRANGERS_OF_ADDRESS_MAX {
            assert_eq!(street.speaks(host(1), false), Entry::Enters);
        }
        assert_eq!(street.comes(host(1), false), Entry::TurnedAway);
        assert_eq!(street.comes(host(2), false), Entry::Enters);
        street.now += NET_STRANGER_GRACE;
        assert_eq!(street.comes(host(1), false), Entry::InsteadOf(LinkId(0)));
    }

    #[test]
    fn many_addresses_do_not_take_the_places_of_members() {
        let mut street = Street::new(20, 5);
        for number in 0..20 {
            assert_eq!(street.speaks(host(number), false), Entry::Enters);
        }
        assert_eq!(street.comes(host(100), false), Entry::TurnedAway);
        for _ in 0..5 {
            assert_eq!(street.comes(host(200), true), Entry::Enters);
        }
        // Full: until those who came first have had their time nothing is accepted.
        let until = street.door.shut_until(street.now).unwrap();
        assert_eq!(until, street.now + NET_STRANGER_GRACE);
        street.now = until;
        assert_eq!(street.door.shut_until(street.now), None);
        for _ in 0..20 {
            // Strangers make room, and no member does.
            let entry = street.comes(host(200), true);
            assert!(matches!(entry, Entry::InsteadOf(LinkId(0..20))), "{entry:?}");
        }
        assert_eq!(street.comes(host(101), false), Entry::TurnedAway);
    }

    #[test]
    fn who_said_who_it_is_leaves_room() {
        let mut street = Street::new(1, 1);
        assert_eq!(street.comes(Origin::Local, true), Entry::Enters);
        assert_eq!(street.comes(Origin::Local, true), Entry::Enters);
        assert_eq!(street.comes(Origin::Local, true), Entry::TurnedAway);
        street.door.forget(LinkId(0));
        assert_eq!(street.comes(Origin::Local, true), Entry::Enters);
        street.now += NET_STRANGER_GRACE - Duration::from_millis(1);
        assert_eq!(street.comes(Origin::Local, true), Entry::TurnedAway);
        street.now += Duration::from_millis(1);
        assert_eq!(street.comes(Origin::Local, true), Entry::InsteadOf(LinkId(1)));
    }
}
