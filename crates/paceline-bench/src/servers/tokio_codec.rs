//! Tokio's own lines (`LinesCodec`), and frames over TLS by tokio-rustls. A task for each connection, a worker per core.

use std::{io, net::TcpListener};

use futures_util::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::codec::{Framed, LinesCodec};

use super::{tokio::serve_by, Setting};
use crate::{
    service::{perform_all, Rest, Task, ROOM},
    tls,
};

/// The longest line.
const LONGEST: usize = 8192;

/// Lines.
pub(super) fn lines(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    let steps = setting.steps;
    serve_by(listener, setting, move |stream| echo_lines(stream, steps))
}

/// Frames over TLS.
pub(super) fn tls(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    let (steps, acceptor) = (setting.steps, TlsAcceptor::from(tls::server()?));
    serve_by(listener, setting, move |stream| {
        echo_sealed(acceptor.clone(), stream, steps)
    })
}

/// Serves one connection until it ends.
async fn echo_lines(stream: TcpStream, steps: u32) -> io::Result<()> {
    let codec = LinesCodec::new_with_max_length(LONGEST);
    let mut framed = Framed::new(stream, codec);
    while let Some(line) = framed.next().await {
        let line = line.map_err(io::Error::other)?;
        Task::of_line(line.as_bytes()).perform(steps);
        framed.send(line).await.map_err(io::Error::other)?;
    }
    Ok(())
}

/// Serves one connection with TLS until it ends.
async fn echo_sealed(acceptor: TlsAcceptor, stream: TcpStream, steps: u32) -> io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let (mut buffer, mut rest) = ([0; ROOM], Rest::NONE);
    loop {
        let before = rest.restore(&mut buffer);
        let count = stream.read(&mut buffer[before..]).await?;
        if count == 0 {
            return stream.shutdown().await;
        }
        let whole = rest.keep(&buffer[..before + count]);
        perform_all(&buffer[..whole], steps);
        stream.write_all(&buffer[..whole]).await?;
        // What the socket does not take at once is kept by the stream.
        stream.flush().await?;
    }
}
