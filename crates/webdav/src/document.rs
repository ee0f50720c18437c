//! XML documents of requests: checks their size, depth, namespaces and entities.
//!
//! The protocol library parses a document with one call per level, and each level walks all that it
//! contains. The parser copies all namespaces for each element, and expands entities into texts
//! that are far longer than the document. So all that is checked before a document is parsed.

use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use std::future::poll_fn;
use std::pin::Pin;
use xml::common::XmlVersion;
use xml::reader::{EventReader, ParserConfig, XmlEvent};

/// Most bytes of a document: the library's limit.
const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// Most levels of nested elements.
pub const LEVELS_MAX: usize = 100;

/// Most namespaces that an element is in, without those of XML itself.
pub const NAMESPACES_MAX: usize = 100;

/// Namespaces of XML itself: its own, that of declarations, and none.
const OWN_NAMESPACES: usize = 3;

/// Receives a document. Fails with the status of the refusal.
pub(crate) async fn receive(mut body: Incoming) -> Result<Vec<u8>, StatusCode> {
    let mut document = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(data) = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data() else { continue };
        if document.len() + data.len() > DOCUMENT_BYTES_MAX {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        document.extend_from_slice(&data);
    }
    if is_safe(&document) { Ok(document) } else { Err(StatusCode::BAD_REQUEST) }
}

/// Returns the events of a document. By itself, the parser accepts several roots.
pub(crate) fn events(document: &[u8]) -> impl Iterator<Item = xml::reader::Result<XmlEvent>> {
    let config = ParserConfig::new().allow_multiple_root_elements(false);
    EventReader::new_with_config(document, config).into_iter()
}

/// Returns whether a document may be parsed. Its parser reports other errors itself.
fn is_safe(document: &[u8]) -> bool {
    let mut levels = 0_usize;
    for event in events(document) {
        match event {
            Ok(XmlEvent::StartElement { namespace, .. }) => {
                levels += 1;
                if namespace.iter().count() > NAMESPACES_MAX + OWN_NAMESPACES {
                    return false;
                }
            }
            Ok(XmlEvent::EndElement { .. }) => levels = levels.saturating_sub(1),
            // Entities, and characters that a response cannot have.
            Ok(
                XmlEvent::Doctype { .. }
                | XmlEvent::StartDocument { version: XmlVersion::Version11, .. },
            ) => return false,
            Ok(_) => {}
            Err(_) => return true,
        }
        if levels > LEVELS_MAX {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_levels_is_limited() {
        let nested = |levels: usize| ["<a>".repeat(levels), "</a>".repeat(levels)].concat();
        assert!(is_safe(nested(LEVELS_MAX).as_bytes()));
        assert!(!is_safe(nested(LEVELS_MAX + 1).as_bytes()));
        assert!(!is_safe("<a b='/>'><!--</a>-->".repeat(LEVELS_MAX + 1).as_bytes()));
        assert!(is_safe(["<a>", &"<b/>".repeat(LEVELS_MAX), "</a>"].concat().as_bytes()));
        for document in ["", "<", "text"] {
            assert!(is_safe(document.as_bytes()));
        }
    }

    #[test]
    fn the_number_of_namespaces_is_limited() {
        let declared = |count: usize| {
            let names = (0..count).map(|number| format!(" xmlns:n{number}='u{number}'"));
            format!("<a{}><b/></a>", names.collect::<String>())
        };
        assert!(is_safe(declared(NAMESPACES_MAX).as_bytes()));
        assert!(!is_safe(declared(NAMESPACES_MAX + 1).as_bytes()));
    }

    #[test]
    fn entities_and_the_characters_of_xml_1_1_are_refused() {
        assert!(!is_safe(b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"));
        assert!(!is_safe(b"<?xml version='1.1'?><a>&#1;</a>"));
        assert!(is_safe(b"<?xml version='1.0'?><a>&amp;</a>"));
    }
}
