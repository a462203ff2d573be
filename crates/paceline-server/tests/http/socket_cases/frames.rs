//! Sections 1 to 5, 9 and 10: the forms of frames.

use super::*;

/// Section 1: messages of every form of length. Section 9: large ones, in frames and in pieces. Section 10: many frames.
#[test]
fn lengths_and_large_messages() {
    let mut cases = Cases::default();
    for (section, kind) in [(1, TEXT), (2, BINARY)] {
        let both = |length: usize| {
            let payload = vec![b'*'; length];
            (frame(FIN | kind, &payload), (FIN | kind, payload))
        };
        for (number, length) in [0, 125, 126, 127, 128, 65_535, 65_536]
            .into_iter()
            .enumerate()
        {
            let (sent, back) = both(length);
            let number = format!("1.{section}.{}", number + 1);
            cases.add(number, vec![sent], Pieces::Whole, vec![back], End::Well);
        }
        let (sent, back) = both(65_536);
        let number = format!("1.{section}.8");
        cases.add(number, vec![sent], Pieces::Of(997), vec![back], End::Well);

        for (number, shift) in [16, 18, 20, 22, 23, 24].into_iter().enumerate() {
            if kind == TEXT && shift > 22 {
                // The same path as that of bytes, and in a debug build seconds for the check of UTF-8.
                break;
            }
            let (sent, back) = both(1 << shift);
            let number = format!("9.{section}.{}", number + 1);
            cases.add(number, vec![sent], Pieces::Whole, vec![back], End::Well);
        }
        for (number, size) in [
            64,
            256,
            1 << 10,
            1 << 12,
            1 << 14,
            1 << 16,
            1 << 18,
            1 << 20,
            1 << 22,
        ]
        .into_iter()
        .enumerate()
        {
            // A message has at most 4,096 frames here: those of 64 and of 256 bytes carry less.
            let length = (4 << 20).min(size * 4000);
            let payload = vec![b'*'; length];
            let frames = fragments(kind, &payload, size);
            let number = format!("9.{}.{}", section + 2, number + 1);
            cases.add(
                number,
                frames,
                Pieces::Whole,
                vec![(FIN | kind, payload)],
                End::Well,
            );
        }
        for (number, size) in [64, 128, 256, 512, 1024, 2048].into_iter().enumerate() {
            let (sent, back) = both(1 << 18);
            let number = format!("9.{}.{}", section + 4, number + 1);
            cases.add(number, vec![sent], Pieces::Of(size), vec![back], End::Well);
        }
        for (number, size) in [0, 16, 64, 256, 1024, 4096].into_iter().enumerate() {
            let (sent, back) = both(size);
            let number = format!("9.{}.{}", section + 6, number + 1);
            cases.add(
                number,
                vec![sent; 1000],
                Pieces::Whole,
                vec![back; 1000],
                End::Well,
            );
        }
    }
    let payload = vec![b'*'; 65_536];
    let frames = fragments(TEXT, &payload, 1300);
    cases.add(
        "10.1.1",
        frames,
        Pieces::Whole,
        vec![echo(&payload)],
        End::Well,
    );
    cases.run();
}

/// Section 2: pings are answered in their order with their payload, pongs are not.
#[test]
fn pings_and_pongs() {
    let mut cases = Cases::default();
    let ping = |payload: &[u8]| frame(FIN | PING, payload);
    let (full, odd) = ([0xfe; 125], b"\0\xff\xfe\xfd\xfc\xfb\0\xff");
    cases.add(
        "2.1",
        vec![ping(b"")],
        Pieces::Whole,
        vec![pong("")],
        End::Well,
    );
    cases.add(
        "2.2",
        vec![ping(b"Hello")],
        Pieces::Whole,
        vec![pong("Hello")],
        End::Well,
    );
    cases.add(
        "2.3",
        vec![ping(odd)],
        Pieces::Whole,
        vec![pong(odd)],
        End::Well,
    );
    cases.add(
        "2.4",
        vec![ping(&full)],
        Pieces::Whole,
        vec![pong(full)],
        End::Well,
    );
    cases.add(
        "2.5",
        vec![ping(&[0xfe; 126])],
        Pieces::Whole,
        vec![],
        End::Code(1002),
    );
    cases.add(
        "2.6",
        vec![ping(&full)],
        Pieces::Of(1),
        vec![pong(full)],
        End::Well,
    );
    let own = |payload: &str| frame(FIN | PONG, payload);
    cases.add("2.7", vec![own("")], Pieces::Whole, vec![], End::Well);
    cases.add(
        "2.8",
        vec![own("unasked")],
        Pieces::Whole,
        vec![],
        End::Well,
    );
    cases.add(
        "2.9",
        vec![own("unasked"), ping(b"mine")],
        Pieces::Whole,
        vec![pong("mine")],
        End::Well,
    );
    let payloads: Vec<_> = (0..10).map(|number| format!("payload-{number}")).collect();
    let pings: Vec<_> = payloads
        .iter()
        .map(|payload| ping(payload.as_bytes()))
        .collect();
    let pongs: Vec<_> = payloads.iter().map(pong).collect();
    cases.add(
        "2.10",
        pings.clone(),
        Pieces::Whole,
        pongs.clone(),
        End::Well,
    );
    cases.add("2.11", pings, Pieces::Of(1), pongs, End::Well);
    cases.run();
}

