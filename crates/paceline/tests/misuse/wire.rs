//! Both ends of a connection: the pool's, which fails where the plan says so, and the client's,
//! which checks what comes.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Descriptor, RingProducer, Source,
};
use socket2::SockRef;

use crate::misuse::{
    ledger::{Bomb, Id, Life},
    ops::{HangUp, Near},
    process::{address_for, Peers},
};

/// The pool's end.
#[derive(Debug)]
pub(crate) struct Wire {
    inner: Inner,
    near: Near,
    reads: AtomicU32,
    /// Of a member of a group, whose end the group's handler sees.
    pub(crate) life: Option<Life>,
    _bomb: Bomb,
}

#[derive(Debug)]
enum Inner {
    Tcp(TcpStream),
    Unix(UnixStream),
    Simulated(SimStream),
}

impl Wire {
    /// A new connection, whose far end is not blocking.
    pub(crate) fn pair(
        near: Near,
        life: Option<Life>,
        world: Option<&Simulation>,
    ) -> io::Result<(Self, Far)> {
        let (inner, far) = match world {
            Some(world) => simulated_pair(world),
            None if near.tcp => tcp_pair(near)?,
            None => unix_pair(near)?,
        };
        let wire = Self {
            inner,
            near,
            reads: AtomicU32::new(0),
            life,
            _bomb: Bomb(near.drop_panics),
        };
        Ok((wire, far))
    }
}

fn simulated_pair(world: &Simulation) -> (Inner, Far) {
    let (near, far) = world.stream();
    (Inner::Simulated(near), Far::Simulated(far))
}

fn tcp_pair(settings: Near) -> io::Result<(Inner, Far)> {
    let listener = TcpListener::bind(address_for(Peers::One))?;
    let far = TcpStream::connect(listener.local_addr()?)?;
    let (near, _) = listener.accept()?;
    near.set_nodelay(true)?;
    set(&near, settings)?;
    Ok((Inner::Tcp(near), Far::tcp(far)?))
}

fn unix_pair(settings: Near) -> io::Result<(Inner, Far)> {
    let (near, far) = UnixStream::pair()?;
    set(&near, settings)?;
    far.set_nonblocking(true)?;
    Ok((Inner::Unix(near), Far::Unix(far)))
}

fn set(socket: &impl AsFd, near: Near) -> io::Result<()> {
    let socket = SockRef::from(socket);
    if near.narrow {
        socket.set_send_buffer_size(4096)?;
    }
    if near.lingers {
        socket.set_linger(Some(Duration::from_secs(60)))?;
    }
    Ok(())
}

impl Source for Wire {
    fn descriptor(&self) -> Descriptor<'_> {
        match &self.inner {
            Inner::Tcp(stream) => stream.descriptor(),
            Inner::Unix(stream) => stream.descriptor(),
            Inner::Simulated(stream) => stream.descriptor(),
        }
    }
}

impl Read for &Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        if self.near.panics_at == Some(number) {
            panic!("misuse: in a source");
        }
        if self.near.fails_at == Some(number) {
            return Err(io::Error::other("misuse: a source fails"));
        }
        match &self.inner {
            Inner::Tcp(stream) => (&*stream).read(buffer),
            Inner::Unix(stream) => (&*stream).read(buffer),
            Inner::Simulated(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.inner {
            Inner::Tcp(stream) => (&*stream).write(bytes),
            Inner::Unix(stream) => (&*stream).write(bytes),
            Inner::Simulated(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The far end.
#[derive(Debug)]
pub(crate) enum Far {
    Tcp(TcpStream),
    Unix(UnixStream),
    Udp(UdpSocket),
    Ring(RingProducer),
    Simulated(SimPeer),
    /// The client has hung up.
    None,
}

impl Far {
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self::Tcp(stream))
    }
}

/// Bytes that are no echo: from a flood, or a greeting.
pub(crate) const NO_ECHO: u8 = 255;

/// The byte of an echo with this number.
fn pattern(number: u64) -> u8 {
    (number % 251) as u8
}

/// What is in a slot.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) far: Far,
    /// The value behind it; of an accepted connection it is known later.
    pub(crate) life: Option<Id>,
    /// Its own port and that of the listener: clients of two listeners may share the first one.
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) sent: u64,
    pub(crate) got: u64,
    /// It sends no more.
    pub(crate) is_half: bool,
    /// The pool's end is gone.
    pub(crate) saw_end: bool,
    pub(crate) is_probed: bool,
    pub(crate) is_datagrams: bool,
    /// When it came into its slot, if the pool's end has SO_LINGER: close(2) waits for this client.
    pub(crate) is_awaited_since: Option<Instant>,
}

