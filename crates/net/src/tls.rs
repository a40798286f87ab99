//! What a process shows, and what it accepts: TLS 1.3 both ways, with certificates of the cluster's own authority.
//!
//! Both ends check the other's certificate: its signature, its dates, what it may be used for, and the [`Name`] in it. Names of
//! hosts play no part, because nodes move. No session is resumed: who comes again shows its certificate again. A
//! certificate that was renewed on disk is shown from the next connection on.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig};

use crate::dates::utc;
use crate::name::Name;
use crate::protocol::Purpose;
use crate::records::Records;
use crate::token::Fingerprint;

/// What a process shows, and what it accepts.
#[derive(Clone)]
pub struct Identity(Arc<Held>);

struct Held {
    dir: PathBuf,
    cluster: u128,
    now: Mutex<Loaded>,
}

struct Loaded {
    /// What is dialled with, but to join: who joins has no identity.
    dials: BTreeMap<Purpose, Arc<ClientConfig>>,
    /// What others are served with; all need a certificate, but those who join.
    serves: BTreeMap<Purpose, Arc<ServerConfig>>,
    authority: Fingerprint,
    certificate: Certificate,
    /// Of the file that it came from.
    changed: Option<SystemTime>,
    /// Why what lies there now is not used.
    trouble: Option<String>,
}

/// Whose it is, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub name: Name,
    pub until: SystemTime,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(
        "{path}: {why} (certificates are made by `hoplo control init` and `hoplo control certificate`: copy the holder's folder here)"
    )]
    Unreadable { path: PathBuf, why: String },
    #[error("{path}: {why}")]
    NoAuthority { path: PathBuf, why: String },
    #[error("the certificates in {dir} do not fit together: {why}")]
    Unfit { dir: PathBuf, why: String },
    #[error("{path} has expired at {at}: renew it with `hoplo control certificate`")]
    Expired { path: PathBuf, at: String },
    #[error("{path} is valid from {from} on only: is this machine's clock right?")]
    NotYet { path: PathBuf, from: String },
    #[error("{path} is of cluster {theirs:032x}, not of cluster {ours:032x}")]
    OtherCluster { path: PathBuf, theirs: u128, ours: u128 },
    #[error("{path} is that of {held}: name another folder")]
    OthersFile { path: PathBuf, held: String },
    #[error("{path}: {source}")]
    Unwritable { path: PathBuf, source: io::Error },
}

/// In a holder's folder: whom it trusts.
pub(crate) const CA: &str = "ca.pem";
/// And what it shows: a certificate, and the key to it.
pub(crate) const IDENTITY: &str = "identity.pem";

/// Every certificate that may serve is for this name, and who dials expects it.
pub(crate) const SERVED: &str = "hoplo";

impl Identity {
    /// What lies in this folder, if it is this cluster's and valid now.
    pub fn load(dir: &Path, cluster: u128) -> Result<Self, IdentityError> {
        let now = Mutex::new(Loaded::read(dir, cluster)?);
        Ok(Self(Arc::new(Held { dir: dir.into(), cluster, now })))
    }

    /// What this process shows now.
    pub fn certificate(&self) -> Certificate {
        self.loaded().certificate.clone()
    }

    /// Why what lies on disk now is not shown.
    pub fn trouble(&self) -> Option<String> {
        self.renewed().trouble.clone()
    }

    /// Where it lies.
    pub fn path(&self) -> PathBuf {
        self.0.dir.join(IDENTITY)
    }

    /// Of the certificate in this folder, valid or not.
    pub(crate) fn holder(dir: &Path) -> Result<Name, IdentityError> {
        let path = dir.join(IDENTITY);
        let chain = certificates(&path)?;
        let unreadable = |why: String| IdentityError::Unreadable { path: path.clone(), why };
        let leaf = chain.first().ok_or_else(|| unreadable("no certificate".to_string()))?;
        holder_of(leaf).map_err(unreadable)
    }

