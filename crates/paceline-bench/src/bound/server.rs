//! The server of all clients: a thread for each connection, which reads what is there and answers all of it at once.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use super::frames;

/// Serves until the standard input ends.
pub(super) fn serve(reversed: bool) -> io::Result<()> {
    println!("{}", start(reversed)?);
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// Serves for as long as the process lives.
pub(super) fn start(reversed: bool) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that has gone needs no answer.
            thread::spawn(move || drop(answer(stream, reversed)));
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream, reversed: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut buffer, mut filled) = (vec![0; 64 * 1024], 0);
    let (mut requests, mut replies) = (Vec::new(), Vec::new());
    loop {
        match stream.read(&mut buffer[filled..])? {
            0 => return Ok(()),
            count => filled += count,
        }
        let mut rest = &buffer[..filled];
        requests.clear();
        while let Some((id, body, after)) = frames::split(rest) {
            requests.push((id, filled - rest.len() + frames::HEADER, body.len()));
            rest = after;
        }
        if reversed {
            requests.reverse();
        }
        let used = filled - rest.len();
        replies.clear();
        for (id, at, length) in &requests {
            frames::append(&mut replies, *id, &buffer[*at..at + length]);
        }
        stream.write_all(&replies)?;
        buffer.copy_within(used..filled, 0);
        filled -= used;
    }
}
