//! What is signed, and for which connection. Both ends make it, each from its own end of the TLS connection.

use hoplo_wire::join::{Join, Renew};
use rcgen::{KeyPair, SigningKey};
use rustls::ConnectionCommon;
use webpki::ring::ECDSA_P256_SHA256;

use crate::token::{Token, TokenRecord};

/// The same at both ends of a connection, and on no other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Channel([u8; 32]);

/// What a signature is for: none is taken for one of another kind.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Token,
    JoinKey,
    RenewKey,
}

const LABEL: &[u8] = b"EXPORTER-hoplo-join/1";

impl Channel {
    /// Of a connection whose handshake is over.
    pub(super) fn of<Data>(tls: &ConnectionCommon<Data>) -> Result<Self, rustls::Error> {
        tls.export_keying_material([0; 32], LABEL, None).map(Self)
    }

    fn message(self, kind: Kind, request: &[u8]) -> Vec<u8> {
        let kind = match kind {
            Kind::Token => b"hoplo join/1, by token. ",
            Kind::JoinKey => b"hoplo join/1, by key.   ",
            Kind::RenewKey => b"hoplo renew/1, by key.  ",
        };
        [&kind[..], &self.0, request].concat()
    }

    pub(super) fn by_token(self, token: &Token, request: &[u8]) -> Vec<u8> {
        token.sign(&self.message(Kind::Token, request))
    }

    pub(super) fn to_join(self, key: &KeyPair, request: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        key.sign(&self.message(Kind::JoinKey, request))
    }

    pub(super) fn to_renew(self, key: &KeyPair, request: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        key.sign(&self.message(Kind::RenewKey, request))
    }

    /// Whoever is there has this token, and wants that.
    pub(super) fn proves_token(self, record: &TokenRecord, join: &Join) -> bool {
        let message = self.message(Kind::Token, join.request.as_slice());
        record.has_signed(&message, join.proof.as_slice())
    }

    /// Whoever is there has the key to this public key.
    pub(super) fn proves_key_to_join(self, key: &[u8], join: &Join) -> bool {
        let message = self.message(Kind::JoinKey, join.request.as_slice());
        has_signed(key, &message, join.possession.as_slice())
    }

    pub(super) fn proves_key_to_renew(self, key: &[u8], renew: &Renew) -> bool {
        let message = self.message(Kind::RenewKey, renew.renewal.as_slice());
        has_signed(key, &message, renew.possession.as_slice())
    }
}

fn has_signed(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    ECDSA_P256_SHA256.verify_signature(key, message, signature).is_ok()
}
