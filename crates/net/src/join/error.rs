//! Why somebody could not join, in one line that says what to do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hoplo_base::limits::JOIN_CLOCKS;
use hoplo_wire::join::Refused;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription as Alert, CertificateError, Error as Tls};

use super::verifier::Found;
use crate::dates::utc;
use crate::name::{Name, Role};
use crate::token::Source;

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("--address {address:?} names no machine and port ({why}): expected HOST:PORT")]
    Address { address: String, why: String },
    /// Nobody listens there, or there is no way there.
    #[error(
        "no head can be reached at {address} ({why}): is --address right, does `hoplo start --head` run there, and with --host if it is another machine?"
    )]
    Unreachable { address: String, why: String },
    #[error("{address} did not answer in {} s: is --address that of a head?", .within.as_secs_f32())]
    Late { address: String, within: Duration },
    #[error(
        "{address} closed the connection before it answered ({why}): is --address that of a head? Its daemon.log says so if too many connect to it"
    )]
    Closed { address: String, why: String },
    #[error("what listens at {address} is not hoplo ({why}): name the head's port with --address")]
    NotHoplo { address: String, why: String },
    /// Of several addresses.
    #[error(
        "no head took this node in: {said}. Are these addresses right, and does `hoplo start --head` run there? One of them is head as soon as \
         most control nodes run"
    )]
    NoneOf { said: String },
    #[error("nobody joins at {address}: name the port of a head or control node with --address")]
    NoJoins { address: String },
    #[error("{address} is {} {:?}, and no control node: name the head with --address", .name.role, .name.name())]
    NotControl { address: String, name: Name },
    #[error(
        "{address} is of cluster {cluster:032x}, which is not that of the token in {token}: give the token of that cluster, or another --address"
    )]
    WrongCluster { address: String, cluster: u128, token: Source },
    /// Its certificate is none of the cluster's, though it looks like one.
    #[error(
        "{address} does not prove that it is of the cluster ({why}): somebody else may be answering for it"
    )]
    Untrusted { address: String, why: String },
    #[error(
        "{address} runs {theirs} (protocol {theirs_protocol}), and this is {ours} (protocol {ours_protocol}): install the same version at both"
    )]
    Version {
        address: String,
        theirs: String,
        theirs_protocol: u32,
        ours: String,
        ours_protocol: u32,
    },
    /// Nothing is valid yet.
    #[error("this machine's clock is at least {seconds} s behind that of {address}: set it right")]
    ClockBehind { address: String, seconds: u64 },
    #[error(
        "the certificate of {address} has expired at {at}, and this machine's clock says {now}: set the clock that is wrong, or renew the certificate there"
    )]
    TheirsExpired { address: String, at: String, now: String },
    #[error(
        "this machine's clock is {seconds} s {} that of {address}, and {} s are allowed: set it right", if *.ahead { "ahead of" } else { "behind" }, JOIN_CLOCKS.as_secs()
    )]
    Clock { address: String, seconds: u64, ahead: bool },
    #[error(
        "{address} does not know the token in {token}: it was revoked, or is another cluster's (`hoplo token list` there shows all)"
    )]
    NoSuchToken { address: String, token: Source },
    #[error(
        "{address} finds that the token in {token} does not prove this request: copy the token again"
    )]
    NotProven { address: String, token: Source },
    #[error(
        "the token in {token} has expired at {at}: make another one with `hoplo token new` on the head"
    )]
    Expired { token: Source, at: String },
    #[error(
        "the token in {token} was used as often as it may be: make another one with `hoplo token new` on the head"
    )]
    UsedUp { token: Source },
    #[error(
        "the token in {token} is for a {has}, and not for a {wanted}: `hoplo token new --role {wanted}` on the head makes one"
    )]
    OtherRole { token: Source, wanted: Role, has: Role },
    #[error("{host:?} is no name for a certificate: use up to 47 letters, digits and .:-_[]")]
    Host { host: String },
    /// This process was declared dead.
    #[error("{address} says that {:?} was declared dead: it has to join again", .name.name())]
    Fenced { address: String, name: Name },
    /// The certificate that this process shows.
    #[error("{address} does not accept the certificate {path} ({why}): join again with a token")]
    OursRefused { address: String, path: PathBuf, why: String },
    #[error("{address} has too many who join just now: try again")]
    Busy { address: String },
    #[error("{address} cannot let anybody join just now ({why}): try again")]
    Unavailable { address: String, why: String },
    /// What is told by an error in one of the programs.
    #[error("{address} and this process do not understand each other: {why}")]
    Protocol { address: String, why: String },
    #[error("this process cannot make a key: {why}")]
    Key { why: String },
}

