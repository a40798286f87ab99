//! Users' keys and values.

use hoplo_base::ProcessId;
use hoplo_wire::control::{Refusal, Table};
use hoplo_wire::node::{KvOperation, ToClient};

use super::{Answer, Asked, Node, Question};
use crate::control::rows::kv_key;

/// Keys that one answer holds.
pub const KEYS_MAX: usize = hoplo_base::limits::KV_KEYS_MAX;

#[derive(Debug)]
pub(super) struct Asker {
    from: ProcessId,
    request: u64,
    /// Bytes of the namespace, which stand before every key of it.
    namespace_bytes: usize,
}

impl Node {
    pub(super) fn on_kv(
        &mut self,
        from: ProcessId,
        request: u64,
        namespace: &str,
        operation: KvOperation,
    ) {
        let key = |key: &[u8]| kv_key(namespace, key);
        let question = match operation {
            KvOperation::Get { key: name } => Question::Get { keys: vec![key(&name)] },
            KvOperation::Put { key: name, value, overwrite: true } => {
                Question::Put { key: key(&name), value }
            }
            KvOperation::Put { key: name, value, overwrite: false } => {
                Question::Create { key: key(&name), value }
            }
            KvOperation::Delete { key: name } => Question::Delete { key: key(&name) },
            KvOperation::Keys { prefix } => {
                Question::List { table: Table::Kv, prefix: key(&prefix).bytes }
            }
        };
        let namespace_bytes = key(b"").bytes.len();
        self.ask(question, Asked::Kv(Asker { from, request, namespace_bytes }));
    }

    pub(super) fn on_kv_answer(&mut self, asker: Asker, answer: Answer) {
        let Asker { from, request, namespace_bytes } = asker;
        let (mut value, mut keys, mut refused) = (None, Vec::new(), None);
        match answer {
            Answer::Rows(Ok(rows)) => value = rows.into_iter().next().flatten(),
            Answer::Written(written) => refused = written.err(),
            Answer::Found(Ok(found)) => value = found,
            Answer::Keys(Ok(found)) => {
                keys = found.into_iter().map(|key| key[namespace_bytes..].to_vec()).collect();
            }
            Answer::Page(Ok(_)) => unreachable!("a question is answered by what it asks for"),
            Answer::Page(Err(refusal))
            | Answer::Rows(Err(refusal))
            | Answer::Found(Err(refusal))
            | Answer::Keys(Err(refusal)) => {
                refused = Some(refusal);
            }
        }
        let refused = refused.map(|refusal: Refusal| refusal.to_string());
        self.send(from, ToClient::KvAnswer { request, value, keys, refused });
    }
}
