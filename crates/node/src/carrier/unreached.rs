//! Nodes that live, as far as anybody has said, and to which no connection comes about.
//!
//! The head may reach such a node, and nobody is dead then: what is for it waits. A person wants to know why, so the log says it once, and
//! says when it is over; and the decider hears both, for who asks why something waits.

use std::collections::BTreeMap;

use hoplo_base::limits::LINK_TROUBLE_SAID_AFTER;
use hoplo_base::{Instant, NodeNumber};
use hoplo_core::control::NodeEntry;
use hoplo_core::link::Trouble;

use crate::clock::clock;
use crate::journal;

#[derive(Debug, Default)]
pub(super) struct Unreached(BTreeMap<NodeNumber, Try>);

#[derive(Debug)]
struct Try {
    since: Instant,
    /// The latest one that failed. While there is something to say, they follow each other within a few seconds.
    latest: Instant,
    /// The log says so.
    is_said: bool,
}

impl Unreached {
    /// A connection did not come about, or broke. Since when it is so, if that is to be said now.
    pub(super) fn failed(&mut self, peer: &NodeEntry, what: &Trouble) -> Option<Instant> {
        let now = clock();
        let fresh = || Try { since: now, latest: now, is_said: false };
        let tried = self.0.entry(peer.node).or_insert_with(fresh);
        if now.since(tried.latest) > 4 * LINK_TROUBLE_SAID_AFTER && !tried.is_said {
            *tried = fresh(); // nobody had anything to say there meanwhile
        }
        tried.latest = now;
        let lasted = now.since(tried.since);
        if tried.is_said || lasted < LINK_TROUBLE_SAID_AFTER {
            return None;
        }
        tried.is_said = true;
        let NodeEntry { node, hostname, address, .. } = peer;
        let seconds = lasted.as_secs();
        journal::log(format_args!(
            "{node} ({hostname}) was not reached at {address} for {seconds} s ({what:?}): calls and objects for it wait until it is, or \
             is declared dead. Does a firewall keep this machine from that port?"
        ));
        Some(tried.since)
    }

    /// It said something: true if it was said that it does not.
    pub(super) fn reached(&mut self, peer: NodeNumber) -> bool {
        let Some(Try { since, is_said: true, .. }) = self.0.remove(&peer) else { return false };
        let seconds = clock().since(since).as_secs();
        journal::log(format_args!("{peer} is reached again, after {seconds} s"));
        true
    }

    /// It is dead.
    pub(super) fn forget(&mut self, peer: NodeNumber) {
        self.0.remove(&peer);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
