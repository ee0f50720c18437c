//! HyperLogLogs in Redis's form: estimates of how many different elements were added.
//!
//! Layout, with numbers little-endian:
//!
//! ```text
//! "HYLL" | form u8 | 0 0 0 | estimate u64 | registers
//! ```
//!
//! The estimate is that of the registers, unless its highest bit is set. Each element belongs to
//! one of 16,384 registers, which keep the greatest rank of their elements. In form 0 ([`dense`]) a
//! register has 6 bits, in form 1 ([`sparse`]) runs of equal registers share one or two bytes. A
//! sparse value becomes a dense one when it would exceed 3,000 bytes, or a rank exceeds 32. Ranks
//! and bytes are those of Redis 7.0, so that values may be moved between both. The format is drawn
//! in `docs/protocols/redis.md`.

mod dense;
mod estimate;
mod murmur;
mod sparse;

use estimate::Histogram;
use sparse::Place;

/// Bits of a hash that choose a register.
const INDEX_BITS: u32 = 14;

/// Number of registers.
const REGISTERS: usize = 1 << INDEX_BITS;

/// Bits of a hash of which the rank is made.
const RANK_BITS: u32 = 64 - INDEX_BITS;

const MAGIC: &[u8] = b"HYLL";

/// Bytes before the registers.
const HEADER_BYTES: usize = 16;

/// Place of the form.
const FORM_AT: usize = 4;

/// Place of the estimate.
const ESTIMATE_AT: usize = 8;

/// Place of the byte whose highest bit says that the estimate is not known.
const STALE_AT: usize = HEADER_BYTES - 1;
const STALE: u8 = 0x80;

/// Reason why a value is not a HyperLogLog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SketchError {
    /// It has another header or length.
    OtherValue,
    /// Its registers are not those that the header promises.
    Corrupted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Dense = 0,
    Sparse = 1,
}

/// Returns the form of a value, and its registers, which may be others than the form has.
fn split_header(value: &[u8]) -> Result<(Form, &[u8]), SketchError> {
    let (header, registers) =
        value.split_at_checked(HEADER_BYTES).ok_or(SketchError::OtherValue)?;
    match header[FORM_AT] {
        _ if !header.starts_with(MAGIC) => Err(SketchError::OtherValue),
        0 if registers.len() == dense::BYTES => Ok((Form::Dense, registers)),
        1 => Ok((Form::Sparse, registers)),
        _ => Err(SketchError::OtherValue),
    }
}

/// Returns the form of a value and its registers.
fn split(value: &[u8]) -> Result<(Form, &[u8]), SketchError> {
    let (form, registers) = split_header(value)?;
    match form == Form::Dense || sparse::is_whole(registers) {
        true => Ok((form, registers)),
        false => Err(SketchError::Corrupted),
    }
}

/// Returns whether changes of a value take longer than those of values that [`Sketch`] makes, or
/// the reason why it is no HyperLogLog, as far as header and length tell.
pub fn is_slow(value: &[u8]) -> Result<bool, SketchError> {
    let (form, registers) = split_header(value)?;
    match form {
        Form::Dense => Ok(false),
        Form::Sparse if registers.len() > sparse::BYTES_MAX => Err(SketchError::Corrupted),
        Form::Sparse => Ok(value.len() > sparse::VALUE_BYTES_MAX),
    }
}

/// Returns the estimate of how many different elements a value has. As in Redis, one that it
/// contains is not compared with the registers.
pub fn estimate(value: &[u8]) -> Result<u64, SketchError> {
    split_header(value)?;
    if let Some(estimate) = value.get(ESTIMATE_AT..).and_then(<[u8]>::first_chunk)
        && value[STALE_AT] & STALE == 0
    {
        return Ok(u64::from_le_bytes(*estimate));
    }
    let (form, registers) = split(value)?;
    let mut histogram = Histogram::default();
    each_run(form, registers, |rank, count| histogram.add(rank, count));
    Ok(histogram.estimate())
}

