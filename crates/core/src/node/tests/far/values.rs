//! Small values that go with calls to other nodes.

use hoplo_wire::peer::{FarValue, Peer};

use super::*;

impl Nodes {
    /// A call leaves node 0: under which cover, and the value that goes behind it.
    fn leaves(&mut self, frame: &Passing) -> (u64, Option<Box<Peer>>) {
        let shell = &mut self.shells[0];
        shell.hears(Event::Passing { ticket: 1, frame: frame.clone() });
        let cover = shell.take(|effect| match effect {
            Effect::Go { ticket: 1, cover } => Some(*cover),
            _ => None,
        });
        let value = shell.take(|effect| match effect {
            Effect::SendPeer { message, .. } if matches!(**message, Peer::Value { .. }) => {
                Some(message.clone())
            }
            _ => None,
        });
        (cover.expect("it goes on"), value)
    }

    /// It arrives at node 1.
    fn comes(&mut self, frame: &Passing, cover: u64, value: Option<Box<Peer>>) {
        let frame = Passing { arrived: Some(cover), ..frame.clone() };
        self.shells[1].hears(Event::Passing { ticket: 1, frame });
        assert!(self.shells[1].take(|it| matches!(it, Effect::Go { .. }).then_some(())).is_some());
        if let Some(message) = value {
            self.shells[1].hears(Event::Peer { from: number(0), cover: 0, message });
        }
    }
}

#[test]
fn a_small_value_goes_behind_the_call_that_names_it_and_its_reader_asks_nobody() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    nodes.says(0, driver, ToNode::Connect { to: worker });
    let (object, frame) = nodes.calls_with_a_value(driver, worker);
    let (cover, value) = nodes.leaves(&frame);
    let sent = Peer::Value { object, value: FarValue::Inline((*b"x").into()), contains: vec![] };
    assert_eq!(value.as_deref(), Some(&sent));
    nodes.comes(&frame, cover, value);
    nodes.shells[1].says(worker, ToNode::Want { objects: vec![object] });
    let ready = nodes.shells[1].told(worker, |message| match message {
        ToClient::Ready { object, .. } => Some(*object),
        _ => None,
    });
    assert_eq!(ready, Some(object), "at once");
    // That node has it: another call does not bring it again.
    let second = Passing { tag: 2, ..frame.clone() };
    let (cover, value) = nodes.leaves(&second);
    assert_eq!(value, None);
    nodes.comes(&second, cover, None);
    // Once both calls are over, it has not.
    for call in [&frame, &second] {
        let reply = Passing { is_reply: true, is_last: true, named: vec![], ..call.clone() };
        nodes.passes(1, reply);
    }
    let (_, value) = nodes.leaves(&Passing { tag: 3, ..frame });
    assert_eq!(value.as_deref(), Some(&sent));
}
