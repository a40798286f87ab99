//! What a question is about, and what its answer is made of.

use std::collections::BTreeSet;
use std::time::Duration;

use hoplo_base::limits::FAR_ANSWER_PART_BYTES;
use hoplo_base::{ActorId, AnyId, NodeNumber, ObjectId, ProcessId, Size};

use super::HERE;

/// Of a question about logs: it goes to all nodes.
const ALL: &str = "all";

/// What somebody asks, by the words of `Query`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Here(Here),
    Everywhere(Everywhere),
    Why(Wanted),
    /// A node is to leave.
    Drain {
        whom: String,
        within: Duration,
    },
    /// Of another node: what it remembers of this.
    Memory(AnyId),
}

/// What the daemons know alone, each of its own node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Here {
    Nodes,
    ClusterResources,
    AvailableResources,
    Actors(OfDead),
    /// Those whose driver was here, and of a head those that its store has.
    Jobs,
    Objects,
    /// Where the bytes of these are.
    Locations(Vec<ObjectId>),
    Workers,
    /// Workers and drivers that have ended.
    PastProcesses,
    PlacementGroups,
    Logs(Logs),
    /// A question to the control store.
    Control(String),
}

/// Which actors of those that were at home at dead nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfDead {
    /// So many.
    Most(usize),
    /// This one alone.
    One(ActorId),
}

/// What workers printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logs {
    /// The numbers of the other nodes that are asked; absent: all.
    pub nodes: Option<BTreeSet<u32>>,
    /// What of it: the shells read it.
    pub wanted: String,
}

/// What every process knows a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Everywhere {
    Status,
    Summary,
    Tasks,
    Timeline,
    /// Runs that have ended, of each job at most so many.
    History {
        of_job_max: usize,
    },
}

/// Why something waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub id: AnyId,
    /// As the asker wrote it.
    pub text: String,
    /// The answer has the thing's history, too.
    pub remembers: bool,
}

/// What a question is answered with. The shell writes it as JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The daemon's own tables as they are now.
    Here(Here),
    /// What processes told, as JSON; and of `Status`, `Summary` and `Tasks` what the daemon knows.
    Everywhere { subject: Everywhere, told: Vec<(ProcessId, String)> },
    /// Lines for people; and what the shell remembers of this id, if it is named.
    Why { lines: Vec<String>, remembered: Option<AnyId> },
    /// Of a head: once the row of this node says that it drains.
    Drain { node: NodeNumber },
}

impl Subject {
    /// Err: why nobody can answer that.
    pub(super) fn parse(kind: &str, argument: String) -> Result<Self, String> {
        Ok(match kind {
            "nodes" => Self::Here(Here::Nodes),
            "cluster_resources" => Self::Here(Here::ClusterResources),
            "available_resources" => Self::Here(Here::AvailableResources),
            "actors" => {
                let which = OfDead::parse(&argument).ok_or_else(|| {
                    format!("actors are asked with a number of rows or an id, not {argument:?}")
                })?;
                Self::Here(Here::Actors(which))
            }
            "objects" => Self::Here(Here::Objects),
            "locations" => Self::Here(Here::Locations(objects_of(&argument)?)),
            "jobs" => Self::Here(Here::Jobs),
            "workers" => Self::Here(Here::Workers),
            "past_processes" => Self::Here(Here::PastProcesses),
            "placement_groups" => Self::Here(Here::PlacementGroups),
            "logs" => Self::Here(Here::Logs(Logs::parse(&argument)?)),
            "control" => Self::Here(Here::Control(argument)),
            "drain" => {
                let parted =
                    argument.rsplit_once(' ').and_then(|(whom, ms)| Some((whom, ms.parse().ok()?)));
                let (whom, ms) = parted.ok_or("drain is asked with a node and milliseconds")?;
                Self::Drain { whom: whom.to_string(), within: Duration::from_millis(ms) }
            }
            "status" => Self::Everywhere(Everywhere::Status),
            "summary" => Self::Everywhere(Everywhere::Summary),
            "tasks" => Self::Everywhere(Everywhere::Tasks),
            "timeline" => Self::Everywhere(Everywhere::Timeline),
            "history" => {
                let many = || format!("history is asked with a number of runs, not {argument:?}");
                let of_job_max = argument.parse().map_err(|_| many())?;
                Self::Everywhere(Everywhere::History { of_job_max })
            }
            // `chain`: what it waits for; `why`: and what the daemon remembers of it.
            "why" | "chain" => {
                let id = argument.parse::<AnyId>().map_err(|error| error.to_string())?;
                Self::Why(Wanted { id, text: argument, remembers: kind == "why" })
            }
            "memory" => Self::Memory(argument.parse::<AnyId>().map_err(|error| error.to_string())?),
            _ => return Err(format!("there is no query {kind:?}")),
        })
    }
}

