//! `web_chat` and `ticks`: what a browser does, by Python's `websockets` and by hand.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
};

use super::program::{bound, python, read_all, run, Server};

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = bound(TcpStream::connect(address).unwrap());
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    read_all(&mut stream)
}

/// The address behind this word in the next line of the program.
fn address(server: &Server, word: &str) -> SocketAddr {
    let line = server.line();
    let address = line
        .strip_prefix(word)
        .and_then(|address| address.parse().ok());
    address.unwrap_or_else(|| panic!("instead of `{word}`: {line:?}"))
}

/// A member with a terminal and members with WebSockets hear each other in one order; the page comes
/// with a policy that lets no foreign script run.
#[test]
fn browsers_and_terminals_are_in_one_room() {
    let server = Server::start("web_chat", &["--lines", "127.0.0.1:0"]);
    let lines = address(&server, "lines on ");
    assert!(server.line().starts_with("page on http://127.0.0.1:"));
    let page = get(server.address, "/");
    assert!(
        page.contains("\r\ncontent-security-policy: default-src 'self'; img-src data:\r\n"),
        "{page}"
    );
    assert!(page.contains("<script src=\"chat.js\">"), "{page}");
    assert!(get(server.address, "/chat.js").contains("content-type: text/javascript"));

    let mut member = BufReader::new(bound(TcpStream::connect(lines).unwrap()));
    let mut next = || {
        let mut line = String::new();
        member.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(
        next(),
        "* welcome, guest-0: /name NAME gives you a name\r\n"
    );
    assert_eq!(next(), "* guest-0 has joined\r\n");
    let Some(mut client) = python("web_socket_client.py") else {
        return;
    };
    let ended = run(client.args([&server.port(), &lines.port().to_string()]));
    if ended.code == Some(77) {
        println!("skipped: Python has no module `websockets`");
        return;
    }
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(next(), "* guest-1 has joined\r\n");
    drop(member);
    server.end();
}

/// How many streams [`many_streams_need_few_threads`] opens; 5,000 need 5,000 descriptors here and in the server.
const STREAMS: usize = 300;

/// Each of many streams gets every event once and in order, from two threads. `PACELINE_STREAMS=5000` makes it long.
#[test]
fn many_streams_need_few_threads() {
    let count = std::env::var("PACELINE_STREAMS").ok();
    let count = count.map_or(STREAMS, |count| count.parse().expect("a number"));
    let server = Server::start("ticks", &["--every", "0.2", "--threads", "2"]);
    let open = |_| {
        let mut stream = server.connect();
        write!(stream, "GET /ticks HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        BufReader::with_capacity(512, stream)
    };
    let mut streams: Vec<_> = (0..count).map(open).collect();
    let start = std::time::Instant::now();
    let mut last = 0;
    for stream in &mut streams {
        let mut numbers: Vec<u64> = Vec::new();
        let mut line = String::new();
        // The first streams have waited for the last ones, and read what they have had meanwhile.
        while numbers.len() < 10 {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap() > 0, "a stream ended");
            let is_name = line == "event: watching\n";
            if is_name {
                line.clear();
                stream.read_line(&mut line).unwrap();
            } else if let Some(number) = line.strip_prefix("data: ") {
                numbers.push(number.trim().parse().unwrap());
            }
        }
        assert!(
            numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "{numbers:?}"
        );
        last = last.max(numbers[9]);
    }
    let threads = server.threads();
    println!(
        "{count} streams had 10 events each, {last} was the last, in {:?}; the server has {threads} threads",
        start.elapsed()
    );
    // Those of the pool, of the page, the main one, and one for signals.
    assert!(threads <= 8, "{threads} threads");
    server.end();
}

/// Each stream gets the same events, and the first one says how many streams there are.
#[test]
fn ticks_come_to_all() {
    let server = Server::start("ticks", &["--every", "0.05"]);
    assert!(server.line().starts_with("page on http://127.0.0.1:"));
    assert!(get(server.address, "/").contains("new EventSource('/ticks')"));
    let mut streams: Vec<_> = (1..=3)
        .map(|number| {
            let mut stream = BufReader::new(server.connect());
            write!(stream.get_mut(), "GET /ticks HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
            let mut line = String::new();
            while line != "event: watching\n" {
                line.clear();
                assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended");
            }
            line.clear();
            stream.read_line(&mut line).unwrap();
            assert_eq!(line, format!("data: {number}\n"));
            stream
        })
        .collect();
    for stream in &mut streams {
        let mut numbers = Vec::new();
        while numbers.len() < 3 {
            let mut line = String::new();
            assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended");
            let number = line
                .strip_prefix("data: ")
                .map(|data| data.trim().parse::<u64>());
            numbers.extend(number.map(Result::unwrap));
        }
        assert!(
            numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "{numbers:?}"
        );
    }
    server.end();
    for mut stream in streams {
        read_all(&mut stream);
    }
}
