//! Starting and stopping: `hoplo start`, `hoplo stop` and the daemon itself.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use hoplo_base::limits::{CERTIFICATE_RENEWED, CLOSE_PATIENCE, HEAD_ENDS, JOIN_WITHIN};
use hoplo_base::resources::{AMOUNT_MAX, CPU, GPU, MEMORY};
use hoplo_folders::life::{first_ends, life};
use hoplo_folders::{Base, HeadError, Places, SessionFolder, Wait};
use hoplo_net::token::{Token, VARIABLE};
use hoplo_node::{Join, Listen, Options, Place, ask_python, hello_of_tool, zygote_command};
use rustix::fs::{Access, access};

use crate::control_node::ControlNode;
use crate::tool::{Closed, Tool, find_session};

#[derive(Args, Clone, Default)]
pub(crate) struct NodeArgs {
    /// CPUs that tasks and actors share [default: those of this machine]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    num_cpus: Option<f64>,
    /// GPUs that tasks and actors share [default: those of this machine]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_gpus)]
    num_gpus: Option<f64>,
    /// Memory for tasks and actors that ask for memory=, like 500M or 8G [default: what --object-store-memory leaves]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Other resources, like '{"tpu": 2}'
    #[arg(long, value_name = "JSON", value_parser = parse_resources)]
    resources: Option<BTreeMap<String, f64>>,
    /// What describes the node, like '{"zone": "b"}': hoplo.nodes() shows it
    #[arg(long, value_name = "JSON", value_parser = parse_labels)]
    labels: Option<BTreeMap<String, String>>,
    /// Memory for objects, like 500M or 8G [default: 30% of this machine's]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    object_store_memory: Option<u64>,
    /// The Python that runs workers [default: the one beside this command]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Folder for the socket, logs and spilled objects [default: a new one]
    #[arg(long, value_name = "PATH")]
    session_dir: Option<PathBuf>,
    /// If a head's tables on disk are damaged, go on with what can be read, and move the rest aside
    #[arg(long)]
    accept_loss: bool,
}

#[derive(Args, Clone, Default)]
pub(crate) struct ClusterArgs {
    /// Start a head node: the first of a cluster
    #[arg(long)]
    head: bool,
    /// Let others join the head at this name or address of the machine [default: where the head listened with whose tables it goes on, else from this machine only]
    #[arg(long, value_name = "HOST", conflicts_with = "address")]
    host: Option<String>,
    /// And at this port [default: that of the head with whose tables it goes on, else 6379; or another one if that is taken]
    #[arg(long, value_name = "PORT", conflicts_with = "address")]
    port: Option<u16>,
    /// Join the cluster of the head that listens there; of several machines that may be head name all, with commas between
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "head")]
    address: Option<String>,
    /// Be head over the control nodes of this cluster's file, or wait to take the place of the one that is
    #[arg(long, value_name = "FILE", requires = "head", conflicts_with_all = ["from_backup", "session_dir"])]
    control_nodes: Option<PathBuf>,
    /// The same, and run that one of the control nodes which is on this machine: the folder that `hoplo control init` made
    #[arg(long, value_name = "DIR", requires = "head", conflicts_with_all = ["control_nodes", "from_backup", "session_dir"])]
    control: Option<PathBuf>,
    /// What `--control` becomes, for the daemon
    #[arg(long, hide = true, requires = "control_nodes")]
    with_control_node: bool,
    /// Begin a new head with what `hoplo control backup` wrote there, as the head of the same cluster
    #[arg(long, value_name = "FILE", requires = "head")]
    from_backup: Option<PathBuf>,
    /// The file with the token to join with [default: the variable HOPLO_TOKEN, else ~/.hoplo/token]; of a head, where it
    /// puts one [default: ~/.hoplo/token, or another file there if that is another head's]
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
}

#[derive(Args)]
#[command(group(clap::ArgGroup::new("kind").required(true).args(["head", "address"])))]
pub(crate) struct StartArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Stay in the foreground until the node ends
    #[arg(long)]
    block: bool,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub(crate) struct StopArgs {
    /// Stop all your nodes, also those that programs started for themselves
    #[arg(long)]
    all: bool,
    /// Stop the node with this session folder [default: the head]
    #[arg(long, value_name = "DIR")]
    session: Option<PathBuf>,
    /// Stop the control node of this machine, too, that `hoplo start --control DIR` started
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    control: Option<PathBuf>,
    /// Where that is, if several of them are on this machine
    #[arg(long, value_name = "HOST", requires = "control")]
    host: Option<String>,
}

