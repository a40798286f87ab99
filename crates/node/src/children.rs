//! Children of this process, and theirs: who they are, how they ended, and the end of those that stay.
//!
//! Workers are the zygote's children, and it ends what they leave behind (`python/hoplo/_zygote.py`). When
//! the zygote itself dies, its children become ours, since we adopt orphans: then this is our task.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use hoplo_base::limits::CHILDREN_END_PATIENCE;
use rustix::process::{Pid, Signal, WaitOptions};

/// Between two looks at those that were killed.
const END_LOOKS: Duration = Duration::from_millis(1);

/// From now on a descendant whose parent ends becomes a child of this process.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// The exit code, or minus the signal, of a child of ours that ended; it is waited for, and with it
/// goes its process group. `None` for one that runs, or is not our child.
pub(crate) fn reap(pid: u32) -> Option<i32> {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let child = to_pid(pid)?;
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(child), look).ok()??;
    // Before it is waited for: until then its number is nobody else's.
    kill_group(child);
    let (_, status) = rustix::process::waitpid(Some(child), WaitOptions::NOHANG).ok()??;
    let signal = status.terminating_signal().map(|signal| -signal);
    status.exit_status().or(signal)
}

/// Kills and waits for every child but those; whether there were any.
pub(crate) fn end_all_but(kept: &BTreeSet<u32>) -> bool {
    let mine = Families::look().children(std::process::id());
    let strays: Vec<u32> = mine.into_iter().filter(|pid| !kept.contains(pid)).collect();
    for pid in &strays {
        if reap(*pid).is_none()
            && let Some(child) = to_pid(*pid)
        {
            kill_group(child);
            // It may have ended, or run as another user.
            let _ = rustix::process::kill_process(child, Signal::KILL);
        }
    }
    !strays.is_empty()
}

/// Until nobody but those is left. Who is killed leaves its own children to us.
pub(crate) fn end_all_in_time(kept: &BTreeSet<u32>) {
    let deadline = Instant::now() + CHILDREN_END_PATIENCE;
    while end_all_but(kept) && Instant::now() < deadline {
        std::thread::sleep(END_LOOKS);
    }
}

fn kill_group(leader: Pid) {
    if rustix::process::getpgid(Some(leader)).is_ok_and(|group| group == leader) {
        let _ = rustix::process::kill_process_group(leader, Signal::KILL);
    }
}

fn to_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// Who is whose child, as the kernel says now.
#[derive(Debug)]
pub(crate) struct Families(BTreeMap<u32, Vec<u32>>);

impl Families {
    pub(crate) fn look() -> Self {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            if let Some(parent) = parse_parent(&stat) {
                children.entry(parent).or_default().push(pid);
            }
        }
        Self(children)
    }

    pub(crate) fn children(&self, pid: u32) -> Vec<u32> {
        self.0.get(&pid).cloned().unwrap_or_default()
    }

    /// The process, and all that descend from it.
    pub(crate) fn of(&self, pid: u32) -> Vec<u32> {
        let mut all = vec![pid];
        let mut at = 0;
        while let Some(one) = all.get(at) {
            let children = self.children(*one);
            all.extend(children.into_iter().filter(|child| *child != pid));
            at += 1;
        }
        all
    }
}

fn parse_parent(stat: &str) -> Option<u32> {
    // The name, in parentheses, may hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::zombie_processes, reason = "`reap` waits for it")]
    fn a_family_is_found_whatever_its_members_are_called() {
        assert_eq!(parse_parent("77 (a ) R 1 (b) S 42 77 77 0"), Some(42));
        assert_eq!(parse_parent("77 (x"), None);
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let families = Families::look();
        assert!(families.children(std::process::id()).contains(&child.id()));
        assert_eq!(families.of(child.id()), [child.id()]);
        assert!(families.of(std::process::id()).contains(&child.id()));
        assert_eq!(reap(child.id()), None);
        child.kill().unwrap(); // and it is `reap` that waits for it
        let deadline = Instant::now() + Duration::from_secs(10);
        let status = loop {
            match reap(child.id()) {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "it was killed"),
            }
        };
        assert_eq!(status, -9);
        assert_eq!(reap(child.id()), None);
    }
}
