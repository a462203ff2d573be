//! Thousands of connections on four threads: the tutorial's exercise, as a program of its own.

use std::{
    fs,
    io::{Read, Write},
    process::Command,
};

use crate::support::{
    bounded_by,
    example::{echo, expect_echo, signal, Server},
    LONG,
};

/// How many connections there are, if the system gives so many descriptors; and how many of them
/// ask something.
const CONNECTIONS: usize = 19_000;
const ACTIVE: usize = 1_000;

/// Left for everything else that has a descriptor.
const SPARE: usize = 400;

/// How many descriptors this process may have, and so its children.
fn descriptors() -> usize {
    let text = fs::read_to_string("/proc/self/limits").unwrap();
    let line = text.lines().find(|line| line.starts_with("Max open files"));
    let soft = line
        .and_then(|line| line.split_whitespace().nth(3))
        .unwrap();
    soft.parse().unwrap_or(usize::MAX)
}

/// The memory of a process that is in use, in bytes.
fn resident(id: u32) -> usize {
    let text = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap();
    kibibytes.parse::<usize>().unwrap() * 1024
}

/// `echo` holds nineteen thousand connections on four threads. A thousand of them ask at once,
/// several times; the others are idle, and alive. (Where fewer descriptors are to be had there are
/// fewer, and it says so.)
#[test]
fn echo_holds_nineteen_thousand() {
    bounded_by(10 * LONG, || {
        let most = CONNECTIONS.min(descriptors().saturating_sub(SPARE));
        assert!(most >= ACTIVE / 2, "too few descriptors to show anything");
        let mut command = Command::new(echo());
        let server = Server::start(command.args(["--listen", "127.0.0.1:0", "--threads", "4"]));
        let before = resident(server.id());
        let mut connections: Vec<_> = (0..most).map(|_| server.connect()).collect();
        let (first, last) = (0, most - 1);
        for index in [first, most / 2, last] {
            expect_echo(&mut connections[index], b"first words");
        }
        let held = resident(server.id()).saturating_sub(before);
        let step = most / ACTIVE.min(most);
        for round in 0..5_u8 {
            for stream in connections.iter_mut().step_by(step).take(ACTIVE) {
                stream.write_all(&[round; 64]).unwrap();
            }
            for stream in connections.iter_mut().step_by(step).take(ACTIVE) {
                let mut answer = [0; 64];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer, [round; 64]);
            }
        }
        for stream in connections.iter_mut().rev().step_by(97) {
            expect_echo(stream, b"still here");
        }
        eprintln!(
            "{most} connections, {} bytes of the server's memory for each",
            held / most
        );
        signal("TERM", server.id());
        let output = server.output();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        assert!(text.contains("everything was finished"), "{text}");
    });
}
