//! One round: all servers and their clients are up, and are measured in turns, half a second each.
//!
//! ```text
//!             cycle         cycle         cycle
//!   bare   |==          |    ==      |        ==  |   one record each: the sum of its slices.
//!   tokio  |        ==  |==          |    ==      |   Of two servers, the ratio in a round is
//!   ours   |    ==      |        ==  |==          |   the median of those of its cycles
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
    record::{Load, Place, Record, Slice, Slices},
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
    let standing = take_turns(&mut stands, &mut round, wanted, random, bar);
    for stand in stands {
        let (entry, record) = (stand.entry, stand.record(number, wanted.demand, standing));
        let record = round.unless_failed(entry, record).flatten();
        round.records.extend(record);
    }
    round
}

/// Whether a round counts.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Counts,
    /// Some of its slices were disturbed, or are missing.
    Disturbed,
}

/// One cycle after the other, until there are enough. If there can't be enough quiet ones any more, the rest is taken as it
/// comes: then the round is whole, and does not count.
fn take_turns<S: Slicing>(
    stands: &mut Vec<S>,
    round: &mut Round,
    wanted: Wanted,
    random: &mut Random,
    bar: &ProgressBar,
) -> Standing {
    let (mut missing, mut standing) = (wanted.slices, Standing::Counts);
    for left in (0..wanted.slices * ATTEMPTS).rev() {
        if missing == 0 {
            return standing;
        }
        let mut demand = wanted.demand;
        if left < missing && demand == Demand::Quiet {
            (demand, standing) = (Demand::Nothing, Standing::Disturbed);
        }
        random.shuffle(stands);
        match cycle(stands, wanted.each, demand, bar) {
            Ok(()) => {
                stands.iter_mut().for_each(S::keep);
                bar.inc(stands.len() as u64);
                missing -= 1;
            }
            Err(trouble) => {
                stands.iter_mut().for_each(S::forget);
                match trouble {
                    Trouble::Disturbed(why) => say(bar, &format!("once more: {why}")),
                    Trouble::Failed(place, error) => {
                        let entry = stands.remove(place).entry();
                        round.failed.push((entry, error));
                    }
                }
            }
        }
    }
    match missing {
        0 => standing,
        _ => Standing::Disturbed,
    }
}

/// Why a cycle does not count.
enum Trouble {
    Disturbed(String),
    /// The one at this place can't be measured.
    Failed(usize, io::Error),
}

/// One slice of each, one after the other; if they are to be quiet, with the cores as far from each other.
fn cycle<S: Slicing>(
    stands: &mut [S],
    seconds: f64,
    demand: Demand,
    bar: &ProgressBar,
) -> Result<(), Trouble> {
    let mut first = None;
    for (place, stand) in stands.iter_mut().enumerate() {
        let name = stand.entry().name();
        bar.set_message(name.clone());
        let slice = match demand {
            Demand::Quiet => slice_or_again(stand, seconds),
            Demand::Nothing => stand.slice(seconds),
        };
        match slice.map_err(|error| Trouble::Failed(place, error))? {
            _ if demand == Demand::Nothing => {}
            Sliced::Disturbed(why) => return Err(Trouble::Disturbed(format!("{name}: {why}"))),
            Sliced::Quiet(distance) => {
                let first = *first.get_or_insert(distance);
                check_distance(first, distance).map_err(Trouble::Disturbed)?;
            }
        }
    }
    Ok(())
}

/// Measures a slice, and again if it was disturbed.
fn slice_or_again(stand: &mut impl Slicing, seconds: f64) -> io::Result<Sliced> {
    let mut sliced = stand.slice(seconds)?;
    for _ in 1..ATTEMPTS {
        if let Sliced::Disturbed(_) = sliced {
            stand.forget();
            sliced = stand.slice(seconds)?;
        }
    }
    Ok(sliced)
}

/// What is measured in turns.
trait Slicing {
    fn entry(&self) -> Entry;

    /// Measures a slice, which is kept or forgotten later.
    fn slice(&mut self, seconds: f64) -> io::Result<Sliced>;

