//! A coordinator in a small world: a document in memory, processes that live, are silent or gone.

use std::collections::BTreeMap;
use std::time::Duration;

use hoplo_base::{Instant, NodeId, limits};
use hoplo_wire::control::{
    ChainConfig, ClusterConfig, ClusterId, Epoch, FromCoordinator, Holding, Member, ReplicaId,
    ShardId, Speaker, ToCoordinator, Wish,
};

use super::{Coordinator, CoordinatorOptions, Effect, Event, Left, Loss, Probe};

const CLUSTER: ClusterId = ClusterId(7);
const SHARD: ShardId = ShardId(0);

struct World {
    now: Instant,
    coordinators: Vec<Coordinator>,
    document: Option<(u64, ClusterConfig)>,
    reachable: bool,
    /// What a probe of it finds.
    processes: BTreeMap<ReplicaId, Probe>,
    /// It says heartbeats with this epoch.
    beats: BTreeMap<ReplicaId, u64>,
    announced: Vec<ClusterConfig>,
    answers: Vec<(Speaker, FromCoordinator)>,
}

fn id(node: u64, incarnation: u64) -> ReplicaId {
    ReplicaId { node: NodeId(node), incarnation }
}

fn member(id: ReplicaId) -> Member {
    Member { replica: id, address: format!("{}:{}", id.node.0, id.incarnation) }
}

fn holding(logged: u64, epoch: u64) -> Holding {
    Holding { shard: SHARD, config: Epoch(epoch), logged, epoch: Epoch(epoch) }
}

/// One that has just begun, and its clock with it.
fn coordinator(me: ReplicaId, replication: u8, shards: u16) -> Coordinator {
    let options = CoordinatorOptions { me: member(me), cluster: CLUSTER, shards, replication };
    Coordinator::new(options, Instant::ZERO)
}

impl World {
    fn new(coordinators: u64, replication: u8) -> Self {
        Self::with_shards(coordinators, replication, 1)
    }

    fn with_shards(coordinators: u64, replication: u8, shards: u16) -> Self {
        let start = |number: u64| coordinator(id(100 + number, 1), replication, shards);
        let mut world = World {
            // As clocks do that begin with their process.
            now: Instant::ZERO,
            coordinators: (0..coordinators).map(start).collect(),
            document: None,
            reachable: true,
            processes: (0..coordinators).map(|it| (id(100 + it, 1), Probe::Alive)).collect(),
            beats: BTreeMap::new(),
            announced: Vec::new(),
            answers: Vec::new(),
        };
        world.all(Event::Tick);
        world
    }

    /// A chain of these nodes, in epoch 1.
    fn formed(replication: u8, nodes: u64) -> Self {
        let mut world = World::new(1, replication);
        for node in 1..=nodes {
            world.registers(id(node, 1), vec![]);
        }
        world.pass(limits::FORM_GRACE);
        world
    }

    fn handle(&mut self, at: usize, event: Event) {
        if !self.processes.contains_key(&self.coordinators[at].options.me.replica) {
            return;
        }
        let mut effects = Vec::new();
        self.coordinators[at].handle(self.now, event, &mut effects);
        self.coordinators[at].check();
        for effect in effects {
            let event = match effect {
                Effect::Probe { ticket, member } => {
                    let found = self.processes.get(&member.replica);
                    Event::Probed { ticket, found: *found.unwrap_or(&Probe::Refused) }
                }
                Effect::Load { ticket } if self.reachable => {
                    Event::Loaded { ticket, document: self.document.clone() }
                }
                Effect::Store { ticket, expected, config } if self.reachable => {
                    let revision = self.document.as_ref().map(|(revision, _)| *revision);
                    if revision == expected {
                        let revision = revision.unwrap_or(0) + 1;
                        self.document = Some((revision, config));
                        Event::Stored { ticket, revision }
                    } else {
                        Event::Conflict { ticket }
                    }
                }
                Effect::Load { ticket } | Effect::Store { ticket, .. } => {
                    Event::Unreachable { ticket, why: "cut".into() }
                }
                Effect::Announce(config) => {
                    self.announced.push(config);
                    continue;
                }
                Effect::Answer { to, message } => {
                    self.answers.push((to, message));
                    continue;
                }
            };
            self.handle(at, event);
        }
    }

