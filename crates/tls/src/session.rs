//! Session: turns received bytes into plain ones, and plain ones into bytes to send. It has no
//! socket and never waits.
//!
//! A session owns no buffer while nothing is under way: it keeps only an incomplete record, and the
//! records that were not sent. rustls decrypts in the buffer that the caller receives into.

use crate::client_config::ClientConfig;
use crate::limits::{INCOMING_BYTES_MAX, SESSION_BYTES};
use crate::outgoing::Outgoing;
use crate::{Error, ServerConfig, SessionError, names};
use rustls::CommonState;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use std::sync::Arc;

/// First byte that a client of TLS sends. No other protocol here begins with it.
pub const FIRST_BYTE: u8 = 0x16;

/// Most bytes that a record has beside its content.
const RECORD_OVERHEAD_BYTES: usize = 32;

/// Most content of a record, in bytes.
const RECORD_BYTES: usize = 16 << 10;

enum Side {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// A session of either side of a connection.
pub struct Session {
    side: Side,
    /// Received bytes of an incomplete record or message.
    incoming: Vec<u8>,
    outgoing: Outgoing,
    /// The session has failed, or this side has ended it.
    is_over: bool,
    /// The peer has ended its stream.
    has_ended: bool,
}

/// Content to encrypt.
#[derive(Clone, Copy)]
enum Content<'a> {
    Plain(&'a [u8]),
    /// The end of the stream.
    End,
}

/// Outcome of a step of rustls.
enum Progress {
    /// There may be more to do.
    Continue,
    /// More bytes are needed to go on.
    Blocked,
    /// The peer has ended its stream.
    Ended,
}

impl Session {
    /// Begins the session of a server with a client.
    pub fn server(config: &ServerConfig) -> Result<Self, Error> {
        let side = UnbufferedServerConnection::new(Arc::clone(&config.config))?;
        Ok(Self::new(Side::Server(side)))
    }

    /// Begins the session of a client with the server at `host`. [`Session::unsent`] has its first
    /// message.
    pub fn client(config: &ClientConfig, host: &str) -> Result<Self, Error> {
        let name = config.server_name(host)?;
        let side = UnbufferedClientConnection::new(Arc::clone(&config.config), name)?;
        let mut session = Self::new(Side::Client(side));
        session.open(&mut [], &mut Vec::new()).map_err(|error| match error {
            SessionError::Protocol(error) => Error::Library(error),
            _ => Error::Library(rustls::Error::HandshakeNotComplete),
        })?;
        Ok(session)
    }

    fn new(side: Side) -> Self {
        let (incoming, outgoing) = (Vec::new(), Outgoing::default());
        Self { side, incoming, outgoing, is_over: false, has_ended: false }
    }

    fn common(&self) -> &CommonState {
        match &self.side {
            Side::Server(side) => side,
            Side::Client(side) => side,
        }
    }

    /// Returns whether the handshake is not complete.
    pub fn is_handshaking(&self) -> bool {
        self.common().is_handshaking()
    }

    /// Returns whether the session has failed, or this side has ended it.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns whether the session keeps an incomplete record or message.
    pub fn has_incomplete(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Returns whether the peer has ended its stream properly.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the user that the verified certificate of the client names.
    pub fn client_user(&self) -> Option<String> {
        match &self.side {
            Side::Server(side) => names::user(side.peer_certificates()?.first()?),
            Side::Client(_) => None,
        }
    }

    /// Returns the memory of the session, in bytes.
    pub fn bytes(&self) -> usize {
        SESSION_BYTES + self.incoming.capacity() + self.outgoing.capacity()
    }

    /// Copies the received bytes that the session keeps to the beginning of `records`, where the
    /// caller adds those that it receives. Returns their number, at most [`INCOMING_BYTES_MAX`].
    pub fn resume(&mut self, records: &mut [u8]) -> usize {
        let kept = std::mem::take(&mut self.incoming);
        let bytes = kept.len().min(records.len());
        records[..bytes].copy_from_slice(&kept[..bytes]);
        bytes
    }

    /// Decrypts received bytes, which begin with those of [`Session::resume`], and adds the content
    /// to `plain`. [`Session::unsent`] may have records afterwards, also after an error.
    pub fn open(&mut self, records: &mut [u8], plain: &mut Vec<u8>) -> Result<(), SessionError> {
        let mut start = 0;
        if self.is_over {
            return Err(SessionError::CannotSend);
        }
        loop {
            let (discard, progress) = self.step(&mut records[start..], plain);
            start = (start + discard).min(records.len());
            match progress {
                Ok(Progress::Continue) => {}
                Ok(Progress::Ended) => self.has_ended = true,
                Ok(Progress::Blocked) => break,
                Err(error) => {
                    self.take_alerts(&mut records[start..]);
                    return Err(error);
                }
            }
        }
        if self.has_ended {
            // Bytes that follow the end are ignored.
            return Ok(());
        }
        let rest = &records[start..];
        if rest.len() > INCOMING_BYTES_MAX {
            self.is_over = true;
            return Err(SessionError::TooLong);
        }
        self.incoming = rest.to_vec();
        Ok(())
    }

    /// Takes the alerts that tell the peer why the session has failed.
    fn take_alerts(&mut self, records: &mut [u8]) {
        self.is_over = true;
        let (mut start, mut plain) = (0, Vec::new());
        // rustls goes on with what was received only if it has nothing to send.
        while self.common().wants_write() {
            let (discard, progress) = self.step(&mut records[start..], &mut plain);
            start = (start + discard).min(records.len());
            if progress.is_err() {
                return;
            }
        }
    }

    fn step(
        &mut self,
        records: &mut [u8],
        plain: &mut Vec<u8>,
    ) -> (usize, Result<Progress, SessionError>) {
        let outgoing = &mut self.outgoing;
        match &mut self.side {
            Side::Server(side) => handle(side.process_tls_records(records), plain, outgoing),
            Side::Client(side) => handle(side.process_tls_records(records), plain, outgoing),
        }
    }

    /// Encrypts `plain` and adds the records to those that are not sent.
    pub fn seal(&mut self, plain: &[u8]) -> Result<(), SessionError> {
        self.send(Content::Plain(plain))
    }

    fn send(&mut self, content: Content<'_>) -> Result<(), SessionError> {
        if self.is_over {
            return Err(SessionError::CannotSend);
        }
        loop {
            let (incoming, outgoing) = (&mut self.incoming[..], &mut self.outgoing);
            let sealed = match &mut self.side {
                Side::Server(side) => {
                    encrypt(side.process_tls_records(incoming), content, outgoing)
                }
                Side::Client(side) => {
                    encrypt(side.process_tls_records(incoming), content, outgoing)
                }
            };
            match sealed {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    self.is_over = true;
                    return Err(error);
                }
            }
        }
    }

