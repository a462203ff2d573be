//! `ci`: every check, one after the other. A failing step does not hide the ones behind it.

use std::process::Command;
use std::time::{Duration, Instant};

use xtask_common::verb::{Outcome, Verb, Verdict};
use xtask_common::workspace::{Form, Workspace};
use xtask_common::{run, table};

use crate::{
    faults, fuzz, inject, instructions, loom, mutants, pg_faults, sanitizer, setup, shuttle,
    stress, tidy, tsan,
};

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "ci",
    summary: "run every check; a change is ready when this passes",
    help: "\
usage: cargo xtask ci [--full]

Runs, in this order: setup (installs what the other steps lack), fmt, clippy, features (the server without TLS
and HTTP, and with ring), doc, test (clippy, doc and test with the features `tracing`, `json` and `systemd`, the
others without), system (the whole system, and samples of its faults), loom (2 preemptions), shuttle, stress
(10^6 messages, and half a minute of misuse), tsan, tidy, faults (one in sixty-four, others at each commit),
inject (every fault with `echo`, a few with `relay` and `chat`), pg-faults (the pooler under each fault in each
state, a few times). All steps run, also after one that failed; a table of them is printed last. About
twenty-five minutes on two cores.

  --full  larger bounds (loom 3 preemptions, shuttle 20 times the schedules, stress 10^7 and half an
          hour of misuse, a longer tsan, all planted faults, 100_000 injected ones with each service),
          and after them peers (the lints of the benchmark with the HTTP servers of others), asan with
          leaks, fuzz (an hour for each target), power-cut (many images of a disk that lost its power),
          tier-faults (each tier of the whole system is broken in each way), instructions, msrv, deny,
          mutants and coverage; hours.

A step whose tool could not be installed is printed as skipped, with the reason, and counted.",
    run: |mut args| {
        let depth = if args.flag("--full") {
            Depth::Full
        } else {
            Depth::Quick
        };
        args.nothing()?;
        Ok(run_all(depth))
    },
};

/// What is off by default and can be on beside everything else.
const FEATURES: &str =
    "--features=paceline-server/tracing,paceline-server/json,paceline-server/systemd";

/// Limit for a step that is one run of cargo.
const STEP_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Limit for anything in a full run.
const FULL_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);

/// How long a full run fuzzes each target.
const FUZZ_TIME: Duration = Duration::from_secs(60 * 60);

/// The oldest Rust that the library promises to build with.
const MSRV: &str = "1.85";

/// How far the checks go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// For every change.
    Quick,
    /// Before a release.
    Full,
}

/// One step.
struct Step {
    /// Its name in the table.
    name: &'static str,
    /// Runs it.
    run: fn(Depth) -> Verdict,
}

/// The steps of every run.
const STEPS: &[Step] = &[
    Step {
        name: "setup",
        run: |_| setup::install_all(),
    },
    Step {
        name: "fmt",
        run: |_| cargo(&["fmt", "--all", "--check"]),
    },
    Step {
        name: "clippy",
        run: |_| clippy(),
    },
    Step {
        name: "features",
        run: |_| features(),
    },
    Step {
        name: "doc",
        run: |_| doc(),
    },
    Step {
        name: "test",
        run: |_| cargo(&["test", "--workspace", FEATURES]),
    },
    // These start servers, and a plain `cargo test` leaves them out: it is for the library.
    Step {
        name: "system",
        run: |_| cargo(&["test", "-p", "paceline-cli", "--test", "demo"]),
    },
    Step {
        name: "loom",
        run: run_loom,
    },
    Step {
        name: "shuttle",
        run: run_shuttle,
    },
    Step {
        name: "stress",
        run: run_stress,
    },
    Step {
        name: "tsan",
        run: run_tsan,
    },
    Step {
        name: "tidy",
        run: |_| tidy::check(),
    },
    Step {
        name: "faults",
        run: |depth| match depth {
            Depth::Quick => faults::check_some(),
            Depth::Full => faults::check(),
        },
    },
    Step {
        name: "inject",
        run: run_inject,
    },
    Step {
        name: "pg-faults",
        run: |depth| match depth {
            Depth::Quick => pg_faults::check_sample(),
            Depth::Full => pg_faults::check_full(),
        },
    },
];

