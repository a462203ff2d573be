//! The checkers that a planted fault may name, and what their runs tell.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{self, first_failure, Messages, Profile, Program, Suite, Talk};
use crate::loom::{self, Models};
use crate::run::{self, Ending, Finished};
use crate::tree::Tree;
use crate::workspace::{Form, Workspace};
use crate::{shuttle, stress, tidy};

/// What must find a fault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Checker {
    /// `test FILE` or `test FILE::NAME`: an integration test of the library.
    Test { file: String, filter: String },
    /// `unit FILTER`: tests inside the library.
    Unit(String),
    /// `loom FILTER`: models.
    Loom(String),
    /// `shuttle FILTER`: tests under a controlled scheduler.
    Shuttle(String),
    /// `stress N`: the stress, with this number of messages.
    Stress(u64),
    /// `tidy`.
    Tidy,
    /// `compile FILTER`: doc tests of what must not compile.
    Compile(String),
}

/// Which copy of the tree a checker works on: they share no build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// loom and shuttle.
    Models,
    /// Half of what runs with std's primitives. Some of it waits for a hang, so the other half goes on meanwhile.
    Programs,
    /// The other half.
    MorePrograms,
}

impl Lane {
    /// All of them.
    pub(super) const ALL: [Lane; 3] = [Lane::Models, Lane::Programs, Lane::MorePrograms];

    /// The name of its folder.
    pub(super) fn name(self) -> &'static str {
        match self {
            Lane::Models => "models",
            Lane::Programs => "programs",
            Lane::MorePrograms => "more-programs",
        }
    }
}

/// A run of a checker that has ended.
pub(super) struct Run {
    /// What it told.
    pub(super) checked: Checked,
    /// How long the checker ran, after the build.
    pub(super) time: Duration,
}

/// What a run of a checker tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// Everything is fine.
    Passed,
    /// This test failed.
    Failed(String),
    /// Time was over, and this test had not ended.
    Hung(String),
    /// Nothing, for this reason: it does not build, or nothing was run.
    Void(String),
}

impl Checker {
    /// Reads the value of `caught-by`.
    pub(super) fn parse(text: &str) -> Result<Checker, String> {
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        let words = || Some(rest.to_owned()).filter(|rest| !rest.is_empty());
        let checker = match kind {
            "test" => words().map(|words| test(&words)),
            "unit" => words().map(Checker::Unit),
            "loom" => words().map(Checker::Loom),
            "shuttle" => words().map(Checker::Shuttle),
            "stress" => rest.replace('_', "").parse().ok().map(Checker::Stress),
            "tidy" if rest.is_empty() => Some(Checker::Tidy),
            "compile" => Some(Checker::Compile(rest.to_owned())),
            _ => None,
        };
        checker.ok_or(format!(
            "`{text}` is no checker: they are `test FILE[::NAME]`, `unit FILTER`, `loom FILTER`, \
             `shuttle FILTER`, `stress N`, `tidy` and `compile [FILTER]`"
        ))
    }

    /// Where it works: always in the same lane, by its name.
    pub(super) fn lane(&self) -> Lane {
        let sum: usize = self.to_string().bytes().map(usize::from).sum();
        match self {
            Checker::Loom(_) | Checker::Shuttle(_) => Lane::Models,
            _ if sum % 2 == 0 => Lane::Programs,
            _ => Lane::MorePrograms,
        }
    }

    /// Builds what the checker needs and runs it; the limit holds for the run alone.
    pub(super) fn run(&self, workspace: &Workspace, label: &str, limit: Duration) -> Run {
        let log = workspace.log(label);
        let suite = match self {
            Checker::Test { file, filter } => dev_suite(Program::Test(file.clone()), filter),
            Checker::Unit(filter) => dev_suite(Program::Lib, filter),
            Checker::Shuttle(filter) => shuttle::suite(shuttle::DEFAULT_ITERATIONS, filter.clone()),
            Checker::Stress(messages) => stress::suite(*messages),
            Checker::Loom(filter) => return told(run_models(filter, workspace, &log, limit)),
            Checker::Compile(filter) => return told(run_doc_tests(filter, workspace, &log, limit)),
            Checker::Tidy => return told(run_tidy(workspace)),
        };
        told(run_suite(&suite, workspace, &log, limit))
    }
}

impl fmt::Display for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Checker::Test { file, filter } if filter.is_empty() => write!(f, "test {file}"),
            Checker::Test { file, filter } => write!(f, "test {file}::{filter}"),
            Checker::Unit(filter) => write!(f, "unit {filter}"),
            Checker::Loom(filter) => write!(f, "loom {filter}"),
            Checker::Shuttle(filter) => write!(f, "shuttle {filter}"),
            Checker::Stress(messages) => write!(f, "stress {messages}"),
            Checker::Tidy => f.write_str("tidy"),
            Checker::Compile(filter) => f.write_str(format!("compile {filter}").trim_end()),
        }
    }
}

