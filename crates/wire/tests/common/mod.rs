//! Helpers that the tests of all protocols share.

mod bytes;

pub(crate) use bytes::{assert_is_one_request, unhex};

/// An exchange captured from Tokyo Tyrant.
pub(crate) struct Exchange {
    pub(crate) what: String,
    pub(crate) request: Vec<u8>,
    pub(crate) response: Vec<u8>,
}

/// The exchanges of a file: what, request and response in hexadecimal, a tab between them.
pub(crate) fn exchanges(file: &str) -> Vec<Exchange> {
    let exchange = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [what, request, response, _closed] = fields[..] else { panic!("{line}") };
        Exchange { what: what.into(), request: unhex(request), response: unhex(response) }
    };
    file.lines().map(exchange).collect()
}
