//! The check of replies, over pairs of sockets and without a server.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use super::*;

/// A wire of two connections, and the server's ends.
fn wire(pipeline: usize) -> (Wire, [UnixStream; 2]) {
    let pairs = [UnixStream::pair().unwrap(), UnixStream::pair().unwrap()];
    let [(one, first), (other, second)] = pairs;
    let mut sockets = Vec::new();
    for stream in [one, other] {
        stream.set_nonblocking(true).unwrap();
        sockets.push(stream.into());
    }
    let opener = Opener::lasting("127.0.0.1:1".parse().unwrap(), 2);
    (
        Wire::over(sockets, opener, pipeline).unwrap(),
        [first, second],
    )
}

/// What was asked, as the server sees it.
fn request_at(server: &mut UnixStream) -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    server.read_exact(&mut request).unwrap();
    request
}

/// Asks once on each connection, and gives back what the servers got.
fn ask_on_both(wire: &mut Wire, servers: &mut [UnixStream; 2]) -> [[u8; REQUEST]; 2] {
    for connection in 0..2 {
        wire.ask(connection, Task::Nothing, 5);
        wire.send(connection);
    }
    let [first, second] = servers;
    [request_at(first), request_at(second)]
}

#[test]
fn the_same_bytes_are_the_right_reply() {
    let (mut wire, mut servers) = wire(1);
    let [request, _] = ask_on_both(&mut wire, &mut servers);
    let asked = Asked {
        start: 5,
        task: Task::Nothing,
    };
    assert_eq!(wire.reply(0, &request), Reply::Right(asked));
    assert_eq!((wire.errors(), wire.outstanding()), (0, 1));
}

#[test]
fn a_doubled_reply_is_an_error() {
    let (mut wire, mut servers) = wire(1);
    let [request, _] = ask_on_both(&mut wire, &mut servers);
    wire.reply(0, &request);
    assert_eq!(wire.reply(0, &request), Reply::Unasked);
    wire.ask(0, Task::Nothing, 6);
    assert_eq!(wire.reply(0, &request), Reply::Wrong);
    assert_eq!(wire.errors(), 2);
}

#[test]
fn a_reply_on_the_wrong_connection_is_an_error() {
    let (mut wire, mut servers) = wire(1);
    let [_, other] = ask_on_both(&mut wire, &mut servers);
    assert_eq!(wire.reply(0, &other), Reply::Wrong);
    assert_eq!(wire.errors(), 1);
}

#[test]
fn a_changed_byte_is_an_error_wherever_it_is() {
    for byte in 0..REQUEST {
        let (mut wire, mut servers) = wire(1);
        let [mut request, _] = ask_on_both(&mut wire, &mut servers);
        request[byte] ^= 1;
        assert_eq!(wire.reply(0, &request), Reply::Wrong, "{byte}");
    }
}

#[test]
fn replies_in_another_order_are_errors() {
    let (mut wire, [mut server, _other]) = wire(2);
    wire.ask(0, Task::Nothing, 1);
    wire.ask(0, Task::Compute, 2);
    wire.send(0);
    let (first, second) = (request_at(&mut server), request_at(&mut server));
    assert_eq!(wire.reply(0, &second), Reply::Wrong);
    assert_eq!(wire.reply(0, &first), Reply::Wrong);
    assert_eq!((wire.errors(), wire.outstanding()), (2, 0));
}

#[test]
fn a_reply_in_pieces_is_put_together() {
    let (mut wire, mut servers) = wire(1);
    let [request, _] = ask_on_both(&mut wire, &mut servers);
    let mut buffer = [0; 2 * REQUEST];
    servers[0].write_all(&request[..10]).unwrap();
    assert_eq!(wire.read(0, &mut buffer).unwrap(), 0);
    servers[0].write_all(&request[10..]).unwrap();
    assert_eq!(wire.read(0, &mut buffer).unwrap(), REQUEST);
    assert_eq!(buffer[..REQUEST], request);
    assert_eq!(wire.read(0, &mut buffer).unwrap(), 0);
}

#[test]
fn what_the_kernel_does_not_take_is_sent_later() {
    let (mut wire, [mut server, _other]) = wire(16_384);
    for _ in 0..16_384 {
        wire.ask(0, Task::Nothing, 1);
    }
    wire.send(0);
    assert!(!wire.connections[0].unsent.is_empty());
    for _ in 0..16_384 {
        let request = request_at(&mut server);
        wire.flush(0);
        assert!(matches!(wire.reply(0, &request), Reply::Right(_)));
    }
    assert_eq!((wire.errors(), wire.outstanding()), (0, 0));
}

#[test]
fn a_lost_connection_counts_once_and_nothing_is_due_on_it() {
    let (mut wire, servers) = wire(1);
    wire.ask(0, Task::Nothing, 1);
    wire.send(0);
    drop(servers);
    let mut buffer = [0; 2 * REQUEST];
    let why = wire.read(0, &mut buffer).unwrap_err();
    assert_eq!(wire.lose(0, why), 1);
    assert_eq!(wire.lose(0, io::ErrorKind::Other.into()), 0);
    assert!(!wire.stands(0) && wire.stands(1));
    assert_eq!(
        (wire.errors(), wire.outstanding(), wire.standing()),
        (1, 0, 1)
    );
}