impl Run {
    /// What the end of a test program tells; `test` names the test to blame.
    fn of(finished: Finished, test: impl FnOnce() -> String) -> Run {
        let checked = match finished.ending {
            Ending::Passed => Checked::Passed,
            Ending::Failed(_) => Checked::Failed(test()),
            Ending::TimedOut => Checked::Hung(test()),
            Ending::NotStarted(why) => Checked::Void(why),
        };
        let time = finished.time;
        Run { checked, time }
    }
}

/// A run, also if there was none.
fn told(run: Result<Run, String>) -> Run {
    run.unwrap_or_else(|why| Run {
        checked: Checked::Void(why),
        time: Duration::ZERO,
    })
}

/// `FILE` or `FILE::NAME`.
fn test(words: &str) -> Checker {
    let (file, filter) = words.split_once("::").unwrap_or((words, ""));
    let (file, filter) = (file.trim_end_matches(".rs").to_owned(), filter.to_owned());
    Checker::Test { file, filter }
}

/// A test program as `cargo test` builds it.
fn dev_suite(program: Program, filter: &str) -> Suite {
    Suite {
        form: Form::Std,
        profile: Profile::Dev,
        program,
        filter: filter.to_owned(),
        // Some faults make a test hang; that need not take long.
        settings: vec![("PACELINE_PATIENCE", "6".to_owned())],
        talk: Talk::HeldBack,
    }
}

/// Runs a test program, with its output in a log.
fn run_suite(
    suite: &Suite,
    workspace: &Workspace,
    log: &Path,
    limit: Duration,
) -> Result<Run, String> {
    let (binary, tests) = suite.prepare(workspace, Messages::Logged)?;
    let finished = run::run_logged(&mut suite.command(&binary), log, limit);
    Ok(Run::of(finished, || {
        first_failure(&tests, &run::read_log(log))
    }))
}

/// Runs models one after the other until one does not pass; the limit holds for all together.
fn run_models(
    filter: &str,
    workspace: &Workspace,
    log: &Path,
    limit: Duration,
) -> Result<Run, String> {
    let models = Models {
        bound: loom::DEFAULT_BOUND,
        limit,
        filter: filter.to_owned(),
    };
    let (binary, names) = models.prepare(workspace, Messages::Logged)?;
    let started = Instant::now();
    let mut last = Checked::Passed;
    for name in &names {
        let left = limit.saturating_sub(started.elapsed());
        last = Run::of(models.run_one(&binary, name, log, left), || name.clone()).checked;
        if last != Checked::Passed {
            break;
        }
    }
    let time = started.elapsed();
    Ok(Run {
        checked: last,
        time,
    })
}

/// Runs the checks of `tidy` over the copy.
fn run_tidy(workspace: &Workspace) -> Result<Run, String> {
    let started = Instant::now();
    let tree = Tree::under(&workspace.root)
        .map_err(|error| format!("the copy cannot be read: {error}"))?;
    // The fault's own text is not in the copy any more: that shows nothing.
    let offences = tidy::offences(&tree);
    let found = offences.iter().find(|(check, _)| *check != "faults");
    let checked = match found {
        Some((check, offence)) => Checked::Failed(format!("{check}: {offence}")),
        None => Checked::Passed,
    };
    let time = started.elapsed();
    Ok(Run { checked, time })
}

/// Runs doc tests. They are compiled as they run, so passing the limit tells nothing here.
fn run_doc_tests(
    filter: &str,
    workspace: &Workspace,
    log: &Path,
    limit: Duration,
) -> Result<Run, String> {
    let mut build = workspace.cargo(Form::Std);
    build.args(["build", "--package", "paceline", "--lib"]);
    harness::build_logged(&mut build, workspace)?;
    let list = run::output(doc_tests(workspace).args(["--list", filter]))
        .map_err(|error| format!("its doc tests cannot be listed: {error}"))?;
    let tests = harness::at_least_one(harness::listed_tests(&list), filter)?;
    let finished = run::run_logged(doc_tests(workspace).arg(filter), log, limit);
    match finished.ending {
        Ending::TimedOut => {
            Err("its doc tests took too long to compile, which tells nothing".to_owned())
        }
        _ => Ok(Run::of(finished, || {
            first_failure(&tests, &run::read_log(log))
        })),
    }
}

/// The doc tests of the library; words for the test program can follow.
fn doc_tests(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo(Form::Std);
    cargo.args(["test", "--package", "paceline", "--doc", "--"]);
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_checker_is_read_and_written_alike() {
        for text in [
            "test roles",
            "test roles::one_leader",
            "unit slot::tests",
            "loom loom_two_promote",
            "shuttle no_event_is_lost",
            "stress 100000",
            "tidy",
            "compile",
            "compile Claimed",
        ] {
            assert_eq!(Checker::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_test_has_a_file_and_perhaps_a_name() {
        let expected = Checker::Test {
            file: "roles".to_owned(),
            filter: "a::b".to_owned(),
        };
        assert_eq!(Checker::parse("test roles::a::b"), Ok(expected));
        assert_eq!(
            Checker::parse("test roles.rs::a::b"),
            Checker::parse("test roles::a::b")
        );
    }

    #[test]
    fn what_is_no_checker_is_refused() {
        for text in ["", "test", "loom", "stress many", "tidy all", "review"] {
            assert!(Checker::parse(text).is_err(), "`{text}` was accepted");
        }
    }
}
