//! The document as a key in etcd, over etcd's own JSON gateway (`/v3/kv/range`, `/v3/kv/txn`).
//!
//! Two kinds of requests, a few a second: a gRPC stack (tonic, prost, hyper, tokio and their seventy
//! crates) would be most of the binary's dependencies. etcd's `mod_revision` of the key is the revision.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hoplo_base::limits::{CONFIG_STORE_ANSWERS, CONFIG_STORE_CONNECTS};
use hoplo_core::control::coordinator::Revision;
use hoplo_wire::control::ClusterConfig;
use serde_json::{Value, json};

use super::{ConfigStore, Document, StoreError, Swapped};

pub struct EtcdStore {
    /// `http://host:port` of each member of the etcd cluster; the one that answered last is first.
    members: Vec<String>,
    key: String,
    agent: ureq::Agent,
}

impl EtcdStore {
    /// `http://HOST:PORT[,HOST:PORT...]/KEY`
    pub fn parse(place: &str) -> Option<Self> {
        let (members, key) = place.strip_prefix("http://")?.split_once('/')?;
        let members: Vec<String> =
            members.split(',').map(|member| format!("http://{member}")).collect();
        if key.is_empty() || members.iter().any(|member| member == "http://") {
            return None;
        }
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(CONFIG_STORE_ANSWERS))
            .timeout_connect(Some(CONFIG_STORE_CONNECTS))
            .proxy(None)
            .build();
        Some(Self { members, key: key.to_string(), agent: agent.into() })
    }

    /// A read goes to the first member that answers; a swap only to one, because it may have been stored
    /// by a member whose answer was lost.
    fn ask(&mut self, path: &str, body: &Value, again: bool) -> Result<Value, StoreError> {
        let mut failed = Vec::new();
        for _ in 0..self.members.len() {
            let member = self.members[0].clone();
            let sent = self.agent.post(format!("{member}{path}")).send_json(body);
            match sent.and_then(|mut answer| answer.body_mut().read_json::<Value>()) {
                Ok(answer) => return Ok(answer),
                Err(error) => failed.push(format!("{member}: {error}")),
            }
            self.members.rotate_left(1);
            if !again {
                break;
            }
        }
        Err(StoreError::Unreachable { place: "etcd".to_string(), why: failed.join("; ") })
    }

    fn place(&self) -> String {
        format!("{}/{}", self.members[0], self.key)
    }

    fn odd(&self, answer: &Value) -> StoreError {
        let why = format!("an answer that etcd does not give: {answer}");
        StoreError::Unreachable { place: self.place(), why }
    }
}

impl ConfigStore for EtcdStore {
    fn load(&mut self) -> Result<Option<(Revision, ClusterConfig)>, StoreError> {
        let body = json!({ "key": STANDARD.encode(&self.key) });
        let answer = self.ask("/v3/kv/range", &body, true)?;
        let Some(found) = answer["kvs"].get(0) else {
            // Only a real answer says that there is nothing.
            let real = answer.get("header").is_some();
            return if real { Ok(None) } else { Err(self.odd(&answer)) };
        };
        let value = found["value"].as_str().and_then(|value| STANDARD.decode(value).ok());
        let revision = number(&found["mod_revision"]);
        let (Some(value), Some(revision)) = (value, revision) else {
            return Err(self.odd(&answer));
        };
        let document = Document::<ClusterConfig>::decode(&self.place(), &value)?;
        Ok(Some((revision, document.config)))
    }

    fn swap(
        &mut self,
        expected: Option<Revision>,
        config: &ClusterConfig,
    ) -> Result<Swapped, StoreError> {
        let key = STANDARD.encode(&self.key);
        let value = STANDARD.encode(Document::encode(0, config));
        // A key that does not exist has mod_revision 0.
        let body = json!({
            "compare": [{
                "key": key,
                "target": "MOD",
                "result": "EQUAL",
                "mod_revision": expected.unwrap_or(0).to_string(),
            }],
            "success": [{ "request_put": { "key": key, "value": value } }],
        });
        let answer = self.ask("/v3/kv/txn", &body, false)?;
        let Some(revision) = number(&answer["header"]["revision"]) else {
            return Err(self.odd(&answer));
        };
        // Absent means false in this JSON.
        if answer["succeeded"].as_bool().unwrap_or(false) {
            Ok(Swapped::Stored(revision))
        } else {
            Ok(Swapped::Conflict)
        }
    }
}

/// 64-bit numbers are strings in this JSON.
fn number(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}
