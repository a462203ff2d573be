//! `inject`: the fault matrix. A real server, in a process of its own, is put under one fault after the other
//! while clients check every answer. Whatever the kernel or the machine does, nothing may be lost, doubled,
//! misrouted or left hanging, and when the fault is over the server serves as before.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::args::Usage;
use crate::table;
use crate::verb::{Verb, Verdict};
use crate::workspace::Workspace;

use catalogue::{Fault, Set};
use row::Row;
use server::Program;
use stage::Stage;
use tools::Tools;

mod catalogue;
mod client;
mod library;
mod load;
mod message;
mod row;
mod server;
mod stage;
mod strace;
mod thread;
mod tools;

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "inject",
    summary: "put a running server under one fault after the other and check every answer",
    help: "\
usage: cargo xtask inject [--full] [--seconds N] [--server-args WORDS] [NAME...] [--list]

Starts the example `echo` anew for each fault, sends it messages that carry their connection and their
number over 16 connections which are closed, reset and reopened, makes the fault (strace, a preloaded
library, ptrace, prlimit), takes it away, and asks on fresh connections. One row per fault:
  injected   how often it struck; zero is a failure
  requests   messages sent
  refused    of them, those whose connection the fault ended, visibly, where it may
  nudges     edges that clients made in place of one that the fault took away, where it does
  lost, doubled, misrouted, hung (10 s): none is allowed
  recovery   from the end of the fault until fresh connections were served, at most
Besides, no more connections may end than faults struck, no thread may be gone, and the server must end
in order.

  NAME                 only these faults
  --list               tell the faults, run nothing
  --full               longer, at least 100_000 faults; and the n-th calls until a run sees no fault
  --seconds N          limit for the whole run (default 60, full 600), shared out to the rows; a row that
                       would begin later fails
  --server-args WORDS  further arguments of the server, such as `--wake eager`; with `--set poll` the
                       faults are those of `poll`, and epoll's own are skipped
  --server PROGRAM     this program instead of the example

strace counts the calls of each thread on their own, the library those of all. A fault that cannot be
made here is printed as skipped, with the reason, and counted. Logs are kept in target/xtask.",
    run: |mut args| {
        let depth = match args.flag("--full") {
            true => Depth::Full,
            false => Depth::Short,
        };
        let list = args.flag("--list");
        let limit = args.seconds("--seconds", depth.limit())?;
        let server = args.value("--server")?.map(PathBuf::from);
        let arguments = args.value("--server-args")?.unwrap_or_default();
        let options = Options {
            depth,
            limit,
            server,
            arguments: arguments.split_whitespace().map(str::to_owned).collect(),
        };
        let names = args.names()?;
        let faults = select(&names, Set::of(&options.arguments))?;
        Ok(match list {
            true => tell(&faults),
            false => options.run(&faults, names.is_empty()),
        })
    },
};

/// Faults that a full run must inject, in all.
const FULL_FAULTS: u64 = 100_000;

/// How far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// For every change.
    Short,
    /// Before a release.
    Full,
}

impl Depth {
    /// Limit for the whole run, if nothing else is said.
    fn limit(self) -> Duration {
        match self {
            Depth::Short => Duration::from_secs(60),
            Depth::Full => Duration::from_secs(600),
        }
    }
}

/// Why a fault has no figures.
#[derive(Clone, Debug)]
enum Trouble {
    /// It cannot be made here, which says nothing about the server.
    Skipped(String),
    /// Something went wrong.
    Failed(String),
}

impl Trouble {
    /// What a tool complains of: that something is not permitted, or not there, says nothing about the server.
    fn of_tool(tool: &str, complaint: &str) -> Trouble {
        let why = format!("{tool}: {complaint}");
        match ["not permitted", "os error 2"]
            .iter()
            .any(|words| why.contains(words))
        {
            true => Trouble::Skipped(why),
            false => Trouble::Failed(why),
        }
    }
}

/// What the command line asks for.
struct Options {
    /// How far to go.
    depth: Depth,
    /// For the whole run.
    limit: Duration,
    /// A server other than the example.
    server: Option<PathBuf>,
    /// Further arguments of the server.
    arguments: Vec<String>,
}

/// Puts the example under every fault, for `ci`.
pub(crate) fn check(depth: Depth) -> Verdict {
    let options = Options {
        depth,
        limit: depth.limit(),
        server: None,
        arguments: Vec::new(),
    };
    options.run(&catalogue::all(Set::Epoll), true)
}

impl Options {
    /// Runs the faults one by one, prints the table and counts. `whole`: they are all there are.
    fn run(&self, faults: &[Fault], whole: bool) -> Verdict {
        let stage = match self.stage(faults.len()) {
            Ok(stage) => stage,
            Err(why) => return Verdict::failed(why),
        };
        let end = Instant::now() + self.limit;
        let fates: Vec<_> = faults
            .iter()
            .map(|fault| fate(&stage, fault, end))
            .collect();
        let rows = faults
            .iter()
            .zip(&fates)
            .map(|(fault, fate)| cells(fault, fate));
        table::print(row::HEADING, rows);
        count(
            &fates,
            (whole && self.depth == Depth::Full).then_some(FULL_FAULTS),
        )
    }

