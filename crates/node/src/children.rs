//! Children of this process, and theirs: who they are, how they ended, and the end of those that stay.
//!
//! Workers are the zygote's children, and it ends what they leave behind (`python/hoplo/_zygote.py`). When
//! the zygote itself dies, its children become ours, since we adopt orphans: then this is our task. It is ours at the
//! daemon's end, too, which kills the zygote.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use hoplo_base::limits::CHILDREN_END_PATIENCE;
use hoplo_folders::life::{first_ends, life};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, waitid};

/// From now on a descendant whose parent ends becomes a child of this process.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Whether this process has children.
pub(crate) fn are_any() -> bool {
    !matches!(ended(WaitId::All), Err(Errno::CHILD))
}

/// A child that ended; it still has to be waited for.
fn ended(who: WaitId<'_>) -> rustix::io::Result<Option<WaitIdStatus>> {
    waitid(who, WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
}

/// The exit code, or minus the signal, of a child of ours that ended; it is waited for, and with it
/// goes its process group. `None` for one that runs, or is not our child.
pub(crate) fn reap(pid: u32) -> Option<i32> {
    let child = to_pid(pid)?;
    ended(WaitId::Pid(child)).ok()??;
    // Before it is waited for: until then its number is nobody else's.
    kill_group(child);
    let (_, status) = rustix::process::waitpid(Some(child), WaitOptions::NOHANG).ok()??;
    let signal = status.terminating_signal().map(|signal| -signal);
    status.exit_status().or(signal)
}

/// Kills and waits for every child but those; whether there were any, or may be.
pub(crate) fn end_all_but(kept: &BTreeSet<u32>) -> bool {
    let Ok(strays) = all_but(kept) else { return true };
    for pid in &strays {
        if reap(*pid).is_none() {
            kill(*pid);
        }
    }
    !strays.is_empty()
}

/// When to look again for those that were killed, while the daemon goes on: one look is arranged at a time, and each later
/// than the one before, since some may never go, as another user's.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Before the look that is arranged.
    pause: Option<Duration>,
}

/// Between two looks, first and most.
const LOOKS: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(5)];

impl Looks {
    /// Some are left: after this pause they are to be looked for, unless that is arranged already.
    pub(crate) fn again(&mut self) -> Option<Duration> {
        if self.pause.is_some() {
            return None;
        }
        self.pause = Some(LOOKS[0]);
        self.pause
    }

    /// The look that was arranged took place; `left`: it found some.
    pub(crate) fn due(&mut self, left: bool) -> Option<Duration> {
        let pause = self.pause.take()?;
        self.pause = left.then(|| (pause * 2).min(LOOKS[1]));
        self.pause
    }
}

/// Kills and waits for every child but those, until there are no others or the time is over.
///
/// Who ends leaves its own children to us, and the kernel gives them to us before it shows us that end. All that we
/// see are killed. So nobody comes to us but by the end of somebody on whom we wait, and after each we look again.
pub(crate) fn end_all_in_time(kept: &BTreeSet<u32>) -> io::Result<()> {
    let deadline = Instant::now() + CHILDREN_END_PATIENCE;
    let mut kept = kept.clone();
    loop {
        let strays = all_but(&kept)?;
        if strays.is_empty() {
            return Ok(());
        }
        strays.iter().copied().for_each(kill);
        let ended = await_first_ends(&strays, deadline)?;
        if ended.is_empty() {
            return Ok(());
        }
        // Who ended, and is not ours to wait for, is a debugger's.
        kept.extend(ended.into_iter().filter(|pid| reap(*pid).is_none()));
    }
}

/// Those that ended first; none if the time is over before.
fn await_first_ends(children: &[u32], deadline: Instant) -> io::Result<Vec<u32>> {
    let (mut watched, mut lives): (Vec<u32>, Vec<OwnedFd>) = (Vec::new(), Vec::new());
    let mut ended = Vec::new();
    let mut short = None;
    for pid in children {
        match life(*pid) {
            Ok(life) => {
                watched.push(*pid);
                lives.push(life);
            }
            // Nobody is to hear of its end: this process ignores its children's.
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
                ended.push(*pid);
            }
            // Too few descriptors: the end of one is enough for the next look.
            Err(error) => short = Some(error),
        }
    }
    if !ended.is_empty() {
        return Ok(ended);
    }
    match short {
        Some(error) if lives.is_empty() => Err(error),
        Some(_) | None => {
            let ends = first_ends(&lives, deadline)?;
            Ok(watched.into_iter().zip(ends).filter(|(_, end)| *end).map(|(pid, _)| pid).collect())
        }
    }
}

fn all_but(kept: &BTreeSet<u32>) -> io::Result<Vec<u32>> {
    let mine = Families::look()?.children(std::process::id());
    Ok(mine.into_iter().filter(|pid| !kept.contains(pid)).collect())
}

