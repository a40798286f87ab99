//! What the desk of a control node asks and changes ([`hoplo_net::join`]): rows of the store, as any client of it does.
//!
//! ```text
//!   Token   what is kept of a token: its public key, its role, until when and for how many
//!   Node    a number is given by making its row; who got it writes the rest of it, under the version that it has then
//! ```

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hoplo_base::NodeNumber;
use hoplo_core::control::client::CallError;
use hoplo_core::control::rows::token_key;
use hoplo_core::control::{ControlStore, Entry, MemoryStore, NodeEntry, TokenEntry};
use hoplo_net::join::{Registry, SpendError, Unavailable};
use hoplo_net::name::{Name, Role};
use hoplo_net::token::TokenRecord;
use hoplo_wire::control::{Key, Op, Outcome, Row, Table};
use hoplo_wire::join::TokenId;

use crate::clock::as_micros;

use super::client::{ControlClient, Page};
use super::cluster::Cluster;

pub struct StoreRegistry {
    cluster: Cluster,
    /// Once somebody has asked.
    client: Option<Arc<ControlClient>>,
    /// The newest number that it knows of.
    last: Option<NodeNumber>,
}

/// Of each call; who asks the desk waits for a few of them.
const WITHIN: Duration = Duration::from_secs(3);
const PAGE_ROWS: u32 = 1000;

