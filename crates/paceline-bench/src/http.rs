//! `http`: web servers side by side, under the works that web servers have.
//!
//! ```text
//!  http --- rounds: each server under each work, in turns            [http]
//!   |
//!   +-- http-serve NAME   one web server, until its input ends       [servers, programs]
//!   +-- http-load ADDR    one thread that asks and takes the time    [load, wire]
//!   |
//!   v
//!  a table for each work: ratios of paired rounds, and the goals     [report]
//! ```
//!
//! The servers of others are built with the feature `http-peers`; Go and nginx are programs of their
//! own, measured where they are installed. All give the same service: see [`works`].

mod load;
mod programs;
mod report;
mod servers;
mod wire;
mod works;

use std::{collections::BTreeMap, io, net::SocketAddr, time::Duration};

use self::works::Work;
pub(crate) use self::{load::LoadArgs, servers::ServeArgs};
use crate::{
    progress,
    record::Place,
    session::{confined, Process, CLIENTS_CORE, GRACE, SERVERS_CORE, START},
};

/// What is to be measured.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HttpArgs {
    /// A work by name; may be given several times (default: all of them)
    #[arg(long = "work", value_name = "NAME")]
    works: Vec<String>,
    /// A server by name; may be given several times (default: all that are there)
    #[arg(long = "server", value_name = "NAME")]
    servers: Vec<String>,
    /// Rounds; each runs every server under every work
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// How long a measurement lasts
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    seconds: f64,
    /// Server and client share all cores, instead of having one core each
    #[arg(long)]
    together: bool,
    /// Threads of the servers, where that can be chosen
    #[arg(long, default_value_t = 8, value_name = "N")]
    threads: usize,
    /// Prints each measurement as a line of JSON, too
    #[arg(long)]
    json: bool,
    /// Shows works and servers, and measures nothing
    #[arg(long)]
    list: bool,
}

/// What one measurement has found.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Found {
    /// Answers that came whole, with the expected status.
    pub(crate) answers: u64,
    /// Answers that did not, and lost connections.
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
    /// Seconds of processor time of the server.
    pub(crate) server_cpu: f64,
    /// Seconds of processor time of the client.
    pub(crate) client_cpu: f64,
    /// Latencies, in microseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// What the server's memory has grown by for each connection, in bytes.
    pub(crate) memory: f64,
}

/// The measurements of one work: by server, then by round.
pub(super) type Rounds = BTreeMap<&'static str, Vec<Option<Found>>>;

/// Measures, and prints a table for each work.
///
/// # Errors
/// A name is unknown, or nothing could be measured.
pub(crate) fn run(args: &HttpArgs) -> io::Result<()> {
    if args.list {
        list();
        return Ok(());
    }
    let works = chosen(&args.works, works::ALL, |work| work.name)?;
    let servers = servers::chosen(&args.servers)?;
    for name in &servers {
        programs::prepare(name)?;
    }
    let steps = works.len() * servers.len() * args.runs as usize;
    let bar = progress::plain_bar(steps as u64);
    let mut all: BTreeMap<&str, Rounds> = BTreeMap::new();
    for round in 0..args.runs as usize {
        for work in &works {
            // Each round begins with another server, so that none has the quiet moments.
            for turn in 0..servers.len() {
                let server = servers[(turn + round) % servers.len()];
                bar.set_message(format!("{} {server}", work.name));
                let found = work.suits(server).then(|| measure(args, work, server));
                let found = found.transpose().unwrap_or_else(|error| {
                    progress::say(&bar, &format!("{} {server}: {error}", work.name));
                    None
                });
                print_json(args, work, server, found.as_ref())?;
                let rounds = all.entry(work.name).or_default();
                rounds.entry(server).or_default().push(found);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    report::print(&works, &all)
}

fn list() {
    println!("works:");
    for work in works::ALL {
        println!("  {:<14} {}", work.name, work.about);
    }
    println!("\nservers:");
    for (name, about, is_there) in servers::all() {
        let note = if is_there { "" } else { " (not here)" };
        println!("  {name:<18} {about}{note}");
    }
}

fn print_json(args: &HttpArgs, work: &Work, server: &str, found: Option<&Found>) -> io::Result<()> {
    if let Some(found) = found.filter(|_| args.json) {
        let found = serde_json::to_string(found)?;
        println!(
            "{{\"work\":\"{}\",\"server\":\"{server}\",\"found\":{found}}}",
            work.name
        );
    }
    Ok(())
}

/// Those that are named, or all.
fn chosen<T>(
    names: &[String],
    all: &'static [T],
    name_of: impl Fn(&T) -> &'static str,
) -> io::Result<Vec<&'static T>> {
    let known = |name: &&String| all.iter().any(|it| name_of(it) == **name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        let all: Vec<_> = all.iter().map(&name_of).collect();
        let text = format!("there is no {name:?}, but {}", all.join(", "));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let is_chosen = |it: &&T| names.is_empty() || names.iter().any(|name| name_of(it) == *name);
    Ok(all.iter().filter(is_chosen).collect())
}

/// One server under one work.
fn measure(args: &HttpArgs, work: &Work, server: &'static str) -> io::Result<Found> {
    let place = if args.together {
        Place::Together
    } else {
        Place::Apart
    };
    let mut command = confined(place, SERVERS_CORE)?;
    let threads = args.threads.to_string();
    command.args(["http-serve", server, "--threads", &threads]);
    command.args(work.tls.then_some("--tls"));
    let process = Process::start(server, command)?;
    let mut line = process.line(START)?;
    let mut pid = process.id();
    if let Some(other) = line.strip_prefix("pid ").and_then(|pid| pid.parse().ok()) {
        // The server is a program of its own below that process.
        pid = other;
        line = process.line(START)?;
    }
    let address: Option<SocketAddr> = line
        .strip_prefix("listening on ")
        .and_then(|address| address.parse().ok());
    let address = address.ok_or_else(|| process.said(&line, "where it listens"))?;
    let mut command = confined(place, CLIENTS_CORE)?;
    command.args(["http-load", &address.to_string(), "--work", work.name]);
    command.args(["--pid", &pid.to_string()]);
    command.args(["--seconds", &args.seconds.to_string()]);
    let client = Process::start("the client", command)?;
    let limit = GRACE + Duration::from_secs_f64(args.seconds * 2.0);
    let line = client.line(limit)?;
    serde_json::from_str(&line).map_err(|_| client.said(&line, "what it saw"))
}

/// Runs a web server until its standard input ends.
pub(crate) fn serve(args: &ServeArgs) -> io::Result<()> {
    servers::serve(args)
}

/// Asks a web server for a while, and prints what it saw as JSON.
pub(crate) fn ask(args: &LoadArgs) -> io::Result<()> {
    let found = load::run(args)?;
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

#[cfg(test)]
mod tests;
