//! WebSockets by the numbers of Autobahn's case list, sections 1 to 10, in our own words: what an echo server must send, and
//! how the connection must end. (Sections 12 and 13 are about compression, which this server does not offer.)
//!
//! Autobahn's own program runs only on Python 2, so its list is replayed here: each case over a connection, its bytes at
//! once, or in pieces that are read one by one.

#[path = "socket_cases/closing.rs"]
mod closing;
#[path = "socket_cases/frames.rs"]
mod frames;
#[path = "socket_cases/texts.rs"]
mod texts;

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
