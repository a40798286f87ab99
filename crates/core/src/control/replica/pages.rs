//! Pages of the table of nodes, as they were answered lately. Each node that joins reads them all, and while thousands join the rows
//! that change are those of the last page: the others are gathered and encoded once (`Shared`), and the last one once for all who ask between two
//! changes. They are few (`CONTROL_PAGES_KEPT`), and each is there twice, as rows and encoded.
//!
//! # Invariants
//! - PAGE-1: a page that is kept is what a scan would find now.

use std::collections::VecDeque;

use hoplo_base::limits::CONTROL_PAGES_KEPT;
use hoplo_wire::Shared;
use hoplo_wire::control::{Key, Row, Table};

pub type Rows = Shared<Vec<(Vec<u8>, Row)>>;

#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// Oldest first.
    kept: VecDeque<Page>,
}

#[derive(Clone, Debug)]
struct Page {
    prefix: Vec<u8>,
    from: Option<Vec<u8>>,
    limit: u32,
    rows: Rows,
    /// Not in it. Absent: it has all rows up to the end.
    next: Option<Vec<u8>>,
}

impl Pages {
    /// Its rows, and where the next one begins.
    pub fn find(
        &self,
        table: Table,
        prefix: &[u8],
        from: Option<&[u8]>,
        limit: u32,
    ) -> Option<(Rows, Option<Vec<u8>>)> {
        let asked = |page: &&Page| {
            page.limit == limit && page.from.as_deref() == from && page.prefix == prefix
        };
        let page = self.kept.iter().filter(|_| table == Table::Node).find(asked)?;
        Some((page.rows.clone(), page.next.clone()))
    }

    /// This was answered just now.
    pub fn keep(
        &mut self,
        table: Table,
        prefix: &[u8],
        from: Option<&[u8]>,
        limit: u32,
        rows: &Rows,
        next: Option<&[u8]>,
    ) {
        if table != Table::Node {
            return;
        }
        if self.kept.len() == CONTROL_PAGES_KEPT {
            self.kept.pop_front();
        }
        let (prefix, from) = (prefix.to_vec(), from.map(<[u8]>::to_vec));
        let next = next.map(<[u8]>::to_vec);
        self.kept.push_back(Page { prefix, from, limit, rows: rows.clone(), next });
    }

    /// The row with this key did, or it is new or gone.
    pub fn changed(&mut self, key: &Key) {
        if key.table == Table::Node {
            self.kept.retain(|page| !page.covers(&key.bytes));
        }
    }

    /// All rows may have.
    pub fn forget(&mut self) {
        self.kept.clear();
    }

    pub fn check(&self, scan: impl Fn(&[u8], Option<&[u8]>, u32) -> Vec<(Vec<u8>, Row)>) {
        for page in &self.kept {
            let found = scan(&page.prefix, page.from.as_deref(), page.limit);
            assert_eq!(*page.rows, found, "PAGE-1");
        }
    }
}

impl Page {
    /// Whether a row with this key would be in it.
    fn covers(&self, key: &[u8]) -> bool {
        let from = self.from.as_deref().unwrap_or_default();
        let is_before_next = self.next.as_ref().is_none_or(|next| key < &next[..]);
        key.starts_with(&self.prefix) && key >= from && is_before_next
    }
}
