//! Keys, names and dates: who may be whom, and what it is told otherwise.

use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use super::*;

fn closed(hubs: &mut [&mut Hub], place: usize) -> String {
    until(hubs, |at, happening| match happening {
        Happening::Closed { why, .. } if at == place => Some(why.to_string()),
        Happening::Opened { theirs, .. } if at == place => panic!("opened: {theirs:?}"),
        _ => None,
    })
}

#[test]
fn keys_are_for_their_owner_alone_and_no_authority_is_replaced() {
    let folder = Folder::new("keys");
    let dir = folder.given("ca", Role::Control, "a", Validity::days(1));
    for path in [folder.0.join("ca/ca.key"), dir.join("identity.pem"), dir.join("ca.pem")] {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path:?}");
    }
    assert!(!dir.join("ca.key").exists(), "the authority's key stays where it is");
    assert!(Authority::make(&folder.0.join("ca"), CLUSTER).is_err());
    std::fs::remove_file(dir.join("identity.pem")).unwrap();
    let error = Identity::load(&dir, CLUSTER).unwrap_err().to_string();
    assert!(error.contains("identity.pem") && error.contains("hoplo control init"), "{error}");
}

#[test]
fn a_folder_is_renewed_for_the_same_holder_and_for_no_other() {
    let folder = Folder::new("renewed");
    let dir = folder.given("ca", Role::Control, "a", Validity::days(1));
    let identity = Identity::load(&dir, CLUSTER).unwrap();
    let before = identity.certificate();
    let authority = folder.authority("ca");
    let other = Name::new(CLUSTER, Role::Control, "b").unwrap();
    let error = authority.issue(&other, Validity::days(1), &dir).unwrap_err().to_string();
    assert!(error.contains("/control/a") && error.contains("another folder"), "{error}");
    authority.issue(&before.name, Validity::days(9), &dir).unwrap();
    // Shown from the next connection on.
    let mut client = hub(client_hello(), Some(identity.clone()));
    client.dial("127.0.0.1:1");
    let now = identity.certificate();
    assert_eq!(now.name, before.name);
    assert!(now.until > before.until);
    // What cannot be used does not take its place, and is told.
    std::fs::write(dir.join("identity.pem"), "rubbish").unwrap();
    client.dial("127.0.0.1:1");
    assert_eq!(identity.certificate(), now);
    assert!(identity.trouble().unwrap().contains("identity.pem"));
}

#[test]
fn a_certificate_that_is_over_or_not_yet_or_elsewhere_is_named_with_its_file() {
    let folder = Folder::new("dates");
    let (now, day) = (SystemTime::now(), Duration::from_secs(24 * 3600));
    let over = Validity { from: now - 2 * day, until: now - day };
    let dir = folder.given("ca", Role::Control, "over", over);
    let error = Identity::load(&dir, CLUSTER).unwrap_err().to_string();
    assert!(error.contains("over/identity.pem has expired at 20"), "{error}");
    let later = Validity { from: now + day, until: now + 2 * day };
    let dir = folder.given("ca", Role::Control, "later", later);
    let error = Identity::load(&dir, CLUSTER).unwrap_err().to_string();
    assert!(error.contains("later/identity.pem is valid from 20"), "{error}");
    assert!(error.contains("clock"), "{error}");
    let dir = folder.given("ca", Role::Control, "a", Validity::days(1));
    let error = Identity::load(&dir, 8).unwrap_err().to_string();
    assert!(error.contains("0007, not of cluster") && error.contains("identity.pem"), "{error}");
    let theirs = folder.given("theirs", Role::Control, "a", Validity::days(1));
    std::fs::copy(theirs.join("ca.pem"), dir.join("ca.pem")).unwrap();
    let error = Identity::load(&dir, CLUSTER).unwrap_err().to_string();
    assert!(error.contains("not by the authority"), "{error}");
}

#[test]
fn a_certificate_that_expires_while_its_process_runs_is_refused_with_the_date() {
    let folder = Folder::new("expires");
    let valid = Validity { until: SystemTime::now() + Duration::from_secs(2), ..Validity::days(1) };
    let dir = folder.given("ca", Role::Client, "c", valid);
    let mut client = hub(client_hello(), Some(Identity::load(&dir, CLUSTER).unwrap()));
    let mut server = hub(server_hello(), folder.server());
    let at = server.listen(&tcp()).unwrap().to_string();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut said = [None, None];
    while said.iter().any(Option::is_none) {
        assert!(Instant::now() < deadline, "{said:?}");
        client.dial(&at);
        until(&mut [&mut server, &mut client], |place, happening| match happening {
            Happening::Closed { why, .. } => {
                said[place] = Some(why.to_string());
                (place == 1).then_some(())
            }
            Happening::Opened { .. } if place == 1 => Some(()),
            _ => None,
        });
    }
    let [there, here] = said.map(Option::unwrap);
    assert!(there.contains("expired at 20"), "{there}");
    assert!(here.contains("dates") && here.contains("identity.pem"), "{here}");
}

#[test]
fn a_client_said_that_it_is_a_member_and_moved_the_chain() {
    let folder = Folder::new("claims");
    for (place, role, name, who) in [
        (1, Role::Client, "c", Speaker::Replica(replica("a"))),
        (2, Role::Operator, "o", Speaker::Coordinator(replica("a"))),
        (3, Role::Control, "b", Speaker::Replica(replica("a"))),
        (4, Role::Node, "a", Speaker::Replica(replica("a"))),
    ] {
        let mut server = hub(server_hello(), folder.server());
        let mut client = hub(hello(who), Some(folder.identity(role, name)));
        let at = server.listen(&tcp()).unwrap();
        client.dial(&at.to_string());
        let why = closed(&mut [&mut server, &mut client], 1);
        assert!(why.contains("certificate"), "{place}: {why}");
        assert_eq!(server.counters().refused_claims, 1, "{place}: {why}");
    }
    let mut server = hub(server_hello(), folder.server());
    let mut other =
        hub(hello(Speaker::Replica(replica("b"))), Some(folder.identity(Role::Control, "b")));
    let at = server.listen(&tcp()).unwrap();
    opened(&mut server, &mut other, &at.to_string());
}

#[test]
fn a_client_cannot_serve_in_the_place_of_a_node() {
    let folder = Folder::new("serves");
    let mut server = hub(server_hello(), Some(folder.identity(Role::Client, "c")));
    let at = server.listen(&tcp()).unwrap();
    let mut client = hub(client_hello(), folder.client());
    client.dial(&at.to_string());
    let why = closed(&mut [&mut server, &mut client], 1);
    assert!(why.contains("not a node's"), "{why}");
}
