//! The command line.

use std::{
    env, fs,
    io::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::{Parser, Subcommand};

use crate::{
    bound, http, idle, load, peers, pooler,
    record::Run,
    report,
    run::{self, Choice},
    serve,
    servers::{self, Setting},
    turns, urgent, works,
};

/// Paceline measured side by side with what people would pick instead.
///
/// Begin with `list`, then `run --work short-requests`. A run starts a server and a client for each measurement, in
/// random order and in several rounds; what it prints compares servers within a round only. Nothing leaves
/// the loopback interface.
#[derive(Debug, Parser)]
#[command(name = "paceline-bench", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measures, and prints tables of what was found
    Run(RunArgs),
    /// Shows the works and the servers
    List,
    /// Makes tables and plots of a run that was kept by `run --json`
    Report(ReportArgs),
    /// Runs one server until its standard input ends
    Serve(ServeArgs),
    /// Loads a server that is running, and prints what it saw as JSON
    Load(load::Plan),
    /// Measures clients that share one connection, and prints a table
    Bound(bound::BoundArgs),
    /// Calls over one connection for a while, and prints what it saw as JSON
    #[command(hide = true)]
    BoundCall(bound::CallArgs),
    /// Answers what `bound-call` asks, until its standard input ends
    #[command(hide = true)]
    BoundServe(bound::AnswerArgs),
    /// Measures how long an urgent request takes under full load, with service levels and without
    Urgent(urgent::UrgentArgs),
    /// Answers urgent and bulk requests, until its standard input ends
    #[command(hide = true)]
    UrgentServe(urgent::ServeArgs),
    /// Measures how much memory a server keeps for each idle connection, plain and with TLS, and prints a table
    Idle(idle::IdleArgs),
    /// Measures what a PostgreSQL pooler costs per transaction, ours beside others, and prints tables
    Pooler(pooler::PoolerArgs),
    /// Answers every query in PostgreSQL's protocol at once, until its standard input ends
    #[command(hide = true)]
    PoolerAnswer(pooler::AnswerArgs),
    /// Measures web servers side by side, and prints a table for each work
    Http(http::HttpArgs),
    /// Runs one web server until its standard input ends
    #[command(hide = true)]
    HttpServe(http::ServeArgs),
    /// Asks a web server for a while, and prints what it saw as JSON
    #[command(hide = true)]
    HttpLoad(http::LoadArgs),
    /// Runs turns of the pool on one thread, for counting instructions (see `cargo xtask instructions`)
    Turns {
        /// How many
        #[arg(default_value_t = 10_000)]
        count: u64,
        /// The handler of the events; observers are chosen for frames only
        #[arg(long, value_enum, default_value = "frames")]
        handler: turns::Handler,
        #[command(flatten)]
        observed: turns::Observed,
    },
    /// Installs what the C++ peers are built with (Debian's packages; needs to be root)
    InstallPeers,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    choice: Choice,
    /// Keeps every single measurement in a file, for `report`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct ReportArgs {
    /// What `run --json` wrote
    file: PathBuf,
    /// The folder for the plots; without it there are only tables
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct ServeArgs {
    /// The server's name (`list` shows them)
    name: String,
    /// Where to listen; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDR")]
    listen: SocketAddr,
    /// How many threads serve, where that can be chosen
    #[arg(long, default_value_t = 8, value_name = "N")]
    threads: usize,
    /// Handlers announce that they will block
    #[arg(long)]
    announced: bool,
    /// Steps of the computation that take 20 us here; measured at the start if it is not given
    #[arg(long, value_name = "STEPS")]
    steps: Option<u32>,
    /// Counts allocations, and events that stay on their thread; costs time
    #[arg(long)]
    count: bool,
}

/// Does what the command line asks for.
pub(crate) fn main() -> io::Result<()> {
    match Cli::parse().verb {
        Verb::Run(args) => measure(&args),
        Verb::List => {
            list();
            Ok(())
        }
        Verb::Report(args) => tell(&args.file, args.plots.as_deref()),
        Verb::Serve(args) => offer(&args),
        Verb::Load(plan) => {
            let load = load::run(&plan)?;
            println!("{}", serde_json::to_string(&load)?);
            Ok(())
        }
        Verb::Bound(args) => bound::run(&args),
        Verb::Urgent(args) => urgent::run(&args),
        Verb::UrgentServe(args) => urgent::serve(&args),
        Verb::Idle(args) => idle::run(&args),
        Verb::Pooler(args) => pooler::run(&args),
        Verb::PoolerAnswer(args) => pooler::serve(&args),
        Verb::Http(args) => http::run(&args),
        Verb::HttpServe(args) => http::serve(&args),
        Verb::HttpLoad(args) => http::ask(&args),
        Verb::BoundCall(args) => bound::call(&args),
        Verb::BoundServe(args) => bound::serve(&args),
        Verb::Turns {
            count,
            handler,
            observed,
        } => turns::run(count, handler, &observed),
        Verb::InstallPeers => peers::install(),
    }
}

fn measure(args: &RunArgs) -> io::Result<()> {
    let words = without_folders(env::args().skip(1));
    let keep = |run: &Run| match &args.json {
        Some(file) => named(file, fs::write(file, serde_json::to_string(run)?)),
        None => Ok(()),
    };
    let run = run::run(&args.choice, words, keep)?;
    say(&report::markdown(&run, None))?;
    if run.records.iter().any(|record| record.clean) {
        Ok(())
    } else {
        Err(io::Error::other(
            "nothing could be counted: the machine was never quiet (see the head of the report); with --noisy everything counts",
        ))
    }
}

/// A command as the report shows it: files without their folders, because folders belong to one machine.
fn without_folders(words: impl Iterator<Item = String>) -> String {
    let bare = |word: String| match word.rfind('/') {
        Some(slash) => {
            let folder = word.find('=').map_or(0, |equals| equals + 1);
            format!("{}{}", &word[..folder.min(slash)], &word[slash + 1..])
        }
        None => word,
    };
    words.map(bare).collect::<Vec<_>>().join(" ")
}

/// Prints a text. A closed pipe is no error: the reader has what it wants.
fn say(text: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// A result, whose error names the file.
fn named<T>(file: &Path, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
}

fn tell(file: &Path, plots: Option<&Path>) -> io::Result<()> {
    let text = named(file, fs::read_to_string(file))?;
    let read = serde_json::from_str(&text).map_err(io::Error::from);
    let run: Run = named(file, read)?;
    if let Some(folder) = plots {
        named(folder, fs::create_dir_all(folder))?;
        let pictures = report::plots(&run);
        if pictures.is_empty() {
            eprintln!("no plot is made: no two servers have a measurement that counts");
        }
        for (name, picture) in pictures {
            fs::write(folder.join(name), picture)?;
        }
    }
    let folder = plots.map(|folder| folder.display().to_string());
    say(&report::markdown(&run, folder.as_deref()))
}

fn offer(args: &ServeArgs) -> io::Result<()> {
    let server = servers::find(&args.name).ok_or_else(|| {
        let text = format!("no server is called {:?}; `list` shows them all", args.name);
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    let setting = Setting {
        threads: args.threads,
        announced: args.announced,
        steps: args.steps.unwrap_or_else(servers::steps_of_20us),
    };
    serve::serve(server, args.listen, &setting, args.count)
}

fn list() {
    println!("works:");
    for work in works::ALL {
        let subset = if work.default.is_empty() { " " } else { "*" };
        println!("  {subset} {:<21} {}", work.name, work.about);
    }
    println!("\nservers:");
    for server in servers::all() {
        println!("    {:<22} {}", server.name, server.about);
    }
    println!("\nclients of `bound`:");
    bound::list();
    println!(
        "\n* runs by default, with the servers that matter most there; --goals runs what the goals need, --full all"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document once showed a run with a folder of the machine that it was made on.
    #[test]
    fn a_run_does_not_name_the_folder_of_its_file() {
        let words = [
            "run",
            "--work",
            "short-requests",
            "--json",
            "/some/folder/goals.json",
        ];
        let kept = without_folders(words.into_iter().map(String::from));
        assert_eq!(kept, "run --work short-requests --json goals.json");
        let kept = without_folders([String::from("--json=../runs/goals.json")].into_iter());
        assert_eq!(kept, "--json=goals.json");
    }

    /// A work whose words `load` does not take would fail after an hour of measuring.
    #[test]
    fn the_words_of_every_work_are_understood() {
        for work in works::ALL {
            let rate = work.rate.map(|_| ["--rate", "1000"]);
            let words = ["paceline-bench", "load", "127.0.0.1:1"];
            let words = words
                .into_iter()
                .chain(work.load.iter().copied())
                .chain(rate.into_iter().flatten());
            let parsed = Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{}: {:?}", work.name, parsed.err());
        }
    }
}
