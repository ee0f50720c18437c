//! Configuration of a server: its certificate, and the client certificates that it asks for.

use crate::provider::provider;
use crate::{Error, constraints, expiry, files};
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// Protocols that a client may select by ALPN. Others than HTTP have no name there, and their
/// clients select none.
const PROTOCOLS: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];

/// Number of tickets to resume a session by, sent after each handshake.
const TICKETS: usize = 1;

/// Files in PEM format from which a [`ServerConfig`] is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The server's certificate, and then those between it and an authority.
    pub certificates: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// Authorities of client certificates. With it, each client must have a certificate.
    pub client_authorities: Option<PathBuf>,
}

/// Configuration of the sessions of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub(crate) config: Arc<rustls::ServerConfig>,
    expires: Option<SystemTime>,
    is_authority: bool,
    is_nameless: bool,
}

impl ServerConfig {
    /// Returns the time after which the first of the certificates is no longer valid.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires
    }

    /// Returns whether the server's certificate is one of an authority (CA:TRUE), which clients
    /// refuse for a server.
    pub fn is_authority(&self) -> bool {
        self.is_authority
    }

    /// Returns whether the server's certificate has neither a host name nor an address
    /// (subjectAltName), without which clients refuse it.
    pub fn is_nameless(&self) -> bool {
        self.is_nameless
    }
}

impl ServerFiles {
    /// Reads the files.
    ///
    /// Tickets of an earlier configuration do not resume sessions under the new one, so each client
    /// certificate is verified with the present authorities.
    pub fn read(&self) -> Result<ServerConfig, Error> {
        let certificates = files::certificates(&self.certificates)?;
        let expires = expiry::first_end(&certificates);
        let is_authority = certificates.first().is_some_and(constraints::is_authority);
        let is_nameless = certificates.first().is_some_and(constraints::is_nameless);
        let key = files::key(&self.key)?;
        let builder = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let authorities = Arc::new(files::authorities(path)?);
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(authorities, provider()).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| Error::Verifier {
                    path: path.clone(),
                    reason: error.to_string(),
                })?)
            }
        };
        let unusable =
            |source: rustls::Error| Error::unusable(&self.certificates, &self.key, &source);
        let mut config = builder.with_single_cert(certificates, key).map_err(unusable)?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        config.ticketer = Ticketer::new()?;
        config.send_tls13_tickets = TICKETS;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(ServerConfig { config: Arc::new(config), expires, is_authority, is_nameless })
    }
}
