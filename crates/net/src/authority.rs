//! The one who makes a cluster's certificates, and what it makes.
//!
//! ```text
//!   ca/   ca.key ca.pem         the authority; stays on the machine where it was made
//!   tls/  ca.pem identity.pem   what one holder needs: whom it trusts; its certificate and the key to it
//! ```
//! Holder and authority meet in [`Authority::certify`], which takes a public key and a name, so that a key need not be
//! made where the authority is: who joins sends the public half (`crate::join`).
//!
//! # Invariants
//! - AUTH-1: the authority's key is written once in a folder, 0600, and read only to make certificates, or a backup ([`Kept`]).
//! - AUTH-2: a certificate is never replaced by that of another holder: a renewal has the same name.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::name::{Name, Role};
use crate::tls::{CA, IDENTITY, Identity, IdentityError, SERVED};
use crate::token::Fingerprint;
use hoplo_base::limits::{AUTHORITY_DAYS, CERTIFICATE_CLOCKS};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

pub struct Authority {
    cluster: u128,
    issuer: Issuer<'static, KeyPair>,
    ca_pem: String,
}

/// An authority as text, to be kept elsewhere. SECRET: who has it makes certificates.
#[derive(Clone)]
pub struct Kept {
    pub key: String,
    pub certificate: String,
}

/// From when on, until when.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    pub from: SystemTime,
    pub until: SystemTime,
}

const KEY: &str = "ca.key";
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Validity {
    /// From now on; other clocks may be a little behind.
    pub fn days(days: u32) -> Self {
        Self::since(SystemTime::now(), days * DAY)
    }

    pub(crate) fn since(now: SystemTime, time: Duration) -> Self {
        Self { from: now - CERTIFICATE_CLOCKS, until: now + time }
    }
}

impl Kept {
    pub fn read(dir: &Path) -> Result<Self, IdentityError> {
        Ok(Self { key: read(&dir.join(KEY))?, certificate: read(&dir.join(CA))? })
    }

    /// It is the authority in this folder from now on. Refuses to replace one.
    pub fn write(&self, dir: &Path) -> Result<(), IdentityError> {
        make_folder(dir)?;
        write_new(&dir.join(KEY), &self.key, Lasts::OnDisk)?;
        write_new(&dir.join(CA), &self.certificate, Lasts::OnDisk)
    }
}

/// How long what is written is sure to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    OnDisk,
    /// Until the machine loses its power. Nobody waits for a disk.
    WithMachine,
}

impl Authority {
    /// A new one. Refuses to replace one.
    pub fn make(dir: &Path, cluster: u128) -> Result<Self, IdentityError> {
        let unfit = |error: rcgen::Error| unfit(dir, &error);
        let key = KeyPair::generate().map_err(unfit)?;
        let params = authority_params(cluster).map_err(unfit)?;
        let ca_pem = params.self_signed(&key).map_err(unfit)?.pem();
        make_folder(dir)?;
        write_new(&dir.join(KEY), &key.serialize_pem(), Lasts::OnDisk)?;
        write_new(&dir.join(CA), &ca_pem, Lasts::OnDisk)?;
        Ok(Self { cluster, issuer: Issuer::new(params, key), ca_pem })
    }

    /// That of this cluster, made before.
    pub fn load(dir: &Path, cluster: u128) -> Result<Self, IdentityError> {
        let path = dir.join(KEY);
        let key = read(&path)?;
        let unfit = |error: rcgen::Error| unfit(dir, &error);
        let key = KeyPair::from_pem(&key).map_err(unfit)?;
        let ca = dir.join(CA);
        let ca_pem = read(&ca)?;
        CertificateDer::from_pem_slice(ca_pem.as_bytes())
            .map_err(|error| IdentityError::Unreadable { path: ca, why: error.to_string() })?;
        let params = authority_params(cluster).map_err(unfit)?;
        Ok(Self { cluster, issuer: Issuer::new(params, key), ca_pem })
    }

    /// A key and a certificate for this holder, in its folder; in place of an older one of the same holder.
    pub fn issue(&self, name: &Name, valid: Validity, dir: &Path) -> Result<(), IdentityError> {
        self.issue_lasting(name, valid, dir, Lasts::OnDisk)
    }

