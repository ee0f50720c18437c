//! Histogram of a kind of requests, and the requests of one round that are answered together.

use wire::{Class, PROTOCOLS, RequestKind};

/// Number of histograms: one for each protocol and class.
pub(crate) const SLOTS: usize = PROTOCOLS.len() * Class::ALL.len();

/// Histogram of each kind.
const SLOT_OF: [u8; RequestKind::COUNT] = {
    let mut slots = [0; RequestKind::COUNT];
    let (mut protocol, mut kind) = (0, 1);
    while protocol < PROTOCOLS.len() {
        let commands = PROTOCOLS[protocol].commands;
        let mut command = 0;
        while command < commands.len() {
            slots[kind] = (protocol * Class::ALL.len() + commands[command].1 as usize) as u8;
            command += 1;
            kind += 1;
        }
        protocol += 1;
    }
    slots
};

/// Returns the number of the histogram of a kind.
#[inline]
pub(crate) fn slot_of(kind: RequestKind) -> usize {
    SLOT_OF[kind.number()] as usize
}

/// Returns the protocol and the class of a histogram.
pub(crate) fn labels_of(slot: usize) -> (&'static str, &'static str) {
    let (protocol, class) = (slot / Class::ALL.len(), slot % Class::ALL.len());
    (PROTOCOLS[protocol].protocol, Class::ALL[class].1)
}

/// Requests of one round that are answered together.
#[derive(Debug, Default)]
pub(crate) struct RequestBatch {
    counts: [u32; SLOTS],
    /// A bit for each count that is not 0.
    used: u32,
}

impl RequestBatch {
    /// Adds a request.
    #[inline]
    pub(crate) fn add(&mut self, kind: RequestKind) {
        let slot = slot_of(kind);
        self.counts[slot] += 1;
        self.used |= 1 << slot;
    }

    /// Returns the number of requests.
    pub(crate) fn requests(&self) -> u32 {
        self.counts.iter().sum()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Calls `visit` with the number of each histogram, and how many requests it has to count.
    #[inline]
    pub(crate) fn for_each(&self, mut visit: impl FnMut(usize, u32)) {
        let mut used = self.used;
        while used != 0 {
            let slot = used.trailing_zeros() as usize;
            visit(slot, self.counts[slot]);
            used &= used - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{http, memcached};

    #[test]
    fn a_kind_has_the_histogram_of_its_protocol_and_class() {
        for kind in RequestKind::all() {
            let (protocol, class) = labels_of(slot_of(kind));
            assert_eq!(protocol, kind.protocol(), "{kind:?}");
            let expected = Class::ALL.iter().find(|(class, _)| *class == kind.class());
            assert_eq!(expected.map(|(_, name)| *name), Some(class), "{kind:?}");
        }
    }

    #[test]
    fn a_batch_counts_the_requests_of_each_histogram() {
        let mut batch = RequestBatch::default();
        assert!(batch.is_empty());
        let text = [memcached::Kind::Get, memcached::Kind::MetaGet].map(RequestKind::from);
        for kind in [text[0], http::Kind::Other.into(), text[1]] {
            batch.add(kind);
        }
        let mut seen = Vec::new();
        batch.for_each(|slot, count| seen.push((labels_of(slot), count)));
        assert_eq!(seen, [(("memcached", "read"), 2), (("http", "other"), 1)]);
        assert_eq!(batch.requests(), 3);
    }
}
