//! What deciders of other nodes say.

use hoplo_base::{JobId, NodeNumber, ProcessId};
use hoplo_wire::node::{ToClient, ToNode};
use hoplo_wire::peer::{Peer, StopManner};

use super::Node;
use super::routing::named;
use crate::actors::life::{self, Manner};
use crate::node::Asker;
use crate::objects;
use crate::sched::{groups, local};

impl Node {
    /// `cover`: under which the sender holds what the message names.
    pub(in crate::node) fn on_peer(&mut self, from: NodeNumber, cover: u64, message: Peer) {
        if self.far.dead.contains_key(&from) {
            return; // FAR-1
        }
        let named = named(&message);
        match self.not_in_charge(&message) {
            Some(object) => self.keep_early(from, object, message, &named),
            None => self.on_message(from, message),
        }
        self.arrived(from, cover, named);
    }

    pub(super) fn on_message(&mut self, from: NodeNumber, message: Peer) {
        match message {
            Peer::Claims { seq, message } => self.on_claims_message(from, seq, message),

            Peer::From { process, job, message } => self.on_far_request(process, job, *message),
            Peer::To { process, message } => self.deliver(from, process, *message),
            Peer::Connect { caller, worker } => self.on_far_connect(caller, worker),
            Peer::Gone { process, obituary } => {
                self.known_worker_gone_early(from, process, &obituary);
                self.on_gone(process, &obituary);
            }

            Peer::Job { job, driver, config } => self.on_job_told(from, job, driver, *config),
            Peer::JobKnown { job } => self.on_job_known(from, job),
            Peer::JobEnded { job } => self.end_foreign_job(job),
            Peer::Fetch { job, function } => self.on_far_fetch(from, job, function),
            Peer::Function { function, bytes } => self.on_far_function(from, function, bytes),

            Peer::Want { objects, gone } => self.on_want(from, objects, gone),
            Peer::Value { object, value, contains } => self.on_value(object, value, contains),
            Peer::Delayed { object } => self.pass_to_objects(objects::Event::Delayed { object }),
            Peer::Sealed { object, bytes, contains, maker, holder, word } => {
                self.await_reply(holder, maker, object);
                let copy = objects::CopyAt { node: from, word };
                let sealed = objects::Event::FarSealed { copy, object, bytes, contains };
                self.pass_to_objects(sealed);
            }
            Peer::Copied { object, word, turn } => {
                let copy = objects::CopyAt { node: from, word };
                self.pass_to_objects(objects::Event::FarCopied { copy, object, turn });
            }
            Peer::NotCopied { object } => {
                self.pass_to_objects(objects::Event::FarNotCopied { node: from, object });
            }
            Peer::KeepCopy { object, copies } => {
                self.pass_to_objects(objects::Event::CopyAsked { object, copies });
            }
            Peer::Known { object, known } => {
                self.pass_to_objects(objects::Event::FarKnows { node: from, object, known });
            }
            Peer::NotAdopted { objects } => {
                self.pass_to_objects(objects::Event::FarNotAdopted { node: from, objects });
            }
            Peer::MadeAt { node, objects } => {
                let made = objects::Event::FarMadeAt { adopter: from, maker: node, objects };
                self.pass_to_objects(made);
            }
            Peer::Lineage { object, lineage } => {
                self.pass_to_objects(objects::Event::LineageTold { object, lineage });
            }
            Peer::Adopt { lineage, objects } => {
                self.pass_to_objects(objects::Event::AdoptAsked { lineage, objects });
            }
            Peer::Announced { epoch } => self.send_peer(from, Peer::Heard { epoch }),
            Peer::Heard { epoch } => self.heir_heard(from, epoch),
            Peer::Forget { object, word } => {
                self.pass_to_objects(objects::Event::Forgotten { object, word });
            }
            Peer::FetchBytes { ticket, object, offset, until, turn } => {
                self.on_bytes_wanted(from, ticket, object, (offset, until), turn);
            }
            Peer::NoBytes { ticket, why } => self.on_no_bytes(from, ticket, why),
            Peer::Enough { ticket } => self.on_enough(from, ticket),
            Peer::Slow { ticket } => self.on_slow(from, ticket),
            Peer::Waits { ticket } => self.on_waits(from, ticket),
            Peer::Lags { object, node, turn } => self.lags(from, object, node, turn),
            Peer::NowFrom { object, turn, now, sources } => {
                self.now_from(object, turn, now, sources);
            }

            Peer::Fold(fold) => self.on_fold_asked(from, fold),
            Peer::FoldBroke { made, rest } => self.on_fold_broke(from, made, rest),
            Peer::FoldFrom { made, from: source, upstream, operands } => {
                self.on_fold_from(from, made, (source, upstream), operands);
            }
            Peer::NoFold { made, why, again } => self.on_no_fold(from, made, (why, again)),
            Peer::FoldOver { made, sealed } => self.on_fold_over(from, made, sealed),

            Peer::Demand { process, job, key, shape, wanted } => {
                self.stranger(process).job = job;
                if wanted > 0
                    && let Some(gone) = self.group_is_gone(&shape.resources)
                {
                    let failure = gone.of_tasks;
                    return self.send(process, ToClient::LeaseFailed { key, failure });
                }
                self.pass_to_scheduler(local::Event::Demanded { process, job, key, shape, wanted });
            }
            Peer::PlaceActor { actor, incarnation, job, shape, held } => {
                if let Some(gone) = self.group_is_gone(&shape.resources) {
                    let failure = gone.of_actors;
                    let refused = Peer::ActorNotPlaced { actor, incarnation, failure };
                    return self.send_peer(from, refused);
                }
                let waits = local::Event::ActorWaits { actor, incarnation, job, shape, held };
                self.pass_to_scheduler(waits);
            }
            Peer::UnplaceActor { actor } => {
                self.pass_to_scheduler(local::Event::ActorGaveUp { actor });
            }
            Peer::ActorPlaced { actor, incarnation, worker, gpus } => {
                self.actor_placed(from, actor, incarnation, worker, gpus);
            }
            Peer::ActorNotPlaced { actor, incarnation, failure } => {
                self.actor_not_placed(from, actor, incarnation, failure);
            }
            Peer::ActorStuck { actor, reason, infeasible } => {
                self.actor_stuck_there(from, actor, reason, infeasible);
            }
            Peer::RunActor { worker, spec, incarnation, gpus, replay } => {
                self.on_run_actor(worker, spec, incarnation, gpus, replay);
            }
            Peer::KeepActor { known, word } => self.on_keep_actor(from, *known, word),
            Peer::UnkeepActor { actor, word } => {
                self.let_kept_go(actor);
                self.did_as_told(from, actor, word);
            }
            Peer::KeepLog { actor, incarnation, gained, word } => {
                self.on_keep_log(from, actor, incarnation, gained, word);
            }
            Peer::Kept { actor, word } => self.on_kept(from, actor, word),
            Peer::ActorKnown(known) => {
                let actor = known.spec.actor;
                self.on_actor_known(from, *known);
                if self.decides(actor) {
                    self.take_actor(actor);
                }
            }
            Peer::ActorEnded { actor } => self.on_actor_ended(actor),
            Peer::ActorStarted { worker } => {
                self.pass_to_scheduler(local::Event::ActorStarted { worker });
            }
            Peer::StopWorker { worker, manner, reason } => {
                let manner = match manner {
                    StopManner::Finish => Manner::Finish,
                    StopManner::Exit => Manner::Exit,
                    StopManner::Kill => Manner::Kill,
                };
                self.stop_process(worker, manner, reason);
            }
            Peer::Seek { seek, shape, wanted } => self.on_sought(from, seek, shape, wanted),
            Peer::Where { seek, found } => self.on_found(seek, found),
            Peer::Load(load) => self.on_load(from, *load),
            Peer::Bundles { order, .. } if self.is_overtaken(from, &order) => {}
            Peer::Bundles { group, order } => self.on_bundle_order(group, order),
            Peer::BundlesAnswered { group, attempt, refused } => {
                let node = from;
                self.pass_to_groups(groups::Event::Answered { node, group, attempt, refused });
            }
            Peer::Held { bundles, jobs, removed } => {
                let held = groups::Held { bundles, jobs: jobs.into_iter().collect(), removed };
                self.pass_to_groups(groups::Event::Told { node: from, held });
                self.has_told_names(from);
            }
            Peer::Name { ask, namespace, name, take } => {
                self.on_name(from, ask, (namespace, name), take);
            }
            Peer::Named { ask, actor } => self.on_named(from, ask, actor),
            Peer::Unname { namespace, name, actor } => self.on_unname((namespace, name), actor),
            Peer::Drain { within_ms } => {
                self.begin_drain(std::time::Duration::from_millis(within_ms));
            }
            Peer::HandOver { object, known, word } => self.on_hand_over(from, object, known, word),
            Peer::TakeBack { object } => self.on_take_back(from, object),
            Peer::Leave { word } => self.send_peer(from, Peer::LeaveHeard { word }),
            Peer::LeaveHeard { word } => self.on_leave_heard(from, word),
            Peer::HandedOver { word } => self.on_handed_over(from, word),
            Peer::Passed { epoch } => self.on_passed(from, epoch),
            Peer::Query { request, kind, argument } => {
                self.on_query(Asker::Node(from), request, &kind, argument);
            }
            Peer::Answer { request, result, more } => {
                self.on_node_answer(from, request, result, more);
            }
            Peer::Explain { request, question, late, named } => {
                self.on_part_of_why(from, request, question, late, named);
            }
            Peer::Explained { request, told, late, names } => {
                self.on_node_explained(from, request, told, late, names);
            }
        }
    }

