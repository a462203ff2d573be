//! One round: all servers and their clients are up, and are measured in turns, half a second each.
//!
//! ```text
//!             cycle         cycle         cycle
//!   bare   |==          |    ==      |        ==  |
//!   tokio  |        ==  |==          |    ==      |   one record each: the sum of its slices
//!   ours   |    ==      |        ==  |==          |
//! ```
//!
//! What disturbs a shared machine comes and goes within seconds. Of servers that are measured one after the other for
//! seconds it strikes some and not others; in turns it strikes all alike. A slice during which others used the machine,
//! or the host moved its cores, is made again; a cycle whose slices were not measured at the same distance of the cores
//! (see `distance.rs`) is made again as a whole. On a machine that is never quiet the rest is taken as it comes, and
//! the round does not count.

use std::io;

use indicatif::ProgressBar;

use crate::{
    distance,
    progress::say,
    random::Random,
    record::{Load, Place, Record, Slices},
    servers::Server,
    session::{Client, Running, Terms},
    works::Work,
};

/// Cores that others may use in the mean of a round before it is discarded.
const FOREIGN: f64 = 0.12;
/// Of a slice. (What others used is known to a twentieth of a core for half a second.)
const FOREIGN_IN_SLICE: f64 = 0.25;
/// How often a disturbed slice is made in all; and a cycle, in the mean.
const ATTEMPTS: usize = 3;
/// Seconds of a slice.
const SLICE: f64 = 0.5;
/// Seconds of load before the first slice of a server is measured.
const WARM_UP: f64 = 0.5;
/// And before each of the others.
const WARM_UP_AGAIN: f64 = 0.03;

/// One work for one server at one place, measured once in each round.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) work: &'static Work,
    pub(crate) server: &'static Server,
    pub(crate) place: Place,
}

impl Entry {
    pub(crate) fn name(self) -> String {
        let Self {
            work,
            server,
            place,
        } = self;
        format!("{} {} {}", work.name, place.name(), server.name)
    }

    fn is(self, other: Self) -> bool {
        self.name() == other.name()
    }
}

/// How long a measurement is, and in how many slices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Length {
    pub(crate) slices: usize,
    /// Seconds of each.
    pub(crate) each: f64,
}

impl Length {
    /// So many seconds in all.
    pub(crate) fn of(seconds: f64) -> Self {
        let slices = (seconds / SLICE).round().max(1.0);
        Self {
            slices: slices as usize,
            each: seconds / slices,
        }
    }
}

/// What a round has come to.
#[derive(Default)]
pub(crate) struct Round {
    /// One for each that was measured.
    pub(crate) records: Vec<Record>,
    /// Those that failed, with the reason; they are not tried again.
    pub(crate) failed: Vec<(Entry, io::Error)>,
}

impl Round {
    /// What came of an entry, or nothing: then it is noted as failed.
    fn unless_failed<T>(&mut self, entry: Entry, told: io::Result<T>) -> Option<T> {
        told.map_err(|error| self.failed.push((entry, error))).ok()
    }

    /// Whether an entry is to be measured in later rounds too.
    pub(crate) fn keeps(&self, entry: Entry) -> bool {
        !self.failed.iter().any(|(failed, _)| failed.is(entry))
    }
}

/// Measures each entry once.
pub(crate) fn measure(
    entries: &[Entry],
    number: usize,
    (length, demand): (Length, Demand),
    terms: impl Fn(Entry) -> Terms,
    random: &mut Random,
    bar: &ProgressBar,
) -> Round {
    let mut round = Round::default();
    let mut stands = Vec::new();
    for &entry in entries {
        bar.set_message(entry.name());
        stands.extend(round.unless_failed(entry, Stand::set_up(entry, terms(entry))));
    }
    let counts = take_turns(&mut stands, &mut round, (length, demand), random, bar);
    for stand in stands {
        let (entry, record) = (stand.entry, stand.record(number, demand, counts));
        let record = round.unless_failed(entry, record).flatten();
        round.records.extend(record);
    }
    round
}

/// Which slices are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Those that nothing has disturbed.
    Quiet,
    /// All, as they come.
    Nothing,
}

/// One cycle after the other, until there are enough. If there can't be enough quiet ones any more, the rest is taken as it
/// comes: then the round is whole, and does not count. Whether it does.
fn take_turns(
    stands: &mut Vec<Stand>,
    round: &mut Round,
    terms: (Length, Demand),
    random: &mut Random,
    bar: &ProgressBar,
) -> bool {
    let (length, demand) = terms;
    let (mut missing, mut counts) = (length.slices, true);
    for left in (0..length.slices * ATTEMPTS).rev() {
        if missing == 0 {
            break;
        }
        let is_late = left < missing;
        counts &= !is_late || demand == Demand::Nothing;
        let demand = if is_late { Demand::Nothing } else { demand };
        random.shuffle(stands);
        match cycle(stands, length.each, demand, bar) {
            Ok(()) => {
                stands.iter_mut().for_each(Stand::keep);
                bar.inc(stands.len() as u64);
                missing -= 1;
            }
            Err(trouble) => {
                stands.iter_mut().for_each(Stand::forget);
                match trouble {
                    Trouble::Disturbed(why) => say(bar, &format!("once more: {why}")),
                    Trouble::Failed(place, error) => {
                        let entry = stands.remove(place).entry;
                        round.failed.push((entry, error));
                    }
                }
            }
        }
    }
    counts && missing == 0
}

/// Why a cycle does not count.
enum Trouble {
    Disturbed(String),
    /// The one at this place can't be measured.
    Failed(usize, io::Error),
}

