//! Streams of server-sent events of a router, and rooms with members of every kind.

use std::{sync::mpsc, time::Duration};

use paceline_server::{
    codec::{line, Message},
    http::{Error, Router},
    sse::Event,
    websocket::Frames,
    Encoding, Inlet, Listen, Next, Peer, Room, Session,
};

use crate::support::{wait, Client, Site};

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

/// Reads so much of the stream.
fn assert_stream(client: &mut Client, expected: &str) {
    let bytes = client.take(expected.len()).expect("the stream goes on");
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
}

/// The head of a stream, which is read.
fn begin(client: &mut Client) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(client.take(1).unwrap()[0]));
    }
    head
}

fn news(room: &Room) -> Router<Room> {
    Router::new(room.clone())
        .sse("/news", |room, out| {
            let last = out.last_id().unwrap_or("none").to_owned();
            out.send(Event::new(&last).name("last").id("7"))?;
            out.join(room);
            Ok::<_, Error>(())
        })
        .sse("/secret", |room, out| {
            out.join(room);
            room.send(*b"not for all");
            Err(Error::new(401, "log in"))
        })
        .sse("/raw", |room, out| {
            out.set_encoding(Encoding::Raw);
            out.join(room);
        })
}

/// A stream begins with what its handler sends, and goes on with what its rooms get. What the client
/// still says is dropped.
#[test]
fn a_stream_gets_the_messages_of_its_rooms() {
    let room = Room::new();
    let site = Site::new(news(&room));
    let mut client = site.client_with(get("/news", "Last-Event-ID: 6\r\n"));
    let head = begin(&mut client);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("\r\ncontent-type: text/event-stream\r\n"),
        "{head}"
    );
    assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
    assert!(!head.contains("content-length"), "{head}");
    assert_stream(&mut client, "event: last\nid: 7\ndata: 6\n\n");
    wait(|| room.len() == 1);
    client.send(get("/news", ""));
    site.settle(&client);
    room.send(*b"a\nb");
    assert_stream(&mut client, "data: a\ndata: b\n\n");
    client.peer.finish();
    assert_eq!(client.rest(), b"");
    wait(|| room.is_empty());
}

/// Proxies and clients take a silent stream for a dead one.
#[test]
fn a_silent_stream_gets_comments() {
    let site = Site::new(news(&Room::new()));
    let mut client = site.client_with(get("/news", ""));
    begin(&mut client);
    assert_stream(&mut client, "event: last\nid: 7\ndata: none\n\n");
    // Longer than a connection may be idle in all.
    for _ in 0..8 {
        site.pass(Duration::from_secs(16));
        assert_stream(&mut client, ": \n\n");
    }
}

/// A client that was refused must not get what the room says, neither in the answer nor behind it.
#[test]
fn a_refused_stream_leaves_its_rooms() {
    let room = Room::new();
    let router = news(&room).after(|room, _, response| {
        response.set_header("x-members", room.len().to_string());
    });
    let site = Site::new(router);
    let mut client = site.client_with(get("/secret", ""));
    let answer = client.answer().unwrap();
    assert_eq!((answer.status, answer.text()), (401, "log in\n"));
    assert_eq!(answer.field("x-members"), Some("0"));
    assert_eq!(client.rest(), b"");
    assert!(room.is_empty());
}

/// `HEAD` asks for the head of the answer, and begins nothing.
#[test]
fn a_head_request_begins_no_stream() {
    let room = Room::new();
    let site = Site::new(news(&room));
    let mut client = site.client_with("HEAD /news HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer_to("HEAD").unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("content-type"), Some("text/event-stream"));
    assert!(room.is_empty());
}

/// A WebSocket that is a member of a room.
struct Member(Room);

impl Session<Frames> for Member {
    fn start(&mut self, cx: &mut Peer<'_, Frames>) -> std::io::Result<Next> {
        self.0.join(cx);
        Ok(Next::Continue)
    }

    fn handle(
        &mut self,
        message: paceline_server::websocket::Incoming,
        cx: &mut Peer<'_, Frames>,
    ) -> std::io::Result<Next> {
        if let paceline_server::websocket::Incoming::Text(text) = message {
            self.0.message(text.into_bytes()).except(cx.id()).send();
        }
        Ok(Next::Continue)
    }
}

/// One that speaks lines.
struct Teller(Room);

impl Session for Teller {
    fn start(&mut self, cx: &mut Peer<'_>) -> std::io::Result<Next> {
        cx.set_encoding(Encoding::Line);
        self.0.join(cx);
        Ok(Next::Continue)
    }

    fn handle(&mut self, line: Message<'_>, cx: &mut Peer<'_>) -> std::io::Result<Next> {
        self.0.message(line.to_vec()).except(cx.id()).send();
        Ok(Next::Continue)
    }
}

/// Lines, a WebSocket and two streams of events in one room: each gets a message in its own form, and
/// the receipt counts them all.
#[test]
fn one_room_has_members_of_every_kind() {
    let room = Room::new();
    let router = news(&room).ws("/ws", |room, _| Member(room.clone()));
    let world = std::cell::OnceCell::new();
    let site = Site::with(router, |server| {
        let simulation = paceline::simulated::Simulation::new(13);
        let inlet = Inlet::new(&simulation);
        let set = paceline::SetKind::Simulated(simulation);
        let tellers = room.clone();
        let listen = Listen::simulated(&inlet).name("lines").level("lines");
        let _ = world.set(inlet);
        let pool = paceline::Pool::builder().threads(1).handle_set(set);
        server.server(|server| {
            let make = move |_: &paceline_server::PeerAddress| Teller(tellers.clone());
            server.level("lines", pool).listener(listen, line(80), make)
        })
    });
    let mut lines = Client::new(world.get().unwrap().connect());
    let mut events = site.client_with(get("/news", ""));
    begin(&mut events);
    assert_stream(&mut events, "event: last\nid: 7\ndata: none\n\n");
    let mut raw = site.client_with(get("/raw", ""));
    begin(&mut raw);
    let opening = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let mut socket = site.client_with(get("/ws", opening));
    begin(&mut socket);
    wait(|| room.len() == 4);
    let (done, receipts) = mpsc::channel();
    let message = room.message(*b"hi");
    message
        .on_done(move |receipt| done.send(receipt).unwrap())
        .send();
    assert_stream(&mut lines, "hi\r\n");
    assert_stream(&mut events, "data: hi\n\n");
    assert_stream(&mut raw, "hi");
    assert_eq!(socket.take(4).unwrap(), b"\x81\x02hi");
    let receipt = receipts.recv_timeout(crate::support::PATIENCE).unwrap();
    assert_eq!((receipt.reached, receipt.missed), (4, 0));
    lines.send("from a terminal\n");
    assert_eq!(socket.take(17).unwrap(), b"\x81\x0ffrom a terminal");
    assert_stream(&mut events, "data: from a terminal\n\n");
    socket.send(b"\x81\x85\0\0\0\0reply");
    assert_stream(&mut lines, "reply\r\n");
}
