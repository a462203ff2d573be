//! One round: all servers and their clients are up, and are measured in turns, half a second each; see `heats.rs`.
//!
//! Each has one record: the sum of its slices, and beside which slices of its home they were measured.

use std::io;

use indicatif::ProgressBar;

use crate::{
    distance,
    heats::{self, check_distance, Distance, Sliced, Slicing},
    homes::homes,
    random::Random,
    record::{self, Beside, Load, Place, Record, Slice, Slices},
    servers::Server,
    session::{Client, Running, Terms},
    works::Work,
};

/// Cores that others may use in the mean of all slices before a record is discarded.
const FOREIGN: f64 = 0.12;
/// Of a slice. (What others used is known to a twentieth of a core for half a second.)
const FOREIGN_IN_SLICE: f64 = 0.25;
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
        record::name(self.work.name, self.place, self.server.name)
    }

    fn is(self, other: Self) -> bool {
        self.name() == other.name()
    }
}

/// What is wanted of each entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) slices: usize,
    /// Seconds of each.
    pub(crate) each: f64,
    /// Which of them are taken.
    pub(crate) demand: Demand,
}

/// Which slices are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Those that nothing has disturbed.
    Quiet,
    /// All, as they come.
    Nothing,
}

impl Wanted {
    /// So many seconds in all.
    pub(crate) fn of(seconds: f64, demand: Demand) -> Self {
        let slices = (seconds / SLICE).round().max(1.0);
        Self {
            slices: slices as usize,
            each: seconds / slices,
            demand,
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
    fn unless_failed<T>(&mut self, entry: Entry, result: io::Result<T>) -> Option<T> {
        result
            .map_err(|error| self.failed.push((entry, error)))
            .ok()
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
    wanted: Wanted,
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
    let standing: Vec<Entry> = stands.iter().map(|stand| stand.entry).collect();
    for (stand, home) in stands.iter_mut().zip(homes(&standing)) {
        stand.home = home.map(|home| standing[home]);
    }
    let heats = heats::draw(&standing, wanted.slices, random);
    let name = |at: usize| standing[at].name();
    let failed = heats::take_turns(&mut stands, heats, wanted, random, bar, name);
    let has_failed = |at: usize| failed.iter().any(|(place, _)| *place == at);
    for (at, stand) in stands.into_iter().enumerate() {
        if !has_failed(at) {
            let record = round.unless_failed(standing[at], stand.record(number, wanted));
            round.records.extend(record.flatten());
        }
    }
    let failed = failed.into_iter();
    round
        .failed
        .extend(failed.map(|(at, error)| (standing[at], error)));
    round
}

/// A server and its client.
struct Stand {
    entry: Entry,
    client: Client,
    /// Ends after its client.
    running: Running,
    /// With whom it is compared.
    home: Option<Entry>,
    /// Its slice of this heat, of which it is not known yet whether it counts, with the distance.
    last: Option<(Slice, Distance)>,
    /// Those that count.
    kept: Vec<(Slice, Distance)>,
    /// Those that were measured beside its home, with that one's.
    beside: Vec<(Slice, Slice)>,
    /// Some of them were disturbed.
    disturbed: bool,
    /// How many slices were made again.
    made_again: usize,
}

impl Stand {
    fn set_up(entry: Entry, terms: Terms) -> io::Result<Self> {
        let running = Running::start(entry.server, entry.work, terms, false)?;
        let client = Client::of(&running, entry.work, terms)?;
        Ok(Self {
            entry,
            client,
            running,
            home: None,
            last: None,
            kept: Vec::new(),
            beside: Vec::new(),
            disturbed: false,
            made_again: 0,
        })
    }

    /// All that was kept, if anything was.
    fn record(self, round: usize, wanted: Wanted) -> io::Result<Option<Record>> {
        if self.kept.is_empty() {
            return Ok(None);
        }
        let load = self.client.sum()?;
        drop(self.running);
        let is_quiet = wanted.demand == Demand::Nothing || check_foreign(&load, FOREIGN).is_ok();
        let is_whole = !self.disturbed && self.kept.len() >= wanted.slices;
        let (kept, distances): (Vec<_>, Vec<_>) = self.kept.into_iter().unzip();
        let known: Vec<f64> = distances.into_iter().flatten().collect();
        let beside = self.home.map(|home| Beside {
            of: home.name(),
            pairs: self.beside,
        });
        let Entry {
            work,
            server,
            place,
        } = self.entry;
        Ok(Some(Record {
            work: work.name.to_owned(),
            server: server.name.to_owned(),
            threads: work.threads_of(server),
            place,
            round,
            clean: is_whole && is_quiet,
            load,
            distance: mean(&known),
            slices: Some(Slices {
                kept,
                made_again: self.made_again,
                beside,
            }),
        }))
    }
}

impl Slicing for Stand {
    fn slice(&mut self, seconds: f64) -> io::Result<Sliced> {
        let is_first = self.kept.is_empty() && self.made_again == 0;
        let warm_up = if is_first { WARM_UP } else { WARM_UP_AGAIN };
        let before = distance::measure().ok();
        let load = self.client.slice(warm_up, seconds)?;
        let after = distance::measure().ok();
        self.last = Some((Slice::of(&load), before));
        let checked = check_foreign(&load, FOREIGN_IN_SLICE).and(check_distance(before, after));
        Ok(match checked {
            Ok(()) => Sliced::Quiet(before),
            Err(why) => Sliced::Disturbed(why),
        })
    }

    fn keep(&mut self) {
        self.kept.extend(self.last.take());
    }

    /// (A client that cannot be written to has ended: its next slice reports that.)
    fn forget(&mut self) {
        if self.last.take().is_some() {
            self.made_again += 1;
            let _ = self.client.forget();
        }
    }

    fn has_any(&self) -> bool {
        !self.kept.is_empty()
    }

    fn last(&self) -> Option<Slice> {
        self.last.map(|(slice, _)| slice)
    }

    fn note_home(&mut self, slice: Slice) {
        self.beside.extend(self.last().map(|own| (own, slice)));
    }

    fn note_disturbed(&mut self) {
        self.disturbed = true;
    }
}

/// That others used few cores.
fn check_foreign(load: &Load, allowed: f64) -> Result<(), String> {
    let foreign = load.foreign;
    if foreign > allowed {
        Err(format!(
            "others used {foreign:.2} cores, {allowed} are allowed"
        ))
    } else {
        Ok(())
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
            work: works::find("short-requests").unwrap(),
            server: servers::find(server).unwrap(),
            place: Place::Together,
        }
    }

    #[test]
    fn a_measurement_is_cut_into_slices_of_about_half_a_second() {
        let cut = |seconds| {
            let Wanted { slices, each, .. } = Wanted::of(seconds, Demand::Quiet);
            (slices, each)
        };
        assert_eq!(cut(3.0), (6, 0.5));
        assert_eq!(cut(0.1), (1, 0.1));
        assert_eq!(cut(1.1), (2, 0.55));
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
