//! Keyspace events: messages about the changes of records, to the subscribers of channels.
//!
//! An event has a name, such as `set`, and the key of a record. It is sent to up to two channels:
//! `__keyspace@0__:KEY` gets the name, and `__keyevent@0__:NAME` gets the key. Which events are
//! sent is chosen in Redis's letters, and may be changed while the server runs. A store raises the
//! events of its changes, whichever protocol or log they come from. Those of a transaction are sent
//! once it is made.

use super::reserved::is_reserved;
use cabinet::{Error, ReportedKeys, Result};
use parking_lot::Mutex;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Most bytes of the events of one transaction.
const PENDING_BYTES_MAX: usize = 60 << 20;

/// Bytes that a pending event takes besides its key.
const EVENT_BYTES: usize = size_of::<(Event, Box<[u8]>)>();

/// Declares the events: name and class.
macro_rules! events {
    ($($event:ident $name:literal $class:ident;)*) => {
        /// Change of a record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Event {
            $($event,)*
        }

        impl Event {
            fn name(self) -> &'static str {
                match self {
                    $(Self::$event => $name,)*
                }
            }

            fn class(self) -> u16 {
                match self {
                    $(Self::$event => $class,)*
                }
            }
        }
    };
}

events! {
    Set "set" STRING;
    SetRange "setrange" STRING;
    SetBit "setbit" STRING;
    Append "append" STRING;
    IncrBy "incrby" STRING;
    IncrByFloat "incrbyfloat" STRING;
    PfAdd "pfadd" STRING;
    Del "del" GENERIC;
    Expire "expire" GENERIC;
    Persist "persist" GENERIC;
    RenameFrom "rename_from" GENERIC;
    RenameTo "rename_to" GENERIC;
    CopyTo "copy_to" GENERIC;
    Restore "restore" GENERIC;
    Expired "expired" EXPIRED;
    Evicted "evicted" EVICTED;
}

/// Letters of the classes of events and of the two channels, as Redis has them. Classes of types
/// that no record has are accepted and have no events.
const LETTERS: &[(u8, u16)] = &[
    (b'g', GENERIC),
    (b'$', STRING),
    (b'l', 1 << 2),
    (b's', 1 << 3),
    (b'h', 1 << 4),
    (b'z', 1 << 5),
    (b'x', EXPIRED),
    (b'e', EVICTED),
    (b't', 1 << 8),
    (b'd', 1 << 9),
    (b'K', KEYSPACE),
    (b'E', KEYEVENT),
];

const GENERIC: u16 = 1;
const STRING: u16 = 1 << 1;
const EXPIRED: u16 = 1 << 6;
const EVICTED: u16 = 1 << 7;
const KEYSPACE: u16 = 1 << 10;
const KEYEVENT: u16 = 1 << 11;

/// All classes, whose letter is `A`.
const ALL: u16 = KEYSPACE - 1;

/// Which events are sent, and to which channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChosenEvents(u16);

/// Letter that chooses no events here.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is none of the letters of events, g$lshzxetdAKE")]
pub struct UnknownLetter(char);

impl FromStr for ChosenEvents {
    type Err = UnknownLetter;

    fn from_str(text: &str) -> std::result::Result<Self, UnknownLetter> {
        let flag = |letter: char| match LETTERS.iter().find(|known| char::from(known.0) == letter) {
            Some((_, flag)) => Ok(*flag),
            None if letter == 'A' => Ok(ALL),
            None => Err(UnknownLetter(letter)),
        };
        text.chars().try_fold(0, |flags, letter| Ok(flags | flag(letter)?)).map(Self)
    }
}

impl fmt::Display for ChosenEvents {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_all = self.0 & ALL == ALL;
        if has_all {
            formatter.write_str("A")?;
        }
        let letters =
            LETTERS.iter().filter(|(_, flag)| self.0 & flag != 0 && !(has_all && ALL & flag != 0));
        letters
            .map(|(letter, _)| char::from(*letter))
            .try_for_each(|letter| write!(formatter, "{letter}"))
    }
}

/// Sends a message to a channel, both given.
type Send = dyn Fn(&[u8], &[u8]) + std::marker::Send + Sync;

/// The events of a database.
#[derive(Default)]
pub(crate) struct Events {
    chosen: AtomicU16,
    send: OnceLock<Box<Send>>,
}

