//! A head's port and token, and how a node joins one: what `hoplo start` adds to a daemon.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Instant;

use hoplo_base::NodeNumber;
use hoplo_base::limits::{HEAD_SETTLED_AFTER, JOIN_SEVERAL, JOIN_SEVERAL_AGAIN, JOIN_WITHIN};
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::head::{Founded, HeadError, Host, Listening, Tokens};
use hoplo_control::net::registry::StoreRegistry;
use hoplo_folders::OwnSessionFolder;
use hoplo_net::join::{JoinError, Joining, ListenError, PORT, join, renew};
use hoplo_net::name::Role;
use hoplo_net::tls::Identity;
use hoplo_net::token::{FLAG, Kept, Token, VARIABLE};
use hoplo_wire::control::ClusterId;

use crate::error::StartError;
use crate::{journal, machine};

/// Where a head lets others join.
#[derive(Clone, Debug, Default)]
pub struct Listen {
    /// Absent: where the head before listened, else this machine alone.
    pub host: Option<String>,
    /// Absent: that of the head before, else the usual one; or any if that is taken.
    pub port: Option<u16>,
    /// Where the token is put; absent: in the user's home.
    pub token_file: Option<PathBuf>,
    /// Its store is on the control nodes of this cluster's file; absent: it is its own.
    pub over: Option<PathBuf>,
    /// One of them was begun on this machine just now: it waits for the others.
    pub with_control_node: bool,
}

/// Which cluster a node joins.
#[derive(Clone, Debug)]
pub struct Join {
    /// Of its head: `host:port`. Of all that may be head, with commas between, where there are several.
    pub address: String,
    pub token: Token,
}

/// A token and where it lies, for those who are to join.
#[derive(Debug)]
pub(crate) struct Invitation {
    address: String,
    token: Kept,
    id: hoplo_wire::join::TokenId,
    /// The usual file, if that is another head's.
    taken: Option<PathBuf>,
}

/// The cluster that this node joined, and who it is there.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) node: NodeNumber,
    pub(crate) cluster: Cluster,
    /// Who took it in, or said later that it is the head: where it listens.
    pub(crate) head: String,
    /// Where its certificate lies.
    folder: PathBuf,
    /// Where others of the cluster reach this machine.
    pub(crate) ip: IpAddr,
}

impl Listen {
    /// `before`: where the head listened with whose tables it goes on. `at`: where it listens already.
    pub(crate) fn found(
        &self,
        session: &OwnSessionFolder,
        before: Option<&str>,
        at: Option<Listening>,
    ) -> Result<Founded, HeadError> {
        let at = at.map_or_else(|| self.listens(before), Ok)?;
        match &self.over {
            Some(file) => Founded::found_over(&session.head(), file, at),
            None => Founded::found(&session.control(), at),
        }
    }

    /// `before`: nodes of the head before look for it there, so it is the usual place.
    pub(crate) fn listens(&self, before: Option<&str>) -> Result<Listening, HeadError> {
        let before = before.filter(|_| self.over.is_none());
        let before: Option<SocketAddr> = before.and_then(|before| before.parse().ok());
        let usual = before.map(|at| at.ip().to_string());
        let host = self.host.as_deref().or(usual.as_deref());
        let port = self.port.or(before.map(|at| at.port())).unwrap_or(PORT);
        match Listening::at(host, port) {
            // Nobody asked for just that one.
            Err(HeadError::Listen(ListenError::Taken { .. })) if self.port.is_none() => {
                Listening::at(host, 0)
            }
            Err(HeadError::Listen(ListenError::NotOurs { at })) if self.host.is_none() => {
                Err(HeadError::Listen(ListenError::NotOursNow { at }))
            }
            other => other,
        }
    }

    /// Machines that share a home share it.
    pub(crate) fn usual_token_file(session: &OwnSessionFolder) -> PathBuf {
        let home = std::env::home_dir().filter(|home| home.is_dir());
        match home {
            Some(home) => home.join(".hoplo/token"),
            None => session.control().join("token"),
        }
    }
}

