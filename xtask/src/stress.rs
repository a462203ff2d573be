//! `stress`: many messages through the real pool, on real threads and sockets; and misuse by chance.

use std::time::Duration;

use crate::harness::{Profile, Program, Suite, Talk};
use xtask_common::verb::{Outcome, Verb, Verdict};
use xtask_common::workspace::{self, Form, Workspace, CORE};

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "stress",
    summary: "send many messages through the real pool, and misuse it by chance",
    help: "\
usage: cargo xtask stress [--messages N] [--misuse SECONDS] [--seconds N]

Runs tests/stress optimized, with its output shown: every handle set, order and wake policy, each with
each (24 in all). Then tests/misuse: random settings, operations and faults on every handle set, on
levels, sets, connections and sources, from seeds that change with every commit. A round that fails prints its
seed and its plan; PACELINE_MISUSE_SEED=n runs it again, and PACELINE_MISUSE_SHRINK=1 shortens its plan.

  --messages N      messages for each of the two wake policies, shared out equally to the sets and orders;
                    PACELINE_STRESS_MESSAGES (default 1_000_000)
  --misuse SECONDS  seconds for each of the eleven kinds of misuse, as many at a time as there are cores; 0:
                    none (default 4)
  --seconds N       limit for each of the two programs (default 600); passing it is a failure

No test at all is a failure.",
    run: |mut args| {
        let messages = args.number("--messages", DEFAULT_MESSAGES)?;
        let misuse = args.number("--misuse", DEFAULT_MISUSE)?;
        let limit = args.seconds("--seconds", DEFAULT_LIMIT)?;
        args.nothing()?;
        Ok(check(messages, misuse, limit))
    },
};

/// Messages for each wake policy, if nothing else is said.
pub(crate) const DEFAULT_MESSAGES: u64 = 1_000_000;

/// Seconds for each kind of misuse, if nothing else is said.
pub(crate) const DEFAULT_MISUSE: u64 = 4;

/// Limit for each program, if nothing else is said.
pub(crate) const DEFAULT_LIMIT: Duration = Duration::from_secs(600);

/// Runs both programs; the first one that fails ends it.
pub(crate) fn check(messages: u64, misuse: u64, limit: Duration) -> Verdict {
    let workspace = Workspace::this();
    let sent = suite(messages).check(&workspace, limit);
    if misuse == 0 || sent.outcome == Outcome::Failed {
        return sent;
    }
    let time = Duration::from_secs(misuse) * KINDS;
    let misused = misuse_suite(misuse).check(&workspace, limit.max(2 * time));
    let summary = format!("{}; misuse: {}", sent.summary, misused.summary);
    Verdict { summary, ..misused }
}

/// So many kinds of misuse there are.
const KINDS: u32 = 11;

/// The generator of misuse, with seconds for each kind. The first seed changes from commit to commit.
fn misuse_suite(seconds: u64) -> Suite {
    let first = 1000 * workspace::commits();
    Suite {
        filter: "misuse::".to_owned(),
        settings: vec![
            ("PACELINE_MISUSE_SECONDS", seconds.to_string()),
            ("PACELINE_MISUSE_FIRST", first.to_string()),
        ],
        ..suite(0)
    }
}

/// The test program, with a number of messages for each wake policy.
pub(crate) fn suite(messages: u64) -> Suite {
    Suite {
        package: CORE.to_owned(),
        form: Form::Std,
        profile: Profile::Checks,
        program: Program::Test("stress".to_owned()),
        filter: "stress::".to_owned(),
        settings: vec![("PACELINE_STRESS_MESSAGES", messages.to_string())],
        talk: Talk::Shown,
    }
}
