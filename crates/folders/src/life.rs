//! The end of a process, waited for: a descriptor of it is readable from then on, so nobody looks again and again.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Readable when the process has ended, also if it is a child that nobody has waited for yet.
pub fn life(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Waits until one of them has ended, at most until then; which of them have. A signal does not end the wait.
pub fn first_ends(lives: &[impl AsFd], deadline: Instant) -> io::Result<Vec<bool>> {
    let mut fds: Vec<PollFd<'_>> =
        lives.iter().map(|life| PollFd::new(life, PollFlags::IN)).collect();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&left)) {
            Ok(_) => return Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::Duration;

    fn one_that_stays() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    #[test]
    fn whose_end_came_is_told_from_who_goes_on() {
        let mut children = [one_that_stays(), one_that_stays()];
        let lives = children.each_ref().map(|child| life(child.id()).unwrap());
        let at_once = Instant::now();
        assert_eq!(first_ends(&lives, at_once).unwrap(), [false, false]);
        children[1].kill().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        assert_eq!(first_ends(&lives, deadline).unwrap(), [false, true]);
        children[1].wait().unwrap();
        assert_eq!(first_ends(&lives, deadline).unwrap(), [false, true]);
        children[0].kill().unwrap();
        children[0].wait().unwrap();
        assert_eq!(first_ends(&lives, at_once).unwrap(), [true, true]);
        let gone = life(children[0].id()).map_err(|error| error.raw_os_error());
        assert_eq!(gone.unwrap_err(), Some(Errno::SRCH.raw_os_error()));
    }

    #[test]
    fn a_wait_for_who_goes_on_lasts_until_its_deadline() {
        let mut child = one_that_stays();
        let lives = [life(child.id()).unwrap()];
        let deadline = Instant::now() + Duration::from_millis(30);
        assert_eq!(first_ends(&lives, deadline).unwrap(), [false]);
        assert!(Instant::now() >= deadline);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn no_process_has_the_number_zero_or_one_that_is_too_large() {
        assert!(life(0).is_err() && life(u32::MAX).is_err());
    }
}
