//! PgBouncer's own command line, so that this program can take its place where it is started.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command as Process, ExitCode, Stdio},
};

use lexopt::prelude::{Long, Short, Value, ValueExt};
use paceline_pg::front::Start;

use crate::{
    command::{Command, Mistake},
    front, system,
};

const HELP: &str = "\
paceline: PostgreSQL transactions on a Leader/Followers pool.

usage: paceline [DEMO OPTIONS]        the demo (cargo run --release -- [DEMO OPTIONS])
       paceline COMMAND [OPTIONS]
       paceline [OPTIONS] FILE.ini    like PgBouncer

";

const OPTIONS: &str = "
Options of the third form:
  -d, --daemon         run in the background
  -q, --quiet          log to the file alone, not to standard error
  -v, --verbose        log more
  -u, --user=USERNAME  run as this user, if started as root
  -R, --reboot         refused: sockets are not handed over
  -V, --version        the version
  -h, --help           this text";

/// What PgBouncer's command line asks for.
#[derive(Debug, Default)]
struct Asked {
    file: Option<PathBuf>,
    is_quiet: bool,
    verbosity: u32,
    in_background: bool,
    user: Option<String>,
}

pub(crate) fn run(arguments: Vec<OsString>, commands: &[Command]) -> Result<ExitCode, Mistake> {
    let mut options = lexopt::Parser::from_args(arguments.iter().cloned());
    let mut asked = Asked::default();
    while let Some(argument) = options.next()? {
        match argument {
            Short('h') | Long("help") => {
                print_help(commands);
                return Ok(ExitCode::SUCCESS);
            }
            Short('V') | Long("version") => {
                println!("Paceline {}", env!("CARGO_PKG_VERSION"));
                return Ok(ExitCode::SUCCESS);
            }
            Short('q') | Long("quiet") => asked.is_quiet = true,
            Short('v') | Long("verbose") => asked.verbosity += 1,
            Short('d') | Long("daemon") => asked.in_background = true,
            Short('R') | Long("reboot") => return Err(refused("-R", "stop the old process first")),
            Short('u') | Long("user") => asked.user = Some(options.value()?.string()?),
            Value(word) if asked.file.is_none() => {
                let file = PathBuf::from(word);
                if !is_meant_as_file(&file) {
                    return Err(unknown_command(&file, commands));
                }
                asked.file = Some(file);
            }
            Value(word) => {
                let word = word.to_string_lossy();
                return Err(Mistake(format!("more than one configuration file: {word}")));
            }
            other => return Err(other.unexpected().into()),
        }
    }
    start(asked, arguments)
}

/// Whether a word names a configuration file: one that exists, or that looks like a path.
fn is_meant_as_file(path: &Path) -> bool {
    let is_ini = path.extension().is_some_and(|extension| extension == "ini");
    is_ini || path.to_string_lossy().contains('/') || path.is_file()
}

fn unknown_command(word: &Path, commands: &[Command]) -> Mistake {
    let names: Vec<_> = commands.iter().map(|command| command.name).collect();
    let (word, names) = (word.display(), names.join(", "));
    Mistake(format!(
        "unknown command `{word}`: the commands are {names} and help. (A configuration file that \
         does not exist is recognised by its slash or by its end in .ini.)"
    ))
}

fn start(asked: Asked, arguments: Vec<OsString>) -> Result<ExitCode, Mistake> {
    let no_file = || Mistake("name a configuration file, or a command".to_owned());
    let file = asked.file.ok_or_else(no_file)?;
    if asked.in_background {
        // The output of the other process is not read.
        if let Err(error) = paceline_pg::front::check(&file) {
            return Ok(front::failed(&error));
        }
        return Ok(start_in_background(arguments));
    }
    Ok(front::serve(Start {
        file,
        is_quiet: asked.is_quiet,
        verbosity: asked.verbosity,
        user: asked.user,
    }))
}

/// Starts this program once more, without `-d`, in a session of its own, and leaves it running.
fn start_in_background(arguments: Vec<OsString>) -> ExitCode {
    let rest = arguments.into_iter().filter_map(|argument| {
        let text = argument.to_string_lossy().into_owned();
        match text.as_str() {
            "--daemon" => None,
            _ if is_cluster_with_d(&text) => without_d(&text),
            _ => Some(argument),
        }
    });
    let started = std::env::current_exe().and_then(|program| {
        Process::new("setsid")
            .arg(program)
            .args(rest)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    });
    match started {
        Ok(_) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("paceline: start in the background by setsid: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Letters of options without values behind one dash, with `d` among them.
fn is_cluster_with_d(text: &str) -> bool {
    let letters = text.strip_prefix('-').unwrap_or_default();
    letters.contains('d') && letters.chars().all(|letter| "dqv".contains(letter))
}

fn without_d(text: &str) -> Option<OsString> {
    let rest = text.replace('d', "");
    (rest.len() > 1).then(|| rest.into())
}

fn refused(option: &str, instead: &str) -> Mistake {
    Mistake(format!("{option} is not supported: {instead}"))
}

pub(crate) fn print_help(commands: &[Command]) {
    println!("{HELP}Commands (paceline COMMAND --help says more):");
    for command in commands {
        println!("  {:12} {}", command.name, command.summary);
    }
    println!("\nOptions of the demo (paceline demo --help says more):");
    println!("{}", system::demo_options());
    println!("{OPTIONS}");
}
