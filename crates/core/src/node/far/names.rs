//! Names of actors: each is one actor's in the whole cluster.
//!
//! ```text
//!  a creation or lookup here --> this node's table --> the head: whose is it? --> its home's table
//!                                 has it: at once       nobody's: the creation      "found", or no more:
//!                                                       goes on here                the head is told, and asked again
//! ```
//! The head decides: a name of an actor at home there is in its own table, one of another home in `taken`. A name comes there
//! before its actor exists, and goes with `Unname`, which everybody may say who knows that the actor does not have it any more:
//! its home, who was told so by its home, and who heard that its home is dead. A head that starts finds names in the rows of actors, and
//! nodes tell it theirs. What it still has wrong is found out by the first who asks the home.
//!
//! # Invariant
//! - NAME-1: no name is two actors' at a time, also when one head takes another one's place. A node hears at one moment that there
//!   is a new head: it tells that one all names that it has, then `Held`, and from then on hears no other head. A new head gives no name
//!   that it does not know before each node that lived under the earlier head has told it its names, or is dead.
//!
//! What waits for the head waits up to `NAME_PATIENCE`. Then who asked hears that nobody said whose the name is: its actor may live. A node that is in no cluster decides alone.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::NAME_PATIENCE;
use hoplo_base::{ActorId, JobId, NodeNumber, ObjectId, ProcessId, TaskId};
use hoplo_wire::node::{ActorCreated, ActorFound, ActorSpec, ToClient, ToNode};
use hoplo_wire::peer::Peer;
use hoplo_wire::{Failure, FailureKind};

use super::Node;
use crate::actors::life::{self, Name, name_is_taken};
use crate::node::Timer;
use crate::objects;

#[derive(Debug, Default)]
pub(super) struct Names {
    /// Of a head: names of actors of other homes.
    taken: BTreeMap<Name, ActorId>,
    /// Of a head: those that the rows of an earlier one say, and no node has told since. They may have gone meanwhile.
    recalled: BTreeMap<Name, ActorId>,
    /// Of a head: nodes that lived under an earlier one, and have not told this one their names (NAME-1).
    untold: BTreeSet<NodeNumber>,
    /// Of a head: what others asked about names that it does not know, until it does.
    postponed: Vec<Postponed>,
    /// What processes of this node wait for.
    asked: BTreeMap<u64, Ask>,
    last: u64,
}

/// A `Peer::Name`.
#[derive(Debug)]
struct Postponed {
    from: NodeNumber,
    ask: u64,
    name: Name,
    take: Option<ActorId>,
}

impl Names {
    /// Of a head: whose it is, of actors of other homes.
    fn has(&self, name: &Name) -> Option<ActorId> {
        self.taken.get(name).or_else(|| self.recalled.get(name)).copied()
    }
}

#[derive(Debug)]
struct Ask {
    process: ProcessId,
    request: u64,
    name: Name,
    at: At,
    /// Absent: a lookup.
    creation: Option<Creation>,
}

/// Who is to answer next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Head,
    /// The home of that actor, which has the name as far as the head knows.
    Home(ActorId),
    /// The head's own table: nobody has the name, but an actor may have been lost that had it.
    Lost,
}

#[derive(Debug)]
struct Creation {
    job: JobId,
    spec: Box<ActorSpec>,
    get_if_exists: bool,
    /// What was asked meanwhile of the actor that is to be made.
    watchers: Vec<ProcessId>,
    lookups: Vec<(ProcessId, u64)>,
    /// For good.
    killed: bool,
}

// ---- of processes of this node ----

impl Node {
    pub(in crate::node) fn create_actor(
        &mut self,
        creator: ProcessId,
        job: JobId,
        request: u64,
        spec: Box<ActorSpec>,
        get_if_exists: bool,
    ) {
        let name = || (spec.namespace.clone(), spec.name.clone());
        if spec.name().is_none() || self.decides_alone(&name()) {
            let created = life::Event::Created { creator, job, request, spec, get_if_exists };
            return self.pass_to_actors(created);
        }
        // Its creator may let go of them.
        let held = spec.contains.clone();
        if !held.is_empty() {
            self.pass_to_objects(objects::Event::NodeHeld { objects: held });
        }
        let name = name();
        let (watchers, lookups, killed) = (Vec::new(), Vec::new(), false);
        let creation = Creation { job, spec, get_if_exists, watchers, lookups, killed };
        self.ask_for_name(Ask {
            process: creator,
            request,
            name,
            at: At::Head,
            creation: Some(creation),
        });
    }

