//! WebSockets of a router: the opening, messages, pings, the end of each side.

use std::{
    sync::{mpsc, Mutex},
    thread,
    time::Duration,
};

use paceline_server::{
    http::{Error, Router},
    websocket::{Frames, Incoming, OriginPolicy},
    Ended, Engine, HalfSync, Limit, Next, Peer, Room, Session,
};

use crate::support::{wait, Calls, Client, Site};

const DRAIN: Duration = Duration::from_secs(30);
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
/// The key of RFC 6455, 1.3, and its answer.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Repeats what it gets, and notes what happens to it.
struct Parrot(Calls);

impl Session<Frames> for Parrot {
    fn start(&mut self, cx: &mut Peer<'_, Frames>) -> std::io::Result<Next> {
        cx.reply("hello")?;
        Ok(Next::Continue)
    }

    fn handle(&mut self, message: Incoming, cx: &mut Peer<'_, Frames>) -> std::io::Result<Next> {
        match message {
            Incoming::Text(text) => match &*text {
                "close" => return Ok(Next::Close),
                "fail" => return Err(std::io::Error::other("on demand")),
                "panic" => panic!("on demand"),
                "deadline" => cx.set_deadline(Duration::from_secs(7)),
                text => cx.reply(text)?,
            },
            Incoming::Binary(bytes) => cx.reply(bytes)?,
            other => panic!("a session gets messages alone, not {other:?}"),
        }
        Ok(Next::Continue)
    }

    fn overdue(&mut self, limit: Limit, cx: &mut Peer<'_, Frames>) -> Next {
        self.0.note(format!("overdue {limit}"));
        let _ = cx.reply("late");
        Next::Continue
    }

    fn closed(&mut self, why: &Ended) {
        self.0.note(format!("closed {}", why.name()));
    }
}

fn parrots(calls: &Calls) -> Router<Calls> {
    Router::new(calls.clone())
        .ws("/ws", |calls, _| Parrot(calls.clone()))
        .limit(1000)
        .get("/", |_, _| "plain")
}

/// The request that opens a WebSocket, with these fields beside the usual ones.
fn opening(path: &str, fields: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{fields}\r\n"
    )
}

/// A client's frame of at most 125 bytes. `first` is the byte with FIN and opcode.
fn frame(first: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let mut bytes = vec![first, 0x80 | u8::try_from(payload.len()).unwrap()];
    bytes.extend(MASK);
    let masked = payload.iter().zip(MASK.iter().cycle());
    bytes.extend(masked.map(|(byte, key)| byte ^ key));
    bytes
}

fn text(payload: &str) -> Vec<u8> {
    frame(0x81, payload)
}

/// The next frame of the server: its first byte, and its payload.
fn next(client: &mut Client) -> (u8, Vec<u8>) {
    let head = client.take(2).expect("a frame comes");
    let length = match head[1] {
        126 => {
            let long = client.take(2).unwrap();
            usize::from(u16::from_be_bytes([long[0], long[1]]))
        }
        short => usize::from(short),
    };
    (head[0], client.take(length).unwrap())
}

fn assert_text(client: &mut Client, payload: &str) {
    let (first, bytes) = next(client);
    assert_eq!((first, &*String::from_utf8_lossy(&bytes)), (0x81, payload));
}

/// The server closes with this code.
fn assert_close(client: &mut Client, code: u16) {
    let (first, payload) = next(client);
    assert_eq!((first, &payload[..2]), (0x88, &code.to_be_bytes()[..]));
}

/// A client whose WebSocket is open, and that has read the greeting.
fn open(site: &Site) -> Client {
    let mut client = site.client_with(opening("/ws", ""));
    let answer = client.answer().unwrap();
    assert_eq!(answer.status, 101);
    assert_eq!(answer.field("sec-websocket-accept"), Some(ACCEPTED));
    assert_eq!(answer.field("upgrade"), Some("websocket"));
    assert_eq!(answer.field("connection"), Some("upgrade"));
    assert_eq!(answer.field("content-length"), None);
    assert_text(&mut client, "hello");
    client
}

