//! Keys and values in JSON: a string, or `{"base64": ".."}` if the bytes are not UTF-8.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Value, json};
use std::fmt::Formatter;
use wire::base64;

/// Media type of a document.
pub(super) const JSON: &str = "application/json";

/// Media type of documents with one JSON value per line.
pub(super) const JSON_LINES: &str = "application/x-ndjson";

/// Returns bytes in their JSON form.
pub(super) fn from_bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let mut encoded = Vec::new();
            base64::encode(&mut encoded, bytes);
            json!({ "base64": String::from_utf8_lossy(&encoded) })
        }
    }
}

/// The bytes of a parsed key or value. Other JSON in its place is not held in memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfEitherForm)
    }
}

struct OfEitherForm;

impl<'de> Visitor<'de> for OfEitherForm {
    type Value = Bytes;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a string or an object with base64")
    }

    fn visit_str<E>(self, text: &str) -> Result<Bytes, E> {
        Ok(Bytes(text.as_bytes().to_vec()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Bytes, A::Error> {
        let wrong = || A::Error::custom("an object has base64 and nothing else");
        if fields.next_key::<String>()?.as_deref() != Some("base64") {
            return Err(wrong());
        }
        let encoded: String = fields.next_value()?;
        if fields.next_key::<String>()?.is_some() {
            return Err(wrong());
        }
        let mut buffer = vec![0; encoded.len().div_ceil(4) * 3];
        let decoded = base64::decode(encoded.as_bytes(), &mut buffer).map(<[u8]>::len);
        buffer.truncate(decoded.ok_or_else(|| A::Error::custom("no base64"))?);
        Ok(Bytes(buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&all[..], b"", b"text", "\u{e9}\0".as_bytes(), b"\xff"] {
            let read: Bytes = serde_json::from_value(from_bytes(bytes)).expect("bytes");
            assert_eq!(read.0, bytes);
        }
        assert_eq!(from_bytes(b"text"), json!("text"));
        assert_eq!(from_bytes(b"\xff"), json!({ "base64": "/w==" }));
    }

    #[test]
    fn other_json_is_an_error() {
        for value in [
            json!(1),
            json!(null),
            json!({}),
            json!({ "base64": "x" }),
            json!(["a"]),
            json!({ "base64": "", "other": 1 }),
        ] {
            serde_json::from_value::<Bytes>(value).expect_err("of neither form");
        }
    }
}
