//! What the sanitizers share, and the step that runs all tests under AddressSanitizer and LeakSanitizer.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use xtask_common::run;
use xtask_common::verb::Verdict;
use xtask_common::workspace::{Form, Workspace};

/// Why no sanitizer can be used here; nothing if one can.
pub(crate) fn obstacle() -> Option<String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Some("the sanitizers are set up for x86-64 Linux only".to_owned());
    }
    if rust_src_is_installed() {
        None
    } else {
        Some("the component rust-src is not installed (`cargo xtask setup` gets it)".to_owned())
    }
}

/// Whether the sources of std are there, which `-Zbuild-std` compiles.
pub(crate) fn rust_src_is_installed() -> bool {
    let sysroot = run::output(Command::new("rustc").args(["--print", "sysroot"]));
    sysroot.is_ok_and(|sysroot| {
        let library = PathBuf::from(sysroot.trim()).join("lib/rustlib/src/rust/library");
        library.join("Cargo.lock").exists()
    })
}

/// Runs all tests but the doc tests under AddressSanitizer, which brings LeakSanitizer with it.
pub(crate) fn check_addresses_and_leaks(messages: u64, limit: Duration) -> Verdict {
    if let Some(reason) = obstacle() {
        return Verdict::skipped(reason);
    }
    let mut cargo = Workspace::this().cargo(Form::Asan);
    cargo
        .args(["test", "--package", "paceline", "--lib", "--tests"])
        .args(Form::Asan.cargo_options())
        .env("ASAN_OPTIONS", "detect_leaks=1")
        .env("PACELINE_STRESS_MESSAGES", messages.to_string());
    run::run_shown(&mut cargo, limit).verdict()
}
