//! `numeric` in binary: digits to the base of 10,000.

const POSITIVE: u16 = 0;
const NEGATIVE: u16 = 0x4000;
const NOT_A_NUMBER: u16 = 0xc000;
/// More weight or scale than PostgreSQL's own limits is no number.
const MOST_DIGITS: i32 = 40_000;

/// Appends a decimal number such as `-12.50`; false if the text is none.
#[must_use]
pub(crate) fn write(text: &str, output: &mut Vec<u8>) -> bool {
    if text == "NaN" {
        append(output, 0, NOT_A_NUMBER, 0, &[]);
        return true;
    }
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => (NEGATIVE, text),
        None => (POSITIVE, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !is_number(whole) || !is_number(fraction) {
        return false;
    }
    let whole = whole.trim_start_matches('0');
    let groups = whole.len().div_ceil(4);
    let zeros = groups * 4 - whole.len();
    let tail = fraction.len().div_ceil(4) * 4 - fraction.len();
    let digits = "0".repeat(zeros) + whole + fraction + &"0".repeat(tail);
    let digits: Vec<u16> = digits
        .as_bytes()
        .chunks(4)
        .map(|group| {
            group
                .iter()
                .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'))
        })
        .collect();
    let first = digits.iter().take_while(|digit| **digit == 0).count();
    let last = digits
        .iter()
        .rposition(|digit| *digit != 0)
        .map_or(first, |at| at + 1);
    let digits = &digits[first..last];
    let weight = if digits.is_empty() {
        0
    } else {
        groups as i16 - 1 - first as i16
    };
    let sign = if digits.is_empty() { POSITIVE } else { sign };
    append(output, weight, sign, fraction.len() as u16, digits);
    true
}

fn append(output: &mut Vec<u8>, weight: i16, sign: u16, scale: u16, digits: &[u16]) {
    output.extend_from_slice(&(digits.len() as u16).to_be_bytes());
    output.extend_from_slice(&weight.to_be_bytes());
    output.extend_from_slice(&sign.to_be_bytes());
    output.extend_from_slice(&scale.to_be_bytes());
    for digit in digits {
        output.extend_from_slice(&digit.to_be_bytes());
    }
}

/// The decimal number in these bytes; `None` if they are none.
pub(crate) fn read(bytes: &[u8]) -> Option<String> {
    let (head, digits) = bytes.split_first_chunk::<8>()?;
    let field = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let (count, weight, sign, scale) = (field(0), field(2) as i16, field(4), field(6));
    if digits.len() != 2 * usize::from(count) {
        return None;
    }
    let sign = match sign {
        POSITIVE => "",
        NEGATIVE => "-",
        NOT_A_NUMBER => return Some("NaN".to_owned()),
        _ => return None,
    };
    if i32::from(weight).abs() > MOST_DIGITS / 4 || i32::from(scale) > MOST_DIGITS {
        return None;
    }
    let digit = |place: i32| -> Option<u16> {
        let at = usize::try_from(i32::from(weight) - place).ok();
        let pair = at.and_then(|at| digits.get(2 * at..2 * at + 2));
        let digit = pair.map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]));
        (digit < 10_000).then_some(digit)
    };
    let mut whole = String::new();
    for place in (0..=i32::from(weight)).rev() {
        whole += &format!("{:04}", digit(place)?);
    }
    let mut fraction = String::new();
    for place in 1..=(i32::from(scale) + 3) / 4 {
        fraction += &format!("{:04}", digit(-place)?);
    }
    fraction.truncate(usize::from(scale));
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if fraction.is_empty() { "" } else { "." };
    Some(format!("{sign}{whole}{point}{fraction}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_as_it_was_written() {
        for text in [
            "0",
            "1",
            "-1",
            "10000",
            "0.0001",
            "-12345.678900",
            "99999999.9",
            "0.00",
        ] {
            let mut bytes = Vec::new();
            assert!(write(text, &mut bytes), "{text}");
            assert_eq!(read(&bytes).as_deref(), Some(text));
        }
        // As PostgreSQL sends 12.5: two digits, weight 0, scale 1.
        let mut bytes = Vec::new();
        assert!(write("12.5", &mut bytes));
        assert_eq!(bytes, [0, 2, 0, 0, 0, 0, 0, 1, 0, 12, 0x13, 0x88]);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for bad in ["", ".", "1e5", "x", "1.2.3", "--1"] {
            assert!(!write(bad, &mut Vec::new()), "{bad}");
        }
        for bad in [
            &[][..],
            &[0, 1, 0, 0, 0, 0, 0, 0],
            &[0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
        ] {
            assert_eq!(read(bad), None);
        }
    }
}
