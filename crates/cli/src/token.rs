//! Tokens, with which others join a head's cluster: `hoplo token`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::registry::StoreRegistry;
use hoplo_folders::{Base, Places};
use hoplo_net::name::Role;
use hoplo_net::token::{Token, TokenRecord, Unfit, VARIABLE};
use hoplo_wire::join::TokenId;

use crate::table;
use crate::tool::find_session;

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it: whoever has it can join
    New(NewArgs),
    /// List the tokens of the cluster, but not what one needs to join with them
    List(HeadArgs),
    /// Let nobody join with a token any more; who joined with it stays
    Revoke(RevokeArgs),
}

#[derive(Args)]
pub(crate) struct HeadArgs {
    /// The session folder of the head [default: the head of this machine]
    #[arg(long, value_name = "DIR")]
    session: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct NewArgs {
    /// As what one joins with it
    #[arg(long, value_enum, default_value_t = As::Node)]
    role: As,
    /// For how many days
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// How many may join with it [default: any number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    uses: Option<u32>,
    #[command(flatten)]
    head: HeadArgs,
}

#[derive(Args)]
pub(crate) struct RevokeArgs {
    /// As `hoplo token list` shows it
    #[arg(value_parser = parse_id)]
    id: TokenId,
    #[command(flatten)]
    head: HeadArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum As {
    Node,
    Client,
    Operator,
}

pub(crate) fn run(command: &TokenCommand) -> Result<()> {
    match command {
        TokenCommand::New(args) => new(args),
        TokenCommand::List(args) => list(args),
        TokenCommand::Revoke(args) => revoke(args),
    }
}

fn new(args: &NewArgs) -> Result<()> {
    let cluster = args.head.cluster()?;
    let identity = cluster.identity.as_ref().context("the head has no certificate")?;
    let token = Token::make(identity.authority())?;
    let role = match args.role {
        As::Node => Role::Node,
        As::Client => Role::Client,
        As::Operator => Role::Operator,
    };
    let (now, day) = (SystemTime::now(), Duration::from_secs(24 * 3600));
    let record = TokenRecord::of(&token, role, now, now + day * args.days, args.uses);
    StoreRegistry::new(cluster.clone()).put_token(&record).map_err(unreachable_head)?;
    println!("{}", token.reveal());
    eprintln!(
        "{} joins with it for {} days: put it into a file of mode 600 (--token-file), or into {VARIABLE}; head {}",
        match args.uses {
            None => format!("Any number of {role}s"),
            Some(1) => format!("One {role}"),
            Some(uses) => format!("{uses} {role}s"),
        },
        args.days,
        cluster.nodes.join(", ")
    );
    Ok(())
}

fn list(args: &HeadArgs) -> Result<()> {
    let now = SystemTime::now();
    let mut tokens = StoreRegistry::new(args.cluster()?).tokens().map_err(unreachable_head)?;
    tokens.sort_by_key(|token| (token.created, token.id));
    let rows = tokens.iter().map(|token| {
        let most = token.uses_max.map_or("any number".to_string(), |most| most.to_string());
        let state = match token.fit(now) {
            Ok(()) => {
                let left = token.expires.duration_since(now).unwrap_or_default();
                format!("good for {} hours", left.as_secs() / 3600)
            }
            Err(Unfit::Expired) => "expired".to_string(),
            Err(Unfit::UsedUp) => "used up".to_string(),
        };
        vec![show_id(token.id), token.role.to_string(), token.uses.to_string(), most, state]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    Ok(table::print(&["id", "role", "joined", "may join", "state"], &rows)?)
}

fn revoke(args: &RevokeArgs) -> Result<()> {
    let mut registry = StoreRegistry::new(args.head.cluster()?);
    if !registry.revoke(args.id).map_err(unreachable_head)? {
        bail!("there is no token {}: `hoplo token list` shows all", show_id(args.id));
    }
    println!("revoked {}", show_id(args.id));
    Ok(())
}

impl HeadArgs {
    /// As its head's own certificate shows it.
    fn cluster(&self) -> Result<Cluster> {
        let session = match &self.session {
            Some(session) => find_session(Some(session))?,
            None => {
                let base = Places::of_environment().find()?;
                let head = base.as_ref().and_then(Base::current);
                head.context(
                    "no head runs here: tokens are made where `hoplo start --head` was called",
                )?
            }
        };
        let files = ["control/cluster.json", "head/cluster.json"];
        let files = files.map(|file| session.path().join(file));
        let file = files.iter().find(|file| file.exists()).unwrap_or(&files[0]);
        if !file.exists() && session.cluster().is_some() {
            bail!("the cluster's head keeps its tokens: run this there");
        }
        Ok(Cluster::load(file)?)
    }
}

fn unreachable_head(why: hoplo_net::join::Unavailable) -> anyhow::Error {
    anyhow::anyhow!("the head's control store does not answer: {why}")
}

fn show_id(id: TokenId) -> String {
    format!("{:016x}", id.0)
}

fn parse_id(text: &str) -> Result<TokenId, String> {
    let id = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
    id.map(TokenId)
        .ok_or_else(|| "give 16 hexadecimal digits, as `hoplo token list` shows them".to_string())
}