    /// The same, if it is this cluster's and valid at that time.
    pub(crate) fn holder_of(
        dir: &Path,
        cluster: u128,
        at: SystemTime,
    ) -> Result<Certificate, IdentityError> {
        let (path, name) = (dir.join(IDENTITY), Self::holder(dir)?);
        if name.cluster != cluster {
            let theirs = name.cluster;
            return Err(IdentityError::OtherCluster { path, theirs, ours: cluster });
        }
        let roots = roots(dir)?;
        let leaf = certificates(&path)?.remove(0);
        let until = verify(&leaf, &roots, at).map_err(|error| match error {
            webpki::Error::CertExpired { not_after, .. } => {
                IdentityError::Expired { path: path.clone(), at: utc(not_after) }
            }
            webpki::Error::CertNotValidYet { not_before, .. } => {
                IdentityError::NotYet { path: path.clone(), from: utc(not_before) }
            }
            webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
                let why = format!("{IDENTITY} is not by the authority of {CA}");
                IdentityError::Unfit { dir: dir.into(), why }
            }
            other => IdentityError::Unfit { dir: dir.into(), why: other.to_string() },
        })?;
        Ok(Certificate { name, until })
    }

    pub(crate) fn dialled(&self, purpose: Purpose) -> Result<Records, rustls::Error> {
        let name = ServerName::try_from(SERVED).expect("a valid name");
        Records::dialled(self.dialling(purpose), name)
    }

    pub(crate) fn accepted(&self, purpose: Purpose) -> Result<Records, rustls::Error> {
        Records::accepted(self.serving(purpose))
    }

    /// For anything but to join.
    pub(crate) fn dialling(&self, purpose: Purpose) -> Arc<ClientConfig> {
        Arc::clone(&self.renewed().dials[&purpose])
    }

    pub(crate) fn serving(&self, purpose: Purpose) -> Arc<ServerConfig> {
        Arc::clone(&self.renewed().serves[&purpose])
    }

    /// Whom it trusts.
    pub fn authority(&self) -> Fingerprint {
        self.loaded().authority
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As it lies on disk. What cannot be used there does not replace what could.
    fn renewed(&self) -> MutexGuard<'_, Loaded> {
        let mut now = self.loaded();
        let changed = changed(&self.0.dir);
        if changed.is_some() && changed != now.changed {
            match Loaded::read(&self.0.dir, self.0.cluster) {
                Ok(newer) => *now = newer,
                // It is looked at again when it changes again.
                Err(why) => (now.changed, now.trouble) = (changed, Some(why.to_string())),
            }
        }
        now
    }

    /// What went wrong, for the one who has to set it right.
    pub(crate) fn explain(&self, error: &rustls::Error) -> String {
        use rustls::{AlertDescription as Alert, Error, InvalidMessage};
        let ours = self.path();
        let ours = ours.display();
        match error {
            Error::NoCertificatesPresented => {
                "the peer shows no certificate of this cluster".to_string()
            }
            Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
                format!(
                    "the peer's certificate has expired at {}: renew it there with `hoplo control certificate`",
                    utc(*not_after)
                )
            }
            Error::InvalidCertificate(CertificateError::NotValidYetContext {
                not_before, ..
            }) => {
                format!(
                    "the peer's certificate is valid from {} on only: is this machine's clock right?",
                    utc(*not_before)
                )
            }
            Error::InvalidCertificate(
                CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
            ) => "the peer's certificate is not a node's: it may not serve".to_string(),
            Error::InvalidCertificate(why) => format!(
                "the peer's certificate is not of this cluster ({why:?}): both must come from the same `hoplo control init`"
            ),
            Error::AlertReceived(Alert::CertificateExpired) => {
                format!(
                    "the peer finds that the dates of our certificate {ours} are over or not come: renew it, or set the clocks right"
                )
            }
            Error::AlertReceived(
                Alert::UnknownCA
                | Alert::BadCertificate
                | Alert::CertificateRequired
                | Alert::UnsupportedCertificate
                | Alert::DecryptError
                | Alert::CertificateUnknown,
            ) => format!(
                "the peer does not accept our certificate {ours}: both must come from the same `hoplo control init`"
            ),
            Error::AlertReceived(Alert::NoApplicationProtocol) => {
                "the peer serves no connections of this kind: is it another program, or another version of hoplo?"
                    .to_string()
            }
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => "the peer does not speak TLS".to_string(),
            other => other.to_string(),
        }
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("dir", &self.0.dir).finish_non_exhaustive()
    }
}

