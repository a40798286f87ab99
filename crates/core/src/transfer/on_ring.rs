//! What this node made in a ring, or a train (`crates/core/src/collective`), and what has the same bytes as an object.
//!
//! ```text
//!   a fold --Received--> whole --FoldOver, sealed--> kept --somebody reads the result--> (sealed under its name: a copy like any other)
//!      |                   |                          |
//!      +- it fails --------+- FoldOver, else ---------+- RING_KEPT later, or room is needed --> (the directory frees it)
//! ```
//! All of its nodes end with all bytes. One of them gives them to the process that asked, which seals them as the **result**. So who reads the result at
//! another one has its bytes already. The directory does not know that: it orders a pull. That pull is whole at once, if the bytes are
//! here and it was said that they are the result's (COLL-7).
//!
//! The word that they are, or the last bytes, may come a little later than the order. Then the pull waits for both: for the fold has one end,
//! and who asked for it says one word. When it turns out that the bytes are not the result's, or they do not come, the result is fetched as any object is.

use hoplo_base::limits::RING_KEPT;
use hoplo_base::{Instant, ObjectId};

use super::Transfer;
use super::event::Effect;
use super::folding::{Fetch, Outcome};
use super::on_fold::Whole;

impl Transfer {
    /// The directory wants an object. What is made here may become it: then it is not fetched, or not yet.
    pub(super) fn comes_of_ring(
        &mut self,
        object: ObjectId,
        fetch: &Fetch,
        effects: &mut Vec<Effect>,
    ) -> bool {
        // What this node asked for is for the process that seals the result.
        let me = self.me;
        let folds = self.pulls.iter_mut().filter_map(|(made, pull)| {
            let fold = pull.fold.as_mut().filter(|fold| !fold.over && fold.asker != me)?;
            Some((*made, fold.outcome.as_mut()?))
        });
        let wholes = self.wholes.iter_mut().filter_map(|(made, whole)| {
            let outcome = whole.outcome.as_mut().filter(|_| whole.asker != me)?;
            Some((*made, outcome))
        });
        let Some((made, outcome)) =
            folds.chain(wholes).find(|(_, outcome)| outcome.result == object)
        else {
            return false;
        };
        outcome.wanted.get_or_insert_with(|| fetch.clone());
        self.settle(made, effects);
        true
    }

    /// Seals what is whole and is the result, if somebody reads it.
    pub(super) fn settle(&mut self, made: ObjectId, effects: &mut Vec<Effect>) {
        let is_to_seal = |whole: &Whole| {
            whole.outcome.as_ref().is_some_and(|it| it.sealed && it.wanted.is_some())
        };
        if !self.wholes.get(&made).is_some_and(is_to_seal) {
            return;
        }
        let Whole { location, outcome, .. } = self.takes_whole(made, true);
        let Outcome { result, .. } = outcome.expect("it was just there");
        effects.push(Effect::SealMade { object: result, location });
    }

    /// What was made is not needed, or not needed any more: it is the directory's to free.
    pub(super) fn let_go(&mut self, made: ObjectId, effects: &mut Vec<Effect>) {
        let Whole { location, outcome, .. } = self.takes_whole(made, false);
        effects.push(Effect::Seal { object: made, location });
        self.fetch_instead(outcome, effects);
    }

    /// The result does not come of what was to be made here.
    pub(super) fn fetch_instead(&mut self, outcome: Option<Outcome>, effects: &mut Vec<Effect>) {
        if let Some(Outcome { result, wanted: Some(fetch), .. }) = outcome {
            self.on_begin(result, fetch, effects);
        }
    }

    /// Nobody has read them here for a while, or no word of them came.
    pub(super) fn let_old_ones_go(&mut self, effects: &mut Vec<Effect>) {
        let now = self.now;
        self.let_those_go(|whole| whole.kept_until.is_some_and(|until| until <= now), effects);
    }

    /// Others need the room, or the place.
    pub(super) fn let_kept_ones_go(&mut self, effects: &mut Vec<Effect>) {
        self.let_those_go(|whole| whole.outcome.as_ref().is_some_and(|it| it.sealed), effects);
    }

    fn let_those_go(&mut self, which: impl Fn(&Whole) -> bool, effects: &mut Vec<Effect>) {
        let those = self.wholes.iter().filter(|(_, whole)| which(whole)).map(|(made, _)| *made);
        those.collect::<Vec<_>>().into_iter().for_each(|made| self.let_go(made, effects));
    }

    pub(super) fn next_to_let_go(&self) -> Option<Instant> {
        self.wholes.values().filter_map(|whole| whole.kept_until).min()
    }

    pub(super) fn keep_until(&self) -> Instant {
        self.now + RING_KEPT
    }
}
