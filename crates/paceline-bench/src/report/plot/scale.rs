//! From values to places, and the values that are written along an axis.

/// From here, greatest / least, a straight scale would hide the small ones.
const WIDE: f64 = 12.0;

/// How many pixels two written values keep between each other.
const ROOM: f64 = 38.0;

/// The digits at which values are written on a logarithmic scale, the most welcome first.
const DIGITS: [f64; 9] = [1.0, 2.0, 5.0, 3.0, 1.5, 7.0, 1.2, 8.0, 9.0];

/// Where values lie along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    /// The values at both ends.
    values: (f64, f64),
    /// The places of both ends, in pixels.
    places: (f64, f64),
    /// Whether equal distances are equal ratios.
    logarithmic: bool,
}

impl Scale {
    /// A straight scale from zero to the greatest of some values.
    pub(super) fn from_zero(values: impl IntoIterator<Item = f64>, places: (f64, f64)) -> Scale {
        let greatest = values.into_iter().fold(0.0, f64::max);
        let end = if greatest > 0.0 { greatest * 1.04 } else { 1.0 };
        Scale {
            values: (0.0, end),
            places,
            logarithmic: false,
        }
    }

    /// A scale from zero, or a logarithmic one if the values are too far apart for that.
    pub(super) fn fitting(values: &[f64], places: (f64, f64)) -> Scale {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = values.iter().copied().fold(0.0, f64::max);
        if least > 0.0 && greatest / least > WIDE {
            Scale::logarithmic((least / 1.3, greatest * 1.15), places)
        } else {
            Scale::from_zero(values.iter().copied(), places)
        }
    }

    /// A logarithmic scale between two positive values.
    pub(super) fn logarithmic(values: (f64, f64), places: (f64, f64)) -> Scale {
        assert!(values.0 > 0.0 && values.1 > values.0, "{values:?}");
        let logarithmic = true;
        Scale {
            values,
            places,
            logarithmic,
        }
    }

    /// Whether equal distances are equal ratios.
    pub(super) fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// The value at its end.
    pub(super) fn end(&self) -> f64 {
        self.values.1
    }

    /// The place of a value; of one beyond the ends, the end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let (low, high) = self.values;
        let part = if self.logarithmic {
            (value.max(low) / low).ln() / (high / low).ln()
        } else {
            (value - low) / (high - low)
        };
        let (start, end) = self.places;
        start + (end - start) * part.clamp(0.0, 1.0)
    }

    /// The values to be written.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            self.logarithmic_ticks()
        } else {
            let step = round_step(self.values.1 / 5.0);
            let count = (self.values.1 / step) as u32;
            (0..=count).map(|index| f64::from(index) * step).collect()
        }
    }

    /// Round values that keep their distance, the most welcome first.
    fn logarithmic_ticks(&self) -> Vec<f64> {
        let (low, high) = self.values;
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let mut ticks: Vec<f64> = Vec::new();
        for digit in DIGITS {
            for value in decades.clone().map(|decade| digit * 10_f64.powi(decade)) {
                let has_room = |tick: &f64| (self.at(*tick) - self.at(value)).abs() >= ROOM;
                if (low..=high).contains(&value) && ticks.iter().all(has_room) {
                    ticks.push(value);
                }
            }
        }
        ticks
    }
}

/// The next step of 1, 2 or 5 that is not less.
fn round_step(step: f64) -> f64 {
    let decade = 10_f64.powf(step.log10().floor());
    let digits = [1.0, 2.0, 5.0, 10.0].into_iter();
    let steps = digits.map(|digit| digit * decade);
    steps
        .into_iter()
        .find(|round| *round >= step * 0.999)
        .unwrap_or(step)
}

/// A value as it is written along an axis.
pub(super) fn tick_text(value: f64) -> String {
    if value >= 1e4 {
        return tick_text(value / 1e3) + "k";
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_values_are_shown_from_zero() {
        let scale = Scale::fitting(&[100.0, 50.0], (0.0, 104.0));
        assert!(!scale.is_logarithmic());
        assert_eq!((scale.at(0.0), scale.at(50.0)), (0.0, 52.0 / 1.04));
        assert_eq!(scale.ticks(), [0.0, 50.0, 100.0]);
    }

    #[test]
    fn values_far_apart_are_shown_by_their_ratios() {
        let scale = Scale::fitting(&[1.0, 100.0], (0.0, 200.0));
        assert!(scale.is_logarithmic());
        let step = scale.at(10.0) - scale.at(1.0);
        assert!((scale.at(100.0) - scale.at(10.0) - step).abs() < 1e-9);
    }

    #[test]
    fn ticks_keep_their_distance_and_hold_one() {
        let scale = Scale::logarithmic((0.5, 20.0), (0.0, 400.0));
        let mut ticks = scale.ticks();
        assert!(ticks.contains(&1.0) && ticks.contains(&10.0));
        ticks.sort_by(f64::total_cmp);
        assert!(ticks
            .windows(2)
            .all(|two| scale.at(two[1]) - scale.at(two[0]) >= ROOM));
    }

    #[test]
    fn nothing_and_zeros_have_a_scale() {
        assert_eq!(Scale::fitting(&[], (0.0, 10.0)).at(0.0), 0.0);
        assert!(Scale::fitting(&[0.0], (0.0, 10.0)).at(0.0).is_finite());
    }

    #[test]
    fn ticks_are_written_short() {
        let texts = [0.0, 0.5, 1.25, 200.0, 19_000.0].map(tick_text);
        assert_eq!(texts, ["0", "0.5", "1.25", "200", "19k"]);
    }
}
