//! Bytes become frames, and the first one says who is there.

use std::io;
use std::time::Instant;

use hoplo_base::limits::NET_UNFINISHED_BYTES_MAX;

use super::{Gone, Happening, Hub, SCRATCH_BYTES, Stage, TURN_BYTES_MAX};
use crate::door::Origin;
use crate::inbox::Landing;
use crate::link::{Filled, LinkId};
use crate::protocol::{Meaning, NotAdmitted, Protocol, Standing};

impl<P: Protocol> Hub<P> {
    pub(super) fn read(
        &mut self,
        id: LinkId,
        happenings: &mut Vec<Happening<P>>,
        landing: &mut dyn Landing,
    ) {
        let Some(open) = self.links.get_mut(&id) else { return };
        let limit = if open.stage == Stage::Open { TURN_BYTES_MAX } else { SCRATCH_BYTES };
        let filled = open.link.fill::<P>(id, &mut self.scratch, limit, landing);
        if open.stage == Stage::Greeting
            && matches!(filled, Ok(Filled::Dry | Filled::More))
            && let Some(room) = &mut self.room
        {
            room.door.spoke(id);
        }
        loop {
            let Some(open) = self.links.get_mut(&id) else { return };
            match open.link.take::<P>() {
                Ok(Some(frame)) => match (P::meaning(frame), open.stage) {
                    (Meaning::Refusal(why), _) => {
                        let gone = Gone::Unfit { peer: open.peer.clone(), why };
                        self.end(id, gone);
                    }
                    (Meaning::Other(frame), Stage::Open) => {
                        happenings.push(Happening::Frame { link: id, frame });
                    }
                    (Meaning::Hello(theirs), Stage::Connecting | Stage::Greeting) => {
                        self.greeted(id, theirs, happenings);
                    }
                    (Meaning::Hello(_), Stage::Open) => self.out_of_turn(id, "a second hello came"),
                    (Meaning::Other(frame), Stage::Connecting | Stage::Greeting) => {
                        let why = format!("{} came instead of a hello", P::name(&frame));
                        self.out_of_turn(id, &why);
                    }
                },
                Ok(None) => break,
                Err(error) => self.out_of_turn(id, &error.to_string()),
            }
        }
        match filled {
            Ok(Filled::Dry | Filled::More) => self.count_unfinished(id),
            Ok(Filled::Closed) => self.end_broken(id, "the other end closed the connection"),
            // TLS says so: trying again is of no use.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let Some(open) = self.links.get(&id) else { return };
                let gone = Gone::Unfit { peer: open.peer.clone(), why: self.explain(&error) };
                self.counters.broken += 1;
                self.end(id, gone);
            }
            Err(error) => self.end_broken(id, &error.to_string()),
        }
    }

    fn explain(&self, error: &io::Error) -> String {
        let of_tls = error.get_ref().and_then(|it| it.downcast_ref::<rustls::Error>());
        match (of_tls, &self.options.identity) {
            (Some(error), Some(identity)) => identity.explain(error),
            (_, _) => error.to_string(),
        }
    }

    /// What has no business here ends the connection.
    fn out_of_turn(&mut self, id: LinkId, why: &str) {
        let Some(open) = self.links.get_mut(&id) else { return };
        self.counters.bad_frames += 1;
        open.link.push::<P>(&P::refusal(why.to_string()));
        self.end_broken(id, why);
    }

    /// The first frame of the other end.
    fn greeted(&mut self, id: LinkId, theirs: P::Hello, happenings: &mut Vec<Happening<P>>) {
        let Some(open) = self.links.get(&id) else { return };
        let shown = open.link.shown();
        let admitted = shown.map_err(NotAdmitted::Claim).and_then(|shown| {
            P::admit(&self.options.hello, &theirs, shown.as_ref()).map(|it| (it, shown))
        });
        let (admitted, shown) = match admitted {
            Ok(admitted) => admitted,
            Err(why) => return self.not_admitted(id, &why),
        };
        let dialled = open.origin.is_none();
        if let (false, Standing::Client) = (dialled, admitted.standing)
            && let Err(why) = self.has_room()
        {
            return self.turned_away(id, why);
        }
        let Some(open) = self.links.get_mut(&id) else { return };
        open.stage = Stage::Open;
        self.opens_by.remove(&(open.opens_by, id));
        open.standing = Some(admitted.standing);
        open.link.allow(admitted.frame_bytes_max);
        if !dialled {
            open.peer = P::describe(&theirs);
            open.link.push::<P>(&P::hello(self.options.hello.clone()));
        }
        match (admitted.standing, open.origin) {
            (Standing::Client, Some(_)) => self.clients += 1,
            (Standing::Member, Some(Origin::Host(host))) => {
                self.known.insert(host);
            }
            (Standing::Member, Some(Origin::Local) | None) | (Standing::Client, None) => {}
        }
        if let Some(room) = &mut self.room {
            room.door.forget(id);
        }
        happenings.push(Happening::Opened { link: id, theirs, shown, dialled });
    }

    fn not_admitted(&mut self, id: LinkId, why: &NotAdmitted) {
        let Some(open) = self.links.get_mut(&id) else { return };
        match why {
            NotAdmitted::Mismatch(_) => self.counters.refused_hellos += 1,
            NotAdmitted::Claim(_) => self.counters.refused_claims += 1,
        }
        open.link.push::<P>(&P::refusal(why.to_string()));
        let gone = Gone::Unfit { peer: open.peer.clone(), why: why.to_string() };
        self.end(id, gone);
    }

    /// HUB-2: when messages that are not finished hold too much together, the client goes whose holds most.
    fn count_unfinished(&mut self, id: LinkId) {
        let Some(open) = self.links.get_mut(&id) else { return };
        if open.standing != Some(Standing::Client) {
            return;
        }
        let now = open.link.unfinished_bytes();
        self.unfinished_bytes = self.unfinished_bytes - open.unfinished_bytes + now;
        open.unfinished_bytes = now;
        if self.unfinished_bytes > NET_UNFINISHED_BYTES_MAX {
            let most = self.links.iter().max_by_key(|(_, open)| open.unfinished_bytes);
            let most = most.map(|(most, _)| *most).expect("one of them is over");
            self.out_of_turn(most, "messages of clients that are not finished hold too much");
        }
    }

    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        while let Some((_, id)) = self.opens_by.first().copied().filter(|(by, _)| *by <= now) {
            self.opens_by.pop_first();
            self.end_broken(id, "no answer in time");
        }
    }
}
