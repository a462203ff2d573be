//! `chat_rooms`: names, rooms, receipts, and a member that does not read.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{ChildStdin, Stdio},
};

use socket2::{Domain, Socket, Type};

use super::program::{bound, read_all, tool, Program, Server};

/// A member that reads and writes line by line.
struct Member(BufReader<TcpStream>);

impl Member {
    /// Enters the house with this name.
    fn enter(server: &Server, name: &str) -> Self {
        let mut member = Self(BufReader::new(server.connect()));
        member.expect_start("* welcome, guest-");
        member.expect("* you are in lobby");
        member.say(&format!("/name {name}"));
        member.expect_end(&format!(" is now {name}"));
        member
    }

    fn say(&mut self, line: &str) {
        writeln!(self.0.get_mut(), "{line}").unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn expect(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    fn expect_start(&mut self, start: &str) {
        let line = self.line();
        assert!(line.starts_with(start), "{line}");
    }

    fn expect_end(&mut self, end: &str) {
        let line = self.line();
        assert!(line.ends_with(end), "{line}");
    }

    /// What has come, without waiting for more.
    fn what_is_there(&mut self) -> String {
        self.0.get_ref().set_nonblocking(true).unwrap();
        let found = self.0.fill_buf().map(<[u8]>::to_vec).unwrap_or_default();
        self.0.consume(found.len());
        self.0.get_ref().set_nonblocking(false).unwrap();
        String::from_utf8_lossy(&found).into_owned()
    }

    fn expect_end_of_stream(mut self) {
        assert_eq!(read_all(&mut self.0), "");
    }
}

/// Two people talk with `nc`: each sees the other's lines, and receipts for their own.
#[test]
fn two_people_with_nc() {
    let server = Server::start("chat_rooms", &[]);
    let mut people = Vec::new();
    for _ in 0..2 {
        let Some(mut nc) = tool("nc", "-h") else {
            return;
        };
        let nc = nc.args(["127.0.0.1", &server.port()]).stdin(Stdio::piped());
        let mut person = Program::start(nc);
        let input: ChildStdin = person.stdin();
        assert!(person.line().starts_with("* welcome, guest-"));
        assert_eq!(person.line(), "* you are in lobby");
        people.push((person, input));
    }
    let (ben, mut to_ben) = people.pop().unwrap();
    let (ann, mut to_ann) = people.pop().unwrap();
    assert_eq!(ann.line(), "* guest-2 has joined");
    to_ann.write_all(b"/name ann\nhello\n").unwrap();
    assert_eq!(ann.line(), "* guest-1 is now ann");
    assert_eq!(ann.line(), "- heard by 1, missed 0");
    assert_eq!(ben.line(), "* guest-1 is now ann");
    assert_eq!(ben.line(), "ann: hello");
    to_ben.write_all(b"/quit\n").unwrap();
    drop(to_ben);
    assert_eq!(ben.wait().code, Some(0));
    assert_eq!(ann.line(), "* guest-2 has left");
    drop(to_ann);
    server.signal("TERM");
    assert_eq!(ann.line(), "* the server ends");
    assert_eq!(server.wait().code, Some(0));
}

/// A line goes to the members of its room, in order, and to no other room.
#[test]
fn rooms_are_apart() {
    let server = Server::start("chat_rooms", &[]);
    let mut ann = Member::enter(&server, "ann");
    let mut ben = Member::enter(&server, "ben");
    ann.expect("* guest-2 has joined");
    ann.expect("* guest-2 is now ben");
    ben.say("/join attic");
    ben.expect("* you are in attic");
    ann.expect("* ben has left");
    ann.say("is anyone here?");
    ann.expect("- heard by 0, missed 0");
    ann.say("/join attic");
    ann.expect("* you are in attic");
    ben.expect("* ann has joined");
    for number in 0..100 {
        ben.say(&format!("line {number}"));
    }
    for number in 0..100 {
        ann.expect(&format!("ben: line {number}"));
        ben.expect("- heard by 1, missed 0");
    }
    ann.say("/who");
    ann.expect("* here: ann, ben");
    ann.say("/rooms");
    ann.expect("* attic: 2");
    ben.say("/quit");
    ben.expect_end_of_stream();
    ann.expect("* ben has left");
    drop(ann);
    server.end();
}

/// Names are taken once, rooms and names have bounds, and control bytes reach no terminal.
#[test]
fn names_and_bytes_are_checked() {
    let server = Server::start("chat_rooms", &[]);
    let mut ann = Member::enter(&server, "ann");
    let mut ben = Member::enter(&server, "ben");
    for bad in ["ann", "", "two words", "x/y", &"n".repeat(21)] {
        ben.say(&format!("/name {bad}"));
        ben.expect("* this name is taken, or can't be one");
    }
    ben.say("/join a.b");
    ben.expect("* this can't be the name of a room");
    ben.say("/leave");
    ben.expect("* there is no command /leave");
    ben.0
        .get_mut()
        .write_all(b"\x1b[2Jclear\x07\xff\n")
        .unwrap();
    ben.expect("- heard by 1, missed 0");
    ann.expect("* guest-2 has joined");
    ann.expect("* guest-2 is now ben");
    ann.expect("ben: [2Jclear\u{fffd}");
    ann.say(&"x".repeat(1001));
    ann.expect("* item is longer than 1000 bytes");
    ann.expect_end_of_stream();
    ben.expect("* ann has left");
    // The name is free again.
    ben.say("/name ann");
    ben.expect("* ben is now ann");
    drop(ben);
    server.end();
}

/// A member that does not read has its mailbox filled, and misses what finds no place there. The receipts
/// say so, and a member that reads gets every line.
#[test]
fn a_member_that_does_not_read_misses_lines() {
    let server = Server::start("chat_rooms", &["--mailbox", "4000"]);
    let mut ann = Member::enter(&server, "ann");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&server.address.into()).unwrap();
    let mut deaf = bound(socket.into());
    let mut byte = [0];
    // It is a member when it is greeted.
    deaf.read_exact(&mut byte).unwrap();
    ann.expect("* guest-2 has joined");
    let mut ben = Member::enter(&server, "ben");
    ann.expect("* guest-3 has joined");
    ann.expect("* guest-3 is now ben");
    let text = "x".repeat(900);
    let mut receipts = String::new();
    let missed = (0..20_000).find(|_| {
        ann.say(&text);
        ben.expect(&format!("ann: {text}"));
        receipts.push_str(&ann.what_is_there());
        receipts.contains("- heard by 1, missed 1")
    });
    assert!(missed.is_some(), "the member misses nothing");
    drop(deaf);
    ben.expect("* guest-2 has left");
    drop((ann, ben));
    server.end();
}
