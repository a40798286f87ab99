//! Two ends, and a wire between them that cuts where it likes.

use hoplo_wire::frames::Incoming;

use super::*;
use crate::authority::{Authority, Validity};
use crate::name::{Name, Role};
use crate::protocol::Purpose;
use crate::tls::Identity;

const CLUSTER: u128 = 7;

struct End {
    records: Records,
    inbox: Incoming,
    /// What the other end sent and this one did not read.
    wire: Vec<u8>,
}

impl End {
    fn new(records: Records) -> Self {
        Self { records, inbox: Incoming::new(1 << 20), wire: Vec::new() }
    }

    /// All of it, and what the handshake has to say before it.
    fn say(&mut self, plain: &[u8], to: &mut Self) {
        let mut taken = 0;
        loop {
            self.send(to, self.records.unsent().len());
            taken += self.records.seal(&plain[taken..]).unwrap();
            if self.records.unsent().is_empty() {
                break;
            }
        }
        assert_eq!(taken, plain.len());
    }

    fn send(&mut self, to: &mut Self, bytes: usize) {
        to.wire.extend_from_slice(&self.records.unsent()[..bytes]);
        self.records.sent(bytes);
    }

    /// So many bytes at a time.
    fn hear(&mut self, cut: usize) -> Result<(), Error> {
        for came in std::mem::take(&mut self.wire).chunks(cut) {
            let mut wire = [self.records.kept(), came].concat();
            let inbox = &mut self.inbox;
            self.records.open(&mut wire, &mut |plain| inbox.add(plain))?;
            assert!(self.records.kept().len() <= KEPT_BYTES_MAX);
        }
        Ok(())
    }

    fn heard(&mut self) -> Option<Vec<u8>> {
        self.inbox.take().unwrap().map(<[u8]>::to_vec)
    }
}