#[derive(Args)]
pub(crate) struct DaemonArgs {
    /// Standard input is the socket of the driver that starts this daemon
    #[arg(long, value_name = "0", value_parser = clap::value_parser!(u8).range(0..1))]
    fd: Option<u8>,
    #[arg(long)]
    foreground: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    node: NodeArgs,
    /// Another zygote program and its arguments
    #[arg(long, hide = true, num_args = 1.., value_terminator = ";")]
    zygote: Option<Vec<String>>,
}

pub(crate) fn start(args: &StartArgs) -> Result<()> {
    let cluster = &mut args.cluster.clone();
    let node =
        cluster.control.take().map(|folder| with_control_node(cluster, &folder)).transpose()?;
    start_node(args, cluster).inspect_err(|_| {
        if let Some(node) = node {
            eprintln!(
                "hoplo: the control node at {} goes on without a head here: `hoplo stop --control` ends it",
                node.address
            );
        }
    })
}

/// A head over control nodes, one of which is on this machine, and runs from now on.
fn with_control_node(cluster: &mut ClusterArgs, folder: &Path) -> Result<ControlNode> {
    let node = ControlNode::here(folder, cluster.host.as_deref())?;
    println!(
        "The control node at {} {}",
        node.address,
        if node.start()? { "runs in the background" } else { "runs already" }
    );
    cluster.host.get_or_insert_with(|| node.host().to_string());
    cluster.control_nodes = Some(folder.join("cluster.json"));
    cluster.with_control_node = true;
    Ok(node)
}

fn start_node(args: &StartArgs, cluster: &ClusterArgs) -> Result<()> {
    let places = Places::of_environment();
    let base = places.find()?;
    if cluster.head
        && cluster.control_nodes.is_none()
        && let Some(session) = base.as_ref().and_then(Base::current)
        && let Ok(joined) = session.connect(&mut Wait::at_most(Duration::ZERO))
        && joined.answers(&hello_of_tool(), Instant::now() + HEAD_ENDS)
    {
        return Err(HeadError::of(&session, joined.pid).into());
    }
    if args.block {
        let options = options(args.node.clone(), cluster)?;
        println!("{}", how_to_go_on());
        if hoplo_node::run(options, None, Place::Foreground) != ExitCode::SUCCESS {
            bail!("the node could not run");
        }
        return Ok(());
    }
    let other = base.as_ref().and_then(Base::current).filter(SessionFolder::listens);
    let told = spawn(&args.node, cluster)?;
    if !told.starts_with('/') {
        print!("{told}Stop it       hoplo stop\n");
        return Ok(());
    }
    print!("A hoplo node runs in the background: {told}");
    if let Some(other) = other {
        println!(
            "Note: another node of yours runs on this machine ({}), so that its CPUs are offered twice.\n\
             `hoplo stop --session DIR` ends one of them",
            other.path().display()
        );
    }
    println!("{}", how_to_go_on());
    Ok(())
}

pub(crate) fn stop(args: &StopArgs) -> Result<()> {
    let Some(folder) = &args.control else { return stop_nodes(args) };
    let node = ControlNode::here(folder, args.host.as_deref())?;
    let pid = node.pid()?;
    match (stop_nodes(args), pid) {
        // Its head may have ended before.
        (Err(error), Some(_)) if error.is::<NoNode>() => {}
        (stopped, _) => stopped?,
    }
    if let Some(pid) = pid {
        end(pid)?;
        println!("stopped the control node at {}", node.address);
    }
    Ok(())
}

