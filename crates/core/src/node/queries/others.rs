//! Questions of people that all nodes are asked: what goes to them, and what comes from them (`node/queries`).

use std::collections::BTreeSet;

use hoplo_base::limits::{FAR_ANSWER_BYTES_MAX, FAR_ANSWER_PART_BYTES, INSPECT_PATIENCE};
use hoplo_base::{NodeNumber, ProcessId, Size};
use hoplo_wire::peer::Peer;
use hoplo_wire::why::{Question, Told};

use super::round::{Asker, Heard, Topic, bytes_of};
use super::subject::Here;
use crate::node::Node;
use crate::node::queue::Work;
use crate::sched::claim::silence_of_head;

impl Node {
    /// An answer reaches it.
    pub(in crate::node) fn hears(&self, asker: Asker) -> bool {
        match asker {
            Asker::Process(process) => self.speaks(process),
            Asker::Node(node) => self.is_other_node(node),
        }
    }

    /// Who asks is told of other nodes as well, and there are some.
    pub(in crate::node) fn asks_others(&self, asker: Asker) -> bool {
        matches!(asker, Asker::Process(_)) && self.other_nodes().next().is_some()
    }

    pub(super) fn silence(&self, node: NodeNumber) -> String {
        let name = self.node_name(node);
        format!("{name} did not answer within {} s", INSPECT_PATIENCE.as_secs())
    }

    /// Those that are awaited: neither a head that is known to be silent nor a node that is not reached. That one is asked all the same: who
    /// asks it finds out that it is reached again.
    pub(super) fn ask_nodes(
        &mut self,
        request: u64,
        topic: &mut Topic,
        heard: &mut Heard,
    ) -> BTreeSet<NodeNumber> {
        let message = |node: NodeNumber| match &*topic {
            Topic::Here(here) => {
                let kind = here.kind().filter(|_| here.is_for(node));
                kind.map(|kind| query(request, kind, here.argument()))
            }
            Topic::Everywhere { subject, .. } => {
                Some(query(request, subject.kind(), subject.argument()))
            }
            Topic::Why { inquiry, .. } => inquiry.for_node(request, node),
            Topic::Memory { inquiry, .. } => inquiry.memory_of_node(request, node),
            Topic::Part { .. } => None,
        };
        // Others have none, and who hears nothing of the head must not be told that there are none.
        let of_head = matches!(topic, Topic::Here(Here::PlacementGroups));
        let is_asked = |node: NodeNumber| !of_head || self.is_head(node);
        let others = self.other_nodes().filter(|entry| is_asked(entry.node));
        let asked = others.filter_map(|entry| Some((entry.node, message(entry.node)?)));
        let mut asked: Vec<_> = asked.collect();
        if let Some((head, since)) = self.silent_head()
            && let Some(at) = asked.iter().position(|(node, _)| *node == head.node)
        {
            asked.remove(at);
            let silence = silence_of_head(&head.address, since, self.now);
            heard.others.missing.push(format!("{silence}: what only it knows is missing here"));
            if let Topic::Why { inquiry, .. } = topic {
                inquiry.cannot(head.node);
            }
        }
        let mut nodes: BTreeSet<NodeNumber> = asked.iter().map(|(node, _)| *node).collect();
        for (node, told) in self.unreached() {
            if nodes.remove(&node) {
                let waits = "calls and objects for it wait, and what only it knows is missing here";
                heard.others.missing.push(format!("{told}: {waits}"));
                if let Topic::Why { inquiry, .. } = topic {
                    inquiry.cannot(node);
                }
            }
        }
        if of_head && self.lacks_head() {
            let none = || "this node has heard of no head yet".to_string();
            let silence = self.silence_of_head().unwrap_or_else(none);
            heard.others.missing.push(format!("{silence}: what only it knows is missing here"));
        }
        for (node, message) in asked {
            self.send_peer(node, message);
        }
        nodes
    }

    /// To another node, in parts that leave room for what else there is to say.
    pub(in crate::node) fn answer_node(
        &mut self,
        node: NodeNumber,
        request: u64,
        result: Result<String, String>,
    ) {
        let text = match result {
            Ok(text) if text.len() > FAR_ANSWER_BYTES_MAX => {
                let result = Err(too_long(text.len()));
                return self.send_peer(node, Peer::Answer { request, result, more: false });
            }
            Ok(text) => text,
            Err(why) => {
                let result = Err(why);
                return self.send_peer(node, Peer::Answer { request, result, more: false });
            }
        };
        let mut rest = text.as_str();
        loop {
            let mut end = rest.len().min(FAR_ANSWER_PART_BYTES);
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            let (part, after) = rest.split_at(end);
            let more = !after.is_empty();
            let result = Ok(part.to_string());
            self.send_peer(node, Peer::Answer { request, result, more });
            if !more {
                return;
            }
            rest = after;
        }
    }