    fn all(&mut self, event: Event) {
        for at in 0..self.coordinators.len() {
            self.handle(at, event.clone());
        }
    }

    fn says(&mut self, from: ReplicaId, message: ToCoordinator) {
        self.all(Event::Heard { from: Speaker::Replica(from), message });
    }

    fn registers(&mut self, who: ReplicaId, holds: Vec<Holding>) {
        self.processes.insert(who, Probe::Alive);
        self.beats.insert(who, 0);
        self.says(who, ToCoordinator::Register { member: member(who), holds });
    }

    /// A moment after what it said last.
    fn dies(&mut self, who: ReplicaId) {
        self.now = self.now + Duration::from_millis(1);
        self.processes.remove(&who);
        self.beats.remove(&who);
    }

    fn falls_silent(&mut self, who: ReplicaId) {
        self.processes.insert(who, Probe::Silent);
        self.beats.remove(&who);
    }

    /// The only coordinator dies, and another process takes its place: with a clock of its own, and knowing nobody.
    fn coordinator_restarts(&mut self) {
        let old = self.coordinators.remove(0).options;
        self.processes.remove(&old.me.replica);
        let id = id(old.me.replica.node.0, old.me.replica.incarnation + 1);
        self.processes.insert(id, Probe::Alive);
        self.coordinators.push(coordinator(id, old.replication, old.shards));
        self.now = Instant::ZERO;
        self.all(Event::Tick);
    }

    fn wishes(&mut self, wish: Wish) {
        self.all(Event::Heard {
            from: Speaker::Client(hoplo_wire::control::ClientId(9)),
            message: ToCoordinator::Wished(wish),
        });
    }

    /// Time goes by; who lives says so, and acts in the newest epoch.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + Duration::from_millis(50);
            self.all(Event::Tick);
            for (who, epoch) in self.beats.clone() {
                let epochs = if epoch == 0 { vec![] } else { vec![(SHARD, Epoch(epoch))] };
                self.says(who, ToCoordinator::Heartbeat { replica: who, epochs });
            }
        }
    }

    fn acts(&mut self, who: ReplicaId) {
        let epoch = self.chain().epoch;
        self.beats.insert(who, epoch.0);
        let epochs = vec![(SHARD, epoch)];
        self.says(who, ToCoordinator::Heartbeat { replica: who, epochs });
    }

    /// All members have the beginning on disk, and the document says so.
    fn begins(&mut self) {
        for member in self.chain().members.clone() {
            self.acts(member.replica);
        }
        assert!(!self.chain().unbegun);
    }

    fn catches_up(&mut self, who: ReplicaId) {
        let epoch = self.chain().epoch;
        self.says(who, ToCoordinator::CaughtUp { replica: who, shard: SHARD, epoch });
    }

    fn chain(&self) -> &ChainConfig {
        &self.document.as_ref().expect("there is a document").1.shards[0]
    }

    /// `1.1 2.1 +3.1`: members, and who joins.
    fn shape(&self) -> String {
        let name = |it: &Member| format!("{}.{}", it.replica.node.0, it.replica.incarnation);
        let chain = self.chain();
        let mut names: Vec<String> = chain.members.iter().map(name).collect();
        names.extend(chain.joining.iter().map(|it| format!("+{}", name(it))));
        names.join(" ")
    }
}

#[test]
fn a_new_cluster_waits_for_enough_replicas_but_not_for_ever() {
    let mut world = World::new(1, 3);
    world.registers(id(1, 1), vec![]);
    world.registers(id(2, 1), vec![]);
    assert!(world.document.is_none());
    world.registers(id(3, 1), vec![]);
    assert_eq!(world.shape(), "1.1 2.1 3.1");
    assert_eq!(World::formed(3, 2).shape(), "1.1 2.1");
}

#[test]
fn a_lost_document_is_not_answered_by_an_empty_cluster() {
    let mut world = World::new(1, 1);
    world.registers(id(1, 2), vec![holding(5, 1)]);
    world.pass(limits::FORM_GRACE * 2);
    assert!(world.document.is_none());
    let why = &world.coordinators[0].explain(world.now)[0].why[0];
    assert!(why.contains("node:1.2 holds data"), "{why}");
}

