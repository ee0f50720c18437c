//! Forms: arguments and results of a function that is called by POST.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::url;
use crate::Invalid;
use crate::limits::HTTP_FORM_FIELDS_MAX;

/// Media type of a form.
pub const CONTENT_TYPE: &str = "application/x-www-form-urlencoded";

/// Returns the values of a form in the order in which their names first appear. Names are ignored,
/// but values of one name are a single argument, joined by NUL.
///
/// Fails with [`Invalid::TooLarge`] above [`HTTP_FORM_FIELDS_MAX`] fields.
pub fn arguments(body: &[u8]) -> Result<Vec<Vec<u8>>, Invalid> {
    let mut values: Vec<Vec<u8>> = Vec::new();
    let mut index_by_name = HashMap::new();
    let fields = body.split(|byte| *byte == b'&').filter(|field| !field.is_empty());
    for (number, field) in fields.enumerate() {
        if number == HTTP_FORM_FIELDS_MAX {
            return Err(Invalid::TooLarge);
        }
        let (name, value) = match memchr::memchr(b'=', field) {
            Some(at) => (&field[..at], &field[at + 1..]),
            None => (field, &field[field.len()..]),
        };
        let value = url::decode(value);
        match index_by_name.entry(url::decode(name)) {
            Entry::Vacant(entry) => {
                entry.insert(values.len());
                values.push(value.into_owned());
            }
            Entry::Occupied(entry) => {
                let joined = &mut values[*entry.get()];
                joined.push(0);
                joined.extend_from_slice(&value);
            }
        }
    }
    Ok(values)
}

/// Appends the results as `res1=..&res2=..` and so on.
pub fn results<'r>(out: &mut Vec<u8>, results: impl IntoIterator<Item = &'r [u8]>) {
    for (number, result) in (1u64..).zip(results) {
        if number > 1 {
            out.push(b'&');
        }
        out.extend_from_slice(b"res");
        crate::decimal::write(out, number);
        out.push(b'=');
        url::encode(out, result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_order_and_names_are_ignored() {
        assert_eq!(arguments(b"a=hk%20a&b=no").unwrap(), [b"hk a".to_vec(), b"no".to_vec()]);
        assert_eq!(arguments(b"z=1&a=2&m=").unwrap(), [b"1".to_vec(), b"2".to_vec(), vec![]]);
    }

    #[test]
    fn values_of_one_name_are_joined_by_nul() {
        let joined = arguments(b"c=addcond&x=1&%63=age&c=NUMEQ").unwrap();
        assert_eq!(joined, [b"addcond\0age\0NUMEQ".to_vec(), b"1".to_vec()]);
    }

    #[test]
    fn empty_fields_are_skipped_and_a_lone_name_has_an_empty_value() {
        assert_eq!(arguments(b"").unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(arguments(b"&&a&&").unwrap(), [b"".to_vec()]);
        assert_eq!(arguments(b"a=b=c").unwrap(), [b"b=c".to_vec()]);
    }

    #[test]
    fn the_number_of_fields_is_limited() {
        let fields = |count: usize| b"a&".repeat(count);
        assert!(arguments(&fields(HTTP_FORM_FIELDS_MAX - 1)).is_ok());
        assert!(arguments(&fields(HTTP_FORM_FIELDS_MAX)).is_ok());
        assert_eq!(arguments(&fields(HTTP_FORM_FIELDS_MAX + 1)), Err(Invalid::TooLarge));
    }

    #[test]
    fn results_are_numbered_and_encoded() {
        let mut out = Vec::new();
        results(&mut out, [&b"hk a"[..], b"abcxyz"]);
        assert_eq!(out, b"res1=hk%20a&res2=abcxyz");
        out.clear();
        results(&mut out, []);
        assert_eq!(out, b"");
    }
}
