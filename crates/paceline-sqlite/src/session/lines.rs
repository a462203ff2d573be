//! The lines of `COPY`: fields with escapes, or CSV.

use crate::{dialect::copy::Format, failure::Failure};

/// The fields of a line; `None` is NULL.
pub(super) type Fields = Vec<Option<Vec<u8>>>;

/// Reads lines from data that arrive in pieces.
#[derive(Debug)]
pub(super) struct Reader {
    format: Format,
    data: Vec<u8>,
    /// The end of the consumed part of `data`.
    at: usize,
    skips_header: bool,
    is_over: bool,
}

impl Reader {
    pub(super) fn new(format: Format) -> Self {
        Self {
            skips_header: format.header,
            format,
            data: Vec::new(),
            at: 0,
            is_over: false,
        }
    }

    pub(super) fn push(&mut self, data: &[u8]) {
        self.data.drain(..self.at);
        self.at = 0;
        if !self.is_over {
            self.data.extend_from_slice(data);
        }
    }

    pub(super) fn pending(&self) -> usize {
        self.data.len() - self.at
    }

    /// The fields of the next line; `None` if it is incomplete. At the end of the data, the last
    /// line needs no line end.
    pub(super) fn next(&mut self, is_end: bool) -> Result<Option<Fields>, Failure> {
        loop {
            let rest = &self.data[self.at..];
            let end = if self.format.is_csv {
                end_of_record(rest, &self.format)
            } else {
                rest.iter().position(|byte| *byte == b'\n')
            };
            let (line, length) = match end {
                Some(end) => (&rest[..end], end + 1),
                None if is_end && !rest.is_empty() => (rest, rest.len()),
                None => return Ok(None),
            };
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line == b"\\." || self.is_over {
                self.is_over = true;
                self.at = self.data.len();
                return Ok(None);
            }
            let fields = if self.format.is_csv {
                csv(line, &self.format)?
            } else {
                text(line, &self.format)?
            };
            self.at += length;
            if !std::mem::take(&mut self.skips_header) {
                return Ok(Some(fields));
            }
        }
    }
}

/// Where a record of CSV ends: a line end within quotes belongs to the field.
fn end_of_record(rest: &[u8], format: &Format) -> Option<usize> {
    let mut is_quoted = false;
    let mut at = 0;
    while at < rest.len() {
        let byte = rest[at];
        if is_quoted && byte == format.escape && format.escape != format.quote {
            at += 1;
        } else if byte == format.quote {
            is_quoted = !is_quoted;
        } else if byte == b'\n' && !is_quoted {
            return Some(at);
        }
        at += 1;
    }
    None
}

fn text(line: &[u8], format: &Format) -> Result<Fields, Failure> {
    let mut fields = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at <= line.len() {
        if at == line.len() || line[at] == format.delimiter {
            fields.push(text_field(&line[start..at], format)?);
            start = at + 1;
        } else if line[at] == b'\\' {
            at += 1;
        }
        at += 1;
    }
    if at > line.len() + 1 {
        return Err(Failure::new("22P04", "a backslash ends the line"));
    }
    Ok(fields)
}

fn text_field(raw: &[u8], format: &Format) -> Result<Option<Vec<u8>>, Failure> {
    if raw == format.null.as_bytes() {
        return Ok(None);
    }
    if !raw.contains(&b'\\') {
        return Ok(Some(raw.to_vec()));
    }
    let mut value = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            value.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'b') => value.push(8),
            Some(b'f') => value.push(12),
            Some(b'n') => value.push(b'\n'),
            Some(b'r') => value.push(b'\r'),
            Some(b't') => value.push(b'\t'),
            Some(b'v') => value.push(11),
            Some(digit @ b'0'..=b'7') => {
                let mut number = u32::from(digit - b'0');
                for _ in 0..2 {
                    let Some(next) = bytes.next_if(|next| (b'0'..=b'7').contains(next)) else {
                        break;
                    };
                    number = number * 8 + u32::from(next - b'0');
                }
                value.push(number as u8);
            }
            Some(other) => value.push(other),
            None => return Err(Failure::new("22P04", "a backslash ends a field")),
        }
    }
    Ok(Some(value))
}

