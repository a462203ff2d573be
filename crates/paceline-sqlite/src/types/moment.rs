//! The parts of a moment: what `extract` and `date_trunc` return.

use super::time;

/// A date with a time, without a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Microseconds since 2000-01-01.
    micros: i64,
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Field {
    Whole(i64),
    /// With a fraction of microseconds.
    Seconds(f64),
}

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// Days from Monday 1999-12-27 to 2000-01-01.
const FROM_MONDAY: i64 = 5;

impl Moment {
    pub(crate) fn read(text: &str) -> Option<Self> {
        let micros = time::timestamp(text.trim())?;
        Some(Self { micros })
    }

    fn day(self) -> i64 {
        self.micros.div_euclid(DAY)
    }

    /// The microseconds since midnight.
    fn clock(self) -> i64 {
        self.micros.rem_euclid(DAY)
    }

    /// The field of this name; `None` if there is none.
    pub(crate) fn field(self, name: &str) -> Option<Field> {
        let (year, month, day) = time::civil_of(self.day());
        let clock = self.clock();
        let weekday = (self.day() + FROM_MONDAY).rem_euclid(7);
        Some(match name.to_ascii_lowercase().as_str() {
            "year" => Field::Whole(year),
            "month" => Field::Whole(month),
            "day" => Field::Whole(day),
            "hour" => Field::Whole(clock / (3_600 * SECOND)),
            "minute" => Field::Whole(clock / (60 * SECOND) % 60),
            "second" => Field::Seconds((clock % (60 * SECOND)) as f64 / SECOND as f64),
            "milliseconds" => Field::Seconds((clock % (60 * SECOND)) as f64 / 1_000.0),
            "microseconds" => Field::Whole(clock % (60 * SECOND)),
            "quarter" => Field::Whole((month - 1) / 3 + 1),
            "decade" => Field::Whole(year.div_euclid(10)),
            "century" => Field::Whole((year + 99).div_euclid(100)),
            "dow" => Field::Whole((weekday + 1) % 7),
            "isodow" => Field::Whole(weekday + 1),
            "doy" => Field::Whole(self.day() - time::day_of(year, 1, 1) + 1),
            "epoch" => Field::Seconds((self.micros + time::UNIX_TO_2000) as f64 / SECOND as f64),
            _ => return None,
        })
    }

    /// The text of the moment with the smaller fields at their start.
    pub(crate) fn truncated(self, unit: &str) -> Option<String> {
        let (year, month, _) = time::civil_of(self.day());
        let start_of = |year, month| time::day_of(year, month, 1) * DAY;
        let cut = |length: i64| self.micros - self.micros.rem_euclid(length);
        let micros = match unit.to_ascii_lowercase().as_str() {
            "microseconds" => self.micros,
            "milliseconds" => cut(1_000),
            "second" => cut(SECOND),
            "minute" => cut(60 * SECOND),
            "hour" => cut(3_600 * SECOND),
            "day" => cut(DAY),
            "week" => (self.day() - (self.day() + FROM_MONDAY).rem_euclid(7)) * DAY,
            "month" => start_of(year, month),
            "quarter" => start_of(year, (month - 1) / 3 * 3 + 1),
            "year" => start_of(year, 1),
            "decade" => start_of(year.div_euclid(10) * 10, 1),
            _ => return None,
        };
        Some(time::timestamp_text(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_postgresqls() {
        let moment = Moment::read("2024-02-29 13:14:15.5").expect("a moment");
        for (name, number) in [
            ("year", 2024),
            ("month", 2),
            ("day", 29),
            ("hour", 13),
            ("minute", 14),
            ("quarter", 1),
            ("dow", 4),
            ("isodow", 4),
            ("doy", 60),
        ] {
            assert_eq!(moment.field(name), Some(Field::Whole(number)), "{name}");
        }
        assert_eq!(moment.field("second"), Some(Field::Seconds(15.5)));
        assert_eq!(moment.field("epoch"), Some(Field::Seconds(1_709_212_455.5)));
        assert_eq!(moment.field("fortnight"), None);
    }

    #[test]
    fn moments_are_truncated() {
        let moment = Moment::read("2024-02-29 13:14:15.5").expect("a moment");
        for (unit, text) in [
            ("second", "2024-02-29 13:14:15"),
            ("hour", "2024-02-29 13:00:00"),
            ("week", "2024-02-26 00:00:00"),
            ("month", "2024-02-01 00:00:00"),
            ("year", "2024-01-01 00:00:00"),
        ] {
            assert_eq!(moment.truncated(unit).as_deref(), Some(text), "{unit}");
        }
    }
}
