//! The `hoplo` command: starts, stops and looks into what runs on this machine.

/// In place of the standard one, which panics when nobody reads any more.
macro_rules! println {
    ($($text:tt)*) => { $crate::said({ use std::io::Write as _; writeln!(std::io::stdout(), $($text)*) }) };
}

/// Likewise.
macro_rules! print {
    ($($text:tt)*) => { $crate::said({ use std::io::Write as _; write!(std::io::stdout(), $($text)*) }) };
}

mod completion;
mod control;
mod control_node;
mod doctor;
mod drain;
mod list;
mod logs;
mod show;
mod start;
mod table;
mod token;
mod tool;

use std::process::ExitCode;

use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "hoplo",
    version,
    about = "Starts a hoplo node that stays, and shows what a node does",
    after_help = "`hoplo help COMMAND` says more of one. A program needs none of them: hoplo.init() starts a node of its own.",
    styles = styles()
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a node that stays when programs end; they join it with hoplo.init(address="auto")
    Start(start::StartArgs),
    /// Stop the node that `hoplo start` started
    Stop(start::StopArgs),
    /// Have a node leave its cluster: what runs there ends or goes elsewhere first
    Drain(drain::DrainArgs),
    /// Show a node's resources, jobs and objects, and what waits for resources
    Status(show::StatusArgs),
    /// Say what a ref, task or actor waits for
    Why(show::WhyArgs),
    /// Show what workers printed
    Logs(logs::LogsArgs),
    /// List tasks, actors, objects, workers, nodes, jobs or placement groups
    List(list::ListArgs),
    /// Show all that is known of one of them
    Get(list::GetArgs),
    /// Count tasks by name, actors by class, or objects by state
    Summary(list::SummaryArgs),
    /// Say what programs written for Ray use, and what of it is not there
    Doctor(doctor::DoctorArgs),
    /// Run the control nodes of a cluster, and look at its control store
    #[command(subcommand)]
    Control(control::ControlCommand),
    /// Make, list and revoke the tokens with which others join this machine's head
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Print a script that has a shell complete what you type: eval "$(hoplo completion bash)"
    Completion(completion::CompletionArgs),
    /// Print the version
    Version,
    /// The node daemon itself
    #[command(hide = true)]
    Daemon(start::DaemonArgs),
}

/// On a terminal that has colors.
const fn styles() -> Styles {
    Styles::styled()
        .header(AnsiColor::Green.on_default().bold())
        .usage(AnsiColor::Green.on_default().bold())
        .literal(AnsiColor::Cyan.on_default().bold())
        .placeholder(AnsiColor::Cyan.on_default())
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Start(args) => start::start(&args),
        Command::Stop(args) => start::stop(&args),
        Command::Drain(args) => drain::drain(&args),
        Command::Status(args) => show::status(&args),
        Command::Why(args) => show::why(&args),
        Command::Logs(args) => logs::logs(&args),
        Command::List(args) => list::list(&args),
        Command::Get(args) => list::get(&args),
        Command::Summary(args) => list::summary(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Control(command) => control::run(&command),
        Command::Token(command) => token::run(&command),
        Command::Completion(args) => completion::completion(&args),
        Command::Version => {
            println!("hoplo {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Command::Daemon(args) => return start::daemon(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hoplo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What is printed was printed, or whoever read our output has seen enough: then there is nothing left to do.
fn said(printed: std::io::Result<()>) {
    match printed {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("hoplo: cannot print: {error}");
            std::process::exit(1);
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
