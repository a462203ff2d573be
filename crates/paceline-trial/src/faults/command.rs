//! The command line, and the table.

use std::{ffi::OsString, io, process::ExitCode, str::FromStr, time::Duration};

use lexopt::{Arg, Parser, ValueExt};

use super::{
    row::Row,
    state::State,
    strike::{Strike, System},
    tally::Tally,
    Plan,
};
use crate::back::Kind;

/// What `--help` prints.
const HELP: &str = "\
usage: paceline-trial [OPTIONS]

Faults in each state of a session, behind a front-end whose clients keep books. Starts the servers that
it needs, and prints a row for each fault and state: transactions that were acknowledged, lost, doubled,
misrouted, of unknown outcome; other broken promises; clients and connections that hang.

      --transactions N   transactions of each row, at least (default 400)
      --strikes N        how often the fault strikes in each row, at least (default 2)
      --back LIST        postgres, embedded (default: both)
      --fault LIST       kill, stop, reset, refuse, client (default: all)
      --state LIST       idle, query, parsed, copy-in, copy-out, open, commit (default: all)
      --mode MODE        transaction (default) or session
      --clients N        clients at work meanwhile (default 6)
      --pause N          a pause behind each strike, N times as long as that (default 1)
      --limit SECONDS    the longest time of a row (default 600)
      --seed N           repeats the choices of chance (default 1)
      --help             print this

Exit status: 0 all promises hold, 1 one is broken, 2 the options are wrong or a server does not start.
A back-end that is not installed is skipped with a line that says so.";

#[derive(Debug)]
struct Options {
    plan: Plan,
    backs: Vec<Kind>,
    strikes: Vec<Strike>,
    states: Vec<State>,
    mode: String,
    seed: u64,
}

/// Runs the command with the arguments that follow its name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = match parse(Parser::from_args(arguments)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("paceline-trial: {error}\nTry --help.");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(bad) => {
            println!("{bad} rows broke a promise");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("paceline-trial: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the rows that a line of options names, and says how many of them broke a promise.
///
/// # Errors
/// If an option is wrong, or a server does not start.
pub fn broken_rows(line: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let options = parse(Parser::from_args(line.split_whitespace()))?;
    let options = options.ok_or("the line asks for help")?;
    Ok(run(&options)?)
}

fn parse(mut parser: Parser) -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options {
        plan: Plan {
            transactions: 400,
            strikes: 2,
            clients: 6,
            pause: 1,
            limit: Duration::from_secs(600),
        },
        backs: Kind::ALL.to_vec(),
        strikes: Strike::ALL.to_vec(),
        states: State::ALL.to_vec(),
        mode: "transaction".to_owned(),
        seed: 1,
    };
    while let Some(argument) = parser.next()? {
        let plan = &mut options.plan;
        match argument {
            Arg::Long("transactions") => {
                plan.transactions = parser.value()?.parse_with(positive)?
            }
            Arg::Long("strikes") => plan.strikes = parser.value()?.parse_with(positive)?,
            Arg::Long("clients") => plan.clients = parser.value()?.parse_with(positive)?,
            Arg::Long("limit") => {
                plan.limit = Duration::from_secs(parser.value()?.parse_with(positive)?);
            }
            Arg::Long("pause") => plan.pause = parser.value()?.parse()?,
            Arg::Long("seed") => options.seed = parser.value()?.parse()?,
            Arg::Long("back") => {
                let names = parser.value()?.string()?;
                options.backs = chosen(&names, &Kind::ALL, Kind::name)?;
            }
            Arg::Long("fault") => {
                let names = parser.value()?.string()?;
                options.strikes = chosen(&names, &Strike::ALL, Strike::name)?;
            }
            Arg::Long("state") => {
                let names = parser.value()?.string()?;
                options.states = chosen(&names, &State::ALL, State::name)?;
            }
            Arg::Long("mode") => options.mode = parser.value()?.parse_with(mode)?,
            Arg::Long("help") => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(options))
}

fn positive<N: FromStr + PartialOrd + Default>(text: &str) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| *number > N::default());
    number.ok_or_else(|| format!("`{text}` is no number above zero"))
}

fn mode(text: &str) -> Result<String, String> {
    let found = ["transaction", "session"]
        .into_iter()
        .find(|mode| *mode == text);
    found
        .map(str::to_owned)
        .ok_or_else(|| format!("`{text}` is not transaction or session"))
}

/// Those of the names in a list with commas.
fn chosen<T: Copy>(names: &str, all: &[T], name: fn(T) -> &'static str) -> Result<Vec<T>, String> {
    let one = |wanted: &str| {
        let found = all.iter().copied().find(|known| name(*known) == wanted);
        let known = || {
            all.iter()
                .map(|known| name(*known))
                .collect::<Vec<_>>()
                .join(", ")
        };
        found.ok_or_else(|| format!("`{wanted}` is none of {}", known()))
    };
    names.split(',').map(one).collect()
}

/// Runs all rows, and says how many of them broke a promise.
fn run(options: &Options) -> io::Result<u64> {
    let mut bad = 0;
    for kind in &options.backs {
        let Some(mut system) = System::start(*kind, &options.mode)? else {
            println!(
                "SKIPPED: {} is not installed (cargo xtask setup)",
                kind.name()
            );
            continue;
        };
        print_head(*kind, options);
        let mut number = 0;
        for strike in &options.strikes {
            for state in &options.states {
                number += 1;
                let row = Row {
                    strike: *strike,
                    state: *state,
                };
                let seed = options.seed.wrapping_mul(1_000) + number;
                let tally = row.run(&mut system, &options.plan, seed)?;
                print_row(row, &tally);
                bad += u64::from(!tally.is_good());
            }
        }
    }
    Ok(bad)
}

fn print_head(kind: Kind, options: &Options) {
    println!(
        "{} behind the front-end, pool_mode = {}, seed {}",
        kind.name(),
        options.mode,
        options.seed
    );
    println!(
        "fault  state    strikes acknowledged  lost doubled misrouted wrong unknown  hung recovery ms"
    );
}

fn print_row(row: Row, tally: &Tally) {
    println!(
        "{:<6} {:<8} {:>7} {:>12} {:>5} {:>7} {:>9} {:>5} {:>7} {:>5} {:>11}",
        row.strike,
        row.state,
        tally.strikes,
        tally.acknowledged,
        tally.lost,
        tally.doubled,
        tally.misrouted,
        tally.wrong,
        tally.unknown,
        tally.hung,
        tally.recovery.as_millis(),
    );
    if !tally.is_good() {
        tally.texts.iter().for_each(|text| println!("    {text}"));
        println!("    errors: {:?}", tally.reasons);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Options>, String> {
        parse(Parser::from_args(line.split(' '))).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_are_chosen_by_their_names() {
        let options = parsed("--fault reset,kill --state copy-in --back embedded");
        let options = options.expect("good options").expect("no help");
        assert_eq!(options.strikes, [Strike::Reset, Strike::Kill]);
        assert_eq!(options.states, [State::CopyIn]);
        assert_eq!(options.backs, [Kind::Embedded]);
    }

    #[test]
    fn a_bad_option_is_refused_with_the_reason() {
        for (line, reason) in [
            ("--fault resets", "`resets` is none of kill, stop"),
            ("--transactions 0", "no number above zero"),
            ("--mode statement", "is not transaction or session"),
            ("--unknown", "--unknown"),
        ] {
            let error = parsed(line).expect_err("a bad line");
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
