//! Section 6: texts.

use super::*;

/// Texts that are UTF-8, of each length of a character, and at the edges.
const VALID: &[&str] = &[
    "Hello-\u{b5}@\u{df}\u{f6}\u{e4}\u{fc}\u{e0}\u{e1}-UTF-8!!",
    "\u{3ba}\u{1f79}\u{3c3}\u{3bc}\u{3b5}",
    "\0",
    "\u{80}",
    "\u{800}",
    "\u{10000}",
    "\u{7f}",
    "\u{7ff}",
    "\u{ffff}",
    "\u{10ffff}",
    "\u{d7ff}",
    "\u{e000}",
    "\u{fffd}",
    "\u{fffe}",
    "\u{fffe}\u{ffff}\u{1fffe}\u{1ffff}",
];

/// Bytes that are no UTF-8: what belongs to no character, what is too long, too large, or half of a pair.
pub(super) const INVALID: &[&[u8]] = &[
    b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
    b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited",
    b"\x80",
    b"\xbf",
    b"\x80\xbf\x80\xbf",
    b"\xc0 \xc1 \xc2 ",
    b"\xe0 \xe1 \xef ",
    b"\xf0 \xf4 ",
    b"\xf5 ",
    b"\xf8 \xfc ",
    b"\xc0",
    b"\xe0\x80",
    b"\xf0\x80\x80",
    b"\xdf",
    b"\xef\xbf",
    b"\xf7\xbf\xbf",
    b"\xfe",
    b"\xff",
    b"\xfe\xfe\xff\xff",
    b"\xc0\xaf",
    b"\xe0\x80\xaf",
    b"\xf0\x80\x80\xaf",
    b"\xf8\x80\x80\x80\xaf",
    b"\xc1\xbf",
    b"\xe0\x9f\xbf",
    b"\xf0\x8f\xbf\xbf",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xed\xad\xbf",
    b"\xed\xae\x80",
    b"\xed\xaf\xbf",
    b"\xed\xb0\x80",
    b"\xed\xbe\x80",
    b"\xed\xbf\xbf",
    b"\xed\xa0\x80\xed\xb0\x80",
    b"\xed\xaf\xbf\xed\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xf7\xbf\xbf\xbf",
    b"\xfb\xbf\xbf\xbf\xbf",
    b"\xfd\xbf\xbf\xbf\xbf\xbf",
];

/// Section 6: texts are UTF-8, wherever frames and reads cut a character. What can't become UTF-8 any more is refused
/// before the rest has come.
#[test]
fn texts_are_utf8() {
    let mut cases = Cases::default();
    cases.add(
        "6.1.1",
        vec![text("")],
        Pieces::Whole,
        vec![echo("")],
        End::Well,
    );
    let empty = vec![frame(MORE | TEXT, ""), frame(MORE, ""), frame(FIN, "")];
    cases.add("6.1.2", empty, Pieces::Whole, vec![echo("")], End::Well);
    let middle = vec![
        frame(MORE | TEXT, ""),
        frame(MORE, "middle"),
        frame(FIN, ""),
    ];
    cases.add(
        "6.1.3",
        middle,
        Pieces::Whole,
        vec![echo("middle")],
        End::Well,
    );
    for (number, valid) in VALID.iter().enumerate() {
        let back = || vec![echo(valid)];
        let name = |form: &str| format!("6.2, 6.5-6.7, 6.9, 6.11, 6.22: {number} {form}");
        cases.add(
            name("whole"),
            vec![text(valid)],
            Pieces::Whole,
            back(),
            End::Well,
        );
        cases.add(
            name("bytes"),
            vec![text(valid)],
            Pieces::Of(1),
            back(),
            End::Well,
        );
        let frames = fragments(TEXT, valid.as_bytes(), 1);
        cases.add(
            name("frames of a byte"),
            frames,
            Pieces::Whole,
            back(),
            End::Well,
        );
    }
    for (number, invalid) in INVALID.iter().enumerate() {
        let name = |form: &str| format!("6.3, 6.8, 6.10, 6.12-6.21: {number} {form}");
        cases.add(
            name("whole"),
            vec![text(invalid)],
            Pieces::Whole,
            vec![],
            End::Code(1007),
        );
        let frames = fragments(TEXT, invalid, 1);
        cases.add(
            name("frames of a byte"),
            frames,
            Pieces::Whole,
            vec![],
            End::Code(1007),
        );
    }
    // What follows never comes.
    let begun = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90";
    cases.add(
        "6.4.1",
        vec![frame(MORE | TEXT, begun)],
        Pieces::Whole,
        vec![],
        End::Code(1007),
    );
    let mut half = text(INVALID[1]);
    half.truncate(2 + 4 + begun.len());
    cases.add(
        "6.4.3",
        vec![half.clone()],
        Pieces::Whole,
        vec![],
        End::Code(1007),
    );
    cases.add("6.4.4", vec![half], Pieces::Of(1), vec![], End::Code(1007));
    cases.run();
}
