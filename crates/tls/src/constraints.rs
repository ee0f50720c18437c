//! Constraints: what makes clients refuse a certificate for a server. It is one of an authority, or
//! has no name.

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints, SubjectAltName};

/// Returns whether a certificate is one of an authority.
pub(crate) fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    let Ok(certificate) = Certificate::from_der(certificate) else { return false };
    let constraints = certificate.tbs_certificate.get::<BasicConstraints>().ok().flatten();
    constraints.is_some_and(|(_, constraints)| constraints.ca)
}

/// Returns whether a certificate has no alternative name that is a host name or an address. Clients
/// do not look at the common name of its subject.
pub(crate) fn is_nameless(certificate: &CertificateDer<'_>) -> bool {
    let Ok(certificate) = Certificate::from_der(certificate) else { return false };
    let names = certificate.tbs_certificate.get::<SubjectAltName>().ok().flatten();
    let is_name =
        |name: &GeneralName| matches!(name, GeneralName::DnsName(_) | GeneralName::IpAddress(_));
    !names.is_some_and(|(_, names)| names.0.iter().any(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, SanType};

    #[test]
    fn a_certificate_is_nameless_without_a_host_name_and_an_address() {
        let host = SanType::DnsName("db.example.org".try_into().expect("a host name"));
        let mail = SanType::Rfc822Name("ann@example.org".try_into().expect("a mail address"));
        let address = SanType::IpAddress([127, 0, 0, 1].into());
        for (names, expected) in [
            (vec![], true),
            (vec![mail.clone()], true),
            (vec![mail, host], false),
            (vec![address], false),
        ] {
            let mut params = CertificateParams::default();
            params.subject_alt_names = names;
            let key = KeyPair::generate().expect("a key");
            let certificate = params.self_signed(&key).expect("a certificate");
            assert_eq!(is_nameless(certificate.der()), expected);
        }
        assert!(!is_nameless(&CertificateDer::from(vec![1])));
    }

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