    pub fn issue_lasting(
        &self,
        name: &Name,
        valid: Validity,
        dir: &Path,
        lasts: Lasts,
    ) -> Result<(), IdentityError> {
        assert_eq!(name.cluster, self.cluster, "an authority is one cluster's");
        let path = dir.join(IDENTITY);
        if path.exists() {
            let held = Identity::holder(dir)?;
            if held != *name {
                return Err(IdentityError::OthersFile { path, held: held.to_string() });
            }
        }
        let unfit = |error: rcgen::Error| unfit(dir, &error);
        let key = KeyPair::generate().map_err(unfit)?;
        let certificate = self.certify(&key, name, valid).map_err(unfit)?.pem();
        make_folder(dir)?;
        replace(&dir.join(CA), &self.ca_pem, lasts)?;
        replace(&path, &format!("{certificate}{}", key.serialize_pem()), lasts)?;
        // What nobody could use is told here, and not where it was copied to.
        Identity::holder_of(dir, name.cluster, valid.from + Duration::from_secs(1)).map(|_| ())
    }

    /// What a token names, so that who joins knows the cluster.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate())
    }

    pub(crate) fn cluster(&self) -> u128 {
        self.cluster
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).expect("it was read or made here")
    }

    pub(crate) fn certify(
        &self,
        key: &impl PublicKeyData,
        name: &Name,
        valid: Validity,
    ) -> Result<Certificate, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.subject_alt_names.push(SanType::URI(name.to_string().try_into()?));
        params
            .distinguished_name
            .push(DnType::CommonName, format!("{} {}", name.role, name.name()));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if matches!(name.role, Role::Control | Role::Node) {
            params.subject_alt_names.push(SanType::DnsName(SERVED.try_into()?));
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        set(&mut params, valid);
        params.signed_by(key, &self.issuer)
    }
}

/// The same whenever they are asked for (but for the times): certificates name their issuer.
fn authority_params(cluster: u128) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("hoplo cluster {cluster:032x}"));
    set(&mut params, Validity::days(AUTHORITY_DAYS));
    Ok(params)
}

fn set(params: &mut CertificateParams, valid: Validity) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    params.not_before = epoch + since(valid.from);
    params.not_after = epoch + since(valid.until);
}

fn unfit(dir: &Path, error: &rcgen::Error) -> IdentityError {
    IdentityError::Unfit { dir: dir.into(), why: error.to_string() }
}

fn read(path: &Path) -> Result<String, IdentityError> {
    fs::read_to_string(path).map_err(|error| {
        let why = format!("{error}: the authority is where `hoplo control init` made it");
        IdentityError::NoAuthority { path: path.into(), why }
    })
}

pub(crate) fn make_folder(dir: &Path) -> Result<(), IdentityError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| IdentityError::Unwritable { path: dir.into(), source })
}

fn write_new(path: &Path, text: &str, lasts: Lasts) -> Result<(), IdentityError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        match lasts {
            Lasts::OnDisk => file.sync_all(),
            Lasts::WithMachine => Ok(()),
        }
    };
    write().map_err(|source| IdentityError::Unwritable { path: path.into(), source })
}

/// Whole or not at all: a process may be about to read it. Others may replace it at the same moment, also on another machine
/// with the same home: it is that of the last.
pub(crate) fn replace(path: &Path, text: &str, lasts: Lasts) -> Result<(), IdentityError> {
    let unwritable = |source| IdentityError::Unwritable { path: PathBuf::from(path), source };
    let mut own = [0; 8];
    let random = rustix::rand::getrandom(&mut own, rustix::rand::GetRandomFlags::empty());
    random.map_err(|errno| unwritable(errno.into()))?;
    let beside = path.with_extension(format!("{:016x}.new", u64::from_ne_bytes(own)));
    let replaced = write_new(&beside, text, lasts)
        .and_then(|()| fs::rename(&beside, path).map_err(unwritable));
    if replaced.is_err() {
        let _ = fs::remove_file(&beside);
    }
    replaced
}
