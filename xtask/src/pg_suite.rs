//! `pg-suite`: runs PgBouncer's own test suite, from a folder, with another program in its place.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xtask_common::args::{Args, Usage};
use xtask_common::run;
use xtask_common::table;
use xtask_common::verb::{Outcome, Verb, Verdict};
use xtask_common::workspace::{Form, Workspace};

mod groups;
mod junit;
mod stage;

use groups::{Group, Groups};
use junit::{Case, Fate};
use stage::Stage;

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "pg-suite",
    summary: "run PgBouncer's own test suite with our program in its place",
    help: "\
usage: cargo xtask pg-suite --suite FOLDER [--group core|later|all] [-k EXPR] [--program PATH]
                            [--workers N] [--seconds N]

FOLDER holds the suite: the folders `test` and `include` of PgBouncer's source, `pyproject.toml`, and a file
`config.mak` with the lines `tls_support = yes` and `ldap_support = no`. It is copied to a temporary folder,
which an unprivileged user owns (PostgreSQL refuses root), and which is removed at the end. Python's packages
go to a virtual environment beside it, which is kept.

xtask/src/pg_suite/groups.toml says which test is in which group. For each group the verb prints how many
passed, failed and were skipped, and the failures with their reasons. The whole report stays in
target/xtask/pg-suite.xml. The verb passes if 95 % of the group core do; with -k, if all that ran do.

  --suite FOLDER  where the suite is
  --group GROUP   core (default), later, or all: both
  -k EXPR         only tests whose names match, as pytest understands it
  --program PATH  the program under test (default: builds paceline-cli and takes `paceline`)
  --workers N     tests at a time (default 2)
  --seconds N     limit for the whole run (default 3600)

It needs Debian's packages postgresql-15, python3-venv, socat and openssl: `cargo xtask setup`.",
    run: |args| Ok(check(&Options::read(args)?)),
};

/// The part of the group core that must pass, in percent.
const GOAL: usize = 95;

/// Limit for the build of the program.
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// What the command line says.
struct Options {
    suite: PathBuf,
    groups: Vec<Group>,
    filter: Option<String>,
    program: Option<PathBuf>,
    workers: u64,
    limit: Duration,
}

impl Options {
    fn read(mut args: Args) -> Result<Self, Usage> {
        let suite = args.value("--suite")?;
        let group = args.value("--group")?;
        let options = Options {
            suite: suite.unwrap_or_default().into(),
            groups: Group::chosen(group.as_deref().unwrap_or("core"))?,
            filter: args.value("-k")?,
            program: args.value("--program")?.map(PathBuf::from),
            workers: args.number("--workers", 2)?.max(1),
            limit: args.seconds("--seconds", Duration::from_secs(3600))?,
        };
        args.nothing()?;
        if options.suite.as_os_str().is_empty() {
            return Err(Usage("`--suite FOLDER` is missing".to_owned()));
        }
        Ok(options)
    }
}

/// Prepares the stage, runs the suite on it, and judges the report.
fn check(options: &Options) -> Verdict {
    if let Some(missing) = stage::missing_tool() {
        return Verdict::skipped(missing);
    }
    match play(options) {
        Ok(verdict) => verdict,
        Err(why) => Verdict::failed(why),
    }
}

fn play(options: &Options) -> Result<Verdict, String> {
    let groups = Groups::of_this_tree()?;
    let suite = fs::canonicalize(&options.suite);
    let suite = suite.map_err(|error| format!("{}: {error}", options.suite.display()))?;
    let present = groups::tests_in(&suite.join("test"))?;
    print_strangers(&groups, &present);
    let program = match &options.program {
        Some(program) => program.clone(),
        None => build()?,
    };
    let stage = Stage::build(&suite, &program)?;
    let wanted: Vec<_> = options
        .groups
        .iter()
        .flat_map(|group| groups.of(*group))
        .collect();
    let chosen: Vec<_> = wanted
        .iter()
        .filter(|name| present.contains(**name))
        .copied()
        .collect();
    let report = Workspace::this().logs.join("pg-suite.xml");
    stage.run(&chosen, options, &report)?;
    let cases = junit::read(&run::read_log(&report))?;
    let results = Results::of(&groups, &cases, &wanted);
    results.print(options);
    println!("report: {}", report.display());
    Ok(results.verdict(options))
}

/// Builds the program that the project offers in PgBouncer's place.
fn build() -> Result<PathBuf, String> {
    let workspace = Workspace::this();
    let mut cargo = workspace.cargo(Form::Std);
    cargo.args(["build", "--package", "paceline-cli", "--bin", "paceline"]);
    let built = run::run_shown(&mut cargo, BUILD_LIMIT).verdict();
    if built.outcome == Outcome::Failed {
        return Err(format!("the build of paceline-cli: {}", built.summary));
    }
    Ok(workspace.target(Form::Std).join("debug/paceline"))
}

