//! `stress`: many messages through the real pool, on real threads and sockets.

use std::time::Duration;

use crate::harness::{Profile, Program, Suite, Talk};
use crate::verb::Verb;
use crate::workspace::{Form, Workspace};

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "stress",
    summary: "send many messages through the real pool and count them",
    help: "\
usage: cargo xtask stress [--messages N] [--seconds N]

Runs the tests of tests/stress optimized, with its output shown: every handle set, order and wake policy,
each with each (24 in all).

  --messages N  messages for each of the two wake policies, shared out equally to the sets and orders;
                PACELINE_STRESS_MESSAGES (default 1_000_000)
  --seconds N   limit for the whole run (default 600); passing it is a failure

No test at all is a failure.",
    run: |mut args| {
        let messages = args.number("--messages", DEFAULT_MESSAGES)?;
        let limit = args.seconds("--seconds", DEFAULT_LIMIT)?;
        args.nothing()?;
        Ok(suite(messages).check(&Workspace::this(), limit))
    },
};

/// Messages for each wake policy, if nothing else is said.
pub(crate) const DEFAULT_MESSAGES: u64 = 1_000_000;

/// Limit for the whole run, if nothing else is said.
pub(crate) const DEFAULT_LIMIT: Duration = Duration::from_secs(600);

/// The test program, with a number of messages for each wake policy.
pub(crate) fn suite(messages: u64) -> Suite {
    Suite {
        form: Form::Std,
        profile: Profile::Checks,
        program: Program::Test("stress".to_owned()),
        filter: String::new(),
        settings: vec![("PACELINE_STRESS_MESSAGES", messages.to_string())],
        talk: Talk::Shown,
    }
}
