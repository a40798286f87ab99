//! Pages that are kept.

use hoplo_base::NodeNumber;

use super::super::pages::Rows;
use super::*;
use crate::control::rows::node_key;
use crate::control::{Entry, NodeEntry};

const LIMIT: u32 = 4;

fn key_of(at: u32) -> Key {
    node_key(NodeNumber::first_given(at))
}

fn put_node(at: u32, host: &str) -> Op {
    let entry = NodeEntry::numbered(NodeNumber::first_given(at), host.to_string());
    Op::Put { key: entry.key(), value: entry.to_value(), expected: None, finished: false }
}

fn hosts(rows: &Rows) -> Vec<String> {
    rows.iter().map(|(_, row)| NodeEntry::from_row(row).unwrap().hostname).collect()
}

/// The first page, or the one from there.
fn page(cluster: &mut Cluster, table: Table, from: Option<Vec<u8>>) -> Rows {
    let query = Query::Scan { table, prefix: vec![], from, limit: LIMIT, archived: false };
    let request = cluster.ask(1, query, false);
    let Some(Ok(Answer::Page { rows, .. })) = cluster.answer(request) else { panic!("no page") };
    rows
}

/// Thousands of nodes join and read all rows, and each had them copied and encoded for itself.
#[test]
fn nodes_that_read_the_table_of_nodes_share_its_pages() {
    let mut cluster = Cluster::new(1);
    cluster.update(1, (0..6).map(|at| put_node(at, "a")).collect()).unwrap();
    let first = page(&mut cluster, Table::Node, None);
    assert_eq!(first.len(), LIMIT as usize);
    let rest = Some(key_of(LIMIT).bytes);
    let last = page(&mut cluster, Table::Node, rest.clone());
    assert_eq!(last.len(), 2);
    assert!(page(&mut cluster, Table::Node, rest.clone()).is_same(&last));
    // One more node: its page is another one.
    cluster.update(1, vec![put_node(6, "a")]).unwrap();
    assert!(page(&mut cluster, Table::Node, None).is_same(&first));
    assert_eq!(page(&mut cluster, Table::Node, rest).len(), 3);
}

#[test]
fn a_page_that_is_kept_is_no_older_than_its_rows() {
    let mut cluster = Cluster::new(1);
    let even = [(0, "a"), (2, "b"), (4, "c"), (6, "d"), (8, "e")];
    cluster.update(1, even.map(|(at, host)| put_node(at, host)).to_vec()).unwrap();
    let read = |cluster: &mut Cluster| hosts(&page(cluster, Table::Node, None));
    assert_eq!(read(&mut cluster), ["a", "b", "c", "d"]);
    cluster.update(1, vec![put_node(2, "new")]).unwrap();
    assert_eq!(read(&mut cluster), ["a", "new", "c", "d"]);
    cluster.update(1, vec![put_node(3, "between")]).unwrap();
    assert_eq!(read(&mut cluster), ["a", "new", "between", "c"]);
    cluster.update(1, vec![Op::Delete { key: key_of(0), expected: None }]).unwrap();
    assert_eq!(read(&mut cluster), ["new", "between", "c", "d"]);
    // The last one has no row behind it that could say where it ends.
    let rest = Some(key_of(6).bytes);
    assert_eq!(hosts(&page(&mut cluster, Table::Node, rest.clone())), ["d", "e"]);
    cluster.update(1, vec![put_node(9, "behind")]).unwrap();
    assert_eq!(hosts(&page(&mut cluster, Table::Node, rest)), ["d", "e", "behind"]);
    // Another table is another page.
    cluster.update(1, vec![put("a", "1")]).unwrap();
    assert_eq!(page(&mut cluster, Table::Kv, None).len(), 1);
}
