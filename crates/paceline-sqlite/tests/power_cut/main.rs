//! What was acknowledged survives a loss of power.
//!
//! A kill does not show that: the system still writes what a dead process has left in its cache. Here a
//! library records, in one order, what the server writes and syncs and what it sends. From the records,
//! disks are made as a loss of power at many moments may leave them: with what was synced alone, or with
//! a random half of the later writes too. The server's own recovery opens each of them.
#![cfg(target_os = "linux")]

mod bank;
mod chance;
#[path = "../common/mod.rs"]
mod common;
mod disk;
mod trace;

use std::{collections::BTreeSet, fmt};

use bank::{Seen, Verdict};
use chance::Chance;
use disk::{Disk, Rest};
use trace::{Record, Recorder};

/// How much is tried.
struct Effort {
    writers: i64,
    transfers: i64,
    cuts: usize,
}

const SHORT: Effort = Effort {
    writers: 6,
    transfers: 100,
    cuts: 40,
};

const LONG: Effort = Effort {
    writers: 12,
    transfers: 1_000,
    cuts: 1_000,
};

/// What remains of the later writes in the images of one cut.
const RESTS: [Rest; 3] = [Rest::Dropped, Rest::Sectors(4096), Rest::Calls];

/// What was found in the images.
#[derive(Debug, Default)]
struct Report {
    images: usize,
    corrupt: Vec<String>,
    lost: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (corrupt, lost) = (self.corrupt.len(), self.lost.len());
        write!(f, "{} images, {corrupt} corrupt, {lost} lost", self.images)
    }
}

impl Report {
    fn add(&mut self, place: &str, verdict: Verdict) {
        self.images += 1;
        match verdict {
            Verdict::Sound => {}
            Verdict::Corrupt(why) => self.corrupt.push(format!("{place}: {why}")),
            Verdict::Lost(why) => self.lost.push(format!("{place}: {why}")),
        }
    }

    fn assert_sound(&self) {
        println!("{self}");
        assert!(self.corrupt.is_empty() && self.lost.is_empty(), "{self:#?}");
    }
}

/// Cuts the power before each of these records. Makes and checks one image for each of [`RESTS`].
fn replay(recorder: &Recorder, records: &[Record], cuts: &BTreeSet<usize>) -> Report {
    let (mut disk, mut seen, mut report) = (Disk::default(), Seen::new(), Report::default());
    let mut chance = Chance::new(records.len() as u64);
    for at in 0..=records.len() {
        if cuts.contains(&at) {
            for rest in RESTS {
                let image = recorder.image();
                disk.write_image(rest, &mut chance, image.path());
                let place = format!("cut {at} of {}, {rest:?}", records.len());
                report.add(&place, bank::check(image.path(), &seen));
            }
        }
        let Some(record) = records.get(at) else {
            break;
        };
        disk.apply(record);
        if let Record::Send { acknowledged } = record {
            bank::note(&mut seen, acknowledged);
        }
    }
    report
}

/// Moments after the founding of the bank: half of them anywhere, half right after an acknowledgement.
fn choose_cuts(records: &[Record], count: usize) -> BTreeSet<usize> {
    let sends = (0..records.len()).filter(|at| records[*at].acknowledges());
    let sends: Vec<usize> = sends.collect();
    assert!(sends.len() > count, "{} acknowledgements", sends.len());
    let (first, mut chance) = (sends[0] + 1, Chance::new(29));
    let mut cuts = BTreeSet::from([first]);
    while cuts.len() < count {
        cuts.insert(sends[chance.below(sends.len())] + 1);
        cuts.insert(first + chance.below(records.len() - first));
    }
    cuts
}

/// Records a load on a server with these options; `None` where it can't be recorded.
fn record_load(effort: &Effort, options: &[&str]) -> Option<(Recorder, Vec<Record>)> {
    let mut recorder = Recorder::new()?;
    let process = recorder.start(options);
    bank::found(&mut common::connect(process.address));
    bank::run(process.address, effort.writers, 1..=effort.transfers);
    process.kill();
    let records = recorder.records();
    Some((recorder, records))
}

/// Whether the load has met what is hard: group commit, and writing the log back into the file.
fn assert_is_hard(records: &[Record], effort: &Effort) {
    let file = records.iter().find_map(|record| match record {
        Record::Open { inode, name } if name == "bank.sqlite" => Some(*inode),
        _ => None,
    });
    let file = file.expect("the file was opened");
    let syncs = records.iter().filter_map(|record| match record {
        Record::SyncEnds { inode, .. } => Some(*inode),
        _ => None,
    });
    let (of_file, others): (Vec<u64>, Vec<u64>) = syncs.partition(|inode| *inode == file);
    let commits = effort.writers * effort.transfers;
    let (of_file, others) = (of_file.len(), others.len());
    println!("{commits} transfers, {others} syncs of the log, {of_file} of the file");
    assert!(of_file > 1, "the log was never written back");
    assert!(
        i64::try_from(others).expect("few") < commits,
        "no sync was shared"
    );
}

/// As the environment asks: `cargo xtask ci --full` asks for the long form.
fn effort() -> Effort {
    match std::env::var("PACELINE_POWER_CUT").as_deref() {
        Ok("long") => LONG,
        Ok(other) => panic!("PACELINE_POWER_CUT is `{other}`; it may be `long`"),
        Err(_) => SHORT,
    }
}

/// Concurrent writers share syncs, the log is written back meanwhile, and the power may fail at any
/// moment: every reply that has left is still true.
#[test]
fn acknowledged_commits_survive_a_loss_of_power() {
    let effort = effort();
    let Some((recorder, records)) = record_load(&effort, &[]) else {
        return;
    };
    assert_is_hard(&records, &effort);
    replay(&recorder, &records, &choose_cuts(&records, effort.cuts)).assert_sound();
}

/// The checker finds a server whose replies wait for no sync in most of its images, and finds no damage:
/// recovery drops what is incomplete.
#[test]
fn replies_that_wait_for_no_sync_are_found() {
    let Some((recorder, records)) = record_load(&SHORT, &["--relaxed"]) else {
        return;
    };
    let report = replay(&recorder, &records, &choose_cuts(&records, SHORT.cuts));
    println!("relaxed: {report}");
    assert!(report.corrupt.is_empty(), "{report:#?}");
    assert!(report.lost.len() * 2 > report.images, "{report}");
}

/// A killed process leaves commits in the log that were never synced. Its successor recovers them and
/// shows them to clients, so it must make them durable first.
#[test]
fn what_a_killed_process_has_left_is_durable_before_it_is_shown() {
    let Some(mut recorder) = Recorder::new() else {
        return;
    };
    let process = recorder.start(&["--relaxed"]);
    bank::found(&mut common::connect(process.address));
    bank::run(process.address, 2, 1..=10);
    process.kill();
    let mut records = recorder.records();
    // The first process has promised nothing.
    for record in &mut records {
        record.forget_acknowledged();
    }
    let process = recorder.start(&[]);
    bank::show(&mut common::connect(process.address));
    bank::run(process.address, 2, 11..=60);
    process.kill();
    let second = recorder.records().split_off(records.len());
    records.extend(second);
    replay(&recorder, &records, &choose_cuts(&records, 12)).assert_sound();
}