    pub(in crate::node) fn on_node_answer(
        &mut self,
        from: NodeNumber,
        number: u64,
        result: Result<String, String>,
        more: bool,
    ) {
        let name = self.node_name(from);
        let Some(round) = self.queries.open.get_mut(&number) else { return };
        if !round.nodes.contains(&from) {
            return;
        }
        let bytes = match &result {
            Ok(text) | Err(text) => text.len(),
        };
        match result {
            Ok(part) => round.heard.begun.entry(from).or_default().push_str(&part),
            Err(why) => {
                round.heard.begun.remove(&from);
                round.heard.others.missing.push(format!("{name}: {why}"));
                if let Topic::Why { inquiry, .. } = &mut round.topic {
                    inquiry.cannot(from);
                }
            }
        }
        if !more {
            round.nodes.remove(&from);
            if let Some(text) = round.heard.begun.remove(&from) {
                round.heard.others.told.push((from, text));
            }
        }
        self.has_heard(number, bytes);
    }

    pub(in crate::node) fn on_node_explained(
        &mut self,
        from: NodeNumber,
        number: u64,
        told: Told,
        late: Vec<ProcessId>,
        names: Vec<(ProcessId, String)>,
    ) {
        let Some(round) = self.queries.open.get_mut(&number) else { return };
        if !round.nodes.remove(&from) {
            return;
        }
        let bytes = bytes_of(&told)
            + size_of_val(late.as_slice())
            + names
                .iter()
                .map(|(_, name)| size_of::<(ProcessId, String)>() + name.len())
                .sum::<usize>();
        match &mut round.topic {
            Topic::Why { inquiry, told: all } => {
                all.push(told);
                inquiry.is_late(late.into_iter().collect(), BTreeSet::new());
                inquiry.hears_names(names);
            }
            // It was asked something else: that is as good as no answer.
            Topic::Here(_)
            | Topic::Everywhere { .. }
            | Topic::Memory { .. }
            | Topic::Part { .. } => {}
        }
        self.has_heard(number, bytes);
    }

    /// A round of another node's `why` is over here. `late`: processes of this node.
    pub(super) fn answer_part(
        &mut self,
        asker: Asker,
        request: u64,
        question: &Question,
        told: Vec<Told>,
        late: BTreeSet<ProcessId>,
        mut named: Vec<ProcessId>,
    ) {
        let Asker::Node(node) = asker else {
            unreachable!("{asker:?} asks all of a `why`, and no part of it");
        };
        let told = self.part_of_why(question, told);
        let bytes = bytes_of(&told);
        if bytes > FAR_ANSWER_PART_BYTES {
            return self.answer_node(node, request, Err(too_long(bytes)));
        }
        if let Told::Links(links) = &told {
            named.extend(links.iter().flat_map(|link| link.says.processes()));
        }
        named.extend(&late);
        named.sort_unstable();
        named.dedup();
        let names = named.into_iter().filter_map(|id| Some((id, self.own_name(id)?))).collect();
        let late = late.into_iter().collect();
        self.send_peer(node, Peer::Explained { request, told, late, names });
    }

    /// It says nothing any more, and needs no answer.
    pub(in crate::node) fn node_gone_in_queries(&mut self, node: NodeNumber, why: &str) {
        let name = self.node_name(node);
        for (number, round) in &mut self.queries.open {
            let awaited = round.nodes.remove(&node);
            if awaited {
                round.heard.begun.remove(&node);
                let died = format!("{name} died while it was asked: {why}");
                round.heard.others.missing.push(died);
            }
            if round.asker == Asker::Node(node) || (awaited && round.is_over()) {
                self.queue.push_back(Work::EndRound(*number));
            }
        }
    }
}

fn query(request: u64, kind: &str, argument: String) -> Peer {
    Peer::Query { request, kind: kind.to_string(), argument }
}

fn too_long(bytes: usize) -> String {
    let bytes = Size(bytes as u64);
    format!("what it has to tell is {bytes}, too much for another node: ask on that node itself")
}