/// The steps that a full run adds.
const FULL_STEPS: &[Step] = &[
    Step {
        name: "peers",
        run: |_| peers(),
    },
    Step {
        name: "asan",
        run: |_| sanitizer::check_addresses_and_leaks(tsan::DEFAULT_MESSAGES, FULL_LIMIT),
    },
    Step {
        name: "fuzz",
        run: |_| fuzz::check_all(FUZZ_TIME),
    },
    Step {
        name: "power-cut",
        run: |_| power_cut(),
    },
    Step {
        name: "tier-faults",
        run: |_| tier_faults(),
    },
    Step {
        name: "instructions",
        run: |_| instructions::check(),
    },
    Step {
        name: "msrv",
        run: |_| msrv(),
    },
    Step {
        name: "deny",
        run: |_| installed("deny", &["check", "licenses", "bans", "sources"]),
    },
    Step {
        name: "mutants",
        run: |_| mutants::check(),
    },
    Step {
        name: "coverage",
        run: |_| installed("llvm-cov", &["--package", "paceline"]),
    },
];

/// A step that has ended.
struct Ended {
    /// Its name.
    name: &'static str,
    /// How it ended.
    verdict: Verdict,
    /// How long it took.
    time: Duration,
}

/// Runs all steps of a depth, prints the table and counts.
fn run_all(depth: Depth) -> Verdict {
    let added: &[Step] = match depth {
        Depth::Quick => &[],
        Depth::Full => FULL_STEPS,
    };
    let steps = STEPS.iter().chain(added);
    let ended: Vec<_> = steps.map(|step| announce_and_run(step, depth)).collect();
    print_table(&ended);
    count(&ended)
}

/// Runs one step between two lines that name it.
fn announce_and_run(step: &Step, depth: Depth) -> Ended {
    println!("== {}", step.name);
    let started = Instant::now();
    let verdict = (step.run)(depth);
    let time = started.elapsed();
    let name = step.name;
    println!(
        "== {name}: {} [{:.1} s]\n",
        verdict.summary,
        time.as_secs_f64()
    );
    Ended {
        name,
        verdict,
        time,
    }
}

/// Prints every step with its outcome, its time and its own closing line.
fn print_table(ended: &[Ended]) {
    let rows = ended.iter().map(|step| {
        [
            step.name.to_owned(),
            word(step.verdict.outcome).to_owned(),
            format!("{:>7.1}", step.time.as_secs_f64()),
            step.verdict.summary.clone(),
        ]
    });
    table::print(["step", "outcome", "seconds", "in a word"], rows);
}

/// The outcome as the table shows it.
fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed => "FAILED",
        Outcome::Skipped => "skipped",
    }
}

/// The closing line: how many steps ended in which way.
fn count(ended: &[Ended]) -> Verdict {
    let number = |outcome| {
        ended
            .iter()
            .filter(|step| step.verdict.outcome == outcome)
            .count()
    };
    let failed = number(Outcome::Failed);
    let passed = number(Outcome::Passed);
    let skipped = number(Outcome::Skipped);
    Verdict::from_failures(
        failed,
        format!("{passed} passed, {failed} failed, {skipped} skipped"),
    )
}

/// One run of cargo over the workspace.
fn cargo(words: &[&str]) -> Verdict {
    finish(Workspace::this().cargo(Form::Std).args(words), STEP_LIMIT)
}

/// Runs a command, with its output shown.
fn finish(command: &mut Command, limit: Duration) -> Verdict {
    run::run_shown(command, limit).verdict()
}

/// All lints, in all targets.
fn clippy() -> Verdict {
    cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        FEATURES,
        "--",
        "-D",
        "warnings",
    ])
}

/// The server without what is on by default, and with the other cryptography.
fn features() -> Verdict {
    let check = |choice: &[&str]| {
        let words = [
            "check",
            "--package",
            "paceline-server",
            "--tests",
            "--no-default-features",
        ];
        cargo(&[&words, choice].concat())
    };
    let bare = check(&[]);
    if bare.outcome == Outcome::Failed {
        return bare;
    }
    check(&["--features", "tls-ring,json,tracing"])
}

/// The benchmark's feature that brings the HTTP servers of others: it takes minutes to build, so no other step has it.
fn peers() -> Verdict {
    cargo(&[
        "clippy",
        "--package",
        "paceline-bench",
        "--all-targets",
        "--features=http-peers",
        "--",
        "-D",
        "warnings",
    ])
}

/// The documentation, private items too, without a warning.
fn doc() -> Verdict {
    let mut cargo = Workspace::this().cargo(Form::Std);
    cargo
        .args([
            "doc",
            "--workspace",
            FEATURES,
            "--no-deps",
            "--document-private-items",
        ])
        .env("RUSTDOCFLAGS", "-D warnings");
    finish(&mut cargo, STEP_LIMIT)
}

