//! One connection of the client: bytes out, answers in, without a copy of either.
//!
//! All answers of a server to one request have one length (its date has one too), which the first
//! answer shows. So the client counts bytes, and looks at the status of each answer.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    iter,
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::{ClientConfig, ClientConnection};

use super::works::Request;
use crate::load::sealed::Sealed;

/// How a good answer begins.
const GOOD: &[u8] = b"HTTP/1.1 200";

/// A request on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnTheWay {
    pub(super) since: Instant,
    /// How long its answer is.
    pub(super) length: usize,
    pub(super) request: Request,
}

/// A connection.
pub(super) struct Wire {
    pub(super) stream: TcpStream,
    sealed: Option<Sealed>,
    /// What the system did not take yet.
    unsent: Vec<u8>,
    on_the_way: VecDeque<OnTheWay>,
    /// The bytes of the present answer that are to come; 0 between two answers.
    left: usize,
    /// The first bytes of an answer, as long as they are too few to be checked.
    head: Vec<u8>,
}

/// What has come.
#[derive(Debug, Default)]
pub(super) struct Came {
    /// The answered requests.
    pub(super) answered: Vec<OnTheWay>,
    pub(super) is_closed: bool,
    /// An answer has another status, or none was asked for.
    pub(super) is_wrong: bool,
}

impl Wire {
    pub(super) fn connect(
        address: SocketAddr,
        tls: Option<&Arc<ClientConfig>>,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            sealed: tls.map(Sealed::new).transpose()?,
            unsent: Vec::new(),
            on_the_way: VecDeque::new(),
            left: 0,
            head: Vec::new(),
        })
    }

    /// Sends `count` times the same request, by one write.
    pub(super) fn ask(
        &mut self,
        request: Request,
        form: &(Vec<u8>, usize),
        count: usize,
    ) -> io::Result<()> {
        let (bytes, length) = form;
        let asked = OnTheWay {
            since: Instant::now(),
            length: *length,
            request,
        };
        self.on_the_way.extend(iter::repeat_n(asked, count));
        match &mut self.sealed {
            None if self.unsent.is_empty() && count == 1 => {
                let taken = taken(self.stream.write(bytes))?;
                self.unsent.extend_from_slice(&bytes[taken..]);
                Ok(())
            }
            None => {
                self.unsent.extend_from_slice(&bytes.repeat(count));
                self.flush()
            }
            Some(sealed) => {
                let mut output = bytes.repeat(count);
                sealed.seal(&mut output)?;
                self.unsent.append(&mut output);
                self.flush()
            }
        }
    }

    /// Sends what the system did not take before.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match taken(self.stream.write(&self.unsent))? {
                0 => break,
                count => drop(self.unsent.drain(..count)),
            }
        }
        Ok(())
    }

    /// Reads what has come.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Came> {
        let mut came = Came::default();
        loop {
            let count = match self.stream.read(buffer) {
                Ok(0) => {
                    came.is_closed = true;
                    return Ok(came);
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(came),
                Err(error) => return Err(error),
            };
            let received = &buffer[..count];
            match &mut self.sealed {
                None => self.take(received, &mut came),
                Some(sealed) => {
                    let (mut plain, mut output) = (Vec::new(), Vec::new());
                    sealed.open(received, &mut plain, &mut output)?;
                    self.unsent.append(&mut output);
                    self.flush()?;
                    self.take(&plain, &mut came);
                }
            }
            if count < buffer.len() {
                return Ok(came);
            }
        }
    }

    fn take(&mut self, mut bytes: &[u8], came: &mut Came) {
        while !bytes.is_empty() {
            if self.left == 0 {
                let Some(first) = self.on_the_way.front() else {
                    came.is_wrong = true;
                    return;
                };
                self.left = first.length;
                self.head.clear();
            }
            let count = self.left.min(bytes.len());
            let missing = GOOD.len().saturating_sub(self.head.len());
            if missing > 0 {
                self.head.extend_from_slice(&bytes[..count.min(missing)]);
                came.is_wrong |= !GOOD.starts_with(&self.head);
            }
            self.left -= count;
            bytes = &bytes[count..];
            if self.left == 0 {
                let asked = self.on_the_way.pop_front();
                came.answered.extend(asked);
            }
        }
    }
}

/// How much was taken: nothing, if the system takes nothing now.
fn taken(written: io::Result<usize>) -> io::Result<usize> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        written => written,
    }
}

/// How long the answer of a server to this request is, head and body.
///
/// # Errors
/// The answer is another one than 200, or does not say how long it is.
pub(super) fn length_of_answer(
    address: SocketAddr,
    tls: Option<&Arc<ClientConfig>>,
    request: &[u8],
) -> io::Result<usize> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    match tls {
        None => length_over(&stream, request),
        Some(config) => {
            let client = ClientConnection::new(Arc::clone(config), crate::tls::name()?);
            let client = client.map_err(io::Error::other)?;
            length_over(rustls::StreamOwned::new(client, stream), request)
        }
    }
}

fn length_over(mut stream: impl Read + Write, request: &[u8]) -> io::Result<usize> {
    stream.write_all(request)?;
    let mut answer = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = stream.read(&mut buffer)?;
        answer.extend_from_slice(&buffer[..count]);
        if let Some(length) = length_in(&answer)? {
            return Ok(length);
        }
        if count == 0 {
            return Err(io::Error::other("the first answer has no end"));
        }
    }
}

/// The length that a head says, with its own; `None` if it is not whole.
fn length_in(answer: &[u8]) -> io::Result<Option<usize>> {
    let Some(end) = memchr::memmem::find(answer, b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&answer[..end]);
    if !answer.starts_with(GOOD) {
        let first = head.lines().next().unwrap_or_default();
        return Err(io::Error::other(format!("the first answer is {first:?}")));
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_it = name.eq_ignore_ascii_case("content-length");
        is_it.then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    let length =
        length.ok_or_else(|| io::Error::other("the answers do not say how long they are"))?;
    Ok((answer.len() >= end + 4 + length).then_some(end + 4 + length))
}
