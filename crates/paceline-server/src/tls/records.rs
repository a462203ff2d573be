//! Where the records of a stream begin and end. rustls keeps a record that is not whole to itself,
//! but its bytes are a part of an item: they have a time, a rate, and a place in a drain.

/// The header of a record: its kind, two bytes of version, two bytes of length.
const HEADER: usize = 5;

/// Follows the records of a stream, without their content.
#[derive(Debug, Default)]
pub(super) struct Records {
    header: [u8; HEADER],
    /// How many bytes of the present record have come, with its header.
    come: usize,
}

impl Records {
    /// `bytes` are the next ones of the stream.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) {
        while let Some(&first) = bytes.first() {
            let missing = self.length() - self.come;
            let count = if self.come < HEADER {
                self.header[self.come] = first;
                1
            } else {
                missing.min(bytes.len())
            };
            self.come += count;
            bytes = &bytes[count..];
            if self.come == self.length() {
                self.come = 0;
            }
        }
    }

    /// How many bytes of a record have come that is not whole.
    pub(super) fn partial(&self) -> usize {
        self.come
    }

    /// The length of the present record, as far as it is known.
    fn length(&self) -> usize {
        if self.come < HEADER {
            return HEADER + 1;
        }
        let [.., high, low] = self.header;
        HEADER + usize::from(u16::from_be_bytes([high, low]))
    }
}

#[cfg(test)]
mod tests {
    use super::Records;

    fn record(length: u16) -> Vec<u8> {
        let mut record = vec![23, 3, 3];
        record.extend(length.to_be_bytes());
        record.resize(5 + usize::from(length), 7);
        record
    }

    /// However a stream is cut, exactly the bytes behind the last whole record are partial.
    #[test]
    fn partial_bytes_are_exact_for_any_cut() {
        let lengths = [0, 1, 3, 300];
        let stream: Vec<u8> = lengths.iter().flat_map(|length| record(*length)).collect();
        let ends: Vec<usize> = lengths
            .iter()
            .scan(0, |end, length| {
                *end += 5 + usize::from(*length);
                Some(*end)
            })
            .collect();
        for cut in 0..=stream.len() {
            for step in [1, 2, 7, 1000] {
                let mut records = Records::default();
                stream[..cut]
                    .chunks(step)
                    .for_each(|part| records.follow(part));
                let last = ends.iter().rfind(|end| **end <= cut).copied();
                assert_eq!(records.partial(), cut - last.unwrap_or(0), "{cut} {step}");
            }
        }
    }
}
