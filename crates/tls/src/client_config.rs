//! Configuration of a client: the servers that it trusts, and its own certificate.

use crate::provider::provider;
use crate::words::UNKNOWN_AUTHORITY;
use crate::{Error, files, names};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// How a client checks the server, and which certificate it shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// Authorities of server certificates, in PEM format; without a file, those of the system.
    pub authorities: Option<PathBuf>,
    /// Name that the server's certificate must have, in place of the host that is connected to.
    pub server_name: Option<String>,
    /// Accept each certificate, of any issuer and with any name. Then the peer may be anyone.
    pub accepts_any_server: bool,
    /// The client's certificate and its key, in PEM format.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Configuration of the sessions of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub(crate) config: Arc<rustls::ClientConfig>,
    server_name: Option<ServerName<'static>>,
    /// File of the authorities, unless they are those of the system.
    authorities: Option<PathBuf>,
    /// User that the client's own certificate names.
    user: Option<String>,
}

impl ClientSettings {
    /// Reads the files.
    pub fn read(&self) -> Result<ClientConfig, Error> {
        let builder = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?;
        let builder = if self.accepts_any_server {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer(provider())))
        } else {
            builder.with_root_certificates(match &self.authorities {
                Some(path) => files::authorities(path)?,
                None => authorities_of_system()?,
            })
        };
        let mut user = None;
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((file, key)) => {
                let certificates = files::certificates(file)?;
                user = certificates.first().and_then(names::user);
                builder
                    .with_client_auth_cert(certificates, files::key(key)?)
                    .map_err(|source| Error::unusable(file, key, &source))?
            }
        };
        let server_name = self.server_name.as_deref().map(name).transpose()?;
        let authorities = self.authorities.clone();
        Ok(ClientConfig { config: Arc::new(config), server_name, authorities, user })
    }
}

impl ClientConfig {
    /// Returns the configuration for libraries that run sessions of their own. The name of the
    /// server is for these to check.
    pub fn shared(&self) -> Arc<rustls::ClientConfig> {
        Arc::clone(&self.config)
    }

    /// Returns the user that the client's own certificate names, if there is one.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the name that the certificate of the server at `host` must have.
    pub(crate) fn server_name(&self, host: &str) -> Result<ServerName<'static>, Error> {
        self.server_name.clone().map_or_else(|| name(host), Ok)
    }

    /// Returns the error of a handshake, with the file that lacks the authority of the server.
    pub(crate) fn explain(&self, error: io::Error) -> io::Error {
        let text = error.to_string();
        match &self.authorities {
            Some(file) if text.contains(UNKNOWN_AUTHORITY) => {
                let lacking = format!("its authority is not in {}", file.display());
                io::Error::new(error.kind(), text.replace(UNKNOWN_AUTHORITY, &lacking))
            }
            _ => error,
        }
    }
}

fn name(host: &str) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(host.to_owned()).map_err(|_| Error::ServerName(host.to_owned()))
}

fn authorities_of_system() -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() { Err(Error::NoAuthorities) } else { Ok(store) }
}

/// Verifier that accepts each certificate. The peer has its key all the same.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
