//! Reduces: objects in the stores of nodes, folded on their way to this one.

use hoplo_base::ObjectId;
use hoplo_wire::node::{ToClient, ToNode};
use hoplo_wire::{FoldOp, Value};

use crate::ask::{GivesUp, answer_of};
use crate::client::Client;

impl Client {
    /// One object that all of these give together, which lie in stores and which this process holds. The caller owns one reference.
    /// Err: it cannot be made so, for this reason. Waits for the daemon (no GIL).
    pub fn reduce(
        &self,
        op: FoldOp,
        members: Vec<ObjectId>,
        gives_up: GivesUp<'_>,
    ) -> Result<ObjectId, String> {
        if !self.are_stored(&members) {
            return Err("a member is in no store".to_string());
        }
        let (request, receiver) = self.requests.lock().open();
        self.say(&ToNode::Reduce { request, op, members });
        let in_time = answer_of(&receiver, None, gives_up);
        let given_up = in_time.is_none();
        // It is answered all the same: the daemon may have given us a token already.
        let answer = in_time.or_else(|| {
            self.say(&ToNode::ReduceOver { request });
            answer_of(&receiver, None, &mut || self.gone.get().is_some())
        });
        let Some(ToClient::Reduced { result, .. }) = answer else {
            self.requests.lock().forget(request);
            return Err(self.died().text());
        };
        let made = result?;
        self.core.within(|core| core.session.given(made));
        if given_up {
            self.drop_ref(made);
            return Err("it was given up".to_string());
        }
        Ok(made)
    }

    /// Whether this process knows that all of these have values, which lie in stores.
    pub fn are_stored(&self, objects: &[ObjectId]) -> bool {
        let core = self.core.lock();
        let stored = |object| matches!(core.session.value(object), Some(Value::Stored(_)));
        objects.iter().all(|object| stored(*object))
    }
}
