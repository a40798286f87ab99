//! What goes wrong, and until when.

use std::time::Duration;

use hoplo_base::{Instant, NodeNumber, ProcessId, limits};

use crate::client::Client;
use crate::cluster::{Cluster, Step};
use crate::host::Host;
use crate::rng::Rng;
use crate::table::number;

/// Sizes and faults of one seed.
#[derive(Debug)]
pub struct Plan {
    pub drivers: u32,
    /// Most values are stored, and large.
    pub stores_much: bool,
    pub cpus: u64,
    pub gpus: u64,
    pub capacity_bytes: u64,
    /// The longest that a process or the daemon lets a socket lie.
    pub tardiness: Duration,
    /// Frames that a ring holds.
    pub ring_depth: usize,
    /// One fault in so many turns; 0 is none.
    pub kills: u64,
    pub driver_kills: bool,
    pub fork_failures: bool,
    pub disk_failures: bool,
    /// What runs uses too much memory at times.
    pub memory_faults: bool,
    /// The control store refuses rows at times.
    pub control_refuses: bool,
    pub keeps_rows: bool,
    pub slots_resting: usize,
    /// The daemon dies then, and another one goes on with its control store.
    pub head_dies_at: Option<Instant>,
    /// In the end the node is told to stop; else the drivers leave.
    pub stops: bool,
    pub cancels: bool,
    pub faults_until: Instant,
    pub prints: bool,
    /// The machines are checked at few steps only.
    pub checks_rarely: bool,

    // ---- of several nodes ----
    /// One step of a program in eight is a reduce.
    pub reduces_much: bool,
    pub nodes: u32,
    /// All but the head join within this time, also while programs run.
    pub joins_within: Duration,
    /// At which node each program begins.
    pub drivers_at: Vec<u32>,
    /// The longest that a message between nodes takes, mostly.
    pub latency: Duration,
    /// Everything takes long between these two.
    pub slow_link: Option<(NodeNumber, NodeNumber)>,
    /// Connections break, one fault in so many turns, or nothing arrives for a while; 0 is never.
    pub breaks: u64,
    /// A node is killed then, but not the head.
    pub node_dies_at: Option<Instant>,
    /// It is not killed: it hears that it is dead to others, and ends in order.
    pub node_is_fenced: bool,
    /// Nothing runs there for a while, as on a machine that is suspended; then it goes on as if nothing had been, until it hears so.
    pub node_freezes: bool,
    /// With it the node that would be its heir, and keeps what it may need for that: of what both knew there are rows alone.
    pub dies_with_heir: bool,
    /// And a while later another one.
    pub node_dies_again: bool,
    /// Or later, as soon as one has the only copy of what is at home at another node.
    pub dies_with_copies: bool,
    /// It waits with its death until a third node is told to fetch from it alone.
    pub dies_when_named: bool,
    /// The node dies when another one folds into what comes from it. Programs reduce what lies at many nodes.
    pub dies_when_folded: bool,
    /// A node that is not the head is drained then, and leaves when nothing keeps it.
    pub node_drains_at: Option<Instant>,
    /// The head is killed then, or later, when all nodes have joined; and another one goes on within a time.
    pub head_falls_at: Option<Instant>,
    pub headless_for: Duration,
    /// So many of those that come in its place are killed, too.
    pub heads_fall_more: u32,
    /// The head may be killed while nodes and programs are still to come.
    pub falls_before_joins: bool,
    /// On control nodes, which do not die with the head.
    pub control_apart: bool,
    /// Each actor that may restart makes checkpoints.
    pub logs_all: bool,
    /// A node hears of changes of the node table so late.
    pub news_within: Duration,
    pub bulk_window_bytes: usize,
    /// Messages that the kernel takes of a connection before its other end reads.
    pub socket_packets: usize,
}

const FAULT_TURN: Duration = Duration::from_millis(4);

