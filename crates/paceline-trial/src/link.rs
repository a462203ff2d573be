//! A connection between the front-end and its server that breaks at will.
//!
//! One thread passes bytes between each accepted connection and one to the server. It reads from
//! one side only when the other side has taken everything, so that it adds no buffer that matters.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::mpsc::{self, Receiver, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::event::{poll, PollFd, PollFlags};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::back::Place;

/// How much is read at once.
const PIECE: usize = 64 << 10;

/// A connection between the front-end and its server that breaks at will.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    orders: Sender<(Order, Sender<()>)>,
    wake: UnixStream,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// What the thread is asked to do.
#[derive(Debug)]
enum Order {
    /// New connections are to this server.
    Lead(Place),
    /// Resets all connections, on both sides.
    Reset,
    /// Resets all connections, and refuses new ones.
    Refuse,
    /// Accepts connections again.
    Accept,
    /// Ends.
    End,
}

impl Link {
    /// A link to this server, on a port that the system chooses.
    ///
    /// # Errors
    /// If there is no port.
    pub fn to(place: Place) -> io::Result<Self> {
        let reserved = reserve(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let unknown = || io::Error::other("a TCP socket without an address");
        let address = reserved.local_addr()?.as_socket().ok_or_else(unknown)?;
        let (wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let (orders, received) = mpsc::channel();
        let relay = Relay {
            place,
            listener: Some(listen(address)?),
            _reserved: reserved,
            address,
            woken,
            orders: received,
            pairs: Vec::new(),
        };
        Ok(Self {
            address,
            orders,
            wake,
            thread: Some(thread::spawn(move || relay.run())),
        })
    }

    /// Where the front-end connects.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// New connections are to this server.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn lead_to(&self, place: Place) -> io::Result<()> {
        self.order(Order::Lead(place))
    }

    /// Resets all connections, on both sides.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn reset(&self) -> io::Result<()> {
        self.order(Order::Reset)
    }

    /// Resets all connections, and refuses new ones.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn refuse(&self) -> io::Result<()> {
        self.order(Order::Refuse)
    }

    /// Accepts connections again.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn accept(&self) -> io::Result<()> {
        self.order(Order::Accept)
    }

    /// Gives an order, and waits until it is carried out.
    fn order(&self, order: Order) -> io::Result<()> {
        let ended = || io::Error::other("the link has ended");
        let (sender, done) = mpsc::channel();
        self.orders.send((order, sender)).map_err(|_| ended())?;
        (&self.wake).write_all(b"!")?;
        done.recv().map_err(|_| ended())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // It has ended already, if that fails.
        let _ = self.order(Order::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket that has the port and does not listen: the kernel refuses connections there, and gives
/// the port to no other program.
fn reserve(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<Socket> {
    let socket = reserve(address)?;
    socket.listen(128)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The thread of a link.
struct Relay {
    place: Place,
    listener: Option<Socket>,
    _reserved: Socket,
    address: SocketAddr,
    woken: UnixStream,
    orders: Receiver<(Order, Sender<()>)>,
    pairs: Vec<Pair>,
}

/// Whether a thread or a pair of connections continues.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    GoesOn,
    Ends,
}

impl Relay {
    fn run(mut self) -> io::Result<()> {
        loop {
            self.wait()?;
            self.pairs.retain_mut(|pair| pair.pass() == Next::GoesOn);
            self.accept_all();
            if self.obey()? == Next::Ends {
                return Ok(());
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&self) -> io::Result<()> {
        let mut waits = vec![PollFd::new(&self.woken, PollFlags::IN)];
        let listener = self.listener.iter();
        waits.extend(listener.map(|it| PollFd::new(it, PollFlags::IN)));
        waits.extend(self.pairs.iter().flat_map(Pair::waits));
        match poll(&mut waits, None) {
            Err(rustix::io::Errno::INTR) | Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn accept_all(&mut self) {
        while let Some(Ok((client, _))) = self.listener.as_ref().map(Socket::accept) {
            // Without a server, the connection is reset.
            let pair = connect(&self.place).and_then(|server| Pair::new(client, server));
            self.pairs.extend(pair);
        }
    }

    /// Carries out the orders that have come.
    fn obey(&mut self) -> io::Result<Next> {
        // More bytes than that wake the thread again.
        let _ = self.woken.read(&mut [0; 16]);
        while let Ok((order, done)) = self.orders.try_recv() {
            match order {
                Order::Lead(place) => self.place = place,
                Order::Reset => self.reset_all(),
                Order::Refuse => {
                    self.listener = None;
                    self.reset_all();
                }
                Order::Accept => self.listener = Some(listen(self.address)?),
                Order::End => return Ok(Next::Ends),
            }
            // The other side has given up waiting, if that fails.
            let _ = done.send(());
        }
        Ok(Next::GoesOn)
    }

    fn reset_all(&mut self) {
        self.pairs.drain(..).for_each(Pair::reset);
    }
}

fn connect(place: &Place) -> io::Result<Socket> {
    let (domain, address) = match place {
        Place::Tcp(address) => (Domain::IPV4, SockAddr::from(*address)),
        Place::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
    };
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.connect(&address)?;
    Ok(socket)
}

/// Two connections, and what each of them is yet to take.
struct Pair {
    client: Side,
    server: Side,
}

/// A connection, and what it is yet to take.
struct Side {
    socket: Socket,
    due: Vec<u8>,
}

impl Pair {
    /// On an error, the client's connection is reset.
    fn new(client: Socket, server: Socket) -> io::Result<Self> {
        for socket in [&client, &server] {
            socket.set_nonblocking(true)?;
        }
        client.set_tcp_nodelay(true)?;
        Ok(Self {
            client: Side::new(client),
            server: Side::new(server),
        })
    }

    fn waits(&self) -> [PollFd<'_>; 2] {
        let wait = |this: &Side, other: &Side| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::OUT, !this.due.is_empty());
            flags.set(PollFlags::IN, other.due.is_empty());
            flags
        };
        let of_client = wait(&self.client, &self.server);
        let of_server = wait(&self.server, &self.client);
        [
            PollFd::from_borrowed_fd(self.client.socket.as_fd(), of_client),
            PollFd::from_borrowed_fd(self.server.socket.as_fd(), of_server),
        ]
    }

    /// Passes what has come. After the end of one side, the other one ends in the same way.
    fn pass(&mut self) -> Next {
        let passed = pass(&mut self.client, &mut self.server)
            .and_then(|()| pass(&mut self.server, &mut self.client));
        match passed {
            Ok(()) => Next::GoesOn,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Next::Ends,
            Err(_) => {
                self.set_to_reset();
                Next::Ends
            }
        }
    }

    fn set_to_reset(&self) {
        for side in [&self.client, &self.server] {
            // A Unix socket has no such option: its peer sees the end.
            let _ = side.socket.set_linger(Some(Duration::ZERO));
        }
    }

    fn reset(self) {
        self.set_to_reset();
    }
}

impl Side {
    fn new(socket: Socket) -> Self {
        Self {
            socket,
            due: Vec::new(),
        }
    }

    /// Sends as much as the socket takes of what is due.
    fn send(&mut self) -> io::Result<()> {
        while !self.due.is_empty() {
            match self.socket.write(&self.due) {
                Ok(count) => drop(self.due.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Passes bytes on until there are none, or the other side takes no more.
fn pass(from: &mut Side, to: &mut Side) -> io::Result<()> {
    to.send()?;
    let mut piece = [0; PIECE];
    while to.due.is_empty() {
        match from.socket.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => to.due.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        to.send()?;
    }
    Ok(())
}