    /// Ends the stream to the peer, which may go on sending. [`Session::unsent`] has the message.
    pub fn close(&mut self) {
        if self.is_over || self.is_handshaking() {
            return;
        }
        // A session that cannot send has nothing to end.
        let _ = self.send(Content::End);
        self.is_over = true;
    }

    /// Ends the session without a message: records were lost on their way.
    pub fn abort(&mut self) {
        self.is_over = true;
        self.outgoing = Outgoing::default();
    }

    /// Returns the records to be sent.
    pub fn unsent(&self) -> &[u8] {
        self.outgoing.unsent()
    }

    /// Removes the first bytes of [`Session::unsent`], which have been sent.
    pub fn consume(&mut self, bytes: usize) {
        self.outgoing.consume(bytes);
    }

    /// Moves the records to be sent to the beginning of `buffer`. Returns their length.
    pub fn take_unsent(&mut self, buffer: &mut Vec<u8>) -> usize {
        self.outgoing.take(buffer)
    }

    /// Lends the session a buffer for the records that follow, unless it has unsent ones.
    pub fn lend(&mut self, buffer: &mut Vec<u8>) {
        self.outgoing.borrow(buffer);
    }

    /// Gives the buffer back. The session keeps unsent records in a buffer of their length.
    pub fn give_back(&mut self, buffer: &mut Vec<u8>) {
        self.outgoing.give_back(buffer);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Session").field("is_handshaking", &self.is_handshaking()).finish()
    }
}

/// Carries out a step. Returns the number of bytes to be discarded, also after an error.
fn handle<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    plain: &mut Vec<u8>,
    outgoing: &mut Outgoing,
) -> (usize, Result<Progress, SessionError>) {
    let UnbufferedStatus { mut discard, state } = status;
    let progress = match state {
        Err(error) => Err(error.into()),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    plain.extend_from_slice(record.payload);
                }
                Some(Err(error)) => break Err(error.into()),
                None => break Ok(Progress::Continue),
            }
        },
        Ok(ConnectionState::EncodeTlsData(data)) => {
            encode(data, outgoing).map(|()| Progress::Continue)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Progress::Continue)
        }
        Ok(ConnectionState::PeerClosed) => Ok(Progress::Ended),
        // Early data are never accepted.
        Ok(_) => Ok(Progress::Blocked),
    };
    (discard, progress)
}

/// Encrypts `content` once the messages of the session itself are encoded. Returns whether it is
/// done.
fn encrypt<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    content: Content<'_>,
    outgoing: &mut Outgoing,
) -> Result<bool, SessionError> {
    match status.state? {
        ConnectionState::EncodeTlsData(data) => encode(data, outgoing).map(|()| false),
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(false)
        }
        ConnectionState::PeerClosed => Ok(false),
        ConnectionState::WriteTraffic(mut traffic) => {
            let mut wanted = match content {
                Content::Plain(plain) => {
                    plain.len() + plain.len().div_ceil(RECORD_BYTES) * RECORD_OVERHEAD_BYTES
                }
                Content::End => RECORD_OVERHEAD_BYTES,
            };
            loop {
                let space = outgoing.space(wanted);
                let encrypted = match content {
                    Content::Plain(plain) => traffic.encrypt(plain, space),
                    Content::End => traffic.queue_close_notify(space),
                };
                match encrypted {
                    Ok(bytes) => {
                        outgoing.fill(bytes);
                        return Ok(true);
                    }
                    Err(EncryptError::InsufficientSize(InsufficientSizeError {
                        required_size,
                    })) if required_size > wanted => wanted = required_size,
                    Err(_) => return Err(SessionError::Exhausted),
                }
            }
        }
        _ => Err(SessionError::CannotSend),
    }
}

fn encode<Data>(
    mut data: rustls::unbuffered::EncodeTlsData<'_, Data>,
    outgoing: &mut Outgoing,
) -> Result<(), SessionError> {
    let mut wanted = 0;
    loop {
        match data.encode(outgoing.space(wanted)) {
            Ok(bytes) => {
                outgoing.fill(bytes);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size }))
                if required_size > wanted =>
            {
                wanted = required_size;
            }
            Err(_) => return Err(SessionError::CannotSend),
        }
    }
}
