//! A connection breaks in the way that it is asked to: else the rows of the table would show nothing.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use paceline_trial::{back::Place, link::Link};

const LIMIT: Duration = Duration::from_secs(60);

/// A link to a server that sends back what it gets.
fn link() -> Link {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                // The connection breaks in these tests.
                let _ = std::io::copy(&mut &stream, &mut &stream);
            });
        }
    });
    Link::to(Place::Tcp(address)).expect("a link")
}

fn connect(link: &Link) -> TcpStream {
    let stream = TcpStream::connect(link.address()).expect("the link accepts");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    stream
}

fn echoes(stream: &mut TcpStream) {
    stream.write_all(b"ping").expect("it is sent");
    let mut seen = [0; 4];
    stream.read_exact(&mut seen).expect("it comes back");
    assert_eq!(&seen, b"ping");
}

#[test]
fn everything_passes_in_order() {
    let link = link();
    let mut stream = connect(&link);
    let sent: Vec<u8> = (0..4_000_000_u32).map(|n| (n % 251) as u8).collect();
    let mut writer = stream.try_clone().expect("a second handle");
    let copy = sent.clone();
    let writing = thread::spawn(move || writer.write_all(&copy));
    let mut seen = vec![0; sent.len()];
    stream.read_exact(&mut seen).expect("all of it comes back");
    assert!(seen == sent, "other bytes came back");
    writing.join().expect("a thread").expect("all is sent");
}

#[test]
fn a_reset_is_a_reset_and_the_next_connection_works() {
    let link = link();
    let mut stream = connect(&link);
    echoes(&mut stream);
    link.reset().expect("the link works");
    let error = stream.read(&mut [0; 1]).expect_err("it is reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    echoes(&mut connect(&link));
}

#[test]
fn a_refused_connection_is_accepted_later_on_the_same_port() {
    let link = link();
    let mut stream = connect(&link);
    echoes(&mut stream);
    link.refuse().expect("the link works");
    let error = stream.read(&mut [0; 1]).expect_err("it is reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let error = TcpStream::connect(link.address()).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    link.accept().expect("the link works");
    echoes(&mut connect(&link));
}
