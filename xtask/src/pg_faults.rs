//! `pg-faults`: the pooler under faults in each state of the protocol, with clients that keep books.

use std::time::Duration;

use xtask_common::args::{Args, Usage};
use xtask_common::run;
use xtask_common::verb::{Verb, Verdict};
use xtask_common::workspace::{self, Form, Workspace};

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "pg-faults",
    summary: "strike the pooler's servers and clients in each state of the protocol",
    help: "\
usage: cargo xtask pg-faults [--transactions N] [--strikes N] [--back LIST] [--fault LIST] [--state LIST]
                             [--mode transaction|session] [--clients N] [--pause N] [--limit SECONDS] [--seed N]

Starts a front-end over a real PostgreSQL, and one over the embedded back-end. For each fault (kill: the
back-end is killed with -9 and started again; stop: stopped and continued; reset: its connections are reset;
refuse: and new ones are refused for a while; client: clients are killed with -9) and each state (idle, query,
parsed, copy-in, copy-out, open, commit), clients are brought into the state and the fault strikes, again and
again, while the bank and the lists of `paceline check` are at work through the same front-end. Everything is
read once more at the end of a row. The verb fails if a row has lost, doubled or misrouted anything, broke
another promise, or has clients or connections that hang.

  --transactions N  acknowledged transactions of each row, at least (default 400)
  --strikes N       how often the fault strikes in each row, at least (default 2)
  --pause N         a pause behind each strike, N times as long as that (default 1)

Lists have commas between. PostgreSQL is Debian's postgresql-15: `cargo xtask setup`.",
    run: |args| Ok(check(&words(args)?, LIMIT)),
};

/// The options that are passed on.
const OPTIONS: [&str; 10] = [
    "--transactions",
    "--strikes",
    "--back",
    "--fault",
    "--state",
    "--mode",
    "--clients",
    "--pause",
    "--limit",
    "--seed",
];

/// Limit for the build and all rows.
const LIMIT: Duration = Duration::from_secs(4 * 60 * 60);

/// Limit for the build and the sample.
const SAMPLE_LIMIT: Duration = Duration::from_secs(15 * 60);

/// What a full run has in each row.
const FULL: [&str; 6] = [
    "--transactions",
    "100000",
    "--strikes",
    "20",
    "--pause",
    "4",
];

/// Every fault in every state, a few times each, with the back-ends by turns.
pub(crate) fn check_sample() -> Verdict {
    let back = ["postgres", "embedded"][workspace::commits() % 2];
    check(&["--back".to_owned(), back.to_owned()], SAMPLE_LIMIT)
}

/// The same at length.
pub(crate) fn check_full() -> Verdict {
    check(&FULL.map(str::to_owned), LIMIT)
}

/// The words that the program gets.
fn words(mut args: Args) -> Result<Vec<String>, Usage> {
    let mut words = Vec::new();
    for option in OPTIONS {
        if let Some(value) = args.value(option)? {
            words.extend([option.to_owned(), value]);
        }
    }
    args.nothing()?;
    Ok(words)
}

/// Builds the program and runs it, with its table shown.
fn check(words: &[String], limit: Duration) -> Verdict {
    let mut cargo = Workspace::this().cargo(Form::Std);
    cargo.args(["run", "--quiet", "--package", "paceline-trial", "--"]);
    run::run_shown(cargo.args(words), limit).verdict()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Vec<String>, Usage> {
        words(Args::new(
            line.split_whitespace().map(str::to_owned).collect(),
        ))
    }

    #[test]
    fn options_are_passed_on_and_others_are_refused() {
        let words = read("--state=open,idle --transactions 7").expect("good options");
        assert_eq!(words, ["--transactions", "7", "--state", "open,idle"]);
        assert!(read("--states open").is_err() && read("open").is_err());
    }
}
