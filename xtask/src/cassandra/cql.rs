//! Statements in Cassandra's protocol, version 4, each over a connection of its own: enough to see
//! whether a node serves.

use super::secure::Security;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for a node to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Numbers of replicas that have to answer.
pub(super) const ONE: u16 = 1;
pub(super) const TWO: u16 = 2;
pub(super) const THREE: u16 = 3;

const VERSION: u8 = 4;
const STARTUP: u8 = 1;
const READY: u8 = 2;
const AUTHENTICATE: u8 = 3;
const QUERY: u8 = 7;
const RESULT: u8 = 8;
const AUTH_RESPONSE: u8 = 15;
const AUTH_SUCCESS: u8 = 16;

/// Executes a statement by a node, with TLS and a password if it requires them. Fails if it is not
/// executed.
pub(super) fn execute(
    node: Ipv4Addr,
    security: Option<&Security>,
    statement: &str,
    consistency: u16,
) -> Result<()> {
    let address = SocketAddr::from((node, super::CQL_PORT));
    let socket = TcpStream::connect_timeout(&address, TIMEOUT).context("cannot connect")?;
    let stream = match security {
        None => tls::Stream::new(socket, None),
        Some(security) => {
            let config = security.client()?;
            tls::Stream::connect(socket, &config, &node.to_string(), TIMEOUT)?
        }
    };
    stream.socket().set_read_timeout(Some(TIMEOUT))?;
    stream.socket().set_write_timeout(Some(TIMEOUT))?;
    let mut options = 1u16.to_be_bytes().to_vec();
    for text in ["CQL_VERSION", "3.0.0"] {
        options.extend((text.len() as u16).to_be_bytes());
        options.extend(text.as_bytes());
    }
    match (ask(&stream, STARTUP, &options)?, security) {
        (READY, None) => {}
        (AUTHENTICATE, Some(security)) => {
            let login = security.login();
            let response = [&(login.len() as u32).to_be_bytes()[..], &login].concat();
            let answer = ask(&stream, AUTH_RESPONSE, &response)?;
            ensure!(answer == AUTH_SUCCESS, "the node has not accepted the password");
        }
        (answer, _) => bail!("the node is not ready: {answer}"),
    }
    let length = (statement.len() as u32).to_be_bytes();
    let parameters = [&consistency.to_be_bytes()[..], &[0]].concat();
    let query = [&length[..], statement.as_bytes(), &parameters].concat();
    ensure!(ask(&stream, QUERY, &query)? == RESULT, "no result");
    Ok(())
}

/// Sends a frame. Returns the code of the answer, unless that is an error.
fn ask(mut stream: &tls::Stream, code: u8, body: &[u8]) -> Result<u8> {
    let length = (body.len() as u32).to_be_bytes();
    let frame = [&[VERSION, 0, 0, 0, code][..], &length, body].concat();
    stream.write_all(&frame).context("cannot send")?;
    let mut head = [0; 9];
    stream.read_exact(&mut head).context("no answer")?;
    let length = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) as usize;
    ensure!(length <= ANSWER_BYTES_MAX, "an answer of {length} bytes");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).context("half an answer")?;
    if head[4] == 0 {
        bail!("{}", body.get(6..).unwrap_or_default().escape_ascii());
    }
    Ok(head[4])
}
