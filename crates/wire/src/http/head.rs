//! Head of a request: its first line and its headers.

use std::borrow::Cow;
use std::mem::MaybeUninit;

use super::body::BodyLength;
use super::host::Addressing;
use super::url;
use crate::limits::{HTTP_HEAD_BYTES_MAX, HTTP_HEADERS_MAX};
use crate::{Invalid, Parse, decimal};

/// Method that the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of HTTP are the documentation")]
pub enum Method {
    Get,
    Head,
    Put,
    Post,
    Delete,
    Options,
    /// Method of WebDAV, or one that only its front end has.
    Dav,
    /// Any other method.
    Other,
}

impl Method {
    /// Returns the method of a name, if the server knows it.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        match name {
            b"GET" => Some(Method::Get),
            b"HEAD" => Some(Method::Head),
            b"PUT" => Some(Method::Put),
            b"POST" => Some(Method::Post),
            b"DELETE" => Some(Method::Delete),
            b"OPTIONS" => Some(Method::Options),
            b"PROPFIND" | b"PROPPATCH" | b"MKCOL" | b"COPY" | b"MOVE" | b"LOCK" | b"UNLOCK"
            | b"PATCH" => Some(Method::Dav),
            _ => None,
        }
    }
}

/// Head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The method.
    pub method: Method,
    /// Target as sent, see [`Head::key`].
    pub target: &'a [u8],
    /// Minor version, 0 or 1.
    pub minor_version: u8,
    /// Whether the connection stays open after the response: the default of the version, unless the
    /// `Connection` header changes it.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Length of the body.
    pub body: BodyLength,
    host: Option<&'a [u8]>,
    origin: Option<&'a [u8]>,
    /// Well-formed header lines.
    lines: &'a [u8],
}

impl<'a> Head<'a> {
    /// Returns to whom the request is addressed, and by whom.
    pub fn addressing(&self) -> Addressing<'a> {
        Addressing {
            host: self.host,
            origin: self.origin,
            may_lack_host: self.minor_version == 0,
            changes: !matches!(self.method, Method::Get | Method::Head | Method::Options),
        }
    }

    /// Returns the value of the first header of a name, in upper or lower case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers(name).next()
    }

    /// Returns the value of a header that is a list, which may have several lines.
    pub fn list(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let mut lines = self.headers(name);
        let mut list = Cow::Borrowed(lines.next()?);
        for line in lines {
            let list = list.to_mut();
            list.extend_from_slice(b", ");
            list.extend_from_slice(line);
        }
        Some(list)
    }

    fn headers(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.lines.split(|byte| *byte == b'\n').filter_map(move |line| {
            let (line_name, value) = line.split_at_checked(name.len())?;
            match value {
                [b':', value @ ..] if line_name.eq_ignore_ascii_case(name.as_bytes()) => {
                    Some(value.trim_ascii())
                }
                _ => None,
            }
        })
    }

    /// Returns the value of a header as a decimal number, if it is one.
    pub fn header_number(&self, name: &str) -> Option<i64> {
        decimal::signed(self.header(name)?)
    }

    /// Returns the key of the target: without `http://host` and one leading `/`, decoded. A query
    /// is part of the key.
    pub fn key(&self) -> Cow<'a, [u8]> {
        const SCHEME: &[u8] = b"http://";
        let mut path = self.target;
        if let Some((scheme, rest)) = path.split_at_checked(SCHEME.len())
            && scheme.eq_ignore_ascii_case(SCHEME)
        {
            path = memchr::memchr(b'/', rest).map_or(&[], |slash| &rest[slash..]);
        }
        url::decode(path.strip_prefix(b"/").unwrap_or(path))
    }
}

/// Parses the head at the start of `bytes`. The length in `Complete` is that of the head only.
///
/// Heads beyond [`HTTP_HEAD_BYTES_MAX`] or with more than [`HTTP_HEADERS_MAX`] lines are
/// `TooLarge`. A head whose body has two possible lengths, or with two hosts or
/// origins, is refused.
pub fn head(bytes: &[u8]) -> Parse<Head<'_>> {
    // The limit applies to complete heads too: the result must not depend on the packets.
    let window = &bytes[..bytes.len().min(HTTP_HEAD_BYTES_MAX)];
    let mut storage = [const { MaybeUninit::uninit() }; HTTP_HEADERS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let length = match request.parse_with_uninit_headers(window, &mut storage) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if window.len() < HTTP_HEAD_BYTES_MAX => {
            return Parse::Incomplete(window.len() + 1);
        }
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Parse::Invalid(Invalid::TooLarge);
        }
        Err(_) => return Parse::Invalid(Invalid::BadParameters),
    };
    match interpret(&request, &window[..length]) {
        Ok(head) => Parse::Complete(head, length),
        Err(invalid) => Parse::Invalid(invalid),
    }
}

fn interpret<'a>(
    request: &httparse::Request<'_, 'a>,
    bytes: &'a [u8],
) -> Result<Head<'a>, Invalid> {
    let (Some(method), Some(target), Some(minor_version)) =
        (request.method, request.path, request.version)
    else {
        return Err(Invalid::BadParameters);
    };
    let mut keep_alive = minor_version > 0;
    let mut expects_continue = false;
    let mut content_length = None;
    let mut chunked = false;
    let (mut host, mut origin) = (None, None);
    for header in &*request.headers {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let length = length(header.value)?;
            if content_length.is_some_and(|other| other != length) {
                return Err(Invalid::BadParameters);
            }
            content_length = Some(length);
        } else if is("transfer-encoding") {
            if minor_version == 0 || chunked {
                return Err(Invalid::BadParameters);
            }
            if !header.value.eq_ignore_ascii_case(b"chunked") {
                return Err(Invalid::UnknownCommand);
            }
            chunked = true;
        } else if is("connection") {
            for option in header.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                if option.eq_ignore_ascii_case(b"close") {
                    keep_alive = false;
                } else if option.eq_ignore_ascii_case(b"keep-alive") {
                    keep_alive = true;
                }
            }
        } else if is("host") {
            if host.replace(header.value.trim_ascii()).is_some() {
                return Err(Invalid::BadParameters);
            }
        } else if is("origin") {
            if origin.replace(header.value.trim_ascii()).is_some() {
                return Err(Invalid::BadParameters);
            }
        } else if is("expect") {
            expects_continue |=
                minor_version > 0 && header.value.eq_ignore_ascii_case(b"100-continue");
        }
    }
    let body = match (chunked, content_length) {
        // A proxy before the server may have taken the other length.
        (true, Some(_)) => return Err(Invalid::BadParameters),
        (true, None) => BodyLength::Chunked,
        (false, length) => BodyLength::Bytes(length.unwrap_or(0)),
    };
    let first_line = memchr::memchr(b'\n', bytes).unwrap_or_default();
    Ok(Head {
        method: Method::from_name(method.as_bytes()).unwrap_or(Method::Other),
        target: target.as_bytes(),
        minor_version,
        keep_alive,
        expects_continue,
        body,
        host,
        origin,
        lines: &bytes[first_line..],
    })
}

/// Returns whether a value of `Content-Encoding` is that of bytes as they are.
pub fn is_identity(coding: &[u8]) -> bool {
    coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
}

fn length(value: &[u8]) -> Result<usize, Invalid> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Invalid::BadParameters);
    }
    let length = decimal::unsigned(value).and_then(|length| usize::try_from(length).ok());
    length.ok_or(Invalid::TooLarge)
}