    /// Builds what every fault needs.
    fn stage(&self, faults: usize) -> Result<Stage, String> {
        let workspace = Workspace::this();
        let path = match &self.server {
            Some(path) => path.clone(),
            None => server::build(&workspace)?,
        };
        Ok(Stage {
            program: Program {
                path,
                arguments: self.arguments.clone(),
                log: workspace.log("inject-server"),
            },
            tools: Tools::compile(&workspace),
            strace_log: workspace.log("inject-strace"),
            controls: workspace.logs.join("inject-controls"),
            depth: self.depth,
            time: share(self.limit, faults),
        })
    }
}

/// How long each of so many faults may be there: half of its share, for it comes and goes in the other half.
fn share(limit: Duration, faults: usize) -> Duration {
    let share = limit / 2 / u32::try_from(faults.max(1)).unwrap_or(u32::MAX);
    share.min(Duration::from_secs(30))
}

/// The faults with these names, or all if none is named, for a server with this set.
fn select(names: &[String], set: Set) -> Result<Vec<Fault>, Usage> {
    let faults = catalogue::all(set);
    let known = |name: &&String| faults.iter().any(|fault| fault.name == **name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        return Err(Usage(format!(
            "there is no fault `{unknown}` (`--list` tells what there is)"
        )));
    }
    let wanted = |fault: &Fault| names.is_empty() || names.iter().any(|name| name == fault.name);
    Ok(faults.into_iter().filter(wanted).collect())
}

/// Prints the faults.
fn tell(faults: &[Fault]) -> Verdict {
    let rows = faults
        .iter()
        .map(|fault| [fault.name, fault.story].map(str::to_owned));
    table::print(["fault", "what it is"], rows);
    Verdict::passed(format!("{} faults", faults.len()))
}

/// Runs one fault, and says how that went.
fn fate(stage: &Stage, fault: &Fault, end: Instant) -> Result<Row, Trouble> {
    let fate = match Instant::now() < end {
        true => stage.play(fault),
        false => Err(Trouble::Failed("no time was left for it".to_owned())),
    };
    match &fate {
        Ok(row) if row.passed() => println!(
            "{}: {} faults, {} requests [{:.1} s]",
            fault.name,
            row.injected,
            row.tally.requests,
            row.time.as_secs_f64()
        ),
        Ok(row) => println!("{}: FAILED: {}", fault.name, row.wrongs().join(", ")),
        Err(Trouble::Skipped(why)) => println!("{}: skipped: {why}", fault.name),
        Err(Trouble::Failed(why)) => println!("{}: FAILED: {why}", fault.name),
    }
    fate
}

/// A fault as a row of the table.
fn cells(fault: &Fault, fate: &Result<Row, Trouble>) -> [String; 11] {
    match fate {
        Ok(row) => row.cells(),
        Err(Trouble::Skipped(why)) => {
            row::cells_without_figures(fault.name, format!("skipped: {why}"))
        }
        Err(Trouble::Failed(why)) => {
            row::cells_without_figures(fault.name, format!("FAILED: {why}"))
        }
    }
}

/// The closing line. Nothing at all that passed, or fewer faults than there must be, is a failure.
fn count(fates: &[Result<Row, Trouble>], must_inject: Option<u64>) -> Verdict {
    let rows = || fates.iter().flatten();
    let passed = rows().filter(|row| row.passed()).count();
    let skipped = fates
        .iter()
        .filter(|fate| matches!(fate, Err(Trouble::Skipped(_))));
    let skipped = skipped.count();
    let failed = fates.len() - passed - skipped;
    let injected: u64 = rows().map(|row| row.injected).sum();
    let requests: u64 = rows().map(|row| row.tally.requests).sum();
    let sites = |lasts: usize| -> u64 { rows().map(|row| row.sites[lasts]).sum() };
    let summary = format!(
        "{injected} faults under {requests} requests, at {} sites once and {} lastingly; \
         rows: {passed} passed, {failed} failed, {skipped} skipped",
        sites(0),
        sites(1),
    );
    match must_inject {
        Some(most) if injected < most && failed == 0 && skipped < fates.len() => {
            Verdict::failed(format!("{summary}; at least {most} faults were asked for"))
        }
        _ if skipped == fates.len() => Verdict::skipped(summary),
        _ => Verdict::from_failures(failed, summary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::Outcome;

    #[test]
    fn an_unknown_fault_is_a_wrong_command_line() {
        assert!(select(&["no-such-fault".to_owned()], Set::Epoll).is_err());
        let one = select(&["short-sends".to_owned()], Set::Epoll).unwrap();
        assert_eq!(one.len(), 1);
    }

    #[test]
    fn a_failed_row_fails_the_run_and_a_skipped_one_is_counted() {
        let skipped = || Err(Trouble::Skipped("no strace".to_owned()));
        let failed = Err(Trouble::Failed("no server".to_owned()));
        assert_eq!(count(&[skipped()], None).outcome, Outcome::Skipped);
        let verdict = count(&[skipped(), failed], None);
        assert_eq!(verdict.outcome, Outcome::Failed);
        assert!(verdict.summary.contains("1 failed, 1 skipped"));
    }

    #[test]
    fn the_faults_of_a_short_run_fit_into_its_time() {
        let faults = catalogue::all(Set::Epoll).len();
        let all = share(Depth::Short.limit(), faults) * u32::try_from(faults).unwrap();
        assert!(all <= Depth::Short.limit() / 2);
    }
}
