//! WebSockets by the numbers of Autobahn's case list, sections 1 to 10, in our own words: what an echo server must send, and
//! how the connection must end. (Sections 12 and 13 are about compression, which this server does not offer.)
//!
//! Autobahn's own program runs only on Python 2, so its list is replayed here: each case over a connection, its bytes at
//! once, or in pieces that are read one by one.

use paceline_server::{
    http::Router,
    websocket::{Frames, Incoming},
    Next, Peer, Session,
};

use crate::support::{Client, Site};

const OPENING: &str =
    "GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const MASK: [u8; 4] = [0xa1, 0, 0x5c, 0xff];
const FIN: u8 = 0x80;
const MORE: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Sends each message back.
struct Echo;

impl Session<Frames> for Echo {
    fn handle(&mut self, message: Incoming, cx: &mut Peer<'_, Frames>) -> std::io::Result<Next> {
        match message {
            Incoming::Text(text) => cx.reply(text)?,
            Incoming::Binary(bytes) => cx.send(binary(&bytes))?,
            other => panic!("a session gets messages alone, not {other:?}"),
        }
        Ok(Next::Continue)
    }
}

/// A server's frame of bytes: `reply` makes a text of what is UTF-8.
fn binary(bytes: &[u8]) -> Vec<u8> {
    paceline_server::websocket::Outgoing::Binary(bytes)
        .to_vec()
        .expect("a frame has room for it")
}

/// A client's frame.
fn frame(first: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let length = payload.len();
    let mut bytes = vec![first];
    match (u16::try_from(length), length) {
        (_, 0..=125) => bytes.push(0x80 | length as u8),
        (Ok(short), _) => {
            bytes.push(0x80 | 126);
            bytes.extend(short.to_be_bytes());
        }
        (Err(_), _) => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(
        payload
            .iter()
            .zip(MASK.iter().cycle())
            .map(|(byte, key)| byte ^ key),
    );
    bytes
}

fn text(payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(FIN | TEXT, payload)
}

fn close(code: u16, reason: impl AsRef<[u8]>) -> Vec<u8> {
    frame(
        FIN | CLOSE,
        [&code.to_be_bytes()[..], reason.as_ref()].concat(),
    )
}

/// How many bytes of a case are sent before the server has read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pieces {
    /// All of them.
    Whole,
    /// Frame by frame.
    Frames,
    Of(usize),
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By the client, with 1000: all went well.
    Well,
    /// By the server, with this code.
    Code(u16),
    /// The client's close frame is in the case, and this is the code of the answer; `None`: it has none.
    Answered(Option<u16>),
}

/// One case of the list.
struct Case {
    number: String,
    frames: Vec<Vec<u8>>,
    pieces: Pieces,
    /// What the server sends before the end: the first byte of each frame, and its payload.
    sent: Vec<(u8, Vec<u8>)>,
    end: End,
}

/// The cases of a section.
#[derive(Default)]
struct Cases(Vec<Case>);

impl Cases {
    fn add(
        &mut self,
        number: impl Into<String>,
        frames: Vec<Vec<u8>>,
        pieces: Pieces,
        sent: Vec<(u8, Vec<u8>)>,
        end: End,
    ) {
        self.0.push(Case {
            number: number.into(),
            frames,
            pieces,
            sent,
            end,
        });
    }

    fn run(self) {
        let router = Router::new(()).ws("/echo", |(), _| Echo).limit(32 << 20);
        let site = Site::with(router, |server| {
            server.pool(|pool| pool.output_limit(64 << 20))
        });
        let count = self.0.len();
        self.0.iter().for_each(|case| case.run(&site));
        println!("{count} cases");
    }
}

impl Case {
    fn run(&self, site: &Site) {
        let mut client = site.client_with(OPENING);
        assert_eq!(client.answer().unwrap().status, 101);
        self.send(site, &client);
        for (place, wanted) in self.sent.iter().enumerate() {
            let got = next(&mut client, &self.number);
            assert!(
                got == *wanted,
                "{}: frame {place}: {:#x} with {} bytes",
                self.number,
                got.0,
                got.1.len()
            );
        }
        if self.end == End::Well {
            client.send(close(1000, ""));
        }
        let code = match self.end {
            End::Well => Some(1000),
            End::Code(code) => Some(code),
            End::Answered(code) => code,
        };
        let (first, payload) = next(&mut client, &self.number);
        assert_eq!(first, FIN | CLOSE, "{}", self.number);
        let got = payload
            .get(..2)
            .map(|code| u16::from_be_bytes([code[0], code[1]]));
        assert_eq!(got, code, "{}", self.number);
        assert_eq!(client.rest(), b"", "{}", self.number);
        client.peer.wait_closed();
    }

    fn send(&self, site: &Site, client: &Client) {
        let all = self.frames.concat();
        let pieces: Vec<&[u8]> = match self.pieces {
            Pieces::Whole => vec![&all],
            Pieces::Frames => self.frames.iter().map(Vec::as_slice).collect(),
            Pieces::Of(size) => all.chunks(size).collect(),
        };
        for piece in pieces {
            client.send(piece);
            if self.pieces != Pieces::Whole && !client.peer.is_output_ended() {
                site.rest();
            }
        }
    }
}

/// The next frame of the server.
fn next(client: &mut Client, number: &str) -> (u8, Vec<u8>) {
    let mut take = |count| {
        client
            .take(count)
            .unwrap_or_else(|| panic!("{number}: a frame is missing"))
    };
    let head = take(2);
    let length = match head[1] {
        126 => take(2)
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
        127 => take(8)
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
        short => usize::from(short),
    };
    (head[0], take(length))
}

fn echo(payload: impl AsRef<[u8]>) -> (u8, Vec<u8>) {
    (FIN | TEXT, payload.as_ref().to_vec())
}

fn pong(payload: impl AsRef<[u8]>) -> (u8, Vec<u8>) {
    (FIN | PONG, payload.as_ref().to_vec())
}

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

/// A message in frames of this size.
fn fragments(kind: u8, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = payload
        .chunks(size)
        .map(|piece| frame(MORE, piece))
        .collect();
    frames[0][0] |= kind;
    let last = frames.len() - 1;
    frames[last][0] |= FIN;
    frames
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
const INVALID: &[&[u8]] = &[
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
