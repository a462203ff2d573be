//! Dates of the Gregorian calendar, in UTC.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A time as `YYYY-MM-DD hh:mm:ss UTC`: the times in the tables of the console.
#[must_use]
pub fn seconds(time: SystemTime) -> String {
    let moment = Moment::of(time);
    format!("{moment} UTC")
}

/// A second of the calendar, and the milliseconds behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    year: u64,
    month: u64,
    day: u64,
    second: u64,
    pub(super) millis: u32,
}

impl Moment {
    /// Times before 1970 count as 1970.
    pub(super) fn of(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        let (year, month, day) = date(days);
        Self {
            year,
            month,
            day,
            second,
            millis: since.subsec_millis(),
        }
    }
}

/// As `YYYY-MM-DD hh:mm:ss`.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            year,
            month,
            day,
            second,
            ..
        } = self;
        let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02}"
        )
    }
}

/// The year, month and day, so many days after 1970-01-01.
///
/// Years are counted from March here, so that the leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // From 0000-03-01 to 1970-01-01.
    let days = days + 719_468;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    // Leap days before this day: one in 4 years, none in 100, one in 400.
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // Five months in a row have 153 days: 31, 30, 31, 30, 31.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (400 * era + year + next, month, day)
}