#[test]
fn a_killed_member_leaves_at_the_first_report_without_any_wait() {
    let mut world = World::formed(2, 2);
    let epoch = world.chain().epoch;
    let announced = world.announced.len();
    world.dies(id(1, 1));
    world.says(id(2, 1), ToCoordinator::Report { shard: SHARD, epoch, silent: id(1, 1) });
    assert_eq!(world.shape(), "2.1");
    assert!(world.chain().old_tail_gone && world.announced.len() == announced + 1);
    assert_eq!(world.announced.last().unwrap().shards[0], *world.chain());
}

#[test]
fn a_report_is_not_believed() {
    let mut world = World::formed(2, 2);
    let epoch = world.chain().epoch;
    world.all(Event::Heard {
        from: Speaker::Client(hoplo_wire::control::ClientId(9)),
        message: ToCoordinator::Report { shard: SHARD, epoch, silent: id(1, 1) },
    });
    assert_eq!(world.shape(), "1.1 2.1");
}

#[test]
fn a_silent_tail_leaves_after_a_while_and_is_not_called_gone() {
    let mut world = World::formed(2, 2);
    world.falls_silent(id(2, 1));
    world.pass(limits::HEARTBEAT_MISSED);
    assert_eq!(world.shape(), "1.1 2.1");
    world.pass(limits::SUSPECT * 2);
    assert_eq!(world.shape(), "1.1");
    assert!(!world.chain().old_tail_gone);
}

#[test]
fn members_that_cannot_hear_each_other_are_parted_though_both_live() {
    let mut world = World::formed(2, 2);
    let epoch = world.chain().epoch;
    for _ in 0..40 {
        world.says(id(1, 1), ToCoordinator::Report { shard: SHARD, epoch, silent: id(2, 1) });
        world.says(id(2, 1), ToCoordinator::Report { shard: SHARD, epoch, silent: id(1, 1) });
        world.pass(Duration::from_millis(50));
    }
    assert_eq!(world.shape(), "1.1");
    world.pass(limits::SHUNNED + limits::HEARTBEAT);
    assert_eq!(world.shape(), "1.1 +2.1");
}

#[test]
fn a_member_whose_disk_broke_leaves_and_comes_back_when_it_registers_again() {
    let mut world = World::formed(2, 2);
    let epoch = world.chain().epoch;
    world.says(id(2, 1), ToCoordinator::Report { shard: SHARD, epoch, silent: id(2, 1) });
    assert_eq!(world.shape(), "1.1");
    world.pass(limits::SHUNNED * 2);
    assert_eq!(world.shape(), "1.1");
    world.registers(id(2, 1), vec![]);
    assert_eq!(world.shape(), "1.1 +2.1");
}

/// Found by the simulation (seed 105415): the chain was left to a dead member alone, which had been heard of a moment before.
#[test]
fn a_member_whose_disk_broke_left_the_chain_to_one_that_was_dead() {
    let mut world = World::formed(2, 2);
    world.begins();
    world.pass(limits::HEARTBEAT);
    world.dies(id(2, 1));
    let epoch = world.chain().epoch;
    world.says(id(1, 1), ToCoordinator::Report { shard: SHARD, epoch, silent: id(1, 1) });
    assert_eq!(world.shape(), "1.1 2.1");
    // There is room on the disk again.
    world.registers(id(1, 1), vec![holding(5, epoch.0)]);
    world.pass(limits::HEARTBEAT);
    assert_eq!(world.shape(), "1.1");
}

/// Found by the simulation (seed 42738): its word that it could not go on came after the one that it could again.
#[test]
fn a_late_word_of_a_broken_disk_kept_a_replica_away_for_ever() {
    let mut world = World::formed(2, 2);
    let epoch = world.chain().epoch;
    let broken = ToCoordinator::Report { shard: SHARD, epoch, silent: id(2, 1) };
    world.says(id(2, 1), broken.clone());
    world.registers(id(2, 1), vec![]);
    world.says(id(2, 1), broken);
    world.answers.clear();
    world.pass(limits::HEARTBEAT);
    let told = |(to, message): &(Speaker, FromCoordinator)| {
        *to == Speaker::Replica(id(2, 1)) && matches!(message, FromCoordinator::Refused { .. })
    };
    assert!(world.answers.iter().any(told), "it may register again: {:?}", world.answers);
}

