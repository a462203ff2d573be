//! Figures as text. What is no number is a dash.

use crate::statistics::{Ratios, Spread};

/// The cell without a figure.
const NOTHING: &str = "-";

/// How many decimals show three digits of a value.
fn decimals(value: f64) -> usize {
    match value.abs() {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        value if value >= 0.9995 || value == 0.0 => 2,
        _ => 3,
    }
}

/// A value with about three digits.
pub(super) fn number(value: f64) -> String {
    fixed(value, decimals(value))
}

/// A value with so many decimals.
pub(super) fn fixed(value: f64, decimals: usize) -> String {
    if value.is_finite() {
        format!("{value:.decimals$}")
    } else {
        NOTHING.to_owned()
    }
}

/// `median [min-max]`, in units of `unit`.
pub(super) fn spread(spread: Option<Spread>, unit: f64) -> String {
    let Some(spread) = spread else {
        return NOTHING.to_owned();
    };
    let decimals = decimals(spread.median / unit);
    let text = |value: f64| fixed(value / unit, decimals);
    format!(
        "{} [{}-{}]",
        text(spread.median),
        text(spread.min),
        text(spread.max)
    )
}

/// The median alone, in units of `unit`.
pub(super) fn median(spread: Option<Spread>, unit: f64) -> String {
    spread.map_or(NOTHING.to_owned(), |spread| number(spread.median / unit))
}

/// Fewer pairs than these decide nothing, and have no interval that could be believed.
pub(super) const ENOUGH: usize = 5;

/// `median [interval]` of ratios; where there are few pairs, how many.
pub(super) fn ratio(ratios: &Ratios, decimals: usize) -> String {
    let Some(spread) = ratios.spread() else {
        return NOTHING.to_owned();
    };
    let median = fixed(spread.median, decimals);
    match ratios.interval() {
        _ if ratios.pairs() < ENOUGH => format!("{median} [{}]", plural(ratios.pairs(), "pair")),
        Some(interval) => {
            let (low, high) = (
                fixed(interval.low, decimals),
                fixed(interval.high, decimals),
            );
            format!("{median} [{low}-{high}]")
        }
        None => median,
    }
}

/// So many of something.
fn plural(count: usize, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        _ => format!("{count} {thing}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_three_digits_are_shown() {
        let shown = [0.0123, 0.5, 4.456, 12.34, 187.6, 16_042.0].map(number);
        assert_eq!(shown, ["0.012", "0.500", "4.46", "12.3", "188", "16042"]);
        assert_eq!(number(0.0), "0.00");
    }

    #[test]
    fn what_is_no_number_is_a_dash() {
        assert_eq!([f64::NAN, f64::INFINITY].map(number), ["-", "-"]);
        assert_eq!(spread(None, 1.0), "-");
        assert_eq!(ratio(&Ratios::default(), 2), "-");
    }

    #[test]
    fn a_spread_has_the_decimals_of_its_median() {
        let values = Spread::of([9_500.0, 9_970.0, 10_210.0]);
        assert_eq!(spread(values, 1e3), "9.97 [9.50-10.21]");
    }

    #[test]
    fn few_pairs_have_no_interval() {
        let ratio_of = |values: &[f64]| {
            let (values, lost) = (values.to_vec(), 0);
            ratio(&Ratios { values, lost }, 2)
        };
        assert_eq!(ratio_of(&[1.5]), "1.50 [1 pair]");
        assert_eq!(ratio_of(&[1.5; 4]), "1.50 [4 pairs]");
        assert_eq!(ratio_of(&[1.5; 5]), "1.50 [1.50-1.50]");
    }
}
