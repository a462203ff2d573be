//! The program that `cargo xtask fuzz` runs: it searches for inputs that break one target.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use paceline_fuzz::{target, Target};

/// The variable that names the target.
const VARIABLE: &str = "PACELINE_FUZZ_TARGET";

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    target(&name).unwrap_or_else(|| panic!("{VARIABLE} names no target: `{name}`"))
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
