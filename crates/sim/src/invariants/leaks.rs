//! When all is dropped, all is gone, whoever was killed meanwhile.

use crate::cluster::Cluster;

impl Cluster {
    /// The drivers have dropped everything and wait: nothing is held any more.
    pub fn check_leaks(&self) {
        let alive = || self.clients.values().filter(|client| client.alive);
        for client in alive() {
            let unfinished = client.session.unfinished();
            assert!(unfinished == 0, "{} has {unfinished} calls:\n{}", client.id, self.whats_up());
        }
        let living = || self.hosts().filter(|host| !host.dead);
        let first = living().find_map(|host| host.daemon.node.objects.listing().next());
        let Some(object) = first.map(|row| row.object) else { return };
        let mut text = String::new();
        for host in living() {
            let objects = &host.daemon.node.objects;
            for row in objects.listing().take(20) {
                text += &format!("at {}: {}: {row:?}\n", host.number, row.object);
            }
            for line in objects.story(object) {
                text += &format!("{line}\n");
            }
        }
        let words = [object.to_string(), object.task.to_string()];
        panic!("{object} leaks\n{text}\n{}", self.story.about(&words));
    }

    /// Everybody is gone.
    pub fn check_the_end(&self) {
        for client in self.clients.values() {
            assert!(!client.alive, "{} is left behind:\n{}", client.id, self.whats_up());
        }
        for host in self.hosts().filter(|host| !host.dead) {
            let (node, number) = (&host.daemon.node, host.number);
            let totals = node.objects.totals();
            assert!(totals.objects == 0, "objects are left at {number}:\n{}", self.whats_up());
            assert!(totals.granted_bytes == 0, "memory is left at {number}: {totals:?}");
            assert!(totals.violations == 0);
            assert!(host.memory.on_disk() == 0, "spilled bytes are left at {number}");
            assert!(node.scheduler.leases().next().is_none(), "{}", self.whats_up());
            assert!(node.scheduler.waiting().next().is_none(), "{}", self.whats_up());
            let bundles = node.scheduler.bundles_held();
            assert!(bundles.is_empty(), "bundles are left at {number}: {bundles:?}");
            let (free, total) = (node.scheduler.available(), node.scheduler.total());
            assert_eq!(free, *total, "resources are taken at {number}");
            node.check();
            let left: Vec<_> = node.processes().map(|process| process.id).collect();
            assert!(left.is_empty(), "{left:?} are not buried");
            assert!(node.is_quiet(), "references are under way at {number}");
            let groups = self.groups();
            assert!(groups.is_empty(), "placement groups are left: {groups:?}");
            assert!(host.carrier.is_idle(), "calls are under way:\n{}", self.whats_up());
        }
    }
}