/// Prints the tests of the suite that no group has: it may be of a newer version than the table.
fn print_strangers(groups: &Groups, present: &std::collections::BTreeSet<String>) {
    for name in present.iter().filter(|name| groups.group(name).is_none()) {
        println!("in no group, so not run: {name}");
    }
}

/// What became of the tests, by group.
struct Results<'c> {
    by_group: BTreeMap<Group, Vec<&'c Case>>,
    /// Names of wanted tests of which the report has nothing.
    missing: Vec<(Group, String)>,
}

impl<'c> Results<'c> {
    fn of(groups: &Groups, cases: &'c [Case], wanted: &[&str]) -> Self {
        let mut by_group: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for case in cases {
            if let Some(group) = groups.group(&case.test) {
                by_group.entry(group).or_default().push(case);
            }
        }
        let has = |name: &&&str| !cases.iter().any(|case| case.test == **name);
        let missing = wanted.iter().filter(has);
        let missing = missing.filter_map(|name| Some((groups.group(name)?, (*name).to_owned())));
        Results {
            by_group,
            missing: missing.collect(),
        }
    }

    fn count(&self, group: Group, fate: fn(&Fate) -> bool) -> usize {
        let cases = self.by_group.get(&group).into_iter().flatten();
        cases.filter(|case| fate(&case.fate)).count()
    }

    /// Tests that should have run and did not. A filter leaves out most, so then there are none.
    fn missing(&self, group: Group, options: &Options) -> Vec<&str> {
        let of_group = self.missing.iter().filter(|(of, _)| *of == group);
        let names = of_group.map(|(_, name)| name.as_str());
        names.filter(|_| options.filter.is_none()).collect()
    }

    fn print(&self, options: &Options) {
        for group in &options.groups {
            for case in self.by_group.get(group).into_iter().flatten() {
                if let Fate::Failed(reason) = &case.fate {
                    println!("{} failed: {}: {reason}", group.name(), case.name);
                }
                if let Fate::Skipped(reason) = &case.fate {
                    println!("{} skipped: {}: {reason}", group.name(), case.name);
                }
            }
            for name in self.missing(*group, options) {
                println!("{} did not run: {name}", group.name());
            }
        }
        let rows = options.groups.iter().map(|group| {
            [
                group.name().to_owned(),
                self.count(*group, |fate| *fate == Fate::Passed).to_string(),
                self.count(*group, |fate| matches!(fate, Fate::Failed(_)))
                    .to_string(),
                self.count(*group, |fate| matches!(fate, Fate::Skipped(_)))
                    .to_string(),
                self.missing(*group, options).len().to_string(),
            ]
        });
        table::print(
            ["group", "passed", "failed", "skipped", "did not run"],
            rows,
        );
    }

    fn verdict(&self, options: &Options) -> Verdict {
        let passed = |group| self.count(group, |fate| *fate == Fate::Passed);
        let failed = |group| {
            let failed = self.count(group, |fate| matches!(fate, Fate::Failed(_)));
            failed + self.missing(group, options).len()
        };
        let all_passed: usize = options.groups.iter().map(|group| passed(*group)).sum();
        let all_failed: usize = options.groups.iter().map(|group| failed(*group)).sum();
        let summary = format!("{all_passed} passed, {all_failed} failed");
        if all_passed + all_failed == 0 {
            return Verdict::failed("no test ran");
        }
        if options.filter.is_some() {
            return Verdict::from_failures(all_failed, summary);
        }
        let (passed, failed) = (passed(Group::Core), failed(Group::Core));
        let is_reached = 100 * passed >= GOAL * (passed + failed);
        Verdict::from_failures(
            usize::from(!is_reached),
            format!("{summary}; goal {GOAL} % of core"),
        )
    }
}

/// The words of a path, for a command.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options, Usage> {
        Options::read(Args::new(
            line.split_whitespace().map(str::to_owned).collect(),
        ))
    }

    fn case(test: &str, fate: Fate) -> Case {
        Case {
            test: test.to_owned(),
            name: test.to_owned(),
            fate,
        }
    }

    #[test]
    fn a_wrong_command_line_is_told() {
        assert!(options("--group core").is_err());
        assert!(options("--suite x --group most").is_err());
        assert!(options("--suite x y").is_err());
        let read = options("--suite x --group all -k show");
        assert!(read.is_ok_and(|read| read.groups == [Group::Core, Group::Later]));
    }

    /// A run in which the suite dies early must not count as one in which all tests passed.
    #[test]
    fn tests_that_did_not_run_count_as_failed() {
        let groups = Groups::of_this_tree().expect("the table");
        let wanted: Vec<_> = groups.of(Group::Core).collect();
        let cases: Vec<_> = wanted.iter().map(|name| case(name, Fate::Passed)).collect();
        let run = options("--suite x").expect("options");
        let outcome = |cases: &[Case]| Results::of(&groups, cases, &wanted).verdict(&run).outcome;
        assert_eq!(outcome(&cases), Outcome::Passed);
        assert_eq!(outcome(&cases[10..]), Outcome::Failed);
        assert_eq!(outcome(&[]), Outcome::Failed);
    }
}
