//! Estimate of the number of elements by the ranks of the registers: algorithm 6 of Otmar Ertl,
//! "New cardinality estimation algorithms for `HyperLogLog` sketches", 2017.

use super::{RANK_BITS, REGISTERS};

/// Ranks that a register can have, in any form.
const RANKS: usize = 64;

/// Greatest rank of an element, plus one.
const LAST: usize = RANK_BITS as usize + 1;

/// `1 / (2 ln 2)`.
const FACTOR: f64 = 0.721_347_520_444_481_7;

/// Numbers of registers by their rank.
pub(super) struct Histogram([usize; RANKS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; RANKS])
    }
}

impl Histogram {
    /// Adds registers of a rank.
    pub(super) fn add(&mut self, rank: u8, registers: usize) {
        self.0[usize::from(rank) % RANKS] += registers;
    }

    /// Returns the estimate, `1 << 63` if there is none.
    pub(super) fn estimate(&self) -> u64 {
        let (all, count) = (REGISTERS as f64, |rank: usize| self.0[rank] as f64);
        let mut sum = all * tau((all - count(LAST)) / all);
        for rank in (1..LAST).rev() {
            sum = (sum + count(rank)) * 0.5;
        }
        sum += all * sigma(count(0) / all);
        let estimate = (FACTOR * all * all / sum).round();
        // Such registers are made by hand.
        if estimate < (1_u64 << 63) as f64 { estimate as u64 } else { 1 << 63 }
    }
}

fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut factor, mut sum, mut before) = (1.0, x, f64::NAN);
    while sum != before {
        x *= x;
        before = sum;
        sum += x * factor;
        factor += factor;
    }
    sum
}

fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut factor, mut sum, mut before) = (1.0, 1.0 - x, f64::NAN);
    while sum != before {
        x = x.sqrt();
        before = sum;
        factor *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * factor;
    }
    sum / 3.0
}
