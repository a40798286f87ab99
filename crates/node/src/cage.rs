//! Memory limits that the kernel keeps: a control group (version 2) for each worker with a limit.
//!
//! What a worker starts is born into its cage. The cage of a dead worker is emptied: who is left in it is killed
//! (`cgroup.kill`, since Linux 5.14). A cage whose lease is over goes, and who is in it goes on without one.
//!
//! Where our own group cannot have children with the memory controller (most containers), there are no
//! cages, and `memory` measures instead; it measures in a cage too, because what a worker had before it
//! came in is not counted there.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hoplo_base::ProcessId;

#[derive(Debug)]
pub(crate) struct Cages {
    /// The daemon's own group, if groups can be made in it.
    root: Option<PathBuf>,
    taken: BTreeMap<ProcessId, Cage>,
    /// Of cages whose inmates were killed and may not have ended yet.
    empty: Vec<PathBuf>,
}

#[derive(Debug)]
struct Cage {
    folder: PathBuf,
    pid: u32,
    /// Bytes.
    limit: u64,
}

impl Cages {
    pub(crate) fn new(own_group: Option<PathBuf>) -> Self {
        let root = own_group.filter(|group| can_limit_children(group));
        Self { root, taken: BTreeMap::new(), empty: Vec::new() }
    }

    /// From now on the kernel kills the worker when it takes more.
    pub(crate) fn confine(&mut self, worker: ProcessId, pid: u32, limit: u64) {
        let Some(root) = &self.root else { return };
        let folder = root.join(format!("hoplo-{}-{}", std::process::id(), worker.count()));
        let cage = Cage { folder, pid, limit };
        // Whatever fails, the measured limit remains.
        if cage.make().is_ok() {
            self.taken.insert(worker, cage);
        } else {
            let _ = cage.remove(root);
        }
    }

    /// Its lease is over.
    pub(crate) fn release(&mut self, worker: ProcessId) {
        if let (Some(root), Some(cage)) = (&self.root, self.taken.remove(&worker)) {
            let _ = cage.remove(root);
        }
    }

    /// It is dead: the limit that it was killed for, if it was.
    pub(crate) fn autopsy(&mut self, worker: ProcessId) -> Option<u64> {
        let cage = self.taken.remove(&worker)?;
        let killed = cage.kills() > 0;
        // Older kernels have no such file: then the cage goes when its inmates have ended.
        let _ = fs::write(cage.folder.join("cgroup.kill"), "1");
        self.empty.push(cage.folder);
        self.empty.retain(|folder| fs::remove_dir(folder).is_err() && folder.exists());
        killed.then_some(cage.limit)
    }
}

impl Cage {
    fn make(&self) -> io::Result<()> {
        fs::create_dir(&self.folder)?;
        fs::write(self.folder.join("memory.max"), self.limit.to_string())?;
        // There is no such file where there is no swap.
        let _ = fs::write(self.folder.join("memory.swap.max"), "0");
        fs::write(self.folder.join("cgroup.procs"), self.pid.to_string())
    }

    fn remove(&self, root: &Path) -> io::Result<()> {
        let mut inmates = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        if inmates.is_empty() {
            inmates = self.pid.to_string();
        }
        for pid in inmates.lines() {
            // One that has ended meanwhile is out of it.
            let _ = fs::write(root.join("cgroup.procs"), pid);
        }
        fs::remove_dir(&self.folder)
    }

    fn kills(&self) -> u64 {
        let events = fs::read_to_string(self.folder.join("memory.events")).unwrap_or_default();
        let count = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }
}

/// Whether children of the group have the memory controller, or get it now.
fn can_limit_children(group: &Path) -> bool {
    let control = group.join("cgroup.subtree_control");
    let has = |text: String| text.split_whitespace().any(|name| name == "memory");
    fs::read_to_string(&control).is_ok_and(has)
        // Refused where processes live in the group itself.
        || fs::write(&control, "+memory").is_ok() && fs::read_to_string(&control).is_ok_and(has)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoplo_base::NodeNumber;

    /// Plain files in the place of the kernel's.
    struct Group(PathBuf);

    impl Group {
        fn new(test: &str, controllers: &str) -> Self {
            let name = format!("hoplo-test-cage-{test}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cgroup.subtree_control"), controllers).unwrap();
            Self(path)
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_worker_is_confined_and_the_kernels_verdict_is_read() {
        let group = Group::new("confine", "cpu memory");
        let mut cages = Cages::new(Some(group.0.clone()));
        let worker = ProcessId::new(NodeNumber::alone(1), 7, 7);
        cages.confine(worker, 4242, 1000);
        let folder = group.0.join(format!("hoplo-{}-7", std::process::id()));
        let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
        assert_eq!((read("memory.max"), read("cgroup.procs")), ("1000".into(), "4242".into()));
        fs::write(folder.join("memory.events"), "low 0\noom 1\noom_kill 1\n").unwrap();
        assert_eq!(cages.autopsy(worker), Some(1000));
        assert_eq!(read("cgroup.kill"), "1");
        assert_eq!(cages.autopsy(worker), None);
    }

    #[test]
    fn a_worker_that_is_let_go_is_in_our_own_group_again() {
        let group = Group::new("release", "memory");
        let mut cages = Cages::new(Some(group.0.clone()));
        let worker = ProcessId::new(NodeNumber::alone(1), 7, 7);
        cages.confine(worker, 4242, 1000);
        cages.release(worker);
        assert_eq!(fs::read_to_string(group.0.join("cgroup.procs")).unwrap(), "4242");
        assert_eq!(cages.autopsy(worker), None);
    }

    #[test]
    fn where_there_is_no_controller_there_are_no_cages() {
        let group = Group::new("none", "");
        fs::remove_file(group.0.join("cgroup.subtree_control")).unwrap();
        fs::create_dir(group.0.join("cgroup.subtree_control")).unwrap(); // Cannot be written.
        let mut cages = Cages::new(Some(group.0.clone()));
        cages.confine(ProcessId::new(NodeNumber::alone(1), 7, 7), 4242, 1000);
        assert_eq!(fs::read_dir(&group.0).unwrap().count(), 1);
        assert!(Cages::new(None).root.is_none());
    }
}
