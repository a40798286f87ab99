//! Queries: whom they are sent to, and scans over shards.

use super::*;

#[test]
fn queries_go_to_the_tail_and_stale_ones_to_anybody() {
    let mut world = World::ready();
    let get = |stale| Call::Query { query: Query::Get { key: key("a") }, stale };
    world.call(1, get(false));
    assert_eq!(world.queries(), [(1, 0, 2)]);
    world.event(Event::Lost { replica: replica(2) });
    world.take();
    world.call(2, get(true));
    assert_eq!(world.queries(), [(2, 0, 1)], "the tail is gone, the head will do");
    world.told(config(vec![chain(0, 2, &[1])]));
    let sent = world.queries();
    assert!(sent.contains(&(1, 0, 1)), "{sent:?}");
    let answer = Answer::Row(Some(row("x", 3)));
    world.response(1, Response::Answered { request: 1, index: 9, answer: answer.clone() });
    world.response(1, Response::Answered { request: 1, index: 9, answer });
    assert_eq!(world.finished(), [(1, Ok(Done::Row(Some(row("x", 3)))))]);
}

#[test]
fn a_scan_over_shards_ends_where_the_shortest_page_does() {
    let mut world = World::with(vec![chain(0, 1, &[1]), chain(1, 1, &[2])]);
    let (table, prefix) = (Table::Kv, Vec::new());
    let query = Query::Scan { table, prefix, from: None, limit: 3, archived: false };
    world.call(1, Call::Query { query, stale: false });
    assert_eq!(world.queries(), [(1, 0, 1), (2, 1, 2)]);
    let page = |keys: &[&str], next: Option<&str>| Answer::Page {
        rows: keys
            .iter()
            .map(|key| (key.as_bytes().to_vec(), row(key, 1)))
            .collect::<Vec<_>>()
            .into(),
        next: next.map(|next| next.as_bytes().to_vec()),
    };
    let answer = page(&["a", "c", "e"], Some("f"));
    world.response(1, Response::Answered { request: 1, index: 10, answer });
    let answer = page(&["b", "g"], None);
    world.response(2, Response::Answered { request: 2, index: 20, answer });
    let finished = world.finished();
    let [(1, Ok(Done::Page { rows, next, indexes }))] = &finished[..] else {
        panic!("{finished:?}")
    };
    let keys: Vec<&[u8]> = rows.iter().map(|(key, _)| key.as_slice()).collect();
    assert_eq!(keys, [b"a", b"b", b"c"]);
    assert_eq!(next.as_deref(), Some(b"e".as_slice()), "the first that did not fit");
    assert_eq!(indexes, &[10, 20]);
}
