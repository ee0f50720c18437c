//! Defects on purpose. `cargo xtask library sanitize` runs each of them under each tool first, and
//! fails if the tool does not find it.

#![expect(unsafe_code, reason = "defects on purpose; see the SAFETY lines")]

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::thread;

#[test]
#[ignore = "a defect on purpose"]
fn a_read_beyond_the_end_of_a_block() {
    let block = black_box(vec![1_u8; 32].into_boxed_slice());
    // SAFETY: none. The block ends before this byte.
    let byte = unsafe { block.as_ptr().add(black_box(40)).read() };
    println!("read {byte}");
}

struct Unguarded(UnsafeCell<u64>);

// SAFETY: none. Two threads change the number at the same time.
unsafe impl Sync for Unguarded {}

impl Unguarded {
    fn add_one(&self) {
        // SAFETY: none, as above.
        unsafe { *self.0.get() += 1 };
    }
}

#[test]
#[ignore = "a defect on purpose"]
fn a_race_of_two_threads() {
    let number = Unguarded(UnsafeCell::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..100).for_each(|_| number.add_one()));
        }
    });
    println!("counted to {}", number.0.into_inner());
}
