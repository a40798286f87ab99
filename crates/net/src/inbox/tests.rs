//! Frames that land among others that do not, however the wire cuts them.

use proptest::prelude::*;

use super::*;
use crate::outbox::Outbox;
use crate::testing::{HEAD, LANDS, Landed};

const LINK: LinkId = LinkId(3);
const FRAME_BYTES_MAX: usize = 1000;

/// What landed, by head.
#[derive(Default)]
struct Ground(Vec<(Vec<u8>, Vec<u8>)>);

impl Landing for Ground {
    fn land(&mut self, link: LinkId, head: &[u8], at: usize, bytes: &[u8]) {
        assert_eq!(link, LINK);
        if at == 0 {
            self.0.push((head.to_vec(), Vec::new()));
        }
        let (began, there) = self.0.last_mut().unwrap();
        assert_eq!((&began[..], there.len()), (head, at));
        there.extend_from_slice(bytes);
    }
}

fn lands(rest: &[u8]) -> Vec<u8> {
    [&LANDS[..], &[9; HEAD - 2], rest].concat()
}

fn wire(frames: &[Vec<u8>]) -> Vec<u8> {
    let (mut outbox, mut wire) = (Outbox::default(), Vec::new());
    for frame in frames {
        outbox.push::<Landed>(frame);
    }
    while !outbox.next().is_empty() {
        let bytes = outbox.next().len();
        wire.extend_from_slice(outbox.next());
        outbox.passed(bytes);
    }
    assert_eq!(outbox.len(), 0);
    wire
}

fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let bytes = || prop::collection::vec(0..5u8, 0..60);
    let one = prop_oneof![bytes(), bytes().prop_map(|rest| lands(&rest)), Just(vec![LANDS[0]])];
    prop::collection::vec(one, 0..12)
}

proptest! {
    #[test]
    fn frames_are_taken_in_their_order_and_long_ones_have_landed(
        frames in frames(),
        cuts in prop::collection::vec(1..90usize, 1..40),
    ) {
        let wire = wire(&frames);
        let (mut inbox, mut ground) = (Inbox::new(FRAME_BYTES_MAX), Ground::default());
        let (mut taken, mut rest) = (Vec::new(), &wire[..]);
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (more, left) = rest.split_at(rest.len().min(*cut));
            inbox.add::<Landed>(LINK, more, &mut ground);
            rest = left;
            // INBOX-2
            prop_assert!(inbox.len() < 60 + 2 * 90 + BEGINNING_BYTES_MAX);
            while let Some(frame) = inbox.take::<Landed>().unwrap() {
                taken.push(frame);
            }
        }
        let landing: Vec<&Vec<u8>> = frames.iter().filter(|it| it.starts_with(&LANDS)).collect();
        // One of a head alone has nothing that could land.
        let landed = landing.iter().filter(|it| it.len() > HEAD);
        let landed: Vec<_> = landed.map(|it| (it[..HEAD].to_vec(), it[HEAD..].to_vec())).collect();
        prop_assert_eq!(ground.0, landed);
        let told = frames.iter().map(|it| match it.starts_with(&LANDS) {
            true => [&it[..HEAD], &(it.len() as u64 - HEAD as u64).to_le_bytes()].concat(),
            false => it.clone(),
        });
        prop_assert_eq!(taken, told.collect::<Vec<_>>());
        prop_assert_eq!(inbox.len(), 0);
    }

    #[test]
    fn whatever_comes_nothing_panics_and_what_is_kept_is_bounded(
        wire in prop::collection::vec(prop_oneof![Just(0), Just(255), Just(6), any::<u8>()], 0..400),
        cut in 1..50usize,
    ) {
        let (mut inbox, mut ground) = (Inbox::new(100), Ground::default());
        for more in wire.chunks(cut) {
            inbox.add::<Landed>(LINK, more, &mut ground);
            loop {
                match inbox.take::<Landed>() {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    // The connection ends here.
                    Err(_) => return Ok(()),
                }
            }
            prop_assert!(inbox.len() <= 100 + 50 + BEGINNING_BYTES_MAX);
        }
    }
}

#[test]
fn a_frame_that_is_too_long_or_has_no_whole_head_does_not_land() {
    let mut inbox = Inbox::new(HEAD + 10);
    inbox.add::<Landed>(LINK, &wire(&[lands(&[1; 10])]), &mut Ground::default());
    assert!(inbox.take::<Landed>().unwrap().is_some());
    // Its first byte says that it does not fit: INBOX-3.
    inbox.add::<Landed>(LINK, &wire(&[lands(&[1; 11])]), &mut Nowhere);
    assert!(matches!(inbox.take::<Landed>(), Err(FrameError::TooLong(_))));
    let mut inbox = Inbox::new(100);
    let cut = [&3u32.to_le_bytes()[..], &LANDS, &[1]].concat();
    inbox.add::<Landed>(LINK, &cut, &mut Nowhere);
    assert!(matches!(inbox.take::<Landed>(), Err(FrameError::Malformed(_))));
}
