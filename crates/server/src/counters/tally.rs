//! Tally: counts of a request that may be executed again, until its end.

use super::{Count, Counters};

const _: () = assert!(Count::ALL.len() <= u64::BITS as usize, "each count has a bit");

/// Counts that are not added to those of the thread yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    counts: [u32; Count::ALL.len()],
    /// Bits of the counts that are not 0.
    counted: u64,
}

impl Default for Tally {
    #[inline]
    fn default() -> Self {
        Self { counts: [0; Count::ALL.len()], counted: 0 }
    }
}

impl Tally {
    /// Adds 1 to a count.
    #[inline]
    pub(crate) fn count(&mut self, what: Count) {
        self.add(what, 1);
    }

    /// Adds `amount` to a count.
    #[inline]
    pub(crate) fn add(&mut self, what: Count, amount: u32) {
        let sum = &mut self.counts[what as usize];
        *sum = sum.saturating_add(amount);
        self.counted |= 1 << what as u32;
    }

    /// Returns the counts, which are 0 then.
    #[inline]
    fn take(&mut self) -> impl Iterator<Item = (Count, u32)> {
        let mut counted = std::mem::take(&mut self.counted);
        std::iter::from_fn(move || {
            let place = (counted != 0).then(|| counted.trailing_zeros() as usize)?;
            counted &= counted - 1;
            Some((Count::ALL[place], std::mem::take(&mut self.counts[place])))
        })
    }

    /// Adds the counts to those of a thread, which calls this.
    #[inline]
    pub(crate) fn add_to(&mut self, counters: &Counters) {
        self.take().for_each(|(what, amount)| counters.add(what, amount.into()));
    }

    /// Adds the counts to others.
    pub(crate) fn move_to(mut self, other: &mut Self) {
        self.take().for_each(|(what, amount)| other.add(what, amount));
    }

    /// Forgets the counts.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.take().for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_once_or_forgotten() {
        let (counters, mut tally) = (Counters::default(), Tally::default());
        let last = *Count::ALL.last().expect("a count");
        let counted = || [Count::Put, Count::Get, last].map(|what| counters.value(what));
        tally.count(Count::Put);
        tally.add(last, 3);
        tally.clear();
        tally.add_to(&counters);
        assert_eq!(counted(), [0; 3]);
        tally.add(Count::Get, 2);
        let mut within = Tally::default();
        within.count(Count::Get);
        within.count(last);
        within.move_to(&mut tally);
        (0..2).for_each(|_| tally.add_to(&counters));
        assert_eq!(counted(), [0, 3, 1]);
    }
}
