//! The checkers that a planted fault may name, and what their runs tell.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{self, first_failure, Messages, Profile, Program, Suite, Talk};
use crate::loom::{self, Models};
use crate::tree::Tree;
use crate::{shuttle, stress, tidy};
use xtask_common::builds;
use xtask_common::run::{self, Ending, Finished};
use xtask_common::workspace::{Form, Workspace, CORE};

/// What must find a fault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Checker {
    /// The package that the fault is in, whose tests run.
    package: String,
    /// What of them.
    kind: Kind,
}

/// What `caught-by` names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// `test FILE` or `test FILE::NAME`: an integration test.
    Test { file: String, filter: String },
    /// `unit FILTER`: tests inside the crate.
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
    /// Half of what runs with std's primitives. Some of it waits for a hang, so the other half runs meanwhile.
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
    /// Its output.
    pub(super) checked: Checked,
    /// How long the checker ran, after the build.
    pub(super) time: Duration,
}

/// The result of a checker's run.
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
    /// Reads the value of `caught-by`, for a fault in this package.
    pub(super) fn parse(text: &str, package: &str) -> Result<Checker, String> {
        let (package, text) = in_its_package(text, package);
        let (kind, package) = (Kind::parse(&text)?, package.as_str());
        if kind.is_of_the_core() && package != CORE {
            return Err(format!(
                "`{text}` runs {CORE} alone, and the fault is in {package}"
            ));
        }
        let package = package.to_owned();
        Ok(Checker { package, kind })
    }

    /// Where it works: always in the same lane, by its name.
    pub(super) fn lane(&self) -> Lane {
        let sum: usize = self.to_string().bytes().map(usize::from).sum();
        match self.kind {
            Kind::Loom(_) | Kind::Shuttle(_) => Lane::Models,
            _ if sum % 2 == 0 => Lane::Programs,
            _ => Lane::MorePrograms,
        }
    }

    /// Builds what the checker needs and runs it; the limit holds for the run alone.
    pub(super) fn run(&self, workspace: &Workspace, label: &str, limit: Duration) -> Run {
        let log = workspace.log(label);
        let suite = match &self.kind {
            Kind::Test { file, filter } => self.dev_suite(Program::Test(file.clone()), filter),
            Kind::Unit(filter) => self.dev_suite(Program::Lib, filter),
            Kind::Shuttle(filter) => shuttle::suite(shuttle::DEFAULT_ITERATIONS, filter.clone()),
            Kind::Stress(messages) => stress::suite(*messages),
            Kind::Loom(filter) => return told(run_models(filter, workspace, &log, limit)),
            Kind::Compile(filter) => {
                let tests = DocTests {
                    package: &self.package,
                    filter,
                };
                return told(tests.run(workspace, &log, limit));
            }
            Kind::Tidy => return told(run_tidy(workspace)),
        };
        told(run_suite(&suite, workspace, &log, limit))
    }

    /// A test program as `cargo test` builds it.
    fn dev_suite(&self, program: Program, filter: &str) -> Suite {
        Suite {
            package: self.package.clone(),
            form: Form::Std,
            profile: Profile::Dev,
            program,
            filter: filter.to_owned(),
            // Some faults make a test hang; that need not take long.
            settings: vec![("PACELINE_PATIENCE", "6".to_owned())],
            talk: Talk::HeldBack,
        }
    }
}

impl Kind {
    /// Reads the value of `caught-by`.
    fn parse(text: &str) -> Result<Kind, String> {
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        let words = || Some(rest.to_owned()).filter(|rest| !rest.is_empty());
        let checker = match kind {
            "test" => words().map(|words| test(&words)),
            "unit" => words().map(Kind::Unit),
            "loom" => words().map(Kind::Loom),
            "shuttle" => words().map(Kind::Shuttle),
            "stress" => rest.replace('_', "").parse().ok().map(Kind::Stress),
            "tidy" if rest.is_empty() => Some(Kind::Tidy),
            "compile" => Some(Kind::Compile(rest.to_owned())),
            _ => None,
        };
        checker.ok_or(format!(
            "`{text}` is no checker: they are `test [CRATE/]FILE[::NAME]`, `unit FILTER`, `loom FILTER`, \
             `shuttle FILTER`, `stress N`, `tidy` and `compile [FILTER]`"
        ))
    }

    /// Whether it runs nothing but the core.
    fn is_of_the_core(&self) -> bool {
        matches!(self, Kind::Loom(_) | Kind::Shuttle(_) | Kind::Stress(_))
    }
}

