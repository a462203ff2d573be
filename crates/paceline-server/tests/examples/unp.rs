//! `unp`: its clients against its server, and against servers that are wrong.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    thread,
};

use super::program::{run_example, run_with_input, tool, Server};

/// Several processes, each with several connections: every byte is right.
#[test]
fn processes_and_connections() {
    let server = Server::start("unp", &["--threads", "4"]);
    let to = server.address.to_string();
    let load = ["--processes", "3", "--connections", "8", "--requests", "20"];
    let ended = run_example("unp", &[&["--load", &to], &load[..]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        ended.lines.last().unwrap(),
        "all 3 processes: every answer was right"
    );
    let report = server.end().errors;
    assert!(
        report.contains("24 connections served, 480 items"),
        "{report}"
    );
}

/// An answer that is longer than the output that a connection may keep.
#[test]
fn long_answers() {
    let server = Server::start("unp", &[]);
    let to = server.address.to_string();
    let load = [
        "--load",
        &to,
        "--connections",
        "3",
        "--requests",
        "2",
        "--bytes",
        "3000001",
    ];
    let ended = run_example("unp", &load);
    assert_eq!(
        ended.lines,
        ["3 connections: 2 right answers of 3000001 bytes each"]
    );
    server.end();
}

/// `nc` asks by hand.
#[test]
fn nc_gets_its_bytes() {
    let Some(mut nc) = tool("nc", "-h") else {
        return;
    };
    let server = Server::start("unp", &[]);
    let input = b"30\n1\n0\n5\n";
    let ended = run_with_input(nc.args(["-N", "127.0.0.1", &server.port()]), input);
    let text = "abcdefghijklmnopqrstuvwxyzabcdaerror: want a number from 1 to 16777216";
    assert_eq!(ended.lines, [text]);
    server.end();
}

/// The clients find a wrong byte, a missing one, and one too many.
#[test]
fn a_wrong_server_is_found() {
    let answers: [(&[u8], &str); 3] = [
        (b"abcdX", "a byte is wrong"),
        (b"abcd", "read answer 1"),
        (b"abcdef", "more than was asked for"),
    ];
    for (answer, text) in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut request = String::new();
            BufReader::new(client.try_clone().unwrap())
                .read_line(&mut request)
                .unwrap();
            client.write_all(answer).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            // The client may reset the connection.
            let _ = client.read(&mut [0; 10]);
        });
        let load = [
            "--load",
            &to,
            "--connections",
            "1",
            "--requests",
            "1",
            "--bytes",
            "5",
        ];
        let ended = run_example("unp", &load);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.errors.contains(text), "{ended:?}");
        server.join().unwrap();
    }
}