    pub(in crate::node) fn look_up_actor(&mut self, from: ProcessId, request: u64, name: Name) {
        if self.decides_alone(&name) {
            return self.look_up_here(from, request, name);
        }
        self.ask_for_name(Ask { process: from, request, name, at: At::Head, creation: None });
    }

    /// It may be one whose creation waits for its name.
    pub(in crate::node) fn watch_actor(&mut self, from: ProcessId, actor: ActorId) {
        match self.creation_of(actor) {
            Some(creation) => creation.watchers.push(from),
            None => self.pass_to_actors(life::Event::Watched { from, actor, swept: false }),
        }
    }

    /// One whose creation waits for its name is killed when it has it.
    pub(in crate::node) fn kill_actor(
        &mut self,
        actor: ActorId,
        no_restart: bool,
        of: Option<ProcessId>,
    ) {
        match self.creation_of(actor) {
            Some(creation) => creation.killed |= no_restart,
            None => {
                let swept = false;
                self.pass_to_actors(life::Event::Killed { actor, no_restart, of, swept });
            }
        }
    }

    fn creation_of(&mut self, actor: ActorId) -> Option<&mut Creation> {
        let mut creations = self.far.names.asked.values_mut().filter_map(|it| it.creation.as_mut());
        creations.find(|creation| creation.spec.actor == actor)
    }

    /// An actor of ours does not have it any more.
    pub(in crate::node) fn free_name(&mut self, name: Name, actor: ActorId) {
        match self.far.head {
            Some(head) if head == self.me() => self.on_unname(name, actor),
            Some(head) => {
                let (namespace, name) = name;
                self.send_peer(head, Peer::Unname { namespace, name, actor });
            }
            // The next one is told which names there are.
            None => {}
        }
    }

    fn look_up_here(&mut self, from: ProcessId, request: u64, (namespace, name): Name) {
        let swept = false;
        self.pass_to_actors(life::Event::LookedUp { from, request, namespace, name, swept });
    }

    /// Nobody else has to be asked about it.
    fn decides_alone(&self, name: &Name) -> bool {
        match self.far.head {
            // Who has just joined does not know the others yet, and waits for the head.
            None if !self.config.clustered
                && self.far.nodes.is_empty()
                && self.far.dead.is_empty() =>
            {
                true
            }
            Some(head) if head == self.me() && self.may_be_given(name) => true,
            None | Some(_) => self.actors.named(name).is_some(),
        }
    }

    /// Of a head: nobody has it, or an actor that is at home here.
    fn may_be_given(&self, name: &Name) -> bool {
        self.far.names.untold.is_empty() && self.far.names.has(name).is_none()
    }

    fn ask_for_name(&mut self, ask: Ask) {
        self.far.names.last += 1;
        let number = self.far.names.last;
        self.far.names.asked.insert(number, ask);
        self.after(NAME_PATIENCE, Timer::Name(number));
        self.ask_head(number);
    }

    /// Without a head it waits for one.
    fn ask_head(&mut self, number: u64) {
        let Some(ask) = self.far.names.asked.get_mut(&number) else { return };
        ask.at = At::Head;
        let take = ask.creation.as_ref().map(|creation| creation.spec.actor);
        let name = ask.name.clone();
        match self.far.head {
            None => {}
            Some(head) if head == self.me() => match self.far.names.has(&name) {
                Some(actor) => self.says_whose(number, Some(actor)),
                None if self.may_be_given(&name) => self.got_name(number),
                None => {} // until all have told
            },
            Some(head) => {
                let (namespace, name) = name;
                self.send_peer(head, Peer::Name { ask: number, namespace, name, take });
            }
        }
    }

    pub(super) fn on_named(&mut self, from: NodeNumber, number: u64, actor: Option<ActorId>) {
        // NAME-1: an earlier one's word may come late.
        if self.far.head == Some(from) {
            self.says_whose(number, actor);
        }
    }

    /// The head says who has it.
    fn says_whose(&mut self, number: u64, actor: Option<ActorId>) {
        let Some(ask) = self.far.names.asked.get_mut(&number) else { return };
        if ask.at != At::Head {
            return;
        }
        let own = ask.creation.as_ref().map(|creation| creation.spec.actor);
        let is_there = self.processes.contains_key(&ask.process);
        match actor {
            Some(actor) if own == Some(actor) => self.got_name(number),
            _ if !is_there => self.drop_ask(number),
            None => {
                ask.at = At::Lost;
                self.ask_on(number);
            }
            Some(actor) => {
                ask.at = At::Home(actor);
                self.ask_on(number);
            }
        }
    }