fn stop_nodes(args: &StopArgs) -> Result<()> {
    let base = Places::of_environment().find()?;
    let base = base.as_ref();
    let live = || base.map(Base::live).unwrap_or_default();
    // Before the sessions are looked for, since one that has joined by then has one; and after that, since a session may end meanwhile
    // because its node was declared dead.
    let end_those_that_join_again = || -> Result<bool> {
        let again = base.filter(|_| args.session.is_none()).map(Base::joining_again);
        let again = again.unwrap_or_default();
        for pid in &again {
            end(*pid)?;
            println!("stopped process {pid}, which waited to be of its cluster");
        }
        Ok(!again.is_empty())
    };
    let again = end_those_that_join_again()?;
    let mut sessions: Vec<SessionFolder> = match &args.session {
        Some(session) => vec![find_session(Some(session))?],
        None if args.all => live(),
        None => base.and_then(Base::current).into_iter().collect(),
    };
    sessions.retain(|session| args.session.is_some() || session.listens());
    for session in &sessions {
        match Tool::connect(session) {
            Ok(tool) => tool.stop()?,
            Err(error) if error.is::<Closed>() && session.has_ended() => {}
            Err(error) => return Err(error),
        }
        println!("stopped {}", session.path().display());
    }
    let again = end_those_that_join_again()? || again;
    // Of a head that was killed, or that a signal ended: nobody is to go on with it.
    let left = base.filter(|_| args.session.is_none()).and_then(|base| Some((base, base.left()?)));
    if let Some((base, left)) = &left {
        base.forget(left, &hello_of_tool()).with_context(|| left.path().display().to_string())?;
        println!("ended the cluster of a head that died: {}", left.path().display());
    }
    if sessions.is_empty() && left.is_none() && !again {
        let others = live();
        if !args.all && !others.is_empty() {
            bail!(not_a_head(&others));
        }
        return Err(NoNode.into());
    }
    Ok(())
}

/// What runs where `hoplo stop` finds neither a head nor the node that programs find.
fn not_a_head(nodes: &[SessionFolder]) -> String {
    let (joined, own): (Vec<_>, Vec<_>) = nodes.iter().partition(|it| it.cluster().is_some());
    let mut runs = Vec::new();
    let nodes = |count: usize| format!("{count} node{}", if count == 1 { "" } else { "s" });
    if let [first, ..] = joined[..] {
        runs.push(format!(
            "{} that joined another head (`hoplo stop --session {}` stops {})",
            nodes(joined.len()),
            first.path().display(),
            if joined.len() == 1 { "it" } else { "the newest" }
        ));
    }
    if !own.is_empty() {
        runs.push(format!("{} that programs started for themselves", nodes(own.len())));
    }
    format!("no head runs here, but {}: `hoplo stop --all` stops all of that", runs.join(" and "))
}

#[derive(Debug, thiserror::Error)]
#[error("no node of yours runs here")]
struct NoNode;

/// A daemon that cannot be asked.
fn end(pid: u32) -> Result<()> {
    // It ended by itself.
    let Ok(life) = life(pid) else { return Ok(()) };
    let _ = rustix::process::pidfd_send_signal(&life, rustix::process::Signal::TERM);
    let until = Instant::now() + JOIN_WITHIN + CLOSE_PATIENCE;
    match first_ends(&[life], until)?[..] {
        [true] => Ok(()),
        _ => bail!("process {pid} does not end: kill -KILL {pid} ends it"),
    }
}

