//! A whole run: every work in rounds, in which all servers are measured in random order.
//!
//! Machines are noisy, and their noise comes and goes. So what is compared stands close together in time:
//! all servers of a round, one after the other. A measurement during which others used the machine is
//! made again, at most [`ATTEMPTS`] times, and the disturbed ones are kept as discarded.

use std::{io, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    count,
    machine::this_machine,
    random::Random,
    record::{Load, Place, Record, Run},
    serve,
    servers::{self, Means, Server},
    session::{Running, Terms},
    works::{self, Entrants, Work},
};

/// Cores that others may use in the mean before a measurement is discarded.
const FOREIGN: f64 = 0.12;
/// How often a disturbed measurement is made in all.
const ATTEMPTS: usize = 3;
/// The rate that open loops begin from if work a was not run before them.
const UNKNOWN_PEAK: f64 = 50_000.0;
/// Seconds of load before anything is measured.
const WARM_UP: f64 = 0.5;
/// What a measurement takes beside the measured time: start, connecting, warming up.
const OVERHEAD: Duration = Duration::from_millis(900);

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// Works by name; none: those of the subset or, in full, all.
    pub(crate) works: Vec<String>,
    /// Servers by name; none: those that the works name.
    pub(crate) servers: Vec<String>,
    /// Only this set-up.
    pub(crate) place: Option<Place>,
    /// How many rounds.
    pub(crate) runs: usize,
    /// How long each measurement lasts.
    pub(crate) seconds: f64,
    /// The whole matrix.
    pub(crate) full: bool,
    /// Counts too, in passes of their own.
    pub(crate) count: bool,
}

/// One work for one server at one place, measured once in each round.
#[derive(Clone, Copy)]
struct Entry {
    work: &'static Work,
    server: &'static Server,
    place: Place,
}

/// Measures everything that was chosen. What is there so far is given to `keep` after each work.
///
/// # Errors
/// If a name stands for nothing. A server that can't be started is noted as absent.
pub(crate) fn run(
    choice: &Choice,
    command: String,
    keep: impl Fn(&Run) -> io::Result<()>,
) -> io::Result<Run> {
    let mut batches = batches(choice)?;
    let mut run = Run {
        machine: this_machine(),
        command,
        records: Vec::new(),
        counted: Vec::new(),
        absent: Vec::new(),
    };
    leave_out_absent(&mut batches, &mut run.absent);
    let steps = servers::steps_of_20us();
    let bar = progress(&batches, choice);
    let mut random = Random::seeded();
    for batch in &mut batches {
        for round in 0..choice.runs {
            random.shuffle(batch);
            batch.retain(|entry| measure(*entry, round, choice.seconds, steps, &mut run, &bar));
        }
        keep(&run)?;
    }
    if choice.count {
        count_all(&batches, steps, &mut run, &bar);
    }
    bar.finish_and_clear();
    keep(&run)?;
    Ok(run)
}

/// Counts every server under every work once.
fn count_all(batches: &[Vec<Entry>], steps: u32, run: &mut Run, bar: &ProgressBar) {
    let mut done: Vec<(&str, &str)> = Vec::new();
    for entry in batches.iter().flatten() {
        let names = (entry.work.name, entry.server.name);
        if done.contains(&names) || entry.work.rate.is_some() {
            continue;
        }
        done.push(names);
        bar.set_message(format!("counting {} {}", names.0, names.1));
        match count::count(entry.server, entry.work, steps) {
            Ok(counted) => run.counted.push(counted),
            Err(error) => bar.println(format!(
                "{} under {} was not counted: {error}",
                names.1, names.0
            )),
        }
    }
}

/// Builds what must be built, and leaves out the servers for which that fails, each with its reason.
fn leave_out_absent(batches: &mut [Vec<Entry>], absent: &mut Vec<String>) {
    for server in servers::ALL {
        let is_of = |entry: &Entry| entry.server.name == server.name;
        if !batches.iter().flatten().any(is_of) {
            continue;
        }
        if let Means::Program(_) = server.means {
            eprintln!("building {}, if it is not built yet", server.name);
        }
        if let Err(error) = serve::prepare(server) {
            eprintln!("{} is left out: {error}", server.name);
            absent.push(format!("{}: {error}", server.name));
            batches
                .iter_mut()
                .for_each(|batch| batch.retain(|entry| !is_of(entry)));
        }
    }
}

/// What is chosen, as lists of entries that are measured in the same rounds.
fn batches(choice: &Choice) -> io::Result<Vec<Vec<Entry>>> {
    let mut batches: Vec<(&str, Place, Vec<Entry>)> = Vec::new();
    for work in chosen_works(choice)? {
        let servers = chosen_servers(choice, work)?;
        let wanted = |place: &&Place| is_wanted(choice, work, **place);
        for &place in work.places.iter().filter(wanted) {
            let entries = servers.iter().map(|&server| Entry {
                work,
                server,
                place,
            });
            let same = |batch: &&mut (&str, Place, Vec<Entry>)| {
                batch.0 == work.family() && batch.1 == place
            };
            match batches.iter_mut().find(same) {
                Some(batch) => batch.2.extend(entries),
                None => batches.push((work.family(), place, entries.collect())),
            }
        }
    }
    Ok(batches.into_iter().map(|(_, _, entries)| entries).collect())
}

/// Whether a work is to be measured at this place. The subset has only work a also together.
fn is_wanted(choice: &Choice, work: &Work, place: Place) -> bool {
    let subset = choice.works.is_empty() && !choice.full;
    match choice.place {
        Some(only) => only == place,
        None => !subset || work.name == "a" || place == Place::Apart,
    }
}

