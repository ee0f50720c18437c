//! Responses, which are appended to an output buffer: a status line, `Content-Type` and
//! `Content-Length`, as in Tokyo Tyrant.

use crate::decimal;

/// Interim response to a client that waits for it before it sends a body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Media type of a value.
pub const OCTET_STREAM: &str = "application/octet-stream";

/// Media type of a message.
pub const TEXT: &str = "text/plain";

/// Status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of HTTP are the documentation")]
pub enum Status {
    Ok,
    Created,
    PartialContent,
    Found,
    NotModified,
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    Conflict,
    PreconditionFailed,
    PayloadTooLarge,
    UnsupportedMediaType,
    RangeNotSatisfiable,
    MisdirectedRequest,
    Locked,
    TooManyRequests,
    RequestHeaderFieldsTooLarge,
    InternalServerError,
    NotImplemented,
    ServiceUnavailable,
    GatewayTimeout,
    InsufficientStorage,
}

impl Status {
    /// Returns the code and the reason of the status line.
    pub fn code_and_reason(self) -> (&'static str, &'static str) {
        match self {
            Status::Ok => ("200", "OK"),
            Status::Created => ("201", "Created"),
            Status::PartialContent => ("206", "Partial Content"),
            Status::Found => ("302", "Found"),
            Status::NotModified => ("304", "Not Modified"),
            Status::BadRequest => ("400", "Bad Request"),
            Status::Unauthorized => ("401", "Unauthorized"),
            Status::Forbidden => ("403", "Forbidden"),
            Status::NotFound => ("404", "Not Found"),
            Status::MethodNotAllowed => ("405", "Method Not Allowed"),
            Status::Conflict => ("409", "Conflict"),
            Status::PreconditionFailed => ("412", "Precondition Failed"),
            Status::PayloadTooLarge => ("413", "Payload Too Large"),
            Status::UnsupportedMediaType => ("415", "Unsupported Media Type"),
            Status::RangeNotSatisfiable => ("416", "Range Not Satisfiable"),
            Status::MisdirectedRequest => ("421", "Misdirected Request"),
            Status::Locked => ("423", "Locked"),
            Status::TooManyRequests => ("429", "Too Many Requests"),
            Status::RequestHeaderFieldsTooLarge => ("431", "Request Header Fields Too Large"),
            Status::InternalServerError => ("500", "Internal Server Error"),
            Status::NotImplemented => ("501", "Not Implemented"),
            Status::ServiceUnavailable => ("503", "Service Unavailable"),
            Status::GatewayTimeout => ("504", "Gateway Timeout"),
            Status::InsufficientStorage => ("507", "Insufficient Storage"),
        }
    }
}

/// Appends a whole response.
pub fn response(out: &mut Vec<u8>, status: Status, content_type: &str, body: &[u8]) {
    out.reserve(body.len() + 128);
    headers(out, status, content_type, body.len() as u64);
    out.extend_from_slice(body);
}

/// Appends a header that stops a browser from guessing the media type: a stored value must not
/// become a page with scripts.
pub fn no_sniffing(out: &mut Vec<u8>) {
    header(out, "X-Content-Type-Options", "nosniff");
}

/// Appends headers that keep pages of other sites from reading or showing a response: a browser
/// gives them to no other site's page, neither as an image or a script nor in a frame.
pub fn no_embedding(out: &mut Vec<u8>) {
    header(out, "Cross-Origin-Resource-Policy", "same-origin");
    header(out, "X-Frame-Options", "DENY");
}

/// Value of `X-Frame-Options` of a record that is a [page](is_page).
pub const OWN_FRAMES: &str = "SAMEORIGIN";

/// Returns whether a browser shows a value of this media type as a page with scripts. In a frame of
/// another site's page a user could be made to click in it.
pub fn is_page(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    ["text/html", "application/xhtml+xml"].iter().any(|page| essence.eq_ignore_ascii_case(page))
}