/// The models.
fn run_loom(depth: Depth) -> Verdict {
    match depth {
        Depth::Quick => loom::check(loom::DEFAULT_BOUND, loom::DEFAULT_LIMIT),
        Depth::Full => loom::check(3, FULL_LIMIT),
    }
}

/// The whole pool under random schedules.
fn run_shuttle(depth: Depth) -> Verdict {
    let (iterations, limit) = match depth {
        Depth::Quick => (shuttle::DEFAULT_ITERATIONS, shuttle::DEFAULT_LIMIT),
        Depth::Full => (20 * shuttle::DEFAULT_ITERATIONS, FULL_LIMIT),
    };
    shuttle::suite(iterations, String::new()).check(&Workspace::this(), limit)
}

/// Many messages, and misuse.
fn run_stress(depth: Depth) -> Verdict {
    let (messages, misuse) = (stress::DEFAULT_MESSAGES, stress::DEFAULT_MISUSE);
    match depth {
        Depth::Quick => stress::check(messages, misuse, stress::DEFAULT_LIMIT),
        Depth::Full => stress::check(10 * messages, 100 * misuse, FULL_LIMIT),
    }
}

/// Fewer messages, watched.
fn run_tsan(depth: Depth) -> Verdict {
    match depth {
        Depth::Quick => tsan::check(tsan::DEFAULT_MESSAGES, tsan::DEFAULT_LIMIT),
        Depth::Full => tsan::check(20 * tsan::DEFAULT_MESSAGES, FULL_LIMIT),
    }
}

/// A running server under one fault after the other.
fn run_inject(depth: Depth) -> Verdict {
    match depth {
        Depth::Quick => inject::check(&["--few"]),
        Depth::Full => inject::check(&["--full"]),
    }
}

/// The long form of the back-end's proof of durability: many images of a disk that lost its power.
fn power_cut() -> Verdict {
    let mut cargo = Workspace::this().cargo(Form::Std);
    cargo
        .args(["test", "-p", "paceline-sqlite", "--test", "power_cut"])
        .args(["--", "--nocapture"])
        .env("PACELINE_POWER_CUT", "long");
    finish(&mut cargo, FULL_LIMIT)
}

/// The whole system: each tier is broken in each way, with many transactions.
fn tier_faults() -> Verdict {
    let mut cargo = Workspace::this().cargo(Form::Std);
    cargo
        .args(["run", "--release", "-p", "paceline-cli", "--"])
        .args(["tier-faults", "--transactions", "100000"]);
    finish(&mut cargo, FULL_LIMIT)
}

/// Builds the library with the oldest Rust that it promises.
fn msrv() -> Verdict {
    let toolchains =
        run::output(Command::new("rustup").args(["toolchain", "list"])).unwrap_or_default();
    let named = format!("{MSRV}-");
    if !toolchains.lines().any(|line| line.starts_with(&named)) {
        return Verdict::skipped(format!(
            "Rust {MSRV} is not installed (`rustup toolchain install {MSRV}`)"
        ));
    }
    let mut cargo = Workspace::this().cargo_apart("msrv");
    cargo
        .arg(format!("+{MSRV}"))
        .args(["check", "--package", "paceline"]);
    finish(&mut cargo, STEP_LIMIT)
}

/// Runs a subcommand of cargo that people install by themselves.
fn installed(subcommand: &str, words: &[&str]) -> Verdict {
    if !run::answers("cargo", &[subcommand, "--version"]) {
        return Verdict::skipped(format!(
            "cargo-{subcommand} is not installed (`cargo install cargo-{subcommand}`)"
        ));
    }
    finish(
        Workspace::this()
            .cargo(Form::Std)
            .arg(subcommand)
            .args(words),
        FULL_LIMIT,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step that ended in this way.
    fn ended(verdict: Verdict) -> Ended {
        Ended {
            name: "step",
            verdict,
            time: Duration::ZERO,
        }
    }

    #[test]
    fn the_closing_line_counts_every_step() {
        let steps = [
            ended(Verdict::passed("")),
            ended(Verdict::passed("")),
            ended(Verdict::skipped("no tool")),
        ];
        assert_eq!(count(&steps).summary, "2 passed, 0 failed, 1 skipped");
        assert_eq!(count(&steps).outcome, Outcome::Passed);
    }

    #[test]
    fn one_failed_step_fails_the_whole() {
        let verdict = count(&[ended(Verdict::passed("")), ended(Verdict::failed("boom"))]);
        assert_eq!(verdict.outcome, Outcome::Failed);
        assert_eq!(verdict.summary, "1 passed, 1 failed, 0 skipped");
    }
}
