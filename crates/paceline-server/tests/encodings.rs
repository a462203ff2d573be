//! One room for connections of all kinds: each member gets each message once, in the form that it
//! has chosen, and the receipt counts every member once.

use std::{io, sync::mpsc};

use paceline::{simulated::Simulation, Next, Pool, SetKind};
use paceline_server::{
    codec::{line, Codec, Message},
    websocket::{Frames, Incoming},
    Encoding, Inlet, Limits, Listen, Peer, Receipt, Room, Server, ServerBuilder, Session,
};

/// Joins the room with an encoding, and sends to it what its peer sends.
struct Member {
    room: Room,
    encoding: Encoding,
}

impl Member {
    fn enter<C: Codec>(&self, cx: &mut Peer<'_, C>) -> io::Result<Next> {
        cx.set_encoding(self.encoding);
        self.room.join(cx);
        Ok(Next::Continue)
    }
}

impl Session for Member {
    fn start(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        self.enter(cx)
    }

    fn handle(&mut self, line: Message<'_>, _: &mut Peer<'_>) -> io::Result<Next> {
        self.room.send(line.to_vec());
        Ok(Next::Continue)
    }
}

impl Session<Frames> for Member {
    fn start(&mut self, cx: &mut Peer<'_, Frames>) -> io::Result<Next> {
        self.enter(cx)
    }

    fn handle(&mut self, item: Incoming, cx: &mut Peer<'_, Frames>) -> io::Result<Next> {
        match item {
            Incoming::Text(text) => self.room.message(text.into_bytes()).except(cx.id()).send(),
            item => assert_eq!(item, Incoming::Part),
        }
        Ok(Next::Continue)
    }
}

struct World {
    world: Simulation,
    room: Room,
    builder: ServerBuilder,
}

impl World {
    fn new() -> Self {
        let world = Simulation::new(27);
        let set = SetKind::Simulated(world.clone());
        let builder = Server::builder().pool(Pool::builder().threads(2).handle_set(set));
        Self {
            world,
            room: Room::new(),
            builder,
        }
    }

    /// A listener whose connections join the room with this encoding.
    fn listener(mut self, encoding: Encoding, limits: Limits) -> (Self, Inlet) {
        let inlet = Inlet::new(&self.world);
        let listen = Listen::simulated(&inlet).limits(limits);
        let room = self.room.clone();
        let make = move |_: &_| Member {
            room: room.clone(),
            encoding,
        };
        self.builder = if encoding == Encoding::WebSocket {
            self.builder.listener(listen, Frames::default(), make)
        } else {
            self.builder.listener(listen, line(80), make)
        };
        (self, inlet)
    }
}

/// A masked frame of text, with a mask of zeros.
fn frame(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
    frame.extend(text.as_bytes());
    frame
}

fn wait_for_members(room: &Room, count: usize) {
    while room.len() < count {
        std::thread::yield_now();
    }
}

/// A message from a line goes to the WebSocket as a frame and to the stream as an event; one from the
/// WebSocket goes to the lines. A line break in it can't forge a second line.
#[test]
fn a_message_reaches_members_of_all_kinds() {
    let (world, lines) = World::new().listener(Encoding::Line, Limits::default());
    let (world, sockets) = world.listener(Encoding::WebSocket, Limits::default());
    let (world, streams) = world.listener(Encoding::Event, Limits::default());
    let (world, raws) = world.listener(Encoding::Raw, Limits::default());
    let _server = world.builder.start().unwrap();
    let line = lines.connect();
    let socket = sockets.connect();
    let stream = streams.connect();
    let raw = raws.connect();
    wait_for_members(&world.room, 4);

    line.send(b"hello\r\n");
    assert_eq!(line.wait_for(7), b"hello\r\n");
    assert_eq!(socket.wait_for(7), b"\x81\x05hello");
    assert_eq!(stream.wait_for(13), b"data: hello\n\n");
    assert_eq!(raw.wait_for(5), b"hello");

    socket.send(&frame("a\r\nb"));
    assert_eq!(line.wait_for(6), b"a  b\r\n");
    assert_eq!(stream.wait_for(17), b"data: a\ndata: b\n\n");
    assert_eq!(raw.wait_for(4), b"a\r\nb");

    let (receipts, received) = mpsc::channel::<Receipt>();
    let message = world.room.message(*b"!");
    message
        .on_done(move |receipt| receipts.send(receipt).unwrap())
        .send();
    let receipt = received.recv().unwrap();
    assert_eq!((receipt.reached, receipt.missed), (4, 0));
    assert_eq!(socket.wait_for(3), b"\x81\x01!");
    assert!(received.recv().is_err(), "a receipt comes once");
}

/// A member without a place for the message misses it, whatever its encoding; the others get it.
#[test]
fn a_member_without_a_place_misses() {
    let (world, sockets) = World::new().listener(Encoding::WebSocket, Limits::default());
    let (world, streams) = world.listener(Encoding::Event, Limits::default().mailbox(80));
    let _server = world.builder.start().unwrap();
    let (socket, stream) = (sockets.connect(), streams.connect());
    wait_for_members(&world.room, 2);
    let (receipts, received) = mpsc::channel::<Receipt>();
    // 80 bytes as they are, 88 as an event.
    let long = "x".repeat(80);
    for message in [long.as_str(), "you"] {
        let receipts = receipts.clone();
        let message = world.room.message(message.as_bytes());
        message
            .on_done(move |receipt| receipts.send(receipt).unwrap())
            .send();
    }
    let frames = [&b"\x81\x50"[..], long.as_bytes(), b"\x81\x03you"].concat();
    assert_eq!(socket.wait_for(frames.len()), frames);
    assert_eq!(stream.wait_for(11), b"data: you\n\n");
    let both: Vec<_> = received.iter().take(2).collect();
    let count = |of: fn(&Receipt) -> usize| both.iter().map(of).sum::<usize>();
    assert_eq!((count(|it| it.reached), count(|it| it.missed)), (3, 1));
}

/// A message of line breaks is seven times as long as an event. It must not cost a member its
/// connection: one participant of a chat could end all streams.
#[test]
fn an_event_that_grows_too_long_is_missed() {
    let (world, streams) = World::new().listener(Encoding::Event, Limits::default());
    let _server = world.builder.start().unwrap();
    let stream = streams.connect();
    wait_for_members(&world.room, 1);
    let (receipts, received) = mpsc::channel::<Receipt>();
    let breaks = world.room.message(vec![b'\n'; 60 * 1024]);
    breaks
        .on_done(move |receipt| receipts.send(receipt).unwrap())
        .send();
    let receipt = received.recv().unwrap();
    assert_eq!((receipt.reached, receipt.missed), (0, 1));
    world.room.send(*b"still here");
    assert_eq!(stream.wait_for(18), b"data: still here\n\n");
}
