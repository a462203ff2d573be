//! The command line of `paceline back`.

use std::{ffi::OsString, io, path::PathBuf, process::ExitCode, sync::mpsc, time::Duration};

use lexopt::{Arg, Parser, ValueExt};
use paceline::{Signal, TaskContext};

use super::{Durability, Limits, Server};

/// The text of `--help`.
pub const HELP: &str = "\
An embedded database server: PostgreSQL's protocol over SQLite files.

usage: paceline back --listen ADDR --data DIR [--database NAME].. [options]

  --listen ADDR       where to listen, such as 127.0.0.1:5433; port 0 lets the system choose
  --data DIR          the folder of the databases; it is made if it does not exist
  --database NAME     a database, in the file NAME.sqlite; may be repeated (default: bank)
  --user NAME:SECRET  a user with a password, or with what PostgreSQL stores of one (md5..,
                      SCRAM-SHA-256$..); may be repeated. Without users every client is trusted,
                      which only loopback addresses allow
  --threads N         how many threads take turns (default: four per core, and up to 64 while
                      statements last)
  --relaxed           reply to a commit before it survives a loss of power
  --lane-wait MS      how long a session waits for the lane of writers (default 30000)
  --idle-writer MS    how long a transaction that holds that lane may be idle (default 10000)
  --help              this text

It prints `listening on ADDR` when it is ready. A second process with the same folder is a standby:
it serves reads, and takes over when the first one ends. SIGINT and SIGTERM (Ctrl-C) stop it.";

/// The deadline of a graceful shutdown.
const ENDING: Duration = Duration::from_secs(5);

/// Runs `paceline back` with these arguments, without the name of the program.
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> ExitCode {
    match parse(arguments) {
        Ok(Some(options)) => match serve(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("paceline back: {error}");
                ExitCode::FAILURE
            }
        },
        Ok(None) => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(mistake) => {
            eprintln!("paceline back: {mistake}\nTry --help.");
            ExitCode::from(2)
        }
    }
}

#[derive(Debug, Default)]
struct Options {
    listen: Vec<String>,
    data: Option<PathBuf>,
    databases: Vec<String>,
    users: Vec<(String, String)>,
    threads: Option<usize>,
    durability: Durability,
    limits: Limits,
}

/// `None`: the arguments ask for help.
fn parse(
    arguments: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options::default();
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("listen") => options.listen.push(parser.value()?.string()?),
            Arg::Long("data") => options.data = Some(parser.value()?.into()),
            Arg::Long("database") => options.databases.push(parser.value()?.string()?),
            Arg::Long("user") => {
                let user = parser.value()?.string()?;
                let (name, secret) = user.split_once(':').ok_or("--user needs NAME:SECRET")?;
                options.users.push((name.to_owned(), secret.to_owned()));
            }
            Arg::Long("threads") => options.threads = Some(parser.value()?.parse()?),
            Arg::Long("relaxed") => options.durability = Durability::Relaxed,
            Arg::Long("lane-wait") => options.limits.lane_wait = millis(&mut parser)?,
            Arg::Long("idle-writer") => options.limits.idle_writer = millis(&mut parser)?,
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    if options.threads == Some(0) {
        return Err("--threads 0: there would be no thread to serve".into());
    }
    let missing = options.missing();
    if missing.is_empty() {
        Ok(Some(options))
    } else {
        Err(format!("missing: {}", missing.join(" and ")).into())
    }
}

impl Options {
    /// The required options that are not given.
    fn missing(&self) -> Vec<&'static str> {
        let required = [
            ("--listen ADDR", self.listen.is_empty()),
            ("--data DIR", self.data.is_none()),
        ];
        let missing = required.iter().filter(|(_, is_missing)| *is_missing);
        missing.map(|(option, _)| *option).collect()
    }
}

fn millis(parser: &mut Parser) -> Result<Duration, lexopt::Error> {
    Ok(Duration::from_millis(parser.value()?.parse()?))
}

/// Serves until a signal ends it.
fn serve(options: Options) -> io::Result<()> {
    let mut builder = Server::builder(options.data.unwrap_or_default())
        .limits(options.limits)
        .durability(options.durability)
        .end_process_on_lost_log();
    builder = options
        .listen
        .into_iter()
        .fold(builder, super::Builder::listen);
    if options.databases.is_empty() {
        builder = builder.database("bank");
    }
    builder = options
        .databases
        .into_iter()
        .fold(builder, super::Builder::database);
    for (name, secret) in options.users {
        builder = builder.user(name, secret);
    }
    if let Some(threads) = options.threads {
        builder = builder.threads(threads);
    }
    let running = builder.start()?;
    let (sender, receiver) = mpsc::channel();
    let on_signal = move |_: Signal, _: &mut TaskContext<'_>| {
        // `send` fails only when `serve` no longer receives: the server is ending already.
        let _ = sender.send(());
    };
    let signals = running
        .pool()
        .sources()
        .signals([Signal::INT, Signal::TERM], on_signal);
    signals.map_err(|rejected| rejected.error)?;
    let role = if running.writes() {
        ""
    } else {
        " as a standby"
    };
    println!("listening on {}{role}", running.local_addr());
    // An error means that the pool has ended.
    let _ = receiver.recv();
    let report = running.shutdown(ENDING);
    eprintln!("paceline back: {report}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(arguments: &[&str]) -> Option<String> {
        parse(arguments).err().map(|mistake| mistake.to_string())
    }

    /// One option per attempt would take a user many attempts.
    #[test]
    fn all_missing_options_are_reported_at_once() {
        let both = mistake(&[]);
        assert_eq!(
            both.as_deref(),
            Some("missing: --listen ADDR and --data DIR")
        );
        let one = mistake(&["--listen", "127.0.0.1:0"]);
        assert_eq!(one.as_deref(), Some("missing: --data DIR"));
        assert_eq!(mistake(&["--listen", "127.0.0.1:0", "--data", "x"]), None);
        assert_eq!(mistake(&["--help"]), None);
    }
}