fn kill(pid: u32) {
    if let Some(child) = to_pid(pid) {
        kill_group(child);
        // It may have ended, or run as another user.
        let _ = rustix::process::kill_process(child, Signal::KILL);
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
    /// An error when it cannot be known, as without a free descriptor.
    pub(crate) fn look() -> io::Result<Self> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if let Some(parent) = parent(&entry.path())? {
                children.entry(parent).or_default().push(pid);
            }
        }
        Ok(Self(children))
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

/// `None` for one that is gone, or that others may not look at.
fn parent(process: &Path) -> io::Result<Option<u32>> {
    match fs::read(process.join("stat")) {
        Ok(stat) => Ok(parse_parent(&String::from_utf8_lossy(&stat))),
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Err(error),
            Some(_) | None => Ok(None),
        },
    }
}

fn parse_parent(stat: &str) -> Option<u32> {
    // The name, in parentheses, may hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    /// Runs a test in a process of its own, whose children are all that test's; whether this is that process.
    fn alone(test: &str) -> bool {
        const ALONE: &str = "HOPLO_TEST_CHILDREN_ALONE";
        if std::env::var_os(ALONE).is_some() {
            return true;
        }
        let name = format!("children::tests::{test}");
        let mut alone = Command::new(std::env::current_exe().unwrap());
        assert!(alone.args(["--exact", &name]).env(ALONE, "1").status().unwrap().success());
        false
    }

    /// A process, its child, and so on: so many that wait for the one below, and one that stays.
    fn generations(waiting: usize) -> Child {
        let below = (0..waiting).fold("exec sleep 1000".to_string(), |below, _| {
            format!("sh -c '{}'; true", below.replace('\'', r"'\''"))
        });
        let mut command = Command::new("sh");
        // If the test fails, who reads what it prints waits for nobody that it left.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.args(["-c", &below]).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while Families::look().unwrap().of(child.id()).len() <= waiting {
            assert!(Instant::now() < deadline, "{waiting} generations come");
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn each_end_of_a_worker_beside_one_that_nobody_can_kill_began_looks_that_never_ended() {
        let mut looks = Looks::default();
        let mut pause = looks.again().unwrap();
        for _ in 0..20 {
            assert_eq!(looks.again(), None, "one is arranged");
            let next = looks.due(true).unwrap();
            assert!(next > pause || next == LOOKS[1]);
            pause = next;
        }
        assert_eq!(pause, LOOKS[1]);
        assert_eq!(looks.due(false), None);
        assert_eq!(looks.again(), Some(LOOKS[0]));
    }

    #[test]
    fn each_generation_that_is_killed_leaves_the_next_one_to_us() {
        if !alone("each_generation_that_is_killed_leaves_the_next_one_to_us") {
            return;
        }
        adopt_orphans().unwrap();
        let mut kept = generations(0);
        let doomed = [generations(0), generations(1), generations(6), generations(6)];
        let all: Vec<u32> =
            doomed.iter().flat_map(|child| Families::look().unwrap().of(child.id())).collect();
        assert_eq!(all.len(), 1 + 2 + 7 + 7);
        let lives: Vec<OwnedFd> = all.iter().map(|pid| life(*pid).unwrap()).collect();
        assert!(are_any());
        end_all_in_time(&BTreeSet::from([kept.id()])).unwrap();
        assert_eq!(Families::look().unwrap().children(std::process::id()), [kept.id()]);
        assert!(first_ends(&lives, Instant::now()).unwrap().into_iter().all(|ended| ended));
        assert_eq!(reap(kept.id()), None);
        kept.kill().unwrap();
        kept.wait().unwrap();
        end_all_in_time(&BTreeSet::new()).unwrap();
        assert!(!are_any());
    }

    #[test]
    fn without_descriptors_nobody_seemed_to_be_left() {
        if !alone("without_descriptors_nobody_seemed_to_be_left") {
            return;
        }
        use rustix::process::{Resource, Rlimit, setrlimit};
        adopt_orphans().unwrap();
        let doomed = [generations(2), generations(2), generations(2)];
        let null = || std::fs::File::open("/dev/null").unwrap();
        let (last_but_one, last) = (null(), null());
        let limit = last.as_raw_fd() as u64 + 1;
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: Some(limit) }).unwrap();
        let refused = end_all_in_time(&BTreeSet::new()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
        assert!(end_all_but(&BTreeSet::new()), "it is to be looked at again");
        // Two are enough: one for the list of processes, then one for each of them.
        drop((last_but_one, last));
        end_all_in_time(&BTreeSet::new()).unwrap();
        assert!(Families::look().unwrap().children(std::process::id()).is_empty());
        assert!(doomed.iter().all(|child| reap(child.id()).is_none()));
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "`reap` waits for it")]
    fn a_family_is_found_whatever_its_members_are_called() {
        assert_eq!(parse_parent("77 (a ) R 1 (b) S 42 77 77 0"), Some(42));
        assert_eq!(parse_parent("77 (x"), None);
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let families = Families::look().unwrap();
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
