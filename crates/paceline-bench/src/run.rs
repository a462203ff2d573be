//! A whole run: what is chosen, in batches that are measured in the same rounds. How a round is measured: `round.rs`.

use std::{io, time::Duration};

use indicatif::ProgressBar;

use crate::{
    count,
    goals::{goals, Against, OURS},
    heats::{self, Heat},
    machine::{this_machine, this_source},
    progress::{self, say},
    random::Random,
    record::{Place, Run},
    round::{self, Demand, Entry, Round, Wanted},
    serve,
    servers::{self, Means, Server},
    session::Terms,
    works::{self, Entrants, Work},
};

/// The rate that open loops begin from if `short-requests` was not run before them.
const UNKNOWN_PEAK: f64 = 50_000.0;
/// What a measurement takes beside the measured time.
const BETWEEN: Duration = Duration::from_millis(330);
/// What starting a server and its client takes, and warming it up.
const START: Duration = Duration::from_millis(700);

/// What is to be run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Choice {
    /// A work by name (`list` shows them); may be given several times
    #[arg(long = "work", value_name = "NAME")]
    pub(crate) works: Vec<String>,
    /// A server by name; may be given several times
    #[arg(long = "server", value_name = "NAME")]
    pub(crate) servers: Vec<String>,
    /// Only this set-up: server and client on a core each, or sharing all
    #[arg(long)]
    pub(crate) place: Option<Place>,
    /// Rounds; a ratio needs at least five to be believed
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = at_least_one)]
    pub(crate) runs: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3.0, value_name = "S", value_parser = measurable)]
    pub(crate) seconds: f64,
    /// What is needed to judge every goal: takes most of an hour
    #[arg(long, conflicts_with_all = ["works", "servers", "place", "full"])]
    pub(crate) goals: bool,
    /// Every work with every server, and counts: takes hours
    #[arg(long)]
    pub(crate) full: bool,
    /// Accepts every measurement, also while others use the machine: for a first look, not for a comparison
    #[arg(long)]
    pub(crate) noisy: bool,
    /// Counts system calls, allocations and changes of thread too, with perf, in passes of their own
    #[arg(long)]
    pub(crate) count: bool,
}

/// A number of rounds.
fn at_least_one(word: &str) -> Result<usize, String> {
    match word.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("at least one".to_owned()),
    }
}

/// A time that is long enough.
fn measurable(word: &str) -> Result<f64, String> {
    match word.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("from 0.1 to 3600".to_owned()),
    }
}

/// Measures everything that was chosen. What is there so far is given to `keep` after each work.
///
/// # Errors
/// If a name is unknown. A server that can't be started is noted as absent.
pub(crate) fn run(
    choice: &Choice,
    command: String,
    keep: impl Fn(&Run) -> io::Result<()>,
) -> io::Result<Run> {
    let mut batches = batches(choice)?;
    let mut run = Run {
        machine: this_machine(),
        source: this_source(),
        command,
        records: Vec::new(),
        counted: Vec::new(),
        absent: Vec::new(),
    };
    leave_out_absent(&mut batches, &mut run.absent);
    let steps = servers::steps_of_20us();
    let demand = if choice.noisy {
        Demand::Nothing
    } else {
        Demand::Quiet
    };
    let wanted = Wanted::of(choice.seconds, demand);
    let bar = progress(&batches, choice, wanted.slices);
    let mut random = Random::seeded();
    for batch in &mut batches {
        for round in 0..choice.runs {
            if let (true, Some(entry)) = (bar.is_hidden(), batch.first()) {
                let (at, of) = (bar.position(), bar.length().unwrap_or(0));
                eprintln!(
                    "{at} of {of} slices done: {}, round {}",
                    entry.work.name,
                    round + 1
                );
            }
            let terms = |entry| terms_of(entry, steps, &run);
            let measured = round::measure(batch, round, wanted, terms, &mut random, &bar);
            batch.retain(|entry| measured.keeps(*entry));
            note(measured, &mut run, &bar);
        }
        keep(&run)?;
    }
    if choice.count || choice.full {
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
            Err(error) => {
                let line = format!("{} under {} was not counted: {error}", names.1, names.0);
                say(bar, &line);
            }
        }
    }
}

