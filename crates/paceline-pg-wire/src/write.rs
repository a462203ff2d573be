//! Appends messages to a buffer.

use crate::frame::Header;

/// Appends a message: `fill` appends its body.
pub(crate) fn message(output: &mut Vec<u8>, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = output.len();
    output.extend_from_slice(&[tag, 0, 0, 0, 0]);
    fill(output);
    set_length(output, start + 1);
}

/// Appends a packet without a tag.
pub(crate) fn packet(output: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = output.len();
    output.extend_from_slice(&[0; 4]);
    fill(output);
    set_length(output, start);
}

/// Appends a message without a body.
pub(crate) fn empty(output: &mut Vec<u8>, tag: u8) {
    output.extend_from_slice(&[tag, 0, 0, 0, 4]);
}

/// Puts the length of everything from `at` on there.
///
/// # Panics
/// If that is more than a message can have: 2 GiB.
fn set_length(output: &mut [u8], at: usize) {
    let length = i32::try_from(output.len() - at).expect("a message has less than 2 GiB");
    output[at..at + Header::LENGTH - 1].copy_from_slice(&length.to_be_bytes());
}

/// Appends a text and the zero byte at its end. A zero byte within the text ends it.
pub(crate) fn text(output: &mut Vec<u8>, text: &[u8]) {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    output.extend_from_slice(text);
    output.push(0);
}

/// Appends how many fields follow.
///
/// # Panics
/// If there are more than a message can have: 65,535.
pub(crate) fn count(output: &mut Vec<u8>, count: usize) {
    let count = u16::try_from(count).expect("a message has at most 65,535 fields");
    output.extend_from_slice(&count.to_be_bytes());
}

/// Appends a value behind its length; `None` is NULL.
///
/// # Panics
/// If the value has more bytes than a message can have: 2 GiB.
pub(crate) fn value(output: &mut Vec<u8>, value: Option<&[u8]>) {
    let length = value.map_or(Ok(-1), |value| i32::try_from(value.len()));
    let length = length.expect("a value has less than 2 GiB");
    output.extend_from_slice(&length.to_be_bytes());
    output.extend_from_slice(value.unwrap_or_default());
}
