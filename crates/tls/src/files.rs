//! Files in PEM format: certificates and private keys.

use crate::Error;
use crate::limits::FILE_BYTES_MAX;
use crate::words::words;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    // It would wait for its writer at each reload.
    if path.metadata().map_err(failed)?.file_type().is_fifo() {
        return Err(failed(io::Error::other("it is a pipe: copy what it has into a file")));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::TooLong { path: path.to_owned(), max_bytes: FILE_BYTES_MAX });
    }
    Ok(bytes)
}

/// Reads the certificates of a file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let missing = || Error::NoCertificate { path: path.to_owned() };
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(missing)
}

/// Reads the first private key of a file.
pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|_| Error::NoKey { path: path.to_owned() })
}

/// Reads the certificates of authorities.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        let unusable = |source| Error::Unusable { path: path.to_owned(), reason: words(&source) };
        store.add(certificate).map_err(unusable)?;
    }
    Ok(store)
}
