//! A ring of records in memory that two processes share.
//!
//! One process makes it and puts records in ([`RingProducer`]); the other one opens it and takes
//! them out ([`RingConsumer`]). Between them is a Unix socket: it carries the memory's descriptor,
//! at the beginning; later it is the **bell** that wakes a side which has announced its sleep; and
//! its hang-up means that the other process is gone. A record that is sent while the other side is
//! awake costs no system call.
//!
//! ```text
//!   producer                 shared memory                    consumer
//!   send ------------>  [ record | record |      ]  --------> receive
//!     \                                                        ^
//!      `------- one byte, if the consumer sleeps --------------'   the socket
//! ```
//!
//! A consumer is a source of a pool like any other descriptor
//! ([`Pool::register`](crate::Pool::register)), or of a [`SourcePool`](crate::SourcePool). The two
//! sides do not trust each other: see `records.rs`.

#[cfg_attr(
    all(target_os = "linux", not(any(loom, shuttle))),
    path = "ring/system.rs"
)]
#[cfg_attr(
    not(all(target_os = "linux", not(any(loom, shuttle)))),
    path = "ring/heap.rs"
)]
mod memory;
#[cfg(all(test, loom))]
mod models;
mod records;

use std::{
    cell::Cell,
    fmt, io,
    mem::MaybeUninit,
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    time::Instant,
};

use socket2::SockRef;

use self::{
    memory::Map,
    records::{Broken, In, Out, Popped, Pushed, Sleep},
};
use super::{Arrived, BlockingSource, Interrupter};
use crate::dispatch::Rejected;

/// So often a bell is read before the ring is looked at again, whatever the peer rings.
const READS: usize = 16;

/// A peer that is gone is an error, and no signal.
#[cfg(target_os = "linux")]
const NO_SIGNAL: libc::c_int = libc::MSG_NOSIGNAL;
/// Programs of Rust ignore that signal anyway.
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: libc::c_int = 0;

/// One side's end of the socket.
struct Bell {
    socket: UnixStream,
    /// The other process has closed its end.
    is_over: Cell<bool>,
}

impl Bell {
    fn new(socket: UnixStream) -> Self {
        let is_over = Cell::new(false);
        Self { socket, is_over }
    }

    /// Wakes the peer. It never waits: a socket that is full rings already.
    fn ring(&self) {
        let flags = libc::MSG_DONTWAIT | NO_SIGNAL;
        let told = SockRef::from(&self.socket).send_with_flags(&[1], flags);
        if told.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            self.is_over.set(true);
        }
    }

    /// Takes what the peer has rung; finds out whether it is gone. It never waits.
    fn silence(&self) -> io::Result<()> {
        let mut bytes = [MaybeUninit::uninit(); 256];
        for _ in 0..READS {
            let read = SockRef::from(&self.socket).recv_with_flags(&mut bytes, libc::MSG_DONTWAIT);
            match read {
                Ok(0) => self.is_over.set(true),
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    self.is_over.set(true);
                }
                Err(error) => return Err(error),
            }
            break;
        }
        Ok(())
    }

    /// Sleeps until the peer has rung or is gone, at most until `until`. It does not silence the
    /// bell.
    fn sleep(&self, until: Option<Instant>) -> io::Result<()> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(());
        }
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(left)?;
        let told = SockRef::from(&self.socket).peek(&mut [MaybeUninit::uninit()]);
        match told.map_err(|error| (error.kind(), error)) {
            Ok(_)
            | Err((
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted
                | io::ErrorKind::ConnectionReset,
                _,
            )) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }
}

