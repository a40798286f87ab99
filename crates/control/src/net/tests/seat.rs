//! Who waits to be head, beside one that lives or ends.

use std::net::TcpListener;

use super::alone::Head;
use super::*;
use crate::net::cluster::Cluster;
use crate::net::seat::Candidate;

/// The store, where a head listens that has the seat, and one that waits for it.
fn beside_a_head(folder: &Folder) -> (Head, TcpListener, Candidate) {
    let home = folder.0.join("head");
    let store = Head::start(&home, 0);
    let cluster = Cluster::load(&home.join("cluster.json")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    Candidate::new(&cluster).unwrap().take(7, &address).unwrap();
    (store, listener, Candidate::new(&cluster).unwrap())
}

#[test]
fn who_waits_to_be_head_is_woken_by_the_end_of_the_heads_process() {
    let folder = Folder::new("seat-ends");
    let (_store, listener, mut candidate) = beside_a_head(&folder);
    assert!(!candidate.look().unwrap());
    let (connection, _) = listener.accept().unwrap();
    drop((listener, connection));
    assert!(candidate.waits());
    assert!(candidate.look().unwrap());
    candidate.take(8, "b:1").unwrap();
}

#[test]
fn a_head_that_lives_and_ends_connections_is_not_looked_for_all_the_time() {
    let folder = Folder::new("seat-stays");
    let (_store, listener, mut candidate) = beside_a_head(&folder);
    for ended in [true, false, true, false] {
        assert!(!candidate.look().unwrap());
        drop(listener.accept().unwrap());
        assert_eq!(candidate.waits(), ended);
    }
}
