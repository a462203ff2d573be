//! The codecs of `paceline-server`.

use paceline_server::codec::{
    dot, dot_chunks, exact, line, lines, prefixed, prefixed_le, raw, until, varint, Codec, Decoded,
    Framing, Malformed,
};

use crate::script::{pieces, Script};

/// How a codec is made for a limit.
type Make = fn(usize) -> Framing;

/// A codec, and what it promises.
#[derive(Clone, Copy)]
struct Kind {
    make: Make,
    /// So many bytes beyond the limit an unfinished item may have. `None`: the codec keeps nothing.
    beyond: Option<usize>,
    /// Whether an item is all that has come, so that it depends on how the input is cut.
    is_cut_anywhere: bool,
}

const KINDS: [Kind; 12] = [
    Kind {
        make: |_| raw(),
        beyond: None,
        is_cut_anywhere: true,
    },
    whole(line, 1),
    Kind {
        is_cut_anywhere: true,
        ..whole(lines, 1)
    },
    whole(|limit| until(b"\r\n\r\n", limit), 3),
    whole(|limit| until(b"aab", limit), 2),
    whole(dot, 2),
    Kind {
        is_cut_anywhere: true,
        ..whole(dot_chunks, 2)
    },
    whole(prefixed::<u8>, 0),
    whole(prefixed::<u16>, 1),
    whole(prefixed_le::<u32>, 3),
    whole(varint, 9),
    whole(|limit| exact(limit.max(1)), 0),
];

const fn whole(make: Make, beyond: usize) -> Kind {
    Kind {
        make,
        beyond: Some(beyond),
        is_cut_anywhere: false,
    }
}

const LIMITS: [usize; 6] = [0, 1, 4, 17, 300, 70_000];

/// What a codec has made of an input.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// The payload of each item, or of all items together.
    items: Vec<Vec<u8>>,
    end: Result<(), Malformed>,
}

/// A codec finds the same items wherever the input is cut, and keeps no more than it says.
pub(crate) fn any_split_gives_the_same_items(data: &[u8]) {
    let mut script = Script::new(data);
    let kind = script.choose(&KINDS);
    let limit = script.choose(&LIMITS);
    let cuts = script.cuts();
    let input = script.rest();
    let at_once = decode(kind, limit, &[input]);
    let in_pieces = decode(kind, limit, &pieces(input, &cuts));
    assert_eq!(at_once, in_pieces, "{input:?} cut at {cuts:?}");
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(
        at_once,
        decode(kind, limit, &bytes),
        "{input:?} byte by byte"
    );
}

/// What a codec has framed, it reads back as one item.
pub(crate) fn a_framed_payload_is_read_back(data: &[u8]) {
    let mut script = Script::new(data);
    let kind = script.choose(&KINDS);
    let limit = script.choose(&LIMITS);
    let payload = script.rest();
    let mut framed = b"before".to_vec();
    let encoded = (kind.make)(limit).encode(payload, &mut framed);
    let Some(framed) = framed.strip_prefix(b"before") else {
        unreachable!("`encode` appends");
    };
    if encoded.is_err() {
        assert!(framed.is_empty(), "a refused payload leaves no output");
        return;
    }
    let outcome = decode(kind, limit, &[framed]);
    assert_eq!(outcome.end, Ok(()), "{payload:?}");
    assert_eq!(outcome.items.concat(), payload);
    let one = usize::from(!framed.is_empty());
    assert!(
        kind.is_cut_anywhere || outcome.items.len() == one,
        "{payload:?}"
    );
}

/// Feeds the pieces to a codec as a connection does.
fn decode(kind: Kind, limit: usize, pieces: &[&[u8]]) -> Outcome {
    let mut codec = (kind.make)(limit);
    let mut items = Vec::new();
    let mut buffer = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        if let Err(why) = drain(&mut codec, &mut buffer, false, &mut items) {
            return outcome(kind, items, Err(why));
        }
        let most = kind.beyond.map_or(0, |beyond| limit.saturating_add(beyond));
        assert!(
            buffer.len() <= most,
            "{} bytes kept for {limit}",
            buffer.len()
        );
    }
    let end = drain(&mut codec, &mut buffer, true, &mut items);
    assert!(end.is_err() || buffer.is_empty(), "a rest is lost");
    outcome(kind, items, end)
}

fn outcome(kind: Kind, items: Vec<Vec<u8>>, end: Result<(), Malformed>) -> Outcome {
    let items = if kind.is_cut_anywhere {
        vec![items.concat()]
    } else {
        items
    };
    Outcome { items, end }
}

/// Takes all items out of the buffer.
fn drain(
    codec: &mut Framing,
    buffer: &mut Vec<u8>,
    ended: bool,
    items: &mut Vec<Vec<u8>>,
) -> Result<(), Malformed> {
    while !buffer.is_empty() || ended {
        let Decoded::Item { item, consumed } = codec.decode(buffer, ended)? else {
            return Ok(());
        };
        assert!(consumed > 0, "an item takes at least a byte");
        assert!(consumed <= buffer.len(), "an item takes what is there");
        items.push(item.to_vec());
        buffer.drain(..consumed);
    }
    Ok(())
}