/// The client does not wait for the answer before it sends frames: they came with the request, and a
/// codec that still expected a request lost them.
#[test]
fn frames_behind_the_opening_are_messages() {
    let calls = Calls::default();
    let site = Site::new(parrots(&calls));
    let all = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        opening("/ws", "").into_bytes(),
        text("one"),
        frame(0x02, b"\xff\0"),
        frame(0x89, b"are you there"),
        frame(0x80, b"end"),
        frame(0x88, 4001_u16.to_be_bytes()),
    ];
    let mut client = site.client_with(all.concat());
    assert_eq!(client.answer().unwrap().text(), "plain");
    assert_eq!(client.answer().unwrap().status, 101);
    assert_text(&mut client, "hello");
    assert_text(&mut client, "one");
    assert_eq!(next(&mut client), (0x8a, b"are you there".to_vec()));
    assert_eq!(next(&mut client), (0x82, b"\xff\0end".to_vec()));
    assert_close(&mut client, 4001);
    assert_eq!(client.rest(), b"");
    client.peer.wait_closed();
    wait(|| calls.all() == ["closed finished"]);
}

/// What breaks the protocol is answered with the code that says so, over the wire.
#[test]
fn breaches_are_closed_with_their_code() {
    let unmasked = vec![0x81, 2, b'h', b'i'];
    let long = [&[0x81, 0x80 | 126, 0x03, 0xe9][..], &MASK].concat();
    let big_control = [&[0x89, 0x80 | 126, 0, 126][..], &MASK].concat();
    let cases = [
        (unmasked, 1002),
        (frame(0x81, b"\xff"), 1007),
        (big_control, 1002),
        (long, 1009),
        (frame(0xc1, b"compressed"), 1002),
        (frame(0x80, b"nothing to continue"), 1002),
    ];
    let calls = Calls::default();
    let site = Site::new(parrots(&calls));
    for (bytes, code) in cases {
        let mut client = open(&site);
        client.send(bytes);
        assert_close(&mut client, code);
        assert_eq!(client.rest(), b"");
    }
}

