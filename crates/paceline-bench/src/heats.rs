//! Which servers are measured beside each other: in heats of a few.
//!
//! ```text
//!         heat                     heat                  the first again
//!   | bare | ours | tokio |  | ours | asio | half-sync |  | tokio | bare | ours |  ...
//! ```
//!
//! Every server is compared with ours, its *home*, so that one takes part in each of its heats: a ratio is of two slices
//! that lie side by side. Disturbances of a shared machine last for seconds, so a heat is short. If others
//! used the machine during one, or the host moved its cores, it is made again as a whole. On a machine that is never
//! quiet the remaining heats are accepted as they are, and their comparisons do not count.

use std::io;

use indicatif::ProgressBar;

use crate::{
    distance,
    homes::homes,
    progress::say,
    random::Random,
    record::Slice,
    round::{Demand, Entry, Wanted},
};

/// So many at most are measured beside their home.
const GUESTS: usize = 2;
/// How often a heat is made at most, in the mean.
const ATTEMPTS: usize = 3;

/// What takes part in heats.
pub(crate) trait Slicing {
    /// Measures a slice, which is kept or forgotten later.
    fn slice(&mut self, seconds: f64) -> io::Result<Sliced>;

    /// The last slice counts.
    fn keep(&mut self);

    /// It does not, if there is one.
    fn forget(&mut self);

    /// Whether it has slices that count.
    fn has_any(&self) -> bool;

    /// The last slice, if it is neither kept nor forgotten.
    fn last(&self) -> Option<Slice>;

    /// The last slice was measured beside this one, of its home.
    fn note_home(&mut self, slice: Slice);

    /// Something was kept that had been disturbed.
    fn note_disturbed(&mut self);
}

/// How a slice was.
#[must_use]
pub(crate) enum Sliced {
    /// Nothing has disturbed it, and the cores were so far from each other.
    Quiet(Distance),
    Disturbed(String),
}

/// How far the cores are from each other. Where there is only one, nothing.
pub(crate) type Distance = Option<f64>;

/// That the cores were not moved.
pub(crate) fn check_distance(before: Distance, after: Distance) -> Result<(), String> {
    match before.zip(after) {
        Some((before, after)) if !distance::is_same(before, after) => Err(format!(
            "the host moved the cores: a cache line took {before:.0} ns, then {after:.0}"
        )),
        _ => Ok(()),
    }
}

/// A home and its guests, by their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heat {
    home: usize,
    /// All of them, the home too, in the order in which they are measured.
    places: Vec<usize>,
    /// How many slices of each are missing.
    missing: usize,
    /// How often it may still be tried.
    left: usize,
}

impl Heat {
    /// How many take part beside the home.
    pub(crate) fn guests(&self) -> usize {
        self.places.len().saturating_sub(1)
    }

    /// How many measurements it is: of its guests, or of a home that has none.
    pub(crate) fn measured(&self) -> usize {
        self.guests().max(1)
    }

    fn is_open(&self) -> bool {
        self.missing > 0 && self.left > 0 && !self.places.is_empty()
    }

    /// Whether there can't be enough quiet ones any more.
    fn gives_up(&self) -> bool {
        self.left <= self.missing
    }

    /// A server that can't be measured takes no part. Without a home none does.
    fn leave_out(&mut self, place: usize) {
        if place == self.home {
            self.places.clear()
        } else {
            self.places.retain(|other| *other != place)
        }
    }

    /// Makes it once.
    fn run<S: Slicing>(
        &mut self,
        stands: &mut [S],
        wanted: Wanted,
        random: &mut Random,
    ) -> Result<(), Trouble> {
        let gives_up = self.gives_up() && wanted.demand == Demand::Quiet;
        let demand = if gives_up {
            Demand::Nothing
        } else {
            wanted.demand
        };
        self.left -= 1;
        random.shuffle(&mut self.places);
        let run = self.measure(stands, wanted.each, demand);
        if run.is_ok() {
            self.keep(stands, gives_up)
        } else {
            self.places.iter().for_each(|at| stands[*at].forget())
        }
        run
    }

