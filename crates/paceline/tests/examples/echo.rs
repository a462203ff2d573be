//! The example `echo` does what its help says.

use std::process::{Command, Output};

use crate::support::{
    bounded,
    example::{echo, expect_echo, run, signal, Server},
    is_to_be_had,
};
use paceline::SetKind;

fn start() -> Server {
    start_on("epoll")
}

fn start_on(set: &str) -> Server {
    let mut command = Command::new(echo());
    command.args(["--listen", "127.0.0.1:0", "--threads", "3", "--set", set]);
    Server::start(&mut command)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Several clients at once, more than there are threads; each gets its own bytes back. A message
/// that is larger than the server's buffer comes back whole.
#[test]
fn echoes_for_several_clients() {
    bounded(|| {
        let server = start();
        let mut clients: Vec<_> = (0..10).map(|_| server.connect()).collect();
        for round in 0..20_u8 {
            for (number, client) in clients.iter_mut().enumerate() {
                expect_echo(client, &[round, number as u8, 3]);
            }
        }
        expect_echo(&mut clients[0], &vec![7; 60_000]);
        signal("TERM", server.id());
        assert!(server.output().status.success());
    });
}

/// All that are to be had here.
fn sets() -> impl Iterator<Item = &'static str> {
    let all = ["epoll", "oneshot", "poll", "concurrent", "completion"];
    let has_completion = is_to_be_had(&SetKind::Completion);
    let here = move |set: &&str| has_completion || *set != "completion";
    all.into_iter().filter(here)
}

/// In several sets: each with threads of its own, or with leaders that roam. Every set has had
/// connections.
#[test]
fn echoes_in_several_sets() {
    bounded(|| {
        for leaders in ["assigned", "roaming"] {
            let mut command = Command::new(echo());
            command.args(["--listen", "127.0.0.1:0", "--threads", "4", "--sets", "2"]);
            let server = Server::start(command.args(["--leaders", leaders]));
            let mut clients: Vec<_> = (0..6).map(|_| server.connect()).collect();
            for client in &mut clients {
                expect_echo(client, &[7; 100]);
            }
            signal("TERM", server.id());
            let output = server.output();
            assert!(output.status.success());
            let told = text(&output.stderr);
            for set in ["set 0: ", "set 1: "] {
                let line = told.lines().find(|line| line.contains(set)).unwrap();
                assert!(line.contains("everything was finished"), "{told}");
                assert!(!line.contains(" 0 promotions"), "{told}");
            }
        }
    });
}

/// On every set; and on the concurrent one nobody was promoted.
#[test]
fn echoes_on_every_set() {
    bounded(|| {
        for set in sets() {
            let server = start_on(set);
            let mut clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
            for round in 0..20 {
                for client in &mut clients {
                    expect_echo(client, &[round; 100]);
                }
            }
            signal("TERM", server.id());
            let output = server.output();
            assert!(output.status.success());
            let nobody = text(&output.stderr).contains(", 0 promotions");
            assert_eq!(nobody, set == "concurrent", "{output:?}");
        }
    });
}

/// A system may have no io_uring, or not allow it. Then the pool is not built, and says why.
#[test]
fn a_refusal_of_io_uring_is_explained() {
    let tracer = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status();
    if !tracer.is_ok_and(|status| status.success()) {
        eprintln!("skipped: a refusal of io_uring needs strace");
        return;
    }
    for (error, why) in [
        ("ENOSYS", "has no io_uring"),
        ("EPERM", "io_uring_disabled"),
    ] {
        let mut command = Command::new("strace");
        command
            .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=io_uring_setup"])
            .args(["-e", &format!("inject=io_uring_setup:error={error}")])
            .arg(echo())
            .args(["--listen", "127.0.0.1:0", "--set", "completion"]);
        let output = bounded(move || run(&mut command));
        assert!(!output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("make a completion set"), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

/// A signal ends it gracefully, with open connections, and it says what it did.
#[test]
fn ends_in_order_on_sigterm_and_sigint() {
    bounded(|| {
        for name in ["TERM", "INT"] {
            let server = start();
            let mut client = server.connect();
            expect_echo(&mut client, b"hello");
            signal(name, server.id());
            let output = server.output();
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            let said = text(&output.stderr);
            assert!(said.contains("everything was finished"), "{said}");
            assert!(said.contains("1 connections"), "{said}");
        }
    });
}

/// Help is no failure, and names every option.
#[test]
fn helps() {
    bounded(|| {
        for option in ["--help", "-h"] {
            let output = run(Command::new(echo()).arg(option));
            assert_eq!(output.status.code(), Some(0));
            let said = text(&output.stdout);
            for option in ["--listen", "--threads", "--help", "usage:"] {
                assert!(said.contains(option), "{said}");
            }
        }
    });
}

/// What it does not understand it says, with its help, and exits with 2.
#[test]
fn refuses_wrong_options() {
    bounded(|| {
        let said = |arguments: &[&str]| -> Output {
            let output = run(Command::new(echo()).args(arguments));
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            assert!(text(&output.stderr).contains("usage:"), "{output:?}");
            output
        };
        let wrong = [
            (&["--nonsense"][..], "unknown option --nonsense"),
            (&["--threads"], "--threads needs a value"),
            (&["--listen"], "--listen needs a value"),
            (&["--threads", "many"], "many is not a number"),
            (&["--threads", "-1"], "-1 is not a number"),
            (&["--threads", "0"], "nobody would serve"),
        ];
        for (arguments, message) in wrong {
            let output = said(arguments);
            assert!(text(&output.stderr).contains(message), "{output:?}");
        }
    });
}

/// What the system refuses is told too, and is another kind of failure.
#[test]
fn tells_what_cannot_be_done() {
    bounded(|| {
        let server = start();
        let address = server.address.to_string();
        let output = run(Command::new(echo()).args(["--listen", &address]));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains("listen"), "{output:?}");
        let output = run(Command::new(echo()).args(["--threads", "5000"]));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains("threads(5000)"), "{output:?}");
        signal("TERM", server.id());
        assert!(server.output().status.success());
    });
}
