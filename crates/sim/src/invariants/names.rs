//! No name is two actors' at a time (NAME-1), in the tables of the nodes that decide about them.

use std::collections::BTreeMap;

use crate::cluster::Cluster;

impl Cluster {
    pub fn check_names(&self) {
        let mut all = BTreeMap::new();
        for host in self.hosts().filter(|host| host.goes_on()) {
            for (name, actor) in host.daemon.node.actors.names() {
                let before = all.insert(name, actor).filter(|before| *before != actor);
                assert!(
                    before.is_none(),
                    "{actor} and {before:?} are two actors of the name {name:?}\n{}",
                    self.story.about(&[actor.to_string()])
                );
            }
        }
    }
}
