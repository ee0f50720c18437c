//! Placeholder until its own step.
fn main() {}
