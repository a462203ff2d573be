//! `instructions`: how many one turn of the pool takes, counted by valgrind: a regression is noticed without a clock.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::run;
use crate::verb::{Verb, Verdict};
use crate::workspace::{Form, Workspace};

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "instructions",
    summary: "count the instructions of one turn, with valgrind",
    help: "\
usage: cargo xtask instructions

Runs `paceline-bench turns` under callgrind twice, with 10,000 and with 30,000 turns, without and with an
observer that does nothing. The difference is the turns' own: about 1,420 instructions each, of which the
handler, which is its own client, has about 350. More than the limit is a failure, and so is an observer that
costs more than three in a hundred.

Without valgrind it is skipped: `cargo xtask setup` gets it.",
    run: |args| {
        args.nothing()?;
        Ok(check())
    },
};

/// One turn may take so many: what it took when this was written, and five in a hundred for other compilers.
const MOST: u64 = 1460;
/// An observer may make it longer by this part.
const OBSERVED: f64 = 0.03;
/// The shorter run, and by how much the other is longer.
const TURNS: [u64; 2] = [10_000, 20_000];
/// For building the benchmark.
const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// Counts, or says why not.
pub(crate) fn check() -> Verdict {
    if !run::answers("valgrind", &["--version"]) {
        return Verdict::skipped("valgrind is not installed (`cargo xtask setup`)");
    }
    let workspace = Workspace::this();
    let mut build = workspace.cargo(Form::Std);
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
    let program = workspace.target(Form::Std).join("release/paceline-bench");
    match (per_turn(&program, &[]), per_turn(&program, &["--observed"])) {
        (Ok(plain), Ok(observed)) => judge(plain, observed),
        (Err(error), _) | (_, Err(error)) => Verdict::failed(format!("could not count: {error}")),
    }
}

fn judge(plain: u64, observed: u64) -> Verdict {
    let text = format!("{plain} instructions a turn, {observed} with an observer; at most {MOST}");
    let limit = plain as f64 * (1.0 + OBSERVED);
    match plain <= MOST && observed as f64 <= limit {
        true => Verdict::passed(text),
        false => Verdict::failed(text),
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
