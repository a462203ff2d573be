//! Opening connections: many at once, none for ever, and again and again where each serves one request.
//!
//! A connection that this side closes keeps its pair of addresses for a minute (TIME_WAIT). The system has some
//! 28,000 ports for one address, and looks longer for a free one the fewer there are. So where connections are many
//! or short-lived, and the server is on this machine, the client names its own end itself, from 249 addresses:
//!
//! ```text
//!  127.0.0.2:32768, 127.0.0.3:32768, ... 127.0.0.250:32768, 127.0.0.2:32769, ...      7 million of them
//! ```
//!
//! It begins at a place that moves with the time, faster than any run uses them up: a run does not meet what the
//! run before left. Connections are closed in the ordinary way (no reset), by the client, after the reply.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
};

use rustix::{
    event::{poll, PollFd, PollFlags},
    fd::{BorrowedFd, OwnedFd},
    io::Errno,
    net::{bind, connect, ipproto, socket_with, sockopt, AddressFamily, SocketFlags, SocketType},
    time::{clock_gettime, ClockId, Timespec},
};

use super::clock::{nanos, seconds, Clock, Nanos};

/// More connections than this, and the client names its ends itself.
const FROM_ONE_ADDRESS: usize = 20_000;

/// So many connections are under way at the same time: fewer than any server's backlog.
const BATCH: usize = 64;

/// How many seconds the client waits until `count` connections stand, or are answered for the first time: a server
/// with a thread for each needs a while to start them.
pub(super) fn patience(count: usize) -> f64 {
    10.0 + count as f64 / 1000.0
}

/// How many ends in a row may be taken already.
const TRIES: usize = 64;

/// Opens connections to one server.
#[derive(Debug)]
pub(super) struct Opener {
    /// The server.
    address: SocketAddr,
    /// The client's ends; the system picks them if there are none.
    ends: Option<Ends>,
    /// Whether a write leaves at once, though another was not acknowledged yet.
    at_once: bool,
}

impl Opener {
    /// For `count` connections that stay.
    pub(super) fn lasting(address: SocketAddr, count: usize) -> Self {
        Self {
            address,
            ends: Ends::towards(address).filter(|_| count > FROM_ONE_ADDRESS),
            at_once: true,
        }
    }

    /// For connections of one request each.
    pub(super) fn passing(address: SocketAddr) -> Self {
        Self {
            address,
            ends: Ends::towards(address),
            at_once: false,
        }
    }

    /// Opens `count` connections, some at a time, and waits until they stand.
    ///
    /// # Errors
    /// What the system said, or that it took longer than [`patience`] allows.
    pub(super) fn open_all(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let (clock, patience) = (Clock::start(), patience(count));
        let mut sockets = Vec::with_capacity(count);
        while sockets.len() < count {
            let begun = sockets.len();
            for _ in begun..count.min(begun + BATCH) {
                sockets.push(self.begin()?);
            }
            for socket in &sockets[begun..] {
                stands(socket, &clock, patience)
                    .map_err(|error| self.failed(error, begun, count))?;
            }
        }
        Ok(sockets)
    }

    /// Begins to connect, and does not wait for it. What is sent before it is established is refused with `EAGAIN`.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn begin(&mut self) -> io::Result<OwnedFd> {
        for _ in 0..TRIES {
            match self.attempt() {
                Err(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL) if self.ends.is_some() => {}
                other => return other.map_err(|error| self.failed(error.into(), 0, 1)),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!(
                "the last {TRIES} addresses tried for a connection to {} are all taken",
                self.address
            ),
        ))
    }

    /// One socket that connects, from the next end.
    fn attempt(&mut self) -> rustix::io::Result<OwnedFd> {
        let socket = socket_with(
            if self.address.is_ipv4() {
                AddressFamily::INET
            } else {
                AddressFamily::INET6
            },
            SocketType::STREAM,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            Some(ipproto::TCP),
        )?;
        if self.at_once {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        if let Some(ends) = &mut self.ends {
            sockopt::set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &ends.next())?;
        }
        match connect(&socket, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
            Err(error) => Err(error),
        }
    }

    /// Says what could not be done.
    fn failed(&self, error: io::Error, stand: usize, count: usize) -> io::Error {
        let text = format!(
            "connecting to {} ({stand} of {count} stand): {error}",
            self.address
        );
        io::Error::new(error.kind(), text)
    }
}

/// Waits until `socket` is connected, until so many seconds are over on `clock`.
fn stands(socket: &OwnedFd, clock: &Clock, patience: f64) -> io::Result<()> {
    loop {
        let left = nanos(patience).saturating_sub(clock.now());
        let mut polled = [PollFd::new(socket, PollFlags::OUT)];
        match poll(&mut polled, Some(&timespec(left))) {
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no answer within {patience} s"),
                ))
            }
            Ok(_) => return Ok(sockopt::socket_error(socket)??),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A length of time for a system call.
fn timespec(length: Nanos) -> Timespec {
    let whole = seconds(length).floor();
    Timespec {
        tv_sec: whole as i64,
        tv_nsec: (length - nanos(whole)) as i64,
    }
}

/// Makes the client's end of a connection take in little, so that a reader that is slow holds up its writer soon.
pub(super) fn take_in_little(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(socket, 4096)?)
}

/// The client's ends, one after the other.
#[derive(Debug)]
struct Ends {
    /// The place of the next one.
    place: u64,
}

impl Ends {
    /// How many addresses there are, from 127.0.0.2.
    const HOSTS: u64 = 249;
    /// The first port: those that the system gives out, too.
    const FIRST_PORT: u64 = 32_768;
    /// How many ports are used.
    const PORTS: u64 = 28_000;

    /// Ends for a server at `address`, if that is of this machine.
    fn towards(address: SocketAddr) -> Option<Self> {
        let local = matches!(address.ip(), IpAddr::V4(host) if host.is_loopback());
        let time = clock_gettime(ClockId::Monotonic);
        // 100,000 places a second.
        let place = time.tv_sec as u64 * 100_000 + time.tv_nsec as u64 / 10_000;
        local.then_some(Self { place })
    }

    /// The next one.
    fn next(&mut self) -> SocketAddrV4 {
        let host = self.place % Self::HOSTS;
        let port = self.place / Self::HOSTS % Self::PORTS;
        self.place += 1;
        let host = Ipv4Addr::new(127, 0, 0, 2 + host as u8);
        SocketAddrV4::new(host, (Self::FIRST_PORT + port) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashSet, net::TcpListener};

    #[test]
    fn ends_are_all_different_until_they_begin_again() {
        let mut ends = Ends { place: 7 };
        let count = 100_000;
        let seen: HashSet<_> = (0..count).map(|_| ends.next()).collect();
        assert_eq!(seen.len(), count);
        assert!(seen.iter().all(|end| end.ip().octets()[3] >= 2));
    }

    #[test]
    fn only_a_server_on_this_machine_is_met_from_many_addresses() {
        let towards = |address: &str| Ends::towards(address.parse().unwrap());
        assert!(towards("127.0.0.1:80").is_some());
        assert!(towards("192.0.2.1:80").is_none());
        assert!(towards("[::1]:80").is_none());
    }

    #[test]
    fn many_connections_stand() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        for mut opener in [Opener::lasting(address, 100), Opener::passing(address)] {
            // Fewer than wait to be accepted at the same time.
            assert_eq!(opener.open_all(100).unwrap().len(), 100);
            while listener.accept().is_ok() {}
        }
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let error = Opener::lasting(address, 1).open_all(1).unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