/// Calls `take` with the ranks of the registers in order, and the number of registers of each.
fn each_run(form: Form, registers: &[u8], mut take: impl FnMut(u8, usize)) {
    match form {
        Form::Dense => (0..REGISTERS).for_each(|index| take(dense::get(registers, index), 1)),
        Form::Sparse => sparse::runs(registers).for_each(|run| take(run.rank, run.registers)),
    }
}

/// A value that elements are added to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch(Vec<u8>);

impl Default for Sketch {
    /// Returns a value without elements.
    fn default() -> Self {
        let mut value = vec![0; HEADER_BYTES];
        value[..MAGIC.len()].copy_from_slice(MAGIC);
        value[FORM_AT] = Form::Sparse as u8;
        value[STALE_AT] = STALE;
        sparse::append_empty(&mut value);
        Self(value)
    }
}

impl TryFrom<Vec<u8>> for Sketch {
    type Error = SketchError;

    fn try_from(value: Vec<u8>) -> Result<Self, SketchError> {
        split(&value)?;
        Ok(Self(value))
    }
}

impl From<Sketch> for Vec<u8> {
    fn from(sketch: Sketch) -> Self {
        sketch.0
    }
}

impl Sketch {
    /// Adds an element. Returns whether this has changed a register.
    pub fn add(&mut self, element: &[u8]) -> bool {
        let hash = murmur::hash(element);
        // A bit beyond the others ends the rank.
        let rank = (hash >> INDEX_BITS | 1 << RANK_BITS).trailing_zeros() + 1;
        let index = (hash % REGISTERS as u64) as usize;
        self.raise(&mut Place::default(), index, rank as u8)
    }

    /// Raises the registers to at least those of a union. The value becomes a dense one if the
    /// union has one.
    pub fn merge(&mut self, union: &Union) {
        if union.has_dense {
            self.make_dense();
        }
        let ranks = (0..).zip(union.ranks.iter()).filter(|(_, rank)| **rank > 0);
        let mut place = Place::default();
        ranks.for_each(|(index, rank)| {
            self.raise(&mut place, index, *rank);
        });
        self.0[STALE_AT] |= STALE;
    }

    /// Raises a register to at least this rank, in a sparse value from a place on. Returns whether
    /// it was less.
    fn raise(&mut self, place: &mut Place, index: usize, rank: u8) -> bool {
        let is_sparse = self.0[FORM_AT] == Form::Sparse as u8;
        let raised = match is_sparse {
            true => sparse::raise(&mut self.0, place, index, rank),
            false => None,
        };
        let is_raised = raised.unwrap_or_else(|| {
            self.make_dense();
            dense::raise(&mut self.0[HEADER_BYTES..], index, rank)
        });
        if is_raised {
            self.0[STALE_AT] |= STALE;
        }
        is_raised
    }

    fn make_dense(&mut self) {
        if self.0[FORM_AT] == Form::Dense as u8 {
            return;
        }
        let mut dense = vec![0; dense::BYTES];
        let mut index = 0;
        for run in sparse::runs(&self.0[HEADER_BYTES..]) {
            for index in index..index + run.registers {
                dense::raise(&mut dense, index, run.rank);
            }
            index += run.registers;
        }
        self.0[FORM_AT] = Form::Dense as u8;
        self.0.truncate(HEADER_BYTES);
        self.0.append(&mut dense);
    }
}

/// Union of the elements of several values.
#[derive(Clone, Debug)]
pub struct Union {
    ranks: Box<[u8]>,
    has_dense: bool,
}

impl Default for Union {
    /// Returns the union of none.
    fn default() -> Self {
        Self { ranks: vec![0; REGISTERS].into(), has_dense: false }
    }
}

