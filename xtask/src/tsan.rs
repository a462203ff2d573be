//! `tsan`: a smaller stress under ThreadSanitizer, which sees races that happen.

use std::time::Duration;

use crate::harness::{Profile, Suite};
use crate::sanitizer;
use crate::stress;
use xtask_common::verb::{Verb, Verdict};
use xtask_common::workspace::{Form, Workspace};

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "tsan",
    summary: "run the stress under ThreadSanitizer",
    help: "\
usage: cargo xtask tsan [--messages N] [--seconds N]

Builds std and the library with -Zsanitizer=thread (std takes a minute, once) and runs tests/stress;
the first race ends the run. Without the component rust-src it is skipped: `cargo xtask setup` gets it.

  --messages N  messages per test, PACELINE_STRESS_MESSAGES (default 50_000)
  --seconds N   limit for the whole run (default 600); passing it is a failure",
    run: |mut args| {
        let messages = args.number("--messages", DEFAULT_MESSAGES)?;
        let limit = args.seconds("--seconds", DEFAULT_LIMIT)?;
        args.nothing()?;
        Ok(check(messages, limit))
    },
};

/// Messages per test, if nothing else is said.
pub(crate) const DEFAULT_MESSAGES: u64 = 50_000;

/// Limit for the whole run, if nothing else is said.
pub(crate) const DEFAULT_LIMIT: Duration = Duration::from_secs(600);

/// Runs the stress under ThreadSanitizer, or says why not.
pub(crate) fn check(messages: u64, limit: Duration) -> Verdict {
    match sanitizer::obstacle() {
        Some(reason) => Verdict::skipped(reason),
        None => suite(messages).check(&Workspace::this(), limit),
    }
}

/// The stress, built and run for the sanitizer; with debug assertions, as speed is not the point.
fn suite(messages: u64) -> Suite {
    let mut suite = stress::suite(messages);
    suite.form = Form::Tsan;
    suite.profile = Profile::Dev;
    suite
        .settings
        .push(("TSAN_OPTIONS", "halt_on_error=1".to_owned()));
    suite
}
