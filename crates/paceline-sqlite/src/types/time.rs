//! Dates and times: texts as SQLite keeps them, numbers as PostgreSQL sends them in binary.

/// Days from 1970-01-01 to 2000-01-01, where PostgreSQL begins to count.
const EPOCH: i64 = 10_957;
const DAY: i64 = 86_400_000_000;
/// Microseconds from 1970-01-01 to 2000-01-01.
pub(super) const UNIX_TO_2000: i64 = EPOCH * DAY;

/// The day of `2024-02-29`, counted from 2000-01-01.
pub(crate) fn date(text: &str) -> Option<i64> {
    let (text, sign) = match text.strip_prefix('-') {
        Some(text) => (text, -1),
        None => (text, 1),
    };
    let mut parts = text.splitn(3, '-');
    let year = number(parts.next()?, 4..=6)? * sign;
    let month = number(parts.next()?, 1..=2)?;
    let day = number(parts.next()?, 1..=2)?;
    let is_day = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    is_day.then(|| days(year, month, day) - EPOCH)
}

/// The microseconds of `12:34:56.789`.
pub(crate) fn time(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let hours = number(parts.next()?, 1..=2)?;
    let minutes = number(parts.next()?, 2..=2)?;
    let (seconds, fraction) = match parts.next() {
        Some(seconds) => seconds.split_once('.').unwrap_or((seconds, "")),
        None => ("00", ""),
    };
    let seconds = number(seconds, 2..=2)?;
    let micros = micros(fraction)?;
    let is_time = hours <= 24 && minutes < 60 && seconds <= 60;
    is_time.then_some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros)
}

/// The microseconds from 2000-01-01 to `2024-02-29 12:34:56.789+02`, in UTC.
pub(crate) fn timestamp(text: &str) -> Option<i64> {
    let (day, rest) = text.split_once([' ', 'T']).unwrap_or((text, "00:00:00"));
    let (clock, offset) = zone(rest)?;
    Some(date(day)? * DAY + time(clock)? - offset)
}

/// The microseconds from 2000-01-01 to `2024-02-29 12:34:56.789`. A zone does not count.
pub(crate) fn local(text: &str) -> Option<i64> {
    let (day, rest) = text.split_once([' ', 'T']).unwrap_or((text, "00:00:00"));
    let (clock, _) = zone(rest)?;
    Some(date(day)? * DAY + time(clock)?)
}

/// Splits the zone off a time, and counts its microseconds east of Greenwich.
fn zone(text: &str) -> Option<(&str, i64)> {
    let text = text.trim_end();
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = text.rfind(['+', '-']) else {
        return Some((text, 0));
    };
    let (clock, zone) = text.split_at(at);
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let zone = &zone[1..];
    let (hours, minutes) = match zone.split_once(':') {
        Some(parts) => parts,
        None if zone.len() == 4 && zone.is_ascii() => zone.split_at(2),
        None => (zone, "00"),
    };
    let minutes = number(hours, 1..=2)? * 60 + number(minutes, 2..=2)?;
    Some((clock.trim_end(), sign * minutes * 60_000_000))
}

/// The date that is so many days after 2000-01-01.
pub(crate) fn date_text(day: i64) -> String {
    let (year, month, day) = civil(day + EPOCH);
    format!("{year:04}-{month:02}-{day:02}")
}

pub(crate) fn time_text(micros: i64) -> String {
    let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let clock = format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    if fraction == 0 {
        return clock;
    }
    let fraction = format!("{fraction:06}");
    format!("{clock}.{}", fraction.trim_end_matches('0'))
}

pub(crate) fn timestamp_text(micros: i64) -> String {
    let day = micros.div_euclid(DAY);
    format!("{} {}", date_text(day), time_text(micros.rem_euclid(DAY)))
}

/// The year, month and day of a day counted from 2000-01-01.
pub(super) fn civil_of(day: i64) -> (i64, i64, i64) {
    civil(day + EPOCH)
}

/// The day, counted from 2000-01-01, of a date.
pub(super) fn day_of(year: i64, month: i64, day: i64) -> i64 {
    days(year, month, day) - EPOCH
}

fn number(digits: &str, lengths: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && lengths.contains(&digits.len())).then(|| digits.parse().ok())?
}

fn micros(fraction: &str) -> Option<i64> {
    if fraction.is_empty() {
        return Some(0);
    }
    let digits = number(fraction, 1..=9).map(|_| format!("{fraction:0<6}"))?;
    digits[..6].parse().ok()
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01, in the calendar of today. Years begin in March, so leap days end them.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year.div_euclid(400) * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of [`days`].
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_from_2000() {
        for (text, day) in [
            ("2000-01-01", 0),
            ("1999-12-31", -1),
            ("1970-01-01", -10_957),
            ("2024-02-29", 8_825),
        ] {
            assert_eq!(date(text), Some(day));
            assert_eq!(date_text(day), text);
        }
        for bad in ["2023-02-29", "2023-13-01", "2023-1", "x", "2023-01-01x"] {
            assert_eq!(date(bad), None, "{bad}");
        }
    }

    #[test]
    fn timestamps_are_read_with_their_zone() {
        assert_eq!(timestamp("2000-01-01 00:00:01.5"), Some(1_500_000));
        assert_eq!(timestamp("2000-01-01T02:00:00+02"), Some(0));
        assert_eq!(timestamp("1999-12-31 22:30:00-01:30"), Some(0));
        assert_eq!(timestamp_text(-1), "1999-12-31 23:59:59.999999");
        assert_eq!(timestamp("12:00"), None);
    }
}