impl Invitation {
    /// The token that lies there already, if it is good for a while, else a new one. A head does not touch the file of another one that
    /// lives: where the `usual` file is such, it has one that is named after its cluster.
    pub(crate) fn write(
        host: &Host,
        tokens: &mut dyn Tokens,
        listen: &Listen,
        usual: PathBuf,
    ) -> Result<Self, StartError> {
        let mut at = |path: &Path| {
            let choose =
                |lies: Option<&Token>| host.token(tokens, lies).map_err(StartError::Founding);
            Kept::at(path, host.fingerprint, choose)
        };
        let address = host.address.to_string();
        if let Some(named) = &listen.token_file {
            let (token, lies) = at(named)?.ok_or_else(|| StartError::TokenFile(named.clone()))?;
            return Ok(Self { address, token, id: lies.id(), taken: None });
        }
        let own = usual.with_file_name(format!("token-{:.8}", format!("{:032x}", host.cluster.0)));
        // It may have begun there, and others may have been told.
        let places = if own.exists() { [own, usual.clone()] } else { [usual.clone(), own] };
        for path in &places {
            if let Some((token, lies)) = at(path)? {
                let taken = (*path != usual && usual.exists()).then_some(usual);
                return Ok(Self { address, token, id: lies.id(), taken });
            }
        }
        Err(StartError::TokenFile(usual))
    }

    /// What to type elsewhere.
    pub(crate) fn in_words(&self) -> String {
        let (address, path) = (&self.address, self.token.path().display());
        let mut text = format!("Join it with  hoplo start --address {address} {FLAG} {path}\n");
        let _ = write!(
            text,
            "              (or {VARIABLE}, set to what that file holds, where it is not)"
        );
        if let Some(taken) = &self.taken {
            let _ = write!(
                text,
                "\nNote: {} is the token of another head of yours, so that {FLAG} has to be given",
                taken.display()
            );
        }
        text
    }

    /// The cluster is gone: nobody can join with it.
    pub(crate) fn take_back(&self) {
        if Token::read(self.token.path()).is_ok_and(|token| token.id() == self.id) {
            // It opens nothing any more.
            let _ = std::fs::remove_file(self.token.path());
        }
    }
}

/// Writes the invitation of a head that waited to be one: in a thread of its own, since the control nodes may not answer yet, and when
/// nodes wait for this head no more.
#[derive(Debug)]
pub(crate) struct Inviter {
    _ends: Sender<()>,
}

impl Inviter {
    pub(crate) fn start(
        host: Host,
        cluster: &Cluster,
        listen: &Listen,
        session: &OwnSessionFolder,
    ) -> io::Result<Self> {
        let (_ends, ended) = channel::<()>();
        let (cluster, listen) = (cluster.clone(), listen.clone());
        let usual = Listen::usual_token_file(session);
        let invite = move || {
            while ended.recv_timeout(HEAD_SETTLED_AFTER) == Err(RecvTimeoutError::Timeout) {
                let tokens = &mut StoreRegistry::new(cluster.clone());
                match Invitation::write(&host, tokens, &listen, usual.clone()) {
                    Ok(_kept) => {
                        // It is this head's file for as long as it is head.
                        let _ = ended.recv();
                        return;
                    }
                    Err(error) => {
                        journal::log(format_args!("no token to join by lies here yet: {error}"));
                    }
                }
            }
        };
        std::thread::Builder::new().name("hoplo:invite".to_string()).spawn(invite)?;
        Ok(Self { _ends })
    }
}

impl Join {
    /// The head of its cluster listens there by now. Of several that may be head, it is one.
    pub(crate) fn comes_to(&mut self, head: Option<String>) {
        if !self.address.contains(',') {
            self.address = head.unwrap_or_else(|| self.address.clone());
        }
    }

    pub(crate) fn join(&self, session: &OwnSessionFolder) -> Result<Joined, StartError> {
        let (token, role, host) = (&self.token, Role::Node, &machine::hostname());
        let addresses: Vec<&str> = self.address.split(',').map(str::trim).collect();
        let asks = |address| join(&Joining { address, token, role, host, within: JOIN_WITHIN });
        let until = Instant::now() + JOIN_SEVERAL;
        let goes_on = || {
            std::thread::sleep(JOIN_SEVERAL_AGAIN);
            Instant::now() < until
        };
        let (admission, address) = first_of(&addresses, asks, goes_on)?;
        let node = admission.number.expect("who joins as a node gets a number");
        let folder = session.tls();
        admission.write(&folder)?;
        let id = ClusterId(admission.name.cluster);
        let identity = Some(Identity::load(&folder, id.0)?);
        let nodes = admission.members;
        let cluster = Cluster { id, shards: 1, replication: 1, nodes, identity };
        let ip = address_towards(address)?;
        // A head that keeps its store itself says by which address it is known.
        let head = match &cluster.nodes[..] {
            [head] => head.clone(),
            _ => address.to_string(),
        };
        Ok(Joined { node, cluster, head, folder, ip })
    }
}