    /// The creation, or the lookup, goes on, as long as somebody wants the actor.
    fn got_name(&mut self, number: u64) {
        let ask = &self.far.names.asked[&number];
        let creation = ask.creation.as_ref();
        let is_there = self.processes.contains_key(&ask.process);
        if is_there || creation.is_some_and(|creation| creation.spec.detached) {
            return self.settle_here(number);
        }
        if let Some(creation) = creation {
            self.free_name(ask.name.clone(), creation.spec.actor);
        }
        self.drop_ask(number);
    }

    /// Its home, or the head for one that was lost.
    fn ask_on(&mut self, number: u64) {
        let ask = &self.far.names.asked[&number];
        let (process, request, at) = (ask.process, ask.request, ask.at);
        let (namespace, name) = ask.name.clone();
        let whom = match at {
            At::Head => return,
            At::Home(actor) if !self.decides(actor) => return, // until its heir knows it
            At::Home(actor) => Some(self.charge_of(actor)),
            At::Lost => self.far.head,
        };
        if let At::Home(actor) = at
            && whom == Some(self.me())
        {
            return match self.actors.named(&ask.name).is_some() {
                true => self.settle_here(number),
                false => self.ask_again(number, actor),
            };
        }
        // Without a head: the next one is asked who has it.
        let Some(node) = whom else { return };
        if self.far.nodes.contains_key(&node) {
            self.forward(node, process, ToNode::ActorLookup { request, namespace, name });
        } else if let At::Home(actor) = at
            && self.far.dead.contains_key(&node)
        {
            self.ask_again(number, actor);
        }
        // Else its row is on its way here.
    }

    /// That actor does not have it, whatever the head says.
    fn ask_again(&mut self, number: u64, actor: ActorId) {
        let name = self.far.names.asked[&number].name.clone();
        self.free_name(name, actor);
        self.ask_head(number);
    }

    /// Whether this answer, of another node to a process here, is to a question of ours in that process's name.
    pub(super) fn name_asked(&self, process: ProcessId, request: u64) -> Option<u64> {
        let mut asked = self.far.names.asked.iter();
        let found = asked.find(|(_, ask)| ask.process == process && ask.request == request);
        found.filter(|(_, ask)| ask.at != At::Head).map(|(number, _)| *number)
    }

    /// The home's answer.
    pub(super) fn on_actor_found(&mut self, number: u64, found: Option<ActorFound>) {
        let ask = &self.far.names.asked[&number];
        let (to, request) = (ask.process, ask.request);
        let lives = found.as_ref().is_some_and(|found| found.dead.is_none());
        match (&ask.creation, ask.at) {
            (_, At::Home(actor)) if !lives => return self.ask_again(number, actor),
            (None, _) => {
                if let Some(found) = found.as_ref().filter(|_| lives) {
                    self.give_token(found.actor.handle(), to);
                }
                self.send(to, ToClient::ActorFound { request, found });
            }
            (Some(creation), _) => {
                let result = match found.filter(|_| creation.get_if_exists) {
                    Some(found) => {
                        self.give_token(found.actor.handle(), to);
                        Ok(ActorCreated::Existing(found))
                    }
                    None => Err(name_is_taken(&ask.name)),
                };
                self.send(to, ToClient::ActorCreated { request, result });
            }
        }
        self.drop_ask(number);
    }

    /// The table of this node has the last word.
    fn settle_here(&mut self, number: u64) {
        let Some(ask) = self.far.names.asked.remove(&number) else { return };
        let Ask { process, request, name, creation, .. } = ask;
        let Some(creation) = creation else {
            return self.look_up_here(process, request, name);
        };
        let Creation { job, spec, get_if_exists, watchers, lookups, killed } = creation;
        let (creator, held) = (process, spec.contains.clone());
        let actor = spec.actor;
        self.pass_to_actors(life::Event::Created { creator, job, request, spec, get_if_exists });
        if killed {
            let (no_restart, of, swept) = (true, None, false);
            self.pass_to_actors(life::Event::Killed { actor, no_restart, of, swept });
        }
        self.end_creation(actor, held, watchers, &name, lookups);
    }

    /// Nothing came of it.
    fn drop_ask(&mut self, number: u64) {
        let Some(ask) = self.far.names.asked.remove(&number) else { return };
        let Some(Creation { spec, watchers, lookups, .. }) = ask.creation else { return };
        self.end_creation(spec.actor, spec.contains, watchers, &ask.name, lookups);
    }