impl Plan {
    pub fn new(rng: &mut Rng) -> Self {
        let quiet = rng.one_in(3);
        let tardiness = [20, 200, 2_000, 20_000][rng.below(4) as usize];
        let keeps_rows = rng.one_in(2);
        let head_dies = keeps_rows && rng.one_in(4);
        let head_dies_at = Instant(1_000_000) + rng.delay(Duration::from_millis(200));
        Self {
            drivers: 1 + rng.below(3) as u32,
            stores_much: false,
            reduces_much: false,
            cpus: 1 + rng.below(4),
            gpus: rng.below(3),
            capacity_bytes: [3, 6, 12, 32, 256][rng.below(5) as usize] << 20,
            tardiness: Duration::from_micros(tardiness),
            ring_depth: [1, 3, 64][rng.below(3) as usize],
            kills: if quiet { 0 } else { 2 + rng.below(30) },
            driver_kills: !quiet && rng.one_in(3),
            fork_failures: !quiet && rng.one_in(3),
            disk_failures: !quiet && rng.one_in(2),
            memory_faults: !quiet && rng.one_in(4),
            control_refuses: !quiet && rng.one_in(4),
            keeps_rows,
            head_dies_at: head_dies.then_some(head_dies_at),
            slots_resting: [0, 2, 64][rng.below(3) as usize],
            stops: rng.one_in(4),
            cancels: rng.one_in(2),
            faults_until: Instant(1_000_000) + Duration::from_millis(300),
            prints: std::env::var_os("HOPLO_SIM_PRINT").is_some(),
            checks_rarely: false,
            nodes: 1,
            joins_within: Duration::ZERO,
            drivers_at: Vec::new(),
            latency: Duration::ZERO,
            slow_link: None,
            breaks: 0,
            node_dies_at: None,
            node_is_fenced: false,
            node_freezes: false,
            node_dies_again: false,
            dies_with_heir: false,
            node_drains_at: None,
            head_falls_at: None,
            headless_for: Duration::ZERO,
            heads_fall_more: 0,
            falls_before_joins: false,
            control_apart: false,
            dies_with_copies: false,
            dies_when_named: false,
            dies_when_folded: false,
            logs_all: false,
            news_within: Duration::ZERO,
            bulk_window_bytes: limits::LINK_BULK_WINDOW_BYTES,
            socket_packets: 8,
        }
    }

    /// Of up to 16 nodes. What is left out is tried with one node.
    pub fn of_nodes(rng: &mut Rng) -> Self {
        let alone = Self::new(rng);
        let nodes = [2, 2, 2, 3, 3, 4, 5, 6, 7, 8][rng.below(10) as usize];
        let latency = [20, 200, 2_000, 10_000][rng.below(4) as usize];
        let quiet = alone.kills == 0;
        let stores_much = rng.one_in(4);
        let little = 3 << 20;
        let capacity_bytes = if stores_much { little } else { alone.capacity_bytes };
        let any = |rng: &mut Rng| number(rng.below(u64::from(nodes)) as u32);
        let (one, two) = (any(rng), any(rng));
        let slow = rng.one_in(3) && one != two;
        let breaks = if rng.one_in(4) { 0 } else { 2 + rng.below(20) };
        let dies_at = Instant(10_000_000) + Duration::from_millis(rng.below(280));
        let dies = !quiet && rng.one_in(4);
        let news = [1, 5, 50, 200][rng.below(4) as usize];
        let joins_within = [0, 2, 30, 200][rng.below(4) as usize];
        let window = [640, 65_536, limits::LINK_BULK_WINDOW_BYTES][rng.below(3) as usize];
        // What else a seed says stays as it is.
        let mut apart = Rng::new(rng.clone().next());
        let very_many = 9 + apart.clone().below(8) as u32;
        let nodes = if nodes == 8 && very_many.is_multiple_of(2) { very_many } else { nodes };
        let drains_at = Instant(10_000_000) + Duration::from_millis(apart.below(280));
        let drains = nodes > 2 && apart.one_in(4);
        let falls_at = Instant(10_000_000) + Duration::from_millis(apart.clone().below(280));
        let mut plan = Self {
            keeps_rows: true,
            head_dies_at: None,
            stores_much,
            capacity_bytes,
            nodes,
            joins_within: Duration::from_millis(joins_within),
            latency: Duration::from_micros(latency),
            slow_link: slow.then_some((one.min(two), one.max(two))),
            breaks,
            node_dies_at: dies.then_some(dies_at),
            node_drains_at: drains.then_some(drains_at),
            dies_with_copies: rng.one_in(2),
            dies_when_named: apart.one_in(2),
            logs_all: apart.one_in(8),
            reduces_much: apart.one_in(4),
            head_falls_at: (!quiet && apart.one_in(4)).then_some(falls_at),
            headless_for: Duration::from_millis([1, 20, 500, 4000][apart.below(4) as usize]),
            control_apart: apart.one_in(2),
            heads_fall_more: u32::from(apart.one_in(3)),
            news_within: Duration::from_millis(news),
            bulk_window_bytes: window,
            socket_packets: [1, 3, 64][rng.below(3) as usize],
            falls_before_joins: apart.one_in(2),
            node_dies_again: apart.one_in(3),
            ..alone
        };
        plan.heads_fall_more *= 1 + u32::from(apart.one_in(3));
        plan.node_is_fenced = apart.one_in(3);
        plan.dies_with_heir = apart.one_in(4);
        plan.node_freezes = apart.one_in(3);
        if !quiet && plan.nodes > 3 && apart.one_in(3) {
            plan.dies_when_folded(dies_at);
        }
        plan
    }

