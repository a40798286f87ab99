//! Objects that are at home elsewhere, and bytes that come from elsewhere.
//!
//! ```text
//!   first use                    somebody waits            the home told it
//!  (nothing) ---> Foreign --------------------> asked -----------------------> Inline | Failed
//!      |            ^                             |  it is stored
//!      |            | all copies failed once*     v             somebody waits
//!      |            +------------------------ Elsewhere --------------------------> pulling
//!      |                                                                              | the haul sealed it
//!      +---a worker of this node sealed it---> Stored, Mapped ... <-------------------+
//! ```
//! \* A second time who waits hears of it: `ObjectLost`. It does not count if one of the nodes that were to have it died meanwhile, since those that
//! relay it fail by that as well: the home hears of that death, and names another copy, or has it made again. So such failures are no more than there
//! are deaths.
//! - **Claimed**: this node uses it, as the home's directory is to know. The first use says `Foreign`; a sweep that finds none
//!   left says `Unforeign`.
//! - **Kept**: its home knows that the bytes are here, and may send others here. So they stay until it says `Forgotten`, used here
//!   or not.
//! - **Secondary**: the bytes were fetched, and are kept like others. When the arena is full, they go first: nothing is written, and their
//!   home hears that they are gone. For the node that they were made from keeps its copy, until it dies: so from the death of any
//!   node on what was fetched before is treated like what was made here (OBJ-15).
//! - No value is no loss: nothing here decides that a foreign object has none. Its home says it, or its death does.
//!
//! What is at home here and lies elsewhere (`on_far`) is pulled in the same way.
//!
//! The **haul** is the daemon's own party. It writes what is pulled, and reads what other nodes fetch. It has no tokens: what it seals
//! and nobody asked for is freed.

use hoplo_base::{ObjectId, ProcessId};
use hoplo_wire::node::ToClient;
use hoplo_wire::peer::FarValue;
use hoplo_wire::{Failure, FailureKind, Location};

use super::ObjectDirectory;
use super::event::Need;
use super::event::{CopyAt, Effect, Refusal, SpillPlace};
use super::on_loss::Loss;
use super::record::{Record, State, elsewhere};