    fn end_creation(
        &mut self,
        actor: ActorId,
        held: Vec<hoplo_base::ObjectId>,
        watchers: Vec<ProcessId>,
        name: &Name,
        lookups: Vec<(ProcessId, u64)>,
    ) {
        // The actor's table holds them now, if there is an actor.
        self.work_off_queue();
        if !held.is_empty() {
            self.pass_to_objects(objects::Event::NodeReleased { objects: held });
        }
        for from in watchers {
            self.pass_to_actors(life::Event::Watched { from, actor, swept: false });
        }
        for (from, request) in lookups {
            self.look_up_here(from, request, name.clone());
        }
    }

    pub(in crate::node) fn give_name_up(&mut self, number: u64) {
        let Some(ask) = self.far.names.asked.get(&number) else { return };
        let (to, request, name) = (ask.process, ask.request, ask.name.clone());
        let own = ask.creation.as_ref().map(|creation| creation.spec.actor);
        let whom = match ask.at {
            At::Head | At::Lost => None,
            At::Home(actor) => Some(self.charge_of(actor)),
        };
        let silence = match (whom, self.silence_of_head(), self.far.head) {
            (Some(home), _, _) => format!("{} does not answer", self.node_name(home)),
            (None, Some(silence), _) => silence,
            (None, None, Some(head)) => format!("the head, {}, does not say", self.node_name(head)),
            (None, None, None) => "this node has heard of no head yet".to_string(),
        };
        let (namespace, wanted) = (&name.0, &name.1);
        let why = format!(
            "nobody said within {NAME_PATIENCE:?} who has the name {wanted:?} in namespace {namespace:?}: {silence}. An actor of \
             that name may be alive: try again, and see `hoplo status` for who can be reached"
        );
        match own {
            Some(actor) => {
                // It may have been given meanwhile.
                self.free_name(name, actor);
                let result = Ok(ActorCreated::Unsaid { why });
                self.send(to, ToClient::ActorCreated { request, result });
            }
            None => {
                let dead = Some(Failure::new(FailureKind::ActorUnavailable, why));
                let actor = ActorId(hoplo_base::TaskId { owner: to, seq: 0 });
                let found = Some(ActorFound { actor, handle: Vec::new(), dead });
                self.send(to, ToClient::ActorFound { request, found });
            }
        }
        self.drop_ask(number);
    }
}

// ---- of other nodes ----

impl Node {
    /// To a head. `ask` 0: told again, after this head was started.
    pub(super) fn on_name(
        &mut self,
        from: NodeNumber,
        ask: u64,
        name: Name,
        take: Option<ActorId>,
    ) {
        let is_its = |actor: ActorId| {
            let home = actor.0.owner.node();
            home == from || self.far.dead.contains_key(&home)
        };
        if take.is_some_and(|actor| !is_its(actor)) {
            return self
                .log(format!("{from} wants the name {:?} for an actor of another home", name.1));
        }
        let names = &mut self.far.names;
        if ask == 0 && !names.taken.contains_key(&name) {
            names.recalled.remove(&name);
        }
        let has = self.actors.named(&name).or_else(|| self.far.names.has(&name));
        if ask != 0 && has.is_none() && !self.far.names.untold.is_empty() {
            return self.far.names.postponed.push(Postponed { from, ask, name, take });
        }
        let has = has.or(take);
        if let Some(actor) = has.filter(|_| has == take) {
            self.actors.forget_lost_name(&name);
            self.far.names.recalled.remove(&name);
            self.far.names.taken.insert(name, actor);
        } else if ask == 0 {
            // What an heir says may be out of date: somebody was told meanwhile that its actor is dead, and has the name.
            let inherited = take.is_some_and(|actor| actor.0.owner.node() != from);
            self.violations += u64::from(!inherited); // NAME-1
            let (namespace, name) = &name;
            self.log(format!(
                "two actors are named {name:?} in namespace {namespace:?}: the one of {from} is found there only"
            ));
        }
        if ask != 0 {
            self.send_peer(from, Peer::Named { ask, actor: has });
        }
    }

    pub(super) fn on_unname(&mut self, name: Name, actor: ActorId) {
        let Names { taken, recalled, .. } = &mut self.far.names;
        for names in [taken, recalled] {
            if names.get(&name) == Some(&actor) {
                names.remove(&name);
            }
        }
        self.far.names.postponed.retain(|it| it.take != Some(actor));
    }

    /// Before a head's first event: these nodes lived under an earlier head.
    pub(in crate::node) fn awaits_names(&mut self, nodes: BTreeSet<NodeNumber>) {
        self.far.names.untold = nodes;
    }