    pub fn dies_when_folded(&mut self, at: Instant) {
        (self.dies_when_folded, self.node_dies_at) = (true, Some(at));
        (self.dies_when_named, self.reduces_much, self.stores_much) = (false, true, true);
        self.capacity_bytes = self.capacity_bytes.max(1 << 26);
    }

    pub fn has_kills(&self) -> bool {
        self.kills > 0
    }
}

impl Cluster {
    pub fn faulty(&self) -> bool {
        self.now < self.plan.faults_until && self.plan.has_kills()
    }

    pub fn fault(&mut self) {
        if !self.faulty() {
            return;
        }
        if self.rng.one_in(self.plan.kills) {
            let drivers = self.plan.driver_kills && self.rng.one_in(8);
            let how = self.rng.below(8);
            match (how, drivers) {
                (0, false) | (0..=3, true) => self.befalls(|_| true, drivers, Step::Hangs),
                // It may have said something that nobody heard yet.
                (1, false) => self.befalls(|client| !client.up.is_empty(), drivers, Step::IsDeaf),
                _ => self.befalls(|_| true, drivers, Step::Dies),
            }
        }
        let delay = self.rng.delay(2 * FAULT_TURN) + Duration::from_micros(50);
        self.after(delay, Step::Fault);
    }

    /// To a process that lives: one of these, if there are any.
    fn befalls(
        &mut self,
        these: impl Fn(&Client) -> bool,
        drivers: bool,
        step: fn(ProcessId) -> Step,
    ) {
        let all = self.clients.values().filter(|it| it.alive && it.is_driver == drivers);
        let (rather, others): (Vec<_>, Vec<_>) = all.partition(|client| these(client));
        let victims = if rather.is_empty() { others } else { rather };
        if victims.is_empty() {
            return;
        }
        let victim = victims[self.rng.below(victims.len() as u64) as usize].id;
        let step = step(victim);
        if matches!(step, Step::Dies(_)) {
            self.count(if drivers { "kills of drivers" } else { "kills of workers" });
            self.note(|| format!("FAULT: {victim} is killed"));
        }
        self.at_node(victim.node(), self.now, step);
    }

    /// A node that is not the head, and would take an object of another one with it.
    fn has_last_copy(&self) -> Option<NodeNumber> {
        let head = self.head();
        let rows = |home: &Host| {
            let listing = home.daemon.node.objects.listing();
            let at_home = listing.filter(|row| row.object.task.owner.node() == home.number);
            at_home.filter(|row| row.state == "elsewhere").collect::<Vec<_>>()
        };
        let homes = self.hosts().filter(|host| !host.dead);
        homes.flat_map(rows).find_map(|row| match row.copies[..] {
            [only] if only != head && self.host(only).goes_on() => Some(only),
            _ => None,
        })
    }

