//! Peeking: the key of a request that changes one record, without parsing the request.

use super::{MAGIC, command};

/// Returns the key of a request that changes one record. `None` for any other request, and for one
/// whose key is not complete. The rest of the request is not looked at.
pub(crate) fn peek_key(request: &[u8]) -> Option<&[u8]> {
    let (&[MAGIC, command, size_0, size_1, size_2, size_3], rest) = request.split_first_chunk()?
    else {
        return None;
    };
    // Bytes between the size of the key and the key.
    let skipped = match command {
        command::OUT => 0,
        command::PUT | command::PUT_KEEP | command::PUT_CAT | command::ADD_INT => 4,
        command::PUT_SHIFT => 8,
        command::ADD_DOUBLE => 16,
        _ => return None,
    };
    let size = u32::from_be_bytes([size_0, size_1, size_2, size_3]) as usize;
    rest.get(skipped..)?.get(..size)
}

#[cfg(test)]
mod tests {
    use super::super::{Request, encode};
    use super::*;

    fn bytes(request: &Request<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(request, &mut bytes).expect("a short request");
        bytes
    }

    #[test]
    fn the_key_of_each_request_that_changes_one_record_is_found() {
        let (key, value): (&[u8], &[u8]) = (b"the key", b"a longer value");
        for request in [
            Request::Put { key, value },
            Request::PutKeep { key, value },
            Request::PutCat { key, value },
            Request::PutShift { key, value, width: 7 },
            Request::Out { key },
            Request::AddInt { key, addend: -1 },
            Request::AddDouble { key, integral: 1, fractional: 2 },
        ] {
            let bytes = bytes(&request);
            assert_eq!(peek_key(&bytes), Some(key), "{request:?}");
            let end = bytes.windows(key.len()).position(|part| part == key).expect("the key");
            for cut in 0..end + key.len() {
                assert_eq!(peek_key(&bytes[..cut]), None, "{request:?}, {cut} bytes");
            }
        }
    }

    #[test]
    fn other_requests_have_no_key_to_peek_at() {
        for request in [Request::Vanish, Request::Sync, Request::Get { key: b"key" }] {
            assert_eq!(peek_key(&bytes(&request)), None, "{request:?}");
        }
        assert_eq!(peek_key(b"\xc9\x20\0\0\0\x01k"), None);
    }
}
