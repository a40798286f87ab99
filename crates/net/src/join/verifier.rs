//! Who joins has no authority's certificate yet, only its fingerprint: it finds the certificate in what the server shows.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::name::{Name, Role};
use crate::protocol::Purpose;
use crate::tls::holder_of;
use crate::token::Fingerprint;

/// Accepts control nodes of one cluster.
#[derive(Debug)]
pub(super) struct ByFingerprint {
    authority: Fingerprint,
    provider: Arc<CryptoProvider>,
    found: Mutex<Option<Found>>,
}

/// What the server is instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Its certificate does not say whose it is, as those of hoplo do.
    NotHoplo,
    /// It does not show its authority: nobody joins there.
    NoJoins,
    OtherCluster {
        cluster: u128,
    },
    NotControl {
        name: Name,
    },
}

impl ByFingerprint {
    pub(super) fn new(authority: Fingerprint) -> Arc<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Arc::new(Self { authority, provider, found: Mutex::new(None) })
    }

    pub(super) fn config(self: &Arc<Self>) -> Result<ClientConfig, Error> {
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(self) as Arc<dyn ServerCertVerifier>)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![Purpose::Join.alpn().to_vec()];
        Ok(config)
    }

    /// Why the server was not accepted, if that is known better than TLS says it.
    pub(super) fn found(&self) -> Option<Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its authority, if it is a server of a cluster.
    fn look<'a>(
        &self,
        leaf: &CertificateDer<'_>,
        others: &'a [CertificateDer<'a>],
    ) -> Result<&'a CertificateDer<'a>, Found> {
        let name = holder_of(leaf).map_err(|_| Found::NotHoplo)?;
        if others.is_empty() {
            return Err(Found::NoJoins);
        }
        let authority = others.iter().find(|it| Fingerprint::of(it) == self.authority);
        let authority = authority.ok_or(Found::OtherCluster { cluster: name.cluster })?;
        if name.role == Role::Control { Ok(authority) } else { Err(Found::NotControl { name }) }
    }
}

impl ServerCertVerifier for ByFingerprint {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = self.look(leaf, others).map_err(|found| {
            *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            Error::InvalidCertificate(CertificateError::UnknownIssuer)
        })?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let provider = Arc::clone(&self.provider);
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let webpki = webpki.map_err(|error| Error::General(error.to_string()))?;
        webpki.verify_server_cert(leaf, &[], name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, leaf, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, leaf, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