impl Loaded {
    fn read(dir: &Path, cluster: u128) -> Result<Self, IdentityError> {
        let unfit = |why: String| IdentityError::Unfit { dir: dir.into(), why };
        let wrong = |error: rustls::Error| unfit(error.to_string());
        let changed = changed(dir);
        let certificate = Identity::holder_of(dir, cluster, SystemTime::now())?;
        let path = dir.join(IDENTITY);
        let (roots, chain) = (Arc::new(roots(dir)?), certificates(&path)?);
        let authority = certificates(&dir.join(CA))?.remove(0);
        let key = PrivateKeyDer::from_pem_file(&path)
            .map_err(|error| IdentityError::Unreadable { path, why: error.to_string() })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(wrong)?;
        client.resumption = Resumption::disabled();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_client_cert_verifier(verifier.map_err(|error| unfit(error.to_string()))?)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(wrong)?;
        server.send_tls13_tickets = 0;
        // Who joins knows the authority by its fingerprint only, so it is shown, too.
        let mut joins = ServerConfig::builder_with_provider(Arc::clone(server.crypto_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_no_client_auth()
            .with_single_cert([chain, vec![authority.clone()]].concat(), key)
            .map_err(wrong)?;
        joins.send_tls13_tickets = 0;
        let serves = Purpose::ALL.map(|purpose| {
            let mut config = if purpose == Purpose::Join { &joins } else { &server }.clone();
            config.alpn_protocols = vec![purpose.alpn().to_vec()];
            (purpose, Arc::new(config))
        });
        let dials = Purpose::ALL.into_iter().filter(|purpose| *purpose != Purpose::Join);
        let dials = dials.map(|purpose| {
            let mut config = client.clone();
            config.alpn_protocols = vec![purpose.alpn().to_vec()];
            (purpose, Arc::new(config))
        });
        Ok(Self {
            dials: dials.collect(),
            serves: serves.into(),
            authority: Fingerprint::of(&authority),
            certificate,
            changed,
            trouble: None,
        })
    }
}

/// Whose a certificate is.
pub(crate) fn holder_of(certificate: &CertificateDer<'_>) -> Result<Name, String> {
    let parsed = webpki::EndEntityCert::try_from(certificate)
        .map_err(|error| format!("no certificate: {error}"))?;
    let mut names = parsed.valid_uri_names();
    let name = names.next().ok_or("the certificate does not say whose it is")?;
    name.parse().map_err(|error: crate::name::NameError| error.to_string())
}

/// Until when it is valid.
pub(crate) fn verify(
    leaf: &CertificateDer<'_>,
    roots: &RootCertStore,
    at: SystemTime,
) -> Result<SystemTime, webpki::Error> {
    let parsed = webpki::EndEntityCert::try_from(leaf)?;
    let verified = |at: UnixTime| {
        parsed
            .verify_for_usage(
                webpki::ALL_VERIFICATION_ALGS,
                &roots.roots,
                &[],
                at,
                webpki::KeyUsage::client_auth(),
                None,
                None,
            )
            .map(|_| ())
    };
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    verified(UnixTime::since_unix_epoch(since))?;
    // When it ends is said only by refusing it: at the last moment that can be written there is none that is valid.
    match verified(UnixTime::since_unix_epoch(Duration::from_secs(LAST_SECOND))) {
        Err(webpki::Error::CertExpired { not_after, .. }) => {
            Ok(UNIX_EPOCH + Duration::from_secs(not_after.as_secs()))
        }
        Err(other) => Err(other),
        Ok(()) => Ok(UNIX_EPOCH + Duration::from_secs(LAST_SECOND)),
    }
}

/// 9999-12-31 23:59:59, as far as certificates go.
pub(crate) const LAST_SECOND: u64 = 253_402_300_799;

fn roots(dir: &Path) -> Result<RootCertStore, IdentityError> {
    let mut roots = RootCertStore::empty();
    for ca in certificates(&dir.join(CA))? {
        roots
            .add(ca)
            .map_err(|error| IdentityError::Unfit { dir: dir.into(), why: error.to_string() })?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let unreadable = |why: String| IdentityError::Unreadable { path: path.into(), why };
    let found =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| unreadable(error.to_string()))?;
    if found.is_empty() { Err(unreadable("no certificate".to_string())) } else { Ok(found) }
}

fn changed(dir: &Path) -> Option<SystemTime> {
    fs::metadata(dir.join(IDENTITY)).and_then(|it| it.modified()).ok()
}
