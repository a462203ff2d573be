//! Any split of any input gives the same items, alone and with codecs that take turns.

use std::slice;

use paceline_server::codec::{
    dot, dot_chunks, exact, line, lines, prefixed, prefixed_le, raw, until, varint, Codec, Decoded,
    Framing, Malformed,
};
use proptest::prelude::*;

/// What a codec has made of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    /// The items; pieces of one message are one item here, if they were not cut.
    items: Vec<Vec<u8>>,
    end: Result<(), Malformed>,
}

/// A codec, and whether the way its input is split decides about the number of its items.
#[derive(Clone, Debug)]
struct Subject {
    codec: Framing,
    is_joined: bool,
}

/// All codecs, with limits that short inputs meet.
fn subjects(limit: usize) -> Vec<Subject> {
    let one = |codec| Subject {
        codec,
        is_joined: false,
    };
    let joined = |codec| Subject {
        codec,
        is_joined: true,
    };
    vec![
        one(line(limit)),
        one(until(b";", limit)),
        one(until(b"aab", limit)),
        one(until(b"\r\n\r\n", limit)),
        one(dot(limit)),
        one(prefixed::<u8>(limit)),
        one(prefixed::<u16>(limit)),
        one(prefixed::<u32>(limit)),
        one(prefixed_le::<u8>(limit)),
        one(prefixed_le::<u16>(limit)),
        one(prefixed_le::<u32>(limit)),
        one(varint(limit)),
        one(exact(limit)),
        joined(raw()),
        joined(lines(limit)),
        joined(dot_chunks(limit)),
    ]
}

/// Feeds `parts` as a connection does: what belongs to no item yet comes again, with more behind it.
/// `codecs` take turns from item to item.
fn decode(codecs: &[Subject], parts: &[&[u8]]) -> Outcome {
    let mut codecs: Vec<_> = codecs.to_vec();
    let mut outcome = Outcome {
        items: Vec::new(),
        end: Ok(()),
    };
    let mut kept: Vec<u8> = Vec::new();
    let (mut turn, mut is_within) = (0, false);
    for index in 0..=parts.len() {
        let ended = index == parts.len();
        kept.extend(parts.get(index).copied().unwrap_or_default());
        loop {
            let count = codecs.len();
            let Subject { codec, is_joined } = &mut codecs[turn % count];
            match codec.decode(&kept, ended) {
                Err(why) => {
                    outcome.end = Err(why);
                    return outcome;
                }
                Ok(Decoded::Incomplete) => break,
                Ok(Decoded::Item { item, consumed }) => {
                    assert!(consumed > 0 && consumed <= kept.len());
                    let is_last = item.is_last();
                    let item = item.into_vec();
                    match outcome.items.last_mut() {
                        Some(last) if is_within || (*is_joined && count == 1) => last.extend(item),
                        _ => outcome.items.push(item),
                    }
                    is_within = !is_last;
                    kept.drain(..consumed);
                    // A piece of a message that goes on belongs to the same codec.
                    turn += usize::from(is_last);
                }
            }
        }
    }
    outcome
}

/// Inputs of the bytes that matter to some codec, and of others.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => Just(b'\n'),
        3 => Just(b'\r'),
        3 => Just(b'.'),
        2 => Just(b';'),
        3 => Just(b'a'),
        2 => Just(b'b'),
        2 => 0u8..4,
        1 => Just(0x80),
        1 => any::<u8>(),
    ];
    let snippet = prop_oneof![
        3 => byte.prop_map(|byte| vec![byte]),
        2 => Just(b"\r\n".to_vec()),
        1 => Just(b"\r\n.\r\n".to_vec()),
        1 => Just(b"aab".to_vec()),
        1 => Just(b"\0\0\0\x02ab".to_vec()),
    ];
    proptest::collection::vec(snippet, 0..40).prop_map(|parts| parts.concat())
}

