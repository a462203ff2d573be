//! A thread for each connection, with a small stack.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use super::{counts::LastThread, Setting};
use crate::service::{perform_all, Rest, ROOM};

/// The stack of a connection's thread.
const STACK: usize = 64 * 1024;

/// How long to pause when there is no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(1);

/// Serves with as many threads as there are connections; this one accepts.
pub(super) fn serve(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    let steps = setting.steps;
    loop {
        let stream = next(&listener);
        // Without a thread for it, it is closed.
        let _ = thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || converse(stream, steps));
    }
}

/// The next connection. After any error it accepts the next one.
pub(super) fn next(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) if is_of_the_peer(&error) => {}
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Serves one connection until it ends, waiting for its input.
pub(super) fn converse(mut stream: impl Read + Write, steps: u32) -> io::Result<()> {
    let (mut buffer, mut rest, last) = ([0; ROOM], Rest::NONE, LastThread::default());
    loop {
        let before = rest.restore(&mut buffer);
        let count = match stream.read(&mut buffer[before..]) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        last.note();
        let whole = rest.keep(&buffer[..before + count]);
        perform_all(&buffer[..whole], steps);
        stream.write_all(&buffer[..whole])?;
    }
}

/// Whether an error of accepting says only that a connection is gone already.
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted
    )
}
