//! Pages of rows that the node asked for, of a store of its own or of another node's.

use hoplo_core::control::Row;
use hoplo_core::node::RowsPage;

/// Rows that one answer to a scan has.
pub(super) const SCANNED_ROWS: u32 = 64;

pub(super) fn rows_page(rows: Vec<(Vec<u8>, Row)>, next: Option<Vec<u8>>) -> RowsPage {
    let rows = rows.into_iter().map(|(key, row)| (key, row.value)).collect();
    RowsPage { rows, next }
}
