//! XML documents of requests: checks their size and depth.
//!
//! The protocol library parses a document with one call per level, and each level walks all that it
//! contains. So the depth is checked before the library parses it.

use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use std::future::poll_fn;
use std::pin::Pin;
use xml::reader::{EventReader, XmlEvent};

/// Most bytes of a document: the library's limit.
const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// Most levels of nested elements.
pub const LEVELS_MAX: usize = 100;

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
    if has_few_levels(&document) { Ok(document) } else { Err(StatusCode::BAD_REQUEST) }
}

/// Returns whether the library may parse a document. It reports other errors itself.
pub(crate) fn has_few_levels(document: &[u8]) -> bool {
    let mut levels = 0_usize;
    for event in EventReader::new(document) {
        match event {
            Ok(XmlEvent::StartElement { .. }) => levels += 1,
            Ok(XmlEvent::EndElement { .. }) => levels = levels.saturating_sub(1),
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
        assert!(has_few_levels(nested(LEVELS_MAX).as_bytes()));
        assert!(!has_few_levels(nested(LEVELS_MAX + 1).as_bytes()));
        assert!(!has_few_levels("<a b='/>'><!--</a>-->".repeat(LEVELS_MAX + 1).as_bytes()));
        assert!(has_few_levels(["<a>", &"<b/>".repeat(LEVELS_MAX), "</a>"].concat().as_bytes()));
        for document in ["", "<", "text"] {
            assert!(has_few_levels(document.as_bytes()));
        }
    }
}