impl Events {
    /// Returns whether any events are sent.
    #[inline]
    fn are_on(&self) -> bool {
        self.chosen.load(Ordering::Relaxed) & (KEYSPACE | KEYEVENT) != 0
    }

    /// Sends an event.
    fn send(&self, event: Event, key: &[u8]) {
        let Some(send) = self.send.get() else { return };
        let flags = self.chosen.load(Ordering::Relaxed);
        let name = event.name().as_bytes();
        if flags & KEYSPACE != 0 {
            send(&[b"__keyspace@0__:", key].concat(), name);
        }
        if flags & KEYEVENT != 0 {
            send(&[b"__keyevent@0__:", name].concat(), key);
        }
    }
}

/// Events of a transaction that is not made yet.
#[derive(Debug, Default)]
pub(super) struct PendingEvents(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    events: Vec<(Event, Box<[u8]>)>,
    bytes: usize,
}

impl PendingEvents {
    fn add(&self, event: Event, key: &[u8]) -> Result<()> {
        let pending = &mut *self.0.lock();
        let bytes = pending.bytes + EVENT_BYTES + key.len();
        if bytes > PENDING_BYTES_MAX {
            return Err(Error::BatchTooLong { bytes, max: PENDING_BYTES_MAX });
        }
        pending.bytes = bytes;
        pending.events.push((event, key.into()));
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// Sends the events.
    pub(super) fn send(&self, events: &Events) {
        let pending = std::mem::take(&mut *self.0.lock());
        pending.events.iter().for_each(|(event, key)| events.send(*event, key));
    }
}

impl super::Store {
    /// Returns which events are sent.
    pub(crate) fn chosen_events(&self) -> ChosenEvents {
        ChosenEvents(self.events.chosen.load(Ordering::Relaxed))
    }

    /// Sends these events from now on.
    pub(crate) fn choose_events(&self, chosen: ChosenEvents) {
        if chosen.0 & (KEYSPACE | KEYEVENT) != 0 {
            if chosen.0 & EXPIRED != 0 {
                self.view.hand_over_expired();
            }
            if chosen.0 & EVICTED != 0 {
                self.view.report_evicted();
            }
        }
        self.events.chosen.store(chosen.0, Ordering::Relaxed);
    }

    /// Raises the events of the records that the database has evicted since the last call.
    pub(crate) fn raise_evicted(&self) {
        let keys = self.view.evicted_keys().map(ReportedKeys::take).unwrap_or_default();
        // Only the events of a transaction have a limit.
        keys.iter().for_each(|key| drop(self.raise(Event::Evicted, key)));
    }

    /// Sets the function that sends a message to a channel.
    pub(crate) fn send_events_by(
        &self,
        send: impl Fn(&[u8], &[u8]) + std::marker::Send + Sync + 'static,
    ) {
        self.events.send.get_or_init(|| Box::new(send));
    }

    /// Returns whether any events are sent.
    #[inline]
    pub(crate) fn raises_events(&self) -> bool {
        self.events.are_on()
    }

    /// Returns the memory of the events of the transaction, in bytes.
    #[inline]
    pub(crate) fn pending_event_bytes(&self) -> usize {
        self.pending_events.as_ref().map_or(0, |pending| pending.bytes())
    }

    /// Sends an event, now or with those of the transaction, if it was chosen.
    #[cold]
    pub(crate) fn raise(&self, event: Event, key: &[u8]) -> Result<()> {
        let is_chosen = self.events.chosen.load(Ordering::Relaxed) & event.class() != 0;
        if !is_chosen || !self.raises_events() || is_reserved(key) {
            return Ok(());
        }
        match &self.pending_events {
            Some(pending) => pending.add(event, key)?,
            None => self.events.send(event, key),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_written_as_they_are_read() {
        for (given, written) in
            [("", ""), ("KEA", "AKE"), ("Egx", "gxE"), ("g$lshzxetdK", "AK"), ("Ex$", "$xE")]
        {
            assert_eq!(
                given.parse::<ChosenEvents>().map(|one| one.to_string()),
                Ok(written.into())
            );
        }
        for (given, letter) in [("Km", 'm'), ("AKEn", 'n'), ("k", 'k')] {
            assert_eq!(given.parse::<ChosenEvents>(), Err(UnknownLetter(letter)));
        }
    }
}
