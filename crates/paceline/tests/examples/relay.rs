//! The example `relay` does what its help says: everything is passed on, in both directions, with
//! its end; and nothing else.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    thread,
};

use crate::support::{
    self, bounded,
    example::{signal, Server},
    pause, Random, LONG,
};

/// Builds the example, before a test's time begins.
fn relay() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| support::example("relay"))
}

/// A relay to this server.
fn start(to: SocketAddr, more: &[&str]) -> Server {
    let mut command = Command::new(relay());
    command.args(["--listen", "127.0.0.1:0", "--threads", "3"]);
    command.args(["--to", &to.to_string()]);
    Server::start(command.args(more))
}

/// Ends the relay, and tells what it said.
fn end(server: Server) -> String {
    signal("TERM", server.id());
    let output = server.output();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// A relay, and both ends of a session through it.
fn session(more: &[&str]) -> (Server, TcpStream, TcpStream) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = start(server.local_addr().unwrap(), more);
    let near = relay.connect();
    let (far, _) = server.accept().unwrap();
    far.set_read_timeout(Some(LONG)).unwrap();
    (relay, near, far)
}

/// Bytes that are not mistaken for others: the same for the same seed.
fn text(seed: u64, size: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..size).map(|_| random.next() as u8).collect()
}

/// Sends everything, then its end.
fn send(stream: &TcpStream, bytes: Vec<u8>) -> thread::JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    thread::spawn(move || {
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    })
}

fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// Megabytes in both directions at once, and both ends: each arrives whole.
#[test]
fn both_directions_are_passed_on() {
    const SIZE: usize = 3 << 20;
    for set in ["epoll", "oneshot", "poll"] {
        relay();
        bounded(move || {
            let (relay, mut near, mut far) = session(&["--set", set]);
            let senders = [send(&near, text(1, SIZE)), send(&far, text(2, SIZE))];
            let reader = thread::spawn(move || receive(&mut far));
            assert!(receive(&mut near) == text(2, SIZE));
            assert!(reader.join().unwrap() == text(1, SIZE));
            senders
                .into_iter()
                .for_each(|sender| sender.join().unwrap());
            let said = end(relay);
            assert!(
                said.contains("nothing left undone") || !said.contains("unfinished"),
                "{said}"
            );
        });
    }
}

/// A client that reads only when it has sent everything, while megabytes come the other way: what
/// it sends flows on.
#[test]
fn one_direction_does_not_stop_the_other() {
    const SIZE: usize = 3 << 20;
    relay();
    bounded(|| {
        let (relay, mut near, mut far) = session(&[]);
        let answers = send(&far, text(2, SIZE));
        let reader = thread::spawn(move || receive(&mut far));
        near.write_all(&text(1, SIZE)).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        assert!(reader.join().unwrap() == text(1, SIZE));
        assert!(receive(&mut near) == text(2, SIZE));
        answers.join().unwrap();
        end(relay);
    });
}

/// The end of one direction is passed on, and leaves the other open.
#[test]
fn half_closes_are_passed_on() {
    relay();
    bounded(|| {
        let (relay, mut near, mut far) = session(&[]);
        near.write_all(b"question").unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        assert_eq!(receive(&mut far), b"question");
        for word in ["a ", "long ", "answer"] {
            far.write_all(word.as_bytes()).unwrap();
            let mut heard = vec![0; word.len()];
            near.read_exact(&mut heard).unwrap();
            assert_eq!(heard, word.as_bytes());
        }
        drop(far);
        assert_eq!(receive(&mut near), b"");
        end(relay);
    });
}

