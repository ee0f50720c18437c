//! `http`: fetches a URL, of this server or another.

use super::arguments::Invocation;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest wait for the other side.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Most bytes of the head of a response.
const HEAD_BYTES_MAX: u64 = 64 << 10;

/// Prints the body, with `-ih` the head before it; `-ah` adds header lines to the request. Fails if
/// the status is not a success.
pub(super) fn fetch(invocation: &Invocation, output: &mut dyn Write) -> Result<()> {
    let url = std::str::from_utf8(&invocation.operands[0]).context("the URL is not UTF-8")?;
    let (authority, target) = split(url)?;
    let address =
        if has_port(authority) { authority.to_owned() } else { format!("{authority}:80") };
    // An HTTP/1.0 response ends with its length or the connection, and has no chunks to decode.
    let mut request = format!("GET {target} HTTP/1.0\r\nHost: {authority}\r\n");
    for header in invocation.values("-ah") {
        let line = header.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(": ");
        ensure!(!line.contains(['\r', '\n']), "a header must be one line");
        request.push_str(&line);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");

    let stream =
        TcpStream::connect(&address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    (&stream).write_all(request.as_bytes()).context("cannot send the request")?;
    let mut response = BufReader::new(&stream);
    let head = read_head(&mut response)?;
    if invocation.has("-ih") {
        output.write_all(&head.text)?;
    }
    let copied = std::io::copy(&mut response.take(head.length.unwrap_or(u64::MAX)), output)
        .context("the response ended early")?;
    ensure!(head.length.is_none_or(|length| copied == length), "the response ended early");
    let advice = match head.status {
        401 => ": it requires a user; give one with -ah Authorization \"Basic ...\"",
        _ => "",
    };
    ensure!(
        (200..300).contains(&head.status),
        "the server returned status {}{advice}",
        head.status
    );
    Ok(())
}

/// Splits a URL into the authority and the path.
fn split(url: &str) -> Result<(&str, &str)> {
    ensure!(!url.starts_with("https://"), "tcrmgr http has no TLS for {url}: fetch it with curl");
    let rest = url.strip_prefix("http://").with_context(|| format!("{url} is not http://..."))?;
    ensure!(!url.contains(|c: char| c.is_whitespace() || c.is_control()), "{url:?} is not a URL");
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    ensure!(!authority.is_empty(), "{url} has no host");
    Ok((authority, if path.is_empty() { "/" } else { path }))
}

/// Colons within brackets belong to an IPv6 address.
fn has_port(authority: &str) -> bool {
    authority.rfind(':') > authority.rfind(']')
}

#[derive(Debug)]
struct Head {
    text: Vec<u8>,
    status: u16,
    length: Option<u64>,
}

fn read_head(response: &mut impl BufRead) -> Result<Head> {
    let mut response = response.take(HEAD_BYTES_MAX);
    let mut head = Head { text: Vec::new(), status: 0, length: None };
    loop {
        let start = head.text.len();
        response.read_until(b'\n', &mut head.text).context("the response ended early")?;
        let line = String::from_utf8_lossy(&head.text[start..]);
        if !line.ends_with('\n') {
            bail!("the response has no head");
        }
        let line = line.trim_end();
        if start == 0 {
            let status = line.strip_prefix("HTTP/1.").and_then(|line| line.split(' ').nth(1));
            head.status = status.and_then(|status| status.parse().ok()).context("not HTTP")?;
        } else if line.is_empty() {
            return Ok(head);
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            head.length = Some(value.trim().parse().context("the length is not a number")?);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HEAD_BYTES_MAX, has_port, read_head, split};

    #[test]
    fn a_url_is_split_into_host_and_path() {
        assert_eq!(split("http://a:1978/k/x?y").unwrap(), ("a:1978", "/k/x?y"));
        assert_eq!(split("http://a").unwrap(), ("a", "/"));
        for url in ["a", "https://a/", "http://", "http:///k", "http://a/ b", "http://a/\r\nx"] {
            split(url).unwrap_err();
        }
    }

    #[test]
    fn an_ipv6_address_is_not_taken_for_a_port() {
        assert!(has_port("a:1"));
        assert!(has_port("[::1]:1"));
        assert!(!has_port("a"));
        assert!(!has_port("[::1]"));
    }

    #[test]
    fn the_head_contains_status_and_length() {
        let text = b"HTTP/1.1 404 Not Found\r\ncontent-LENGTH: 10\r\n\r\nNot Found\n";
        let head = read_head(&mut &text[..]).unwrap();
        assert_eq!((head.status, head.length), (404, Some(10)));
    }

    #[test]
    fn an_invalid_head_is_an_error() {
        for text in ["", "\r\n\r\n", "HTTP/1.1 \r\n\r\n", "HTTP/1.1 200 OK\r\n", "STORED\r\n"] {
            read_head(&mut text.as_bytes()).unwrap_err();
        }
        let endless = "x".repeat(HEAD_BYTES_MAX as usize + 1);
        read_head(&mut format!("HTTP/1.1 200 OK\r\n{endless}").as_bytes()).unwrap_err();
    }
}
