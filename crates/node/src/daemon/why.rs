//! What this shell remembers of a thing, for `hoplo why`: rows of tasks that were lost, and the node's story.

use hoplo_base::AnyId;

use crate::daemon::Daemon;
use crate::journal;

impl Daemon {
    /// The lines of the chain, then what is remembered of that id.
    pub(crate) fn remembered(&self, mut lines: Vec<String>, of: Option<AnyId>) -> Vec<String> {
        let Some(id) = of else { return lines };
        lines.extend(self.why_lost(id));
        let task = match id {
            AnyId::ShortTask(task) => Some((task.owner_count, task.seq)),
            AnyId::Task(task) => Some((task.owner.count(), task.seq)),
            AnyId::Object(_) | AnyId::ShortObject { .. } => None,
        };
        if let Some((owner, seq)) = task {
            lines.extend(journal::story(self.now, &format!("{owner:x}-{seq:x}")));
        }
        lines
    }
}