    /// A process of another node speaks of what is at home here, or of a process here, as one of ours would.
    fn on_far_request(&mut self, from: ProcessId, job: JobId, message: ToNode) {
        self.stranger(from).job = job;
        match message {
            ToNode::LeaseReturn { lease } => {
                self.pass_to_scheduler(local::Event::Returned { process: from, lease });
            }
            ToNode::Retires { worker } => self.on_retires(from, worker),
            ToNode::KillWorker { worker } => self.on_kill_worker(from, worker),
            ToNode::ChannelBroken { worker, why } => self.on_channel_broken(from, worker, why),
            ToNode::Tell { to, message } => self.tell(from, to, message),
            ToNode::ActorWatch { actor } => self.watch(from, actor),
            ToNode::ActorKill { actor, no_restart, of } => self.kill_actor(actor, no_restart, of),
            ToNode::ActorStarted { actor, incarnation, result } => {
                let worker = from;
                self.pass_to_actors(life::Event::Started { worker, actor, incarnation, result });
            }
            ToNode::ActorExit { actor } => {
                self.pass_to_actors(life::Event::Left { worker: from, actor });
            }
            ToNode::ActorFailed { actor, failure } => {
                self.pass_to_actors(life::Event::Failed { worker: from, actor, failure });
            }
            ToNode::CallLogged { actor, incarnation, call } => {
                self.call_logged(from, actor, incarnation, call);
            }
            ToNode::Checkpointed { actor, incarnation, checkpoint } => {
                self.checkpointed(from, actor, incarnation, checkpoint);
            }
            ToNode::ActorLookup { request, namespace, name } => {
                self.on_far_lookup(from, request, (namespace, name));
            }
            ToNode::GroupCreate { request, spec } => self.create_group(from, job, request, spec),
            ToNode::GroupRemove { group } => {
                self.pass_to_groups(groups::Event::RemoveAsked { group });
            }
            ToNode::GroupWatch { request, group } => {
                self.pass_to_groups(groups::Event::Watched { from, request, group });
            }
            ToNode::GroupUnwatch { request, group: _ } => {
                self.pass_to_groups(groups::Event::Unwatched { from, request });
            }
            other => {
                self.violations += 1;
                self.log(format!("{from}, of another node, says {other:?} out of place"));
            }
        }
    }
}