impl Union {
    /// Adds the elements of a value.
    pub fn add(&mut self, value: &[u8]) -> Result<(), SketchError> {
        let (form, registers) = split(value)?;
        self.has_dense |= form == Form::Dense;
        let mut ranks = self.ranks.iter_mut();
        each_run(form, registers, |rank, count| {
            ranks.by_ref().take(count).for_each(|known| *known = rank.max(*known));
        });
        Ok(())
    }

    /// Returns the estimate of how many different elements there are.
    pub fn estimate(&self) -> u64 {
        let mut histogram = Histogram::default();
        self.ranks.iter().for_each(|rank| histogram.add(*rank, 1));
        histogram.estimate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::dump::crc64;

    fn with_elements(elements: std::ops::Range<u32>) -> Sketch {
        let mut sketch = Sketch::default();
        for element in elements {
            sketch.add(element.to_string().as_bytes());
        }
        sketch
    }

    #[test]
    fn values_and_estimates_are_those_of_redis() {
        // Numbers in decimal as elements; length and checksum of the value of Redis 7.0.15.
        for (count, length, checksum, estimated) in [
            (0, 18, 0x9bd9_1be8_6807_a6dd, 0),
            (3, 27, 0xd506_1ff9_8548_8026, 3),
            (500, 1061, 0x244c_bdf0_a401_924c, 503),
            (1200, 2259, 0xe20e_5669_9b35_4144, 1203),
            (5000, 12_304, 0xbc60_4535_ceec_a794, 4985),
            (100_000, 12_304, 0x7fd4_2526_349b_5ffe, 99_565),
        ] {
            let value = Vec::from(with_elements(0..count));
            assert_eq!((value.len(), crc64(&value)), (length, checksum), "{count}");
            assert_eq!(estimate(&value), Ok(estimated));
        }
        let mut union = Union::default();
        for elements in [0..600, 300..900] {
            union.add(&with_elements(elements).0).unwrap();
        }
        let mut merged = Sketch::default();
        merged.merge(&union);
        assert_eq!((merged.0.len(), crc64(&merged.0)), (1750, 0xbc04_1aba_7c7d_b116));
        assert_eq!(union.estimate(), 902);
    }

    fn form_of(sketch: &Sketch) -> u8 {
        sketch.0[FORM_AT]
    }

    #[test]
    fn estimates_are_close_in_both_forms_and_across_the_change_of_form() {
        for count in [0, 1, 10, 100, 1000, 2000, 10_000, 100_000] {
            let sketch = with_elements(0..count);
            let estimate = estimate(&sketch.0).unwrap();
            let error = estimate.abs_diff(count.into());
            assert!(error as f64 <= 0.03 * f64::from(count), "{estimate} of {count}");
            assert_eq!(form_of(&sketch), u8::from(count < 2000));
        }
    }

    #[test]
    fn the_registers_do_not_depend_on_the_form() {
        for count in [0, 1, 5, 300, 1100] {
            let (mut sparse, mut dense) = (Sketch::default(), Sketch::default());
            dense.make_dense();
            for element in 0..count {
                let element: u32 = element;
                let element = element.to_le_bytes();
                assert_eq!(sparse.add(&element), dense.add(&element));
                assert!(!sparse.add(&element));
            }
            assert_eq!((form_of(&sparse), form_of(&dense)), (1, 0));
            let mut unions = [Union::default(), Union::default()];
            unions[0].add(&sparse.0).unwrap();
            unions[1].add(&dense.0).unwrap();
            assert_eq!(unions[0].ranks, unions[1].ranks);
            assert_eq!(estimate(&sparse.0), estimate(&dense.0));
            sparse.make_dense();
            assert_eq!(sparse, dense);
        }
    }

    #[test]
    fn a_union_has_the_elements_of_all() {
        let (one, other) = (with_elements(0..600), with_elements(300..900));
        let mut union = Union::default();
        assert_eq!(union.estimate(), 0);
        for sketch in [&one, &other] {
            union.add(&sketch.0).unwrap();
        }
        let all = with_elements(0..900);
        assert_eq!(union.estimate(), estimate(&all.0).unwrap());
        let mut merged = one.clone();
        merged.merge(&union);
        assert_eq!(estimate(&merged.0), estimate(&all.0));
        assert_eq!(form_of(&merged), 1);
        union.add(&with_elements(0..5000).0).unwrap();
        merged.merge(&union);
        assert_eq!(form_of(&merged), 0);
    }

    #[test]
    fn a_known_estimate_is_returned_as_it_is() {
        let mut sketch = with_elements(0..3);
        sketch.0[ESTIMATE_AT..HEADER_BYTES].copy_from_slice(&77_u64.to_le_bytes());
        assert_eq!(estimate(&sketch.0), Ok(77));
        assert!(!sketch.add(b"1"));
        assert_eq!(estimate(&sketch.0), Ok(77));
        assert_eq!(estimate(&sketch.0[..HEADER_BYTES]), Ok(77));
        assert!(sketch.add(b"other"));
        assert_eq!(estimate(&sketch.0), Ok(4));
    }

    #[test]
    fn other_values_and_wrong_registers_are_refused() {
        let sparse = Vec::from(Sketch::default());
        let mut dense = Sketch::default();
        dense.make_dense();
        let dense = Vec::from(dense);
        for other in [&b""[..], b"HYLL", b"text that is long enough", &dense[..dense.len() - 1]] {
            assert_eq!(estimate(other), Err(SketchError::OtherValue));
        }
        assert_eq!(estimate(&[&dense[..], b"x"].concat()), Err(SketchError::OtherValue));
        let form = |form| [&sparse[..FORM_AT], &[form], &sparse[FORM_AT + 1..]].concat();
        assert_eq!(estimate(&form(2)), Err(SketchError::OtherValue));
        assert_eq!(estimate(&form(0)), Err(SketchError::OtherValue));
        // Too few registers, half of a run, and too many.
        for registers in [&b""[..], b"\x7f", b"\x7f\xfe", b"\x7f\xff\x00", b"\x7f\xff\x40"] {
            let value = [&sparse[..HEADER_BYTES], registers].concat();
            assert_eq!(estimate(&value), Err(SketchError::Corrupted), "{registers:?}");
            assert_eq!(Sketch::try_from(value.clone()), Err(SketchError::Corrupted));
            assert_eq!(Union::default().add(&value), Err(SketchError::Corrupted));
        }
    }

    #[test]
    fn a_value_of_more_runs_than_are_made_is_slow() {
        let with = |registers: &[u8]| [&Sketch::default().0[..HEADER_BYTES], registers].concat();
        let mut dense = Sketch::default();
        dense.make_dense();
        assert_eq!(is_slow(&Sketch::default().0), Ok(false));
        assert_eq!(is_slow(&dense.0), Ok(false));
        assert_eq!(is_slow(&with(&vec![0; REGISTERS])), Ok(true));
        assert_eq!(is_slow(&with(&[0x40, 0].repeat(REGISTERS))), Ok(true));
        assert_eq!(is_slow(&with(&vec![0; 1 << 20])), Err(SketchError::Corrupted));
        assert_eq!(is_slow(&vec![b'v'; 1 << 20]), Err(SketchError::OtherValue));
    }

    #[test]
    fn a_rank_over_that_of_a_run_makes_the_value_dense() {
        let mut sketch = Sketch::default();
        assert!(sketch.raise(&mut Place::default(), 5, 32));
        assert_eq!(form_of(&sketch), 1);
        assert!(sketch.raise(&mut Place::default(), 5, 33));
        assert_eq!(form_of(&sketch), 0);
        assert!(!sketch.raise(&mut Place::default(), 5, 33));
    }

    #[test]
    fn registers_beyond_all_ranks_do_not_break_the_estimate() {
        let mut sketch = Sketch::default();
        sketch.make_dense();
        sketch.0[HEADER_BYTES..].fill(0xff);
        assert_eq!(estimate(&sketch.0), Ok(1 << 63));
    }
}
