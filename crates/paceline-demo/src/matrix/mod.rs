//! `paceline tier-faults`: breaks each tier in each way while the consistency checker is at work.
//!
//! ```text
//!   ROWS --> run --> Stage, and the workloads of paceline-check under the row's faults --> a line
//!   rows, link, spoiler    how the faults are made
//!   apart                  a row in namespaces of its own: this program once more, under `unshare`
//! ```

mod apart;
mod link;
mod rows;
mod run;
mod spoiler;
mod stage;

use std::{ffi::OsString, process::ExitCode, time::Duration};

use lexopt::{Arg, Parser, ValueExt};

use rows::{Row, ROWS};
use run::Outcome;

/// What `--help` prints.
pub const HELP: &str = "\
usage: paceline tier-faults [OPTIONS] [ROW ...]

Breaks each tier of the system in each way while clients are at work, one row after the other. Each
row has servers of its own: a front-end, a back-end that writes and its standby on the same files, and
links between the tiers that can be cut. The workloads of `paceline check` run through the front-end:
bank totals, list-append, a ledger. Faults follow each other until there were enough transactions.

  -n, --transactions N   how many transactions a row has at least (default 3000)
      --every SECONDS    the time from the first commits after a fault to the next one (default 1)
  -c, --clients N        clients at once (default 16)
      --list             print the rows, run nothing
      --help             print this

A row passes if nothing acknowledged is lost, nothing is there twice, totals and lists are right, each
fault had its effect, and no client was refused as if it had written to a standby. A row that can't
run here is printed as SKIPPED, with the reason. The columns:

  faults       how many faults were made
  committed    transactions that were acknowledged
  undone       transactions that were rolled back, and their clients know it
  unknown      commits without a reply, or with SQLSTATE 08007; of those of the ledger, how many were
               done
  wrong        what the checker has found
  pause        the longest time without any commit

Exit status: 0 all rows that ran have passed, 1 one has failed, 2 the options are wrong.
";

/// What the command is to do.
#[derive(Clone, Debug)]
struct Options {
    transactions: u64,
    every: Duration,
    clients: u32,
    rows: Vec<&'static Row>,
    place: Place,
}

/// Where rows run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Here,
    /// This process is in namespaces of its own, made for one row.
    Apart,
}

/// What the arguments ask for.
#[derive(Debug)]
enum Wish {
    Help,
    List,
    Run(Options),
}

/// Runs the command with the arguments that follow its name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match wish(arguments) {
        Ok(Wish::Help) => {
            say!("{}", HELP.trim_end());
            ExitCode::SUCCESS
        }
        Ok(Wish::List) => {
            ROWS.iter()
                .for_each(|row| say!("{:<20} {}", row.name, row.what));
            ExitCode::SUCCESS
        }
        Ok(Wish::Run(options)) => run_all(&options),
        Err(error) => {
            eprintln!("paceline tier-faults: {error}\nTry `paceline tier-faults --help`.");
            ExitCode::from(2)
        }
    }
}

fn run_all(options: &Options) -> ExitCode {
    if options.place == Place::Apart {
        let outcomes = options.rows.iter().map(|row| run::run(row, options));
        return outcomes
            .map(|outcome| outcome.code())
            .next()
            .unwrap_or(ExitCode::SUCCESS);
    }
    say!("{}", run::HEADER);
    let outcomes: Vec<_> = options
        .rows
        .iter()
        .map(|row| run::run(row, options))
        .collect();
    let count = |wanted| outcomes.iter().filter(|one| **one == wanted).count();
    let (passed, failed, skipped) = (
        count(Outcome::Passed),
        count(Outcome::Failed),
        count(Outcome::Skipped),
    );
    say!("{passed} rows passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}

fn wish(arguments: impl IntoIterator<Item = OsString>) -> Result<Wish, lexopt::Error> {
    let mut options = Options {
        transactions: 3_000,
        every: Duration::from_secs(1),
        clients: 16,
        rows: Vec::new(),
        place: Place::Here,
    };
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("help") | Arg::Short('h') => return Ok(Wish::Help),
            Arg::Long("list") => return Ok(Wish::List),
            Arg::Long("transactions") | Arg::Short('n') => {
                options.transactions = parser.value()?.parse_with(positive)?;
            }
            Arg::Long("every") => options.every = parser.value()?.parse_with(crate::seconds)?,
            Arg::Long("clients") | Arg::Short('c') => {
                options.clients = parser.value()?.parse_with(positive)?;
            }
            // For this program itself.
            Arg::Long("apart") => options.place = Place::Apart,
            Arg::Value(name) => options.rows.push(name.parse_with(row)?),
            other => return Err(other.unexpected()),
        }
    }
    if options.rows.is_empty() {
        options.rows = ROWS.iter().collect();
    }
    Ok(Wish::Run(options))
}

fn positive<T: std::str::FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| *number > T::from(0));
    number.ok_or_else(|| format!("`{text}` is no number above zero"))
}

fn row(name: &str) -> Result<&'static Row, String> {
    let found = ROWS.iter().find(|row| row.name == name);
    found.ok_or_else(|| format!("there is no row `{name}`; --list prints them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Wish, String> {
        let words = line.split_whitespace().map(OsString::from);
        wish(words).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_and_numbers_are_read() {
        let Ok(Wish::Run(options)) = parsed("-n 100000 --every 0.5 -c 8 front-kill disk-full")
        else {
            panic!("the line is right");
        };
        let names: Vec<_> = options.rows.iter().map(|row| row.name).collect();
        assert_eq!(names, ["front-kill", "disk-full"]);
        assert_eq!((options.transactions, options.clients), (100_000, 8));
        let Ok(Wish::Run(options)) = parsed("") else {
            panic!("the line is right");
        };
        assert_eq!(options.rows.len(), ROWS.len());
    }

    #[test]
    fn a_bad_line_is_refused_with_the_reason() {
        for (line, reason) in [
            ("front-melt", "there is no row `front-melt`"),
            ("-n 0", "no number above zero"),
            ("--every soon", "no number of seconds"),
            ("--unknown", "--unknown"),
        ] {
            let error = parsed(line).expect_err("a bad line");
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