fn csv(line: &[u8], format: &Format) -> Result<Fields, Failure> {
    let mut fields = Vec::new();
    let (mut value, mut is_quoted, mut was_quoted) = (Vec::new(), false, false);
    let mut at = 0;
    while at < line.len() {
        let byte = line[at];
        let next = line.get(at + 1).copied();
        if is_quoted
            && byte == format.escape
            && (next == Some(format.quote) || next == Some(format.escape))
        {
            value.extend(next);
            at += 1;
        } else if byte == format.quote {
            is_quoted = !is_quoted;
            was_quoted = true;
        } else if byte == format.delimiter && !is_quoted {
            fields.push(csv_field(std::mem::take(&mut value), was_quoted, format));
            was_quoted = false;
        } else {
            value.push(byte);
        }
        at += 1;
    }
    if is_quoted {
        return Err(Failure::new("22P04", "unterminated CSV quoted field"));
    }
    fields.push(csv_field(value, was_quoted, format));
    Ok(fields)
}

fn csv_field(value: Vec<u8>, was_quoted: bool, format: &Format) -> Option<Vec<u8>> {
    (was_quoted || value != format.null.as_bytes()).then_some(value)
}

/// Appends a line with its end.
pub(super) fn write(fields: &[Option<&[u8]>], format: &Format, output: &mut Vec<u8>) {
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            output.push(format.delimiter);
        }
        match field {
            None => output.extend_from_slice(format.null.as_bytes()),
            Some(value) if format.is_csv => write_csv(value, format, output),
            Some(value) => write_text(value, format, output),
        }
    }
    output.push(b'\n');
}

fn write_text(value: &[u8], format: &Format, output: &mut Vec<u8>) {
    for byte in value {
        let letter = match byte {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            b'\\' => b'\\',
            byte if *byte == format.delimiter => *byte,
            byte => {
                output.push(*byte);
                continue;
            }
        };
        output.extend_from_slice(&[b'\\', letter]);
    }
}

fn write_csv(value: &[u8], format: &Format, output: &mut Vec<u8>) {
    let is_special = |byte: &u8| [format.delimiter, format.quote, b'\n', b'\r'].contains(byte);
    let needs_quotes =
        value.iter().any(is_special) || value == format.null.as_bytes() || value == b"\\.";
    if !needs_quotes {
        output.extend_from_slice(value);
        return;
    }
    output.push(format.quote);
    for byte in value {
        if *byte == format.quote || *byte == format.escape {
            output.push(format.escape);
        }
        output.push(*byte);
    }
    output.push(format.quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(is_csv: bool) -> Format {
        Format {
            is_csv,
            delimiter: if is_csv { b',' } else { b'\t' },
            null: if is_csv {
                String::new()
            } else {
                "\\N".to_owned()
            },
            header: false,
            quote: b'"',
            escape: b'"',
        }
    }

    /// All lines of data that come in pieces of any size.
    fn read(data: &[u8], format: &Format, piece: usize) -> Vec<Fields> {
        let mut reader = Reader::new(format.clone());
        let mut lines = Vec::new();
        for piece in data.chunks(piece) {
            reader.push(piece);
            while let Some(fields) = reader.next(false).expect("good") {
                lines.push(fields);
            }
        }
        while let Some(fields) = reader.next(true).expect("good") {
            lines.push(fields);
        }
        lines
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let rows: Vec<Fields> = vec![
            vec![Some(b"a\tb\\\n".to_vec()), None, Some(Vec::new())],
            vec![
                Some(b"\"x\",\r\n".to_vec()),
                Some(b"\\N".to_vec()),
                Some(b"1".to_vec()),
            ],
        ];
        for is_csv in [false, true] {
            let format = format(is_csv);
            let mut data = Vec::new();
            for row in &rows {
                let fields: Vec<_> = row.iter().map(|field| field.as_deref()).collect();
                write(&fields, &format, &mut data);
            }
            for piece in 1..data.len() {
                assert_eq!(read(&data, &format, piece), rows, "csv: {is_csv}, {piece}");
            }
        }
    }

    #[test]
    fn the_end_mark_ends_the_data() {
        let lines = read(b"1\t2\n\\.\n3\t4\n", &format(false), 3);
        assert_eq!(lines, [[Some(b"1".to_vec()), Some(b"2".to_vec())]]);
    }

    #[test]
    fn the_last_line_needs_no_end() {
        assert_eq!(read(b"a,b", &format(true), 2).len(), 1);
        let mut reader = Reader::new(format(true));
        reader.push(b"\"a");
        assert_eq!(
            reader.next(true).map_err(|failure| failure.code),
            Err("22P04")
        );
    }
}