fn broken(attempted: &str) -> io::Error {
    let text = format!("{attempted}: the peer has written into the ring what can't be");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn failed(attempted: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{attempted}: {error}"))
}

/// The side of a ring that sends.
pub struct RingProducer {
    map: Map,
    out: Out,
    bell: Bell,
}

impl RingProducer {
    /// Makes a ring that holds `capacity` bytes, rounded up to whole words, and passes it to the
    /// process at the other end of `peer`, which [opens](RingConsumer::open) it. A record takes its
    /// length, rounded up likewise, and eight bytes.
    ///
    /// # Errors
    /// Gives `peer` back: `InvalidInput` if no record would fit; what the system said if there is
    /// no memory or the descriptor can't be passed.
    pub fn create(peer: UnixStream, capacity: usize) -> Result<Self, Rejected<UnixStream>> {
        match Self::make(&peer, capacity) {
            Err(error) => Err(Rejected::new(peer, failed("create a ring", &error))),
            Ok(map) => Ok(Self {
                map,
                out: Out::default(),
                bell: Bell::new(peer),
            }),
        }
    }

    fn make(peer: &UnixStream, capacity: usize) -> io::Result<Map> {
        let words = capacity.div_ceil(8).saturating_add(records::HEADER);
        if records::capacity(words).is_none() {
            let text = format!("no record fits into {capacity} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (map, memory) = Map::create(words)?;
        records::begin(map.words());
        memory::send(peer, &memory)?;
        Ok(map)
    }

    /// Sends a record. It never waits, and makes a system call only if the consumer sleeps (or the
    /// ring is full).
    ///
    /// # Errors
    /// `QuotaExceeded` if there is no room now; `InvalidInput` if there never will be; `BrokenPipe`
    /// if the other process is gone, which it finds out when it rings or waits; `InvalidData` if
    /// that one has spoiled the ring.
    pub fn send(&mut self, record: &[u8]) -> io::Result<()> {
        match self.push(record)? {
            Sent::In => Ok(()),
            Sent::Full => {
                self.bell.silence()?;
                self.judge_peer()?;
                let text = format!("send {} bytes: the ring is full", record.len());
                Err(io::Error::new(io::ErrorKind::QuotaExceeded, text))
            }
        }
    }

    /// The same, and waits for room until `until` (`None`: for ever).
    ///
    /// # Errors
    /// As [`send`](Self::send), but `TimedOut` if there was no room in time.
    pub fn send_until(&mut self, record: &[u8], until: Option<Instant>) -> io::Result<()> {
        loop {
            if let Sent::In = self.push(record)? {
                return Ok(());
            }
            // Silent before it says that it sleeps: what is rung later is heard.
            self.bell.silence()?;
            self.judge_peer()?;
            if until.is_some_and(|until| Instant::now() >= until) {
                let text = format!("send {} bytes: no room in time", record.len());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            if self.out.announce_sleep(self.map.words()) == Sleep::Announced {
                self.bell.sleep(until)?;
            }
        }
    }

    /// The largest record that can be sent.
    #[must_use]
    pub fn largest(&self) -> usize {
        let capacity = (self.map.words().len() - records::HEADER) * 8;
        records::most(capacity as u64) as usize
    }

    fn push(&self, record: &[u8]) -> io::Result<Sent> {
        if record.len() > self.largest() {
            let (length, most) = (record.len(), self.largest());
            let text = format!("send {length} bytes: a record of this ring has at most {most}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        match self.out.push(self.map.words(), record) {
            Ok(Pushed::Quiet) => Ok(Sent::In),
            Ok(Pushed::WakePeer) => {
                self.bell.ring();
                Ok(Sent::In)
            }
            Ok(Pushed::Full) => Ok(Sent::Full),
            Err(Broken) => Err(broken("send")),
        }
    }

    fn judge_peer(&self) -> io::Result<()> {
        if self.bell.is_over.get() {
            let text = "send: the other process is gone";
            Err(io::Error::new(io::ErrorKind::BrokenPipe, text))
        } else {
            Ok(())
        }
    }
}

/// Whether a record is in the ring.
enum Sent {
    In,
    Full,
}

impl fmt::Debug for RingProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingProducer")
            .field("largest", &self.largest())
            .finish_non_exhaustive()
    }
}

/// The side of a ring that receives. As a source of a pool:
///
/// ```no_run
/// # use std::{io, os::unix::net::UnixStream};
/// # use paceline::{Context, Interest, Next, Pool, RingConsumer};
/// # fn main() -> io::Result<()> {
/// let pool = Pool::new()?;
/// let peer = UnixStream::connect("ring.socket")?;
/// let ring = RingConsumer::open(peer, 1 << 20)?;
/// let mut record = Vec::new();
/// pool.register(ring, Interest::READ, move |cx: &mut Context<'_, RingConsumer>| {
///     while cx.try_read(|ring| ring.receive(&mut record))? {
///         println!("{} bytes", record.len());
///     }
///     Ok(Next::Close) // the other process is gone
/// })?;
/// # pool.join()
/// # }
/// ```
pub struct RingConsumer {
    map: Map,
    into: In,
    bell: Bell,
}

impl RingConsumer {
    /// Opens the ring that the process at the other end of `peer` has made, if it holds at most
    /// `most` bytes. Waits for it, for as long as the socket's own time-out allows.
    ///
    /// # Errors
    /// Gives `peer` back: `InvalidData` if what comes is no ring, or a larger one; `UnexpectedEof`
    /// if the other process is gone; otherwise what the system said.
    pub fn open(peer: UnixStream, most: usize) -> Result<Self, Rejected<UnixStream>> {
        match Self::get(&peer, most) {
            Err(error) => Err(Rejected::new(peer, failed("open a ring", &error))),
            Ok(map) => Ok(Self {
                map,
                into: In::default(),
                bell: Bell::new(peer),
            }),
        }
    }

    fn get(peer: &UnixStream, most: usize) -> io::Result<Map> {
        let memory = memory::receive(peer)?;
        let map = Map::open(memory, most.div_ceil(8).saturating_add(records::HEADER))?;
        match records::capacity(map.words().len()) {
            Some(_) => Ok(map),
            None => {
                let text = "it is too small for any record";
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
        }
    }

    /// Takes the next record, in place of what `record` holds. `false`: the other process is gone,
    /// and everything that it sent was received.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is there now: the other process knows that this one sleeps, and its
    /// next record makes the descriptor readable. `InvalidData` if it has spoiled the ring.
    /// Whatever it writes, at most as much memory is used as the ring holds.
    pub fn receive(&self, record: &mut Vec<u8>) -> io::Result<bool> {
        loop {
            match self.into.pop(self.map.words(), record) {
                Err(Broken) => return Err(broken("receive")),
                Ok(Popped::Quiet) => return Ok(true),
                Ok(Popped::WakePeer) => {
                    self.bell.ring();
                    return Ok(true);
                }
                // What it sent before it went was seen before.
                Ok(Popped::Empty) if self.bell.is_over.get() => return Ok(false),
                Ok(Popped::Empty) => {}
            }
            self.bell.silence()?;
            if self.bell.is_over.get() {
                continue;
            }
            match self.into.announce_sleep(self.map.words()) {
                Sleep::NotYet => {}
                Sleep::Announced => return Err(io::ErrorKind::WouldBlock.into()),
            }
        }
    }
}

/// The bell: readable when something was sent to a consumer that slept, or the other process is
/// gone.
impl AsFd for RingConsumer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.socket.as_fd()
    }
}

/// For a [`SourcePool`](crate::SourcePool), whose event is a record. An interrupted ring is over,
/// for both sides.
impl BlockingSource for RingConsumer {
    type Event = Vec<u8>;

    fn wait(&mut self, until: Option<Instant>) -> io::Result<Arrived<Vec<u8>>> {
        let mut record = Vec::new();
        match self.receive(&mut record) {
            Ok(true) => return Ok(Arrived::Event(record)),
            Ok(false) => return Ok(Arrived::Over),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        self.bell.sleep(until)?;
        match self.receive(&mut record) {
            Ok(true) => Ok(Arrived::Event(record)),
            Ok(false) => Ok(Arrived::Over),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Arrived::Nothing),
            Err(error) => Err(error),
        }
    }

    fn interrupter(&self) -> Option<Interrupter> {
        let socket = self.bell.socket.try_clone().ok()?;
        Some(Box::new(move || drop(socket.shutdown(Shutdown::Both))))
    }
}

impl fmt::Debug for RingConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capacity = (self.map.words().len() - records::HEADER) * 8;
        f.debug_struct("RingConsumer")
            .field("capacity", &capacity)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, target_os = "linux", not(any(loom, shuttle))))]
