//! How long the body of a request is: RFC 9112, 6.3, and nothing doubtful.

use super::{bytes, Head, Refusal, Version};

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Empty,
    /// So many bytes, at least one.
    Length(u64),
    Chunked,
}

const BOTH: Refusal = Refusal::bad("Content-Length and Transfer-Encoding");
const TWO_LENGTHS: Refusal = Refusal::bad("more than one Content-Length");
const ODD_LENGTH: Refusal = Refusal::bad("Content-Length is no number");
const CODING_IN_1_0: Refusal = Refusal::bad("Transfer-Encoding in HTTP/1.0");
const NOT_CHUNKED_LAST: Refusal = Refusal::bad("the last transfer coding is not chunked");
const TWICE_CHUNKED: Refusal = Refusal::bad("chunked more than once");
const ODD_CODING: Refusal = Refusal::bad("a transfer coding is no token");
const UNKNOWN_CODING: Refusal = Refusal::new(501, "a transfer coding that is not supported");

/// The most digits of a length: more would not fit into 64 bits, or might not.
const MOST_DIGITS: usize = 19;

/// Decides from the fields of a head.
pub(super) fn of(head: &Head<'_>) -> Result<Framing, Refusal> {
    let has_coding = head.values("transfer-encoding").next().is_some();
    let length = length(head);
    if has_coding {
        if head.version() == Version::Http10 {
            return Err(CODING_IN_1_0);
        }
        if !matches!(length, Ok(None)) {
            return Err(BOTH);
        }
        return check_codings(head).map(|()| Framing::Chunked);
    }
    Ok(match length? {
        None | Some(0) => Framing::Empty,
        Some(length) => Framing::Length(length),
    })
}

/// The only Content-Length.
fn length(head: &Head<'_>) -> Result<Option<u64>, Refusal> {
    let mut values = head.values("content-length");
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(TWO_LENGTHS);
    }
    parse_length(value).map(Some)
}

fn parse_length(value: &[u8]) -> Result<u64, Refusal> {
    if value.is_empty() || value.len() > MOST_DIGITS {
        return Err(ODD_LENGTH);
    }
    value.iter().try_fold(0_u64, |length, digit| {
        let digit = char::from(*digit).to_digit(10).ok_or(ODD_LENGTH)?;
        Ok(length * 10 + u64::from(digit))
    })
}

/// `chunked` alone is what this server decodes.
fn check_codings(head: &Head<'_>) -> Result<(), Refusal> {
    let (mut chunked, mut others, mut is_chunked_last) = (0, 0, false);
    let codings = head
        .values("transfer-encoding")
        .flat_map(|value| value.split(|byte| *byte == b','));
    for coding in codings {
        let coding = coding.trim_ascii();
        if !is_token(coding) {
            return Err(ODD_CODING);
        }
        is_chunked_last = coding.eq_ignore_ascii_case(b"chunked");
        *(if is_chunked_last {
            &mut chunked
        } else {
            &mut others
        }) += 1;
    }
    match (is_chunked_last, chunked, others) {
        (false, ..) => Err(NOT_CHUNKED_LAST),
        (true, 1, 0) => Ok(()),
        (true, 1, _) => Err(UNKNOWN_CODING),
        (true, ..) => Err(TWICE_CHUNKED),
    }
}

/// Whether `bytes` is a token of RFC 9110, 5.6.2.
pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes::all(bytes, bytes::IN_TOKEN)
}