impl StoreRegistry {
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, client: None, last: None }
    }

    /// The same by a client that somebody made already.
    pub fn by(client: Arc<ControlClient>, cluster: Cluster) -> Self {
        Self { cluster, client: Some(client), last: None }
    }

    /// Lets somebody join, or changes what is known of a token.
    pub fn put_token(&mut self, record: &TokenRecord) -> Result<(), Unavailable> {
        let entry = entry_of(record);
        let client = self.client()?;
        client.put(entry.key(), entry.to_value(), None, WITHIN).map_err(unavailable)?;
        Ok(())
    }

    /// All that are known, also those that nobody can join with any more.
    pub fn tokens(&mut self) -> Result<Vec<TokenRecord>, Unavailable> {
        let mut found = Vec::new();
        self.rows(|entry: TokenEntry| found.push(record_of(&entry)))?;
        Ok(found)
    }

    /// These tables as they are now.
    pub fn copy(&mut self, tables: &[Table]) -> Result<MemoryStore, Unavailable> {
        self.copy_if(tables, |_, _| true)
    }

    /// The same of rows that are wanted.
    pub fn copy_if(
        &mut self,
        tables: &[Table],
        wanted: impl Fn(Table, &Row) -> bool,
    ) -> Result<MemoryStore, Unavailable> {
        let mut copy = MemoryStore::new();
        let client = self.client()?;
        // All are asked for at once: a head that begins has no time to wait for one after the other.
        let begun = tables
            .iter()
            .map(|table| client.start_scan(*table, Vec::new(), None, PAGE_ROWS, WITHIN));
        let begun: Vec<_> = begun.collect::<Result<_, _>>().map_err(unavailable)?;
        for (&table, begun) in tables.iter().zip(begun) {
            let first = Page::of(begun.wait().map_err(unavailable)?);
            scan_on(client, table, first, |bytes, row| {
                if wanted(table, &row) {
                    let put = copy.put(Key { table, bytes }, row.value);
                    put.expect("a store in memory takes everything");
                }
            })?;
        }
        Ok(copy)
    }

    /// Writes a head's row under the next number, which may be the first one of its store. `last`: the newest that was seen.
    pub fn add_head(
        &mut self,
        random: u32,
        last: Option<NodeNumber>,
        row: impl Fn(NodeNumber) -> NodeEntry,
    ) -> Result<NodeNumber, Unavailable> {
        self.last = last;
        loop {
            let first = || NodeNumber::first_given(random);
            let next = self.last.map_or_else(first, NodeNumber::next_given);
            if self.swap(&row(next), 0)? {
                self.last = Some(next);
                return Ok(next);
            }
            // Somebody was given it meanwhile.
            self.last = self.last_number()?;
        }
    }

    /// The node table as one page. What changed after its `indexes` is to be told to who knows these rows.
    pub fn nodes(&mut self) -> Result<Page, Unavailable> {
        let mut rows = Vec::new();
        let indexes = self.scan(Table::Node, |key, row| rows.push((key, row)))?;
        Ok(Page { rows, next: None, indexes })
    }

    fn last_number(&mut self) -> Result<Option<NodeNumber>, Unavailable> {
        let mut last = None;
        self.rows(|entry: NodeEntry| last = last.max(Some(entry.node)))?;
        Ok(last)
    }

    /// Nobody joins with it from now on. Whether it was known.
    pub fn revoke(&mut self, id: TokenId) -> Result<bool, Unavailable> {
        let known = self.row::<TokenEntry>(token_key(id))?.is_some();
        self.client()?.delete(token_key(id), None, WITHIN).map_err(unavailable)?;
        Ok(known)
    }

    fn client(&mut self) -> Result<&ControlClient, Unavailable> {
        let client = match self.client.take() {
            Some(client) => client,
            None => {
                let client = ControlClient::connect(&self.cluster);
                Arc::new(client.map_err(|error| unable(&error))?)
            }
        };
        Ok(self.client.insert(client))
    }

    /// With its version.
    fn row<E: Entry>(&mut self, key: Key) -> Result<Option<(E, u64)>, Unavailable> {
        let Some(row) = self.client()?.get(key, WITHIN).map_err(unavailable)? else {
            return Ok(None);
        };
        let entry = E::from_row(&row).map_err(|error| Unavailable { why: error.to_string() })?;
        Ok(Some((entry, row.version)))
    }

    fn rows<E: Entry>(&mut self, mut take: impl FnMut(E)) -> Result<(), Unavailable> {
        // What does not parse was written by another program.
        self.scan(E::TABLE, |_, row| E::from_row(&row).into_iter().for_each(&mut take))?;
        Ok(())
    }

    /// Each row of the table, with its key. Returns as of which entry of each shard.
    fn scan(
        &mut self,
        table: Table,
        take: impl FnMut(Vec<u8>, Row),
    ) -> Result<Vec<u64>, Unavailable> {
        let client = self.client()?;
        let first = client.scan(table, Vec::new(), None, PAGE_ROWS, WITHIN).map_err(unavailable)?;
        let indexes = first.indexes.clone();
        scan_on(client, table, first, take)?;
        Ok(indexes)
    }

    /// Whether the row had that version, and is this now.
    fn swap(&mut self, entry: &impl Entry, expected: u64) -> Result<bool, Unavailable> {
        let put = self.client()?.put(entry.key(), entry.to_value(), Some(expected), WITHIN);
        match put.map_err(unavailable)? {
            Outcome::Done { .. } => Ok(true),
            Outcome::Conflict { .. } => Ok(false),
        }
    }

    /// Any that was not given yet; the row that is made decides.
    fn next_number(&mut self) -> Result<NodeNumber, Unavailable> {
        if self.last.is_none() {
            self.last = self.last_number()?;
        }
        let none = || Unavailable { why: "the head has no row".to_string() };
        let next = self.last.ok_or_else(none)?.next_given();
        self.last = Some(next);
        Ok(next)
    }
}

impl Registry for StoreRegistry {
    fn token(&mut self, id: TokenId) -> Result<Option<TokenRecord>, Unavailable> {
        let found = self.row::<TokenEntry>(token_key(id))?;
        Ok(found.map(|(entry, _)| record_of(&entry)))
    }

