//! `shuttle`: the whole pool under a controlled scheduler, with random schedules.

use std::time::Duration;

use crate::harness::{Profile, Program, Suite, Talk};
use xtask_common::verb::Verb;
use xtask_common::workspace::{Form, Workspace, CORE};

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "shuttle",
    summary: "run the whole pool under a controlled scheduler (shuttle)",
    help: "\
usage: cargo xtask shuttle [--iterations N] [--seconds N] [FILTER]

Builds the library with `--cfg shuttle` and runs the tests of tests/shuttle under random schedules.
A failure prints the schedule with which it can be replayed.

  --iterations N  schedules per test, PACELINE_SHUTTLE_ITERATIONS (default 2000)
  --seconds N     limit for the whole run (default 900); passing it is a failure
  FILTER          only tests whose path contains this

No test at all is a failure.",
    run: |mut args| {
        let iterations = args.number("--iterations", DEFAULT_ITERATIONS)?;
        let limit = args.seconds("--seconds", DEFAULT_LIMIT)?;
        let suite = suite(iterations, args.filter()?);
        Ok(suite.check(&Workspace::this(), limit))
    },
};

/// Schedules per test, if nothing else is said.
pub(crate) const DEFAULT_ITERATIONS: u64 = 2000;

/// Limit for the whole run, if nothing else is said.
pub(crate) const DEFAULT_LIMIT: Duration = Duration::from_secs(900);

/// The test program, with a number of schedules per test.
pub(crate) fn suite(iterations: u64, filter: String) -> Suite {
    Suite {
        package: CORE.to_owned(),
        form: Form::Shuttle,
        profile: Profile::Checks,
        program: Program::Test("shuttle".to_owned()),
        filter,
        settings: vec![("PACELINE_SHUTTLE_ITERATIONS", iterations.to_string())],
        talk: Talk::HeldBack,
    }
}