fn split<'i>(input: &'i [u8], cuts: &[prop::sample::Index]) -> Vec<&'i [u8]> {
    let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
    places.extend([0, input.len()]);
    places.sort_unstable();
    let pairs = places.windows(2);
    pairs.map(|pair| &input[pair[0]..pair[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_split_gives_the_same_items(
        input in input(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        limit in 1_usize..12,
    ) {
        for subject in subjects(limit) {
            let whole = decode(slice::from_ref(&subject), &[&input]);
            let parts = decode(slice::from_ref(&subject), &split(&input, &cuts));
            prop_assert_eq!(&whole, &parts, "{:?}", subject);
            let bytes: Vec<_> = input.chunks(1).collect();
            let bytes = decode(slice::from_ref(&subject), &bytes);
            prop_assert_eq!(&whole, &bytes, "{:?}", subject);
        }
    }

    /// An item ends before the first place where the delimiter is, also behind false starts.
    #[test]
    fn the_first_delimiter_ends_an_item(input in proptest::collection::vec(b'a'..b'c', 0..30)) {
        for delimiter in [&b"aab"[..], b"ababab", b"aa"] {
            let first = input.windows(delimiter.len()).position(|bytes| bytes == delimiter);
            let found = match until(delimiter, 100).decode(&input, false) {
                Ok(Decoded::Item { item, .. }) => Some(item.len()),
                other => {
                    prop_assert_eq!(other, Ok(Decoded::Incomplete));
                    None
                }
            };
            prop_assert_eq!(found, first, "{:?}", delimiter);
        }
    }

    /// After a switch the rest of the buffer goes to the new codec, so a cut changes nothing
    /// either. (Codecs that deliver what has come, however much, can't take part.)
    #[test]
    fn any_split_gives_the_same_items_after_a_switch(
        input in input(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        limit in 1_usize..12,
        order in Just((0..13).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let all = subjects(limit);
        let codecs: Vec<_> = order[..3].iter().map(|index| all[*index].clone()).collect();
        let whole = decode(&codecs, &[&input]);
        prop_assert_eq!(&whole, &decode(&codecs, &split(&input, &cuts)), "{:?}", codecs);
        let bytes: Vec<_> = input.chunks(1).collect();
        prop_assert_eq!(&whole, &decode(&codecs, &bytes), "{:?}", codecs);
    }

    /// What is encoded is decoded, and what follows is left; what can't be encoded leaves the output
    /// as it was.
    #[test]
    fn what_is_encoded_is_decoded(payload in input(), rest in input(), limit in 1_usize..200) {
        for Subject { mut codec, is_joined } in subjects(limit) {
            let mut output = b"before".to_vec();
            if codec.encode(&payload, &mut output).is_err() {
                prop_assert_eq!(&output, b"before");
                continue;
            }
            let length = output.len() - 6;
            if !is_joined {
                output.extend(&rest);
            }
            match codec.decode(&output[6..], false) {
                Ok(Decoded::Item { item, consumed }) => {
                    prop_assert_eq!(consumed, length, "{:?}", codec);
                    prop_assert_eq!(item.into_vec(), payload.clone(), "{:?}", codec);
                }
                other => prop_assert!(is_joined && payload.is_empty(), "{codec:?}: {other:?}"),
            }
        }
    }

    /// While an item is incomplete its input is as long as the documentation says, at most.
    #[test]
    fn no_more_is_kept_than_the_limit(input in input(), limit in 1_usize..12) {
        let most = |index: usize| match index {
            0 => limit + 1,
            1 => limit,
            2 => limit + 2,
            3 => limit + 3,
            4 => limit + 2,
            5 | 8 => limit,
            6 | 9 => limit + 1,
            7 | 10 => limit + 3,
            11 => limit + 9,
            12 => limit - 1,
            13 => 0,
            14 => limit + 1,
            _ => limit + 2,
        };
        for (index, Subject { mut codec, .. }) in subjects(limit).into_iter().enumerate() {
            let mut kept = Vec::new();
            'bytes: for byte in &input {
                kept.push(*byte);
                loop {
                    match codec.decode(&kept, false) {
                        Err(_) => break 'bytes,
                        Ok(Decoded::Incomplete) => break,
                        Ok(Decoded::Item { consumed, .. }) => drop(kept.drain(..consumed)),
                    }
                }
                prop_assert!(kept.len() <= most(index), "{codec:?} keeps {kept:?}");
            }
        }
    }
}
