//! A token: what somebody needs to join a cluster, in one line that can be pasted.
//!
//! ```text
//!   hoplo1.<fingerprint>.<secret><check>
//!          |             |       the first four bytes of a hash of all that is before it
//!          |             32 random bytes
//!          hash of the certificate of the cluster's authority
//! ```
//! All in hexadecimal: it has no letters that are mistaken for others, and each version has one length. So a text that was cut, or
//! mistyped, is told as such, and never tried.
//!
//! # What the secret is
//! The secret is the seed of an Ed25519 key. Who joins signs with it (`join::proof`); the cluster keeps the public half
//! in a [`TokenRecord`]. A shared key would do for the proof as well, but then what the cluster keeps *is* the
//! token: its rows lie in logs, in snapshots and on every replica, and every client may read them. Anybody who read one
//! could join, as a control node, too. From a public key nobody can join. Besides, nothing is compared that is secret, so
//! that no comparison can tell by its time how much of a guess was right.
//!
//! # Invariants
//! - TOK-1: what the cluster keeps of a token (id, public key) does not give its secret.
//! - TOK-2: neither `Debug` nor an error shows any of the secret, also where the text is none: it may nearly be one.
//! - TOK-3: a file that others than its owner may read or write, or that is not ours, is not used.
//! - TOK-4: no head replaces a file in which the token of another cluster lies whose head lives.

mod file;
mod kept;
mod record;
mod text;

use std::fmt;
use std::path::PathBuf;

use hoplo_wire::join::TokenId;
use rcgen::{KeyPair, PKCS_ED25519, SigningKey};
use rustls::pki_types::PrivatePkcs8KeyDer;

pub use file::{FileTrouble, TokenError};
pub use kept::Kept;
pub use record::{TokenRecord, Unfit};
pub use text::TokenTextError;

/// The variable with a token's text, and the flag that names a file with it.
pub const VARIABLE: &str = "HOPLO_TOKEN";
pub const FLAG: &str = "--token-file";

/// What somebody needs to join.
#[derive(Clone)]
pub struct Token {
    authority: Fingerprint,
    secret: [u8; SECRET_BYTES],
    from: Source,
}

/// Of the certificate of a cluster's authority: BLAKE3 of its DER.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub(crate) [u8; 32]);

/// Where a token was read, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// It was made here.
    Made,
    Variable(String),
    File(PathBuf),
}

const SECRET_BYTES: usize = 32;
const ID_CONTEXT: &str = "hoplo 2026 token id";
const SEED_CONTEXT: &str = "hoplo 2026 token signing key";
/// A PKCS#8 document of an Ed25519 key, up to its seed (RFC 8410).
const BEFORE_SEED: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

impl Token {
    /// A new one, for the cluster of this authority.
    pub fn make(authority: Fingerprint) -> std::io::Result<Self> {
        let mut secret = [0; SECRET_BYTES];
        let got = rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
        assert_eq!(got, SECRET_BYTES, "the kernel gives so few bytes at once");
        Ok(Self { authority, secret, from: Source::Made })
    }

    /// The text: who sees it can join.
    pub fn reveal(&self) -> String {
        text::write(&self.authority, &self.secret)
    }

    pub fn id(&self) -> TokenId {
        let hash = blake3::derive_key(ID_CONTEXT, &self.secret);
        TokenId(u64::from_le_bytes(*hash.first_chunk().expect("32 bytes")))
    }

    /// Whose certificates are accepted.
    pub fn authority(&self) -> Fingerprint {
        self.authority
    }

    pub fn from(&self) -> &Source {
        &self.from
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.key().sign(message).expect("this key signs anything")
    }

    fn key(&self) -> KeyPair {
        let seed = blake3::derive_key(SEED_CONTEXT, &self.secret);
        let document = PrivatePkcs8KeyDer::from([&BEFORE_SEED[..], &seed].concat());
        KeyPair::from_pkcs8_der_and_sign_algo(&document, &PKCS_ED25519)
            .expect("any 32 bytes are a seed")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("id", &self.id())
            .field("authority", &self.authority)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

impl Fingerprint {
    pub(crate) fn of(certificate: &[u8]) -> Self {
        Self(*blake3::hash(certificate).as_bytes())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Made => f.write_str("this process"),
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
