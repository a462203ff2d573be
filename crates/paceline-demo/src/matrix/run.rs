//! Runs a row, and prints its line.

use std::{collections::BTreeMap, io, process::ExitCode, thread, time::Duration};

use paceline_check::{run_under, Report, Verdict};

use super::{
    apart,
    rows::Row,
    stage::{Setup, Stage},
    Options, Place,
};
use crate::folder::Folder;

/// The names of the columns.
pub(super) const HEADER: &str =
    "row                   faults  committed  undone  unknown (ledger: done)  \
                                 wrong     pause";

/// How long one workload may take at most.
const LONGEST: Duration = Duration::from_secs(1_800);

/// How many findings are printed.
const MOST_FINDINGS: usize = 5;

/// The SQLSTATE of a write on a standby: the front-end knows which server writes.
const READ_ONLY: &str = "25006";

/// What became of a row.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    Skipped,
}

impl Outcome {
    /// How a process that was made for one row reports it.
    pub(super) fn code(self) -> ExitCode {
        match self {
            Self::Passed => ExitCode::SUCCESS,
            Self::Failed => ExitCode::FAILURE,
            Self::Skipped => ExitCode::from(apart::SKIPPED),
        }
    }
}

/// Runs a row, and prints its line.
pub(super) fn run(row: &Row, options: &Options) -> Outcome {
    let is_apart = matches!(row.setup, Setup::SmallDisk | Setup::OwnNetwork);
    if is_apart && options.place == Place::Here {
        return apart::run(row, options);
    }
    let begun = match options.place {
        Place::Here => Ok(()),
        Place::Apart => apart::begin(),
    };
    let folder = begun.and_then(|()| Folder::open(None));
    let result = folder.and_then(|mut folder| {
        let result = run_in(&folder, row, options);
        if !matches!(result, Ok(Outcome::Passed)) {
            folder.keep();
            say!("  its data and logs are in {}", folder.path().display());
        }
        result
    });
    result.unwrap_or_else(|error| {
        say!("{:<20}  FAILED: {error}", row.name);
        Outcome::Failed
    })
}

fn run_in(folder: &Folder, row: &Row, options: &Options) -> io::Result<Outcome> {
    let disk = match row.setup {
        Setup::SmallDisk => Some(apart::SmallDisk::mount(&folder.path().join("bank"))?),
        Setup::Plain | Setup::Spoiled | Setup::OwnNetwork | Setup::Postgres => None,
    };
    let stage = Stage::start(folder.path(), row.setup)?;
    let report = thread::scope(|scope| {
        stage.tiers.look_after(scope, &stage.journal);
        let report = check(&stage, row, options);
        stage.tiers.stop_looking_after();
        report
    });
    stage.tiers.end(&stage.journal);
    let outcome = judge(&stage, row, &report?);
    drop(stage);
    drop(disk);
    Ok(outcome)
}

fn check(stage: &Stage, row: &Row, options: &Options) -> io::Result<Report> {
    let options_of_check = paceline_check::Options {
        target: stage.target(),
        clients: options.clients,
        duration: LONGEST,
        transactions: Some(options.transactions.div_ceil(3)),
        ..paceline_check::Options::default()
    };
    let make = || match (row.strike)(stage) {
        Ok(()) => true,
        Err(error) => {
            stage.journal.add(format!("FAULT NOT MADE: {error}"));
            false
        }
    };
    run_under(&options_of_check, options.every, &make).map_err(io::Error::other)
}

/// Prints the line of a row, and what is wrong.
fn judge(stage: &Stage, row: &Row, report: &Report) -> Outcome {
    let verdicts = &report.verdicts;
    let wrong = wrong_with(row, verdicts);
    say!("{}", line(row, verdicts, wrong.len()));
    if wrong.is_empty() {
        return Outcome::Passed;
    }
    for text in wrong.iter().take(MOST_FINDINGS) {
        say!("  WRONG: {text}");
    }
    let events = stage.journal.newest(usize::MAX);
    events.iter().rev().for_each(|event| say!("  {event}"));
    Outcome::Failed
}

fn wrong_with(row: &Row, verdicts: &[Verdict]) -> Vec<String> {
    let mut wrong = Vec::new();
    for verdict in verdicts {
        let name = verdict.workload;
        let found = verdict.findings().iter();
        wrong.extend(found.map(|finding| format!("{name}: {finding}")));
        if let paceline_check::Outcome::Unjudged(why) = &verdict.outcome {
            wrong.push(format!("{name}: {why}"));
        }
        if let (made, failed @ 1..) = verdict.faults {
            wrong.push(format!("{name}: {failed} of {made} faults had no effect"));
        }
        if let Some(count) = verdict.reasons.get(READ_ONLY) {
            wrong.push(format!("{name}: {count} writes reached a standby"));
        }
    }
    if verdicts.iter().map(|verdict| verdict.faults.0).sum::<u64>() == 0 {
        wrong.push(format!("{}: no fault was made", row.name));
    }
    wrong
}

fn line(row: &Row, verdicts: &[Verdict], wrong: usize) -> String {
    let sum = |of: fn(&Verdict) -> u64| verdicts.iter().map(of).sum::<u64>();
    let faults = sum(|verdict| verdict.faults.0);
    let (committed, undone) = (sum(|one| one.committed), sum(|one| one.undone));
    let unknown = sum(|one| one.unknown);
    let ledger = |fact| {
        let found = verdicts.iter().find_map(|verdict| verdict.fact(fact));
        found.unwrap_or(0)
    };
    let done = format!(
        "({}: {})",
        ledger("entries_unknown"),
        ledger("of_them_done")
    );
    let pause = verdicts.iter().map(|verdict| verdict.longest_gap).max();
    let pause = pause.unwrap_or_default().as_millis();
    let mut line = format!(
        "{:<20}  {faults:>6}  {committed:>9}  {undone:>6}  {unknown:>7} {done:<15}  {wrong:>5}  \
         {pause:>5} ms",
        row.name
    );
    for (reason, count) in most_frequent(verdicts) {
        line += &format!("  {reason} {count}");
    }
    line
}

/// The most frequent reasons why transactions were not committed.
fn most_frequent(verdicts: &[Verdict]) -> Vec<(String, u64)> {
    const MOST: usize = 4;
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (reason, count) in verdicts.iter().flat_map(|verdict| &verdict.reasons) {
        if reason != "by choice" {
            *counts.entry(reason).or_default() += count;
        }
    }
    let mut counts: Vec<_> = counts
        .into_iter()
        .map(|(reason, count)| (reason.to_owned(), count))
        .collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.truncate(MOST);
    counts
}
