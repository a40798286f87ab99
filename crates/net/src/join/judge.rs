//! Whether somebody joins: what the control node's clerk decides, from what was asked and what the store says.

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

    /// One use less, by compare-and-swap: of two who want the last one, one gets it.
    fn spend(&mut self, id: TokenId, now: SystemTime) -> Result<(), SpendError>;

    /// One that was never given before, for this host.
    fn number(&mut self, role: Role, host: &str) -> Result<NodeNumber, Unavailable>;

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

/// A key that who asks has.
struct ItsKey<'a>(&'a [u8]);

pub(super) fn judge(
    asked: &Asked,
    registry: &mut dyn Registry,
    authority: &Authority,
    now: SystemTime,
) -> Answer {
    let joined = match asked {
        Asked::Join { channel, join } => joins(*channel, join, registry, authority, now),
        Asked::Renew { channel, renew, shown } => {
            renews(*channel, renew, shown, registry, authority, now)
        }
    };
    joined.map_or_else(Answer::Refused, Answer::Joined)
}

fn joins(
    channel: Channel,
    join: &Join,
    registry: &mut dyn Registry,
    authority: &Authority,
    now: SystemTime,
) -> Result<Joined, Refused> {
    let request: Request = decode(join.request.as_slice()).map_err(|_| Refused::Malformed)?;
    let (role, host) = (Role::from(request.role), request.host.as_str());
    let token = registry.token(join.token)?.ok_or(Refused::NoSuchToken)?;
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
    let name = |name: &str| Name::new(authority.cluster(), role, name).map_err(|_| Refused::Host);
    // Tried before anything is spent on it.
    let called = name(&called(host, key))?;
    let members = registry.members()?;
    // JOIN-4
    registry.spend(join.token, now)?;
    let (number, name) = match role {
        Role::Control | Role::Node => {
            let number = registry.number(role, host)?;
            (Some(number), name(&format!("{:x}", number.number()))?)
        }
        Role::Client | Role::Operator => (None, called),
    };
    certify(authority, &ItsKey(key), &name, number, members, now)
}

fn renews(
    channel: Channel,
    renew: &Renew,
    shown: &Name,
    registry: &mut dyn Registry,
    authority: &Authority,
    now: SystemTime,
) -> Result<Joined, Refused> {
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
    let members = registry.members()?;
    certify(authority, &ItsKey(key), shown, None, members, now)
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
