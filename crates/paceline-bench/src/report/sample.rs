//! What a run holds about a server under a work: values by sitting.
//!
//! A measurement counts if the machine was quiet, replies came, and none was wrong. The others are discarded, and
//! counted.
//!
//! Two measurements are compared only if they are of one *sitting*: of the same round, and with no measurement of
//! another round between them. So what was measured hours apart under the same number is no pair. Nor is what was
//! measured with the cores near each other and far from each other (see `distance.rs`).

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    distance,
    goals::{Quantity, OURS},
    record::{Place, Record, Run},
    statistics::{ratio, Ratios, Series, Spread},
    works,
};

/// Whether a measurement counts.
fn counts(record: &Record) -> bool {
    record.clean && !is_faulty(record)
}

/// Whether a measurement went wrong, however quiet the machine was.
pub(super) fn is_faulty(record: &Record) -> bool {
    record.load.errors > 0 || record.load.requests == 0
}

/// A measurement with its sitting.
type Sample<'a> = (usize, &'a Record);

/// The measurements of a run by work and place, in the order of the works.
#[derive(Debug)]
pub(super) struct Samples<'a>(BTreeMap<(usize, &'a str, Place), Vec<Sample<'a>>>);

impl<'a> Samples<'a> {
    /// Those of a run.
    pub(super) fn of(run: &'a Run) -> Samples<'a> {
        let mut scenes: BTreeMap<_, Vec<Sample<'a>>> = BTreeMap::new();
        let (mut sitting, mut last) = (0, None);
        for record in &run.records {
            sitting += usize::from(last.is_some_and(|round| round != record.round));
            last = Some(record.round);
            let key = (rank(&record.work), &*record.work, record.place);
            scenes.entry(key).or_default().push((sitting, record));
        }
        Samples(scenes)
    }

    /// All works and places that were measured.
    pub(super) fn scenes(&self) -> impl Iterator<Item = Scene<'_>> {
        let scenes = self.0.iter();
        scenes.map(|(&(_, work, place), samples)| Scene {
            samples,
            work,
            place,
        })
    }

    /// This work in this place; without a measurement it is empty.
    pub(super) fn scene<'b>(&'b self, work: &'b str, place: Place) -> Scene<'b> {
        let samples = self.0.get(&(rank(work), work, place));
        Scene {
            samples: samples.map_or(&[], Vec::as_slice),
            work,
            place,
        }
    }
}

/// The place of a work in a report; works that are not of the catalogue come last.
fn rank(work: &str) -> usize {
    let known = works::ALL.iter().position(|known| known.name == work);
    known.unwrap_or(works::ALL.len())
}

/// One work in one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'a> {
    /// What was measured.
    samples: &'a [Sample<'a>],
    /// The work's name.
    pub(super) work: &'a str,
    /// Where server and client ran.
    pub(super) place: Place,
}

impl<'a> Scene<'a> {
    /// The servers that were measured, the greatest throughput first.
    pub(super) fn entries(self) -> Vec<Entry<'a>> {
        let with_median = |entry: Entry<'a>| (entry.median(Quantity::Throughput), entry);
        let entries = self.in_order_of_record().into_iter();
        let mut entries: Vec<_> = entries.map(with_median).collect();
        entries.sort_by(|(one, _), (other, _)| by_value(*other, *one));
        entries.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Ours; see [`find`](Self::find).
    pub(super) fn ours(self) -> Option<Entry<'a>> {
        self.find(works::ours_of(self.work))
    }

    /// A server; if it was measured with several numbers of threads, the one that came first.
    pub(super) fn find(self, server: &str) -> Option<Entry<'a>> {
        let mut entries = self.in_order_of_record().into_iter();
        entries.find(|entry| entry.server == server)
    }

    /// The servers that were measured, each once.
    fn in_order_of_record(self) -> Vec<Entry<'a>> {
        let mut entries: Vec<Entry<'a>> = Vec::new();
        for (_, record) in self.samples {
            if !entries.iter().any(|entry| entry.holds(record)) {
                entries.push(Entry::of(self, record));
            }
        }
        entries
    }

    /// Its name in headings.
    pub(super) fn name(self) -> String {
        format!("{}, {}", self.work, self.place.name())
    }

    /// What the work is.
    pub(super) fn about(self) -> &'a str {
        works::find(self.work).map_or(self.work, |work| work.about)
    }

    /// The numbers of threads that servers were given.
    pub(super) fn threads(self) -> Vec<usize> {
        let mut threads: Vec<usize> = self
            .samples
            .iter()
            .map(|(_, record)| record.threads)
            .collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }
}