/// A client for which close(2) waits reads after so long, also while the actors run: until then a
/// thread of the application may be blocked, and an actor that waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// The ports of a connection: the client's, and the listener's.
pub(crate) fn ports(
    client: io::Result<SocketAddr>,
    listener: io::Result<SocketAddr>,
) -> Option<(u16, u16)> {
    Some((client.ok()?.port(), listener.ok()?.port()))
}

impl Client {
    pub(crate) fn new(far: Far, life: Option<Id>) -> Self {
        let ports = match &far {
            Far::Tcp(stream) => ports(stream.local_addr(), stream.peer_addr()),
            _ => None,
        };
        Self {
            is_datagrams: matches!(far, Far::Udp(_)),
            far,
            life,
            ports,
            sent: 0,
            got: 0,
            is_half: false,
            saw_end: false,
            is_probed: false,
            is_awaited_since: None,
        }
    }

    /// The pool's end of it has SO_LINGER, or has not.
    pub(crate) fn awaited(mut self, lingers: bool) -> Self {
        self.is_awaited_since = lingers.then(Instant::now);
        self
    }

    /// Whether close(2) may wait for this client, and has waited for so long.
    pub(crate) fn owes_a_read(&self, patience: Duration) -> bool {
        let is_due = |since: Instant| since.elapsed() >= patience;
        !self.saw_end && self.is_awaited_since.is_some_and(is_due)
    }

    /// Sends at most so many bytes, as many as the socket takes.
    pub(crate) fn send(&mut self, bytes: usize) {
        if self.is_half {
            return;
        }
        let first = self.sent;
        let bytes: Vec<u8> = (0..bytes as u64).map(|n| pattern(first + n)).collect();
        let sent = match &mut self.far {
            Far::Tcp(stream) => stream.write(&bytes),
            Far::Unix(stream) => stream.write(&bytes),
            Far::Udp(socket) => socket.send(&bytes[..1.min(bytes.len())]),
            Far::Simulated(peer) => {
                peer.send(&bytes);
                Ok(bytes.len())
            }
            Far::Ring(_) | Far::None => return,
        };
        match sent {
            Ok(count) => self.sent += count as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.saw_end = true,
        }
    }

    pub(crate) fn record(&mut self, records: u32) {
        if let Far::Ring(producer) = &mut self.far {
            for _ in 0..records {
                match producer.send(&self.sent.to_be_bytes()) {
                    Ok(()) => self.sent += 1,
                    Err(_) => break,
                }
            }
        }
    }

    /// Reads what has come. What is wrong with it.
    pub(crate) fn receive(&mut self) -> Result<(), String> {
        let mut buffer = [0; 4096];
        for _ in 0..1000 {
            let outcome = match &mut self.far {
                Far::Tcp(stream) => stream.read(&mut buffer),
                Far::Unix(stream) => stream.read(&mut buffer),
                Far::Udp(socket) => socket.recv(&mut buffer),
                Far::Simulated(_) => return self.take(),
                Far::Ring(_) | Far::None => return Ok(()),
            };
            match outcome {
                Ok(0) => self.saw_end = true,
                Ok(count) => {
                    self.check(&buffer[..count])?;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.saw_end = true,
            }
            break;
        }
        Ok(())
    }

    /// Takes what the pool has sent to a simulated peer.
    fn take(&mut self) -> Result<(), String> {
        let Far::Simulated(peer) = &self.far else {
            return Ok(());
        };
        let is_over = peer.is_closed_by_pool();
        let bytes = peer.received();
        self.saw_end |= is_over;
        self.check(&bytes)
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), String> {
        if matches!(self.far, Far::Udp(_)) {
            self.got += 1;
            return Ok(());
        }
        for byte in bytes.iter().filter(|byte| **byte != NO_ECHO) {
            let (number, wanted) = (self.got, pattern(self.got));
            if number >= self.sent || *byte != wanted {
                let sent = self.sent;
                return Err(format!(
                    "H1: byte {number} of {sent} is {byte}, not {wanted}"
                ));
            }
            self.got += 1;
        }
        Ok(())
    }

    pub(crate) fn hang_up(&mut self, how: HangUp) {
        match (how, &self.far) {
            (HangUp::HalfClose, Far::Tcp(stream)) => drop(stream.shutdown(Shutdown::Write)),
            (HangUp::HalfClose, Far::Unix(stream)) => drop(stream.shutdown(Shutdown::Write)),
            (HangUp::Reset, Far::Tcp(stream)) => {
                let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
                self.far = Far::None;
            }
            (HangUp::Reset, Far::Simulated(peer)) => peer.reset(),
            (_, Far::Simulated(peer)) => peer.finish(),
            _ => self.far = Far::None,
        }
        self.is_half = true;
    }
}

/// A simulated peer that is dropped says nothing by itself.
impl Drop for Client {
    fn drop(&mut self) {
        if let Far::Simulated(peer) = &self.far {
            peer.reset();
        }
    }
}
