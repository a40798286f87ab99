//! Assemblies: parts of objects of other nodes, brought together in this process's room.

use std::sync::Arc;

use hoplo_wire::Part;
use hoplo_wire::node::{ToClient, ToNode};

use crate::ask::{GivesUp, answer_of};
use crate::client::Client;
use crate::reduces::Made;
use crate::values::Allocation;

impl Client {
    /// Room of so many bytes, in which these parts lie: they are in the order of `at`, do not overlap, and their objects are held by this process. What lies between
    /// them is for the caller to write. Or why it cannot be had so. Waits for the daemon (no GIL).
    pub fn assemble(
        self: &Arc<Self>,
        bytes: u64,
        parts: Vec<Part>,
        gives_up: GivesUp<'_>,
    ) -> Result<Made, String> {
        let (request, receiver) = self.requests.lock().open();
        self.say(&ToNode::Assemble { request, bytes, parts });
        let answer = answer_of(&receiver, None, gives_up).or_else(|| {
            // It is answered all the same: the room may have been handed over already.
            self.say(&ToNode::AssembleOver { request });
            answer_of(&receiver, None, &mut || self.gone.get().is_some())
        });
        let Some(ToClient::Assembled { result, .. }) = answer else {
            self.requests.lock().forget(request);
            return Err(self.died().text());
        };
        let location = result?;
        let room = self.store.lock().take_room(location);
        Ok(Made::new(Allocation::new(self, room, location.len as usize)))
    }
}