/// Compares two values; nothing is less than anything.
fn by_value(one: Option<f64>, other: Option<f64>) -> Ordering {
    let or_least = |value: Option<f64>| value.unwrap_or(f64::NEG_INFINITY);
    or_least(one).total_cmp(&or_least(other))
}

/// A server with a number of threads, under a work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    /// Under which work, and where.
    pub(super) scene: Scene<'a>,
    /// The server's name.
    pub(super) server: &'a str,
    /// How many threads it was given.
    pub(super) threads: usize,
}

impl<'a> Entry<'a> {
    /// The entry that a record belongs to.
    fn of(scene: Scene<'a>, record: &'a Record) -> Entry<'a> {
        Entry {
            scene,
            server: &record.server,
            threads: record.threads,
        }
    }

    /// Whether a record of its scene belongs to it.
    fn holds(&self, record: &Record) -> bool {
        record.server == self.server && record.threads == self.threads
    }

    /// Its name in tables and plots: with its threads if others have another number.
    pub(super) fn label(&self) -> String {
        match self.scene.threads().len() {
            0 | 1 => self.server.to_owned(),
            _ => format!("{} ({})", self.server, self.threads),
        }
    }

    /// Whether it is the server that is to reach the goals.
    pub(super) fn is_ours(&self) -> bool {
        self.server == works::ours_of(self.scene.work)
    }

    /// Whether it is ours in some setting: no peer.
    pub(super) fn is_of_the_house(&self) -> bool {
        self.server.starts_with(OURS)
    }

    /// Its measurements.
    fn samples(&self) -> impl Iterator<Item = &'a Sample<'a>> + '_ {
        self.scene
            .samples
            .iter()
            .filter(|(_, record)| self.holds(record))
    }

    /// Its measurements that count.
    fn counting(&self) -> impl Iterator<Item = &'a Record> + '_ {
        let records = self.samples().map(|(_, record)| *record);
        records.filter(|record| counts(record))
    }

    /// A quantity by sitting. What was measured again has the first value that counts.
    pub(super) fn series(&self, quantity: Quantity) -> Series {
        self.series_of(|record| quantity.of(record))
    }

    fn series_of(&self, value: impl Fn(&Record) -> Option<f64>) -> Series {
        let mut series = Series::new();
        for (sitting, record) in self.samples() {
            let value = counts(record).then(|| value(record)).flatten();
            let known = series.entry(*sitting).or_default();
            *known = known.or(value);
        }
        series
    }

    /// Where a quantity lies.
    pub(super) fn spread(&self, quantity: Quantity) -> Option<Spread> {
        Spread::of_series(&self.series(quantity))
    }

    /// This one / that one, of the rounds in which both count and the cores were as far from each other.
    pub(super) fn ratios_to(&self, peer: &Entry<'_>, quantity: Quantity) -> Ratios {
        let sittings: BTreeSet<usize> = self
            .samples()
            .chain(peer.samples())
            .map(|it| it.0)
            .collect();
        let ratio = |sitting: &usize| {
            let (ours, theirs) = (self.counting_in(*sitting)?, peer.counting_in(*sitting)?);
            ratio_of(ours, theirs, quantity)
        };
        Ratios::of(sittings.iter().map(ratio))
    }

    /// Its measurement in a sitting; of one that was repeated, the first that counts.
    fn counting_in(&self, sitting: usize) -> Option<&'a Record> {
        let mut records = self.samples().filter(|sample| sample.0 == sitting);
        records.find_map(|(_, record)| counts(record).then_some(*record))
    }

    /// The median of a quantity.
    fn median(&self, quantity: Quantity) -> Option<f64> {
        self.spread(quantity).map(|spread| spread.median)
    }

    /// Compares medians. Without one it is the least.
    pub(super) fn by_median(&self, other: &Entry<'_>, quantity: Quantity) -> Ordering {
        by_value(self.median(quantity), other.median(quantity))
    }

    /// How many of its measurements count, of how many.
    pub(super) fn counted(&self) -> (usize, usize) {
        (self.counting().count(), self.samples().count())
    }

    /// The shortest measurement that counts, in seconds.
    pub(super) fn shortest(&self) -> f64 {
        let seconds = self.counting().map(|record| record.load.seconds);
        seconds.fold(f64::INFINITY, f64::min)
    }
}

