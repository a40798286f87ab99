//! Who waits to be head, beside one that lives or ends.

use std::net::TcpListener;

use hoplo_base::limits::SEAT_LOOK;

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
    let mut pauses = Vec::new();
    while candidate.pause() < SEAT_LOOK {
        assert!(!candidate.look().unwrap());
        drop(listener.accept().unwrap());
        pauses.push(candidate.pause());
        // With a pause of `SEAT_LOOK` it would not look at the connection at all.
        assert!(candidate.waits());
    }
    assert!(pauses.is_sorted_by(|earlier, later| earlier < later), "{pauses:?}");
    assert!(pauses.len() < 10, "{pauses:?}");
    // One that stays is like the first one.
    assert!(!candidate.look().unwrap());
    let _stays = listener.accept().unwrap();
    assert!(!candidate.waits());
    assert_eq!(candidate.pause(), Duration::ZERO);
}

/// The kernel ends connections of a killed process one after the other, and closes its port among them.
#[test]
fn a_head_whose_port_takes_one_more_connection_when_it_ends_is_looked_for_again_at_once() {
    let folder = Folder::new("seat-closes");
    let (_store, listener, mut candidate) = beside_a_head(&folder);
    assert!(!candidate.look().unwrap());
    drop(listener.accept().unwrap());
    assert!(candidate.waits());
    assert!(!candidate.look().unwrap(), "its port is open");
    drop(listener);
    assert!(candidate.waits(), "it is woken by the end of that connection as well");
    assert!(candidate.look().unwrap());
}
