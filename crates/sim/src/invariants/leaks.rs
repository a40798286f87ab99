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
        if let Some(row) = self.daemon.node.objects.listing().next() {
            let words = [row.object.to_string(), row.object.task.to_string()];
            panic!(
                "{} leaks: {row:?}\n{}\n{}",
                row.object,
                self.daemon.node.objects.story(row.object).join("\n"),
                self.story.about(&words)
            );
        }
    }

    /// Everybody is gone.
    pub fn check_the_end(&self) {
        for client in self.clients.values() {
            assert!(!client.alive, "{} is left behind:\n{}", client.id, self.whats_up());
        }
        let totals = self.daemon.node.objects.totals();
        assert!(totals.objects == 0, "objects are left:\n{}", self.whats_up());
        assert!(totals.granted_bytes == 0, "memory is left: {totals:?}");
        assert!(totals.violations == 0);
        assert!(self.memory.on_disk() == 0, "spilled bytes are left");
        assert!(self.daemon.node.scheduler.leases().next().is_none(), "{}", self.whats_up());
        assert!(self.daemon.node.scheduler.waiting().next().is_none(), "{}", self.whats_up());
        self.daemon.node.check();
        let left: Vec<_> = self.daemon.node.processes().map(|process| process.id).collect();
        assert!(left.is_empty(), "{left:?} are not buried");
    }
}
