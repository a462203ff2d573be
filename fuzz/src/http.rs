//! The HTTP parser of `paceline-server`.

use paceline_server::http::Trial;

use crate::script::Script;

/// What follows the body of [`a_chunked_body_ends_where_it_says`].
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

/// The same requests and the same refusal, wherever the network cuts the bytes. No request has bytes
/// that could end a line elsewhere.
pub(crate) fn requests_may_be_cut_anywhere(data: &[u8]) {
    let mut script = Script::new(data);
    let cuts = script.cuts();
    let input = script.rest();
    let whole = Trial::of(input, &[]);
    assert_eq!(
        whole,
        Trial::of(input, &cuts),
        "{:?} cut at {cuts:?}",
        input.escape_ascii().to_string()
    );
    if input.len() <= 300 {
        let every: Vec<_> = (0..input.len()).collect();
        assert_eq!(
            whole,
            Trial::of(input, &every),
            "{:?} byte by byte",
            input.escape_ascii().to_string()
        );
    }
    for request in &whole.requests {
        check_text(request.method.as_bytes(), b" ");
        check_text(request.target.as_bytes(), b" ");
        for (name, value) in &request.fields {
            check_text(name.as_bytes(), b" :\t");
            check_text(value, b"");
        }
    }
}

/// Nothing that ends a line, and none of `others`.
fn check_text(text: &[u8], others: &[u8]) {
    let is_odd = |byte: &u8| b"\r\n\0".contains(byte) || others.contains(byte);
    assert!(
        !text.iter().any(is_odd),
        "{:?}",
        text.escape_ascii().to_string()
    );
}

/// A chunked body is refused, or wants more, or ends where a much simpler reader of the coding ends it,
/// with the same data: what follows it is the next request.
pub(crate) fn a_chunked_body_ends_where_it_says(data: &[u8]) {
    let mut input = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    input.extend_from_slice(data);
    input.extend_from_slice(NEXT);
    let trial = Trial::of(&input, &[]);
    let Some(first) = trial.requests.first().filter(|first| first.is_whole) else {
        return;
    };
    let body = [data, NEXT].concat();
    let (expected, length) = read_simply(&body).expect("what is taken is simple");
    assert_eq!(
        first.body,
        expected,
        "{:?}",
        data.escape_ascii().to_string()
    );
    let rest = Trial::of(&body[length..], &[]);
    assert_eq!(trial.requests[1..], rest.requests);
    assert_eq!(trial.refused, rest.refused);
}

/// The data, and how many bytes the coding takes. It checks nothing that it does not need.
fn read_simply(body: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        let line = line(&body[at..])?;
        let digits = line.split(|byte| *byte == b';').next()?;
        let size = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        at += line.len() + 2;
        if size == 0 {
            break;
        }
        data.extend_from_slice(body.get(at..at + size)?);
        at += size + 2;
    }
    loop {
        let trailer = line(&body[at..])?.len();
        at += trailer + 2;
        if trailer == 0 {
            return Some((data, at));
        }
    }
}

/// The first line, without its end.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|window| window == b"\r\n")?;
    Some(&bytes[..end])
}
