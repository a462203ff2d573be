//! The head of an answer, as bytes.

use http::{HeaderName, HeaderValue, StatusCode};

use super::Version;

/// How the client finds the end of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyLength {
    /// This status has no body, and says nothing of its length.
    Nothing,
    Known(u64),
    Chunked,
    /// The end of the connection: the client does not know chunks.
    UntilClose,
}

/// Whether the connection goes on after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    Kept,
    Closed,
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct ResponseHead<'r> {
    pub(crate) status: StatusCode,
    /// That of the request.
    pub(crate) version: Version,
    pub(crate) length: BodyLength,
    pub(crate) persistence: Persistence,
    /// The date in the format of HTTP.
    pub(crate) date: &'r str,
    pub(crate) content_type: Option<&'r HeaderValue>,
    pub(crate) fields: &'r [(HeaderName, HeaderValue)],
}

impl ResponseHead<'_> {
    /// Appends the head. Names and values are of types that can't hold a line end.
    pub(crate) fn write(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(b"HTTP/1.1 ");
        output.extend_from_slice(self.status.as_str().as_bytes());
        output.push(b' ');
        let reason = self.status.canonical_reason().unwrap_or_default();
        output.extend_from_slice(reason.as_bytes());
        output.extend_from_slice(b"\r\ndate: ");
        output.extend_from_slice(self.date.as_bytes());
        if let Some(kind) = self.content_type {
            output.extend_from_slice(b"\r\ncontent-type: ");
            output.extend_from_slice(kind.as_bytes());
        }
        self.write_length(output);
        match (self.version, self.persistence) {
            (Version::Http11, Persistence::Kept) => {}
            (Version::Http10, Persistence::Kept) => {
                output.extend_from_slice(b"\r\nconnection: keep-alive");
            }
            (_, Persistence::Closed) => output.extend_from_slice(b"\r\nconnection: close"),
        }
        for (name, value) in self.fields {
            output.extend_from_slice(b"\r\n");
            output.extend_from_slice(name.as_str().as_bytes());
            output.extend_from_slice(b": ");
            output.extend_from_slice(value.as_bytes());
        }
        output.extend_from_slice(b"\r\n\r\n");
    }

    fn write_length(&self, output: &mut Vec<u8>) {
        match self.length {
            BodyLength::Known(length) => {
                output.extend_from_slice(b"\r\ncontent-length: ");
                write_number(output, length);
            }
            BodyLength::Chunked => {
                output.extend_from_slice(b"\r\ntransfer-encoding: chunked");
            }
            BodyLength::Nothing | BodyLength::UntilClose => {}
        }
    }
}

/// Appends a number in decimal digits.
fn write_number(output: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    output.extend_from_slice(&digits[start..]);
}
