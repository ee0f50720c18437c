//! Packets of memcached's binary protocol.

use super::Client;

/// A request.
#[derive(Clone, Default)]
pub(crate) struct Packet<'a> {
    pub(crate) opcode: u8,
    pub(crate) extras: &'a [u8],
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) number: u64,
}

/// A response: opcode, status, number and parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) opcode: u8,
    pub(crate) status: u16,
    pub(crate) number: u64,
    pub(crate) extras: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Opaque bytes of every request, which tests expect in the response.
const OPAQUE: &[u8; 4] = b"\x01opq";

impl Packet<'_> {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let body = self.extras.len() + self.key.len() + self.value.len();
        let mut bytes = vec![0x80, self.opcode];
        bytes.extend_from_slice(&u16::try_from(self.key.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(&[u8::try_from(self.extras.len()).unwrap(), 0, 0, 0]);
        bytes.extend_from_slice(&u32::try_from(body).unwrap().to_be_bytes());
        bytes.extend_from_slice(OPAQUE);
        bytes.extend_from_slice(&self.number.to_be_bytes());
        for part in [self.extras, self.key, self.value] {
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

impl Client {
    /// Reads one response.
    pub(crate) fn response(&mut self) -> Response {
        let header = self.read(24);
        assert_eq!((header[0], &header[12..16]), (0x81, &OPAQUE[..]));
        let body = u32::from_be_bytes(header[8..12].try_into().unwrap());
        let mut body = self.read(body as usize);
        let mut key = body.split_off(header[4].into());
        let value = key.split_off(u16::from_be_bytes([header[2], header[3]]).into());
        Response {
            opcode: header[1],
            status: u16::from_be_bytes([header[6], header[7]]),
            number: u64::from_be_bytes(header[16..].try_into().unwrap()),
            extras: body,
            key,
            value,
        }
    }

    /// Sends a request and reads one response.
    pub(crate) fn ask(&mut self, packet: &Packet<'_>) -> Response {
        self.send(&packet.bytes());
        let response = self.response();
        assert_eq!(response.opcode, packet.opcode);
        response
    }
}