    /// One slice of each, one after the other; if they are to be quiet, with the cores as far from each other.
    fn measure<S: Slicing>(
        &self,
        stands: &mut [S],
        seconds: f64,
        demand: Demand,
    ) -> Result<(), Trouble> {
        let mut first = None;
        for &place in &self.places {
            let slice = stands[place].slice(seconds);
            match slice.map_err(|error| Trouble::Failed(place, error))? {
                _ if demand == Demand::Nothing => {}
                Sliced::Disturbed(why) => return Err(Trouble::Disturbed(place, why)),
                Sliced::Quiet(distance) => {
                    let first = *first.get_or_insert(distance);
                    check_distance(first, distance)
                        .map_err(|why| Trouble::Disturbed(place, why))?;
                }
            }
        }
        Ok(())
    }

    /// Keeps what was measured. What was disturbed is only its guests' affair, if the home has anything better.
    fn keep<S: Slicing>(&mut self, stands: &mut [S], disturbed: bool) {
        self.missing -= 1;
        let of_home = stands[self.home].last();
        for &place in self.places.iter().filter(|place| **place != self.home) {
            let guest = &mut stands[place];
            of_home.into_iter().for_each(|slice| guest.note_home(slice));
            guest.keep();
            if disturbed {
                guest.note_disturbed();
            }
        }
        let home = &mut stands[self.home];
        if disturbed && home.has_any() {
            home.forget();
            return;
        }
        home.keep();
        if disturbed {
            home.note_disturbed();
        }
    }
}

/// Why a heat does not count.
enum Trouble {
    /// The one at this place was disturbed.
    Disturbed(usize, String),
    /// That one can't be measured.
    Failed(usize, io::Error),
}

/// The heats of these entries, which are drawn by lot, each until there are so many slices.
pub(crate) fn draw(entries: &[Entry], slices: usize, random: &mut Random) -> Vec<Heat> {
    let homes = homes(entries);
    let mut heats = Vec::new();
    for home in 0..entries.len() {
        let mut guests: Vec<usize> = (0..entries.len())
            .filter(|&at| homes[at] == Some(home))
            .collect();
        random.shuffle(&mut guests);
        let mut heat = |guests: &[usize]| {
            heats.push(Heat {
                home,
                places: [&[home], guests].concat(),
                missing: slices,
                left: slices * ATTEMPTS,
            });
        };
        if guests.is_empty() && homes[home].is_none() {
            heat(&[]);
        } else {
            guests.chunks(GUESTS).for_each(heat);
        }
    }
    heats
}