pub(crate) fn daemon(args: DaemonArgs) -> ExitCode {
    let driver = match args.fd.map(|_| std::io::stdin().as_fd().try_clone_to_owned()).transpose() {
        Ok(driver) => driver,
        Err(error) => {
            eprintln!("hoplo: standard input is no socket: {error}");
            return ExitCode::FAILURE;
        }
    };
    let of_driver = driver.is_some();
    let options = options(args.node, &args.cluster).map(|mut options| {
        options.of_driver = of_driver;
        options.zygote = args.zygote.unwrap_or(options.zygote);
        options
    });
    match options {
        Ok(options) if args.foreground => hoplo_node::run(options, driver, Place::Foreground),
        Ok(options) => hoplo_node::run(options, driver, Place::Background),
        Err(error) => {
            eprintln!("hoplo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl ClusterArgs {
    fn listen(&self) -> Result<Listen> {
        // The daemon leaves this folder.
        let token_file = self.token_file.as_deref().map(std::path::absolute).transpose()?;
        let over = self.control_nodes.as_deref().map(std::path::absolute).transpose()?;
        Ok(Listen {
            host: self.host.clone(),
            port: self.port,
            token_file,
            over,
            with_control_node: self.with_control_node,
        })
    }

    fn join(&self, address: &str) -> Result<Join> {
        let variable = std::env::var(VARIABLE).ok();
        let usual = std::env::home_dir().map(|home| home.join(".hoplo/token"));
        let usual = usual.filter(|path| variable.is_none() && path.exists());
        let file = self.token_file.as_deref().or(usual.as_deref());
        let token = Token::find(file, variable.as_deref())?;
        Ok(Join { address: address.to_string(), token })
    }
}

fn how_to_go_on() -> &'static str {
    "Connect with  hoplo.init(address=\"auto\")\n\
     Look at it    hoplo status\n\
     Stop it       hoplo stop"
}

fn options(args: NodeArgs, cluster: &ClusterArgs) -> Result<Options> {
    let python = match args.python {
        Some(python) => program(&python)?,
        None => python_beside(&std::env::current_exe()?),
    };
    let in_cluster = cluster.head || cluster.address.is_some();
    let said = in_cluster.then(|| ask_python(&python)).flatten();
    if said.as_ref().is_some_and(|said| !said.has_hoplo) {
        bail!(
            "{} has no hoplo: install it there, or name a Python that has it with --python PATH",
            python.display()
        );
    }
    Ok(Options {
        base: Places::of_environment(),
        session_dir: args.session_dir.map(std::path::absolute).transpose()?,
        head: cluster.head,
        listen: cluster.head.then(|| cluster.listen()).transpose()?,
        join: cluster.address.as_ref().map(|address| cluster.join(address)).transpose()?,
        accept_loss: args.accept_loss,
        from_backup: cluster.from_backup.as_deref().map(std::path::absolute).transpose()?,
        of_driver: false,
        renews: CERTIFICATE_RENEWED,
        num_cpus: args.num_cpus,
        num_gpus: args.num_gpus,
        memory: args.memory,
        resources: args.resources.unwrap_or_default(),
        labels: args.labels.unwrap_or_default(),
        object_store_memory: args.object_store_memory,
        zygote: zygote_command(&python),
        python: said.map(|said| said.version),
        descriptors_of_workers: None,
    })
}

/// The program of `--python`, from wherever it is started: the daemon leaves this folder. A bare name is looked up in
/// PATH.
fn program(python: &Path) -> Result<PathBuf> {
    let can_run = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if python.components().count() == 1 && !python.as_os_str().as_bytes().contains(&b'/') {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = std::env::split_paths(&path).any(|folder| can_run(&folder.join(python)));
        return match is_there {
            true => Ok(python.to_path_buf()),
            false => {
                bail!("--python {}: no folder of PATH has it: give its path", python.display())
            }
        };
    }
    if can_run(python) {
        return Ok(std::path::absolute(python)?);
    }
    let is = match python.try_exists() {
        Ok(true) => "is no program",
        Ok(false) => "does not exist",
        Err(_) => "cannot be reached",
    };
    bail!("--python {} {is}: give the path of a Python that has hoplo", python.display())
}

/// The Python of the environment that this program was installed into.
pub(crate) fn python_beside(program: &Path) -> PathBuf {
    let beside = program.with_file_name("python");
    if beside.exists() { beside } else { PathBuf::from("python3") }
}

/// A daemon in the background; returns once it listens, with what it prints: where its session is, and what else
/// to know.
fn spawn(args: &NodeArgs, cluster: &ClusterArgs) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("daemon").args(cluster.head.then_some("--head"));
    command.args(args.accept_loss.then_some("--accept-loss"));
    command.args(cluster.with_control_node.then_some("--with-control-node"));
    let mut option = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            command.arg(format!("{name}={value}"));
        }
    };
    option("--host", cluster.host.clone());
    option("--port", cluster.port.map(|port| port.to_string()));
    option("--address", cluster.address.clone());
    option("--num-cpus", args.num_cpus.map(|n| n.to_string()));
    option("--num-gpus", args.num_gpus.map(|n| n.to_string()));
    option("--memory", args.memory.map(|n| n.to_string()));
    option("--object-store-memory", args.object_store_memory.map(|n| n.to_string()));
    let resources = args.resources.as_ref().map(serde_json::to_string).transpose()?;
    option("--resources", resources);
    option("--labels", args.labels.as_ref().map(serde_json::to_string).transpose()?);
    let paths = [
        ("--python", &args.python),
        ("--session-dir", &args.session_dir),
        ("--token-file", &cluster.token_file),
        ("--from-backup", &cluster.from_backup),
        ("--control-nodes", &cluster.control_nodes),
    ];
    for (name, path) in paths {
        if let Some(path) = path {
            command.arg(name).arg(path);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start the node daemon")?;
    let mut printed = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut printed)?;
    if printed.is_empty() {
        let mut text = String::new();
        let mut stderr = child.stderr.take().expect("it is piped");
        stderr.read_to_string(&mut text)?;
        let text = text.trim().trim_start_matches("hoplo: ").to_string();
        bail!(
            "{}",
            if text.is_empty() { "the node daemon ended at once".to_string() } else { text }
        );
    }
    Ok(printed)
}