/// Builds what must be built, and leaves out the servers for which that fails, each with its reason.
fn leave_out_absent(batches: &mut [Vec<Entry>], absent: &mut Vec<String>) {
    for server in servers::all() {
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
    let entries = if choice.goals {
        needed_for_goals()
    } else {
        chosen(choice)?
    };
    let mut batches: Vec<(Batch, Vec<Entry>)> = Vec::new();
    for entry in entries {
        let batch = Batch::of(entry);
        match batches.iter_mut().find(|(other, _)| *other == batch) {
            Some((_, entries)) => entries.push(entry),
            None => batches.push((batch, vec![entry])),
        }
    }
    Ok(batches.into_iter().map(|(_, entries)| entries).collect())
}

/// What is measured in the same rounds: works of one family at one place, or at both if a goal compares them.
#[derive(PartialEq)]
struct Batch(&'static str, Option<Place>);

impl Batch {
    fn of(entry: Entry) -> Self {
        let across = goals().any(|goal| match goal.against {
            Against::Itself(work, place) => work == entry.work.name && place != goal.place,
            _ => false,
        });
        Self(entry.work.family(), (!across).then_some(entry.place))
    }
}

/// Works, servers and places as they were named, or the usual ones.
fn chosen(choice: &Choice) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for work in chosen_works(choice)? {
        let servers = chosen_servers(choice, work)?;
        let wanted = |place: &&Place| is_wanted(choice, work, **place);
        for &place in work.places.iter().filter(wanted) {
            entries.extend(servers.iter().map(|&server| Entry {
                work,
                server,
                place,
            }));
        }
    }
    Ok(entries)
}

/// Everything without which a goal can't be judged, and the works that no goal is set for with a few servers.
fn needed_for_goals() -> Vec<Entry> {
    const FEW: &[&str] = &[OURS, "bare", "tokio", "half-sync"];
    let is_of_few = |work: &Work, server: &Server| match work.servers {
        Entrants::Only(names) => names.contains(&server.name),
        _ => FEW.contains(&server.name),
    };
    let has_goal = |work: &Work| goals().any(|goal| goal.work == work.name);
    let every: Vec<&Server> = servers::all().collect();
    let mut entries = Vec::new();
    for work in works::ALL {
        for (&place, server) in product(work.places, &every) {
            let few = !has_goal(work) && place == Place::Apart && is_of_few(work, server);
            if few || goals().any(|goal| goal.needs(work, place, server.name)) {
                entries.push(Entry {
                    work,
                    server,
                    place,
                });
            }
        }
    }
    entries
}

/// All pairs.
fn product<'a, A, B>(ones: &'a [A], others: &'a [B]) -> impl Iterator<Item = (&'a A, &'a B)> {
    ones.iter()
        .flat_map(move |one| others.iter().map(move |other| (one, other)))
}

