//! Section 7: the end of a WebSocket.

use super::{texts::INVALID, *};

/// Section 7: each side closes once, with a code that may be sent, and nothing counts behind that.
#[test]
fn closing() {
    let mut cases = Cases::default();
    let normal = || close(1000, "");
    let frames = vec![text("Hello World!"), normal()];
    cases.add(
        "7.1.1",
        frames,
        Pieces::Whole,
        vec![echo("Hello World!")],
        End::Answered(Some(1000)),
    );
    for (number, behind) in [
        ("7.1.2", normal()),
        ("7.1.3", frame(FIN | PING, "")),
        ("7.1.4", text("Hello World!")),
    ] {
        cases.add(
            number,
            vec![normal(), behind],
            Pieces::Whole,
            vec![],
            End::Answered(Some(1000)),
        );
    }
    let frames = vec![
        frame(MORE | TEXT, "fragment1"),
        normal(),
        frame(FIN, "fragment2"),
    ];
    cases.add(
        "7.1.5",
        frames,
        Pieces::Whole,
        vec![],
        End::Answered(Some(1000)),
    );
    let long = "BAsd7&jh23".repeat(26_214);
    let frames = vec![text(&long), normal(), frame(FIN | PING, "")];
    cases.add(
        "7.1.6",
        frames,
        Pieces::Whole,
        vec![echo(&long)],
        End::Answered(Some(1000)),
    );

    let empty = vec![frame(FIN | CLOSE, "")];
    cases.add("7.3.1", empty, Pieces::Whole, vec![], End::Answered(None));
    cases.add(
        "7.3.2",
        vec![frame(FIN | CLOSE, "a")],
        Pieces::Whole,
        vec![],
        End::Code(1002),
    );
    for (number, reason) in [
        ("7.3.3", ""),
        ("7.3.4", "Hello World!"),
        ("7.3.5", &"*".repeat(123)),
    ] {
        let frames = vec![close(1000, reason)];
        cases.add(
            number,
            frames,
            Pieces::Whole,
            vec![],
            End::Answered(Some(1000)),
        );
    }
    let too_long = vec![close(1000, "*".repeat(124))];
    cases.add("7.3.6", too_long, Pieces::Whole, vec![], End::Code(1002));
    cases.add(
        "7.5.1",
        vec![close(1000, INVALID[0])],
        Pieces::Whole,
        vec![],
        End::Code(1007),
    );

    let valid = [
        1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999,
    ];
    for (number, code) in valid.into_iter().enumerate() {
        let number = format!("7.7.{}", number + 1);
        cases.add(
            number,
            vec![close(code, "")],
            Pieces::Whole,
            vec![],
            End::Answered(Some(code)),
        );
    }
    // 5000 and 65535 are those of section 7.13, whose outcome the list leaves open.
    let invalid = [
        0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65_535,
    ];
    for (number, code) in invalid.into_iter().enumerate() {
        let number = format!("7.9.{}", number + 1);
        cases.add(
            number,
            vec![close(code, "")],
            Pieces::Whole,
            vec![],
            End::Code(1002),
        );
    }
    cases.run();
}
