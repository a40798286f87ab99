//! Placement groups: made, waited for and removed by the daemon.

use std::time::Duration;

use hoplo_base::{GroupId, ObjectId};
use hoplo_wire::Failure;
use hoplo_wire::node::{GroupSpec, GroupState, NoGroup, ToClient, ToNode};

use crate::ask::GivesUp;
use crate::client::Client;

/// Why a placement group was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupError {
    Not(NoGroup),
    NodeDied(Failure),
    /// By who asked. If it is made all the same, it is removed again.
    GivenUp,
}

impl Client {
    /// With why no node that is there now could ever hold it, if none could. Waits for the cluster's head, for as long as that takes (no
    /// GIL).
    pub fn create_group(
        &self,
        spec: GroupSpec,
        gives_up: GivesUp<'_>,
    ) -> Result<(GroupId, Option<String>), GroupError> {
        let spec = Box::new(spec);
        let message = |request| ToNode::GroupCreate { request, spec };
        match self.ask(None, gives_up, message) {
            Some(ToClient::GroupCreated { result, .. }) => result.map_err(GroupError::Not),
            _ if self.gone.get().is_some() => Err(GroupError::NodeDied(self.died())),
            _ => Err(GroupError::GivenUp),
        }
    }

    /// Until it is created, or removed. `None`: it is neither within that time. Waits for the daemon (no GIL).
    pub fn wait_group(
        &self,
        group: GroupId,
        timeout: Option<Duration>,
        gives_up: GivesUp<'_>,
    ) -> Result<Option<GroupState>, Failure> {
        let watch = |request| ToNode::GroupWatch { request, group };
        let unwatch = |request| Some(ToNode::GroupUnwatch { request, group });
        match self.ask_until(timeout, gives_up, watch, unwatch) {
            Some(ToClient::GroupState { state, .. }) => Ok(Some(state)),
            _ => self.gone.get().map_or(Ok(None), |failure| Err(failure.clone())),
        }
    }

    /// An object that gets `value` once the group is created. The caller owns one reference.
    pub fn group_ready(&self, group: GroupId, value: Vec<u8>) -> ObjectId {
        let mut core = self.core.lock();
        let core = &mut *core;
        let (now, parent) = (self.now(), core.running);
        let object = core.session.group_ready(now, group, value, parent, &mut core.effects);
        self.carry_out(core);
        self.arm(core);
        object
    }

    pub fn remove_group(&self, group: GroupId) {
        self.say(&ToNode::GroupRemove { group });
    }
}
