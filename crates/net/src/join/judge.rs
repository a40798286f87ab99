//! Whether somebody joins: what the control node's clerk decides, from what was asked and what the store says.
//!
//! All who wait are decided about together: a thousand nodes that join at a time are some tens of questions to the store, not thousands.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hoplo_base::NodeNumber;
use hoplo_base::limits::{CERTIFICATE_JOINED, JOIN_CLOCKS};
use hoplo_wire::join::{
    Answer, Blob, Join, Joined, Members, Refused, Renew, Renewal, Request, Text, TokenId, decode,
};
use rcgen::{PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};

use super::proof::Channel;
use crate::authority::{Authority, Validity};
use crate::name::{Name, Role};
use crate::token::{TokenRecord, Unfit};

/// What the control store knows. Each may wait for it; the one who asks waits no longer than `JOIN_ANSWERS`.
pub trait Registry: Send {
    fn token(&mut self, id: TokenId) -> Result<Option<TokenRecord>, Unavailable>;

    /// So many uses less, or all that are left, by compare-and-swap: of two who want the last one, one gets it. How many were there.
    fn spend(&mut self, id: TokenId, uses: u32, now: SystemTime) -> Result<u32, SpendError>;

    /// For each of these hosts one that was never given before.
    fn numbers(&mut self, hosts: &[&str]) -> Result<Vec<NodeNumber>, Unavailable>;

    /// Whether the holder of this certificate was declared dead.
    fn is_fenced(&mut self, name: &Name) -> Result<bool, Unavailable>;

    /// Where control nodes listen.
    fn members(&mut self) -> Result<Vec<String>, Unavailable>;
}

/// The control store does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unavailable {
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpendError {
    /// It was revoked meanwhile.
    Gone,
    Unfit {
        expires: SystemTime,
        why: Unfit,
    },
    Unavailable(Unavailable),
}

/// What came over a connection, and what is known of it.
#[derive(Debug)]
pub(super) enum Asked {
    Join {
        channel: Channel,
        join: Join,
    },
    /// `shown`: the name in the certificate at the other end.
    Renew {
        channel: Channel,
        renew: Renew,
        shown: Name,
    },
}

/// Who gets a certificate.
pub(super) struct Accepted {
    key: Vec<u8>,
    name: Name,
    number: Option<NodeNumber>,
    members: Vec<String>,
    /// The token with which it joins; absent for who renews.
    token: Option<TokenId>,
    /// That of a node or control node, which is to be numbered.
    host: Option<String>,
}

/// A key that who asks has.
struct ItsKey<'a>(&'a [u8]);

/// Of each, in their order.
pub(super) fn accept<'a>(
    all: impl Iterator<Item = &'a Asked>,
    registry: &mut dyn Registry,
    authority: &Authority,
    now: SystemTime,
) -> Vec<Result<Accepted, Refused>> {
    let mut tokens = BTreeMap::new();
    let mut silent: Option<Refused> = None;
    let mut each = Vec::new();
    for asked in all {
        let accepted = match (&silent, asked) {
            (Some(why), _) => Err(why.clone()),
            (None, Asked::Join { channel, join }) => {
                joins(*channel, join, &mut tokens, registry, authority, now)
            }
            (None, Asked::Renew { channel, renew, shown }) => {
                renews(*channel, renew, shown, registry, authority, now)
            }
        };
        // The store does not answer: it is waited for once, not for each of them.
        silent = accepted.as_ref().err().filter(|why| is_silence(why)).cloned();
        each.push(accepted);
    }
    spend(&mut each, registry, now);
    number(&mut each, registry, authority);
    each
}

impl Accepted {
    pub(super) fn answer(self, authority: &Authority, now: SystemTime) -> Answer {
        let Self { key, name, number, members, .. } = self;
        let made = certify(authority, &ItsKey(&key), &name, number, members, now);
        made.map_or_else(Answer::Refused, Answer::Joined)
    }
}

fn joins(
    channel: Channel,
    join: &Join,
    tokens: &mut BTreeMap<TokenId, TokenRecord>,
    registry: &mut dyn Registry,
    authority: &Authority,
    now: SystemTime,
) -> Result<Accepted, Refused> {
    let request: Request = decode(join.request.as_slice()).map_err(|_| Refused::Malformed)?;
    let (role, host) = (Role::from(request.role), request.host.as_str());
    let token = match tokens.get(&join.token) {
        Some(token) => token.clone(),
        None => registry.token(join.token)?.ok_or(Refused::NoSuchToken)?,
    };
    // JOIN-3
    if !channel.proves_token(&token, join) {
        return Err(Refused::NotProven);
    }
    let key = request.key.as_slice();
    if !channel.proves_key_to_join(key, join) {
        return Err(Refused::NotItsKey);
    }
    check_clock(request.clock_ms, now)?;
    token.fit(now).map_err(|why| unfit(token.expires, why))?;
    if token.role != role {
        return Err(Refused::OtherRole { token: token.role.into() });
    }
    // Tried before anything is spent on it.
    let name =
        Name::new(authority.cluster(), role, &called(host, key)).map_err(|_| Refused::Host)?;
    let members = registry.members()?;
    tokens.insert(join.token, token);
    let numbered = matches!(role, Role::Control | Role::Node);
    Ok(Accepted {
        key: key.to_vec(),
        name,
        number: None,
        members,
        token: Some(join.token),
        host: numbered.then(|| host.to_string()),
    })
}

