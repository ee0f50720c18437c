//! Touch: reads of a record that set its expiry, make it, or claim the right to renew it.

use super::execute::{Executor, Outcome, Reply, ReplyLimit, Stop, TooLong, if_found};
use super::expiry::{Marks, marked, marks, seconds_left};
use cabinet::{Change, Meta, RecordRef};

/// Effect of a read on its record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Touch {
    /// Expiry that a present record gets.
    pub(crate) expires_at_ms: Option<u64>,
    /// Expiry of the record that is made if there is none.
    pub(crate) create: Option<u64>,
    /// CAS number of the record that is made, in place of its version.
    pub(crate) assign: Option<u64>,
    pub(crate) claim: Claim,
    /// Whether the value is a part of the reply.
    pub(crate) shows_value: bool,
}

/// Condition under which a client wins the right to renew a record that no other client has won.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Claim {
    #[default]
    Never,
    /// The record is stale.
    Stale {
        /// Whether the client may write.
        is_allowed: bool,
    },
    /// The record is stale, or expires in less than so many seconds.
    Short {
        seconds: i64,
        /// Whether the expiry that the record gets is compared, not the one that it had.
        is_new_expiry: bool,
    },
}

/// Result of a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touched {
    /// This client has won the right to renew the record.
    pub(crate) wins: bool,
    /// The record was made.
    pub(crate) is_new: bool,
}

impl Touch {
    /// Returns whether the touch changes nothing, unless the record is stale.
    pub(crate) fn is_read(&self) -> bool {
        self.expires_at_ms.or(self.create).is_none() && !matches!(self.claim, Claim::Short { .. })
    }

    /// Returns whether the touch may change a record.
    pub(crate) fn may_change(&self) -> bool {
        !self.is_read() || matches!(self.claim, Claim::Stale { is_allowed: true })
    }

    /// Returns whether the client wins the right to renew a record.
    fn wins(&self, expires_at_ms: u64) -> bool {
        let marks = marks(expires_at_ms);
        let is_claimed = match self.claim {
            Claim::Never => false,
            Claim::Stale { .. } => marks.is_stale,
            Claim::Short { seconds, is_new_expiry } => {
                let new_ms = self.expires_at_ms.filter(|_| is_new_expiry);
                let left = seconds_left(new_ms.unwrap_or(expires_at_ms));
                marks.is_stale || left.is_some_and(|left| i128::from(left) < i128::from(seconds))
            }
        };
        is_claimed && !marks.is_won
    }

    /// Returns whether the client may win the right.
    pub(super) fn is_allowed(&self) -> bool {
        !matches!(self.claim, Claim::Stale { is_allowed: false })
    }

    /// Returns the change of a record, and what is shown of it.
    pub(super) fn decide(&self, record: Option<&RecordRef<'_>>) -> (Change, Option<Touched>) {
        let Some(RecordRef { value, meta, .. }) = record else {
            let won = Marks { is_won: true, ..Marks::default() };
            return self.create.map_or((Change::Keep, None), |at_ms| {
                let meta = Meta { flags: 0, expires_at_ms: marked(at_ms, won) };
                (Change::Put(Vec::new(), meta), Some(Touched { wins: true, is_new: true }))
            });
        };
        let old_ms = meta.expires_at_ms;
        let wins = self.wins(old_ms);
        let marks = Marks { is_won: marks(old_ms).is_won || wins, ..marks(old_ms) };
        let expires_at_ms = marked(self.expires_at_ms.unwrap_or(old_ms), marks);
        let touched = Some(Touched { wins, is_new: false });
        if expires_at_ms == old_ms {
            return (Change::Keep, touched);
        }
        (Change::Put(value.to_vec(), Meta { expires_at_ms, ..*meta }), touched)
    }

    /// Appends a record as it was before the touch.
    pub(super) fn show<R: Reply>(
        &self,
        record: &RecordRef<'_>,
        touched: Touched,
        limit: &mut ReplyLimit<'_>,
        reply: &mut R,
    ) -> Result<(), TooLong> {
        let bytes = if self.shows_value { record.value.len() } else { 0 };
        limit.append(reply, bytes, |reply| reply.touched(record, touched))
    }
}

/// Appends a record as it was before the touch, since the touch may make it expire. Its CAS number
/// stays.
pub(super) fn touch(
    executor: &mut Executor<'_>,
    key: &[u8],
    touch: &Touch,
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    let Executor { store, limit, cas_numbers, .. } = executor;
    if touch.is_read() {
        let found = store.read(key, |entry| {
            let wins = touch.wins(entry.meta.expires_at_ms);
            let touched = Touched { wins, is_new: false };
            (!wins).then(|| touch.show(&entry, touched, limit, reply))
        })?;
        match found {
            None => return Ok(Outcome::NoRecord),
            Some(Some(shown)) => return if_found(Some(shown)),
            Some(None) if !touch.is_allowed() => return Ok(Outcome::Unmet),
            Some(None) => {}
        }
    }
    let mut shown = None;
    let mut number = 0;
    let (is_new, version) = store.modify_versioned(key, |entry| {
        let (change, touched) = touch.decide(entry.as_ref());
        if let (Some(entry), Some(touched)) = (entry, touched) {
            if shown.get_or_insert_with(|| touch.show(&entry, touched, limit, reply)).is_err() {
                return (Change::Keep, false);
            }
            number = cas_numbers.number(entry.version);
        }
        (change, touched.is_some_and(|touched| touched.is_new))
    })?;
    executor.has_changed = true;
    if version != 0 {
        let number = if is_new { touch.assign.unwrap_or(version) } else { number };
        executor.cas_numbers.set(version, number);
    }
    if is_new {
        let record = RecordRef { key, value: b"", meta: Meta::NONE, version };
        reply.touched(&record, Touched { wins: true, is_new });
        return Ok(Outcome::Done);
    }
    if_found(shown)
}
