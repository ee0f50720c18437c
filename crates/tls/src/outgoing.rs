//! Outgoing records: a buffer whose space is filled once, however often it is used again.

/// Records that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// Its length is its space, so that records can be encrypted in place.
    bytes: Vec<u8>,
    sent: usize,
    end: usize,
}

impl Outgoing {
    /// Returns the records that are not sent yet.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.end]
    }

    /// Removes the first bytes.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.sent = (self.sent + bytes).min(self.end);
        if self.sent == self.end {
            (self.sent, self.end) = (0, 0);
        }
    }

    /// Returns the space after the records, at least `bytes` long.
    pub(crate) fn space(&mut self, bytes: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < bytes && self.sent > 0 {
            self.bytes.copy_within(self.sent..self.end, 0);
            (self.sent, self.end) = (0, self.end - self.sent);
        }
        if self.bytes.len() - self.end < bytes {
            self.bytes.resize(self.end + bytes, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Adds the bytes at the beginning of the space to the records.
    pub(crate) fn fill(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.bytes.len());
    }

    /// Takes `buffer` for its space if it has none of its own in use.
    pub(crate) fn borrow(&mut self, buffer: &mut Vec<u8>) {
        if self.end == 0 {
            std::mem::swap(&mut self.bytes, buffer);
        }
    }

    /// Gives back the space, and keeps what is not sent in a buffer of its length.
    pub(crate) fn give_back(&mut self, buffer: &mut Vec<u8>) {
        let unsent = self.unsent().to_vec();
        if self.bytes.len() > buffer.len() {
            std::mem::swap(&mut self.bytes, buffer);
        }
        (self.sent, self.end) = (0, unsent.len());
        self.bytes = unsent;
    }

    /// Moves the records to the beginning of `buffer`. Returns their length.
    pub(crate) fn take(&mut self, buffer: &mut Vec<u8>) -> usize {
        let Self { bytes, sent, end } = std::mem::take(self);
        *buffer = bytes;
        buffer.copy_within(sent..end, 0);
        end - sent
    }

    /// Returns the size of the buffer, in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(outgoing: &mut Outgoing, bytes: &[u8]) {
        outgoing.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        outgoing.fill(bytes.len());
    }

    #[test]
    fn records_leave_in_their_order_whatever_is_sent_at_once() {
        let mut outgoing = Outgoing::default();
        let (mut expected, mut received) = (Vec::new(), Vec::new());
        for number in 0..200_u8 {
            let bytes = vec![number; usize::from(number) % 7 + 1];
            push(&mut outgoing, &bytes);
            expected.extend(bytes);
            let sent = outgoing.unsent().len().min(usize::from(number) % 5);
            received.extend_from_slice(&outgoing.unsent()[..sent]);
            outgoing.consume(sent);
        }
        received.extend_from_slice(outgoing.unsent());
        assert_eq!(received, expected);
    }

    #[test]
    fn a_borrowed_buffer_is_given_back_and_what_is_unsent_takes_no_more_than_its_length() {
        let mut outgoing = Outgoing::default();
        let mut buffer = vec![0; 1000];
        outgoing.borrow(&mut buffer);
        assert!(buffer.is_empty());
        push(&mut outgoing, b"records");
        outgoing.consume(3);
        outgoing.give_back(&mut buffer);
        assert_eq!((buffer.len(), outgoing.unsent(), outgoing.capacity()), (1000, &b"ords"[..], 4));
        // Records in use stay where they are.
        outgoing.borrow(&mut buffer);
        assert_eq!(buffer.len(), 1000);
        push(&mut outgoing, b"!");
        assert_eq!(outgoing.unsent(), b"ords!");
        assert_eq!(outgoing.take(&mut buffer), 5);
        assert_eq!(&buffer[..5], b"ords!");
        outgoing.give_back(&mut buffer);
        assert_eq!((outgoing.unsent().len(), outgoing.capacity()), (0, 0));
    }
}
