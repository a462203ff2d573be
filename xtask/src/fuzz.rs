//! `fuzz`: searches for inputs that break a promise of a parser, by the coverage of its code.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use xtask_common::args::Usage;
use xtask_common::run;
use xtask_common::verb::{Outcome, Verb, Verdict};
use xtask_common::workspace::{Form, Workspace, TRIPLE};

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "fuzz",
    summary: "search for inputs that break a promise of a parser",
    help: "\
usage: cargo xtask fuzz [TARGET...] [--seconds N]

Builds the program `fuzzer` of the crate `fuzz` for libFuzzer, with coverage, and runs each target
of fuzz/src/lib.rs (or those that are named) for some time. It begins with the inputs in
fuzz/corpus/TARGET; what it finds beside them stays in target/fuzz/corpus/TARGET for the next run.

An input that breaks a promise fails the verb, which prints the path of the input. Mend the parser,
and move the input to fuzz/corpus/TARGET with a name that says what it is: `cargo test -p
paceline-fuzz` replays the corpus, in every run of `ci`.

  --seconds N  for each target (default 60)",
    run: |mut args| {
        let time = args.seconds("--seconds", DEFAULT_TIME)?;
        let names = args.names()?;
        Ok(check(&known(names)?, time))
    },
};

/// How long each target runs, if nothing else is said.
const DEFAULT_TIME: Duration = Duration::from_secs(60);

/// Limit for the build.
const BUILD_LIMIT: Duration = Duration::from_secs(15 * 60);

/// How long libFuzzer may take to end after its time.
const GRACE: Duration = Duration::from_secs(120);

/// One input may take so many seconds; more is a hang.
const SECONDS_PER_INPUT: u32 = 20;

/// The targets of `fuzz/src/lib.rs`.
const TARGETS: &[&str] = &[
    "codecs",
    "frames",
    "http-heads",
    "http-chunks",
    "websocket",
    "pg-messages",
    "pg-login",
    "pg-client-login",
    "pg-server-login",
    "pg-config",
    "pg-console",
    "pg-relay",
];

/// The program's package.
const PACKAGE: &str = "paceline-fuzz";

/// The names of all targets.
fn all() -> Vec<String> {
    TARGETS.iter().map(|&name| name.to_owned()).collect()
}

/// All targets, or those that are named.
fn known(names: Vec<String>) -> Result<Vec<String>, Usage> {
    if names.is_empty() {
        return Ok(all());
    }
    match names.iter().find(|name| !TARGETS.contains(&name.as_str())) {
        Some(name) => Err(Usage(format!(
            "there is no target `{name}`; the targets are {}",
            TARGETS.join(", ")
        ))),
        None => Ok(names),
    }
}

/// Runs all targets, each for `time`.
pub(crate) fn check_all(time: Duration) -> Verdict {
    check(&all(), time)
}

/// Builds the program, and runs the targets one after the other.
fn check(targets: &[String], time: Duration) -> Verdict {
    let workspace = Workspace::this();
    let built = run::run_shown(&mut build(&workspace), BUILD_LIMIT).verdict();
    if built.outcome == Outcome::Failed {
        return built;
    }
    let broken: Vec<_> = targets
        .iter()
        .filter(|target| !holds(&workspace, target, time))
        .map(String::as_str)
        .collect();
    if broken.is_empty() {
        let seconds = time.as_secs();
        return Verdict::passed(format!("{} targets, {seconds} s each", targets.len()));
    }
    Verdict::failed(format!("broken: {}", broken.join(", ")))
}

/// The build of the program.
fn build(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo(Form::Fuzz);
    cargo
        .args(["build", "--release", "--package", PACKAGE])
        .args(["--features", "fuzzer", "--bin", "fuzzer"])
        .args(Form::Fuzz.cargo_options());
    cargo
}

/// Searches for an input that breaks a target. Whether there was none.
fn holds(workspace: &Workspace, target: &str, time: Duration) -> bool {
    let folders = [workspace.target(Form::Fuzz), workspace.root.join("fuzz")]
        .map(|folder| folder.join("corpus").join(target));
    let artifacts = workspace.target(Form::Fuzz).join("artifacts").join(target);
    for folder in folders.iter().chain([&artifacts]) {
        if let Err(error) = fs::create_dir_all(folder) {
            println!("{}: could not be created: {error}", folder.display());
            return false;
        }
    }
    let mut fuzzer = Command::new(program(workspace));
    fuzzer
        .env("PACELINE_FUZZ_TARGET", target)
        .arg(format!("-max_total_time={}", time.as_secs()))
        .arg(format!("-timeout={SECONDS_PER_INPUT}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1")
        .args(&folders);
    let verdict = run::run_shown(&mut fuzzer, time + GRACE).verdict();
    if verdict.outcome == Outcome::Failed {
        println!(
            "{target}: {}; its inputs are in {}",
            verdict.summary,
            artifacts.display()
        );
    }
    verdict.outcome == Outcome::Passed
}

/// Where the build puts the program.
fn program(workspace: &Workspace) -> PathBuf {
    let target = workspace.target(Form::Fuzz);
    target.join(TRIPLE).join("release/fuzzer")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that is in one list only would never be run.
    #[test]
    fn the_targets_are_those_of_the_crate() {
        let source = Workspace::this().root.join("fuzz/src/lib.rs");
        let text = fs::read_to_string(source).expect("the source of the targets");
        let names = text.lines().filter_map(|line| {
            let name = line.trim().strip_prefix("name: \"")?;
            name.strip_suffix("\",")
        });
        assert_eq!(names.collect::<Vec<_>>(), TARGETS);
    }

    #[test]
    fn an_unknown_target_is_a_wrong_command_line() {
        assert!(known(vec!["codec".to_owned()]).is_err());
        assert_eq!(known(Vec::new()).map(|all| all.len()), Ok(TARGETS.len()));
    }
}
