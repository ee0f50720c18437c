//! Handover of requests to WebDAV, if it is served.

use crate::protocol::{Context, Next, Step};
use wire::Parse;
use wire::http::path::path_key;
use wire::http::{Head, Method, Status, head, reply};

/// Hands the connection over if the request at the beginning of `input` belongs to WebDAV. Refuses
/// the request if it would change a resource that a WebDAV client has locked.
pub(super) fn begin(context: &Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Option<Step> {
    let upgrade = context.shared.upgrade()?;
    let Parse::Complete(head, _) = head(input) else { return None };
    if let Some(step) = super::refuse_foreign(context, &head, input, output) {
        return Some(step);
    }
    if !context.session.names_keys && belongs_to_webdav(&head) {
        return Some(Step::Executed { bytes: 0, next: Next::Upgrade });
    }
    let changes = matches!(head.method, Method::Put | Method::Delete);
    if changes && super::key(context, &head).is_ok_and(|key| upgrade.is_locked(&key)) {
        reply::message(output, Status::Locked);
        return Some(Step::Executed { bytes: input.len(), next: Next::Refuse });
    }
    None
}

/// Returns whether a request belongs to WebDAV, if it is served. All others are those of the event
/// loops, whatever came before them on the connection.
pub fn belongs_to_webdav(head: &Head<'_>) -> bool {
    if head.target != b"*" && path_key(head.target).is_err() {
        return false;
    }
    match head.method {
        Method::Dav | Method::Options => true,
        // WebDAV respects locks and folders.
        Method::Put | Method::Delete => !is_of_this_server(head),
        Method::Get | Method::Head => is_folder(head) && super::list::query(head).is_none(),
        Method::Post | Method::Other => false,
    }
}

/// Returns whether the target is the path of a folder.
fn is_folder(head: &Head<'_>) -> bool {
    path_key(head.target).is_ok_and(|key| key.is_empty() || key.ends_with(b"/"))
}

/// Returns whether a request uses an extension of this server.
fn is_of_this_server(head: &Head<'_>) -> bool {
    ["X-TT-PDMODE", super::FLAGS].iter().any(|name| head.header(name).is_some())
        || super::freshness::asked_for(head) != Ok(0)
}
