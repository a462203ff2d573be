//! Appends a row value by value, without a copy of its values.

use crate::{frame::Header, write};

/// A row that is being appended. Dropped before [`finish`](Self::finish) it leaves nothing.
///
/// ```
/// use paceline_pg_wire::backend::{self, RowWriter};
///
/// let (mut one, mut other) = (Vec::new(), Vec::new());
/// let mut row = RowWriter::begin(&mut one, 2);
/// row.value(|bytes| bytes.extend_from_slice(b"7"));
/// row.null();
/// row.finish();
/// backend::row(&mut other, [Some(&b"7"[..]), None]);
/// assert_eq!(one, other);
/// ```
#[derive(Debug)]
pub struct RowWriter<'o> {
    output: &'o mut Vec<u8>,
    start: usize,
    is_finished: bool,
}

impl<'o> RowWriter<'o> {
    /// Begins a row of so many columns: each needs one call of [`value`](Self::value) or
    /// [`null`](Self::null).
    #[must_use]
    pub fn begin(output: &'o mut Vec<u8>, columns: usize) -> Self {
        let start = output.len();
        output.extend_from_slice(b"D\0\0\0\0");
        write::count(output, columns);
        Self {
            output,
            start,
            is_finished: false,
        }
    }

    /// Appends NULL.
    pub fn null(&mut self) {
        self.output.extend_from_slice(&(-1_i32).to_be_bytes());
    }

    /// Appends a value: `fill` appends its bytes. What `fill` returns is passed on.
    ///
    /// # Panics
    /// If the value has more bytes than a message can have: 2 GiB.
    pub fn value<R>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let at = self.output.len();
        self.output.extend_from_slice(&[0; 4]);
        let result = fill(self.output);
        let length = self.output.len() - at - 4;
        let length = i32::try_from(length).expect("a value has less than 2 GiB");
        self.output[at..at + 4].copy_from_slice(&length.to_be_bytes());
        result
    }

    /// Ends the row.
    ///
    /// # Panics
    /// If the row has more bytes than a message can have: 2 GiB.
    pub fn finish(mut self) {
        let length = self.output.len() - self.start - 1;
        let length = i32::try_from(length).expect("a message has less than 2 GiB");
        self.output[self.start + 1..self.start + Header::LENGTH]
            .copy_from_slice(&length.to_be_bytes());
        self.is_finished = true;
    }
}

impl Drop for RowWriter<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.output.truncate(self.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value that can't be written must not leave half a message behind.
    #[test]
    fn a_row_that_fails_leaves_nothing() {
        let mut output = b"before".to_vec();
        let mut row = RowWriter::begin(&mut output, 2);
        row.null();
        let failed: Result<(), &str> = row.value(|bytes| {
            bytes.push(1);
            Err("no such value")
        });
        assert!(failed.is_err());
        drop(row);
        assert_eq!(output, b"before");
    }
}
