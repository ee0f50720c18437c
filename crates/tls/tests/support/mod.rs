//! Certificates for tests: an authority, and files of what it certifies.

#![allow(dead_code, reason = "each suite uses a part")]
#![allow(clippy::allow_attributes, reason = "an expectation would fail where all is used")]

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// End of an expired certificate, in 2002, in seconds since 1970.
const EXPIRED_S: u64 = 1_009_843_200;

/// An authority, and a folder for its files.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// Files of a certificate and its key.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // Each authority has a name of its own.
        params.distinguished_name.push(DnType::CommonName, folder.path().display().to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let authority = Self { issuer, folder };
        std::fs::write(authority.file(), authority.issuer.pem()).expect("a file");
        authority
    }

    /// Returns the file of the authority's own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// Returns files of the authority's own certificate and its key, which are none for a server.
    pub(crate) fn own(&self) -> Files {
        let key = self.folder.path().join("authority.key");
        write_key(&key, &self.issuer.key().serialize_pem());
        Files { certificate: self.file(), key }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Certifies a server with these names and addresses.
    pub(crate) fn server(&self, names: &[&str]) -> Files {
        self.certify("server", names, ExtendedKeyUsagePurpose::ServerAuth, false)
    }

    /// Certifies a server whose certificate has expired.
    pub(crate) fn expired_server(&self, names: &[&str]) -> Files {
        self.certify("expired", names, ExtendedKeyUsagePurpose::ServerAuth, true)
    }

    /// Certifies a server whose certificate ends `days` from now.
    pub(crate) fn server_until(&self, names: &[&str], days: i64) -> Files {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time");
        let seconds = now.as_secs().saturating_add_signed(days * 24 * 3600);
        self.certify_until("until", names, ExtendedKeyUsagePurpose::ServerAuth, Some(seconds))
    }

    /// Certifies a client whose certificate has this common name.
    pub(crate) fn client(&self, user: &str) -> Files {
        self.certify(user, &[], ExtendedKeyUsagePurpose::ClientAuth, false)
    }

    /// Certifies a client whose certificate has expired.
    pub(crate) fn expired_client(&self, user: &str) -> Files {
        self.certify(user, &[], ExtendedKeyUsagePurpose::ClientAuth, true)
    }

    fn certify(
        &self,
        common: &str,
        names: &[&str],
        purpose: ExtendedKeyUsagePurpose,
        is_expired: bool,
    ) -> Files {
        self.certify_until(common, names, purpose, is_expired.then_some(EXPIRED_S))
    }

    fn certify_until(
        &self,
        common: &str,
        names: &[&str],
        purpose: ExtendedKeyUsagePurpose,
        seconds: Option<u64>,
    ) -> Files {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common);
        params.extended_key_usages = vec![purpose];
        if let Some(seconds) = seconds {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let file = |end: &str| self.folder.path().join(format!("{common}{end}"));
        let files = Files { certificate: file(".pem"), key: file(".key") };
        std::fs::write(&files.certificate, certificate.pem()).expect("a file");
        write_key(&files.key, &key.serialize_pem());
        files
    }
}

/// Writes a private key that only its owner may read.
fn write_key(path: &Path, pem: &str) {
    std::fs::write(path, pem).expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, mode).expect("a mode");
}
