//! Expiry: the time after which a certificate is no longer valid.

use rustls::pki_types::CertificateDer;
use std::time::SystemTime;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// Returns the end of the first of these certificates that ends.
pub(crate) fn first_end(certificates: &[CertificateDer<'_>]) -> Option<SystemTime> {
    let end = |certificate: &CertificateDer<'_>| {
        let certificate = Certificate::from_der(certificate).ok()?;
        Some(certificate.tbs_certificate.validity.not_after.to_system_time())
    };
    certificates.iter().filter_map(end).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use std::time::Duration;

    #[test]
    fn the_first_certificate_that_ends_counts() {
        let ending = |year| {
            let mut params = CertificateParams::default();
            params.not_after = date_time_ymd(year, 1, 1);
            let key = KeyPair::generate().expect("a key");
            params.self_signed(&key).expect("a certificate").der().clone()
        };
        let certificates = [ending(2031), ending(2001), CertificateDer::from(vec![1])];
        let seconds = Duration::from_secs(978_307_200);
        assert_eq!(first_end(&certificates), Some(SystemTime::UNIX_EPOCH + seconds));
        assert_eq!(first_end(&certificates[2..]), None);
    }
}