/// Appends a response of a media type that Tokyo Tyrant does not have.
pub fn document(out: &mut Vec<u8>, content_type: &str, body: &[u8]) {
    out.reserve(body.len() + 128);
    open_headers(out, Status::Ok, content_type, body.len() as u64);
    no_sniffing(out);
    no_embedding(out);
    end_of_headers(out);
    out.extend_from_slice(body);
}

/// Appends a response whose body is its reason and a line feed.
pub fn message(out: &mut Vec<u8>, status: Status) {
    let (_, reason) = status.code_and_reason();
    plain_text(out, status, reason);
}

/// Appends a response whose body is a text and a line feed.
pub fn plain_text(out: &mut Vec<u8>, status: Status, text: &str) {
    headers(out, status, TEXT, text.len() as u64 + 1);
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

/// Appends a response whose body is a text and a line feed, and closes the connection.
pub fn last_text(out: &mut Vec<u8>, status: Status, text: &str) {
    status_line(out, status);
    header(out, "Content-Type", TEXT);
    header(out, "Content-Length", &(text.len() + 1).to_string());
    header(out, "Connection", "close");
    end_of_headers(out);
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

/// Appends a response without its body, as to HEAD of a present record.
pub fn headers(out: &mut Vec<u8>, status: Status, content_type: &str, content_length: u64) {
    open_headers(out, status, content_type, content_length);
    end_of_headers(out);
}

/// Appends a status line and the first headers; the caller appends further ones.
pub fn open_headers(out: &mut Vec<u8>, status: Status, content_type: &str, content_length: u64) {
    status_line(out, status);
    header(out, "Content-Type", content_type);
    out.extend_from_slice(b"Content-Length: ");
    decimal::write(out, content_length);
    out.extend_from_slice(b"\r\n");
}

/// Value of the header `Server` of an admin listener, by which clients tell it from other servers.
pub const ADMIN_LISTENER: &str = "tyrant-admin";

/// Value of the header `WWW-Authenticate`, which asks for a name and a password.
pub const BASIC_CHALLENGE: &str = "Basic realm=\"tyrant\", charset=\"UTF-8\"";

/// Appends a response that asks for a name and a password, and closes the connection. Its text is
/// `reason`, if there is one.
pub fn challenge(out: &mut Vec<u8>, reason: Option<&str>, is_head: bool) {
    let (_, status) = Status::Unauthorized.code_and_reason();
    let text = reason.unwrap_or(status);
    closing(out, Status::Unauthorized, ("WWW-Authenticate", BASIC_CHALLENGE), text, is_head);
}

/// Text for a client whose login is refused without a look at its password.
pub const TOO_MANY_LOGINS: &str = "too many failed logins, retry later";

/// Appends a response that asks to log in again after `seconds`, and closes the connection.
pub fn retry_after(out: &mut Vec<u8>, seconds: u64, is_head: bool) {
    let header = ("Retry-After", &*seconds.to_string());
    closing(out, Status::TooManyRequests, header, TOO_MANY_LOGINS, is_head);
}

fn closing(
    out: &mut Vec<u8>,
    status: Status,
    (name, value): (&str, &str),
    text: &str,
    is_head: bool,
) {
    status_line(out, status);
    header(out, name, value);
    header(out, "Connection", "close");
    header(out, "Content-Type", TEXT);
    header(out, "Content-Length", &(text.len() + 1).to_string());
    end_of_headers(out);
    if !is_head {
        out.extend_from_slice(text.as_bytes());
        out.push(b'\n');
    }
}

/// Appends a response without any header, as to HEAD of a missing record.
pub fn bare(out: &mut Vec<u8>, status: Status) {
    status_line(out, status);
    end_of_headers(out);
}

/// Appends the first line of a response that is made of parts, as that to OPTIONS.
pub fn status_line(out: &mut Vec<u8>, status: Status) {
    let (code, reason) = status.code_and_reason();
    for part in ["HTTP/1.1 ", code, " ", reason, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Appends a header. Control characters in the value become spaces, because they could end it.
pub fn header(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend(value.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

/// Appends the line that separates the headers from the body.
pub fn end_of_headers(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}
