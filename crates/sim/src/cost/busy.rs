//! All nodes work: their loads change all the time, and each tells the head.

use hoplo_base::ResourceSet;
use hoplo_wire::peer::{Load, Peer};

use super::Plane;
use super::plane::row;
use super::words::{Heard, What};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busy {
    pub nodes: u32,
    /// Loads that all nodes tell in a second, and those that the head has heard.
    pub told: f64,
    pub heard: f64,
    /// Of one core.
    pub decider: f64,
    pub carrier: f64,
    /// The longest that anything waited for the carrier: heartbeats, too.
    pub carrier_waited_ms: f64,
    pub probes: u64,
    pub declared_dead: u64,
}

impl Plane {
    /// Each node tells its load so often for so long.
    pub fn busy(&mut self, every_ns: u64, seconds: f64) -> Busy {
        self.begin();
        self.load_every = Some(every_ns);
        for at in self.members.keys().copied().collect::<Vec<_>>() {
            self.after(u64::from(at) * 7_919 % every_ns, What::Load(at, false));
        }
        self.run_for((seconds * 1e9) as u64);
        self.load_every = None;
        let nodes = self.members.len() as u32 + 1;
        let share = |busy: u64| busy as f64 / 1e9 / seconds;
        let heard = self.meter.tallies().get("head: a node's load").map_or(0, |it| it.events);
        Busy {
            nodes,
            told: self.members.len() as f64 * 1e9 / every_ns as f64,
            heard: heard as f64 / seconds,
            decider: share(self.decider.busy),
            carrier: share(self.carrier.busy),
            carrier_waited_ms: self.carrier.waited_most.max(self.carrier_lag()) as f64 / 1e6,
            probes: self.probes,
            declared_dead: self.false_verdicts,
        }
    }

    /// How far it is behind.
    fn carrier_lag(&self) -> u64 {
        self.carrier.free_at().saturating_sub(self.now)
    }

    pub(super) fn tells_load(&mut self, at: u32, free: bool) {
        let Some(every) = self.load_every else { return };
        let Some(member) = self.members.get(&at).filter(|member| member.lives) else { return };
        let from = member.number();
        let total = row(at, "", hoplo_core::control::NodeState::Alive, self.cpus).resources;
        let one = ResourceSet::from_units([("CPU", 1.0)]).expect("finite amounts");
        // All CPUs are leased; now more waits, now less.
        let mut available = total.clone();
        available.set_parts("CPU", 0);
        let waiting = if free { Vec::new() } else { vec![(one, 900)] };
        let message =
            Box::new(Peer::Load(Box::new(Load { total, available, waiting, full: false })));
        self.after(
            self.costs.hand_over + self.costs.way,
            What::ToCarrier(Heard::Peer { from, message }),
        );
        self.after(every, What::Load(at, !free));
    }
}

#[cfg(test)]
mod tests {
    use hoplo_base::Instant;
    use hoplo_base::limits::LOAD_GATHERED;
    use hoplo_core::control::NodeState;
    use hoplo_core::node::{Event, Node};

    use super::super::plane::{config, number};
    use super::row;

    /// How long a node of so many waits before it tells its load, in milliseconds.
    fn waits(nodes: u32) -> u128 {
        let now = Instant(1_000_000_000);
        let mut node = Node::new(config(number(1), 4.0), now);
        let mut effects = Vec::new();
        let mut hears = |node: &mut Node, now, at: u32| {
            let entry = Box::new(row(at, "host", NodeState::Alive, 4.0));
            let index = u64::from(at) + 1;
            node.handle(now, Event::Member { entry, index }, &mut effects);
        };
        (0..nodes).for_each(|at| hears(&mut node, now, at));
        let later = now + LOAD_GATHERED * 1000;
        node.handle(later, Event::Tick, &mut Vec::new());
        assert_eq!(node.next_deadline(), None, "it has told its load");
        hears(&mut node, later, nodes);
        node.next_deadline().expect("its load may have changed").since(later).as_millis()
    }

    /// Each told its load every 2 ms, so 400 busy nodes took all that their head had, and its heartbeats came late.
    #[test]
    fn nodes_of_large_clusters_tell_their_load_more_rarely() {
        assert_eq!([10, 100, 1000, 2000].map(waits), [2, 5, 50, 100]);
    }
}
