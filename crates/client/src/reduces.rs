//! Reduces: objects in the stores of nodes, folded on their way to this one.

use hoplo_base::ObjectId;
use hoplo_wire::node::{ToClient, ToNode};
use hoplo_wire::{FoldOp, NoReduce, Value};

use crate::ask::{GivesUp, answer_of};
use crate::client::Client;

impl Client {
    /// One object that all of these give together, which lie in stores and which this process holds. The caller owns one reference.
    /// Waits for the daemon (no GIL).
    pub fn reduce(
        &self,
        op: FoldOp,
        members: Vec<ObjectId>,
        gives_up: GivesUp<'_>,
    ) -> Result<ObjectId, NoReduce> {
        if !self.are_stored(&members) {
            return Err(NoReduce::new("a member is in no store", false));
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
            return Err(NoReduce::new(self.died().text(), false));
        };
        let made = result?;
        self.core.within(|core| core.session.given(made));
        if given_up {
            self.drop_ref(made);
            return Err(NoReduce::new("it was given up", false));
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
