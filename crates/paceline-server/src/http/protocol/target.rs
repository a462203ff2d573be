//! The request-target: its four forms (RFC 9112, 3.2).

use std::ops::Range;

use memchr::memchr;

use super::{authority::is_authority, bytes, Refusal};

/// Where the parts of a target are, in the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The path; `*` for the asterisk-form.
    pub(super) path: Range<usize>,
    /// Without its question mark.
    pub(super) query: Option<Range<usize>>,
    /// Of the absolute-form.
    pub(super) authority: Option<Range<usize>>,
    /// The path is empty, which stands for `/`.
    pub(super) is_root: bool,
}

const FORM: Refusal = Refusal::bad("the request-target has none of the four forms");
const BYTES: Refusal = Refusal::bad("a byte that a request-target can't have");
const AUTHORITY: Refusal = Refusal::bad("the host in the request-target is doubtful");
const PROXY: Refusal = Refusal::new(501, "this server is no proxy");

impl Target {
    /// Splits a target. `method` decides which forms it may have.
    pub(super) fn parse(method: &[u8], target: &[u8]) -> Result<Self, Refusal> {
        if method == b"CONNECT" {
            return Err(PROXY);
        }
        match target {
            [b'/', ..] => Self::split(target, 0, None),
            b"*" if method == b"OPTIONS" => Ok(Self {
                path: 0..1,
                query: None,
                authority: None,
                is_root: false,
            }),
            _ => Self::absolute(target),
        }
    }

    /// `http://host/path`.
    fn absolute(target: &[u8]) -> Result<Self, Refusal> {
        let scheme = ["http://", "https://"]
            .iter()
            .find(|scheme| has_prefix(target, scheme))
            .ok_or(FORM)?;
        let rest = &target[scheme.len()..];
        let length = rest.iter().position(|byte| b"/?#".contains(byte));
        let length = length.unwrap_or(rest.len());
        let authority = scheme.len()..scheme.len() + length;
        if !is_authority(&target[authority.clone()]) {
            return Err(AUTHORITY);
        }
        Self::split(target, authority.end, Some(authority))
    }

    /// The path from `start` on, and the query.
    fn split(
        target: &[u8],
        start: usize,
        authority: Option<Range<usize>>,
    ) -> Result<Self, Refusal> {
        let rest = &target[start..];
        let mark = memchr(b'?', rest);
        let path = start..start + mark.unwrap_or(rest.len());
        let query = mark.map(|mark| start + mark + 1..target.len());
        let query_bytes = query.clone().map_or(&b""[..], |query| &target[query]);
        if !bytes::all(&target[path.clone()], bytes::IN_PATH)
            || !bytes::all(query_bytes, bytes::IN_TARGET)
        {
            return Err(BYTES);
        }
        Ok(Self {
            is_root: path.is_empty(),
            path,
            query,
            authority,
        })
    }
}

fn has_prefix(target: &[u8], prefix: &str) -> bool {
    let start = target.get(..prefix.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}
