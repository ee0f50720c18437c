//! Constraints: whether a certificate is one of an authority, which clients refuse for a server.

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::BasicConstraints;

/// Returns whether a certificate is one of an authority.
pub(crate) fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    let Ok(certificate) = Certificate::from_der(certificate) else { return false };
    let constraints = certificate.tbs_certificate.get::<BasicConstraints>().ok().flatten();
    constraints.is_some_and(|(_, constraints)| constraints.ca)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    #[test]
    fn a_certificate_is_one_of_an_authority_by_its_constraints() {
        for (is_ca, expected) in [
            (IsCa::Ca(BasicConstraints::Unconstrained), true),
            (IsCa::Ca(BasicConstraints::Constrained(0)), true),
            (IsCa::ExplicitNoCa, false),
            (IsCa::NoCa, false),
        ] {
            let mut params = CertificateParams::default();
            params.is_ca = is_ca;
            let key = KeyPair::generate().expect("a key");
            let certificate = params.self_signed(&key).expect("a certificate");
            assert_eq!(is_authority(certificate.der()), expected);
        }
        assert!(!is_authority(&CertificateDer::from(vec![1])));
    }
}