    /// The last slice counts.
    fn keep(&mut self);

    /// It does not, if there is one.
    fn forget(&mut self);
}

/// How a slice was.
#[must_use]
enum Sliced {
    /// Nothing has disturbed it, and the cores were so far from each other.
    Quiet(Distance),
    Disturbed(String),
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
    /// Its slice of this cycle, of which it is not known yet whether it counts, with the distance.
    last: Option<(Slice, Distance)>,
    /// Those that count.
    kept: Vec<(Slice, Distance)>,
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
            last: None,
            kept: Vec::new(),
            made_again: 0,
        })
    }

    /// All that was kept, if anything was.
    fn record(
        self,
        round: usize,
        demand: Demand,
        standing: Standing,
    ) -> io::Result<Option<Record>> {
        if self.kept.is_empty() {
            return Ok(None);
        }
        let Entry {
            work,
            server,
            place,
        } = self.entry;
        let load = self.client.sum()?;
        drop(self.running);
        let is_quiet = demand == Demand::Nothing || check_foreign(&load, FOREIGN).is_ok();
        let (kept, distances): (Vec<_>, Vec<_>) = self.kept.into_iter().unzip();
        let known: Vec<f64> = distances.into_iter().flatten().collect();
        Ok(Some(Record {
            work: work.name.to_owned(),
            server: server.name.to_owned(),
            threads: work.threads_of(server),
            place,
            round,
            clean: standing == Standing::Counts && is_quiet,
            load,
            distance: mean(&known),
            slices: Some(Slices {
                kept,
                made_again: self.made_again,
            }),
        }))
    }
}

impl Slicing for Stand {
    fn entry(&self) -> Entry {
        self.entry
    }

    fn slice(&mut self, seconds: f64) -> io::Result<Sliced> {
        let is_first = self.kept.is_empty() && self.made_again == 0;
        let warm_up = if is_first { WARM_UP } else { WARM_UP_AGAIN };
        let before = distance::measure().ok();
        let load = self.client.slice(warm_up, seconds)?;
        let after = distance::measure().ok();
        self.last = Some((Slice::of(&load), before));
        let told = check_foreign(&load, FOREIGN_IN_SLICE).and(check_distance(before, after));
        Ok(match told {
            Ok(()) => Sliced::Quiet(before),
            Err(why) => Sliced::Disturbed(why),
        })
    }

    fn keep(&mut self) {
        self.kept.extend(self.last.take());
    }

    /// (A client that can't be told has ended: its next slice tells.)
    fn forget(&mut self) {
        if self.last.take().is_some() {
            self.made_again += 1;
            let _ = self.client.forget();
        }
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
        let cut = |seconds| {
            let Wanted { slices, each, .. } = Wanted::of(seconds, Demand::Quiet);
            (slices, each)
        };
        assert_eq!(cut(3.0), (6, 0.5));
        assert_eq!(cut(0.1), (1, 0.1));
        assert_eq!(cut(1.1), (2, 0.55));
    }

    /// A stand that says what its slices are like, the last for ever.
    struct Script {
        server: &'static str,
        slices: Vec<Result<Sliced, io::ErrorKind>>,
        last: bool,
        kept: usize,
        forgotten: usize,
    }

    fn script<const N: usize>(
        server: &'static str,
        mut slices: [Result<Sliced, io::ErrorKind>; N],
    ) -> Script {
        slices.reverse();
        Script {
            server,
            slices: slices.into(),
            last: false,
            kept: 0,
            forgotten: 0,
        }
    }

    const NEAR: Result<Sliced, io::ErrorKind> = Ok(Sliced::Quiet(Some(90.0)));
    const FAR: Result<Sliced, io::ErrorKind> = Ok(Sliced::Quiet(Some(340.0)));
    const DISTURBED: Result<Sliced, io::ErrorKind> = Ok(Sliced::Disturbed(String::new()));
    const FAILED: Result<Sliced, io::ErrorKind> = Err(io::ErrorKind::BrokenPipe);

    impl Slicing for Script {
        fn entry(&self) -> Entry {
            entry(self.server)
        }