/// Who does not read is not sent to without bounds: the sender has to wait, and then everything
/// arrives.
#[test]
fn slow_readers_hold_up_their_senders() {
    relay();
    bounded(|| {
        let (relay, near, mut far) = session(&[]);
        near.set_nonblocking(true).unwrap();
        let (mut sent, mut quiet) = (0_usize, 0);
        // Until the system's buffers and the relay are full, for a while.
        while quiet < 500 {
            match (&near).write(&[7; 64 << 10]) {
                Ok(count) => (sent, quiet) = (sent + count, 0),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    quiet += 1;
                    pause();
                }
            }
            assert!(sent < 256 << 20, "it takes everything");
        }
        near.shutdown(Shutdown::Write).unwrap();
        assert_eq!(receive(&mut far).len(), sent);
        drop(near);
        end(relay);
    });
}

/// If one side fails the other is told, and does not take it for an end.
#[test]
fn failures_are_passed_on() {
    relay();
    bounded(|| {
        let (relay, mut near, far) = session(&[]);
        near.write_all(b"x").unwrap();
        (&far).read_exact(&mut [0]).unwrap();
        socket2::SockRef::from(&far)
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
        drop(far);
        let told = near.read(&mut [0]).unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::ConnectionReset);
        let said = end(relay);
        assert!(said.contains("1 connections failed"), "{said}");
    });
}

/// A failure that is found by writing: the server dies in the middle of its answer while the client
/// does not read, and then the client says something. It does not take half an answer for a whole
/// one.
#[test]
fn half_a_stream_is_no_whole_one() {
    for set in ["epoll", "oneshot", "poll"] {
        relay();
        bounded(move || {
            let (relay, mut near, far) = session(&["--set", set]);
            far.set_nonblocking(true).unwrap();
            let mut quiet = 0;
            while quiet < 300 {
                let is_full = (&far).write(&[7; 64 << 10]).is_err();
                quiet = if is_full { quiet + 1 } else { 0 };
                pause();
            }
            socket2::SockRef::from(&far)
                .set_linger(Some(std::time::Duration::ZERO))
                .unwrap();
            drop(far);
            near.write_all(b"more, please").unwrap();
            let told = near.read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(told.kind(), io::ErrorKind::ConnectionReset);
            end(relay);
        });
    }
}

/// The relay is stopped in the middle of a session: nobody takes that for an end.
#[test]
fn stopped_sessions_are_reset() {
    relay();
    bounded(|| {
        let (relay, mut near, mut far) = session(&[]);
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        end(relay);
        for end in [&mut near, &mut far] {
            let told = end.read(&mut [0]).unwrap_err();
            assert_eq!(told.kind(), io::ErrorKind::ConnectionReset);
        }
    });
}

/// Nobody listens behind it: the client is told at once, and the relay goes on.
#[test]
fn nobody_behind_it() {
    relay();
    bounded(|| {
        let vacant = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = vacant.local_addr().unwrap();
        drop(vacant);
        let relay = start(address, &[]);
        for _ in 0..3 {
            let told = relay.connect().read(&mut [0]).unwrap_err();
            assert_eq!(told.kind(), io::ErrorKind::ConnectionReset);
        }
        let said = end(relay);
        assert!(
            said.contains("3 sessions, 3 connections failed, 0 bytes"),
            "{said}"
        );
    });
}

/// A session on which nothing happens is ended, both halves of it.
#[test]
fn idle_sessions_are_ended() {
    relay();
    bounded(|| {
        let (relay, mut near, mut far) = session(&["--idle", "1"]);
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        for end in [&mut near, &mut far] {
            let told = end.read(&mut [0]).unwrap_err();
            assert_eq!(told.kind(), io::ErrorKind::ConnectionReset);
        }
        end(relay);
    });
}

/// What is wrong on the command line is said, with the help.
#[test]
fn mistakes_are_told() {
    for (arguments, mistake) in [
        (&[][..], "--to is missing"),
        (&["--to", "nowhere"], "--to nowhere"),
        (&["--to", "127.0.0.1:1", "--threads", "0"], "--threads 0"),
        (&["--to", "127.0.0.1:1", "--fast"], "unknown option --fast"),
    ] {
        let output = Command::new(relay()).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(mistake), "{said}");
        assert!(said.contains("usage: relay"), "{said}");
    }
}
