//! Each limit is exact: the longest item is one, and one byte more is refused, also byte by byte.

use paceline_server::codec::{
    dot, dot_chunks, line, lines, prefixed, prefixed_le, until, varint, Codec, Decoded, Framing,
    Malformed,
};

const LIMIT: usize = 300;

/// A codec, and an item whose payload has so many bytes, as it arrives.
type Case = (&'static str, fn() -> Framing, fn(usize) -> Vec<u8>);

fn behind(prefix: &[u8], length: usize) -> Vec<u8> {
    [prefix, &vec![b'x'; length]].concat()
}

const CASES: [Case; 9] = [
    (
        "line",
        || line(LIMIT),
        |n| [&vec![b'x'; n][..], b"\r\n"].concat(),
    ),
    (
        "line, LF",
        || line(LIMIT),
        |n| [&vec![b'x'; n][..], b"\n"].concat(),
    ),
    (
        "lines",
        || lines(LIMIT),
        |n| [&vec![b'x'; n][..], b"\r\n"].concat(),
    ),
    (
        "until",
        || until(b"--", LIMIT),
        |n| [&vec![b'x'; n][..], b"--"].concat(),
    ),
    (
        "dot",
        || dot(LIMIT),
        |n| [&vec![b'x'; n - 2][..], b"\r\n.\r\n"].concat(),
    ),
    (
        "dot_chunks",
        || dot_chunks(LIMIT),
        |n| [&vec![b'x'; n][..], b"\r\n.\r\n"].concat(),
    ),
    (
        "prefixed",
        || prefixed::<u16>(LIMIT),
        |n| behind(&(n as u16).to_be_bytes(), n),
    ),
    (
        "prefixed_le",
        || prefixed_le::<u32>(LIMIT),
        |n| behind(&(n as u32).to_le_bytes(), n),
    ),
    (
        "varint",
        || varint(LIMIT),
        |n| behind(&[(n & 0x7f) as u8 | 0x80, (n >> 7) as u8], n),
    ),
];

/// Feeds byte by byte; whether an item came, or the limit was met.
fn feed(codec: &mut Framing, input: &[u8]) -> Result<bool, Malformed> {
    for end in 1..=input.len() {
        if let Decoded::Item { .. } = codec.decode(&input[..end], false)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[test]
fn limits_are_exact_at_the_byte() {
    let long = Err(Malformed::TooLong { limit: LIMIT });
    for (name, codec, item) in CASES {
        assert_eq!(feed(&mut codec(), &item(LIMIT)), Ok(true), "{name}");
        assert_eq!(feed(&mut codec(), &item(LIMIT + 1)), long, "{name}");
        let at_once = codec().decode(&item(LIMIT + 1), false).map(|_| ());
        assert_eq!(at_once, Err(Malformed::TooLong { limit: LIMIT }), "{name}");
    }
}

/// Limits hold in the other direction too: a session can't send what its peer's codec would refuse.
#[test]
fn encoding_has_the_same_limits() {
    for (name, codec, _) in CASES {
        let (end, added) = match name {
            "lines" | "dot_chunks" => ("\r\n", 0),
            "dot" => ("\r\n", 2),
            _ => ("", 0),
        };
        let payload = |length| format!("{}{end}", "x".repeat(length - added));
        let mut output = Vec::new();
        let fits = codec().encode(payload(LIMIT).as_bytes(), &mut output);
        assert_eq!(fits, Ok(()), "{name}");
        let before = output.len();
        let long = codec().encode(payload(LIMIT + 1).as_bytes(), &mut output);
        assert_eq!(long, Err(Malformed::TooLong { limit: LIMIT }), "{name}");
        assert_eq!(output.len(), before);
    }
}
