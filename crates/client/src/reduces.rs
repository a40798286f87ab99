//! Reduces: objects in the stores of nodes, folded on their way to this one.

use std::sync::Arc;

use hoplo_base::ObjectId;
use hoplo_core::collective;
use hoplo_wire::layout::Layout;
use hoplo_wire::node::{ToClient, ToNode};
use hoplo_wire::{NoReduce, Value, Wish};

use crate::ask::{GivesUp, answer_of};
use crate::client::Client;
use crate::values::Allocation;

impl Client {
    /// What all of these give together, which lie in stores and which this process holds. It is written and not sealed.
    /// Waits for the daemon (no GIL).
    pub fn reduce(
        self: &Arc<Self>,
        wish: Wish,
        members: Vec<ObjectId>,
        gives_up: GivesUp<'_>,
    ) -> Result<Made, NoReduce> {
        if !self.are_stored(&members) {
            return Err(NoReduce::new("a member is in no store", false));
        }
        let (request, receiver) = self.requests.lock().open();
        let awaited = wish.for_all.map(|_| request);
        self.say(&ToNode::Reduce { request, wish, members });
        let in_time = answer_of(&receiver, None, gives_up);
        let given_up = in_time.is_none();
        // It is answered all the same: the daemon may have handed it over already.
        let answer = in_time.or_else(|| {
            self.say(&ToNode::ReduceOver { request });
            answer_of(&receiver, None, &mut || self.gone.get().is_some())
        });
        let Some(ToClient::Reduced { result, .. }) = answer else {
            self.requests.lock().forget(request);
            return Err(NoReduce::new(self.died().text(), false));
        };
        let location = result?;
        let room = self.store.lock().take_over(location);
        let allocation = Allocation::new(self, room, location.len as usize);
        let made = Made { allocation: Some(allocation), awaited };
        if given_up {
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

/// What nodes folded: it lies in the store, and is no object yet.
pub struct Made {
    allocation: Option<Allocation>,
    /// The request, if other nodes wait for the word that it has become the result.
    awaited: Option<u64>,
}

impl Made {
    /// To be sealed as the result that was named.
    pub fn into_result(mut self) -> Allocation {
        self.allocation.take().expect("only the end takes it")
    }

    /// To be sealed as anything else.
    pub fn into_other(mut self) -> Allocation {
        self.is_no_result();
        self.allocation.take().expect("only the end takes it")
    }

    /// Whether all numbers can be divided. Then they were, if that was wished for.
    pub fn divides(&mut self) -> bool {
        let bytes = self.allocation.as_mut().and_then(Allocation::bytes_mut);
        let layout = Layout::of(bytes.expect("nodes fold in the arena"));
        layout.is_ok_and(|layout| layout.numbers().all(collective::divides))
    }

    /// Said before anything else can be sealed in its place (COLL-7).
    fn is_no_result(&mut self) {
        if let (Some(request), Some(allocation)) = (self.awaited.take(), &self.allocation) {
            allocation.client().say(&ToNode::ReduceOver { request });
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.is_no_result();
    }
}