/// The ratio of two measurements of one round: of the slices that lie side by side, if one was measured beside the other,
/// or both beside a third, and slices tell the quantity; else of the sums.
fn ratio_of(one: &Record, other: &Record, quantity: Quantity) -> Option<f64> {
    let [to_one, to_other] = [one, other].map(|guest| home_to(guest, quantity));
    match [to_one, to_other] {
        [_, Some((home, ratio))] if home == one.name() => Some(ratio),
        [Some((home, ratio)), _] if home == other.name() => Some(ratio.recip()),
        [Some((home, to_one)), Some((same, to_other))] if home == same => Some(to_other / to_one),
        _ => of_sums(one, other, quantity),
    }
}

/// What a measurement was made beside, and that one's ratio to it: the median of those of their slices. What has struck
/// one slice and not its neighbour is an outlier then.
fn home_to(guest: &Record, quantity: Quantity) -> Option<(&str, f64)> {
    let beside = guest.slices.as_ref()?.beside.as_ref()?;
    let pairs = beside.pairs.iter();
    let ratios = pairs.map(|(it, home)| ratio(quantity.of_slice(home), quantity.of_slice(it)));
    let spread = Spread::of(ratios.collect::<Option<Vec<_>>>()?)?;
    Some((&beside.of, spread.median))
}