impl JoinError {
    /// Of one of several addresses: what it said.
    pub fn in_short(&self) -> String {
        match self {
            Self::Unreachable { address, why } => format!("{address} cannot be reached ({why})"),
            Self::Late { address, within } => {
                format!("{address} did not answer in {} s", within.as_secs_f32())
            }
            Self::Closed { address, why } => {
                format!("{address} closed the connection before it answered ({why})")
            }
            other => other.to_string(),
        }
    }

    /// Whether the same may come about a little later, without anybody doing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::NoneOf { .. }
            | Self::Late { .. }
            | Self::Closed { .. }
            | Self::Busy { .. }
            | Self::Unavailable { .. } => true,
            Self::Address { .. }
            | Self::NotHoplo { .. }
            | Self::NoJoins { .. }
            | Self::NotControl { .. }
            | Self::WrongCluster { .. }
            | Self::Untrusted { .. }
            | Self::Version { .. }
            | Self::ClockBehind { .. }
            | Self::TheirsExpired { .. }
            | Self::Clock { .. }
            | Self::NoSuchToken { .. }
            | Self::NotProven { .. }
            | Self::Expired { .. }
            | Self::UsedUp { .. }
            | Self::OtherRole { .. }
            | Self::Host { .. }
            | Self::Fenced { .. }
            | Self::OursRefused { .. }
            | Self::Protocol { .. }
            | Self::Key { .. } => false,
        }
    }
}

/// Whom an error is about.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) address: String,
    pub(super) within: Duration,
    pub(super) who: Who,
}

/// Who asks.
#[derive(Clone, Debug)]
pub(super) enum Who {
    Joins { token: Source, role: Role, host: String },
    Renews { name: Name, path: PathBuf },
}

impl About {
    fn address(&self) -> String {
        self.address.clone()
    }

    pub(super) fn protocol(&self, why: impl Into<String>) -> JoinError {
        JoinError::Protocol { address: self.address(), why: why.into() }
    }

    pub(super) fn closed(&self, why: impl Into<String>) -> JoinError {
        JoinError::Closed { address: self.address(), why: why.into() }
    }

    /// Of reading and writing; TLS's own errors come in this way, too.
    pub(super) fn io(&self, error: &io::Error, found: Option<Found>) -> JoinError {
        let of_tls = error.get_ref().and_then(|it| it.downcast_ref::<Tls>());
        match (of_tls, error.kind()) {
            (Some(error), _) => self.tls(error, found),
            (None, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
                JoinError::Late { address: self.address(), within: self.within }
            }
            (None, _) => self.closed(error.to_string()),
        }
    }

