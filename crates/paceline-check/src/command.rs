//! The command line.

use std::{
    ffi::OsString,
    io::{IsTerminal, Write},
    process::ExitCode,
    str::FromStr,
    time::Duration,
};

use lexopt::{Arg, Parser, ValueExt};

use crate::{
    client::Protocol,
    options::{Isolation, Kind, Options, Progress},
    run,
};

/// What `--help` prints.
pub const HELP: &str = "\
usage: paceline check [OPTIONS] [postgres://USER:PASSWORD@HOST:PORT/DATABASE]

Checks whether a system that speaks PostgreSQL's protocol keeps what transactions promise: a server,
a pooler, a cluster with replicas, or all of them behind each other. Clients act at once and remember
what the system has acknowledged to them. At the end everything is read again and judged. Break the
system while this runs: the promises must hold all the same.

The system:
  -h, --host HOST        host (default 127.0.0.1)
  -p, --port PORT        port (default 5432)
  -U, --user USER        user (default postgres)
  -d, --database NAME    database (default: the user's name)
                         The password is in the URL, or in the variable PGPASSWORD.

The work:
  -w, --workload LIST    bank, append, ledger, or several with commas (default: all)
      bank     Clients move money between accounts. Every read shows the same total, and at the end
               each account has what the acknowledged transfers make.
      append   Transactions read lists and append to them. At the end nothing acknowledged is lost,
               nothing doubled, each read was a start of its list, and the transactions do not depend
               on each other in a circle that the isolation forbids.
      ledger   Each client enters rows and remembers: acknowledged, undone, or unknown. At the end the
               acknowledged ones are there once, the undone ones are not, and the unknown ones are
               counted as done or not done.
  -c, --clients N        clients at once (default 8)
  -t, --time SECONDS     time of each workload (default 10)
  -n, --transactions N   end each workload after N attempts, if that is earlier (with --fault: not
                         before the first one)
      --rate N           at most N transactions each second
      --isolation LEVEL  read-committed, snapshot (REPEATABLE READ) or serializable (default)
      --expect LEVEL     check for this level, whatever is asked for (default: the same)
      --protocol KIND    simple, extended (default), or prepared: named statements
      --seed N           repeats the choices of the clients (default 1)

Faults:
      --fault COMMAND    run this shell command while the clients are at work, such as
                         'kill -9 $(head -1 data/postmaster.pid)'
      --every SECONDS    how long after the clients commit again (default 5)
      --timeout SECONDS  how long a client waits for a byte of a reply (default 10)
      --recovery SECONDS how long the final read is attempted (default 60)

The result:
      --json             print the report as JSON
      --quiet            show no progress
      --keep             keep the tables, whose names begin with paceline_check_
      --help             print this

A transaction is unknown if its COMMIT was sent and no reply has arrived, or if the reply says so
(SQLSTATE 08007, 40003, or another failure that does not say that it was undone). It is never sent
again. Both outcomes are right, but it must be there as a whole, and once.

Exit status: 0 all promises hold, 1 one is broken or could not be judged, 2 the options are wrong or
the system can't be reached.

Examples:
  paceline check postgres://demo@127.0.0.1:6432/bank
  paceline check -w ledger -t 60 --fault 'systemctl restart pgbouncer' --every 10 -p 6432
  paceline check -w append --isolation snapshot --expect serializable     # finds write skew
";

/// What the arguments ask for.
#[derive(Debug)]
enum Wish {
    Help,
    Run {
        options: Box<Options>,
        is_json: bool,
    },
}

/// Runs the command with the arguments that follow its name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match wish(Parser::from_args(arguments)) {
        Ok(Wish::Help) => print(HELP, ExitCode::SUCCESS),
        Ok(Wish::Run { options, is_json }) => check(&options, is_json),
        Err(error) => {
            eprintln!("paceline check: {error}\nTry `paceline check --help`.");
            ExitCode::from(2)
        }
    }
}

fn check(options: &Options, is_json: bool) -> ExitCode {
    match run(options) {
        Ok(report) => {
            let status = ExitCode::from(u8::from(!report.has_passed()));
            let text = if is_json {
                format!("{}\n", report.json())
            } else {
                report.to_string()
            };
            print(&text, status)
        }
        Err(error) => {
            eprintln!("paceline check: {error}");
            ExitCode::from(2)
        }
    }
}

/// A report that can't be written is no pass.
fn print(text: &str, status: ExitCode) -> ExitCode {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => status,
        Err(_) => ExitCode::from(2),
    }
}