/// `500M`, `8G`, `8GiB`, or plain bytes.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1u64 << 40,
        unit => return Err(format!("{unit:?} is no unit: use B, K, M, G or T")),
    };
    let amount: f64 = digits.parse().map_err(|_| format!("{text:?} is no number of bytes"))?;
    let bytes = amount * unit as f64;
    if bytes.is_finite() && bytes >= 1.0 && bytes < u64::MAX as f64 {
        Ok(bytes as u64)
    } else {
        Err(format!("{text} bytes are out of range"))
    }
}

/// What becomes of fractions of GPUs tasks say; a node has whole ones.
fn parse_gpus(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if number < 0.0 || number.fract() != 0.0 {
        return Err("a node has a whole number of GPUs".to_string());
    }
    Ok(number)
}

fn parse_resources(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let named: BTreeMap<String, f64> = serde_json::from_str(text).map_err(|error| {
        format!("give an object of names and numbers, like '{{\"tpu\": 2}}' ({error})")
    })?;
    for (name, amount) in &named {
        let option = match name.as_str() {
            "" => return Err("a resource has no name".to_string()),
            CPU => "--num-cpus",
            GPU => "--num-gpus",
            MEMORY => "--memory",
            "object_store_memory" => "--object-store-memory",
            _ if (0.0..=AMOUNT_MAX).contains(amount) => continue,
            _ => return Err(format!("{name:?} is {amount}: give 0 to {AMOUNT_MAX:e}")),
        };
        return Err(format!("{name:?} has an option of its own: {option}"));
    }
    Ok(named)
}

fn parse_labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let labels = serde_json::from_str(text).map_err(|error| {
        format!("give an object of names and texts, like '{{\"zone\": \"b\"}}' ({error})")
    })?;
    hoplo_base::labels::check(&labels).map_err(|error| error.to_string())?;
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_bytes_are_read_and_nonsense_is_refused() {
        let good = [("1000", 1000), ("2k", 2048), ("1.5GiB", 3 << 29), ("500M", 500 << 20)];
        for (text, bytes) in good {
            assert_eq!(parse_bytes(text), Ok(bytes));
        }
        for text in ["", "x", "-1", "0", "5q", "1e300", "nan"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!(parse_resources(r#"{"tpu": 2}"#).unwrap()["tpu"], 2.0);
        assert!(parse_resources("tpu=2").unwrap_err().contains("tpu"));
        assert!(parse_resources(r#"{"CPU": 3}"#).unwrap_err().contains("--num-cpus"));
        for bad in [r#"{"": 1}"#, r#"{"tpu": -1}"#, r#"{"tpu": 1e30}"#] {
            assert!(parse_resources(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_gpus("2"), Ok(2.0));
        for bad in ["1.5", "-1", "nan", "inf", "x"] {
            assert!(parse_gpus(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_labels(r#"{"zone": "b"}"#).unwrap()["zone"], "b");
        assert!(parse_labels(r#"{"zone": 2}"#).unwrap_err().contains("zone"));
        assert!(parse_labels(r#"{"a b!": "x"}"#).unwrap_err().contains("63 letters"));
        assert!(parse_labels(r#"{"hoplo.io/node-id": "x"}"#).unwrap_err().contains("not yours"));
    }
}
