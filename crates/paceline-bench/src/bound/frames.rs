//! The protocol of all clients: four bytes of id, four of length, then the body, in both directions.

/// What every call sends, and gets back.
pub(super) const REQUEST: [u8; 64] = [7; 64];

/// Before the body.
pub(super) const HEADER: usize = 8;

/// Adds a message.
pub(super) fn append(out: &mut Vec<u8>, id: u32, body: &[u8]) {
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(body);
}

/// Id and length, if they are there.
pub(super) fn header(bytes: &[u8]) -> Option<(u32, usize)> {
    let (id, rest) = bytes.split_first_chunk()?;
    let (length, _) = rest.split_first_chunk()?;
    let length = u32::from_be_bytes(*length) as usize;
    Some((u32::from_be_bytes(*id), length))
}

/// The first whole message, and what follows it.
pub(super) fn split(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (id, length) = header(bytes)?;
    let rest = &bytes[HEADER..];
    let body = rest.get(..length)?;
    Some((id, body, &rest[length..]))
}
