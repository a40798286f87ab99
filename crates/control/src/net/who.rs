//! Who is who: what the holder of a certificate may say.
//!
//! ```text
//!   certificate   may say hello as              may
//!   control NAME  a replica or coordinator of   what replicas and coordinators say of themselves;
//!                 its own node; a client        as a coordinator it asks the register
//!   node, client  a client                      ask for rows, write them, ask for status and metrics
//!   operator      a client                      the same, write tokens, and say how the cluster shall be
//! ```
//! Over a unix socket there is no certificate: its file lets in one user alone, who may do all that.
//!
//! Nodes and clients run users' code. So they write no tokens, with which one could join as something better, and of the node table
//! a node writes its own row and nobody else's.
//!
//! A node's number is half its name's and half its folder's: the upper half follows from the name in the certificate, so that
//! nobody can take the number of another; the lower one is drawn when the folder is made, so that a node that lost its
//! disk is another one.

use hoplo_base::NodeId;
use hoplo_net::name::{Name, Role};
use hoplo_wire::control::{Key, Op, ReplicaId, Request, Speaker, Table, ToCoordinator};
use hoplo_wire::register::Ask;

use super::question::Question;

/// A node of this name, with a folder in which this number was drawn.
pub(super) fn node_of(name: &Name, drawn: u32) -> NodeId {
    NodeId(u64::from(upper_half(name)) << 32 | u64::from(drawn))
}

/// Whether that is a node of this name.
pub(super) fn is_of(node: NodeId, name: &Name) -> bool {
    node.0 >> 32 == u64::from(upper_half(name))
}