        fn slice(&mut self, _: f64) -> io::Result<Sliced> {
            assert!(!self.last, "the last one was neither kept nor forgotten");
            self.last = true;
            let slice = match self.slices.len() {
                1 => match &self.slices[0] {
                    Ok(Sliced::Quiet(distance)) => Ok(Sliced::Quiet(*distance)),
                    Ok(Sliced::Disturbed(why)) => Ok(Sliced::Disturbed(why.clone())),
                    Err(kind) => Err(*kind),
                },
                _ => self.slices.pop().expect("there is one"),
            };
            slice.map_err(io::Error::from)
        }

        fn keep(&mut self) {
            self.kept += usize::from(std::mem::take(&mut self.last));
        }

        fn forget(&mut self) {
            self.forgotten += usize::from(std::mem::take(&mut self.last));
        }
    }

    /// Two slices of each are wanted: whether the round counts, and for each that is left what was kept and forgotten.
    fn turns(
        mut stands: Vec<Script>,
        demand: Demand,
    ) -> (Standing, Vec<(&'static str, usize, usize)>, usize) {
        let (mut round, mut random) = (Round::default(), Random::from_seed(1));
        let wanted = Wanted {
            slices: 2,
            each: 0.5,
            demand,
        };
        let bar = ProgressBar::hidden();
        let standing = take_turns(&mut stands, &mut round, wanted, &mut random, &bar);
        let mut left: Vec<_> = stands
            .iter()
            .map(|it| (it.server, it.kept, it.forgotten))
            .collect();
        left.sort_unstable();
        (standing, left, round.failed.len())
    }

    #[test]
    fn all_have_as_many_slices() {
        let stands = vec![script("bare", [NEAR]), script("tokio", [NEAR])];
        let (standing, left, failed) = turns(stands, Demand::Quiet);
        assert_eq!((standing, failed), (Standing::Counts, 0));
        assert_eq!(left, [("bare", 2, 0), ("tokio", 2, 0)]);
    }

    #[test]
    fn a_disturbed_slice_is_made_again() {
        let stands = vec![
            script("bare", [DISTURBED, DISTURBED, NEAR]),
            script("tokio", [NEAR]),
        ];
        let (standing, left, _) = turns(stands, Demand::Quiet);
        assert_eq!(standing, Standing::Counts);
        assert_eq!(left, [("bare", 2, 2), ("tokio", 2, 0)]);
    }

    /// A machine that is never quiet once had no figures at all. Now it has them, and they do not count; unless that was
    /// wanted.
    #[test]
    fn where_it_is_never_quiet_the_round_is_whole_and_does_not_count() {
        let stands = || vec![script("bare", [DISTURBED])];
        let (standing, left, _) = turns(stands(), Demand::Quiet);
        assert_eq!(standing, Standing::Disturbed);
        assert_eq!(left, [("bare", 2, 4 * ATTEMPTS)]);
        let (standing, left, _) = turns(stands(), Demand::Nothing);
        assert_eq!((standing, left), (Standing::Counts, vec![("bare", 2, 0)]));
    }

    /// What was measured with the cores near and far is not compared: neither of the two slices counts.
    #[test]
    fn a_cycle_at_two_distances_is_made_again() {
        let stands = vec![script("bare", [FAR, NEAR]), script("tokio", [NEAR])];
        let (standing, left, _) = turns(stands, Demand::Quiet);
        assert_eq!(standing, Standing::Counts);
        assert_eq!(left, [("bare", 2, 1), ("tokio", 2, 1)]);
    }

    /// Who can't be measured is left out, and the others go on.
    #[test]
    fn one_that_fails_does_not_stop_the_others() {
        let stands = vec![script("bare", [NEAR, FAILED]), script("tokio", [NEAR])];
        let (standing, left, failed) = turns(stands, Demand::Quiet);
        assert_eq!((standing, failed), (Standing::Counts, 1));
        let [(name, kept, _)] = left[..] else {
            panic!("one is left: {left:?}");
        };
        assert_eq!((name, kept), ("tokio", 2));
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
