//! A way between two tiers that can be cut: a TCP proxy of this process.
//!
//! ```text
//!   Open    bytes pass
//!   Held    no byte passes, and no connection is made: a partition, as both ends see it
//!   Slow    each piece is delayed
//! ```
//!
//! Besides, all its connections can be reset: both ends get RST.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
    },
    thread,
    time::Duration,
};

use rustix::net::sockopt;

/// How many bytes are passed on at once.
const PIECE: usize = 16 << 10;

/// How long a peer may take nothing before its connection is given up.
const LONGEST_WRITE: Duration = Duration::from_secs(60);

/// What happens to bytes on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Open,
    Held,
    Slow(Duration),
}

/// A way to a port.
#[derive(Debug)]
pub(super) struct Link {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: u16,
    way: Mutex<Way>,
    /// The way has changed, or connections were reset.
    changed: Condvar,
    open: Mutex<Vec<Arc<Pair>>>,
    is_over: AtomicBool,
}

/// A connection: both of its sockets. The last thread that drops it closes them.
#[derive(Debug)]
struct Pair {
    near: TcpStream,
    far: TcpStream,
    is_reset: AtomicBool,
}

impl Link {
    /// A way to this port of this computer.
    pub(super) fn to(target: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            target,
            way: Mutex::new(Way::Open),
            changed: Condvar::new(),
            open: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Ok(Self { port, shared })
    }

    /// Where connections to the target enter.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Changes what happens to bytes.
    pub(super) fn set(&self, way: Way) {
        *locked(&self.shared.way) = way;
        self.shared.changed.notify_all();
    }

    /// Resets all connections. How many there were.
    pub(super) fn reset(&self) -> usize {
        let pairs = std::mem::take(&mut *locked(&self.shared.open));
        // The lock: no thread is between its test and its wait.
        let way = locked(&self.shared.way);
        pairs.iter().for_each(|pair| pair.reset());
        drop(way);
        self.shared.changed.notify_all();
        pairs.len()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.set(Way::Open);
        self.reset();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for near in listener.incoming() {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let shared = Arc::clone(self);
            let Ok(near) = near else { continue };
            thread::spawn(move || shared.serve(near));
        }
    }

    /// Connects to the target. If that refuses, the near end is closed.
    fn serve(self: &Arc<Self>, near: TcpStream) {
        let _: Passage = self.pass(|| false);
        let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target)) else {
            return;
        };
        for stream in [&near, &far] {
            // Without these the connection works too.
            let _ = stream.set_nodelay(true);
            let _ = stream.set_write_timeout(Some(LONGEST_WRITE));
        }
        let pair = Arc::new(Pair {
            near,
            far,
            is_reset: AtomicBool::new(false),
        });
        locked(&self.open).push(Arc::clone(&pair));
        let (back, shared) = (Arc::clone(&pair), Arc::clone(self));
        thread::spawn(move || shared.pump(&back, &back.far, &back.near));
        self.pump(&pair, &pair.near, &pair.far);
    }

    /// Passes bytes on in one direction, until the end or a reset.
    fn pump(&self, pair: &Arc<Pair>, mut from: &TcpStream, mut to: &TcpStream) {
        let mut piece = vec![0; PIECE];
        loop {
            let count = match from.read(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(count) => count,
            };
            let passage = self.pass(|| pair.is_reset());
            if passage == Passage::Cut || to.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        locked(&self.open).retain(|open| !Arc::ptr_eq(open, pair));
        if !pair.is_reset() {
            // The other direction may go on. A peer that is gone needs no end.
            let _ = to.shutdown(Shutdown::Write);
        }
    }

    /// Waits until bytes may pass.
    fn pass(&self, is_cut: impl Fn() -> bool) -> Passage {
        let mut way = locked(&self.way);
        loop {
            if is_cut() {
                return Passage::Cut;
            }
            match *way {
                Way::Open => return Passage::Free,
                Way::Slow(delay) => {
                    drop(way);
                    thread::sleep(delay);
                    return Passage::Free;
                }
                Way::Held => {
                    let waited = self.changed.wait(way);
                    way = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// Whether bytes may pass.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    Free,
    Cut,
}

impl Pair {
    fn is_reset(&self) -> bool {
        self.is_reset.load(Ordering::Relaxed)
    }

    /// Makes the close of both sockets a reset, and ends the reads of both threads: they drop the
    /// pair, and so close the sockets.
    fn reset(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
        for stream in [&self.near, &self.far] {
            // A connection that has ended needs no reset.
            let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
            let _ = stream.shutdown(Shutdown::Read);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of a connection over a link.
    fn ends() -> (Link, TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let link = Link::to(listener.local_addr().expect("its address").port()).expect("a link");
        let near = TcpStream::connect((Ipv4Addr::LOCALHOST, link.port())).expect("a connection");
        let (far, _) = listener.accept().expect("its other end");
        for stream in [&near, &far] {
            let limit = Some(Duration::from_secs(60));
            stream.set_read_timeout(limit).expect("a limit");
        }
        (link, near, far)
    }

    fn receive(stream: &mut TcpStream) -> io::Result<u8> {
        let mut byte = [0];
        stream.read_exact(&mut byte).map(|()| byte[0])
    }

    #[test]
    fn bytes_pass_in_both_directions_and_so_does_the_end() {
        let (link, mut near, mut far) = ends();
        near.write_all(b"1").expect("room");
        assert_eq!(receive(&mut far).expect("a byte"), b'1');
        link.set(Way::Slow(Duration::from_millis(1)));
        far.write_all(b"2").expect("room");
        assert_eq!(receive(&mut near).expect("a byte"), b'2');
        drop(near);
        assert_eq!(far.read(&mut [0]).expect("an end"), 0);
    }

    /// A partition that lets bytes through is none.
    #[test]
    fn a_held_link_passes_nothing_and_loses_nothing() {
        let (link, mut near, mut far) = ends();
        link.set(Way::Held);
        near.write_all(b"1").expect("room");
        far.set_read_timeout(Some(Duration::from_millis(100)))
            .expect("a limit");
        let nothing = receive(&mut far).expect_err("no byte passes");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        far.set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a limit");
        link.set(Way::Open);
        assert_eq!(receive(&mut far).expect("the byte"), b'1');
    }

    #[test]
    fn a_reset_reaches_both_ends_also_of_a_held_link() {
        let (link, mut near, mut far) = ends();
        link.set(Way::Held);
        near.write_all(b"1").expect("room");
        // The link may still note that the connection is there.
        while link.reset() == 0 {
            thread::yield_now();
        }
        for end in [&mut near, &mut far] {
            let error = receive(end).expect_err("a reset");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
    }
}
