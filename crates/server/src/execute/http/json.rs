//! Keys and values in JSON: a string, or `{"base64": ".."}` where the bytes are no text.

use serde_json::{Value, json};
use wire::base64;

/// Media type of a document.
pub(super) const JSON: &str = "application/json";

/// Media type of documents one to a line.
pub(super) const JSON_LINES: &str = "application/x-ndjson";

/// Bytes, as JSON has them.
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

/// The bytes that JSON has, if it is of either form.
pub(super) fn to_bytes(value: &Value) -> Option<Vec<u8>> {
    if let Some(text) = value.as_str() {
        return Some(text.as_bytes().to_vec());
    }
    let object = value.as_object().filter(|object| object.len() == 1)?;
    let encoded = object.get("base64")?.as_str()?;
    let mut buffer = vec![0; encoded.len().div_ceil(4) * 3];
    let length = base64::decode(encoded.as_bytes(), &mut buffer)?.len();
    buffer.truncate(length);
    Some(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&all[..], b"", b"text", "\u{e9}\0".as_bytes(), b"\xff"] {
            assert_eq!(to_bytes(&from_bytes(bytes)).as_deref(), Some(bytes));
        }
        assert_eq!(from_bytes(b"text"), json!("text"));
        assert_eq!(from_bytes(b"\xff"), json!({ "base64": "/w==" }));
    }

    #[test]
    fn what_is_of_neither_form_is_nothing() {
        for value in [
            json!(1),
            json!(null),
            json!({}),
            json!({ "base64": "x" }),
            json!(["a"]),
            json!({ "base64": "", "other": 1 }),
        ] {
            assert_eq!(to_bytes(&value), None, "{value}");
        }
    }
}
