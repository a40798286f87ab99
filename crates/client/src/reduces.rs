//! Reduces: objects in the stores of nodes, folded on their way to this one.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use hoplo_base::ObjectId;
use hoplo_wire::node::{ToClient, ToNode};
use hoplo_wire::{NoReduce, Value, Wish};

use crate::ask::{GivesUp, answer_of};
use crate::client::Client;
use crate::values::Allocation;

/// Gets members made again of which every copy is lost, and waits until they are there. False: it gives up.
pub type ComeAgain<'a> = &'a mut dyn FnMut(&[ObjectId]) -> bool;

impl Client {
    /// What all of these give together, which lie in stores and which this process holds. It is written and not sealed.
    /// Waits for the daemon (no GIL).
    pub fn reduce(
        self: &Arc<Self>,
        wish: Wish,
        members: Vec<ObjectId>,
        gives_up: GivesUp<'_>,
        come_again: ComeAgain<'_>,
    ) -> Result<Made, NoReduce> {
        self.begin_reduce(wish, members, false)?.made(gives_up, come_again)
    }

    /// With `more` others come with [`Reducing::add`].
    pub fn begin_reduce(
        self: &Arc<Self>,
        wish: Wish,
        members: Vec<ObjectId>,
        more: bool,
    ) -> Result<Reducing, NoReduce> {
        if !self.are_stored(&members) {
            return Err(NoReduce::new("a member is in no store", false));
        }
        let (request, receiver) = self.requests.lock().open();
        self.say(&ToNode::Reduce { request, wish, members, more });
        let for_all = wish.for_all.is_some();
        Ok(Reducing { client: Arc::clone(self), request, receiver, for_all })
    }

    /// Whether this process knows that all of these have values, which lie in stores.
    pub fn are_stored(&self, objects: &[ObjectId]) -> bool {
        let core = self.core.lock();
        let stored = |object| matches!(core.session.value(object), Some(Value::Stored(_)));
        objects.iter().all(|object| stored(*object))
    }

    /// Whether this process knows that it has a value, and that another node has it.
    pub fn is_elsewhere(&self, object: ObjectId) -> bool {
        let lies_at = self.core.lock().session.lies_at(object);
        lies_at.is_some_and(|(node, _)| node != self.welcome.node)
    }
}

/// What nodes fold for this process. Who has one waits for what is made, or gives it up.
#[must_use]
pub struct Reducing {
    client: Arc<Client>,
    request: u64,
    receiver: Receiver<ToClient>,
    for_all: bool,
}

impl Reducing {
    /// Members that are there now. Without `more` they are the last ones.
    pub fn add(&self, members: Vec<ObjectId>, more: bool) {
        self.client.say(&ToNode::ReduceMore { request: self.request, members, more });
    }

    /// Waits for it (no GIL).
    pub fn made(
        mut self,
        gives_up: GivesUp<'_>,
        come_again: ComeAgain<'_>,
    ) -> Result<Made, NoReduce> {
        loop {
            match answer_of(&self.receiver, None, gives_up) {
                Some(ToClient::Reduced { result: Err(no), .. }) if no.goes_on => {
                    if !come_again(&no.lost) {
                        self.client.say(&ToNode::ReduceOver { request: self.request });
                        return Err(NoReduce { goes_on: false, ..no });
                    }
                    let was = self.request;
                    (self.request, self.receiver) = self.client.requests.lock().open();
                    self.client.say(&ToNode::ReduceMended { request: self.request, was });
                }
                Some(answer) => return self.take(Some(answer)),
                None => {
                    self.give_up();
                    return Err(NoReduce::new("it was given up", false));
                }
            }
        }
    }

    /// Nobody waits for it any more. It is answered all the same: the daemon may have handed it over already.
    pub fn give_up(self) {
        self.client.say(&ToNode::ReduceOver { request: self.request });
        let answer = answer_of(&self.receiver, None, &mut || self.client.gone.get().is_some());
        drop(self.take(answer));
    }

    fn take(self, answer: Option<ToClient>) -> Result<Made, NoReduce> {
        let Self { client, request, for_all, .. } = self;
        let Some(ToClient::Reduced { result, .. }) = answer else {
            client.requests.lock().forget(request);
            return Err(NoReduce::new(client.died().text(), false));
        };
        let location = result?;
        let room = client.store.lock().take_over(location);
        let allocation = Allocation::new(&client, room, location.len as usize);
        Ok(Made { allocation: Some(allocation), awaited: for_all.then_some(request) })
    }
}

/// What nodes folded, or assembled: it lies in the store, and is no object yet.
pub struct Made {
    allocation: Option<Allocation>,
    /// The request, if other nodes wait for the word that it has become the result.
    awaited: Option<u64>,
}

impl Made {
    /// For nobody but its task.
    pub(crate) fn new(allocation: Allocation) -> Self {
        Self { allocation: Some(allocation), awaited: None }
    }

    /// Where it begins.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.allocation.as_ref().expect("only the end takes it").as_mut_ptr()
    }

    /// To be sealed as the result that was named.
    pub fn into_result(mut self) -> Allocation {
        self.allocation.take().expect("only the end takes it")
    }

    /// To be sealed as anything else.
    pub fn into_other(mut self) -> Allocation {
        self.is_no_result();
        self.allocation.take().expect("only the end takes it")
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