impl ObjectDirectory {
    /// If somebody waits for what is not here: its home is asked for it, or its bytes are fetched; once.
    pub(super) fn fetch_if_wanted(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(record) = self.records.get_mut(&object) else { return };
        if record.waiting.is_empty() && !record.is_to_come() {
            return;
        }
        let is_to_read = record.is_to_read() || record.is_to_come();
        match &mut record.state {
            State::Foreign { asked: asked @ false, .. } => {
                *asked = true;
                effects.push(Effect::AskHome { object });
            }
            State::Elsewhere { .. } if is_to_read => self.pull(object, effects),
            State::Foreign { asked: true, .. }
            | State::Elsewhere { .. }
            | State::Unknown { .. }
            | State::Handle
            | State::Pending { .. }
            | State::Orphaned { .. }
            | State::Inline(_)
            | State::Failed(_)
            | State::Stored { .. }
            | State::Spilling { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => {}
        }
    }

    /// Its bytes are elsewhere: they are fetched, unless they are on their way.
    pub(super) fn pull(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let at_home = self.is_at_home(object);
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        let State::Elsewhere { bytes, pulling: pulling @ false, .. } = &mut record.state else {
            return;
        };
        *pulling = true;
        let bytes = *bytes;
        let (turn, sources) = if at_home {
            self.fetch_home(object)
        } else {
            let turn = record.abroad.as_ref().map_or(0, |abroad| abroad.turn);
            (turn, record.copies().collect())
        };
        effects.push(Effect::Pull { object, bytes, turn, sources });
        if at_home {
            // COPY-1: whoever it is fetched for, the copy that comes counts.
            self.make_copies(object, effects);
        }
    }

    pub(super) fn on_value_told(
        &mut self,
        object: ObjectId,
        value: FarValue,
        contains: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        let is_to_fetch = matches!(value, FarValue::Stored { bytes: 1.., .. });
        self.take_value(object, value, contains, effects);
        // What was asked twice (the record went meanwhile) is answered twice. Of a copy that is here its home has heard.
        let known = |it: &Record| it.state.is_pulling() || it.kept.is_some();
        if is_to_fetch && !self.records.get(&object).is_some_and(known) {
            effects.push(Effect::TellNotCopied { object });
        }
    }

    fn take_value(
        &mut self,
        object: ObjectId,
        value: FarValue,
        contains: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        // A worker of this node may have made it meanwhile, and nobody may use it any more.
        let Some(record) = self.records.get_mut(&object) else { return };
        let State::Foreign { again, .. } = record.state else { return };
        let state = match value {
            FarValue::Inline(bytes) => State::Inline(bytes),
            FarValue::Failed(failure) => State::Failed(failure),
            FarValue::Stored { bytes, turn, sources } => {
                record.located = true;
                let abroad = record.abroad();
                let others = sources.into_iter().filter(|it| *it != self.node);
                abroad.copies = others.map(|node| CopyAt { node, word: 0 }).collect();
                abroad.turn = turn;
                match elsewhere(bytes) {
                    State::Elsewhere { bytes, pulling, .. } => {
                        State::Elsewhere { bytes, pulling, again }
                    }
                    nothing => nothing,
                }
            }
        };
        if !matches!(state, State::Elsewhere { .. }) {
            record.abroad = None;
        }
        record.tidy();
        self.fulfil(object, state, contains, effects);
        self.touch(object);
    }

    /// A process of this node sealed it, and its bytes are here: now, or since it was sealed before.
    pub(super) fn tell_home(
        &mut self,
        (maker, holder): (ProcessId, ProcessId),
        object: ObjectId,
        (bytes, contains): (u64, Vec<ObjectId>),
        effects: &mut Vec<Effect>,
    ) {
        let word = self.keep_for_home(object);
        effects.push(Effect::TellHome { object, bytes, contains, maker, holder, word });
    }

    /// It stays until its home answers this number.
    pub(super) fn keep_for_home(&mut self, object: ObjectId) -> u64 {
        self.words += 1;
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        record.kept = Some(self.words);
        self.words
    }

    pub(super) fn on_made_here(&mut self, object: ObjectId) {
        let Some(record) = self.records.get_mut(&object) else { return };
        if let Some(abroad) = &mut record.abroad {
            abroad.turn = 0;
        }
    }

    /// The haul has written all its bytes. It is not needed where nobody asks for it any more, or it has another value here.
    pub(super) fn on_pulled(
        &mut self,
        object: ObjectId,
        location: Location,
        place: Option<SpillPlace>,
        effects: &mut Vec<Effect>,
    ) {
        let at_home = self.is_at_home(object);
        let wanted = self.records.get_mut(&object).filter(
            |record| matches!(record.state, State::Elsewhere { bytes, .. } if bytes == location.len),
        );
        let Some(record) = wanted else {
            self.free(object, location, place, effects);
            let is_kept = self.records.get(&object).is_some_and(|record| record.kept.is_some());
            if !at_home && !is_kept {
                effects.push(Effect::TellNotCopied { object });
            }
            return self.touch(object);
        };
        let turn = record.abroad.as_ref().map_or(0, |abroad| abroad.turn);
        if at_home {
            record.end_fetching(self.node);
            // Those that it was fetched from may be dead.
            let has_copies = record.copies().next().is_some();
            record.secondary = has_copies && record.copies.is_none();
        } else {
            record.secondary = record.to_keep == 0;
            record.abroad = None;
        }
        let state = match place {
            Some(place) => self.map(object, place, location),
            None => self.stored(object, location),
        };
        self.records.get_mut(&object).expect("it was just there").state = state;
        if !at_home {
            self.tell_copied(object, turn, effects);
        }
        self.answer(object, effects);
        self.answer_nodes(object, effects);
        self.leave_draining(object, effects);
    }

    pub(super) fn on_pull_failed(
        &mut self,
        object: ObjectId,
        why: &str,
        lost: bool,
        effects: &mut Vec<Effect>,
    ) {
        let at_home = self.is_at_home(object);
        let Some(record) = self.records.get_mut(&object).filter(|it| it.state.is_pulling()) else {
            return self.not_copied(object, effects);
        };
        let has_copies = record.copies().next().is_some();
        let State::Elsewhere { pulling, again, .. } = &mut record.state else { return };
        *pulling = false;
        // What went with a node is no try in vain: the home tells of another copy, or has it made again.
        let goes_on = lost || !*again;
        if !lost {
            *again = goes_on;
        }
        let again = *again;
        if at_home && !has_copies {
            let why = format!("no copy of it is left: {why}");
            return self.lose(object, Loss { node: None, why }, effects);
        }
        if !at_home {
            // It may have other copies by now.
            record.abroad = None;
            record.state = State::Foreign { asked: false, again };
        }
        if goes_on && (!record.waiting.is_empty() || record.is_to_come()) {
            // Its home hears that it was in vain by being asked again.
            return self.fetch_if_wanted(object, effects);
        }
        if goes_on {
            self.leave_draining(object, effects);
        }
        let record = self.records.get_mut(&object).expect("it was just there");
        if record.state.is_pulling() {
            return;
        }
        if let State::Elsewhere { again, .. } | State::Foreign { again, .. } = &mut record.state {
            *again = false;
        }
        record.to_keep = 0;
        self.not_copied(object, effects);
        let text = format!("{object} cannot be fetched from the nodes that have it: {why}");
        let refusal = Refusal { kind: FailureKind::ObjectLost, reason: text.into() };
        self.refuse(object, &refusal, effects);
        self.copy_refused(self.node, object, effects);
    }

    /// It stays where it is; who asks again is answered anew.
    pub(super) fn on_pull_denied(
        &mut self,
        object: ObjectId,
        failure: &Failure,
        effects: &mut Vec<Effect>,
    ) {
        let at_home = self.is_at_home(object);
        self.not_copied(object, effects);
        let Some(record) = self.records.get_mut(&object) else { return };
        let has_copies = record.copies().next().is_some();
        let State::Elsewhere { pulling: pulling @ true, .. } = &mut record.state else { return };
        *pulling = false;
        record.to_keep = 0;
        if !has_copies && at_home {
            let why = format!("no copy of it is left: {}", failure.text());
            return self.lose(object, Loss { node: None, why }, effects);
        }
        if !has_copies {
            record.state = State::Foreign { asked: false, again: false };
        }
        let refusal = Refusal { kind: failure.kind, reason: failure.text().into() };
        self.refuse(object, &refusal, effects);
        self.copy_refused(self.node, object, effects);
    }

    /// Its secondary copy is gone from this node: who wants it here fetches it again.
    pub(super) fn forsake(&mut self, object: ObjectId, bytes: u64, effects: &mut Vec<Effect>) {
        let at_home = self.is_at_home(object);
        let record = self.records.get_mut(&object).expect("it lives");
        record.secondary = false;
        record.kept = None;
        if at_home {
            record.state = elsewhere(bytes);
            if record.copies().next().is_none() {
                return self.lose(object, Loss::no_copy(), effects);
            }
        } else {
            record.state = State::Foreign { asked: false, again: false };
            effects.push(Effect::TellNotCopied { object });
        }
        self.touch(object);
        self.fetch_if_wanted(object, effects);
        self.make_copies(object, effects);
        self.leave_draining(object, effects);
    }

    /// Its home names this node to nobody any more.
    fn not_copied(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if !self.is_at_home(object) {
            // Unless it was made here meanwhile.
            if self.records.get(&object).is_none_or(|record| record.kept.is_none()) {
                effects.push(Effect::TellNotCopied { object });
            }
        } else if let Some(record) = self.records.get_mut(&object) {
            record.end_fetching(self.node);
        }
    }

    /// A word that is older than the last one is no answer to that: the copy is needed again.
    pub(super) fn on_forgotten(&mut self, object: ObjectId, word: u64) {
        if let Some(record) = self.records.get_mut(&object) {
            if record.kept.take_if(|kept| *kept == word).is_some() {
                record.to_keep = 0;
            }
            self.touch(object);
        }
    }

    pub(super) fn on_lost(&mut self, object: ObjectId, why: String, effects: &mut Vec<Effect>) {
        let Some(record) = self.records.get_mut(&object) else { return };
        // Its home is dead, or does not know it: nobody else will say that it may go.
        record.kept = None;
        record.to_keep = 0;
        // What is under way may come to its end; else the home is asked again.
        if record.state.depends_on_others() && !self.is_at_home(object) {
            self.fail_as_lost(object, why, effects);
        }
        self.touch(object);
    }

    /// A sweep found no use of it here, and its home knows of the copy.
    pub(super) fn unclaim(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        if std::mem::take(&mut record.claimed) {
            effects.push(Effect::Unforeign { object });
        }
        self.candidates.remove(&object);
    }

    /// The haul is to send it to another node: it is told where it lies, or that it is not here. Its home may have named this node to
    /// another one, which asks before its word is here: then it is told when it comes. Of a dead home's no word of that home comes, and its
    /// heir may be the one that asks. Nor is the home itself told later: if its word was not here when it asked, it may be waiting for this node
    /// to fetch what this node cannot fetch without another word. Nor is anybody, where a word came before and what it named failed: the home may
    /// be waiting for bytes from who asks here.
    pub(super) fn on_served(&mut self, object: ObjectId, by_home: bool, effects: &mut Vec<Effect>) {
        let tells = !by_home && !self.estates.has(object.task.owner.node());
        let is_asked = |it: &Record| matches!(it.state, State::Foreign { asked: true, .. });
        let comes = |it: &Record| tells && is_asked(it) && !it.located;
        if !self.records.get(&object).is_some_and(|it| it.state.is_here() || comes(it)) {
            return self.not_served(object, effects);
        }
        self.use_now(object);
        let record = self.records.get_mut(&object).expect("it was just there");
        if let Some(value) = record.state.value() {
            let message = ToClient::Ready { object, value, contains: Vec::new() };
            return effects.push(Effect::Send { to: self.haul, message });
        }
        record.waits_for(self.haul, Need::Bytes);
        self.index(object, self.haul);
        self.touch(object);
        self.restore_if_wanted(object, effects);
    }

    /// Who was to be sent it as soon as its home, which is dead, has told of it: the heir may be one of them, and waits itself.
    pub(super) fn comes_no_more(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        if record.waiting.remove(&self.haul).is_some() {
            self.index(object, self.haul);
            self.not_served(object, effects);
        }
    }

    fn not_served(&self, object: ObjectId, effects: &mut Vec<Effect>) {
        let text = format!("{object} is not at node {}", self.node.hex());
        let refusal = Refusal { kind: FailureKind::ObjectLost, reason: text.into() };
        effects.push(Effect::Refuse { to: self.haul, object, refusal });
    }
}
