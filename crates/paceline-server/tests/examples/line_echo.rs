//! `line_echo`: lines over TCP and Unix sockets, by clients that others have written.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
};

use super::program::{read_all, run, run_example, run_with_input, tool, Folder, Server};

/// `nc -N` ends its output after the last line: the answers to all lines come before the end.
#[test]
fn nc_that_half_closes_is_answered() {
    let Some(mut nc) = tool("nc", "-h") else {
        return;
    };
    let server = Server::start("line_echo", &[]);
    let ended = run_with_input(
        nc.args(["-N", "127.0.0.1", &server.port()]),
        b"one\ntwo\r\n\nfour\n",
    );
    assert_eq!(ended.lines, ["one", "two", "", "four"]);
    server.end();
}

/// The Unix socket has its mode, serves the same session, and its path goes with the server.
#[test]
fn socat_over_a_unix_socket() {
    let Some(mut socat) = tool("socat", "-V") else {
        return;
    };
    let folder = Folder::new();
    let path = folder.file("echo.sock");
    let server = Server::start("line_echo", &["--unix", &path]);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let to = format!("UNIX-CONNECT:{path}");
    let ended = run_with_input(socat.args(["-t", "20", "-", &to]), b"over a path\n");
    assert_eq!(ended.lines, ["over a path"], "{}", ended.errors);
    server.end();
    assert!(!fs::exists(&path).unwrap());
}

/// A line that is too long gets a word and an end. What was whole before it is answered.
#[test]
fn a_line_too_long_is_refused_with_a_word() {
    let server = Server::start("line_echo", &[]);
    let mut client = server.connect();
    client.write_all(b"good\n").unwrap();
    client.write_all(&[b'x'; 8193]).unwrap();
    let answers = read_all(&mut client);
    assert_eq!(answers, "good\r\nerror: item is longer than 8192 bytes\r\n");
    drop(client);
    server.end();
}

/// SIGTERM ends a connection between two lines, and the half line of another one may still come.
#[test]
fn a_signal_ends_it_gracefully() {
    let server = Server::start("line_echo", &[]);
    let (mut idle, mut halfway) = (server.connect(), server.connect());
    idle.write_all(b"done\n").unwrap();
    let mut answer = [0; 6];
    idle.read_exact(&mut answer).unwrap();
    halfway.write_all(b"first\nhal").unwrap();
    let mut answer = [0; 7];
    halfway.read_exact(&mut answer).unwrap();
    server.signal("TERM");
    assert_eq!(read_all(&mut idle), "");
    drop(idle);
    halfway.write_all(b"f\n").unwrap();
    assert_eq!(read_all(&mut halfway), "half\r\n");
    drop(halfway);
    let ended = server.wait();
    assert_eq!(ended.code, Some(0));
    assert!(
        ended.errors.contains("2 connections served, 3 items"),
        "{}",
        ended.errors
    );
    assert!(
        ended.errors.contains("2 open at the end, 0 cut"),
        "{}",
        ended.errors
    );
}

/// The metrics port counts what the clients did.
#[test]
fn the_metrics_count_lines() {
    let server = Server::start("line_echo", &["--metrics", "127.0.0.1:0"]);
    let line = server.line();
    let address = line.strip_prefix("metrics on http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    let mut client = server.connect();
    client.write_all(b"one\ntwo\n").unwrap();
    let mut answer = [0; 10];
    client.read_exact(&mut answer).unwrap();
    let mut page = super::program::bound(std::net::TcpStream::connect(address).unwrap());
    page.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
        .unwrap();
    let page = read_all(&mut page);
    let items = format!(
        "paceline_server_items_total{{service=\"{}\"}} 2",
        server.address
    );
    assert!(page.contains(&items), "{page}");
    drop(client);
    server.end();
}

/// A mistake in the options is named, with the option, and starts nothing.
#[test]
fn bad_options_are_named() {
    let cases: [(&[&str], &str); 6] = [
        (&["--threads", "0"], "--threads 0: it must be at least 1"),
        (&["--threads", "many"], "--threads \"many\" is not a number"),
        (
            &["--idle", "-3"],
            "--idle -3: it must be more than 0 seconds",
        ),
        (&["--listne", "x"], "--listne"),
        (&["--tls", "only-one"], "--tls"),
        (&["--tls-named", "a", "b", "c"], "--tls-named needs --tls"),
    ];
    for (args, text) in cases {
        let ended = run_example("line_echo", args);
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        assert!(ended.errors.contains(text), "{args:?}: {}", ended.errors);
        assert!(
            ended.errors.contains("--help"),
            "{args:?}: {}",
            ended.errors
        );
    }
    let ended = run_example("line_echo", &["--listen", "127.0.0.1:nowhere"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.errors.contains("resolve \"127.0.0.1:nowhere\""),
        "{}",
        ended.errors
    );
}

/// Each example explains itself.
#[test]
fn every_example_has_a_help() {
    let names = [
        "line_echo",
        "chat_rooms",
        "smtp",
        "unp",
        "dispatcher",
        "tls_tunnel",
        "threads",
    ];
    for name in names {
        let ended = run_example(name, &["--help"]);
        assert_eq!(ended.code, Some(0), "{name}");
        assert!(
            ended.lines.iter().any(|line| line.starts_with("usage: ")),
            "{name}"
        );
        assert!(
            ended.lines.iter().all(|line| line.chars().count() <= 110),
            "{name}"
        );
    }
}

/// A connection beyond the limit is closed, and the others go on.
#[test]
fn one_connection_too_many_is_refused() {
    let server = Server::start("line_echo", &["--connections", "1"]);
    let mut first = server.connect();
    first.write_all(b"mine\n").unwrap();
    let mut answer = [0; 6];
    first.read_exact(&mut answer).unwrap();
    let Some(mut nc) = tool("nc", "-h") else {
        return;
    };
    let second = run(nc.args(["127.0.0.1", &server.port()]));
    assert_eq!(second.lines, [""; 0]);
    first.write_all(b"mine\n").unwrap();
    first.read_exact(&mut answer).unwrap();
    drop(first);
    let ended = server.end();
    assert!(ended.errors.contains("1 refused"), "{}", ended.errors);
}
