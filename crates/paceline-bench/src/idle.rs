//! `idle`: how much memory a server keeps for connections that do nothing.
//!
//! ```text
//!  start the server --> a few connections come and go --> memory before
//!                   --> many connect, each asks once  --> memory after: the difference, for each of them
//! ```
//!
//! Each connection has asked once, so its session has begun, and its TLS handshake is done. Counted is what the kernel
//! lists as the process's own resident memory (`RssAnon`): what allocators keep in reserve counts too. The kernel's
//! own buffers do not.

use std::{collections::BTreeMap, fs, io};

use crate::{
    goals::IDLE,
    progress,
    record::Place,
    servers,
    session::{Client, Running, Terms},
    statistics::Spread,
    works::{Entrants, Work},
};

/// What is to be measured.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct IdleArgs {
    /// A server by name; may be given several times (default: all of them)
    #[arg(long = "server", value_name = "NAME")]
    servers: Vec<String>,
    /// Idle connections without TLS
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=15_000))]
    plain: u32,
    /// Idle connections with TLS
    #[arg(long, default_value_t = 2_000, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=15_000))]
    tls: u32,
    /// Rounds; each starts every server anew
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
}

/// A server whose connections are idle.
struct Subject {
    server: &'static str,
    /// The words for `load`.
    words: &'static [&'static str],
    /// The goal of ours, in bytes for each connection.
    goal: Option<f64>,
    /// Which of the two numbers of connections.
    count: fn(&IdleArgs) -> u32,
}

const SUBJECTS: [Subject; 5] = [
    plain("paceline-server", Some(IDLE[0])),
    plain("bare-lines", None),
    plain("tokio-lines", None),
    tls("paceline-server-tls", Some(IDLE[1])),
    tls("tokio-tls", None),
];

const fn plain(server: &'static str, goal: Option<f64>) -> Subject {
    Subject {
        server,
        words: &["--lines"],
        goal,
        count: |args| args.plain,
    }
}

const fn tls(server: &'static str, goal: Option<f64>) -> Subject {
    Subject {
        server,
        words: &["--tls"],
        goal,
        count: |args| args.tls,
    }
}

/// Connections that come and go before anything is counted.
const FIRST: u32 = 64;

const TERMS: Terms = Terms {
    place: Place::Together,
    steps: 1,
    rate: None,
};

/// Measures, and prints a table.
///
/// # Errors
/// A name is none of a server that is measured here, or a process failed.
pub(crate) fn run(args: &IdleArgs) -> io::Result<()> {
    let subjects = chosen(&args.servers)?;
    let bar = progress::plain_bar(u64::from(args.runs) * subjects.len() as u64);
    let mut found: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for _ in 0..args.runs {
        for subject in &subjects {
            bar.set_message(subject.server);
            let bytes = measure(subject, (subject.count)(args))?;
            found.entry(subject.server).or_default().push(bytes);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    print(&subjects, args, &found);
    Ok(())
}

fn chosen(names: &[String]) -> io::Result<Vec<&'static Subject>> {
    let known = |name: &&String| SUBJECTS.iter().all(|subject| subject.server != **name);
    if let Some(name) = names.iter().find(known) {
        let all: Vec<_> = SUBJECTS.iter().map(|subject| subject.server).collect();
        let text = format!(
            "no idle connections of {name:?} are measured; there are {}",
            all.join(", ")
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let is_chosen =
        |subject: &&Subject| names.is_empty() || names.iter().any(|name| name == subject.server);
    Ok(SUBJECTS.iter().filter(is_chosen).collect())
}

/// Bytes for each of `count` idle connections.
fn measure(subject: &Subject, count: u32) -> io::Result<f64> {
    let server = servers::find(subject.server).ok_or(io::ErrorKind::NotFound)?;
    let work = |load| Work {
        name: "idle",
        about: "connections that have asked once",
        threads: 4,
        announced: false,
        load,
        places: &[Place::Together],
        servers: Entrants::All,
        default: &[],
        rate: None,
    };
    let running = Running::start(server, &work(subject.words), TERMS, false)?;
    let connect = |count: u32| {
        let words = [
            "--connections".to_owned(),
            count.to_string(),
            "--active".into(),
            "1".into(),
        ];
        Client::with(&running, &work(subject.words), TERMS, &words)
    };
    connect(FIRST)?.sum()?;
    let before = resident(running.id())?;
    let mut client = connect(count)?;
    let after = resident(running.id())?;
    // Connections that were lost, or answered wrongly, since the client began.
    let errors = client.slice(0.0, 0.1)?.errors;
    if errors > 0 {
        let text = format!("{}: {errors} of {count} connections failed", subject.server);
        return Err(io::Error::other(text));
    }
    Ok(after.saturating_sub(before) as f64 / f64::from(count))
}

/// The resident memory of a process that is its own, in bytes.
pub(crate) fn resident(process: u32) -> io::Result<u64> {
    let file = format!("/proc/{process}/status");
    let status = fs::read_to_string(&file)?;
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = value.and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let missing = || io::Error::other(format!("{file} has no RssAnon in kB"));
    kib.map(|kib| kib * 1024).ok_or_else(missing)
}

fn print(subjects: &[&Subject], args: &IdleArgs, found: &BTreeMap<&str, Vec<f64>>) {
    println!("| server | idle connections | bytes each | goal | |");
    println!("| --- | ---: | ---: | ---: | --- |");
    for subject in subjects {
        let Some(spread) = found
            .get(subject.server)
            .and_then(|bytes| Spread::of(bytes.iter().copied()))
        else {
            continue;
        };
        let goal = subject
            .goal
            .map_or_else(String::new, |goal| format!("{goal:.0}"));
        let verdict = match subject.goal {
            None => "",
            // As with times, the worst round counts.
            Some(goal) if spread.max <= goal => "reached",
            Some(_) => "missed",
        };
        println!(
            "| {} | {} | {:.0} [{:.0}-{:.0}] | {goal} | {verdict} |",
            subject.server,
            (subject.count)(args),
            spread.median,
            spread.min,
            spread.max
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name without a server would fail in the middle of a run.
    #[test]
    fn every_server_that_is_named_exists() {
        for subject in &SUBJECTS {
            assert!(
                servers::find(subject.server).is_some(),
                "{}",
                subject.server
            );
        }
    }

    #[test]
    fn an_unknown_server_is_named() {
        let error = chosen(&["none".to_owned()]).err().unwrap().to_string();
        assert!(
            error.contains("none") && error.contains("bare-lines"),
            "{error}"
        );
        assert_eq!(chosen(&[]).unwrap().len(), SUBJECTS.len());
    }

    /// Memory that is used is seen.
    #[test]
    fn the_resident_memory_grows_with_what_is_written() {
        let before = resident(std::process::id()).unwrap();
        let used = vec![1_u8; 64 << 20];
        let after = resident(std::process::id()).unwrap();
        assert!(
            after > before + (48 << 20),
            "{before} {after} {}",
            used.len()
        );
    }
}
