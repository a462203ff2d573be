//! What the service promises, as checks of a server at an address.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use rustix::net::sockopt;

use crate::service::{Task, REQUEST};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

/// Many requests in one piece come back equal, in order.
pub(super) fn pipelined(name: &str, address: SocketAddr) {
    ask(name, &connect(address), &requests(Task::Nothing, 100));
}

/// A request in two pieces is answered.
pub(super) fn split(name: &str, address: SocketAddr) {
    let mut stream = connect(address);
    for number in 0..3 {
        let sent = request(Task::Nothing, number);
        stream.write_all(&sent[..1]).unwrap();
        thread::sleep(Duration::from_millis(5));
        stream.write_all(&sent[1..]).unwrap();
        expect(name, &stream, &sent);
    }
}

/// Every task is done, alone and among others.
pub(super) fn tasks(name: &str, address: SocketAddr) {
    let stream = connect(address);
    for (number, task) in Task::ALL.into_iter().enumerate() {
        let start = Instant::now();
        ask(name, &stream, &request(task, number));
        assert!(start.elapsed() >= task.sleep(), "{name}: {task:?}");
    }
    let mixed = (0..20).flat_map(|number| request(Task::ALL[number % Task::ALL.len()], number));
    ask(name, &stream, &mixed.collect::<Vec<u8>>());
}

/// The end of the stream closes; what was asked for before is answered.
pub(super) fn end(name: &str, address: SocketAddr) {
    let stream = connect(address);
    ask(name, &stream, &request(Task::Nothing, 7));
    stream.shutdown(Shutdown::Write).unwrap();
    expect_end(name, &stream);
    let mut stream = connect(address);
    let sent = requests(Task::SleepShort, 10);
    stream.write_all(&sent).unwrap();
    stream.write_all(&[0; REQUEST / 2]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    expect(name, &stream, &sent);
    expect_end(name, &stream);
}

/// Fifty connections are served at once.
pub(super) fn many(name: &str, address: SocketAddr) {
    let streams: Vec<_> = (0..50).map(|_| connect(address)).collect();
    for number in 0..20 {
        let sent = request(Task::ALL[number % 2], number);
        for mut stream in &streams {
            stream.write_all(&sent).unwrap();
        }
        for stream in &streams {
            expect(name, stream, &sent);
        }
    }
}

/// A peer that sends much before it reads anything gets every reply in the end; and others are not kept waiting,
/// though there are more such peers than threads.
pub(super) fn slow_readers(name: &str, address: SocketAddr, count: usize) {
    let sent = requests(Task::Nothing, count);
    let slow: Vec<_> = (0..6).map(|_| connect(address)).collect();
    thread::scope(|scope| {
        for mut stream in &slow {
            sockopt::set_socket_recv_buffer_size(stream, 64 * 1024).unwrap();
            let sent = &sent;
            scope.spawn(move || stream.write_all(sent).unwrap());
        }
        thread::sleep(Duration::from_millis(50));
        let quick = connect(address);
        (0..100).for_each(|number| ask(name, &quick, &request(Task::Nothing, number)));
        for stream in &slow {
            expect(name, stream, &sent);
        }
    });
}

/// Connections that are reset, at once or in the middle of a request, end nothing.
pub(super) fn resets(name: &str, address: SocketAddr) {
    for number in 0..50 {
        let mut stream = connect(address);
        let sent = request(Task::Nothing, number);
        stream.write_all(&sent[..number % REQUEST]).unwrap();
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    }
    ask(name, &connect(address), &request(Task::Nothing, 1));
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A request that is like no other.
fn request(task: Task, number: usize) -> [u8; REQUEST] {
    let mut request = [number as u8; REQUEST];
    request[0] = task.byte();
    request[1..9].copy_from_slice(&number.to_le_bytes());
    request
}

fn requests(task: Task, count: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|number| request(task, number))
        .collect()
}

/// Sends requests at once and wants the same back.
fn ask(name: &str, mut stream: &TcpStream, sent: &[u8]) {
    stream.write_all(sent).unwrap();
    expect(name, stream, sent);
}

/// The next replies are `sent`.
fn expect(name: &str, mut stream: &TcpStream, sent: &[u8]) {
    let mut came = vec![0; sent.len()];
    let result = stream.read_exact(&mut came);
    assert!(result.is_ok(), "{name}: {result:?}");
    assert!(came == sent, "{name}: the reply is not the request");
}

/// There is nothing more to come. (A reset is an end too, if something was left unread.)
fn expect_end(name: &str, mut stream: &TcpStream) {
    let result = stream.read(&mut [0]);
    assert!(matches!(result, Ok(0)), "{name}: {result:?}");
}
