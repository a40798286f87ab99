//! Which calls were asked back from a worker of another node, and what its answers are about.

use hoplo_base::Map;

/// Of one worker. Its answers come in the order of the questions, maybe long after them: a call may have been replied to meanwhile, and
/// been placed there again. Then *kept* may be said of what was replied to, and tells nothing of the call that lies there now. *Taken back*
/// is always said of that one, whichever question found it: a question and a call go different ways.
#[derive(Debug, Default)]
pub struct AskedBack(Map<u64, Questions>);

#[derive(Clone, Copy, Debug, Default)]
struct Questions {
    open: u32,
    /// So many of the oldest ones are from before the call was placed there last.
    stale: u32,
}

impl AskedBack {
    /// Leaves those that are not asked for already, as they lie there now.
    pub fn ask(&mut self, seqs: &mut Vec<u64>) {
        seqs.retain(|seq| {
            let asked = self.0.entry(*seq).or_default();
            let asks = asked.open == asked.stale;
            asked.open += u32::from(asks);
            asks
        });
    }

    /// Its last reply came.
    pub fn replied(&mut self, seq: u64) {
        if let Some(asked) = self.0.get_mut(&seq) {
            asked.stale = asked.open;
        }
    }

    /// Leaves what is said of calls that lie there.
    pub fn answered(&mut self, revoked: &[u64], kept: &mut Vec<u64>) {
        for seq in revoked {
            self.is_answered(*seq);
            self.replied(*seq); // it lies there no more
        }
        kept.retain(|seq| !self.is_answered(*seq));
    }

    /// True if the question was stale.
    fn is_answered(&mut self, seq: u64) -> bool {
        let Some(asked) = self.0.get_mut(&seq) else { return false };
        let stale = asked.stale > 0;
        asked.open -= 1;
        asked.stale -= u32::from(stale);
        if asked.open == 0 {
            self.0.remove(&seq);
        }
        stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(asked: &mut AskedBack, seqs: &[u64]) -> Vec<u64> {
        let mut seqs = seqs.to_vec();
        asked.ask(&mut seqs);
        seqs
    }

    /// What is left of such an answer.
    fn answer(asked: &mut AskedBack, revoked: &[u64], kept: &[u64]) -> Vec<u64> {
        let mut kept = kept.to_vec();
        asked.answered(revoked, &mut kept);
        kept
    }

    #[test]
    fn what_is_asked_for_is_not_asked_for_again_before_the_answer() {
        let mut asked = AskedBack::default();
        assert_eq!(ask(&mut asked, &[1, 2]), [1, 2]);
        assert_eq!(ask(&mut asked, &[2, 3]), [3]);
        assert_eq!(answer(&mut asked, &[1], &[2]), [2]);
        assert_eq!(ask(&mut asked, &[2, 3]), [2]);
    }

    /// A task that raised lay at its worker again, behind one that waited for it. It was asked back, and the answer to an older question,
    /// which was about its first run, was taken for the answer: nobody asked any more, and both waited for ever.
    #[test]
    fn an_answer_about_a_call_that_was_replied_to_is_not_about_the_one_that_came_again() {
        let mut asked = AskedBack::default();
        assert_eq!(ask(&mut asked, &[2, 3]), [2, 3]);
        asked.replied(2);
        assert_eq!(ask(&mut asked, &[3, 2]), [2]);
        assert_eq!(answer(&mut asked, &[], &[2, 3]), [3]);
        assert_eq!(ask(&mut asked, &[2]), [], "its own answer is still to come");
        assert_eq!(answer(&mut asked, &[2], &[]), []);
        assert!(asked.0.is_empty());
    }

    /// The older question came after the call that was placed again: it takes that back, and the younger one finds nothing.
    #[test]
    fn a_question_may_overtake_the_call_or_not() {
        let mut asked = AskedBack::default();
        ask(&mut asked, &[2]);
        asked.replied(2);
        assert_eq!(ask(&mut asked, &[2]), [2]);
        assert_eq!(answer(&mut asked, &[2], &[]), []);
        // It is placed there once more.
        assert_eq!(ask(&mut asked, &[2]), [2]);
        assert_eq!(answer(&mut asked, &[], &[2]), [], "the younger one's");
        assert_eq!(answer(&mut asked, &[], &[2]), [2]);
        assert!(asked.0.is_empty());
    }
}