/// One slice of each, one after the other, with the cores as far from each other.
fn cycle(
    stands: &mut [Stand],
    seconds: f64,
    demand: Demand,
    bar: &ProgressBar,
) -> Result<(), Trouble> {
    let mut first = None;
    for (place, stand) in stands.iter_mut().enumerate() {
        bar.set_message(stand.entry.name());
        let slice = match demand {
            Demand::Quiet => stand.slice_or_again(seconds),
            Demand::Nothing => stand.slice(seconds),
        };
        let slice = slice.map_err(|error| Trouble::Failed(place, error))?;
        if demand == Demand::Nothing {
            continue;
        }
        let name = stand.entry.name();
        let distance = slice.map_err(|why| Trouble::Disturbed(format!("{name}: {why}")))?;
        let first = *first.get_or_insert(distance);
        check_distance(first, distance).map_err(Trouble::Disturbed)?;
    }
    Ok(())
}

/// How far the cores are from each other. Where there is only one, nothing.
type Distance = Option<f64>;

/// That the cores were not moved.
fn check_distance(before: Distance, after: Distance) -> Result<(), String> {
    match before.zip(after) {
        Some((before, after)) if !distance::is_same(before, after) => Err(format!(
            "the host moved the cores: a cache line took {before:.0} ns, then {after:.0}"
        )),
        _ => Ok(()),
    }
}

/// A server and its client.
struct Stand {
    entry: Entry,
    client: Client,
    /// Ends after its client.
    running: Running,
    /// The distance during its slice of this cycle, of which it is not known yet whether it counts.
    last: Option<Distance>,
    /// Those of the slices that count.
    distances: Vec<Distance>,
    /// How many slices do not.
    discarded: usize,
}

impl Stand {
    fn set_up(entry: Entry, terms: Terms) -> io::Result<Self> {
        let running = Running::start(entry.server, entry.work, terms, false)?;
        let client = Client::of(&running, entry.work, terms)?;
        Ok(Self {
            entry,
            client,
            running,
            last: None,
            distances: Vec::new(),
            discarded: 0,
        })
    }

    /// Measures a slice, and again if it was disturbed. If it is still, why.
    fn slice_or_again(&mut self, seconds: f64) -> io::Result<Result<Distance, String>> {
        let mut told = self.slice(seconds)?;
        for _ in 1..ATTEMPTS {
            if told.is_err() {
                self.forget();
                told = self.slice(seconds)?;
            }
        }
        Ok(told)
    }

    /// Measures a slice.
    fn slice(&mut self, seconds: f64) -> io::Result<Result<Distance, String>> {
        let is_first = self.distances.is_empty() && self.discarded == 0;
        let warm_up = if is_first { WARM_UP } else { WARM_UP_AGAIN };
        let before = distance::measure().ok();
        let load = self.client.slice(warm_up, seconds)?;
        let after = distance::measure().ok();
        self.last = Some(before);
        let told = check_foreign(&load, FOREIGN_IN_SLICE);
        Ok(told.and_then(|()| check_distance(before, after).map(|()| before)))
    }

    /// The slice of this cycle counts.
    fn keep(&mut self) {
        self.distances.extend(self.last.take());
    }

    /// It does not, if there is one. (A client that can't be told has ended: its next slice tells.)
    fn forget(&mut self) {
        if self.last.take().is_some() {
            self.discarded += 1;
            let _ = self.client.forget();
        }
    }

    /// All that was kept, if anything was.
    fn record(self, round: usize, demand: Demand, counts: bool) -> io::Result<Option<Record>> {
        if self.distances.is_empty() {
            return Ok(None);
        }
        let Entry {
            work,
            server,
            place,
        } = self.entry;
        let load = self.client.sum()?;
        drop(self.running);
        let known: Vec<f64> = self.distances.iter().copied().flatten().collect();
        Ok(Some(Record {
            work: work.name.to_owned(),
            server: server.name.to_owned(),
            threads: work.threads_of(server),
            place,
            round,
            clean: counts && (demand == Demand::Nothing || check_foreign(&load, FOREIGN).is_ok()),
            load,
            distance: mean(&known),
            slices: Some(Slices {
                count: self.distances.len(),
                discarded: self.discarded,
            }),
        }))
    }
}

/// That others used few cores.
fn check_foreign(load: &Load, allowed: f64) -> Result<(), String> {
    let foreign = load.foreign;
    match foreign > allowed {
        true => Err(format!(
            "others used {foreign:.2} cores, {allowed} are allowed"
        )),
        false => Ok(()),
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    (!values.is_empty()).then(|| sum / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{servers, works};

    fn entry(server: &str) -> Entry {
        Entry {
            work: works::find("a").unwrap(),
            server: servers::find(server).unwrap(),
            place: Place::Together,
        }
    }

    #[test]
    fn a_measurement_is_cut_into_slices_of_about_half_a_second() {
        let (slices, each) = (6, 0.5);
        assert_eq!(Length::of(3.0), Length { slices, each });
        let (slices, each) = (1, 0.1);
        assert_eq!(Length::of(0.1), Length { slices, each });
        let (slices, each) = (2, 0.55);
        assert_eq!(Length::of(1.1), Length { slices, each });
    }

    #[test]
    fn cores_that_were_moved_are_told() {
        assert_eq!(check_distance(Some(90.0), Some(100.0)), Ok(()));
        assert_eq!(check_distance(None, Some(100.0)), Ok(()));
        let told = check_distance(Some(90.0), Some(340.0)).unwrap_err();
        assert!(told.contains("90 ns, then 340"), "{told}");
    }

    #[test]
    fn who_has_failed_is_not_measured_again() {
        let round = Round {
            records: Vec::new(),
            failed: vec![(entry("bare"), io::ErrorKind::BrokenPipe.into())],
        };
        assert!(round.keeps(entry("tokio")));
        assert!(!round.keeps(entry("bare")));
    }
}