fn renews(
    channel: Channel,
    renew: &Renew,
    shown: &Name,
    registry: &mut dyn Registry,
    authority: &Authority,
    now: SystemTime,
) -> Result<Accepted, Refused> {
    let renewal: Renewal = decode(renew.renewal.as_slice()).map_err(|_| Refused::Malformed)?;
    let key = renewal.key.as_slice();
    if !channel.proves_key_to_renew(key, renew) {
        return Err(Refused::NotItsKey);
    }
    check_clock(renewal.clock_ms, now)?;
    // Somebody else's authority may be trusted here, too; certificates are of this one's cluster.
    if shown.cluster != authority.cluster() {
        return Err(Refused::Malformed);
    }
    // JOIN-6
    if registry.is_fenced(shown)? {
        return Err(Refused::Fenced);
    }
    let (key, name, members) = (key.to_vec(), shown.clone(), registry.members()?);
    Ok(Accepted { key, name, number: None, members, token: None, host: None })
}

/// JOIN-4: where fewer uses are left than wanted, who asked first gets them.
fn spend(each: &mut [Result<Accepted, Refused>], registry: &mut dyn Registry, now: SystemTime) {
    let mut wanted: BTreeMap<TokenId, u32> = BTreeMap::new();
    for id in each.iter().flatten().filter_map(|it| it.token) {
        *wanted.entry(id).or_default() += 1;
    }
    let mut silent = None;
    for (id, uses) in wanted {
        let mut left = match silent.take() {
            Some(error) => Err(error),
            None => registry.spend(id, uses, now),
        };
        silent = left.as_ref().err().filter(|it| matches!(it, SpendError::Unavailable(_))).cloned();
        for it in each.iter_mut() {
            if !it.as_ref().is_ok_and(|it| it.token == Some(id)) {
                continue;
            }
            match &mut left {
                Ok(0) => *it = Err(Refused::UsedUp),
                Ok(left) => *left -= 1,
                Err(error) => *it = Err(error.clone().into()),
            }
        }
    }
}

/// Their numbers are their names.
fn number(
    each: &mut [Result<Accepted, Refused>],
    registry: &mut dyn Registry,
    authority: &Authority,
) {
    let wait: Vec<_> =
        each.iter_mut().filter(|it| matches!(it, Ok(it) if it.host.is_some())).collect();
    if wait.is_empty() {
        return;
    }
    let hosts: Vec<&str> = wait.iter().filter_map(|it| it.as_ref().ok()?.host.as_deref()).collect();
    let given = registry.numbers(&hosts);
    for (place, it) in wait.into_iter().enumerate() {
        let Ok(accepted) = it else { continue };
        let number = match &given {
            Ok(given) => given[place],
            Err(error) => {
                *it = Err(error.clone().into());
                continue;
            }
        };
        let name = format!("{:x}", number.number());
        match Name::new(authority.cluster(), accepted.name.role, &name) {
            Ok(name) => (accepted.number, accepted.name) = (Some(number), name),
            Err(_) => *it = Err(Refused::Host),
        }
    }
}

fn certify(
    authority: &Authority,
    key: &ItsKey<'_>,
    name: &Name,
    number: Option<NodeNumber>,
    members: Vec<String>,
    now: SystemTime,
) -> Result<Joined, Refused> {
    let unable = |why: String| Refused::Unavailable { why: Text::cut(&why) };
    let valid = Validity::since(now, CERTIFICATE_JOINED);
    let made = authority.certify(key, name, valid).map_err(|error| unable(error.to_string()))?;
    let blob = |der: &[u8]| Blob::new(der).map_err(|error| unable(error.to_string()));
    let certificate = blob(made.der())?;
    let authority = blob(&authority.certificate())?;
    Ok(Joined { number, certificate, authority, members: Members::of(members) })
}

fn is_silence(why: &Refused) -> bool {
    matches!(why, Refused::Unavailable { .. })
}

/// A client or operator has no number. So that no two have one name, its own key tells it apart from others.
pub(super) fn called(host: &str, key: &[u8]) -> String {
    let hash = blake3::hash(key);
    let hash = u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("32 bytes"));
    format!("{host}:{hash:016x}")
}

fn check_clock(theirs_ms: u64, now: SystemTime) -> Result<(), Refused> {
    let ours_ms = millis(now);
    if Duration::from_millis(ours_ms.abs_diff(theirs_ms)) > JOIN_CLOCKS {
        return Err(Refused::Clock { ours_ms });
    }
    Ok(())
}

fn unfit(expires: SystemTime, why: Unfit) -> Refused {
    match why {
        Unfit::Expired => Refused::Expired { at_ms: millis(expires) },
        Unfit::UsedUp => Refused::UsedUp,
    }
}

/// Since 1970.
pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl PublicKeyData for ItsKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl From<Unavailable> for Refused {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable { why: Text::cut(&unavailable.why) }
    }
}

impl From<SpendError> for Refused {
    fn from(error: SpendError) -> Self {
        match error {
            SpendError::Gone => Self::NoSuchToken,
            SpendError::Unfit { expires, why } => unfit(expires, why),
            SpendError::Unavailable(unavailable) => unavailable.into(),
        }
    }
}
