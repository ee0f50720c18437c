//! Random programs in Lua under AddressSanitizer, which watches Lua's own C code as well.

use crate::programs::{SANITIZED_TARGET, run, target_folder, workspace};
use anyhow::Result;
use std::process::Command;

/// Programs that the command tries.
pub(crate) const PROGRAMS: u64 = 200_000;

/// Programs that a night tries.
pub(crate) const PROGRAMS_OF_A_NIGHT: u64 = 20_000;

/// Runs `count` programs, from `seed` on.
pub(crate) fn run_all(count: u64, seed: u64) -> Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["test", "--target", SANITIZED_TARGET, "--package", "tyrant-scripts"])
        .args(["--test", "random_programs", "--", "--nocapture"])
        .env("LUA_PROGRAMS", format!("{seed}..{}", seed + count))
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .env(format!("CFLAGS_{}", SANITIZED_TARGET.replace('-', "_")), "-fsanitize=address -g")
        // Without it, a program takes several times as long.
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
        // Scripts meet limits of memory before an allocation fails.
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .env("CARGO_TARGET_DIR", target_folder().join("sanitizers").join("address"))
        .current_dir(workspace());
    run(&mut command)
}
