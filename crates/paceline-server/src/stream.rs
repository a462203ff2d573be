//! What a connection's source must be able to do besides reading and writing.

use std::{
    io,
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
};

use paceline::{simulated::SimStream, Source};

/// The source of a connection.
pub(crate) trait Stream: Source {
    /// Ends the output: the peer reads the end after what was sent.
    fn end_output(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn end_output(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for UnixStream {
    fn end_output(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for SimStream {
    fn end_output(&self) -> io::Result<()> {
        SimStream::end_output(self)
    }
}