    /// The node here was just told that it alone has the bytes of what is at home at `home`: it is killed before it sends them, and who hears of
    /// that first is left to chance.
    pub fn is_named_alone(&mut self, only: NodeNumber, home: NodeNumber) {
        let is_third = ![self.head(), home, self.here.number].contains(&only);
        if is_third && self.plan.dies_when_named && self.is_node_due() && self.host(only).goes_on()
        {
            self.count("kills of nodes that somebody is about to fetch from");
            self.next_node_dies_later();
            self.after(Duration::ZERO, Step::NodeFalls(only));
        }
    }

    /// The node here folds into what comes from that one, and has some of it.
    pub fn is_folded_into(&mut self, from: NodeNumber) {
        let may = self.plan.dies_when_folded && self.is_node_due();
        if may && from != self.head() && self.host(from).goes_on() {
            self.count("kills of nodes that others fold into");
            self.next_node_dies_later();
            self.after(Duration::ZERO, Step::NodeFalls(from));
        }
    }

    /// One dies now.
    fn next_node_dies_later(&mut self) {
        self.plan.node_dies_at = None;
        if std::mem::take(&mut self.plan.node_dies_again) {
            self.plan.node_dies_at = Some(self.now + self.rng.delay(Duration::from_millis(50)));
        }
    }

    fn living_but_head(&self) -> Vec<NodeNumber> {
        let head = self.head();
        let living = self.living().into_iter();
        living.filter(|node| *node != head && self.host(*node).goes_on()).collect()
    }

    fn is_node_due(&self) -> bool {
        let all_came = self.drivers.len() >= self.plan.drivers as usize;
        self.now < self.plan.faults_until
            && all_came
            && self.plan.node_dies_at.is_some_and(|at| self.now >= at)
    }

    /// Of what is between nodes, and of a whole node.
    pub fn link_fault(&mut self) {
        if self.now >= self.plan.faults_until {
            return;
        }
        let all_came = self.drivers.len() >= self.plan.drivers as usize;
        if self.is_node_due() {
            let living = self.living_but_head();
            let any = living.get(self.rng.below(living.len().max(1) as u64) as usize).copied();
            let is_late = self.now + 2 * FAULT_TURN >= self.plan.faults_until;
            let victim = match self.has_last_copy() {
                _ if self.plan.dies_when_named && !is_late => None,
                _ if self.plan.dies_when_folded && !is_late => None,
                _ if !self.plan.dies_with_copies => any,
                Some(last) => Some(last),
                None => any.filter(|_| is_late),
            };
            if let Some(victim) = victim {
                let heir = self.heir_by_table(victim).filter(|heir| living.contains(heir));
                let heir = heir.filter(|_| self.plan.dies_with_heir);
                self.next_node_dies_later();
                self.node_falls(victim);
                if let Some(heir) = heir {
                    self.count("nodes that died with their heirs");
                    self.node_falls(heir);
                }
            }
        }
        let is_whole = all_came && self.hosts().count() >= self.plan.nodes as usize;
        let may_fall = (is_whole || self.plan.falls_before_joins) && !self.is_headless();
        if may_fall && self.plan.head_falls_at.is_some_and(|at| self.now >= at) {
            self.plan.head_falls_at = None;
            self.head_dies();
        }
        let may_drain = all_came && !self.is_headless();
        if may_drain && self.plan.node_drains_at.is_some_and(|at| self.now >= at) {
            let living = self.living_but_head();
            self.plan.node_drains_at = None;
            if !living.is_empty() {
                let any = self.rng.below(living.len() as u64) as usize;
                self.node_drains(living[any]);
            }
        }
        if self.plan.breaks > 0 && self.rng.one_in(self.plan.breaks) {
            let nodes = self.plan.nodes.max(self.hosts().count() as u32);
            let at = |rng: &mut Rng| number(rng.below(u64::from(nodes)) as u32);
            let (one, two) = (at(&mut self.rng), at(&mut self.rng));
            let time = Duration::from_millis(1 + self.rng.below(80));
            match self.rng.below(6) {
                _ if one == two => {}
                0 | 1 => self.cuts(one, two, time),
                2 => self.cuts_one_way(one, two, time),
                _ => self.breaks(one, two),
            }
        }
        let delay = self.rng.delay(2 * FAULT_TURN) + Duration::from_micros(50);
        self.after(delay, Step::LinkFault);
    }
}