impl OfDead {
    fn parse(argument: &str) -> Option<Self> {
        if argument.is_empty() || argument == HERE {
            return Some(Self::Most(usize::MAX));
        }
        match (argument.parse(), argument.parse()) {
            (Ok(number), _) => Some(Self::Most(number)),
            (Err(_), Ok(AnyId::Task(task))) => Some(Self::One(ActorId(task))),
            (Err(_), Ok(_) | Err(_)) => None,
        }
    }
}

impl Here {
    /// What other nodes are asked by; absent: what this node says is all.
    pub(super) fn kind(&self) -> Option<&'static str> {
        match self {
            Self::AvailableResources => Some("available_resources"),
            Self::Actors { .. } => Some("actors"),
            Self::Objects => Some("objects"),
            Self::Locations(_) => Some("locations"),
            Self::Jobs => Some("jobs"),
            Self::Workers => Some("workers"),
            Self::PastProcesses => Some("past_processes"),
            Self::PlacementGroups => Some("placement_groups"),
            Self::Logs(_) => Some("logs"),
            // The node table is everywhere, and each node's row says what it has.
            Self::Nodes | Self::ClusterResources | Self::Control(_) => None,
        }
    }

    /// This other node is asked.
    pub(super) fn is_for(&self, node: NodeNumber) -> bool {
        match self {
            Self::Logs(Logs { nodes: Some(nodes), .. }) => nodes.contains(&node.number()),
            Self::Logs(Logs { nodes: None, .. })
            | Self::Nodes
            | Self::ClusterResources
            | Self::AvailableResources
            | Self::Actors { .. }
            | Self::Jobs
            | Self::Objects
            | Self::Locations(_)
            | Self::Workers
            | Self::PastProcesses
            | Self::PlacementGroups
            | Self::Control(_) => true,
        }
    }

    /// What they are asked besides.
    pub(super) fn argument(&self) -> String {
        match self {
            Self::Locations(objects) => {
                let ids: Vec<String> = objects.iter().map(|object| object.hex()).collect();
                ids.join(",")
            }
            // Each for itself.
            Self::Logs(logs) => format!("{ALL} {}", logs.wanted),
            Self::Nodes
            | Self::ClusterResources
            | Self::AvailableResources
            | Self::Actors { .. }
            | Self::Jobs
            | Self::Objects
            | Self::Workers
            | Self::PastProcesses
            | Self::PlacementGroups
            | Self::Control(_) => String::new(),
        }
    }
}

/// Whole ids, with commas between them.
fn objects_of(argument: &str) -> Result<Vec<ObjectId>, String> {
    let one = |text: &str| match text.parse::<AnyId>() {
        Ok(AnyId::Object(object)) => Ok(object),
        Ok(_) => Err(format!("{text:?} is no object's whole id")),
        Err(error) => Err(error.to_string()),
    };
    argument.split(',').filter(|text| !text.is_empty()).map(one).collect()
}

impl Logs {
    /// `all WANTED`, or the numbers of nodes with commas between them: `00001a,00001b WANTED`.
    fn parse(argument: &str) -> Result<Self, String> {
        let (nodes, wanted) = argument
            .split_once(' ')
            .ok_or("logs are asked with `all` or nodes, and with what is wanted of them")?;
        if wanted.len() > FAR_ANSWER_PART_BYTES {
            let (bytes, max) = (Size(wanted.len() as u64), Size(FAR_ANSWER_PART_BYTES as u64));
            return Err(format!("a question about logs has {bytes}, and may have {max}"));
        }
        let number = |hex: &str| {
            u32::from_str_radix(hex, 16).map_err(|_| format!("{hex:?} is no node's number"))
        };
        let nodes = match nodes {
            ALL => None,
            named => Some(named.split(',').map(number).collect::<Result<_, _>>()?),
        };
        Ok(Self { nodes, wanted: wanted.to_string() })
    }
}

impl Everywhere {
    /// The word of `Query` and `Inspect` for it.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Summary => "summary",
            Self::Tasks => "tasks",
            Self::Timeline => "timeline",
            Self::History { .. } => "history",
        }
    }

    /// What dead nodes remembered belongs to it.
    pub(super) fn is_past(self) -> bool {
        match self {
            Self::Status | Self::Summary | Self::Tasks => false,
            Self::Timeline | Self::History { .. } => true,
        }
    }

    /// What other nodes are asked besides.
    pub(super) fn argument(self) -> String {
        match self {
            Self::Status | Self::Summary | Self::Tasks | Self::Timeline => String::new(),
            Self::History { of_job_max } => of_job_max.to_string(),
        }
    }
}
