//! The codec against its table, and against every way to cut its input.

use proptest::prelude::*;

use super::{HeadLimits, HttpCodec, Item, Trial};
use crate::codec::{Codec, Decoded};

#[path = "../../../tests/http/table.rs"]
mod table;

/// Each request of the table is answered as the table says.
#[test]
fn every_case_of_the_table_has_its_status() {
    let cases = table::cases();
    assert!(cases.len() >= 200, "{} cases", cases.len());
    let wrong: Vec<_> = cases
        .iter()
        .map(|case| (case, Trial::of(&case.raw, &[]).status()))
        .filter(|(case, status)| case.status != *status)
        .map(|(case, status)| {
            let shown = &case.raw[..case.raw.len().min(120)];
            format!(
                "{status} for {}, which is {}",
                shown.escape_ascii(),
                case.status
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A refusal must not depend on how the network cuts the bytes: each byte alone gives the same.
#[test]
fn every_case_is_the_same_byte_by_byte() {
    for case in table::cases().iter().filter(|case| case.raw.len() < 600) {
        let cuts: Vec<_> = (0..case.raw.len()).collect();
        assert_eq!(
            Trial::of(&case.raw, &cuts),
            Trial::of(&case.raw, &[]),
            "{}",
            case.raw.escape_ascii()
        );
    }
}

/// A head arrives byte by byte: the scan goes on where it stopped, and the parser runs once.
#[test]
fn head_byte_by_byte() {
    let head = b"GET /a HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n";
    let mut codec = HttpCodec::new(HeadLimits::default());
    for end in 1..head.len() {
        let decoded = codec.decode(&head[..end], false);
        assert!(matches!(decoded, Ok(Decoded::Incomplete)));
        assert_eq!(codec.scanned(), end);
    }
    let decoded = codec.decode(head, false);
    assert!(matches!(decoded, Ok(Decoded::Item { consumed, .. }) if consumed == head.len()));
    assert_eq!(codec.scanned(), 0);
}

/// What follows a body is the next request, wherever the body ends.
#[test]
fn requests_follow_each_other() {
    let input = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\n\
        Host: b\r\n\r\nPOST /c HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n\
        2\r\nhi\r\n0\r\n\r\n\r\nGET http://x/d HTTP/1.1\r\nHost: d\r\n\r\n";
    let outcome = Trial::of(input, &[]);
    let seen: Vec<_> = outcome
        .requests
        .iter()
        .map(|it| (&*it.target, it.authority.as_deref().unwrap(), &*it.body))
        .collect();
    assert_eq!(
        seen,
        [
            ("/a", "a", &b"hello"[..]),
            ("/b", "b", b""),
            ("/c", "c", b"hi"),
            ("http://x/d", "x", b""),
        ]
    );
    assert_eq!((outcome.whole(), outcome.refused), (4, None));
}

/// A head has many fields: those beyond the first few are found too.
#[test]
fn all_fields_are_found() {
    let fields: String = (0..80)
        .map(|number| format!("x-{number}: {number}\r\n"))
        .collect();
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let mut codec = HttpCodec::new(HeadLimits::default());
    let Ok(Decoded::Item {
        item: Item::Request { head, .. },
        ..
    }) = codec.decode(head.as_bytes(), false)
    else {
        panic!("the head is whole");
    };
    let kept = head.keep();
    for number in 0..80 {
        let name = format!("X-{number}");
        let values: Vec<_> = kept.head().values(&name).map(<[u8]>::to_vec).collect();
        assert_eq!(values, [number.to_string().into_bytes()]);
    }
}

/// Requests, good and bad, one behind the other.
fn conversations() -> impl Strategy<Value = Vec<u8>> {
    let cases = table::cases();
    let short: Vec<_> = cases
        .into_iter()
        .filter(|case| case.raw.len() < 2000)
        .collect();
    let case = prop::sample::select(short).prop_map(|case| case.raw);
    prop::collection::vec(case, 1..5).prop_map(|cases| cases.concat())
}

proptest! {
    /// Any split of the input gives the same requests, the same bodies and the same refusal.
    #[test]
    fn a_split_changes_nothing(
        input in conversations(),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        prop_assert_eq!(Trial::of(&input, &cuts), Trial::of(&input, &[]));
    }

    /// Bytes that are no HTTP end in a refusal or wait for more; nothing panics.
    #[test]
    fn any_bytes_are_survived(
        mut input in conversations(),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        cuts in prop::collection::vec(any::<usize>(), 0..4),
    ) {
        for (place, byte) in changes {
            let length = input.len();
            input[place % length] = byte;
        }
        prop_assert_eq!(Trial::of(&input, &cuts), Trial::of(&input, &[]));
    }
}
