//! The messages of an echo: each carries the number of its connection and its own, and follows from
//! those two alone, so an echo is compared byte by byte.

use crate::conversation::Findings;

/// Bytes before the filler: a mark, the length of the whole, the connection, the number.
const HEADER: usize = 24;

/// The mark that every message begins with.
const MARK: u32 = 0x9ACE_11AE;

/// The longest message; more than a server reads at once.
const LONGEST: usize = 20 * 1024;

/// Appends the message with this number to `bytes`.
pub(super) fn append(bytes: &mut Vec<u8>, connection: u64, number: u64) {
    let length = length(connection, number);
    bytes.extend(MARK.to_le_bytes());
    bytes.extend((length as u32).to_le_bytes());
    bytes.extend(connection.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    let filler = connection.wrapping_mul(31).wrapping_add(number) as u8;
    bytes.extend((HEADER..length).map(|index| filler.wrapping_add(index as u8)));
}

/// How long a message is: most are short, one in sixty-four is not.
fn length(connection: u64, number: u64) -> usize {
    let mixed = connection
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(number.wrapping_mul(0xD1B5_4A32_D192_ED03))
        >> 33;
    match mixed % 64 {
        0 => LONGEST,
        _ => HEADER + (mixed / 64 % 200) as usize,
    }
}

/// Reads the echoes of one connection.
pub(super) struct Checker {
    /// The connection.
    connection: u64,
    /// The number of the message that must come next.
    next: u64,
    /// What has come of it so far.
    pending: Vec<u8>,
}

impl Checker {
    /// One that has seen nothing yet.
    pub(super) fn new(connection: u64) -> Checker {
        Checker {
            connection,
            next: 0,
            pending: Vec::new(),
        }
    }

    /// The number of the message that must come next: all before it came.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Judges what was read.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Findings {
        self.pending.extend_from_slice(bytes);
        let mut findings = Findings::default();
        while !findings.garbled {
            match self.whole_message() {
                Ok(None) => break,
                Ok(Some(length)) => self.judge(length, &mut findings),
                Err(Garbled) => findings.garbled = true,
            }
        }
        findings
    }

    /// The length of the message at the front, once all of it is there.
    fn whole_message(&self) -> Result<Option<usize>, Garbled> {
        let Some(header) = self.pending.get(..HEADER) else {
            return Ok(None);
        };
        let length = number_of(&header[4..8]) as usize;
        let plausible = (HEADER..=LONGEST).contains(&length);
        if number_of(&header[..4]) != u64::from(MARK) || !plausible {
            return Err(Garbled);
        }
        Ok(Some(length).filter(|length| self.pending.len() >= *length))
    }

    /// Judges the message at the front and removes it.
    fn judge(&mut self, length: usize, findings: &mut Findings) {
        let message: Vec<_> = self.pending.drain(..length).collect();
        let (connection, number) = (number_of(&message[8..16]), number_of(&message[16..24]));
        if connection != self.connection {
            findings.misrouted += 1;
            return;
        }
        if number < self.next {
            findings.doubled += 1;
            return;
        }
        findings.lost += number - self.next;
        self.next = number + 1;
        let mut sent = Vec::with_capacity(length);
        append(&mut sent, connection, number);
        if sent == message {
            findings.answered += 1
        } else {
            findings.lost += 1
        }
    }
}

/// Bytes that begin no message.
struct Garbled;

/// A number of up to eight bytes.
fn number_of(bytes: &[u8]) -> u64 {
    let shifted = |number, byte: &u8| number << 8 | u64::from(*byte);
    bytes.iter().rev().fold(0, shifted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These messages of a connection, as a server would send them back.
    fn echoes(connection: u64, numbers: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in numbers {
            append(&mut bytes, connection, *number);
        }
        bytes
    }

    #[test]
    fn what_comes_back_in_order_is_answered_however_it_is_cut() {
        let all: Vec<_> = (0..200).collect();
        let bytes = echoes(7, &all);
        assert!(
            bytes.len() > LONGEST,
            "no long message among the first two hundred"
        );
        for size in [1, 13, 1000, bytes.len()] {
            let mut checker = Checker::new(7);
            let found = bytes.chunks(size).map(|chunk| checker.take(chunk));
            let answered: u64 = found
                .map(|findings| {
                    let only_good = Findings {
                        answered: findings.answered,
                        ..Findings::default()
                    };
                    assert_eq!(findings, only_good);
                    findings.answered
                })
                .sum();
            assert_eq!((answered, checker.next()), (200, 200));
        }
    }

    #[test]
    fn what_is_missing_or_comes_again_or_belongs_to_others_is_told() {
        let findings = Checker::new(1).take(&echoes(1, &[0, 2, 2]));
        assert_eq!(
            (findings.answered, findings.lost, findings.doubled),
            (2, 1, 1)
        );
        let findings = Checker::new(1).take(&echoes(2, &[0]));
        assert_eq!((findings.answered, findings.misrouted), (0, 1));
    }

    #[test]
    fn a_changed_byte_is_a_lost_message_and_a_dropped_one_garbles_the_stream() {
        let mut bytes = echoes(1, &[0, 1, 2, 3]);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert_eq!(Checker::new(1).take(&bytes).lost, 1);
        bytes.remove(HEADER - 1);
        assert!(Checker::new(1).take(&bytes).garbled);
    }
}
