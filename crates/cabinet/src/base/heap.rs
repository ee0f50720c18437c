//! Sizes of heap blocks: memory that an allocator uses for a number of bytes, so that budgets count
//! it.
//!
//! Allocators have blocks of certain sizes. Those of mimalloc, which the server uses, and of
//! jemalloc divide each power of two into four. glibc rounds up less, and adds 8 bytes. Lists of
//! bytes that are allocated with these sizes waste no bytes.

/// Sizes up to `SMALL_BYTES_MAX` are multiples of this.
const SMALL_STEP_BYTES: usize = 16;

const SMALL_BYTES_MAX: usize = 128;

/// Number of sizes between a power of two and the next.
const SIZES_PER_DOUBLING: u32 = 4;

/// Returns the size of the block that an allocator returns for a request of `bytes` bytes.
#[inline]
pub(crate) const fn block_bytes(bytes: usize) -> usize {
    if bytes <= SMALL_BYTES_MAX {
        return bytes.next_multiple_of(SMALL_STEP_BYTES);
    }
    let step = (1 << (bytes - 1).ilog2()) / SIZES_PER_DOUBLING as usize;
    match bytes.checked_next_multiple_of(step) {
        Some(block) => block,
        None => bytes,
    }
}

/// Reserves space for `more` bytes. The capacity is that of a block.
#[inline]
pub(crate) fn reserve(list: &mut Vec<u8>, more: usize) {
    if list.capacity() - list.len() < more {
        grow(list, more);
    }
}

#[cold]
fn grow(list: &mut Vec<u8>, more: usize) {
    let bytes = block_bytes(list.len().saturating_add(more));
    list.reserve_exact(bytes - list.len());
}

/// Returns a copy of the bytes, with the capacity of a block.
pub(crate) fn copy(bytes: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(block_bytes(bytes.len()));
    copy.extend_from_slice(bytes);
    copy
}

/// Returns the bytes that the elements of a list take in memory, without the data they point to.
pub(crate) const fn list_bytes<T>(capacity: usize) -> usize {
    block_bytes(capacity * size_of::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_the_next_of_four_sizes_between_powers_of_two() {
        for (bytes, block) in [
            (0, 0),
            (1, 16),
            (16, 16),
            (17, 32),
            (128, 128),
            (129, 160),
            (160, 160),
            (161, 192),
            (256, 256),
            (257, 320),
            (8192, 8192),
            (8193, 10240),
            (10240, 10240),
            (usize::MAX, usize::MAX),
        ] {
            assert_eq!(block_bytes(bytes), block, "{bytes}");
        }
        for bytes in 0..100_000 {
            let block = block_bytes(bytes);
            assert!(block >= bytes && block_bytes(block) == block, "{bytes}");
            assert!(block <= bytes + bytes / 4 + SMALL_STEP_BYTES, "{bytes}");
        }
    }

    #[test]
    fn a_list_that_grows_fills_blocks() {
        let mut list = Vec::new();
        for number in 0..10_000 {
            reserve(&mut list, 3);
            list.extend_from_slice(&[number as u8; 3]);
            assert_eq!(list.capacity(), block_bytes(list.capacity()));
            assert!(list.capacity() <= block_bytes(list.len()));
        }
        assert_eq!(copy(&list), list);
        assert_eq!(copy(&[]).capacity(), 0);
    }
}
