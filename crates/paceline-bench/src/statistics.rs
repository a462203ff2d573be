//! Medians, spreads and ratios of paired rounds.
//!
//! A shared machine drifts: what ran an hour ago was measured on another machine, as it were. So two servers are
//! compared only within a round, where they ran minutes apart: first the ratio of each round, then the median of
//! these ratios, and how far that median could have come out differently.
//!
//! ```text
//!  ours:  round -> value  \
//!                          >  ratio per round  ->  median, [min-max], 95 % interval     [Ratios]
//!  peer:  round -> value  /
//! ```

use std::collections::BTreeMap;

use crate::random::Random;

/// How often the bootstrap draws anew.
const DRAWS: usize = 2000;

/// Where the bootstrap starts: fixed, so that the same records give the same report.
const SEED: u64 = 0x5eed_0f0a_9ace_11fe;

/// A value per round; nothing where that round's measurement was discarded.
pub(crate) type Series = BTreeMap<usize, Option<f64>>;

/// Where some values lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// The value in the middle.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The greatest.
    pub(crate) max: f64,
    /// A quarter of the values are below.
    pub(crate) lower_quartile: f64,
    /// A quarter of the values are above.
    pub(crate) upper_quartile: f64,
    /// How many there are.
    pub(crate) count: usize,
}

impl Spread {
    /// The spread of some values. What is no number is left out; of nothing there is none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let sorted = sorted(values);
        Some(Spread {
            median: quantile(&sorted, 0.5)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
            lower_quartile: quantile(&sorted, 0.25)?,
            upper_quartile: quantile(&sorted, 0.75)?,
            count: sorted.len(),
        })
    }

    /// The spread of a series' clean rounds.
    pub(crate) fn of_series(series: &Series) -> Option<Spread> {
        Spread::of(series.values().copied().flatten())
    }
}

/// From here to there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    /// Its lower end.
    pub(crate) low: f64,
    /// Its upper end.
    pub(crate) high: f64,
}

/// The ratios ours / peer, of the rounds in which both were clean.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ratios {
    /// One ratio per pair, in the order of the rounds.
    pub(crate) values: Vec<f64>,
    /// Rounds in which one of the two ran, and that gave no pair.
    pub(crate) lost: usize,
}

impl Ratios {
    /// Of the rounds in which one of the two ran: their ratios, or nothing.
    pub(crate) fn of(rounds: impl IntoIterator<Item = Option<f64>>) -> Ratios {
        let (mut values, mut lost) = (Vec::new(), 0);
        for ratio in rounds {
            match ratio {
                Some(ratio) => values.push(ratio),
                None => lost += 1,
            }
        }
        Ratios { values, lost }
    }

    /// How many pairs there are.
    pub(crate) fn pairs(&self) -> usize {
        self.values.len()
    }

    /// Where the ratios lie.
    pub(crate) fn spread(&self) -> Option<Spread> {
        Spread::of(self.values.iter().copied())
    }

    /// Where their median lies, with a confidence of 95 %: a bootstrap over the rounds. One pair says nothing
    /// about the next, so it has no interval.
    pub(crate) fn interval(&self) -> Option<Interval> {
        if self.values.len() < 2 {
            return None;
        }
        let mut random = Random::from_seed(SEED);
        let mut drawn = self.values.clone();
        let medians = sorted((0..DRAWS).filter_map(|_| self.drawn_median(&mut random, &mut drawn)));
        Some(Interval {
            low: quantile(&medians, 0.025)?,
            high: quantile(&medians, 0.975)?,
        })
    }

    /// The median of as many ratios as there are, each drawn from all of them into `drawn`.
    fn drawn_median(&self, random: &mut Random, drawn: &mut [f64]) -> Option<f64> {
        for place in drawn.iter_mut() {
            *place = self.values[random.below(self.values.len())];
        }
        drawn.sort_unstable_by(f64::total_cmp);
        quantile(drawn, 0.5)
    }
}

/// The ratio of two values, if both are there and it is a number.
pub(crate) fn ratio(ours: Option<f64>, peer: Option<f64>) -> Option<f64> {
    let ratio = ours? / peer?;
    ratio.is_finite().then_some(ratio)
}

