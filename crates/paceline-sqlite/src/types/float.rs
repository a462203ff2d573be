//! Floating-point numbers as PostgreSQL writes them.

/// The shortest text that reads back as `value`: with an exponent below 1e-4 and from 1e15 on.
pub(crate) fn double(value: f64) -> String {
    shortest(&format!("{value:e}"), value, 15)
}

/// As [`double`], for a number of 32 bits: with an exponent from 1e6 on.
pub(crate) fn single(value: f32) -> String {
    shortest(&format!("{value:e}"), f64::from(value), 6)
}

/// `scientific` is `value` as Rust writes it: `1.5e-7`.
fn shortest(scientific: &str, value: f64, most: i32) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..most).contains(&exponent) {
        return plain(digits, exponent);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// `digits` times ten to the power of `exponent`, without an exponent.
fn plain(digits: &str, exponent: i32) -> String {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits),
    };
    let bare: String = digits.chars().filter(|digit| *digit != '.').collect();
    let text = match usize::try_from(exponent) {
        Err(_) => {
            let zeros = exponent.unsigned_abs() as usize - 1;
            format!("0.{}{bare}", "0".repeat(zeros))
        }
        Ok(exponent) if bare.len() <= exponent + 1 => {
            format!("{bare}{}", "0".repeat(exponent + 1 - bare.len()))
        }
        Ok(exponent) => format!("{}.{}", &bare[..=exponent], &bare[exponent + 1..]),
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PostgreSQL 15 writes them.
    #[test]
    fn numbers_are_written_as_postgresql_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (-100.0, "-100"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1.234e-5, "1.234e-05"),
            (0.0001, "0.0001"),
            (1e300, "1e+300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(double(value), text);
        }
        assert_eq!(single(1.1), "1.1");
        assert_eq!(single(1_234_567.0), "1.234567e+06");
    }
}
