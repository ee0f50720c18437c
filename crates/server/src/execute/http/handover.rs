//! Requests that are for WebDAV, if that is served.

use crate::execute::{Context, Next, Step};
use wire::Parse;
use wire::http::{Head, Method, Status, head, reply};

/// Hands the connection over if the request at the beginning of `input` is one of WebDAV's, or refuses
/// it if it would change what a WebDAV client has locked.
pub(super) fn begin(context: &Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Option<Step> {
    let takeover = context.shared.takeover()?;
    let Parse::Complete(head, _) = head(input) else { return None };
    let is_plain = !is_of_this_server(&head);
    let hands_over = match head.method {
        Method::Dav | Method::Options => true,
        // Locks and folders are to be respected.
        Method::Put | Method::Delete => is_plain,
        Method::Get | Method::Head => {
            head.target.ends_with(b"/") && super::list::query(&head).is_none()
        }
        Method::Post | Method::Other => false,
    };
    if hands_over {
        return Some(Step::Executed { bytes: 0, next: Next::HandOver });
    }
    let changes = matches!(head.method, Method::Put | Method::Delete);
    if changes && takeover.is_locked(&head.key()) {
        reply::message(output, Status::Locked);
        return Some(Step::Executed { bytes: input.len(), next: Next::Refuse });
    }
    None
}

/// Whether a request asks for what only this server has.
fn is_of_this_server(head: &Head<'_>) -> bool {
    head.header("X-TT-PDMODE").is_some() || super::freshness::asked_for(head) != Ok(0)
}