fn upper_half(name: &Name) -> u32 {
    let hash = blake3::hash(name.to_string().as_bytes());
    u32::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

/// Whether the holder of this certificate may say that it is this one.
pub(super) fn may_be(who: Speaker, shown: &Name) -> Result<(), String> {
    let node = match (who, shown.role) {
        (Speaker::Client(_), Role::Control | Role::Node | Role::Client | Role::Operator) => {
            return Ok(());
        }
        (Speaker::Replica(id) | Speaker::Coordinator(id), Role::Control) => id.node,
        // A node that joined runs users' code: it keeps no rows.
        (
            Speaker::Replica(_) | Speaker::Coordinator(_),
            Role::Node | Role::Client | Role::Operator,
        ) => {
            return Err(format!(
                "this certificate is that of {} {:?}: it may ask, and not be a control node",
                shown.role,
                shown.name()
            ));
        }
    };
    if is_of(node, shown) {
        return Ok(());
    }
    Err(format!(
        "node {:016x} is not that of the certificate, which is of {:?}",
        node.0,
        shown.name()
    ))
}

/// Whether whoever said hello as `who` speaks for itself there.
pub(super) fn may_say(who: Speaker, message: &ToCoordinator) -> Result<(), String> {
    let itself = |said: ReplicaId| {
        if who == Speaker::Replica(said) { Ok(()) } else { Err(speaks_for(said)) }
    };
    match message {
        ToCoordinator::Register { member, .. } => itself(member.replica),
        ToCoordinator::Heartbeat { replica, .. } | ToCoordinator::CaughtUp { replica, .. } => {
            itself(*replica)
        }
        ToCoordinator::Report { .. } => match who {
            Speaker::Replica(_) => Ok(()),
            Speaker::Client(_) | Speaker::Coordinator(_) => {
                Err("only a replica reports another".to_string())
            }
        },
        ToCoordinator::WantConfig { .. } => Ok(()),
        ToCoordinator::Wished(_) | ToCoordinator::Unwished(_) => {
            Err("what an operator wants is asked for, and judged first".to_string())
        }
    }
}

/// Whether whoever said hello as `who` asks the register in its own name: rounds of two proposers have two ballots.
pub(super) fn may_propose(who: Speaker, ask: &Ask) -> Result<(), String> {
    let Speaker::Coordinator(me) = who else {
        return Err("only a coordinator asks the register".to_string());
    };
    match ask {
        Ask::Prepare { ballot, .. } | Ask::Accept { ballot, .. } if ballot.proposer != me => {
            Err(speaks_for(ballot.proposer))
        }
        Ask::Read { .. } | Ask::Prepare { .. } | Ask::Accept { .. } => Ok(()),
    }
}

/// Whether the holder of this certificate may write that.
pub(super) fn may_write(shown: Option<&Name>, request: &Request) -> Result<(), String> {
    let Some(shown) = shown.filter(|name| matches!(name.role, Role::Node | Role::Client)) else {
        return Ok(());
    };
    let Request::Update { ops, .. } = request else { return Ok(()) };
    let keys = ops.iter().map(|op| match op {
        Op::Put { key, .. } | Op::Delete { key, .. } | Op::Archive { key, .. } => key,
    });
    for key in keys {
        match key.table {
            Table::Token => {
                return Err(format!(
                    "{shown} may write no tokens: `hoplo token`, on the head, does"
                ));
            }
            Table::Head => {
                return Err(format!("{shown} is no head: an operator's cluster.json is needed"));
            }
            Table::Node if !is_row_of(key, shown) => {
                return Err(format!("{shown} may write no other node's row"));
            }
            Table::History if !is_history_of(key, shown) => {
                return Err(format!("{shown} may write no other node's history"));
            }
            Table::Node
            | Table::History
            | Table::Job
            | Table::Function
            | Table::Object
            | Table::Task
            | Table::Actor
            | Table::PlacementGroup
            | Table::Kv
            | Table::Event => {}
        }
    }
    Ok(())
}

/// A node is called as its number is.
fn is_row_of(key: &Key, name: &Name) -> bool {
    let number = u32::from_str_radix(name.name(), 16);
    name.role == Role::Node && number.is_ok_and(|number| key.bytes == number.to_be_bytes())
}

/// A node's rows of what has run begin with its number.
fn is_history_of(key: &Key, name: &Name) -> bool {
    let number = u32::from_str_radix(name.name(), 16);
    name.role == Role::Node
        && number.is_ok_and(|number| key.bytes.starts_with(&number.to_be_bytes()))
}

/// Whether the holder of this certificate may ask that.
pub(super) fn may_ask(shown: Option<&Name>, question: &Question) -> Result<(), String> {
    let role = shown.map_or(Role::Operator, |name| name.role);
    match (question, role) {
        (
            Question::Status | Question::Metrics,
            Role::Control | Role::Node | Role::Client | Role::Operator,
        )
        | (Question::Compact | Question::Wish { .. }, Role::Operator) => Ok(()),
        (Question::Compact | Question::Wish { .. }, Role::Control | Role::Node | Role::Client) => {
            Err(format!(
                "this needs an operator's certificate, and not a {role}'s: see `hoplo control certificate`"
            ))
        }
    }
}

fn speaks_for(said: ReplicaId) -> String {
    format!("this connection does not speak for replica {:x}.{}", said.node.0, said.incarnation)
}

#[cfg(test)]
mod tests {
    use hoplo_wire::control::{ClientId, Epoch, Member, ShardId, Wish};
    use hoplo_wire::register::{Ballot, Seat, Value};

    use super::*;

    fn name(role: Role, name: &str) -> Name {
        Name::new(7, role, name).unwrap()
    }

    fn replica(node: NodeId) -> ReplicaId {
        ReplicaId { node, incarnation: 3 }
    }

    #[test]
    fn a_certificate_is_for_the_numbers_of_its_own_node() {
        let (a, b) = (name(Role::Control, "a"), name(Role::Control, "b"));
        for drawn in [0, 1, u32::MAX] {
            let id = replica(node_of(&a, drawn));
            for who in [Speaker::Replica(id), Speaker::Coordinator(id)] {
                assert_eq!(may_be(who, &a), Ok(()));
                assert!(may_be(who, &b).unwrap_err().contains("\"b\""));
                for role in [Role::Node, Role::Client, Role::Operator] {
                    assert!(may_be(who, &name(role, "a")).unwrap_err().contains("may ask"));
                }
            }
            assert_ne!(node_of(&a, drawn), node_of(&b, drawn));
        }
        // The same name in another cluster is another node.
        let elsewhere = Name::new(8, Role::Control, "a").unwrap();
        assert!(!is_of(node_of(&a, 1), &elsewhere));
    }

    #[test]
    fn whoever_speaks_for_another_is_refused() {
        let (mine, other) = (replica(NodeId(1)), replica(NodeId(2)));
        let all = |said: ReplicaId| {
            let member = Member { replica: said, address: String::new() };
            let (shard, epoch) = (ShardId(0), Epoch(1));
            [
                ToCoordinator::Register { member, holds: vec![] },
                ToCoordinator::Heartbeat { replica: said, epochs: vec![] },
                ToCoordinator::CaughtUp { replica: said, shard, epoch },
            ]
        };
        let may = |who, message| may_say(who, &message);
        for message in all(mine) {
            assert_eq!(may(Speaker::Replica(mine), message.clone()), Ok(()));
            assert!(may(Speaker::Client(ClientId(1)), message.clone()).is_err());
            assert!(may(Speaker::Coordinator(mine), message).is_err());
        }
        for message in all(other) {
            assert!(may(Speaker::Replica(mine), message.clone()).unwrap_err().contains("2.3"));
        }
        let report = ToCoordinator::Report { shard: ShardId(0), epoch: Epoch(1), silent: other };
        assert_eq!(may(Speaker::Replica(mine), report.clone()), Ok(()));
        assert!(may(Speaker::Client(ClientId(1)), report).is_err());
        let wish = Wish::Leave { node: NodeId(2) };
        assert!(may(Speaker::Replica(mine), ToCoordinator::Wished(wish.clone())).is_err());
        assert!(may(Speaker::Replica(mine), ToCoordinator::Unwished(wish)).is_err());
    }

    #[test]
    fn only_a_coordinator_asks_the_register_and_in_no_other_name() {
        let (mine, other) = (replica(NodeId(1)), replica(NodeId(2)));
        let asks = |proposer: ReplicaId| {
            let (ballot, seats) = (Ballot { count: 1, proposer }, vec![Seat::EMPTY]);
            let value = Value { version: 1, writer: ballot, document: String::new() };
            [Ask::Prepare { ballot, seats: seats.clone() }, Ask::Accept { ballot, seats, value }]
        };
        for ask in [Ask::Read { number: 1 }].into_iter().chain(asks(mine)) {
            assert_eq!(may_propose(Speaker::Coordinator(mine), &ask), Ok(()));
            assert!(may_propose(Speaker::Replica(mine), &ask).is_err());
            assert!(may_propose(Speaker::Client(ClientId(1)), &ask).is_err());
        }
        for ask in asks(other) {
            let why = may_propose(Speaker::Coordinator(mine), &ask).unwrap_err();
            assert!(why.contains("2.3"), "{why}");
        }
    }

    #[test]
    fn who_runs_users_code_writes_no_token_and_no_row_of_another_node() {
        let number = 0x5f_u32;
        let key = |table, bytes: &[u8]| Key { table, bytes: bytes.to_vec() };
        let write = |key: Key| {
            let put = Op::Put { key: key.clone(), value: vec![], expected: None, finished: false };
            let kv = Op::Delete { key: Key { table: Table::Kv, bytes: vec![1] }, expected: None };
            let delete = Op::Delete { key, expected: None };
            [put, delete].map(|op| Request::Update {
                shard: ShardId(0),
                epoch: Epoch(1),
                born: 0,
                seq: 1,
                answered: 0,
                // Behind what anybody may.
                ops: vec![kv.clone(), op],
            })
        };
        let may = |role, request: &Request| may_write(Some(&name(role, "5f")), request).is_ok();
        let own = key(Table::Node, &number.to_be_bytes());
        let others = key(Table::Node, &(number + 1).to_be_bytes());
        for (key, who) in [
            (key(Table::Token, b"t"), &[][..]),
            (own, &[Role::Node]),
            (others, &[]),
            (key(Table::History, &[&number.to_be_bytes()[..], b"page"].concat()), &[Role::Node]),
            (key(Table::History, &(number + 1).to_be_bytes()), &[]),
            (key(Table::Kv, b"k"), &[Role::Node, Role::Client]),
            (key(Table::Job, b"j"), &[Role::Node, Role::Client]),
        ] {
            for request in write(key) {
                for role in [Role::Node, Role::Client] {
                    assert_eq!(may(role, &request), who.contains(&role), "{role}: {request:?}");
                }
                assert!(may(Role::Control, &request) && may(Role::Operator, &request));
                assert!(may_write(None, &request).is_ok(), "over a unix socket");
            }
        }
    }

    #[test]
    fn only_an_operator_says_how_the_cluster_shall_be() {
        let wish = Wish::Leave { node: NodeId(2) };
        let wish = Question::Wish { wish, wished: true };
        for role in [Role::Control, Role::Node, Role::Client, Role::Operator] {
            let shown = name(role, "a");
            assert_eq!(may_ask(Some(&shown), &Question::Status), Ok(()));
            for question in [&wish, &Question::Compact] {
                assert_eq!(may_ask(Some(&shown), question).is_ok(), role == Role::Operator);
            }
        }
        assert_eq!(may_ask(None, &wish), Ok(()), "over a unix socket");
    }
}
