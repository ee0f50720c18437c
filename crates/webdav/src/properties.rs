//! Properties that clients give to files and folders, in internal records of the server.
//!
//! One record has all properties of a file: a JSON array with an array per property, of namespace,
//! prefix, name, and the element as received. Namespace and prefix may be null.

use crate::document::has_few_levels;
use crate::failure::Failure;
use dav_server::fs::DavProp;
use hyper::StatusCode;
use serde_json::{Value, json};
use server::Records;

/// Most bytes of the stored properties of one file.
pub const PROPERTIES_BYTES_MAX: usize = 256 << 10;

fn name(key: &[u8]) -> Vec<u8> {
    [b"webdav properties ", key].concat()
}

/// Returns all properties of the file or folder at a key.
pub(crate) fn all(records: &Records, key: &[u8]) -> Result<Vec<DavProp>, Failure> {
    records.check_read(key)?;
    Ok(records.own(&name(key))?.map_or_else(Vec::new, |stored| decode(&stored)))
}

/// Sets and removes properties in one step. Returns the outcome for each.
pub(crate) fn patch(
    records: &Records,
    key: &[u8],
    patch: &[(bool, DavProp)],
) -> Result<Vec<(StatusCode, DavProp)>, Failure> {
    records.check_write(key)?;
    let status = records.change_own(&name(key), |stored| {
        let mut properties = stored.map_or_else(Vec::new, decode);
        for (sets, property) in patch {
            properties.retain(|other| !is_same(other, property));
            if *sets {
                properties.push(property.clone());
            }
        }
        let encoded = encode(&properties);
        if encoded.len() > PROPERTIES_BYTES_MAX {
            return (stored.map(<[u8]>::to_vec), StatusCode::INSUFFICIENT_STORAGE);
        }
        ((!properties.is_empty()).then_some(encoded), StatusCode::OK)
    })?;
    let answer =
        |(_, property): &(bool, DavProp)| (status, DavProp { xml: None, ..property.clone() });
    Ok(patch.iter().map(answer).collect())
}

/// Copies the properties of one key to another.
pub(crate) fn copy(records: &Records, from: &[u8], to: &[u8]) -> Result<(), Failure> {
    records.check_read(from)?;
    records.check_write(to)?;
    let properties = records.own(&name(from))?;
    if properties.is_some() || records.own(&name(to))?.is_some() {
        records.change_own(&name(to), |_| (properties.clone(), ()))?;
    }
    Ok(())
}

/// Removes all properties of a key.
pub(crate) fn remove(records: &Records, key: &[u8]) -> Result<(), Failure> {
    records.check_write(key)?;
    if records.own(&name(key))?.is_some() {
        records.change_own(&name(key), |_| (None, ()))?;
    }
    Ok(())
}

/// Returns whether both have the same name.
pub(crate) fn is_same(one: &DavProp, other: &DavProp) -> bool {
    one.name == other.name && one.namespace == other.namespace
}

fn encode(properties: &[DavProp]) -> Vec<u8> {
    let property = |property: &DavProp| {
        let xml = property.xml.as_deref().map(String::from_utf8_lossy);
        json!([property.namespace, property.prefix, property.name, xml])
    };
    Value::Array(properties.iter().map(property).collect()).to_string().into_bytes()
}

/// Parses stored properties. Invalid ones, written by something else, are ignored.
fn decode(stored: &[u8]) -> Vec<DavProp> {
    let Ok(Value::Array(properties)) = serde_json::from_slice(stored) else { return Vec::new() };
    let property = |property: Value| {
        let text = |place: usize| property.get(place)?.as_str().map(str::to_owned);
        Some(DavProp {
            namespace: text(0),
            prefix: text(1),
            name: text(2)?,
            xml: text(3).map(String::into_bytes).filter(|xml| has_few_levels(xml)),
        })
    };
    properties.into_iter().filter_map(property).collect()
}