/// Whether a work is to be measured at this place. The subset has only `short-requests` in both places.
fn is_wanted(choice: &Choice, work: &Work, place: Place) -> bool {
    let subset = choice.works.is_empty() && !choice.full;
    match choice.place {
        Some(only) => only == place,
        None => !subset || work.name == "short-requests" || place == Place::Apart,
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

/// The servers that take part in a work if none is named.
fn entrants(choice: &Choice, work: &'static Work) -> Vec<&'static str> {
    if !choice.full && !work.default.is_empty() {
        return work.default.to_vec();
    }
    let is_variant = |name: &str| name.starts_with("paceline-");
    let names = servers::ALL.iter().map(|server| server.name);
    match work.servers {
        Entrants::Only(names) => names.to_vec(),
        Entrants::Peers => names.filter(|name| !is_variant(name)).collect(),
        Entrants::PeersAnd(more) => names
            .filter(|name| !is_variant(name) || more.contains(name))
            .collect(),
        Entrants::All => names.collect(),
    }
}

fn unknown(what: &str, name: &str) -> io::Error {
    let text = format!("no {what} is called {name:?}; `list` shows them all");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn terms_of(entry: Entry, steps: u32, run: &Run) -> Terms {
    let Entry { work, place, .. } = entry;
    Terms {
        place,
        steps,
        rate: work.rate.map(|share| share * slowest_peak(run, place)),
    }
}

/// Records the results of a round.
fn note(round: Round, run: &mut Run, bar: &ProgressBar) {
    run.records.extend(round.records);
    for (entry, error) in round.failed {
        let line = format!("{}: {error}", entry.name());
        say(bar, &line);
        run.absent.push(line);
    }
}

/// The peak of the slowest server for `short-requests` at this place, if this run measured it.
fn slowest_peak(run: &Run, place: Place) -> f64 {
    let peers = run
        .records
        .iter()
        .filter(|record| record.work == "short-requests" && record.place == place);
    let peaks = peers.map(|record| record.load.throughput());
    peaks.reduce(f64::min).unwrap_or(UNKNOWN_PEAK)
}

/// A bar for all measurements, which advances with every slice.
fn progress(batches: &[Vec<Entry>], choice: &Choice, slices: usize) -> ProgressBar {
    let efforts = batches.iter().map(|batch| effort(batch, choice.seconds));
    let (count, all) = efforts.fold((0, Duration::ZERO), |sum, one| {
        (sum.0 + one.0, sum.1 + one.1)
    });
    let runs = choice.runs as u32;
    let count = u64::from(count * runs);
    progress::bar_of(count * slices as u64, count, choice.seconds, all * runs)
}

/// How many measurements a round of these entries is, and about how long it takes if nothing is made again.
fn effort(batch: &[Entry], seconds: f64) -> (u32, Duration) {
    let heats = heats::draw(batch, 1, &mut Random::from_seed(0));
    let measured: usize = heats.iter().map(Heat::measured).sum();
    let parts: usize = heats.iter().map(|heat| heat.guests() + 1).sum();
    let each = Duration::from_secs_f64(seconds) + BETWEEN;
    (
        measured as u32,
        each * parts as u32 + START * batch.len() as u32,
    )
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
            goals: false,
            full,
            noisy: false,
            count: false,
        }
    }

    /// The default run is short enough to wait for: a quarter of an hour.
    #[test]
    fn the_default_takes_at_most_15_minutes() -> io::Result<()> {
        let batches = batches(&choice(&[], false))?;
        let round: Duration = batches.iter().map(|batch| effort(batch, 3.0).1).sum();
        assert!(round * 5 <= Duration::from_secs(15 * 60), "{round:?}");
        Ok(())
    }

    /// Works that are compared with each other share their rounds.
    #[test]
    fn a_family_is_one_batch() -> io::Result<()> {
        let batches = batches(&choice(&["threads-4", "threads-16", "threads-64"], true))?;
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [3]);
        Ok(())
    }

    /// What a goal compares is measured in the same rounds.
    #[test]
    fn what_a_goal_compares_is_of_one_batch() -> io::Result<()> {
        let choice = Choice {
            goals: true,
            ..choice(&[], false)
        };
        let batches = batches(&choice)?;
        let find = |work: &str, place, server: &str| {
            let is_it = |entry: &Entry| {
                entry.work.name == work && entry.place == place && entry.server.name == server
            };
            batches.iter().position(|batch| batch.iter().any(is_it))
        };
        for goal in goals() {
            let ours = find(goal.work, goal.place, goal.ours());
            let other = match goal.against {
                Against::Itself(work, place) => find(work, place, goal.ours()),
                Against::Peer(peer) => {
                    let server = peer.servers.first().unwrap_or(&"half-sync");
                    find(goal.work, goal.place, server)
                }
                Against::Nothing => ours,
            };
            assert!(ours.is_some() && ours == other, "{goal:?}");
        }
        Ok(())
    }

    /// A misspelt name is an error that says where to look.
    #[test]
    fn an_unknown_name_is_refused() {
        let result = batches(&choice(&["z"], false))
            .map(|_| ())
            .map_err(|error| error.to_string());
        assert_eq!(
            result,
            Err("no work is called \"z\"; `list` shows them all".to_owned())
        );
    }
}