mod tests {
    use std::{fs::File, io::Write, os::fd::OwnedFd};

    use super::*;

    fn refusal(lie: impl FnOnce(&UnixStream)) -> io::Error {
        let (ours, theirs) = UnixStream::pair().unwrap();
        lie(&theirs);
        drop(theirs);
        RingConsumer::open(ours, 1 << 16).unwrap_err().error
    }

    /// R1: what is opened is judged by what the kernel says of it, not by what the peer says.
    #[test]
    fn what_is_no_ring_is_refused() {
        let file = || OwnedFd::from(File::open("/dev/zero").unwrap());
        let cases: [(io::Error, io::ErrorKind, &str); 6] = [
            (refusal(|_| {}), io::ErrorKind::UnexpectedEof, "open a ring"),
            (
                refusal(|mut peer| peer.write_all(b"hello").unwrap()),
                io::ErrorKind::InvalidData,
                "something else",
            ),
            (
                refusal(|mut peer| peer.write_all(b"R").unwrap()),
                io::ErrorKind::InvalidData,
                "something else",
            ),
            (
                refusal(|peer| memory::send(peer, &file()).unwrap()),
                io::ErrorKind::InvalidData,
                "sealed",
            ),
            (
                refusal(|peer| memory::send(peer, &Map::create(1 << 20).unwrap().1).unwrap()),
                io::ErrorKind::InvalidData,
                "larger",
            ),
            (
                refusal(|peer| memory::send(peer, &Map::create(HEADER_ONLY).unwrap().1).unwrap()),
                io::ErrorKind::InvalidData,
                "too small",
            ),
        ];
        for (error, kind, words) in cases {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    const HEADER_ONLY: usize = records::HEADER + 1;

    /// R1: a peer that writes into the memory what can't be ends the ring, on either side, with an
    /// error.
    #[test]
    fn a_spoiled_ring_is_an_error() {
        use crate::sync::atomic::Ordering;
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut producer = RingProducer::create(ours, 64).unwrap();
        let consumer = RingConsumer::open(theirs, 64).unwrap();
        for word in producer.map.words() {
            word.store(u64::MAX / 3, Ordering::Relaxed);
        }
        let error = consumer.receive(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        let told = (0..3).find_map(|_| producer.send(&[1; 56]).err());
        assert_eq!(told.unwrap().kind(), io::ErrorKind::InvalidData);
    }
}
