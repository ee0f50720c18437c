//! Reader of a fixed-length file: slots of one size, one for each number from 1 on.
//!
//! ```text
//! 256 + (number - 1) * (z + width)
//!     z      bytes of the value: z is 1 for a width up to 255, 2 up to 65535, else 4
//!     width  the value, and leftover bytes of longer ones
//! ```
//!
//! A slot without a record begins with zeros. An empty value has a length of 0 and a first byte
//! that is not 0.

use super::header::HEADER_BYTES;
use super::number::ByteOrder;
use super::source::{ReadAt, Window};
use super::{Item, Output};
use crate::limits::VALUE_BYTES_MAX;
use std::io;
use std::ops::ControlFlow;

const WINDOW_BYTES: usize = 256 << 10;

/// Reads a fixed-length file of `length` bytes, whose values have up to `width` bytes.
pub(super) fn read(
    source: &dyn ReadAt,
    length: u64,
    width: u64,
    order: ByteOrder,
    output: &mut Output<'_>,
) -> io::Result<ControlFlow<()>> {
    let length_bytes = length_bytes(width);
    let slot_bytes = length_bytes as u64 + width;
    let mut window = Window::new(source, length, WINDOW_BYTES);
    let slots = length.saturating_sub(HEADER_BYTES as u64) / slot_bytes;
    for number in 1..=slots {
        let offset = HEADER_BYTES as u64 + (number - 1) * slot_bytes;
        let head = window.bytes(offset, length_bytes + 1)?;
        let Some((bytes, first)) = head.split_at_checked(length_bytes) else { break };
        let bytes = order.number(bytes);
        if bytes == 0 && first.first().is_none_or(|first| *first == 0) {
            continue;
        }
        if bytes > width || bytes > VALUE_BYTES_MAX as u64 {
            let what = format!("record {number} has {bytes} bytes, over the width of {width}");
            output.damage(offset, what);
            continue;
        }
        // Not more than the longest value.
        let value = window.bytes(offset + length_bytes as u64, bytes as usize)?;
        if value.len() < bytes as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let key = number.to_string();
        let flow = output.item(&Item::Record { key: key.as_bytes(), value });
        if flow.is_break() {
            return Ok(flow);
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Returns the bytes of the length before a value.
fn length_bytes(width: u64) -> usize {
    match width {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::length_bytes;

    #[test]
    fn the_length_takes_as_many_bytes_as_the_width_needs() {
        for (width, bytes) in [(1, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4)] {
            assert_eq!(length_bytes(width), bytes, "{width}");
        }
    }
}