/// One heat after the other, until each has been made often enough. Those that can't be measured, with the reason.
pub(crate) fn take_turns<S: Slicing>(
    stands: &mut [S],
    mut heats: Vec<Heat>,
    wanted: Wanted,
    random: &mut Random,
    bar: &ProgressBar,
    name: impl Fn(usize) -> String,
) -> Vec<(usize, io::Error)> {
    let mut failed = Vec::new();
    while heats.iter().any(Heat::is_open) {
        random.shuffle(&mut heats);
        // Those that give up come last: by then their home has something better, if anything is.
        let has_hope = |heat: &Heat| heat.is_open() && !heat.gives_up();
        let hope = heats.iter().any(has_hope);
        for at in 0..heats.len() {
            if !heats[at].is_open() || hope && heats[at].gives_up() {
                continue;
            }
            bar.set_message(name(heats[at].home));
            match heats[at].run(stands, wanted, random) {
                Ok(()) => bar.inc(heats[at].measured() as u64),
                Err(Trouble::Disturbed(place, why)) => {
                    say(bar, &format!("once more: {}: {why}", name(place)));
                }
                Err(Trouble::Failed(place, error)) => {
                    heats.iter_mut().for_each(|heat| heat.leave_out(place));
                    failed.push((place, error));
                }
            }
        }
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{record::Place, servers, works};

    fn apart(work: &str, server: &str) -> Entry {
        Entry {
            work: works::find(work).unwrap(),
            server: servers::find(server).unwrap(),
            place: Place::Apart,
        }
    }

    /// Each guest has one heat, each heat has its home, and a server without a comparison has one alone.
    #[test]
    fn everybody_is_drawn_once() {
        let entries = [
            apart("short-requests", "bare"),
            apart("short-requests", "paceline"),
            apart("short-requests", "tokio"),
            apart("short-requests", "half-sync"),
            apart("one-connection", "may"),
        ];
        let mut random = Random::from_seed(1);
        let heats = draw(&entries, 6, &mut random);
        let mut guests: Vec<usize> = Vec::new();
        for heat in &heats {
            assert!(heat.places.contains(&heat.home) && heat.places.len() <= GUESTS + 1);
            guests.extend(heat.places.iter().filter(|place| **place != heat.home));
        }
        guests.sort_unstable();
        assert_eq!(guests, [0, 2, 3]);
        let alone: Vec<usize> = heats
            .iter()
            .filter(|heat| heat.guests() == 0)
            .map(|heat| heat.home)
            .collect();
        assert_eq!((heats.len(), alone), (3, vec![4]));
    }

    /// A stand that says what its slices are like, the last for ever.
    struct Script {
        slices: Vec<Result<Sliced, io::ErrorKind>>,
        /// The number of its last slice, if that is neither kept nor forgotten.
        last: Option<usize>,
        made: usize,
        kept: usize,
        forgotten: usize,
        /// How many slices of its home it knows.
        beside: usize,
        disturbed: bool,
    }

    fn script<const N: usize>(mut slices: [Result<Sliced, io::ErrorKind>; N]) -> Script {
        slices.reverse();
        Script {
            slices: slices.into(),
            last: None,
            made: 0,
            kept: 0,
            forgotten: 0,
            beside: 0,
            disturbed: false,
        }
    }

    const NEAR: Result<Sliced, io::ErrorKind> = Ok(Sliced::Quiet(Some(90.0)));
    const FAR: Result<Sliced, io::ErrorKind> = Ok(Sliced::Quiet(Some(340.0)));
    const DISTURBED: Result<Sliced, io::ErrorKind> = Ok(Sliced::Disturbed(String::new()));
    const FAILED: Result<Sliced, io::ErrorKind> = Err(io::ErrorKind::BrokenPipe);

    impl Slicing for Script {
        fn slice(&mut self, _: f64) -> io::Result<Sliced> {
            assert_eq!(self.last, None, "it was neither kept nor forgotten");
            self.made += 1;
            self.last = Some(self.made);
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
            self.kept += usize::from(self.last.take().is_some());
        }

        fn forget(&mut self) {
            self.forgotten += usize::from(self.last.take().is_some());
        }

        fn has_any(&self) -> bool {
            self.kept > 0
        }

        fn last(&self) -> Option<Slice> {
            let requests = self.last? as u64;
            Some(Slice {
                requests,
                ..Slice::default()
            })
        }

        fn note_home(&mut self, _: Slice) {
            self.beside += 1;
        }

        fn note_disturbed(&mut self) {
            self.disturbed = true;
        }
    }

    /// One home, two guests, and two slices of each that are wanted.
    fn turns(mut stands: [Script; 3], demand: Demand) -> ([Script; 3], Vec<usize>) {
        let heat = Heat {
            home: 0,
            places: vec![0, 1, 2],
            missing: 2,
            left: 2 * ATTEMPTS,
        };
        let wanted = Wanted {
            slices: 2,
            each: 0.5,
            demand,
        };
        let (mut random, bar) = (Random::from_seed(1), ProgressBar::hidden());
        let failed = take_turns(
            &mut stands,
            vec![heat],
            wanted,
            &mut random,
            &bar,
            |at: usize| at.to_string(),
        );
        (stands, failed.into_iter().map(|(place, _)| place).collect())
    }

    #[test]
    fn all_have_as_many_slices_and_know_those_of_their_home() {
        let (stands, failed) = turns([NEAR, NEAR, NEAR].map(|it| script([it])), Demand::Quiet);
        assert_eq!(stands.each_ref().map(|it| it.kept), [2; 3]);
        assert_eq!(stands.each_ref().map(|it| it.beside), [0, 2, 2]);
        assert_eq!(stands.each_ref().map(|it| it.forgotten), [0; 3]);
        assert!(failed.is_empty() && stands.iter().all(|it| !it.disturbed));
    }

    /// One is the home of the next, and that one of the last.
    #[test]
    fn a_guest_may_be_a_home() {
        let heat = |home, guest| Heat {
            home,
            places: vec![home, guest],
            missing: 2,
            left: 2 * ATTEMPTS,
        };
        let mut stands = [NEAR, NEAR, NEAR].map(|it| script([it]));
        let wanted = Wanted {
            slices: 2,
            each: 0.5,
            demand: Demand::Quiet,
        };
        let heats = vec![heat(0, 1), heat(1, 2)];
        let (mut random, bar) = (Random::from_seed(1), ProgressBar::hidden());
        let name = |at: usize| at.to_string();
        let failed = take_turns(&mut stands, heats, wanted, &mut random, &bar, name);
        assert!(failed.is_empty());
        assert_eq!(stands.each_ref().map(|it| it.kept), [2, 4, 2]);
        assert_eq!(stands.each_ref().map(|it| it.beside), [0, 2, 2]);
    }

    /// Neither a slice that was disturbed counts, nor those beside it.
    #[test]
    fn a_disturbed_heat_is_made_again() {
        let stands = [script([NEAR]), script([DISTURBED, NEAR]), script([NEAR])];
        let (stands, _) = turns(stands, Demand::Quiet);
        assert_eq!(stands.each_ref().map(|it| it.kept), [2; 3]);
        assert_eq!(stands[1].forgotten, 1);
        assert!(stands.iter().all(|it| it.made == 2 + it.forgotten));
        assert!(stands.iter().all(|it| !it.disturbed));
    }

    /// What was measured with the cores near and far is not compared.
    #[test]
    fn a_heat_at_two_distances_is_made_again() {
        let stands = [script([NEAR]), script([FAR, NEAR]), script([NEAR])];
        let (stands, _) = turns(stands, Demand::Quiet);
        assert_eq!(stands.each_ref().map(|it| it.kept), [2; 3]);
        assert_eq!(stands[1].forgotten, 1);
    }

    /// A machine that is never quiet has figures all the same, and they do not count; unless that was wanted.
    #[test]
    fn where_it_is_never_quiet_slices_are_taken_as_they_come() {
        let stands = || [script([NEAR]), script([DISTURBED]), script([NEAR])];
        let (measured, _) = turns(stands(), Demand::Quiet);
        assert_eq!(measured.each_ref().map(|it| it.beside), [0, 2, 2]);
        assert_eq!(measured.each_ref().map(|it| it.disturbed), [true; 3]);
        let (measured, _) = turns(stands(), Demand::Nothing);
        assert_eq!(measured.each_ref().map(|it| it.kept), [2; 3]);
        assert_eq!(measured.each_ref().map(|it| it.disturbed), [false; 3]);
    }

    /// A server that can't be measured is left out, and the others continue.
    #[test]
    fn a_guest_that_fails_does_not_stop_the_others() {
        let stands = [script([NEAR]), script([FAILED]), script([NEAR])];
        let (stands, failed) = turns(stands, Demand::Quiet);
        assert_eq!(failed, [1]);
        assert_eq!(stands.each_ref().map(|it| it.kept), [2, 0, 2]);
    }

    #[test]
    fn without_a_home_nobody_is_measured() {
        let stands = [script([FAILED]), script([NEAR]), script([NEAR])];
        let (stands, failed) = turns(stands, Demand::Quiet);
        assert_eq!(failed, [0]);
        assert_eq!(stands.each_ref().map(|it| it.kept), [0; 3]);
    }

    #[test]
    fn cores_that_were_moved_are_reported() {
        assert_eq!(check_distance(Some(90.0), Some(100.0)), Ok(()));
        assert_eq!(check_distance(None, Some(100.0)), Ok(()));
        let message = check_distance(Some(90.0), Some(340.0)).unwrap_err();
        assert!(message.contains("90 ns, then 340"), "{message}");
    }
}