/// A page of another origin would speak in the name of its visitor.
#[test]
fn foreign_pages_may_not_open() {
    let calls = Calls::default();
    let router = parrots(&calls).ws("/open", |calls, _| Parrot(calls.clone()));
    let router = router.origins(OriginPolicy::Allow(vec!["https://good.example".to_owned()]));
    let site = Site::new(router);
    let cases = [
        ("/ws", "Origin: https://bad.example\r\n", 403),
        ("/ws", "Origin: https://a\r\n", 101),
        ("/open", "Origin: https://bad.example\r\n", 403),
        ("/open", "Origin: https://good.example\r\n", 101),
        ("/ws", "Sec-WebSocket-Version: 8\r\n", 426),
    ];
    for (path, fields, status) in cases {
        let mut client = site.client_with(opening(path, fields));
        assert_eq!(client.answer().unwrap().status, status, "{path} {fields}");
    }
    // What is refused is a plain answer, and the connection goes on.
    let mut client = site.client_with("GET /ws HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().unwrap().status, 400);
    client.send("POST /ws HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.answer().unwrap().status, 405);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().unwrap().text(), "plain");
}

/// A handler may refuse, a hook may refuse, and a subprotocol is the first of the server's that the
/// client offers.
#[test]
fn an_opening_is_refused_or_agreed_on() {
    let calls = Calls::default();
    let router = parrots(&calls)
        .ws("/never", |_, _| Err::<Parrot, _>(Error::new(401, "log in")))
        .ws("/speak", |calls, _| Parrot(calls.clone()))
        .protocols(&["v2", "v1"])
        .after(|_, req, response| {
            if req.header("x-blocked").is_some() {
                *response = Error::new(418, "blocked").into();
            }
        });
    let site = Site::new(router);
    let mut client = site.client_with(opening("/never", ""));
    assert_eq!(client.answer().unwrap().status, 401);
    client.send(opening("/ws", "X-Blocked: 1\r\n"));
    assert_eq!(client.answer().unwrap().status, 418);
    client.send(opening("/speak", "Sec-WebSocket-Protocol: v0, v1, v2\r\n"));
    let answer = client.answer().unwrap();
    assert_eq!(answer.field("sec-websocket-protocol"), Some("v2"));
    assert_text(&mut client, "hello");
}

/// A client that is gone without a word is found by a ping that nothing follows.
#[test]
fn a_silent_client_is_pinged_and_closed() {
    let calls = Calls::default();
    let site = Site::new(parrots(&calls));
    let mut client = open(&site);
    site.pass(Duration::from_secs(31));
    assert_eq!(next(&mut client), (0x89, Vec::new()));
    client.send(frame(0x8a, ""));
    site.settle(&client);
    site.pass(Duration::from_secs(31));
    assert_eq!(next(&mut client), (0x89, Vec::new()));
    site.pass(Duration::from_secs(31));
    assert_eq!(client.rest(), b"");
    wait(|| calls.all() == ["closed limit"]);
}

/// The session's own deadline and the pings of the server do not put each other off.
#[test]
fn a_session_has_its_own_deadline() {
    let calls = Calls::default();
    let site = Site::new(parrots(&calls));
    let mut client = open(&site);
    client.send(text("deadline"));
    site.settle(&client);
    site.pass(Duration::from_secs(8));
    assert_text(&mut client, "late");
    assert_eq!(calls.all(), ["overdue deadline"]);
    site.pass(Duration::from_secs(23));
    assert_eq!(next(&mut client), (0x89, Vec::new()));
}

/// A session that ends says so first; a client that does not answer is not waited for.
#[test]
fn the_server_closes_with_a_frame() {
    let cases = [
        ("close", 1000, "closed limit"),
        ("fail", 1011, "closed failed"),
        ("panic", 1011, "closed panicked"),
    ];
    for (word, code, end) in cases {
        let calls = Calls::default();
        let site = Site::new(parrots(&calls));
        let mut client = open(&site);
        client.send(text(word));
        assert_close(&mut client, code);
        if word == "close" {
            // Messages behind it are for no session.
            client.send(text("more"));
            site.settle(&client);
            site.pass(Duration::from_secs(6));
        }
        assert_eq!(client.rest(), b"", "{word}");
        wait(|| calls.all() == [end]);
    }
}

/// Deployments cut WebSockets without a word. Now each gets 1001, and its answer is waited for.
#[test]
fn drain_streams() {
    let calls = Calls::default();
    let router = parrots(&calls).sse("/events", |_, _| ());
    let site = Site::new(router);
    let (mut polite, mut rude) = (open(&site), open(&site));
    let mut events = site.client_with("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    wait(|| events.has_output());
    site.rest();
    let server = site.server.clone();
    let drain = thread::spawn(move || server.drain(DRAIN));
    for client in [&mut polite, &mut rude] {
        assert_close(client, 1001);
    }
    polite.send(frame(0x88, 1001_u16.to_be_bytes()));
    assert_eq!(polite.rest(), b"");
    let stream = String::from_utf8(events.rest()).unwrap();
    assert!(stream.ends_with("\r\n\r\n"), "{stream}");
    site.pass(Duration::from_secs(6));
    assert_eq!(rude.rest(), b"");
    assert!(drain.join().unwrap().is_clean());
}

/// A thread per WebSocket would be used up here by the second one.
#[test]
fn open_sockets_hold_no_thread() {
    let calls = Calls::default();
    let site = Site::new(parrots(&calls));
    let mut all: Vec<_> = (0..300).map(|_| open(&site)).collect();
    let mut quick = site.client_with("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(quick.answer().unwrap().text(), "plain");
    for (number, client) in all.iter_mut().enumerate() {
        client.send(text(&number.to_string()));
        assert_text(client, &number.to_string());
    }
}

/// A route in another level takes its WebSockets there.
#[test]
fn a_socket_moves_to_its_level() {
    let calls = Calls::default();
    let router = parrots(&calls)
        .ws("/bulk", |calls, _| Parrot(calls.clone()))
        .level("bulk");
    let world = paceline::simulated::Simulation::new(12);
    let bulk = paceline::Pool::builder()
        .threads(1)
        .handle_set(paceline::SetKind::Simulated(world));
    let site = Site::with(router, |server| {
        server.server(|server| server.level("bulk", bulk))
    });
    let mut client = site.client_with(opening("/bulk", ""));
    assert_eq!(client.answer().unwrap().status, 101);
    assert_text(&mut client, "hello");
    client.send(text("there"));
    assert_text(&mut client, "there");
}

/// A message of a room that came behind the close frame broke the protocol.
#[test]
fn nothing_follows_a_close_frame() {
    struct Member(Room);
    impl Session<Frames> for Member {
        fn handle(&mut self, _: Incoming, cx: &mut Peer<'_, Frames>) -> std::io::Result<Next> {
            self.0.join(cx);
            Ok(Next::Close)
        }
    }
    let room = Room::new();
    let router = Router::new(room.clone()).ws("/ws", |room, _| Member(room.clone()));
    let site = Site::new(router);
    let mut client = site.client_with(opening("/ws", ""));
    assert_eq!(client.answer().unwrap().status, 101);
    client.send(text("close"));
    assert_close(&mut client, 1000);
    assert!(room.is_empty());
    room.send(*b"too late");
    client.send(frame(0x88, 1000_u16.to_be_bytes()));
    assert_eq!(client.rest(), b"");
}

/// An overloaded server answered a message with the text of an HTTP answer, in the middle of frames.
#[test]
fn an_overload_is_no_noise_between_frames() {
    let (release, gate) = mpsc::channel::<()>();
    let calls = Calls::default();
    let state = (calls.clone(), Mutex::new(gate));
    let router = Router::new(state)
        .ws("/ws", |(calls, _), _| Parrot(calls.clone()))
        .get("/", |(calls, gate), _| {
            calls.note("called");
            let _ = gate.lock().unwrap().recv();
            "ok"
        });
    let engine = Engine::HalfSyncHalfAsync(HalfSync::default().workers(1).capacity(1));
    let site = Site::with(router, |server| server.engine(engine));
    let mut client = open(&site);
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut works = site.client_with(get);
    wait(|| calls.all() == ["called"]);
    let mut waits = site.client_with(get);
    site.settle(&waits);
    client.send(text("no worker is left for this"));
    assert_eq!(client.rest(), b"");
    for client in [&mut works, &mut waits] {
        release.send(()).unwrap();
        assert_eq!(client.answer().unwrap().status, 200);
    }
}

/// A session writes a long answer in parts, each when the client has taken the last: it is called again
/// before it gets the next message.
#[test]
fn a_session_is_called_again() {
    struct Counts(u32);
    impl Session<Frames> for Counts {
        fn handle(&mut self, _: Incoming, _: &mut Peer<'_, Frames>) -> std::io::Result<Next> {
            self.0 = 3;
            Ok(Next::Again)
        }

        fn again(&mut self, cx: &mut Peer<'_, Frames>) -> std::io::Result<Next> {
            cx.reply(self.0.to_string())?;
            self.0 -= 1;
            Ok(if self.0 == 0 {
                Next::Continue
            } else {
                Next::Again
            })
        }
    }
    let site = Site::new(Router::new(()).ws("/ws", |(), _| Counts(0)));
    let mut client = site.client_with(opening("/ws", ""));
    assert_eq!(client.answer().unwrap().status, 101);
    client.send([text("a"), text("b")].concat());
    for expected in ["3", "2", "1", "3", "2", "1"] {
        assert_text(&mut client, expected);
    }
}
