//! `instructions`: how many one turn of the pool takes, counted by valgrind: a regression is noticed without a clock.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use xtask_common::run;
use xtask_common::verb::{Verb, Verdict};
use xtask_common::workspace::{Form, Workspace};

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "instructions",
    summary: "count the instructions of one turn, with valgrind",
    help: "\
usage: cargo xtask instructions

Runs `paceline-bench turns` under callgrind twice, with 10,000 and with 30,000 turns. The difference is the turns'
own: about 1,100 instructions each, of which the handler, which is its own client, has about 300. Counted are turns

  without an observer
  of a build from which observation is left out (--cfg paceline_unobserved)
  with an observer that does nothing, since the pool was built, and one that was attached later
  with a board, which has histograms too

and what paceline-server adds to a turn in which a line is sent back: against a handler that splits lines itself.

It fails if a turn has more than the limit; if the server layer adds more than its own; if a turn without an observer has a
single instruction more than one from which observation is compiled out; or if an observer costs more than its limit: 4 in
a hundred for an observer that the pool was built with, 19 for the board, 23 for an observer that was attached later. (The
goal was three for all. Tried: one cold function per change of role, 12 in a hundred; the observer called from the turn
itself, and only the board behind a call, 3.1, of a turn that was a fifth longer then. Most of the board's part are the words
of two rows and one histogram; of a late observer's, a lock that keeps it from being dropped while it is called.)

Without valgrind it is skipped: `cargo xtask setup` gets it.",
    run: |args| {
        args.nothing()?;
        Ok(check())
    },
};

/// One turn may take so many: what it took when this was written, and a little for other compilers.
const MOST: u64 = 1_112;
/// The server layer may add so many to the turn of a line. Of them some 200 are for what holds short replies back, so
/// that those of one turn leave by one write: with 16 lines in flight that is worth thirteen times tokio's throughput.
const MOST_OF_LAYER: u64 = 1_200;
/// The shorter run, and by how much the other is longer.
const TURNS: [u64; 2] = [10_000, 20_000];
/// For building the benchmark.
const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// The instructions of one turn, in each form.
struct Counts {
    /// Without an observer.
    plain: u64,
    /// Without the possibility.
    left_out: u64,
    /// What the server layer adds for a line.
    layer: u64,
    /// What observes, what the turn has then, and by which part it may be longer.
    observed: Vec<(&'static str, u64, f64)>,
}

/// An observer, the benchmark's option for it, and by which part it may make a turn longer.
const OBSERVERS: [(&str, &str, f64); 3] = [
    ("with an observer", "--observed", 0.04),
    ("with a board", "--board", 0.19),
    ("with an observer that came later", "--observed-later", 0.23),
];

/// Counts, or says why not.
pub(crate) fn check() -> Verdict {
    if !run::answers("valgrind", &["--version"]) {
        return Verdict::skipped("valgrind is not installed (`cargo xtask setup`)");
    }
    let workspace = Workspace::this();
    for form in [Form::Std, Form::Unobserved] {
        let mut build = workspace.cargo(form);
        build.args([
            "build",
            "--quiet",
            "--release",
            "--package",
            "paceline-bench",
        ]);
        let built = run::run(&mut build, BUILD_LIMIT);
        if built.ending != run::Ending::Passed {
            return built.verdict();
        }
    }
    match count(&workspace) {
        Ok(counts) => counts.judge(),
        Err(error) => Verdict::failed(format!("could not count: {error}")),
    }
}

fn count(workspace: &Workspace) -> io::Result<Counts> {
    let program = |form| workspace.target(form).join("release/paceline-bench");
    let usual = program(Form::Std);
    let counted = |(name, word, limit): &(&'static str, &str, f64)| {
        Ok((*name, per_turn(&usual, &[word])?, *limit))
    };
    let observed = OBSERVERS.iter().map(counted);
    let lines = |handler| per_turn(&usual, &["--handler", handler]);
    let layer = lines("server-lines")?.saturating_sub(lines("bare-lines")?);
    Ok(Counts {
        layer,
        plain: per_turn(&usual, &[])?,
        left_out: per_turn(&program(Form::Unobserved), &[])?,
        observed: observed.collect::<io::Result<_>>()?,
    })
}

impl Counts {
    fn judge(&self) -> Verdict {
        let Self {
            plain,
            left_out,
            layer,
            ..
        } = self;
        let observed = self.observed.iter().map(|(name, count, _)| {
            let more = (*count as f64 / *plain as f64 - 1.0) * 100.0;
            format!("; {name} {count} ({more:+.1} %)")
        });
        let observed: String = observed.collect();
        let text = format!(
            "{plain} instructions a turn (at most {MOST}), {left_out} without observation{observed}; \
             the server layer adds {layer} (at most {MOST_OF_LAYER})"
        );
        let dear = self
            .observed
            .iter()
            .any(|(_, count, limit)| *count as f64 > *plain as f64 * (1.0 + limit));
        let is_short = *plain <= MOST && *layer <= MOST_OF_LAYER;
        if is_short && plain <= left_out && !dear {
            Verdict::passed(text)
        } else {
            Verdict::failed(text)
        }
    }
}

/// The instructions of one turn: of many turns, without those of beginning and end.
fn per_turn(program: &Path, words: &[&str]) -> io::Result<u64> {
    let [few, more] = TURNS;
    let (short, long) = (
        counted(program, few, words)?,
        counted(program, few + more, words)?,
    );
    Ok(long.saturating_sub(short) / more)
}

/// The instructions of a whole run.
fn counted(program: &Path, turns: u64, words: &[&str]) -> io::Result<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command
        .arg(program)
        .args(["turns", &turns.to_string()])
        .args(words);
    let told = command.output()?;
    let text = String::from_utf8_lossy(&told.stderr);
    let count = text
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    match count.map(|(_, count)| count.trim().parse()) {
        Some(Ok(count)) if told.status.success() => Ok(count),
        _ => Err(io::Error::other(format!("valgrind said: {text}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask_common::verb::Outcome;

    /// How counts like these are judged.
    fn judged(plain: u64, left_out: u64, observed: u64) -> Outcome {
        let observed = vec![("with an observer", observed, 0.03)];
        let counts = Counts {
            layer: MOST_OF_LAYER,
            plain,
            left_out,
            observed,
        };
        counts.judge().outcome
    }

    #[test]
    fn the_server_layer_has_a_limit() {
        let counts = |layer| Counts {
            layer,
            plain: 1000,
            left_out: 1000,
            observed: Vec::new(),
        };
        assert_eq!(counts(MOST_OF_LAYER).judge().outcome, Outcome::Passed);
        assert_eq!(counts(MOST_OF_LAYER + 1).judge().outcome, Outcome::Failed);
    }

    #[test]
    fn not_one_instruction_more_for_being_observable() {
        assert_eq!(judged(1000, 1000, 1030), Outcome::Passed);
        assert_eq!(judged(1000, 1001, 1030), Outcome::Passed);
        assert_eq!(judged(1001, 1000, 1030), Outcome::Failed);
    }

    #[test]
    fn three_in_a_hundred_for_being_observed() {
        assert_eq!(judged(1000, 1000, 1031), Outcome::Failed);
        assert_eq!(judged(MOST + 1, MOST + 1, MOST + 1), Outcome::Failed);
    }
}