/// Sections 3 and 4: bits and opcodes that nobody has agreed on.
#[test]
fn reserved_bits_and_opcodes() {
    let mut cases = Cases::default();
    let hello = || text("Hello, world!");
    let reserved = |bits: u8, opcode: u8| frame(FIN | bits << 4 | opcode, "Hello, world!");
    let ping = frame(FIN | PING, "");
    let back = || vec![echo("Hello, world!")];
    cases.add(
        "3.1",
        vec![reserved(1, TEXT)],
        Pieces::Whole,
        vec![],
        End::Code(1002),
    );
    for (number, bits, pieces) in [
        ("3.2", 2, Pieces::Whole),
        ("3.3", 3, Pieces::Frames),
        ("3.4", 4, Pieces::Of(1)),
    ] {
        let frames = vec![hello(), reserved(bits, TEXT), ping.clone()];
        cases.add(number, frames, pieces, back(), End::Code(1002));
    }
    for (number, bits, opcode) in [("3.5", 5, BINARY), ("3.6", 6, PING), ("3.7", 7, CLOSE)] {
        cases.add(
            number,
            vec![reserved(bits, opcode)],
            Pieces::Whole,
            vec![],
            End::Code(1002),
        );
    }
    for (section, first) in [(1, 3), (2, 11)] {
        for number in 0..5 {
            let bad = frame(
                FIN | (first + number),
                if number == 0 { "" } else { "reserved" },
            );
            let name = format!("4.{section}.{}", number + 1);
            if number < 2 {
                cases.add(name, vec![bad], Pieces::Whole, vec![], End::Code(1002));
            } else {
                let pieces = if number == 4 {
                    Pieces::Of(1)
                } else {
                    Pieces::Whole
                };
                let frames = vec![hello(), bad, ping.clone()];
                cases.add(name, frames, pieces, back(), End::Code(1002));
            }
        }
    }
    cases.run();
}

/// Section 5: messages in several frames, and control frames between them.
#[test]
fn fragments_and_control_frames() {
    let mut cases = Cases::default();
    let (first, last) = (
        || frame(MORE | TEXT, "fragment1"),
        || frame(FIN, "fragment2"),
    );
    let ping = || frame(FIN | PING, "ping");
    let whole = || echo("fragment1fragment2");
    for (number, opcode) in [("5.1", PING), ("5.2", PONG)] {
        let frames = vec![frame(MORE | opcode, "fragment1"), last()];
        cases.add(number, frames, Pieces::Whole, vec![], End::Code(1002));
    }
    for (numbers, frames, sent) in [
        (["5.3", "5.4", "5.5"], vec![first(), last()], vec![whole()]),
        (
            ["5.6", "5.7", "5.8"],
            vec![first(), ping(), last()],
            vec![pong("ping"), whole()],
        ),
    ] {
        let pieces = [Pieces::Whole, Pieces::Frames, Pieces::Of(1)];
        for (number, pieces) in numbers.into_iter().zip(pieces) {
            cases.add(number, frames.clone(), pieces, sent.clone(), End::Well);
        }
    }
    // A continuation of nothing, that is the last frame or is not.
    for (numbers, bits) in [
        (["5.9", "5.10", "5.11"], FIN),
        (["5.12", "5.13", "5.14"], MORE),
    ] {
        let pieces = [Pieces::Whole, Pieces::Frames, Pieces::Of(1)];
        for (number, pieces) in numbers.into_iter().zip(pieces) {
            let frames = vec![frame(bits, "non-continuation"), text("Hello, world!")];
            cases.add(number, frames, pieces, vec![], End::Code(1002));
        }
    }
    let frames = vec![
        first(),
        last(),
        frame(MORE, "fragment3"),
        frame(FIN | TEXT, "fragment4"),
    ];
    cases.add(
        "5.15",
        frames,
        Pieces::Whole,
        vec![whole()],
        End::Code(1002),
    );
    for (number, bits) in [("5.16", MORE), ("5.17", FIN)] {
        let once = [
            frame(bits, "fragment1"),
            frame(MORE | TEXT, "fragment2"),
            frame(FIN, "fragment3"),
        ];
        let frames = [&once[..], &once[..]].concat();
        cases.add(number, frames, Pieces::Whole, vec![], End::Code(1002));
    }
    let frames = vec![first(), frame(FIN | TEXT, "fragment2")];
    cases.add("5.18", frames, Pieces::Whole, vec![], End::Code(1002));
    for (number, pieces) in [("5.19", Pieces::Frames), ("5.20", Pieces::Of(1))] {
        let more = |payload: &str| frame(MORE, payload);
        let frames = vec![
            first(),
            more("fragment2"),
            frame(FIN | PING, "pongme 1!"),
            more("fragment3"),
            more("fragment4"),
            frame(FIN | PING, "pongme 2!"),
            frame(FIN, "fragment5"),
        ];
        let all = "fragment1fragment2fragment3fragment4fragment5";
        let sent = vec![pong("pongme 1!"), pong("pongme 2!"), echo(all)];
        cases.add(number, frames, pieces, sent, End::Well);
    }
    cases.run();
}