/// The numbers among the values, in ascending order.
fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values
        .into_iter()
        .filter(|value| value.is_finite())
        .collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The value below which this part of the sorted values lies; between two of them, by a straight line.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let place = part * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (
        sorted[place.floor() as usize],
        sorted[place.ceil() as usize],
    );
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Pairs two series by their rounds.
    fn of(ours: &Series, peer: &Series) -> Ratios {
        let rounds: BTreeSet<_> = ours.keys().chain(peer.keys()).collect();
        let clean = |series: &Series, round| series.get(round).copied().flatten();
        Ratios::of(
            rounds
                .into_iter()
                .map(|round| ratio(clean(ours, round), clean(peer, round))),
        )
    }

    /// A series of clean rounds from 0.
    fn series(values: &[f64]) -> Series {
        values.iter().copied().map(Some).enumerate().collect()
    }

    #[test]
    fn the_spread_of_five_values_is_theirs_by_rank() {
        let spread = Spread::of([5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 3.0, 5.0));
        assert_eq!((spread.lower_quartile, spread.upper_quartile), (2.0, 4.0));
        assert_eq!(spread.count, 5);
    }

    #[test]
    fn between_two_ranks_the_line_decides() {
        let spread = Spread::of([10.0, 20.0, 30.0, 50.0]).unwrap();
        assert_eq!(spread.median, 25.0);
        assert_eq!((spread.lower_quartile, spread.upper_quartile), (17.5, 35.0));
    }

    #[test]
    fn one_value_is_its_own_spread() {
        let spread = Spread::of([7.0]).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (7.0, 7.0, 7.0));
    }

    #[test]
    fn nothing_and_no_number_have_no_spread() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN, f64::INFINITY]), None);
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        // Unpaired, the medians are 20 and 20; within the rounds we are ahead twice.
        let ratios = of(&series(&[10.0, 20.0, 60.0]), &series(&[5.0, 40.0, 20.0]));
        assert_eq!(ratios.values, [2.0, 0.5, 3.0]);
        assert_eq!(ratios.spread().unwrap().median, 2.0);
        assert_eq!(ratios.lost, 0);
    }

    #[test]
    fn rounds_that_are_not_clean_on_both_sides_are_lost() {
        let ours = Series::from([(0, Some(1.0)), (1, None), (2, Some(3.0)), (3, Some(1.0))]);
        let peer = Series::from([(0, Some(2.0)), (1, Some(1.0)), (2, None), (4, Some(1.0))]);
        let ratios = of(&ours, &peer);
        assert_eq!(ratios.values, [0.5]);
        assert_eq!(ratios.lost, 4);
    }

    #[test]
    fn a_ratio_to_zero_is_no_pair() {
        let ratios = of(&series(&[0.0, 1.0]), &series(&[0.0, 0.0]));
        assert_eq!((ratios.pairs(), ratios.lost), (0, 2));
        assert_eq!((ratios.spread(), ratios.interval()), (None, None));
    }

    #[test]
    fn a_single_pair_has_no_interval() {
        let ratios = of(&series(&[3.0]), &series(&[2.0]));
        assert_eq!(ratios.spread().unwrap().median, 1.5);
        assert_eq!(ratios.interval(), None);
    }

    #[test]
    fn equal_ratios_have_an_interval_without_width() {
        let ratios = of(&series(&[2.0; 6]), &series(&[1.0; 6]));
        let (low, high) = (2.0, 2.0);
        assert_eq!(ratios.interval(), Some(Interval { low, high }));
    }

    #[test]
    fn two_ratios_give_an_interval_from_one_to_the_other() {
        // Drawn are 1 and 1, 1 and 2, or 2 and 2: each end is a quarter of the draws.
        let ratios = of(&series(&[1.0, 2.0]), &series(&[1.0, 1.0]));
        let (low, high) = (1.0, 2.0);
        assert_eq!(ratios.interval(), Some(Interval { low, high }));
    }

    #[test]
    fn an_outlier_does_not_move_the_interval_of_many() {
        // The median of 11 draws is the outlier only if six draws are: once in a few thousand times.
        let ours = [0.98, 0.99, 0.99, 1.0, 1.0, 1.0, 1.01, 1.01, 1.02, 1.02, 9.0];
        let interval = of(&series(&ours), &series(&[1.0; 11])).interval().unwrap();
        assert!(interval.low >= 0.98 && interval.low < 1.0, "{interval:?}");
        assert!(interval.high > 1.0 && interval.high <= 1.02, "{interval:?}");
    }

    #[test]
    fn the_same_ratios_have_the_same_interval() {
        let ratios = of(&series(&[1.0, 2.0, 4.0]), &series(&[1.0; 3]));
        assert_eq!(ratios.interval(), ratios.interval());
    }
}