fn wish(mut parser: Parser) -> Result<Wish, lexopt::Error> {
    let mut options = Options {
        progress: progress(),
        ..Options::default()
    };
    let mut given = Given::default();
    let mut fault = None;
    let mut every = Duration::from_secs(5);
    let mut is_json = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("help") => return Ok(Wish::Help),
            Arg::Short('h') | Arg::Long("host") => given.host = Some(parser.value()?.string()?),
            Arg::Short('p') | Arg::Long("port") => given.port = Some(parser.value()?.parse()?),
            Arg::Short('U') | Arg::Long("user") => given.user = Some(parser.value()?.string()?),
            Arg::Short('d') | Arg::Long("database") => {
                given.database = Some(parser.value()?.string()?);
            }
            Arg::Short('w') | Arg::Long("workload") => {
                options.workloads = parser.value()?.parse_with(kinds)?;
            }
            Arg::Short('c') | Arg::Long("clients") => {
                options.clients = parser.value()?.parse_with(positive)?;
            }
            Arg::Short('t') | Arg::Long("time") => {
                options.duration = parser.value()?.parse_with(seconds)?;
            }
            Arg::Short('n') | Arg::Long("transactions") => {
                options.transactions = Some(parser.value()?.parse_with(positive)?.into());
            }
            Arg::Long("rate") => options.rate = Some(parser.value()?.parse_with(positive)?),
            Arg::Long("isolation") => options.isolation = parser.value()?.parse_with(isolation)?,
            Arg::Long("expect") => options.expect = Some(parser.value()?.parse_with(isolation)?),
            Arg::Long("protocol") => options.protocol = parser.value()?.parse_with(protocol)?,
            Arg::Long("seed") => options.seed = parser.value()?.parse()?,
            Arg::Long("fault") => fault = Some(parser.value()?.string()?),
            Arg::Long("every") => every = parser.value()?.parse_with(seconds)?,
            Arg::Long("timeout") => options.timeout = parser.value()?.parse_with(seconds)?,
            Arg::Long("recovery") => options.recovery = parser.value()?.parse_with(seconds)?,
            Arg::Long("json") => is_json = true,
            Arg::Long("quiet") => options.progress = Progress::Silent,
            Arg::Long("keep") => options.keep_tables = true,
            Arg::Value(url) => options.target = url.parse_with(FromStr::from_str)?,
            other => return Err(other.unexpected()),
        }
    }
    given.apply(&mut options);
    options.fault = fault.map(|command| (command, every));
    Ok(Wish::Run {
        options: Box::new(options),
        is_json,
    })
}

/// Parts of the target that options name. They win over the URL.
#[derive(Debug, Default)]
struct Given {
    host: Option<String>,
    port: Option<u16>,
    user: Option<String>,
    database: Option<String>,
}

impl Given {
    fn apply(self, options: &mut Options) {
        let target = &mut options.target;
        if let Some(user) = self.user {
            if target.database == target.user {
                target.database.clone_from(&user);
            }
            target.user = user;
        }
        target.host = self
            .host
            .unwrap_or_else(|| std::mem::take(&mut target.host));
        target.port = self.port.unwrap_or(target.port);
        target.database = self
            .database
            .unwrap_or_else(|| std::mem::take(&mut target.database));
        let password = target.password.take();
        target.password = password.or_else(|| std::env::var("PGPASSWORD").ok());
    }
}

fn progress() -> Progress {
    if std::io::stderr().is_terminal() {
        Progress::Terminal
    } else {
        Progress::Lines
    }
}

fn kinds(text: &str) -> Result<Vec<Kind>, String> {
    let kind = |name: &str| {
        let found = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("there is no workload `{name}`: bank, append, ledger"))
    };
    text.split(',').map(kind).collect()
}

fn isolation(text: &str) -> Result<Isolation, String> {
    let all = [
        Isolation::ReadCommitted,
        Isolation::Snapshot,
        Isolation::Serializable,
    ];
    let found = all.into_iter().find(|level| level.name() == text);
    found.ok_or_else(|| format!("`{text}` is not read-committed, snapshot or serializable"))
}

fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "simple" => Ok(Protocol::Simple),
        "extended" => Ok(Protocol::Extended),
        "prepared" => Ok(Protocol::Prepared),
        _ => Err(format!("`{text}` is not simple, extended or prepared")),
    }
}

fn positive(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("`{text}` is no number above zero"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().filter(|seconds| *seconds > 0.0);
    let time = time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("`{text}` is no number of seconds above zero"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Wish, String> {
        wish(Parser::from_args(line.split(' '))).map_err(|error| error.to_string())
    }

    fn options(line: &str) -> Options {
        match parsed(line) {
            Ok(Wish::Run { options, .. }) => *options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_win_over_the_url() {
        let options = options("-p 7000 postgres://ada:x@db:6432/bank -w ledger,bank -t 0.5");
        assert_eq!(options.target.to_string(), "ada@db:7000/bank");
        assert_eq!(options.workloads, [Kind::Ledger, Kind::Bank]);
        assert_eq!(options.duration, Duration::from_millis(500));
    }

    #[test]
    fn the_database_is_the_users_unless_it_is_named() {
        assert_eq!(options("-U demo").target.database, "demo");
        assert_eq!(options("-U demo -d bank").target.database, "bank");
        assert_eq!(
            options("-U demo postgres://db/bank").target.database,
            "bank"
        );
    }

    #[test]
    fn what_is_checked_follows_the_isolation_unless_it_is_named() {
        let snapshot = options("--isolation snapshot");
        assert_eq!(snapshot.expected(), Isolation::Snapshot);
        let more = options("--isolation snapshot --expect serializable");
        assert_eq!(more.expected(), Isolation::Serializable);
    }

    #[test]
    fn a_bad_option_is_refused_with_the_reason() {
        for (line, reason) in [
            ("--clients 0", "no number above zero"),
            ("--time -1", "no number of seconds"),
            ("--time nan", "no number of seconds"),
            ("-w bank,other", "no workload `other`"),
            ("--isolation strong", "is not read-committed"),
            ("--protocol binary", "is not simple"),
            ("--unknown", "--unknown"),
            ("http://x", "postgres://"),
        ] {
            let error = parsed(line).expect_err("a bad line");
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    /// Whatever the help names is an option, and the other way round.
    #[test]
    fn the_help_names_every_option() {
        let source = include_str!("command.rs");
        let known = source.split("Arg::Long(\"").skip(1);
        let known = known.filter_map(|rest| rest.split_once("\")").map(|(name, _)| name));
        for name in known.filter(|name| name.chars().all(|c| c.is_ascii_lowercase())) {
            assert!(HELP.contains(&format!("--{name}")), "--{name}");
        }
    }
}
