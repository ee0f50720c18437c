//! Names: the user that a client certificate names.

use crate::limits::NAME_BYTES_MAX;
use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::der::{Any, Decode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Returns the user that a certificate names: the common name of its subject, or else its first
/// alternative name that is a mail address or a host name.
pub(crate) fn user(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?.tbs_certificate;
    let subject = certificate.subject.0.iter().flat_map(|name| name.0.iter());
    let common = subject.filter(|part| part.oid == COMMON_NAME).find_map(|part| text(&part.value));
    let is_valid = |name: &String| {
        (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control)
    };
    if common.is_some() {
        return common.filter(is_valid);
    }
    let (_, alternatives) = certificate.get::<SubjectAltName>().ok().flatten()?;
    alternatives
        .0
        .iter()
        .find_map(|name| match name {
            GeneralName::Rfc822Name(name) | GeneralName::DnsName(name) => {
                Some(name.as_str().to_owned())
            }
            _ => None,
        })
        .filter(is_valid)
}

/// Returns the text of an attribute.
fn text(value: &Any) -> Option<String> {
    let utf8 = value.decode_as::<Utf8StringRef<'_>>().map(|text| text.as_str().to_owned());
    utf8.ok()
        .or_else(|| Some(value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str().to_owned()))
        .or_else(|| Some(value.decode_as::<Ia5StringRef<'_>>().ok()?.as_str().to_owned()))
        .or_else(|| Some(value.decode_as::<TeletexStringRef<'_>>().ok()?.as_str().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    fn named(common: Option<&str>, alternatives: Vec<SanType>) -> Option<String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(common) = common {
            params.distinguished_name.push(DnType::CommonName, common);
        }
        params.subject_alt_names = alternatives;
        let key = KeyPair::generate().expect("a key");
        user(params.self_signed(&key).expect("a certificate").der())
    }

    #[test]
    fn the_common_name_is_the_user_and_without_one_the_first_alternative_name() {
        let mail = SanType::Rfc822Name("ann@example.org".try_into().expect("a mail address"));
        let host = SanType::DnsName("db.example.org".try_into().expect("a host name"));
        let address = SanType::IpAddress([127, 0, 0, 1].into());
        let is = |name: &str| Some(name.to_owned());
        assert_eq!(named(Some("ann"), vec![mail.clone()]), is("ann"));
        assert_eq!(named(Some("Zoë"), vec![]), is("Zoë"));
        assert_eq!(
            named(None, vec![address.clone(), mail.clone(), host.clone()]),
            is("ann@example.org")
        );
        assert_eq!(named(None, vec![host, mail]), is("db.example.org"));
        assert_eq!(named(None, vec![address]), None);
    }

    #[test]
    fn a_name_that_is_empty_too_long_or_has_control_characters_names_no_user() {
        let host = SanType::DnsName("db.example.org".try_into().expect("a host name"));
        let longest = "a".repeat(NAME_BYTES_MAX);
        assert_eq!(named(Some(&longest), vec![]), Some(longest.clone()));
        for name in ["", "ann\nroot", &(longest + "a")] {
            // The alternative name is not asked: the subject has a name.
            assert_eq!(named(Some(name), vec![host.clone()]), None, "{name:?}");
        }
        assert_eq!(user(&CertificateDer::from(&b"no certificate"[..])), None);
    }
}
