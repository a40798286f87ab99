//! Who may speak TCP with the control store: whoever has a certificate of the cluster's own authority.
//!
//! [`Authority::make`] writes four files, 0600, into one directory: `ca.pem` and `ca.key` (needed only to make more
//! certificates), `node.pem` and `node.key` (what every process of the cluster shows). Both ends of a connection
//! check the other's certificate against `ca.pem`; names of hosts play no part, because nodes move.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

/// What a process shows, and what it accepts.
#[derive(Clone)]
pub struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(
        "{path}: {why} (the cluster's certificates are made by `hoplo control init`; copy its tls directory to every node)"
    )]
    Unreadable { path: PathBuf, why: String },
    #[error("the certificates in {dir} do not fit together: {why}")]
    Unfit { dir: PathBuf, why: String },
    #[error("{path}: {source}")]
    Unwritable { path: PathBuf, source: io::Error },
}

/// Every certificate is for this name, and every client expects it.
const NAME: &str = "hoplo-control";

pub struct Authority;

impl Authority {
    /// A new authority and a certificate by it. Refuses to replace one.
    pub fn make(dir: &Path) -> Result<(), IdentityError> {
        let unfit =
            |error: rcgen::Error| IdentityError::Unfit { dir: dir.into(), why: error.to_string() };
        let mut params = CertificateParams::new(Vec::<String>::new()).map_err(unfit)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "hoplo cluster authority");
        let ca_key = KeyPair::generate().map_err(unfit)?;
        let ca = params.self_signed(&ca_key).map_err(unfit)?;
        let issuer = Issuer::from_params(&params, &ca_key);

        let mut params = CertificateParams::new(vec![NAME.to_string()]).map_err(unfit)?;
        params.distinguished_name.push(DnType::CommonName, "hoplo node");
        let node_key = KeyPair::generate().map_err(unfit)?;
        let node = params.signed_by(&node_key, &issuer).map_err(unfit)?;

        fs::create_dir_all(dir)
            .map_err(|source| IdentityError::Unwritable { path: dir.into(), source })?;
        write_private(&dir.join("ca.key"), &ca_key.serialize_pem())?;
        write_private(&dir.join("ca.pem"), &ca.pem())?;
        write_private(&dir.join("node.key"), &node_key.serialize_pem())?;
        write_private(&dir.join("node.pem"), &node.pem())
    }
}

impl Identity {
    pub fn load(dir: &Path) -> Result<Self, IdentityError> {
        let unfit = |why: String| IdentityError::Unfit { dir: dir.into(), why };
        let mut roots = RootCertStore::empty();
        for ca in certificates(&dir.join("ca.pem"))? {
            roots.add(ca).map_err(|error| unfit(error.to_string()))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(&dir.join("node.pem"))?;
        let key_path = dir.join("node.key");
        let key = PrivateKeyDer::from_pem_file(&key_path)
            .map_err(|error| unreadable(&key_path, &error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let wrong = |error: rustls::Error| unfit(error.to_string());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(wrong)?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_client_cert_verifier(verifier.map_err(|error| unfit(error.to_string()))?)
            .with_single_cert(chain, key)
            .map_err(wrong)?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    pub(crate) fn dialled(&self) -> Result<rustls::Connection, rustls::Error> {
        let name = ServerName::try_from(NAME).expect("a valid name");
        Ok(ClientConnection::new(Arc::clone(&self.client), name)?.into())
    }

    pub(crate) fn accepted(&self) -> Result<rustls::Connection, rustls::Error> {
        Ok(ServerConnection::new(Arc::clone(&self.server))?.into())
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// What went wrong, for the one who has to set it right.
pub(crate) fn explain(error: &rustls::Error) -> String {
    use rustls::{AlertDescription as Alert, Error, InvalidMessage};
    match error {
        Error::NoCertificatesPresented => "the peer shows no certificate of this cluster".to_string(),
        Error::InvalidCertificate(why) => format!(
            "the peer's certificate is not of this cluster ({why:?}): its tls directory must come from the same `hoplo control init`"
        ),
        Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateRequired
            | Alert::DecryptError
            | Alert::CertificateUnknown,
        ) => "the peer does not accept our certificate: the tls directory must come from the same `hoplo control init`".to_string(),
        Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
            "the peer does not speak TLS".to_string()
        }
        other => format!("TLS: {other}"),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match found {
        Ok(found) if found.is_empty() => Err(unreadable(path, "there is no certificate in it")),
        Ok(found) => Ok(found),
        Err(error) => Err(unreadable(path, &error.to_string())),
    }
}

fn unreadable(path: &Path, why: &str) -> IdentityError {
    IdentityError::Unreadable { path: path.into(), why: why.to_string() }
}

fn write_private(path: &Path, text: &str) -> Result<(), IdentityError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|source| IdentityError::Unwritable { path: path.into(), source })
}
