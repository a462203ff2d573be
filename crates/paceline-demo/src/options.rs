//! What the demo is to do.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use lexopt::{Arg, Parser, ValueExt};

/// What `--help` prints.
pub const HELP: &str = "\
usage: paceline [demo] [OPTIONS]

Starts a whole transaction system on this computer, lets clients work on it, and shows what happens:

  travel agents          front-end server            back-end servers
  points of sale  ---->  a pool of threads,   ---->  bank, travel: databases with
  claims centres         few server sessions         transactions, kept in files
  your psql

The front-end speaks PostgreSQL's protocol: use psql, pgbench or any driver. Each client keeps books of
what was acknowledged to it. Every two seconds the demo reads the databases and compares them with the
books: no acknowledged entry may be lost, and none may be there twice. Each back-end is a pair of
processes: one writes, the other one is its standby. At second 6 the demo kills the process that writes
the database `bank`; its standby takes over.

  --no-load          no clients of the demo, and no fault: the system is yours
  --no-fault         no process is killed
  --for SECONDS      end after this time; the status is 0 only if all checks agree
  --end-within SECONDS
                     the longest time for an orderly end (default 60)
  --data DIR         keep the data in this folder, and use what is there (default: a new folder, which
                     is removed at the end if all checks agree)
  --port PORT        the front-end's port (default: 6432, or the next that is free)
  --page-port PORT   the page's port (default: 8432, or the next that is free)
  --clients N        clients of all kinds together (default 60)
  --rate N           transactions that they attempt each second (default 300)
  --postgres         PostgreSQL as the back-end: a primary with two replicas (Debian: postgresql)
  --pooler PROGRAM   another front-end that reads a pgbouncer.ini, such as pgbouncer itself; without
                     standbys, because it does not know which server writes
  --help             print this

Ctrl-C ends everything gracefully and prints a report. A second Ctrl-C ends everything at once.

Exit status: 0 all checks agree (with --no-load: it has ended gracefully), 1 one does not, or the end has
taken too long, 2 the options are wrong or the system does not start, 130 a second Ctrl-C.
";

/// What the demo is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) has_load: bool,
    pub(crate) has_fault: bool,
    pub(crate) duration: Option<Duration>,
    /// The longest time for an orderly end.
    pub(crate) end_within: Duration,
    pub(crate) data: Option<PathBuf>,
    pub(crate) port: Option<u16>,
    pub(crate) page_port: Option<u16>,
    pub(crate) clients: u32,
    pub(crate) rate: u32,
    pub(crate) is_postgres: bool,
    pub(crate) pooler: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            has_load: true,
            has_fault: true,
            duration: None,
            end_within: Duration::from_secs(60),
            data: None,
            port: None,
            page_port: None,
            clients: 60,
            rate: 300,
            is_postgres: false,
            pooler: None,
        }
    }
}

/// Whether a word is an option of the demo, other than `--help`.
#[must_use]
pub fn is_option(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    let known = [
        "--no-load",
        "--no-fault",
        "--for",
        "--end-within",
        "--data",
        "--port",
        "--page-port",
        "--clients",
        "--rate",
        "--postgres",
        "--pooler",
    ];
    known.contains(&name)
}

/// Reads the arguments behind the name of the command; `None` asks for help.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options::default();
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            Arg::Long("no-load") => options.has_load = false,
            Arg::Long("no-fault") => options.has_fault = false,
            Arg::Long("for") => {
                options.duration = Some(parser.value()?.parse_with(crate::seconds)?)
            }
            Arg::Long("end-within") => {
                options.end_within = parser.value()?.parse_with(crate::seconds)?
            }
            Arg::Long("data") => options.data = Some(parser.value()?.into()),
            Arg::Long("port") => options.port = Some(parser.value()?.parse_with(port)?),
            Arg::Long("page-port") => options.page_port = Some(parser.value()?.parse_with(port)?),
            Arg::Long("clients") => options.clients = parser.value()?.parse_with(positive)?,
            Arg::Long("rate") => options.rate = parser.value()?.parse_with(positive)?,
            Arg::Long("postgres") => options.is_postgres = true,
            Arg::Long("pooler") => options.pooler = Some(parser.value()?.into()),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(options))
}

fn port(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| format!("`{text}` is no TCP port"))
}

fn positive(text: &str) -> Result<u32, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=10_000).contains(number));
    number.ok_or_else(|| format!("`{text}` is no number from 1 to 10,000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Options>, String> {
        let words = line
            .split(' ')
            .filter(|word| !word.is_empty())
            .map(OsString::from);
        parse(words).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read() {
        assert_eq!(parsed(""), Ok(Some(Options::default())));
        let options = parsed("--no-load --for 2.5 --port 7000 --data folder --clients 6");
        let expected = Options {
            has_load: false,
            duration: Some(Duration::from_millis(2_500)),
            port: Some(7_000),
            data: Some("folder".into()),
            clients: 6,
            ..Options::default()
        };
        assert_eq!(options, Ok(Some(expected)));
        assert_eq!(parsed("--for 1 --help"), Ok(None));
    }

    #[test]
    fn a_bad_option_is_refused_with_the_reason() {
        for (line, reason) in [
            ("--for 0", "no number of seconds"),
            ("--port 70000", "no TCP port"),
            ("--port 0", "no TCP port"),
            ("--rate 0", "no number from 1"),
            ("--unknown", "--unknown"),
            ("word", "word"),
        ] {
            let error = parsed(line).expect_err("a bad line");
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    #[test]
    fn the_help_names_every_option() {
        let source = include_str!("options.rs");
        let known = source.split("Arg::Long(\"").skip(1);
        let known = known.filter_map(|rest| rest.split_once("\")").map(|(name, _)| name));
        for name in known.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-')) {
            assert!(HELP.contains(&format!("--{name}")), "--{name}");
            assert!(
                is_option(&format!("--{name}=1")) || name == "help",
                "--{name}"
            );
        }
    }
}
