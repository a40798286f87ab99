//! What somebody reaches is there: each object that a living process uses is known at its home, as long as that lives.
//!
//! A process that made an object and told nobody of it knows it alone. So what is looked for is known to the directory of its
//! home, or to its owner, or lies in the socket of its owner, or of the worker that made it.

use hoplo_base::ObjectId;
use hoplo_wire::node::{Notice, ToNode};

use crate::client::Client;
use crate::cluster::Cluster;

impl Cluster {
    pub fn check_reach(&self) {
        // What who is being killed has is held for nobody's sake any more: a killed actor's arguments go at once. Nor is what a process has whose node stands
        // still, and that others go on without (seed 90131750).
        let goes_on = |it: &&Client| {
            let ends = self.is_being_killed(it.id) || self.job_has_ended(it.job);
            it.alive && !ends && self.host(it.id.node()).goes_on()
        };
        for client in self.clients.values().filter(goes_on) {
            let objects = client.session.known_objects().filter(|it| it.index != u32::MAX);
            for object in objects {
                let home = self.host(object.task.owner.node());
                // With an adopted task nothing comes that is wanted, if its result was on its way to this process alone, and went with its
                // owner: that reply was not written (seed 130066812).
                let adopted = self.books.adopted_refs.contains(&(client.id, object));
                if home.dead || adopted || self.knows_its_own(object) {
                    continue;
                }
                assert!(
                    home.daemon.node.objects.knows(object),
                    "{object} is gone at its home, and {} reaches it\n{}",
                    client.id,
                    self.story.about(&[object.to_string(), object.task.to_string()])
                );
            }
        }
    }

    fn knows_its_own(&self, object: ObjectId) -> bool {
        let Some(owner) = self.clients.get(&object.task.owner) else { return false };
        let mut known = owner.session.known_objects();
        let near = |client: &&Client| client.id.node() == owner.id.node();
        owner.alive && known.any(|known| known == object)
            || self.clients.values().filter(near).any(|client| client.tells_of(object))
    }
}

impl Client {
    /// It lies in its socket.
    fn tells_of(&self, object: ObjectId) -> bool {
        let tells = |notice: &Notice| match notice {
            Notice::Shared { object: told, .. } | Notice::Sealed { object: told, .. } => {
                *told == object
            }
            _ => false,
        };
        self.up.iter().any(|message| match message {
            ToNode::Notices(notices) => notices.iter().any(tells),
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use hoplo_base::{ResourceSet, TaskId};
    use hoplo_core::node::Event;
    use hoplo_wire::node::{Role, Shape};

    use super::*;
    use crate::daemon::hello;

    #[test]
    fn who_is_to_die_as_soon_as_its_pid_is_known_holds_nothing() {
        let mut cluster = Cluster::new(1, None);
        (cluster.plan.fork_failures, cluster.plan.kills) = (false, 0);
        cluster.recalls();
        cluster.knocks(0);
        let driver = cluster.drivers[0];
        let shape = Shape::of(ResourceSet::from_units([("CPU", 1.0)]).unwrap()).into();
        let message = ToNode::LeaseDemand { key: 1, shape, wanted: 1 };
        cluster.happens(Event::Heard { from: driver, message });
        let worker = cluster.here.daemon.node.processes().find(|it| it.is_worker());
        let worker = worker.expect("a demand needs a worker").id;
        cluster.born(worker);
        cluster.happens(Event::Heard { from: worker, message: hello(Role::Worker) });
        // The home does not know this one.
        let object = TaskId { owner: driver, seq: 9 }.object(0);
        cluster.client(worker).session.add_ref(object);
        let fails =
            |cluster: &Cluster| catch_unwind(AssertUnwindSafe(|| cluster.check_reach())).is_err();
        assert!(fails(&cluster), "it goes on");

        cluster.is_deaf(worker);
        assert!(!fails(&cluster), "it is to be killed, and nobody knows its pid");
        cluster.births(worker);
        assert!(!fails(&cluster), "it is being killed");
    }
}