fn chosen_works(choice: &Choice) -> io::Result<Vec<&'static Work>> {
    if choice.works.is_empty() {
        let chosen = |work: &&Work| choice.full || !work.default.is_empty();
        return Ok(works::ALL.iter().filter(chosen).collect());
    }
    let named = choice
        .works
        .iter()
        .map(|name| works::find(name).ok_or_else(|| unknown("work", name)));
    named.collect()
}

fn chosen_servers(choice: &Choice, work: &'static Work) -> io::Result<Vec<&'static Server>> {
    let names = match choice.servers.as_slice() {
        [] => entrants(choice, work),
        named => named.iter().map(String::as_str).collect(),
    };
    let found = names
        .into_iter()
        .map(|name| servers::find(name).ok_or_else(|| unknown("server", name)));
    found.collect()
}

/// Who takes part in a work if nobody is named.
fn entrants(choice: &Choice, work: &'static Work) -> Vec<&'static str> {
    if !choice.full && !work.default.is_empty() {
        return work.default.to_vec();
    }
    let is_variant = |name: &str| name.starts_with("paceline-");
    let names = servers::ALL.iter().map(|server| server.name);
    match work.servers {
        Entrants::Only(names) => names.to_vec(),
        Entrants::Peers => names.filter(|name| !is_variant(name)).collect(),
        Entrants::All => names.collect(),
    }
}

fn unknown(what: &str, name: &str) -> io::Error {
    let text = format!("no {what} is called {name:?}; `list` shows them all");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Measures an entry once, and again if it was disturbed. Tells whether the server is to be tried again in
/// later rounds.
fn measure(
    entry: Entry,
    round: usize,
    seconds: f64,
    steps: u32,
    run: &mut Run,
    bar: &ProgressBar,
) -> bool {
    let Entry {
        work,
        server,
        place,
    } = entry;
    bar.set_message(format!("{} {} {}", work.name, place.name(), server.name));
    let rate = work.rate.map(|share| share * slowest_peak(run, place));
    let terms = Terms {
        place,
        seconds,
        steps,
        warm_up: WARM_UP,
        rate,
    };
    for _ in 0..ATTEMPTS {
        let load = Running::start(server, work, terms, false).and_then(|it| it.load(work, terms));
        match load {
            Ok(load) => {
                let record = record(entry, round, load);
                let clean = record.clean;
                if !clean {
                    let foreign = record.load.foreign;
                    bar.println(format!(
                        "disturbed: others used {foreign:.2} cores, {FOREIGN} are allowed"
                    ));
                }
                run.records.push(record);
                if clean {
                    break;
                }
            }
            Err(error) => {
                let line = format!(
                    "{} under {} ({}): {error}",
                    server.name,
                    work.name,
                    place.name()
                );
                bar.println(&line);
                run.absent.push(line);
                return false;
            }
        }
    }
    bar.inc(1);
    true
}

/// The peak of the slowest server under work a at this place, as far as it was measured in this run.
fn slowest_peak(run: &Run, place: Place) -> f64 {
    let of_a = run
        .records
        .iter()
        .filter(|record| record.work == "a" && record.place == place);
    let peaks = of_a.map(|record| record.load.throughput());
    peaks.reduce(f64::min).unwrap_or(UNKNOWN_PEAK)
}

fn record(entry: Entry, round: usize, load: Load) -> Record {
    Record {
        work: entry.work.name.to_owned(),
        server: entry.server.name.to_owned(),
        threads: entry.work.threads_of(entry.server),
        place: entry.place,
        round,
        clean: load.foreign <= FOREIGN,
        load,
    }
}

/// A bar with the time left, which is known well: every measurement takes the same time.
fn progress(batches: &[Vec<Entry>], choice: &Choice) -> ProgressBar {
    let entries: usize = batches.iter().map(Vec::len).sum();
    let count = (entries * choice.runs) as u64;
    let each = Duration::from_secs_f64(choice.seconds) + OVERHEAD;
    let bar = ProgressBar::new(count);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left: {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_secs(1));
    bar.println(format!(
        "{count} measurements of {} s: about {} minutes",
        choice.seconds,
        (each.as_secs_f64() * count as f64 / 60.0).ceil()
    ));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(works: &[&str], full: bool) -> Choice {
        Choice {
            works: works.iter().map(|&name| name.to_owned()).collect(),
            servers: Vec::new(),
            place: None,
            runs: 5,
            seconds: 3.0,
            full,
            count: false,
        }
    }

    /// What nobody waits for is not measured: the default ends in a quarter of an hour.
    #[test]
    fn the_default_takes_at_most_15_minutes() -> io::Result<()> {
        let entries: usize = batches(&choice(&[], false))?.iter().map(Vec::len).sum();
        let each = Duration::from_secs(3) + OVERHEAD;
        assert!(
            each * 5 * entries as u32 <= Duration::from_secs(15 * 60),
            "{entries}"
        );
        Ok(())
    }

    /// Works that are compared with each other share their rounds.
    #[test]
    fn a_family_is_one_batch() -> io::Result<()> {
        let batches = batches(&choice(&["j-4", "j-16", "j-64"], true))?;
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [3]);
        Ok(())
    }

    /// A misspelt name is an error that says where to look.
    #[test]
    fn an_unknown_name_is_refused() {
        let told = batches(&choice(&["z"], false))
            .map(|_| ())
            .map_err(|error| error.to_string());
        assert_eq!(
            told,
            Err("no work is called \"z\"; `list` shows them all".to_owned())
        );
    }
}
