//! Reduces: objects in the stores of nodes, folded on their way to this one.

use std::sync::Arc;

use hoplo_base::ObjectId;
use hoplo_core::collective;
use hoplo_wire::layout::{Layout, PartKind};
use hoplo_wire::node::{ToClient, ToNode};
use hoplo_wire::{FoldOp, NoReduce, Value};

use crate::ask::{GivesUp, answer_of};
use crate::client::Client;
use crate::values::Allocation;

impl Client {
    /// What all of these give together, which lie in stores and which this process holds. It is written and not sealed.
    /// Waits for the daemon (no GIL).
    pub fn reduce(
        self: &Arc<Self>,
        op: FoldOp,
        members: Vec<ObjectId>,
        gives_up: GivesUp<'_>,
    ) -> Result<Allocation, NoReduce> {
        if !self.are_stored(&members) {
            return Err(NoReduce::new("a member is in no store", false));
        }
        let (request, receiver) = self.requests.lock().open();
        self.say(&ToNode::Reduce { request, op, members });
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
        let made = Allocation::new(self, room, location.len as usize);
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

impl Allocation {
    /// Divides all numbers of the value by `count`. False if one is whole, and then nothing is changed.
    pub fn divide(&mut self, count: u32) -> bool {
        let bytes = self.bytes_mut().expect("nodes fold in the arena");
        let layout = Layout::of(bytes).expect("nodes fold what they know the layout of");
        if !layout.numbers().all(collective::divides) {
            return false;
        }
        let parts: Vec<_> = layout.between(0, bytes.len()).collect();
        for (part, start, end) in parts {
            if let PartKind::Numbers(numbers) = layout.parts()[part].kind {
                collective::divide(numbers, &mut bytes[start..end], count);
            }
        }
        true
    }
}
