//! The `Destination` header: the target of a COPY or a MOVE.

use hyper::StatusCode;
use hyper::header::{HOST, HeaderMap, HeaderValue};
use wire::http::is_same_authority;
use wire::http::path::{authority, path_key, path_target};

const DESTINATION: &str = "destination";

/// Replaces the destination, if there is one, with the canonical target of its key. Fails with the
/// status of the refusal: 502 if it is on another server (RFC 4918, section 9.8.5).
pub(crate) fn check(headers: &mut HeaderMap) -> Result<(), StatusCode> {
    let Some(given) = headers.get(DESTINATION).map(HeaderValue::as_bytes) else { return Ok(()) };
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    if let (Some(authority), Some(host)) = (authority(given), host)
        && !is_same_authority(authority, host)
    {
        return Err(StatusCode::BAD_GATEWAY);
    }
    let key = path_key(given).map_err(|_| StatusCode::BAD_REQUEST)?;
    let target = HeaderValue::from_str(&path_target(&key)).map_err(|_| StatusCode::BAD_REQUEST)?;
    headers.insert(DESTINATION, target);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_path_of_this_server() {
        for (host, destination, expected) in [
            ("a", "/b c+d", Ok("/b%20c%2Bd")),
            ("a", "http://a/b//c?d", Ok("/b/c")),
            ("a", "https://A:443/b/", Ok("/b/")),
            ("a:1978", "http://user@a:1978/b", Ok("/b")),
            ("a", "http://b/c", Err(502)),
            ("a", "http://a:81/c", Err(502)),
            ("a", "http://a@b/c", Err(502)),
            ("a", "/../c", Err(400)),
            ("a", "ftp://a/c", Err(400)),
            ("a", "c", Err(400)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            headers.insert(DESTINATION, HeaderValue::from_static(destination));
            let checked = check(&mut headers).map_err(|status| status.as_u16());
            let found = checked.map(|()| headers[DESTINATION].to_str().expect("ASCII"));
            assert_eq!(found, expected, "{destination}");
        }
        check(&mut HeaderMap::new()).expect("nothing to check");
    }
}