    /// To a head: that node has told all names that it has.
    pub(super) fn has_told_names(&mut self, node: NodeNumber) {
        self.far.names.recalled.retain(|_, actor| actor.0.owner.node() != node);
        self.tells_no_more_names(node);
    }

    /// Or it is dead.
    fn tells_no_more_names(&mut self, node: NodeNumber) {
        if !self.far.names.untold.remove(&node) || !self.far.names.untold.is_empty() {
            return;
        }
        for Postponed { from, ask, name, take } in std::mem::take(&mut self.far.names.postponed) {
            self.on_name(from, ask, name, take);
        }
        self.ask_head_again();
    }

    /// A process of another node asks for an actor of this home, or of a head for one that was lost.
    pub(super) fn on_far_lookup(&mut self, from: ProcessId, request: u64, name: Name) {
        let asked = self.far.names.asked.values_mut();
        let mut open = asked.filter(|ask| ask.at == At::Head && ask.name == name);
        match open.find_map(|ask| ask.creation.as_mut()) {
            // It may be the one that the head means, and the head's word is on its way here.
            Some(creation) => creation.lookups.push((from, request)),
            None => self.look_up_here(from, request, name),
        }
    }

    /// An earlier daemon's row of an actor of another home says that it has that name.
    pub(in crate::node) fn recall_name(&mut self, name: Name, actor: ActorId) {
        if !name.1.is_empty() {
            self.far.names.recalled.insert(name, actor);
        }
    }

    /// It is told this node's names, and asked what its predecessor did not answer.
    pub(super) fn names_at_new_head(&mut self) {
        let Some(head) = self.far.head else { return };
        if self.is_far(head) {
            let names: Vec<(Name, ActorId)> =
                self.actors.names().map(|(name, id)| (name.clone(), id)).collect();
            names.into_iter().for_each(|(name, actor)| self.tell_name(name, actor));
        }
        self.ask_head_again();
    }

    fn ask_head_again(&mut self) {
        let waiting = self.far.names.asked.iter().filter(|(_, ask)| ask.at == At::Head);
        for number in waiting.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.ask_head(number);
        }
    }

    /// The head is told the name of an actor in our charge: it may be younger than the name.
    pub(super) fn tell_name(&mut self, (namespace, name): Name, actor: ActorId) {
        if let Some(head) = self.far.head.filter(|head| self.is_far(*head)) {
            self.send_peer(head, Peer::Name { ask: 0, namespace, name, take: Some(actor) });
        }
    }

    /// The home of an actor that somebody asks for, perhaps.
    pub(super) fn names_at_new_node(&mut self, node: NodeNumber) {
        for number in self.asked_of(node) {
            self.ask_on(number);
        }
    }

    pub(super) fn names_of_dead(&mut self, node: NodeNumber) {
        if self.objects.in_charge(node) == node {
            self.far.names.taken.retain(|_, actor| actor.0.owner.node() != node);
            self.far.names.recalled.retain(|_, actor| actor.0.owner.node() != node);
        }
        self.tells_no_more_names(node);
        for number in self.asked_of(node) {
            self.ask_on(number);
        }
        if self.far.head.is_none() {
            for ask in self.far.names.asked.values_mut().filter(|ask| ask.at == At::Lost) {
                ask.at = At::Head;
            }
        }
    }

    /// The heirs of these homes know which names their actors have.
    pub(super) fn names_settled(&mut self, homes: &BTreeSet<NodeNumber>) {
        for home in homes {
            for number in self.asked_of(*home) {
                self.ask_on(number);
            }
        }
    }

    /// Whether this name may be that of an actor that this node does not know yet. Returns what it is about, for a log.
    pub(super) fn lookup_waits(&self, name: &Name) -> Option<ObjectId> {
        let waits = self.is_unsettled() && self.actors.named(name).is_none();
        let nobody = TaskId { owner: ProcessId(0), seq: 0 };
        waits.then(|| ActorId(nobody).handle())
    }

    #[cfg(test)]
    pub(in crate::node) fn waits_for_no_name(&self) -> bool {
        self.far.names.asked.is_empty()
    }

    fn asked_of(&self, node: NodeNumber) -> Vec<u64> {
        let of_it = |ask: &Ask| match ask.at {
            At::Home(actor) => self.charge_of(actor) == node || actor.0.owner.node() == node,
            At::Head | At::Lost => false,
        };
        let asked = self.far.names.asked.iter().filter(|(_, ask)| of_it(ask));
        asked.map(|(number, _)| *number).collect()
    }
}