    fn spend(&mut self, id: TokenId, uses: u32, now: SystemTime) -> Result<u32, SpendError> {
        loop {
            let found = self.row::<TokenEntry>(token_key(id)).map_err(SpendError::Unavailable)?;
            let (mut entry, version) = found.ok_or(SpendError::Gone)?;
            let record = record_of(&entry);
            let unfit = |why| SpendError::Unfit { expires: record.expires, why };
            record.fit(now).map_err(unfit)?;
            let spent = entry.uses_max.map_or(uses, |max| uses.min(max - entry.uses));
            entry.uses = entry.uses.saturating_add(spent);
            if self.swap(&entry, version).map_err(SpendError::Unavailable)? {
                return Ok(spent);
            }
        }
    }

    fn numbers(&mut self, hosts: &[&str]) -> Result<Vec<NodeNumber>, Unavailable> {
        let mut given: Vec<Option<NodeNumber>> = vec![None; hosts.len()];
        while given.contains(&None) {
            let mut tried = Vec::new();
            for (place, host) in hosts.iter().enumerate().filter(|(at, _)| given[*at].is_none()) {
                tried.push((place, NodeEntry::numbered(self.next_number()?, host.to_string())));
            }
            let put = |(_, entry): &(usize, NodeEntry)| {
                let (key, value, finished) = (entry.key(), entry.to_value(), false);
                Op::Put { key, value, expected: Some(0), finished }
            };
            let ops = tried.iter().map(put).collect();
            let outcomes = self.client()?.batch(ops, WITHIN).map_err(unavailable)?;
            for ((place, entry), outcome) in tried.iter().zip(outcomes) {
                // One that another control node gave meanwhile is not given again.
                let is_new = matches!(outcome, Outcome::Done { .. });
                given[*place] = is_new.then_some(entry.node);
            }
        }
        Ok(given.into_iter().flatten().collect())
    }

    /// A number whose row is gone, too, is never used again.
    fn is_fenced(&mut self, name: &Name) -> Result<bool, Unavailable> {
        let numbered = matches!(name.role, Role::Control | Role::Node);
        let Some(number) = u32::from_str_radix(name.name(), 16).ok().filter(|_| numbered) else {
            return Ok(false);
        };
        let key = Key { table: Table::Node, bytes: number.to_be_bytes().to_vec() };
        let found = self.row::<NodeEntry>(key)?;
        Ok(found.is_none_or(|(entry, _)| entry.state.is_dead()))
    }

    fn members(&mut self) -> Result<Vec<String>, Unavailable> {
        Ok(self.cluster.nodes.clone())
    }
}

/// From the first page of the table on.
fn scan_on(
    client: &ControlClient,
    table: Table,
    first: Page,
    mut take: impl FnMut(Vec<u8>, Row),
) -> Result<(), Unavailable> {
    let mut page = first;
    loop {
        page.rows.into_iter().for_each(|(bytes, row)| take(bytes, row));
        let Some(from) = page.next else { return Ok(()) };
        let next = client.scan(table, Vec::new(), Some(from), PAGE_ROWS, WITHIN);
        page = next.map_err(unavailable)?;
    }
}

pub(super) fn entry_of(record: &TokenRecord) -> TokenEntry {
    TokenEntry {
        id: record.id,
        public_key: record.public_key,
        role: record.role.into(),
        created_us: micros(record.created),
        expires_us: micros(record.expires),
        uses: record.uses,
        uses_max: record.uses_max,
    }
}

pub(super) fn record_of(entry: &TokenEntry) -> TokenRecord {
    TokenRecord {
        id: entry.id,
        public_key: entry.public_key,
        role: entry.role.into(),
        created: UNIX_EPOCH + Duration::from_micros(entry.created_us),
        expires: UNIX_EPOCH + Duration::from_micros(entry.expires_us),
        uses: entry.uses,
        uses_max: entry.uses_max,
    }
}

fn micros(time: SystemTime) -> u64 {
    as_micros(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn unavailable(error: CallError) -> Unavailable {
    Unavailable { why: error.to_string() }
}

fn unable(error: &io::Error) -> Unavailable {
    Unavailable { why: error.to_string() }
}
