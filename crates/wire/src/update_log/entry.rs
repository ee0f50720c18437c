//! Entry of a file of the update log.

use crate::limits::UPDATE_BODY_BYTES_MAX;
use crate::{Invalid, Parse};

/// First byte of every entry, in files and on the wire.
pub const ENTRY_MAGIC: u8 = 0xc9;

/// Length of the header: magic, time stamp, two server ids, size of the body; in bytes.
pub const ENTRY_HEADER_BYTES: usize = 17;

/// Entry of a file of the update log, borrowed from the bytes it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Time at which it was written here, in microseconds since 1970.
    pub timestamp_us: u64,
    /// Id of the server that executed the operation first.
    pub origin: u16,
    /// Id of the server the operation was received from; 0 if it was executed here first.
    pub master: u16,
    /// The [`Operation`](super::Operation), as bytes.
    pub body: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Parses the entry at the start of `bytes`. [`Invalid::UnknownCommand`] if none begins there.
    pub fn parse(bytes: &'a [u8]) -> Parse<Self> {
        split(bytes).map(|(timestamp_us, [o0, o1, m0, m1], body)| {
            let (origin, master) = (u16::from_be_bytes([o0, o1]), u16::from_be_bytes([m0, m1]));
            Self { timestamp_us, origin, master, body }
        })
    }

    /// Parses a header alone. Returns the time stamp, in microseconds since 1970, and the length of
    /// the body, in bytes. Fails as [`Entry::parse`] does.
    pub fn parse_header(header: &[u8; ENTRY_HEADER_BYTES]) -> Result<(u64, usize), Invalid> {
        header_of(header).map(|(timestamp_us, _, size)| (timestamp_us, size))
    }

    /// Appends the entry to `out`, as [`Entry::parse`] reads it. Fails with [`Invalid::TooLarge`]
    /// and leaves `out` as it was if the body is over [`UPDATE_BODY_BYTES_MAX`].
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Invalid> {
        let ([o0, o1], [m0, m1]) = (self.origin.to_be_bytes(), self.master.to_be_bytes());
        join(out, self.timestamp_us, [o0, o1, m0, m1], self.body)
    }
}

/// Splits an entry, of a file or on the wire, into time stamp, server ids and body.
#[inline]
pub(super) fn split(bytes: &[u8]) -> Parse<(u64, [u8; 4], &[u8])> {
    let Some(header) = bytes.first_chunk() else {
        return match bytes.first() {
            Some(&ENTRY_MAGIC) | None => Parse::Incomplete(ENTRY_HEADER_BYTES),
            Some(_) => Parse::Invalid(Invalid::UnknownCommand),
        };
    };
    let (timestamp_us, ids, size) = match header_of(header) {
        Ok(parts) => parts,
        Err(invalid) => return Parse::Invalid(invalid),
    };
    let end = ENTRY_HEADER_BYTES + size;
    let Some(body) = bytes.get(ENTRY_HEADER_BYTES..end) else { return Parse::Incomplete(end) };
    Parse::Complete((timestamp_us, ids, body), end)
}

/// Returns time stamp, server ids and length of the body of a header.
#[inline]
fn header_of(header: &[u8; ENTRY_HEADER_BYTES]) -> Result<(u64, [u8; 4], usize), Invalid> {
    let [magic, t0, t1, t2, t3, t4, t5, t6, t7, ids @ .., s0, s1, s2, s3] = *header;
    if magic != ENTRY_MAGIC {
        return Err(Invalid::UnknownCommand);
    }
    let size = checked_size(u32::from_be_bytes([s0, s1, s2, s3]))?;
    Ok((u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]), ids, size))
}

/// Appends an entry, as [`split`] reads it.
pub(super) fn join(
    out: &mut Vec<u8>,
    timestamp_us: u64,
    ids: [u8; 4],
    body: &[u8],
) -> Result<(), Invalid> {
    let size = body_size(body)?;
    out.push(ENTRY_MAGIC);
    out.extend_from_slice(&timestamp_us.to_be_bytes());
    out.extend_from_slice(&ids);
    out.extend_from_slice(&size.to_be_bytes());
    out.extend_from_slice(body);
    Ok(())
}

/// Returns the size that a header announces, if it is within the limit.
pub(crate) fn checked_size(size: u32) -> Result<usize, Invalid> {
    match size as usize {
        size if size <= UPDATE_BODY_BYTES_MAX => Ok(size),
        _ => Err(Invalid::TooLarge),
    }
}

/// Returns the size of a body, if it is within the limit.
pub(crate) fn body_size(body: &[u8]) -> Result<u32, Invalid> {
    match u32::try_from(body.len()) {
        Ok(size) if body.len() <= UPDATE_BODY_BYTES_MAX => Ok(size),
        _ => Err(Invalid::TooLarge),
    }
}
