//! The control node of this machine, as `hoplo start --control DIR` starts it and `hoplo stop --control DIR` ends it.
//!
//! ```text
//!   DIR/                        as `hoplo control init` made it
//!     cluster.json, ca/         what a head needs
//!     nodes/ADDRESS/            of one control node:
//!       cluster.json, tls/      what it needs
//!       data/                   its log; who runs it has locked `lock` there, and written its pid into it
//!       control.log             what it has to say
//! ```
//! It is a process of its own, which goes on when the head of its machine dies.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use hoplo_control::net::cluster::Cluster;
use rustix::fs::{FlockOperation, flock};

#[derive(Debug)]
pub(crate) struct ControlNode {
    pub(crate) address: String,
    folder: PathBuf,
}

impl ControlNode {
    /// That of the cluster's control nodes which is on this machine. `host`: where this machine is, if that was said.
    pub(crate) fn here(cluster: &Path, host: Option<&str>) -> Result<Self> {
        let cluster = std::path::absolute(cluster)?;
        let nodes = Cluster::load(&cluster.join("cluster.json"))
            .context("--control takes the folder that `hoplo control init` made")?
            .nodes;
        let is_here = |address: &String| match (host_of(address), host) {
            (Some(its), Some(host)) => its == host,
            (Some(its), None) => is_of_this_machine(its),
            (None, _) => false,
        };
        let here: Vec<&String> = nodes.iter().filter(|address| is_here(address)).collect();
        match here[..] {
            [address] => {
                let folder = cluster.join("nodes").join(address);
                Ok(Self { address: address.clone(), folder })
            }
            [] => bail!(
                "none of the control nodes ({}) is on this machine: run this on their machines, and use --control-nodes {} \
                 on others that may be head",
                nodes.join(", "),
                cluster.join("cluster.json").display()
            ),
            [..] => bail!(
                "several of the control nodes ({}) are on this machine: say by --host which one is meant",
                nodes.join(", ")
            ),
        }
    }

    /// Where others reach this machine.
    pub(crate) fn host(&self) -> &str {
        host_of(&self.address).expect("it was found by its host")
    }

    /// False: it runs already.
    pub(crate) fn start(&self) -> Result<bool> {
        if self.pid()?.is_some() {
            return Ok(false);
        }
        let log_path = self.folder.join("control.log");
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&log_path);
        let log = log.with_context(|| log_path.display().to_string())?;
        let before = log.metadata()?.len();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["control", "serve", "--background", "--listen", &self.address]);
        command.arg("--dir").arg(self.data()).arg("--cluster-file");
        command.arg(self.folder.join("cluster.json")).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().context("cannot start the control node")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line)?;
        if line.is_empty() {
            child.wait()?;
            let said = fs::read(&log_path)?;
            let said = String::from_utf8_lossy(&said[before as usize..]).into_owned();
            let said = said.trim().trim_start_matches("hoplo: ").to_string();
            bail!("the control node at {} did not start: {said}", self.address);
        }
        Ok(true)
    }

    /// Who runs it.
    pub(crate) fn pid(&self) -> Result<Option<u32>> {
        let path = self.data().join("lock");
        let lock = match File::open(&path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context(path.display().to_string()),
        };
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(None),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let pid = fs::read_to_string(&path)?;
                let pid = pid.trim().parse().with_context(|| {
                    format!("the control node at {} begins just now: try again", self.address)
                })?;
                Ok(Some(pid))
            }
            Err(error) => Err(error).context(path.display().to_string()),
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }
}

/// Absent of a unix socket.
fn host_of(address: &str) -> Option<&str> {
    let (host, port) = address.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    Some(host.trim_start_matches('[').trim_end_matches(']'))
}

/// Whether a socket can be bound there.
fn is_of_this_machine(host: &str) -> bool {
    let addresses = (host, 0).to_socket_addrs();
    addresses.is_ok_and(|mut addresses| addresses.any(|address| TcpListener::bind(address).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_addresses() {
        assert_eq!(host_of("10.0.0.1:7100"), Some("10.0.0.1"));
        assert_eq!(host_of("[::1]:7100"), Some("::1"));
        assert_eq!(host_of("/run/a.sock"), None);
        assert_eq!(host_of("/run/a:b"), None);
        assert!(is_of_this_machine("127.0.0.1"));
        assert!(!is_of_this_machine("192.0.2.1"), "an address of nobody");
    }

    #[test]
    fn a_folder_that_is_none_of_a_cluster() {
        let error = ControlNode::here(Path::new("/nowhere"), None).unwrap_err();
        assert!(format!("{error:#}").contains("hoplo control init"), "{error:#}");
    }
}
