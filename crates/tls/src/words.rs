//! Words for the errors of rustls, which shows many of them as the names of its own types.

use rustls::{CertificateError, Error, InvalidMessage};
use std::fmt::Debug;

/// The flaw of a certificate whose authority is not one of the known ones.
pub(crate) const UNKNOWN_AUTHORITY: &str = "its authority is unknown";

/// Returns an error as a person reads it.
pub(crate) fn words(error: &Error) -> String {
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the peer does not speak TLS".to_owned()
        }
        Error::InvalidMessage(what) => format!("the peer broke the protocol: {}", spaced(what)),
        Error::PeerMisbehaved(what) => format!("the peer broke the protocol: {}", spaced(what)),
        Error::PeerIncompatible(what) => {
            format!("nothing in common with the peer: {}", spaced(what))
        }
        Error::AlertReceived(alert) => format!("the peer sent the alert: {}", spaced(alert)),
        Error::InvalidCertificate(what) => match flaw(what) {
            Some(flaw) => format!("invalid peer certificate: {flaw}"),
            None => error.to_string(),
        },
        error => error.to_string(),
    }
}

/// Returns why a certificate of one's own cannot be used.
pub(crate) fn words_of_own(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(what) => flaw(what).unwrap_or_else(|| words(error)),
        error => words(error),
    }
}

/// Returns the flaw of a certificate, unless rustls has words for it.
fn flaw(error: &CertificateError) -> Option<String> {
    Some(match error {
        CertificateError::UnknownIssuer => UNKNOWN_AUTHORITY.to_owned(),
        CertificateError::BadSignature
        | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its signature is not that of a known authority".to_owned()
        }
        CertificateError::BadEncoding => "it is malformed".to_owned(),
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "it is one for authorities (CA:TRUE)".to_owned()
        }
        CertificateError::Other(other)
            if format!("{other:?}").contains("UnsupportedCertVersion") =>
        {
            "it is of an old version: make one of version 3, with -addext".to_owned()
        }
        CertificateError::Revoked => "it is revoked".to_owned(),
        _ => return None,
    })
}

/// Returns the name of a variant as words: "no cipher suites in common" of
/// `NoCipherSuitesInCommon`.
fn spaced(variant: &impl Debug) -> String {
    let name = format!("{variant:?}");
    let name = name.split(|letter: char| !letter.is_ascii_alphanumeric()).next();
    let (mut words, mut last) = (String::new(), ' ');
    for letter in name.unwrap_or_default().chars() {
        if letter.is_ascii_uppercase() && last.is_ascii_lowercase() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
        last = letter;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{AlertDescription, PeerIncompatible, PeerMisbehaved};

    #[test]
    fn an_old_version_of_ones_own_certificate_is_not_called_that_of_a_peer() {
        /// As the error of the library shows itself.
        #[derive(Debug)]
        struct UnsupportedCertVersion;
        impl std::fmt::Display for UnsupportedCertVersion {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("UnsupportedCertVersion")
            }
        }
        impl std::error::Error for UnsupportedCertVersion {}
        let other = rustls::OtherError(std::sync::Arc::new(UnsupportedCertVersion));
        let error = Error::from(CertificateError::Other(other));
        let flaw = "it is of an old version: make one of version 3, with -addext";
        assert_eq!(words_of_own(&error), flaw);
        assert_eq!(words(&error), format!("invalid peer certificate: {flaw}"));
    }

    #[test]
    fn no_error_shows_the_name_of_a_type() {
        let algorithm = CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id: vec![6, 8],
            public_key_algorithm_id: vec![6, 9],
        };
        for (error, text) in [
            (
                Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "the peer does not speak TLS",
            ),
            (
                Error::AlertReceived(AlertDescription::CertificateRequired),
                "the peer sent the alert: certificate required",
            ),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                "the peer sent the alert: unknown ca",
            ),
            (
                Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
                "nothing in common with the peer: no cipher suites in common",
            ),
            (
                Error::PeerMisbehaved(PeerMisbehaved::TooManyEmptyFragments),
                "the peer broke the protocol: too many empty fragments",
            ),
            (
                CertificateError::UnknownIssuer.into(),
                "invalid peer certificate: its authority is unknown",
            ),
            (
                algorithm.into(),
                "invalid peer certificate: its signature is not that of a known authority",
            ),
        ] {
            assert_eq!(words(&error), text);
        }
    }
}
