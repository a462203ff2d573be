//! The WebSocket frames of `paceline-server`.

use paceline_server::{
    codec::{Codec, Decoded, Malformed},
    websocket::{Frames, Incoming},
};

use crate::script::{pieces, Script};

const LIMITS: [usize; 4] = [0, 5, 125, 70_000];

/// The same messages and the same end, wherever the network cuts the bytes; no message is longer than
/// the limit, and the codec leaves no more in the input than a header and a control frame.
pub(crate) fn messages_may_be_cut_anywhere(data: &[u8]) {
    let mut script = Script::new(data);
    let limit = script.choose(&LIMITS);
    let cuts = script.cuts();
    let input = script.rest();
    let whole = decode(limit, &[input]);
    assert_eq!(
        whole,
        decode(limit, &pieces(input, &cuts)),
        "{input:?} cut at {cuts:?}"
    );
    let bytes: Vec<_> = input.chunks(1).collect();
    assert_eq!(whole, decode(limit, &bytes), "{input:?} byte by byte");
    for message in &whole.0 {
        let length = match message {
            Incoming::Text(text) => text.len(),
            Incoming::Binary(bytes) => bytes.len(),
            _ => 0,
        };
        assert!(length <= limit, "{length} bytes for {limit}");
    }
}

/// The messages, without parts, and how the input ended.
fn decode(limit: usize, pieces: &[&[u8]]) -> (Vec<Incoming>, Result<(), Malformed>) {
    let mut codec = Frames::default().message_limit(limit).fragment_limit(6);
    let (mut messages, mut buffer) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        if let Err(why) = drain(&mut codec, &mut buffer, false, &mut messages) {
            return (messages, Err(why));
        }
        assert!(buffer.len() < 14 + 125, "{} bytes are kept", buffer.len());
    }
    let end = drain(&mut codec, &mut buffer, true, &mut messages);
    (messages, end)
}

/// Takes all items out of the buffer.
fn drain(
    codec: &mut Frames,
    buffer: &mut Vec<u8>,
    ended: bool,
    messages: &mut Vec<Incoming>,
) -> Result<(), Malformed> {
    while !buffer.is_empty() || ended {
        let Decoded::Item { item, consumed } = codec.decode(buffer, ended)? else {
            return Ok(());
        };
        assert!(
            (1..=buffer.len()).contains(&consumed),
            "an item takes what is there"
        );
        messages.extend(Some(item).filter(|item| *item != Incoming::Part));
        buffer.drain(..consumed);
    }
    Ok(())
}
