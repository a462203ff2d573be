//! `pooler`: what a PostgreSQL pooler costs per transaction, ours beside others.
//!
//! ```text
//!   pgbench --> pooler --> back-end: PostgreSQL in a scratch folder, or one that answers at once
//! ```
//!
//! All poolers of a work run at the same time, each with a port of its own, and take turns: in each round, each is
//! loaded for some seconds, in random order. So a ratio is of two neighbouring stretches on the same machine. CPU is
//! that of the pooler's process alone.

mod answer;
mod cluster;
mod idle;
mod pgbench;
mod program;
mod table;
mod works;

use std::{io, path::PathBuf};

use crate::{progress, random::Random, usage::Sample};

use self::{
    answer::Answering,
    cluster::Cluster,
    pgbench::Bench,
    program::{Pooler, Program},
    table::{Measured, Results},
    works::{BackEnd, Work, WORKS},
};

pub(crate) use self::answer::{serve, AnswerArgs};

/// What is to be measured.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PoolerArgs {
    /// Our program; by default the one that was built beside this one
    #[arg(long, value_name = "PROGRAM")]
    paceline: Option<PathBuf>,
    /// A peer that reads a pgbouncer.ini, as NAME=PROGRAM; may be given several times
    #[arg(
        long = "peer",
        value_name = "NAME=PROGRAM",
        default_value = "pgbouncer=pgbouncer"
    )]
    peers: Vec<String>,
    /// A work by name; may be given several times (default: all of them)
    #[arg(long = "work", value_name = "NAME")]
    works: Vec<String>,
    /// Rounds; in each, every pooler is loaded once
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Seconds for which a pooler is loaded in a round
    #[arg(long, default_value_t = 4, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Idle clients whose memory is measured; 0 leaves that out
    #[arg(long, default_value_t = 4000, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=20_000))]
    idle: u32,
    /// Shows the works, and ends
    #[arg(long)]
    list: bool,
}

/// Measures, and prints a table for each work.
///
/// # Errors
/// A program can't be started, or a load failed.
pub(crate) fn run(args: &PoolerArgs) -> io::Result<()> {
    if args.list {
        for work in &WORKS {
            println!("{:<22} {}", work.name, work.about());
        }
        return Ok(());
    }
    let chosen = works::chosen(&args.works)?;
    let programs = program::all(args.paceline.as_deref(), &args.peers)?;
    for program in &programs {
        println!("{}: {}", program.name, program.version()?);
    }
    let needs_postgres = chosen.iter().any(|work| work.back_end == BackEnd::Postgres);
    let cluster = if needs_postgres {
        Some(Cluster::start()?)
    } else {
        None
    };
    if let Some(cluster) = &cluster {
        println!("back-end: {}", cluster.version()?);
    }
    for work in chosen {
        measure(work, &programs, cluster.as_ref(), args)?.print();
    }
    if args.idle > 0 {
        idle::run(&programs, args.idle, args.runs)?;
    }
    Ok(())
}

/// One work, in rounds.
fn measure(
    work: &'static Work,
    programs: &[Program],
    cluster: Option<&Cluster>,
    args: &PoolerArgs,
) -> io::Result<Results> {
    let answering = match work.back_end {
        BackEnd::Answering => Some(Answering::start()?),
        BackEnd::Postgres => None,
    };
    let port = answering
        .as_ref()
        .map_or_else(|| cluster.map_or(0, Cluster::port), Answering::port);
    let mut poolers = Vec::new();
    for program in programs {
        poolers.push(Pooler::start(program, port, work.servers)?);
    }
    let bar = progress::plain_bar(u64::from(args.runs) * poolers.len() as u64);
    let mut results = Results::new(work, &poolers);
    let mut random = Random::seeded();
    for pooler in &poolers {
        // Servers are connected and statements known before anything is counted.
        Bench::of(work, pooler.port(), 1).run()?;
    }
    for _ in 0..args.runs {
        let mut order: Vec<usize> = (0..poolers.len()).collect();
        random.shuffle(&mut order);
        let mut round = vec![None; poolers.len()];
        for at in order {
            bar.set_message(format!("{}: {}", work.name, poolers[at].name()));
            round[at] = Some(load(work, &poolers[at], args.seconds)?);
            bar.inc(1);
        }
        results.add(round);
    }
    bar.finish_and_clear();
    for (at, pooler) in poolers.iter().enumerate() {
        results.count_calls(at, pooler.system_calls(work)?);
    }
    Ok(results)
}

/// Loads one pooler once.
fn load(work: &Work, pooler: &Pooler, seconds: u32) -> io::Result<Measured> {
    let before = Sample::begin(Some(pooler.id()))?;
    let loaded = Bench::of(work, pooler.port(), seconds).run()?;
    let used = Sample::end(Some(pooler.id()))?.since(&before);
    Ok(Measured {
        per_second: loaded.per_second,
        latency: loaded.latency,
        cpu: used.server_cpu / loaded.transactions as f64,
        switches: (used.voluntary + used.involuntary) as f64 / loaded.transactions as f64,
    })
}