    pub(super) fn tls(&self, error: &Tls, found: Option<Found>) -> JoinError {
        let address = self.address();
        if let Some(found) = found {
            return self.found(found);
        }
        match error {
            Tls::InvalidCertificate(CertificateError::NotValidYetContext { time, not_before }) => {
                let seconds = not_before.as_secs().saturating_sub(time.as_secs());
                JoinError::ClockBehind { address, seconds }
            }
            Tls::InvalidCertificate(CertificateError::ExpiredContext { time, not_after }) => {
                JoinError::TheirsExpired { address, at: utc(*not_after), now: utc(*time) }
            }
            Tls::InvalidCertificate(why) => {
                JoinError::Untrusted { address, why: format!("{why:?}") }
            }
            Tls::AlertReceived(Alert::NoApplicationProtocol) => JoinError::NoJoins { address },
            Tls::AlertReceived(
                alert @ (Alert::CertificateExpired
                | Alert::UnknownCA
                | Alert::BadCertificate
                | Alert::CertificateRequired
                | Alert::UnsupportedCertificate
                | Alert::DecryptError
                | Alert::CertificateUnknown),
            ) => match &self.who {
                Who::Renews { path, .. } => {
                    let why = match alert {
                        Alert::CertificateExpired => "its dates are over or not come".to_string(),
                        other => format!("{other:?}"),
                    };
                    JoinError::OursRefused { address, path: path.clone(), why }
                }
                // It wants a certificate though we said that we have none.
                Who::Joins { .. } => JoinError::NoJoins { address },
            },
            other => JoinError::NotHoplo { address, why: one_line(&other.to_string()) },
        }
    }

    fn found(&self, found: Found) -> JoinError {
        let address = self.address();
        match (found, &self.who) {
            (Found::NotHoplo, _) => {
                let why = "its certificate is none of hoplo's".to_string();
                JoinError::NotHoplo { address, why }
            }
            (Found::NoJoins, _) => JoinError::NoJoins { address },
            (Found::NotControl { name }, _) => JoinError::NotControl { address, name },
            (Found::OtherCluster { cluster }, Who::Joins { token, .. }) => {
                JoinError::WrongCluster { address, cluster, token: token.clone() }
            }
            (Found::OtherCluster { .. }, Who::Renews { .. }) => {
                unreachable!("who renews knows the authority's certificate")
            }
        }
    }

    /// `now_ms`: of the clock that was sent.
    pub(super) fn refused(&self, refused: Refused, now_ms: u64) -> JoinError {
        let address = self.address();
        match (refused, &self.who) {
            (Refused::Version { protocol, program }, _) => {
                let ours = super::opening();
                JoinError::Version {
                    address,
                    theirs: String::from(program),
                    theirs_protocol: protocol,
                    ours: String::from(ours.program),
                    ours_protocol: ours.protocol,
                }
            }
            (Refused::Clock { ours_ms: theirs_ms }, _) => JoinError::Clock {
                address,
                seconds: now_ms.abs_diff(theirs_ms) / 1000,
                ahead: now_ms > theirs_ms,
            },
            (Refused::Busy, _) => JoinError::Busy { address },
            (Refused::Unavailable { why }, _) => {
                JoinError::Unavailable { address, why: String::from(why) }
            }
            (Refused::NoSuchToken, Who::Joins { token, .. }) => {
                JoinError::NoSuchToken { address, token: token.clone() }
            }
            (Refused::NotProven, Who::Joins { token, .. }) => {
                JoinError::NotProven { address, token: token.clone() }
            }
            (Refused::Expired { at_ms }, Who::Joins { token, .. }) => {
                let at = utc(UnixTime::since_unix_epoch(Duration::from_millis(at_ms)));
                JoinError::Expired { token: token.clone(), at }
            }
            (Refused::UsedUp, Who::Joins { token, .. }) => {
                JoinError::UsedUp { token: token.clone() }
            }
            (Refused::OtherRole { token: has }, Who::Joins { token, role, .. }) => {
                JoinError::OtherRole { token: token.clone(), wanted: *role, has: has.into() }
            }
            (Refused::Host, Who::Joins { host, .. }) => JoinError::Host { host: host.clone() },
            (Refused::Fenced, Who::Renews { name, .. }) => {
                JoinError::Fenced { address, name: name.clone() }
            }
            (other, _) => self.protocol(format!("it answers {other:?}")),
        }
    }
}

/// Others' words may have any.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
