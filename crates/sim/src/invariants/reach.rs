//! What somebody reaches is there: each object that a living process uses is known at its home, as long as that lives.
//!
//! A process that made an object and told nobody of it knows it alone. So what is looked for is known to the directory of its
//! home, or to its owner, or lies in the socket of its owner, or of the worker that made it. It is looked at until the first process is killed: with that one
//! may go what others reach (`failures` judges it then).

use hoplo_base::ObjectId;
use hoplo_wire::node::{Notice, ToNode};

use crate::client::Client;
use crate::cluster::Cluster;

impl Cluster {
    pub fn check_reach(&self) {
        if !self.books.facts.died.is_empty() {
            return;
        }
        // What who is being killed has is held for nobody's sake any more: a killed actor's arguments go at once.
        let goes_on = |it: &&Client| it.alive && !self.books.facts.is_doomed(it.id);
        for client in self.clients.values().filter(goes_on) {
            let objects = client.session.known_objects().filter(|it| it.index != u32::MAX);
            for object in objects {
                let home = self.host(object.task.owner.node());
                if home.dead || self.knows_its_own(object) {
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