#[test]
fn who_joins_becomes_tail_when_it_caught_up_in_the_newest_epoch() {
    let mut world = World::formed(2, 3);
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    assert_eq!(world.shape(), "2.1 +3.1");
    let old = Epoch(world.chain().epoch.0 - 1);
    world.says(id(3, 1), ToCoordinator::CaughtUp { replica: id(3, 1), shard: SHARD, epoch: old });
    assert_eq!(world.shape(), "2.1 +3.1");
    world.catches_up(id(3, 1));
    assert_eq!(world.shape(), "2.1 3.1");
    assert_eq!(world.chain().added, Some((id(3, 1), world.chain().epoch)));
}

/// CONF-2: it may lack the last entries that were acknowledged before it became a member.
#[test]
fn a_new_tail_that_did_not_act_yet_is_never_left_alone() {
    let mut world = World::formed(2, 3);
    world.begins();
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    world.catches_up(id(3, 1));
    world.dies(id(2, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    world.pass(limits::RESTORE_GRACE * 4);
    assert_eq!(world.shape(), "2.1 3.1");
    let why = world.coordinators[0].explain(world.now)[0].why.join("; ");
    assert!(why.contains("node:2.1 is dead, and nobody else has all data"), "{why}");
    world.registers(id(2, 2), vec![holding(9, 1)]);
    world.pass(limits::RESTORE_GRACE);
    assert_eq!(world.shape(), "2.2 +3.1");
}

/// What it lacks nobody may forget when it comes back with its disk.
#[test]
fn a_new_tail_that_did_not_act_yet_does_not_restore_the_chain() {
    let mut world = World::formed(2, 3);
    world.begins();
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    world.catches_up(id(3, 1));
    assert_eq!(world.shape(), "2.1 3.1");
    let since = world.chain().epoch.0;
    [2, 3].into_iter().for_each(|node| world.dies(id(node, 1)));
    world.registers(id(3, 2), vec![holding(9, since - 1)]);
    world.pass(limits::SUSPECT + limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "2.1 3.1");
    world.dies(id(3, 2));
    // It had something of the epoch in which it was a member: that came after all it had missed.
    world.registers(id(3, 3), vec![holding(10, since)]);
    world.pass(limits::SUSPECT + limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "3.3");
}

/// CHAIN-6: until the new tail acts, the one before it may answer.
#[test]
fn who_left_before_the_new_tail_acted_could_answer_beside_it() {
    for settled in [false, true] {
        let mut world = World::formed(3, 4);
        world.begins();
        world.dies(id(3, 1));
        world.all(Event::Lost { from: Speaker::Replica(id(3, 1)) });
        world.catches_up(id(4, 1));
        assert_eq!(world.shape(), "1.1 2.1 4.1");
        if settled {
            world.acts(id(4, 1));
        }
        let epoch = world.chain().epoch;
        world.says(id(2, 1), ToCoordinator::Report { shard: SHARD, epoch, silent: id(2, 1) });
        assert_eq!((world.shape().as_str(), world.chain().old_tail_gone), ("1.1 4.1", settled));
    }
}

#[test]
fn a_new_tail_that_acted_may_be_left_alone() {
    let mut world = World::formed(2, 3);
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    world.catches_up(id(3, 1));
    world.acts(id(3, 1));
    world.dies(id(2, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    assert_eq!(world.shape(), "3.1");
}

#[test]
fn a_chain_that_restarted_whole_goes_on_with_the_longest_log() {
    let mut world = World::formed(3, 3);
    for node in 1..=3 {
        world.dies(id(node, 1));
    }
    world.pass(limits::SUSPECT * 2);
    assert_eq!(world.shape(), "1.1 2.1 3.1");
    world.registers(id(2, 2), vec![holding(7, 1)]);
    world.registers(id(1, 2), vec![holding(5, 1)]);
    assert_eq!(world.shape(), "1.1 2.1 3.1", "it waits for the third");
    world.registers(id(3, 2), vec![holding(9, 1)]);
    assert_eq!(world.shape(), "3.2 +2.2", "who joins has the next longest log");
    // It has to wait, also if it hears of this configuration first.
    assert!(!world.chain().old_tail_gone);
}

/// It took whoever the document names for alive in the first second of its clock, and gave the chain to the one that
/// never came back.
#[test]
fn a_coordinator_that_just_began_relies_on_nobody_of_whom_it_has_not_heard() {
    for third in [Probe::Refused, Probe::Silent] {
        let mut world = World::formed(3, 3);
        for node in 1..=3 {
            world.dies(id(node, 1));
        }
        world.processes.insert(id(3, 1), third);
        world.coordinator_restarts();
        world.registers(id(1, 2), vec![holding(5, 1)]);
        world.registers(id(2, 2), vec![holding(7, 1)]);
        world.pass(limits::SUSPECT + limits::RESTORE_GRACE * 2);
        assert_eq!(world.shape(), "2.2 +1.2", "the third is {third:?}");
    }
}

/// Two were found dead, the third had said something a moment before: it got the chain, and was dead, too.
#[test]
fn members_that_die_together_are_not_left_one_by_one() {
    let mut world = World::formed(3, 3);
    world.pass(limits::HEARTBEAT);
    for node in 1..=3 {
        world.dies(id(node, 1));
    }
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    assert_eq!(world.shape(), "1.1 2.1 3.1");
    world.registers(id(1, 2), vec![holding(5, 1)]);
    world.registers(id(2, 2), vec![holding(7, 1)]);
    world.pass(limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "2.2 +1.2");
}

/// A chain of two whose second member comes back without its disk, and whose first one never does.
fn a_lost_shard() -> World {
    let mut world = World::formed(2, 2);
    world.begins();
    (1..=2).for_each(|node| world.dies(id(node, 1)));
    world.registers(id(2, 2), vec![]);
    world.pass(limits::SUSPECT + limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "1.1 2.1");
    world
}

#[test]
fn a_shard_whose_disks_are_gone_says_what_is_left_and_waits_for_an_operator() {
    let mut world = a_lost_shard();
    // It was a member once, and lacks what came after it left.
    world.registers(id(3, 1), vec![holding(4, 1)]);
    let losses = world.coordinators[0].losses(world.now);
    let left = Left { member: member(id(3, 1)), last: Some((Epoch(1), 4)) };
    let loss = Loss { shard: SHARD, epoch: Epoch(2), left: Some(left), silent: vec![] };
    assert_eq!(losses, [loss]);
    world.pass(limits::RESTORE_GRACE * 4);
    assert_eq!(world.shape(), "1.1 2.1");
    world.wishes(Wish::AcceptLoss { shard: SHARD, epoch: Epoch(2) });
    assert_eq!(world.shape(), "3.1 +2.2");
    let chain = world.chain();
    assert!(!chain.old_tail_gone && chain.history == Epoch(3));
    world.pass(limits::HEARTBEAT);
    assert!(world.document.as_ref().unwrap().1.wishes.is_empty());
    assert_eq!(world.coordinators[0].losses(world.now), []);
}

#[test]
fn a_loss_that_is_accepted_is_that_of_one_epoch_and_of_a_chain_that_waits() {
    let mut world = a_lost_shard();
    world.wishes(Wish::AcceptLoss { shard: SHARD, epoch: Epoch(7) });
    world.pass(limits::RESTORE_GRACE * 4);
    assert_eq!(world.shape(), "1.1 2.1", "it is not in that epoch");

    let mut world = a_lost_shard();
    world.registers(id(1, 2), vec![holding(9, 1)]);
    assert_eq!(world.coordinators[0].losses(world.now), [], "it is back with everything");
    world.wishes(Wish::AcceptLoss { shard: SHARD, epoch: Epoch(2) });
    world.pass(limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "1.2 +2.2");
    assert_eq!(world.chain().history, Epoch(1), "nothing was lost");
}

#[test]
fn a_shard_has_begun_once_a_member_of_it_was_heard_to_act() {
    let mut world = World::formed(2, 2);
    assert!(world.chain().unbegun);
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    assert!(world.chain().unbegun, "nobody acted");
    world.acts(id(2, 1));
    world.registers(id(1, 2), vec![]);
    assert_eq!(world.shape(), "2.1 +1.2");
    assert!(!world.chain().unbegun);
}

#[test]
fn a_chain_that_all_members_have_begun_is_said_to_have_begun() {
    let mut world = World::formed(2, 2);
    world.acts(id(1, 1));
    assert!(world.chain().unbegun, "the other has nothing yet");
    world.acts(id(2, 1));
    let chain = world.chain();
    assert_eq!((chain.unbegun, chain.epoch, chain.history), (false, Epoch(2), Epoch(1)));
}

/// Found by the simulation (seeds 4510, 24972 and others): all members lost their power before the beginning was on a disk.
#[test]
fn a_chain_whose_members_all_died_before_it_began_waited_for_ever() {
    let mut world = World::formed(2, 2);
    (1..=2).for_each(|node| world.dies(id(node, 1)));
    world.registers(id(2, 2), vec![]);
    assert_eq!(world.coordinators[0].losses(world.now), [], "nothing was acknowledged");
    world.pass(limits::SUSPECT + limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "2.2");
    assert!(world.chain().unbegun);
    world.acts(id(2, 2));
    assert_eq!((world.chain().unbegun, world.chain().history), (false, Epoch(1)));
}

/// Found by the simulation (seed 7837): who begins a chain again was taken to have begun it, because it had acted in another
/// epoch, in which it had another base.
#[test]
fn who_acted_in_another_epoch_had_begun_a_chain_that_begins_again() {
    let mut world = World::formed(2, 3);
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    assert_eq!(world.shape(), "2.1 +3.1");
    world.dies(id(2, 1));
    let epochs = vec![(SHARD, Epoch(1))];
    world.says(id(3, 1), ToCoordinator::Heartbeat { replica: id(3, 1), epochs });
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    assert_eq!(world.shape(), "3.1");
    assert!(world.chain().unbegun);
    world.acts(id(3, 1));
    assert!(!world.chain().unbegun);
}

/// Found by the simulation (seed 5730): whoever lived had a beginning of another epoch, so nobody had nothing.
#[test]
fn a_chain_that_had_not_begun_waited_for_one_that_had_all_of_nothing() {
    let mut world = World::formed(2, 2);
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    world.registers(id(3, 1), vec![]);
    world.catches_up(id(3, 1));
    assert_eq!(world.shape(), "2.1 3.1");
    world.dies(id(2, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    world.pass(limits::SUSPECT);
    assert_eq!(world.shape(), "3.1", "it was just added, and has not acted");
    world.dies(id(3, 1));
    world.registers(id(3, 2), vec![holding(0, 1)]);
    world.pass(limits::SUSPECT + limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "3.2", "what it has is older than its membership");
    assert!(world.chain().unbegun);
}

#[test]
fn who_returned_without_its_disk_does_not_restore_a_chain() {
    let mut world = World::formed(1, 1);
    world.begins();
    world.dies(id(1, 1));
    world.registers(id(1, 2), vec![]);
    world.pass(limits::RESTORE_GRACE * 3);
    assert_eq!(world.shape(), "1.1");
}

#[test]
fn a_restarted_single_replica_goes_on_at_once() {
    let mut world = World::formed(1, 1);
    world.dies(id(1, 1));
    world.registers(id(1, 2), vec![holding(3, 1)]);
    world.pass(limits::COORDINATOR_LOOKS * 2);
    assert_eq!(world.shape(), "1.2");
}

#[test]
fn a_shard_moves_by_adding_before_it_removes() {
    let mut world = World::formed(2, 2);
    (1..=2).for_each(|node| world.acts(id(node, 1)));
    world.registers(id(3, 1), vec![]);
    assert_eq!(world.shape(), "1.1 2.1");
    let wish = Wish::Move { shard: SHARD, from: NodeId(1), to: NodeId(3) };
    world.says(id(2, 1), ToCoordinator::Wished(wish));
    assert_eq!(world.shape(), "1.1 2.1 +3.1");
    world.catches_up(id(3, 1));
    assert_eq!(world.shape(), "1.1 2.1 3.1");
    world.acts(id(3, 1));
    assert_eq!(world.shape(), "2.1 3.1");
    world.pass(limits::HEARTBEAT);
    assert!(world.document.as_ref().unwrap().1.wishes.is_empty());
}

/// The wish never came into the document, so it was never forgotten, and the node was never used again.
#[test]
fn a_move_from_where_nothing_is_keeps_nobody_out() {
    let mut world = World::formed(2, 1);
    let wish = Wish::Move { shard: SHARD, from: NodeId(2), to: NodeId(3) };
    world.says(id(1, 1), ToCoordinator::Wished(wish));
    world.registers(id(2, 1), vec![]);
    assert_eq!(world.shape(), "1.1 +2.1");
}

#[test]
fn a_node_that_shall_leave_is_emptied_and_may_come_back() {
    let mut world = World::formed(1, 1);
    world.acts(id(1, 1));
    world.registers(id(2, 1), vec![]);
    world.says(id(2, 1), ToCoordinator::Wished(Wish::Leave { node: NodeId(1) }));
    assert_eq!(world.shape(), "1.1 +2.1");
    world.catches_up(id(2, 1));
    world.acts(id(2, 1));
    assert_eq!(world.shape(), "2.1");
    world.says(id(2, 1), ToCoordinator::Unwished(Wish::Leave { node: NodeId(1) }));
    assert!(world.document.as_ref().unwrap().1.wishes.is_empty());
}

#[test]
fn another_coordinator_acts_when_the_acting_one_is_dead_or_stands_still() {
    for silent in [false, true] {
        let mut world = World::new(2, 1);
        world.registers(id(1, 1), vec![]);
        world.pass(limits::CONFIG_WATCH);
        assert!(world.coordinators[0].acts() && !world.coordinators[1].acts());
        let first = world.coordinators.remove(0);
        assert!(first.acts());
        if silent {
            world.processes.insert(id(100, 1), Probe::Silent);
            world.pass(limits::ACTING_SILENT / 2);
            assert!(!world.coordinators[0].acts());
        } else {
            world.processes.remove(&id(100, 1));
        }
        world.pass(if silent { limits::ACTING_SILENT * 2 } else { limits::CONFIG_WATCH * 2 });
        assert!(world.coordinators[0].acts(), "silent: {silent}");
    }
}

/// Two processes, each a member and a coordinator, as the guide has them; the first one acts.
fn members_that_coordinate() -> World {
    let mut world = World::new(2, 2);
    (0..2).for_each(|number| world.registers(id(100 + number, 1), vec![]));
    world.pass(limits::FORM_GRACE);
    assert!(world.coordinators[0].acts() && !world.coordinators[1].acts());
    (0..2).for_each(|number| world.acts(id(100 + number, 1)));
    world
}

/// It was noticed when somebody looked at the coordinator next, half a second later, and then the chain was changed.
#[test]
fn a_member_that_dies_and_acts_is_left_out_at_once_by_who_takes_its_place() {
    let mut world = members_that_coordinate();
    let revision = world.document.as_ref().unwrap().0;
    world.dies(id(100, 1));
    world.coordinators.remove(0);
    world.all(Event::Lost { from: Speaker::Replica(id(100, 1)) });
    assert_eq!(world.shape(), "101.1");
    assert!(world.coordinators[0].acts());
    let (found, config) = world.document.as_ref().unwrap();
    let acting = config.acting.as_ref().map(|it| it.coordinator.replica);
    assert_eq!((*found, acting), (revision + 1, Some(id(101, 1))), "in one swap");
}

#[test]
fn a_member_that_is_stopped_and_acts_is_left_out_before_the_second_is_over() {
    let mut world = members_that_coordinate();
    world.falls_silent(id(100, 1));
    world.coordinators.remove(0);
    let epoch = world.chain().epoch;
    world.pass(limits::CONTROL_PEER_SILENT);
    let silent = id(100, 1);
    world.says(id(101, 1), ToCoordinator::Report { shard: SHARD, epoch, silent });
    world.pass(
        Duration::from_millis(950) - limits::CONTROL_PEER_SILENT - limits::CONTROL_LEASE_WAIT,
    );
    assert_eq!(world.shape(), "101.1");
}

#[test]
fn two_that_act_cannot_both_change_the_document() {
    let mut world = World::new(2, 2);
    (1..=2).for_each(|node| world.registers(id(node, 1), vec![]));
    world.pass(limits::CONFIG_WATCH);
    // The second one believes that the first is gone.
    world.processes.insert(id(100, 1), Probe::Silent);
    let (revision, mut config) = world.document.clone().unwrap();
    config.acting.as_mut().unwrap().coordinator = member(id(101, 1));
    world.document = Some((revision + 1, config));
    assert!(world.coordinators[0].acts(), "it did not hear of it");
    world.dies(id(1, 1));
    world.handle(0, Event::Lost { from: Speaker::Replica(id(1, 1)) });
    assert!(!world.coordinators[0].acts());
    assert_eq!(world.shape(), "1.1 2.1", "the swap failed, and it looked who acts");
    world.pass(limits::CONFIG_WATCH + limits::HEARTBEAT_MISSED * 2);
    assert_eq!(world.shape(), "2.1");
}

#[test]
fn without_its_store_it_changes_nothing_and_goes_on_when_it_is_back() {
    let mut world = World::formed(2, 2);
    let before = world.chain().clone();
    world.reachable = false;
    world.dies(id(2, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    world.pass(limits::SUSPECT);
    assert_eq!(*world.chain(), before);
    let why = world.coordinators[0].explain(world.now)[0].why.join("; ");
    assert!(why.contains("nothing can be changed"), "{why}");
    world.reachable = true;
    world.pass(limits::CONFIG_RETRY * 2);
    assert_eq!(world.shape(), "1.1");
}

#[test]
fn a_store_that_went_back_in_time_is_not_obeyed() {
    let mut world = World::formed(2, 2);
    let old = world.document.clone();
    world.dies(id(2, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    assert_eq!(world.shape(), "1.1");
    world.document = old;
    world.pass(limits::ACTING_RENEW * 2);
    let known = world.coordinators[0].config().unwrap();
    assert_eq!(known.shards[0].members.len(), 1, "what it knew stays");
    let why = world.coordinators[0].explain(world.now)[0].why.join("; ");
    assert!(why.contains("went back in time"), "{why}");
}

#[test]
fn strangers_and_older_processes_are_refused() {
    let mut world = World::formed(1, 1);
    world.registers(id(1, 3), vec![]);
    world.answers.clear();
    world.registers(id(1, 2), vec![]);
    world.says(id(5, 1), ToCoordinator::Heartbeat { replica: id(5, 1), epochs: vec![] });
    let refused = |who: ReplicaId| {
        world.answers.iter().any(|(to, message)| {
            *to == Speaker::Replica(who) && matches!(message, FromCoordinator::Refused { .. })
        })
    };
    assert!(refused(id(1, 2)) && refused(id(5, 1)));
}

#[test]
fn the_first_node_does_not_take_all_shards_while_others_are_coming() {
    let mut world = World::with_shards(1, 1, 2);
    world.registers(id(1, 1), vec![]);
    world.pass(limits::FORM_SETTLE / 2);
    assert!(world.document.is_none(), "others may be coming");
    world.registers(id(2, 1), vec![]);
    world.pass(limits::COORDINATOR_LOOKS);
    let (_, config) = world.document.as_ref().unwrap();
    let heads = config.shards.iter().map(|chain| chain.members[0].replica);
    assert_eq!(heads.collect::<Vec<_>>(), [id(1, 1), id(2, 1)]);

    let mut alone = World::with_shards(1, 1, 2);
    alone.registers(id(1, 1), vec![]);
    alone.pass(limits::FORM_SETTLE + limits::COORDINATOR_LOOKS);
    assert!(alone.document.is_some(), "nobody else came");
}