/// As the table has it; the package follows if it is not the core.
impl fmt::Display for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        match self.package.as_str() {
            CORE => Ok(()),
            package => write!(f, " in {package}"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Test { file, filter } if filter.is_empty() => write!(f, "test {file}"),
            Kind::Test { file, filter } => write!(f, "test {file}::{filter}"),
            Kind::Unit(filter) => write!(f, "unit {filter}"),
            Kind::Loom(filter) => write!(f, "loom {filter}"),
            Kind::Shuttle(filter) => write!(f, "shuttle {filter}"),
            Kind::Stress(messages) => write!(f, "stress {messages}"),
            Kind::Tidy => f.write_str("tidy"),
            Kind::Compile(filter) => f.write_str(format!("compile {filter}").trim_end()),
        }
    }
}

impl Run {
    /// The result of a test program's end; `test` names the test to blame.
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

/// The package whose tests run, and the checker without it: `test PACKAGE/FILE` names another one
/// than the fault's own.
fn in_its_package(text: &str, own: &str) -> (String, String) {
    let named = text
        .strip_prefix("test ")
        .and_then(|words| words.split_once('/'));
    match named {
        Some((package, words)) => (package.trim().to_owned(), format!("test {words}")),
        None => (own.to_owned(), text.to_owned()),
    }
}

/// `FILE` or `FILE::NAME`.
fn test(words: &str) -> Kind {
    let (file, filter) = words.split_once("::").unwrap_or((words, ""));
    let (file, filter) = (file.trim_end_matches(".rs").to_owned(), filter.to_owned());
    Kind::Test { file, filter }
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

/// Doc tests of a package.
struct DocTests<'a> {
    package: &'a str,
    filter: &'a str,
}

impl DocTests<'_> {
    /// Runs them. They are compiled as they run, so a run over the limit means nothing here.
    fn run(&self, workspace: &Workspace, log: &Path, limit: Duration) -> Result<Run, String> {
        let mut build = workspace.cargo(Form::Std);
        build.args(["build", "--package", self.package, "--lib"]);
        builds::logged(&mut build, workspace)?;
        let list = run::output(self.command(workspace).args(["--list", self.filter]))
            .map_err(|error| format!("its doc tests cannot be listed: {error}"))?;
        let tests = harness::at_least_one(harness::listed_tests(&list), self.filter)?;
        let finished = run::run_logged(self.command(workspace).arg(self.filter), log, limit);
        match finished.ending {
            Ending::TimedOut => {
                Err("its doc tests took too long to compile, which proves nothing".to_owned())
            }
            _ => Ok(Run::of(finished, || {
                first_failure(&tests, &run::read_log(log))
            })),
        }
    }

    /// All of the package; words for the test program can follow.
    fn command(&self, workspace: &Workspace) -> Command {
        let mut cargo = workspace.cargo(Form::Std);
        cargo.args(["test", "--package", self.package, "--doc", "--"]);
        cargo
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checker of the core.
    fn parse(text: &str) -> Result<Checker, String> {
        Checker::parse(text, CORE)
    }

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
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_test_has_a_file_and_perhaps_a_name() {
        let expected = Kind::Test {
            file: "roles".to_owned(),
            filter: "a::b".to_owned(),
        };
        assert_eq!(parse("test roles::a::b").unwrap().kind, expected);
        assert_eq!(parse("test roles.rs::a::b"), parse("test roles::a::b"));
    }

    #[test]
    fn what_is_no_checker_is_refused() {
        for text in ["", "test", "loom", "stress many", "tidy all", "review"] {
            assert!(parse(text).is_err(), "`{text}` was accepted");
        }
    }

    /// The same words in two packages are two checkers, with a log each.
    #[test]
    fn a_checker_runs_in_the_package_of_its_fault() {
        let server = Checker::parse("unit tests", "paceline-server").unwrap();
        assert_ne!(server, parse("unit tests").unwrap());
        assert_eq!(server.to_string(), "unit tests in paceline-server");
        let suite = server.dev_suite(Program::Lib, "tests");
        assert_eq!(suite.package, "paceline-server");
    }

    #[test]
    fn a_test_may_be_in_another_package() {
        let checker = Checker::parse("test paceline-trial/rows::a::b", "paceline-pg").unwrap();
        assert_eq!(checker.to_string(), "test rows::a::b in paceline-trial");
    }

    #[test]
    fn models_and_stress_check_the_core_alone() {
        for text in ["loom x", "shuttle x", "stress 1"] {
            assert!(Checker::parse(text, "paceline-server").is_err());
        }
        assert!(Checker::parse("tidy", "paceline-server").is_ok());
    }
}