/// The ratio of all that was measured, if the cores were as far from each other.
fn of_sums(one: &Record, other: &Record, quantity: Quantity) -> Option<f64> {
    match one.distance.zip(other.distance) {
        Some((one, other)) if !distance::is_same(one, other) => None,
        _ => ratio(quantity.of(one), quantity.of(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::{Beside, Slice, Slices},
        report::synthetic::{record, run_of},
    };

    #[test]
    fn servers_are_listed_once_and_by_throughput() {
        let run = run_of(vec![
            record("short-requests", "bare", 0, 100.0),
            record("short-requests", "tokio", 0, 200.0),
            record("short-requests", "bare", 1, 110.0),
            record("one-connection", "may", 0, 900.0),
        ]);
        let samples = Samples::of(&run);
        let entries = samples.scene("short-requests", Place::Apart).entries();
        let names: Vec<&str> = entries.iter().map(|entry| entry.server).collect();
        assert_eq!(names, ["tokio", "bare"]);
    }

    #[test]
    fn a_round_that_was_repeated_counts_once() {
        let mut disturbed = record("short-requests", "bare", 0, 100.0);
        disturbed.clean = false;
        let run = run_of(vec![disturbed, record("short-requests", "bare", 0, 110.0)]);
        let samples = Samples::of(&run);
        let entry = samples.scene("short-requests", Place::Apart).entries()[0];
        let series = entry.series(Quantity::Throughput);
        assert_eq!(series.into_values().collect::<Vec<_>>(), [Some(110.0)]);
        assert_eq!(entry.counted(), (1, 2));
    }

    #[test]
    fn rounds_of_the_same_number_that_lie_apart_are_no_pairs() {
        let made = |server, round| record("short-requests", server, round, 100.0);
        let order = [
            ("bare", 0),
            ("bare", 1),
            ("may", 0),
            ("bare", 0),
            ("may", 1),
            ("bare", 2),
        ];
        let run = run_of(order.map(|(server, round)| made(server, round)).to_vec());
        let samples = Samples::of(&run);
        let entries = samples.scene("short-requests", Place::Apart).entries();
        let ratios = entries[0].ratios_to(&entries[1], Quantity::Throughput);
        assert_eq!((ratios.pairs(), ratios.lost), (1, 4));
    }

    #[test]
    fn near_and_far_cores_are_no_pair() {
        let made = |server, round, distance| Record {
            distance: Some(distance),
            ..record("short-requests", server, round, 100.0)
        };
        let run = run_of(vec![
            made("bare", 0, 92.0),
            made("may", 0, 95.0),
            made("bare", 1, 92.0),
            made("may", 1, 345.0),
        ]);
        let samples = Samples::of(&run);
        let entries = samples.scene("short-requests", Place::Apart).entries();
        let ratios = entries[0].ratios_to(&entries[1], Quantity::Throughput);
        assert_eq!((ratios.pairs(), ratios.lost), (1, 1));
    }

    fn slice(requests: u64) -> Slice {
        Slice {
            requests,
            seconds: 0.5,
            server_cpu: 0.5,
            ..Slice::default()
        }
    }

    /// A measurement, and what its home did beside it.
    fn sliced(server: &str, requests: [u64; 3], home: Option<(&str, [u64; 3])>) -> Record {
        let mut record = record(
            "short-requests",
            server,
            0,
            requests.iter().sum::<u64>() as f64,
        );
        let own = requests.map(slice);
        record.slices = Some(Slices {
            kept: own.to_vec(),
            made_again: 0,
            beside: home.map(|(of, requests)| Beside {
                of: of.to_owned(),
                pairs: own.into_iter().zip(requests.map(slice)).collect(),
            }),
        });
        record
    }

    /// The host took the core away in one slice of one server: the sums differ by far, the ratio hardly. And it does not
    /// matter what the home did elsewhere.
    #[test]
    fn one_bad_slice_does_not_move_a_ratio() {
        let run = run_of(vec![
            sliced("bare", [900; 3], None),
            sliced(
                "may",
                [105, 20, 126],
                Some(("short-requests apart bare", [100, 110, 120])),
            ),
            sliced(
                "tokio",
                [50, 50, 50],
                Some(("short-requests apart bare", [100, 100, 100])),
            ),
        ]);
        let samples = Samples::of(&run);
        let scene = samples.scene("short-requests", Place::Apart);
        let ratio = |one, other, quantity| {
            let (one, other) = (scene.find(one).unwrap(), scene.find(other).unwrap());
            one.ratios_to(&other, quantity).values[0]
        };
        let about = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9);
        about(ratio("may", "bare", Quantity::Throughput), 1.05);
        about(ratio("bare", "may", Quantity::Throughput), 1.0 / 1.05);
        about(ratio("may", "bare", Quantity::Cpu), 1.0 / 1.05);
        about(ratio("may", "tokio", Quantity::Throughput), 2.1);
        // Slices do not have it here: it is of the sums.
        let sums = |server: &str| {
            Quantity::P99.of(run.records.iter().find(|it| it.server == server).unwrap())
        };
        let of_sums = sums("may").unwrap() / sums("bare").unwrap();
        about(ratio("may", "bare", Quantity::P99), of_sums);
    }

    #[test]
    fn wrong_replies_and_none_at_all_do_not_count() {
        let mut wrong = record("short-requests", "bare", 0, 100.0);
        wrong.load.errors = 1;
        let run = run_of(vec![wrong, record("short-requests", "bare", 1, 0.0)]);
        let samples = Samples::of(&run);
        let entry = samples.scene("short-requests", Place::Apart).entries()[0];
        assert_eq!(entry.spread(Quantity::Cpu), None);
        assert_eq!(entry.counted(), (0, 2));
    }

    #[test]
    fn settings_of_ours_are_no_peers_and_not_ours() {
        let run = run_of(vec![record("short-requests", "paceline-eager", 0, 100.0)]);
        let samples = Samples::of(&run);
        let scene = samples.scene("short-requests", Place::Apart);
        assert!(scene.ours().is_none());
        assert!(scene.entries()[0].is_of_the_house());
    }
}
