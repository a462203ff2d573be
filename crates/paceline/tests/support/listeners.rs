//! Listeners whose events the test handles itself, on the kernel's sets.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
};

use super::{by_hand::serve_all, wait_until, LONG};
use paceline::{Builder, Context, Next, Pool};

pub const HERE: &str = "127.0.0.1:0";

/// A pool without threads.
pub fn without_threads(settings: Builder) -> Pool {
    settings.threads(0).build().unwrap()
}

pub fn echo<S>(cx: &mut Context<'_, S>) -> io::Result<Next>
where
    for<'s> &'s S: Read + Write,
    S: 'static,
{
    let mut buffer = [0; 64];
    let count = cx.read(&mut buffer)?;
    cx.write_all(&buffer[..count])?;
    Ok(if count == 0 {
        Next::Close
    } else {
        Next::Continue
    })
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Sends a byte, which comes back.
pub fn is_served(pool: &Pool, mut stream: &TcpStream) {
    stream.write_all(b"x").unwrap();
    serve_until(pool, || has_input(stream));
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
}

pub fn has_input(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let told = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    told.is_ok()
}

/// Everything that the peer is sent.
pub fn all_of(mut stream: impl Read) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Plays the roles until this is so: the kernel passes bytes on when it likes.
pub fn serve_until(pool: &Pool, is_so: impl Fn() -> bool) {
    wait_until(|| {
        serve_all(pool);
        is_so()
    });
}
