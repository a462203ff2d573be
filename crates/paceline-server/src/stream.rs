//! What a connection's source must be able to do besides reading and writing.

use std::{
    fs::File,
    io::{self, Write},
    net::{Shutdown, TcpStream},
    os::unix::{fs::FileExt, net::UnixStream},
};

use paceline::{simulated::SimStream, Source};

/// The source of a connection.
pub(crate) trait Stream: Source {
    /// Ends the output: the peer reads the end after what was sent.
    fn end_output(&self) -> io::Result<()>;

    /// Sends bytes of a file from `offset` on, and moves it. How many; 0 at the end of the file.
    fn send_file(&self, file: &File, offset: &mut u64, count: usize) -> io::Result<usize>;
}

impl Stream for TcpStream {
    fn end_output(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn send_file(&self, file: &File, offset: &mut u64, count: usize) -> io::Result<usize> {
        Ok(rustix::fs::sendfile(self, file, Some(offset), count)?)
    }
}

impl Stream for UnixStream {
    fn end_output(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn send_file(&self, file: &File, offset: &mut u64, count: usize) -> io::Result<usize> {
        Ok(rustix::fs::sendfile(self, file, Some(offset), count)?)
    }
}

/// The most bytes of a file that a stream in memory sends at once.
const SIMULATED_PART: usize = 16 * 1024;

impl Stream for SimStream {
    fn end_output(&self) -> io::Result<()> {
        SimStream::end_output(self)
    }

    fn send_file(&self, file: &File, offset: &mut u64, count: usize) -> io::Result<usize> {
        let mut part = vec![0; count.min(SIMULATED_PART)];
        let there = file.read_at(&mut part, *offset)?;
        if there == 0 {
            return Ok(0);
        }
        let mut stream = self;
        let sent = stream.write(&part[..there])?;
        *offset += sent as u64;
        Ok(sent)
    }
}
