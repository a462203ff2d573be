//! `dispatcher`: what it says of ports that are open, closed, and silent.

use std::{io::Write, net::TcpListener, thread};

use socket2::{Domain, Socket, Type};

use super::program::{bounded, example, run_example, run_with_input};

/// An open port that speaks first, one that does not, a closed one, a full one, and a name without host.
#[test]
fn each_state_is_named() {
    let speaker = TcpListener::bind("127.0.0.1:0").unwrap();
    let (quiet, closed) = (
        TcpListener::bind("127.0.0.1:0").unwrap(),
        TcpListener::bind("127.0.0.1:0").unwrap(),
    );
    let (full, _filled) = full_listener();
    let full = full.local_addr().unwrap().as_socket().unwrap();
    let addresses = [&speaker, &quiet, &closed].map(|one| one.local_addr().unwrap().to_string());
    drop(closed);
    let speaks = thread::spawn(move || {
        let (mut client, _) = speaker.accept().unwrap();
        client.write_all(b"220 \x1b[1mhello\r\n").unwrap();
        speaker
    });
    let full = full.to_string();
    let [one, two, three] = &addresses;
    // What comes in time has long for it; what never comes is not waited for long.
    let (long, short) = ("20", "0.3");
    let cases: [(&[&str], &str, &str, &str); 5] = [
        (&["--greeting", long], one, " open ", "220 [1mhello"),
        (&["--greeting", short], two, " open ", " ms"),
        (&[], three, " refused", ""),
        (&["--within", short], &full, " no answer", ""),
        (&[], "no-such-host.invalid:1", " failed ", ""),
    ];
    for (options, target, state, end) in cases {
        let within = ["--within", long, target];
        let ended = run_example("dispatcher", &[&within[..], options].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let row = &ended.lines[0];
        assert!(row.starts_with(&format!("{target} ")), "{row}");
        assert!(row.contains(state) && row.ends_with(end), "{row}");
    }
    drop(speaks.join().unwrap());
    // All in one table, in the order of the command line, and a sum.
    let targets = [two, three, "no-such-host.invalid:1"];
    let ended = run_example("dispatcher", &targets);
    assert_eq!(ended.lines.len(), 4, "{:#?}", ended.lines);
    for (line, target) in ended.lines.iter().zip(targets) {
        assert!(line.starts_with(target), "{line}");
    }
    let sum = "1 open, 1 refused, 0 without an answer, 1 failed";
    assert_eq!(ended.lines.last().unwrap(), sum);
}

/// A listener whose backlog is full: the system answers no further connection.
fn full_listener() -> (Socket, Vec<Socket>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        // It is made, or under way, or will never be.
        let _ = socket.connect(&address);
        socket
    };
    let filled = (0..8).map(|_| connect()).collect();
    (listener, filled)
}

/// Many more targets than may be checked at once, some of them from standard input.
#[test]
fn all_targets_are_checked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || listener.incoming().for_each(drop));
    let input = format!("{address}\n").repeat(300);
    let mut command = bounded(example("dispatcher"));
    let ended = run_with_input(
        command.args(["--at-once", "7", &address, "-"]),
        input.as_bytes(),
    );
    assert_eq!(ended.lines.len(), 302, "{:#?}", ended.lines);
    let sum = "301 open, 0 refused, 0 without an answer, 0 failed";
    assert_eq!(ended.lines.last().unwrap(), sum);
}

/// A range of ports, of which only the open ones are shown.
#[test]
fn only_open_ports_are_shown() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let range = format!("127.0.0.1:{port}-{port}");
    let ended = run_example("dispatcher", &["--open", &range, "no-such-host.invalid:1"]);
    assert_eq!(ended.lines.len(), 2, "{:#?}", ended.lines);
    assert!(ended.lines[0].starts_with(&format!("127.0.0.1:{port} ")));
    for bad in ["127.0.0.1", "127.0.0.1:0", "127.0.0.1:9-8", ":80", "a:x"] {
        let ended = run_example("dispatcher", &[bad]);
        assert_eq!(ended.code, Some(2), "{bad}");
        assert!(
            ended.errors.contains(&format!("{bad:?} is not HOST:PORT")),
            "{ended:?}"
        );
    }
}
