//! Console: a page for a browser that shows metrics and records, from files of the program.
//!
//! The page asks for the [figures](super::figures) of the server, and the [relay](super::relay) for
//! records. It loads nothing from elsewhere, has no script within a page, and addresses
//! everything relative to itself, so that it also works behind a proxy under a path.

use super::exchange::Response;
use wire::http::{Conditions, FailedCondition, Head, Status};
use xxhash_rust::xxh3::xxh3_64;

/// Folder of the console.
const FOLDER: &[u8] = b"/ui/";

/// Policy of the page: it may load files of the console, and ask the server, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Names, media types and contents of the files. The first one is the page.
const FILES: [(&[u8], &str, &[u8]); 9] = [
    (b"", HTML, include_bytes!("console/index.html")),
    (b"style.css", "text/css; charset=utf-8", include_bytes!("console/style.css")),
    (b"icon.svg", "image/svg+xml", include_bytes!("console/icon.svg")),
    (b"main.js", SCRIPT, include_bytes!("console/main.js")),
    (b"actions.js", SCRIPT, include_bytes!("console/actions.js")),
    (b"changes.js", SCRIPT, include_bytes!("console/changes.js")),
    (b"records.js", SCRIPT, include_bytes!("console/records.js")),
    (b"server.js", SCRIPT, include_bytes!("console/server.js")),
    (b"view.js", SCRIPT, include_bytes!("console/view.js")),
];

/// Returns the response to a GET of a file of the console, or of a path from which a browser is
/// sent to it.
pub(super) fn response(path: &[u8], head: &Head<'_>) -> Option<Response> {
    let is_browser = || {
        let accept = head.list("Accept").unwrap_or_default();
        accept.split(|byte| b",; ".contains(byte)).any(|part| part == b"text/html")
    };
    if path == b"/ui" || (path == b"/" && is_browser()) {
        return Some(Response::text(Status::Found, "see /ui/").with("Location", "ui/"));
    }
    let name = path.strip_prefix(FOLDER)?;
    let (_, content_type, body) = FILES.iter().find(|(file, ..)| *file == name)?;
    let tag = format!("\"{:016x}\"", xxh3_64(body));
    let is_known = Conditions::of(head).check(Some(&tag)) == Err(FailedCondition::NoneMatch);
    let response = Response::fixed(content_type, body, POLICY)
        .with("ETag", tag)
        .with("Referrer-Policy", "no-referrer");
    Some(if is_known { response.not_modified() } else { response })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_console_are_small() {
        let bytes: usize = FILES.iter().map(|(.., body)| body.len()).sum();
        assert!(bytes <= 60 << 10, "{bytes}");
    }
}
