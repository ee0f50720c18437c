//! Transport: how the bytes of a connection travel, plain or in the records of a TLS session.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use tls::Session;

/// Most plain bytes that are encrypted before they are sent.
const SEALED_BYTES: usize = 64 << 10;

/// Most plain bytes that are encrypted for a connection before others have their turn.
const TURN_BYTES: usize = 1 << 20;

/// How the bytes of a connection travel.
#[derive(Debug)]
pub(crate) enum Transport {
    /// Plain.
    Plain,
    /// Plain or in a session, which the first byte decides.
    Undecided,
    /// In a session, which has not begun. Has the plain bytes so far of a client that is refused
    /// once they tell its protocol.
    Expected(Vec<u8>),
    /// In a session.
    Tls(Box<Session>),
}

/// Outcome of a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Number of plain bytes that are sent or encrypted.
    pub(crate) plain: usize,
    /// Number of bytes that the socket has taken.
    pub(crate) bytes: usize,
    /// The socket or the session has failed.
    pub(crate) is_broken: bool,
}

impl Transport {
    /// Returns the session, once it has begun.
    #[inline]
    pub(crate) fn session(&self) -> Option<&Session> {
        match self {
            Self::Tls(session) => Some(session),
            _ => None,
        }
    }

    /// Returns the number of encrypted bytes that are not sent yet.
    #[inline]
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.session().map_or(0, |session| session.unsent().len())
    }

    /// Returns the memory that it owns, in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Tls(session) => session.bytes(),
            Self::Expected(plain) => plain.capacity(),
            Self::Plain | Self::Undecided => 0,
        }
    }

    /// Removes the session, which gets another owner.
    pub(crate) fn take_session(&mut self) -> Option<Box<Session>> {
        match std::mem::replace(self, Self::Plain) {
            Self::Tls(session) => Some(session),
            _ => None,
        }
    }

    /// Sends plain bytes as far as the socket takes them. A session encrypts them in `records`,
    /// after what it has to send itself, and keeps the records that the socket does not take.
    #[inline]
    pub(crate) fn send(&mut self, socket: &OwnedFd, plain: &[u8], records: &mut Vec<u8>) -> Sent {
        match self {
            Self::Tls(session) => {
                session.lend(records);
                let sent = send_sealed(session, socket, plain);
                session.give_back(records);
                sent
            }
            _ => match send(socket, plain, SendFlags::NOSIGNAL) {
                Ok(bytes) => Sent { plain: bytes, bytes, is_broken: false },
                Err(Errno::AGAIN | Errno::INTR) => Sent::default(),
                Err(_) => Sent { is_broken: true, ..Sent::default() },
            },
        }
    }

    /// Ends the stream to the client as far as TLS is concerned.
    pub(crate) fn end(&mut self, socket: &OwnedFd) {
        if let Self::Tls(session) = self {
            session.close();
            // If the socket is full, the client misses only the proof that this was all.
            let _ = send_sealed(session, socket, &[]);
        }
    }
}

fn send_sealed(session: &mut Session, socket: &OwnedFd, plain: &[u8]) -> Sent {
    let mut sent = Sent::default();
    loop {
        if !session.unsent().is_empty() {
            match send(socket, session.unsent(), SendFlags::NOSIGNAL) {
                Ok(bytes) => {
                    session.consume(bytes);
                    sent.bytes += bytes;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => sent.is_broken = true,
            }
        }
        let rest = &plain[sent.plain..];
        let is_full = !session.unsent().is_empty();
        if sent.is_broken || is_full || rest.is_empty() || sent.plain >= TURN_BYTES {
            return sent;
        }
        let piece = &rest[..rest.len().min(SEALED_BYTES)];
        if session.seal(piece).is_err() {
            sent.is_broken = true;
            return sent;
        }
        sent.plain += piece.len();
    }
}
