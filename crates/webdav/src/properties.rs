//! Properties that clients give to files and folders, in internal records of the server.
//!
//! One record has all properties of a file: a JSON array with an array per property, of namespace,
//! null, name, and the element as received. The namespace may be null. Earlier versions stored a
//! prefix in place of the first null.

use crate::failure::Failure;
use crate::names::Name;
use crate::update::{PROPERTIES_BYTES_MAX, Update};
use hyper::StatusCode;
use serde_json::{Value, json};
use server::Records;

/// A stored property.
#[derive(Clone, Debug)]
pub(crate) struct Property {
    pub(crate) name: Name,
    /// The element, which may be damaged if something else has written it.
    pub(crate) element: Option<String>,
}

fn record_name(key: &[u8]) -> Vec<u8> {
    [b"webdav properties ", key].concat()
}

/// Returns all properties of the file or folder at a key.
pub(crate) fn all(records: &Records, key: &[u8]) -> Result<Vec<Property>, Failure> {
    records.check_read(key)?;
    Ok(records.own(&record_name(key))?.map_or_else(Vec::new, |stored| decode(&stored)))
}

/// Sets and removes properties in one step. Returns the outcome.
pub(crate) fn update(
    records: &Records,
    key: &[u8],
    update: &Update,
) -> Result<StatusCode, Failure> {
    records.check_write(key)?;
    let status = records.change_own(&record_name(key), |stored| {
        let mut properties = stored.map_or_else(Vec::new, decode);
        for change in &update.changes {
            properties.retain(|other| other.name != change.name);
            if let Some(element) = &change.value {
                let (name, element) = (change.name.clone(), Some(element.clone()));
                properties.push(Property { name, element });
            }
        }
        let encoded = encode(&properties);
        if encoded.len() > PROPERTIES_BYTES_MAX {
            return (stored.map(<[u8]>::to_vec), StatusCode::INSUFFICIENT_STORAGE);
        }
        ((!properties.is_empty()).then_some(encoded), StatusCode::OK)
    })?;
    Ok(status)
}

/// Copies the properties of one key to another.
pub(crate) fn copy(records: &Records, from: &[u8], to: &[u8]) -> Result<(), Failure> {
    records.check_read(from)?;
    records.check_write(to)?;
    let properties = records.own(&record_name(from))?;
    if properties.is_some() || records.own(&record_name(to))?.is_some() {
        records.change_own(&record_name(to), |_| (properties.clone(), ()))?;
    }
    Ok(())
}

/// Removes all properties of a key.
pub(crate) fn remove(records: &Records, key: &[u8]) -> Result<(), Failure> {
    records.check_write(key)?;
    if records.own(&record_name(key))?.is_some() {
        records.change_own(&record_name(key), |_| (None, ()))?;
    }
    Ok(())
}

fn encode(properties: &[Property]) -> Vec<u8> {
    let property = |Property { name, element }: &Property| {
        let namespace = Some(&*name.namespace).filter(|namespace| !namespace.is_empty());
        json!([namespace, null, name.local, element])
    };
    Value::Array(properties.iter().map(property).collect()).to_string().into_bytes()
}

/// Parses stored properties. Invalid ones, written by something else, are ignored.
fn decode(stored: &[u8]) -> Vec<Property> {
    let Ok(Value::Array(properties)) = serde_json::from_slice(stored) else { return Vec::new() };
    let property = |property: Value| {
        let text = |place: usize| property.get(place)?.as_str().map(str::to_owned);
        let namespace = text(0).unwrap_or_default().into();
        let name = Name { namespace, local: text(2)?.into() };
        Some(Property { name, element: text(3) })
    };
    properties.into_iter().filter_map(property).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_of_earlier_versions_and_of_this_one_are_read() {
        let stored = r#"[["u","x","a","<?xml version=\"1.0\"?><x:a xmlns:x=\"u\"/>"],
            [null,null,"b",null],["","","c","<c/>"],[1],"text"]"#;
        let read = decode(stored.as_bytes());
        let again = decode(&encode(&read));
        for read in [read, again] {
            let names = read.iter().map(|property| {
                let Name { namespace, local } = &property.name;
                (&**namespace, &**local, property.element.is_some())
            });
            let expected = [("u", "a", true), ("", "b", false), ("", "c", true)];
            assert!(names.eq(expected), "{read:?}");
        }
        assert!(decode(b"no JSON").is_empty());
    }
}