impl Joined {
    /// Gets a new certificate from one of these, in a thread of its own; connections show it from then on.
    pub(crate) fn renew(&self, heads: Vec<String>) {
        let folder = self.folder.clone();
        let identity = self.cluster.identity.clone().expect("who joined has a certificate");
        let renew = move || {
            let mut why = String::new();
            for address in heads {
                match renew(&address, &identity, JOIN_WITHIN) {
                    Ok(admission) => match admission.write(&folder) {
                        Ok(()) => return,
                        Err(error) => why = error.to_string(),
                    },
                    Err(error) => why = error.to_string(),
                }
            }
            journal::log(format_args!("the certificate was not renewed: {why}"));
        };
        let thread = std::thread::Builder::new().name("hoplo:renew".to_string());
        if let Err(error) = thread.spawn(renew) {
            journal::log(format_args!("the certificate was not renewed: {error}"));
        }
    }
}

/// What the first of these says that takes this node in, and which it is. One by itself is asked once. Of several one is head: the others wait
/// to be it, or are gone; and if none is head yet, all are asked again while this `goes_on`.
fn first_of<'a, T>(
    addresses: &[&'a str],
    mut asks: impl FnMut(&'a str) -> Result<T, JoinError>,
    mut goes_on: impl FnMut() -> bool,
) -> Result<(T, &'a str), JoinError> {
    loop {
        let mut said = Vec::new();
        for address in addresses {
            match asks(address) {
                Ok(answer) => return Ok((answer, address)),
                Err(error) if addresses.len() > 1 && error.is_retryable() => {
                    said.push(error.in_short());
                }
                Err(error) => return Err(error),
            }
        }
        if !goes_on() {
            return Err(JoinError::NoneOf { said: said.join("; ") });
        }
    }
}

/// By which address of this machine others reach it that can reach that one. Nothing is sent.
fn address_towards(head: &str) -> io::Result<IpAddr> {
    let found = head.to_socket_addrs()?.next();
    let head = found.ok_or_else(|| io::Error::other(format!("{head} has no address")))?;
    let any: IpAddr = if head.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(head)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(address: &str) -> JoinError {
        JoinError::Closed { address: address.to_string(), why: "reset".to_string() }
    }

    fn unreachable(address: &str) -> JoinError {
        JoinError::Unreachable { address: address.to_string(), why: "refused".to_string() }
    }

    /// One that waits to be head closed the connection, and the head, which was named as well, was not asked.
    #[test]
    fn all_that_may_be_head_are_asked() {
        let asks = |at| if at == "c" { Ok(3) } else { Err(closed(at)) };
        assert_eq!(first_of(&["a", "b", "c"], asks, || false).unwrap(), (3, "c"));
    }

    #[test]
    fn who_comes_before_there_is_a_head_asks_again() {
        let (mut asked, mut rounds) = (0, 0);
        let asks = |at| {
            asked += 1;
            if asked > 5 { Ok(asked) } else { Err(unreachable(at)) }
        };
        let goes_on = || {
            rounds += 1;
            rounds < 9
        };
        assert_eq!(first_of(&["a", "b"], asks, goes_on).unwrap(), (6, "b"));
    }

    #[test]
    fn when_none_is_head_each_is_named_with_what_it_said() {
        let asks = |at| -> Result<(), _> {
            if at == "a" { Err(closed(at)) } else { Err(unreachable(at)) }
        };
        let text = first_of(&["a", "b"], asks, || false).unwrap_err().to_string();
        let said =
            "a closed the connection before it answered (reset); b cannot be reached (refused). ";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn what_stays_as_it_is_is_said_at_once() {
        let host = || JoinError::Host { host: String::new() };
        let again = || panic!("nobody is asked again");
        let asks = |_| -> Result<(), _> { Err(host()) };
        assert!(matches!(first_of(&["a", "b"], asks, again), Err(JoinError::Host { .. })));
        let asks = |at| -> Result<(), _> { Err(closed(at)) };
        assert!(matches!(first_of(&["a"], asks, again), Err(JoinError::Closed { .. })));
    }
}