/// Who dials, and who accepts; they have said nothing yet.
fn ends(name: &str) -> (End, End) {
    let dir = std::env::temp_dir().join(format!("hoplo-records-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let authority = Authority::make(&dir.join("ca"), CLUSTER).unwrap();
    let held = Name::new(CLUSTER, Role::Node, "2").unwrap();
    authority.issue(&held, Validity::days(1), &dir.join("2")).unwrap();
    let identity = Identity::load(&dir.join("2"), CLUSTER).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let dialled = identity.dialled(Purpose::Link).unwrap();
    (End::new(dialled), End::new(identity.accepted(Purpose::Link).unwrap()))
}

fn shake_hands(dials: &mut End, accepts: &mut End, cut: usize) {
    for _ in 0..2 {
        dials.say(&[], accepts);
        accepts.hear(cut).unwrap();
        accepts.say(&[], dials);
        dials.hear(cut).unwrap();
    }
}

fn frame(bytes: usize) -> Vec<u8> {
    let body = (0..bytes).map(|it| (it % 251) as u8);
    u32::try_from(bytes).unwrap().to_le_bytes().into_iter().chain(body).collect()
}

#[test]
fn what_was_sealed_is_opened_however_the_wire_is_cut() {
    for cut in [1, 2, 5, 23, 1400, 16_384, 16_407, 65_536] {
        let (mut dials, mut accepts) = ends(&format!("cut-{cut}"));
        shake_hands(&mut dials, &mut accepts, cut);
        for bytes in [0, 1, 100, 16_380, 16_381, 40_000, 2 * PIECE_BYTES] {
            if bytes / cut > 50_000 {
                continue;
            }
            let said = frame(bytes);
            dials.say(&said, &mut accepts);
            accepts.say(&said, &mut dials);
            for end in [&mut dials, &mut accepts] {
                end.hear(cut).unwrap();
                assert_eq!(end.heard().as_deref(), Some(&said[4..]), "{bytes} bytes in {cut}");
                assert_eq!(end.records.kept(), b"");
            }
        }
    }
}

#[test]
fn a_socket_that_takes_little_gets_what_was_sealed_in_its_order() {
    let (mut dials, mut accepts) = ends("little");
    shake_hands(&mut dials, &mut accepts, 65_536);
    let said = frame(PIECE_BYTES - 4);
    assert_eq!(dials.records.seal(&said).unwrap(), said.len());
    while !dials.records.unsent().is_empty() {
        let bytes = dials.records.unsent().len().min(1000);
        dials.send(&mut accepts, bytes);
    }
    accepts.hear(65_536).unwrap();
    assert_eq!(accepts.heard().as_deref(), Some(&said[4..]));
}

#[test]
fn nothing_is_sealed_before_the_hands_are_shaken() {
    let (mut dials, mut accepts) = ends("early");
    assert_eq!(dials.records.seal(b"early").unwrap(), 0);
    let bytes = dials.records.unsent().len();
    dials.send(&mut accepts, bytes);
    assert_eq!(dials.records.seal(b"early").unwrap(), 0, "nothing came back");
    assert_eq!(dials.records.unsent(), b"");
    accepts.hear(65_536).unwrap();
    assert!(!accepts.records.unsent().is_empty());
}

#[test]
fn after_a_bad_record_nothing_is_opened_and_the_peer_hears_why() {
    let (mut dials, mut accepts) = ends("bad");
    shake_hands(&mut dials, &mut accepts, 65_536);
    let (first, second) = (frame(10), frame(20));
    dials.say(&first, &mut accepts);
    let end_of_first = accepts.wire.len();
    dials.say(&second, &mut accepts);
    let end_of_second = accepts.wire.len();
    dials.say(&second, &mut accepts);
    accepts.wire[end_of_first + 9] ^= 1;
    assert!(end_of_second > end_of_first + 9);
    assert_eq!(accepts.hear(65_536), Err(Error::DecryptError));
    assert_eq!(accepts.heard().as_deref(), Some(&first[4..]), "what came before it did come");
    assert_eq!(accepts.heard(), None);
    // TLS-3
    dials.say(&second, &mut accepts);
    accepts.hear(65_536).unwrap();
    assert_eq!(accepts.heard(), None);
    let bytes = accepts.records.unsent().len();
    assert_ne!(bytes, 0, "an alert");
    accepts.send(&mut dials, bytes);
    assert_eq!(accepts.records.seal(b"more").unwrap(), 0);
    assert_eq!(accepts.records.unsent(), b"");
    let alert = rustls::AlertDescription::BadRecordMac;
    assert_eq!(dials.hear(65_536), Err(Error::AlertReceived(alert)));
}

#[test]
fn a_handshake_message_without_an_end_is_not_kept_for_ever() {
    let (_, mut accepts) = ends("endless");
    // A client's hello of 65,000 bytes, said to be one by its first four.
    let hello = [&[1, 0, 253, 232][..], &[0; 16_380]].concat();
    let record = [&[22, 3, 1, 64, 0][..], &hello].concat();
    accepts.wire = record.repeat(3);
    let why = accepts.hear(1400).unwrap_err().to_string();
    assert!(why.contains("that are no record"), "{why}");
}

#[test]
fn keys_are_renewed_while_much_is_said() {
    let (mut dials, mut accepts) = ends("keys");
    shake_hands(&mut dials, &mut accepts, 65_536);
    let said = frame(PIECE_BYTES);
    for _ in 0..5 {
        let Side::Client(tls) = &mut dials.records.side else { unreachable!() };
        match tls.process_tls_records(&mut []).state {
            Ok(ConnectionState::WriteTraffic(traffic)) => traffic.refresh_traffic_keys().unwrap(),
            other => panic!("{other:?}"),
        }
        dials.say(&said, &mut accepts);
        accepts.hear(1400).unwrap();
        assert_eq!(accepts.heard().as_deref(), Some(&said[4..]));
        // Whose keys were renewed renews its own.
        accepts.say(&said, &mut dials);
        dials.hear(1400).unwrap();
        assert_eq!(dials.heard().as_deref(), Some(&said[4..]));
    }
}

#[test]
fn who_said_that_it_says_nothing_more_is_not_listened_to() {
    let (mut dials, mut accepts) = ends("closed");
    shake_hands(&mut dials, &mut accepts, 65_536);
    let mut farewell = [0; 100];
    let Side::Client(tls) = &mut dials.records.side else { unreachable!() };
    let Ok(ConnectionState::WriteTraffic(mut traffic)) = tls.process_tls_records(&mut []).state
    else {
        unreachable!()
    };
    let bytes = traffic.queue_close_notify(&mut farewell).unwrap();
    accepts.wire.extend_from_slice(&farewell[..bytes]);
    accepts.wire.extend_from_slice(&[23; 100_000]);
    accepts.hear(1400).unwrap();
    assert_eq!(accepts.records.kept(), b"");
    // It may still be spoken to.
    let said = frame(10);
    accepts.say(&said, &mut dials);
    dials.hear(1400).unwrap();
    assert_eq!(dials.heard().as_deref(), Some(&said[4..]));
}
