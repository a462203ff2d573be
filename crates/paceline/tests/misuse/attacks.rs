//! Operations that broke the library once, as words of the generator: signals that come at once, a
//! peer that sends too many descriptors, ends that end others.

use std::{
    io::{self, BufRead, BufReader, IoSlice, Write},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    os::{fd::AsRawFd, unix::net::UnixStream},
    process::{self, Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use paceline::{Closed, Context, EventHandler, Handle, Interest, Next, RingConsumer};
use socket2::{MsgHdr, SockRef};

use crate::misuse::{
    actor::put,
    ledger::{Kind, Life},
    process::{address_for, Peers},
    wire::{Client, Far, NO_ECHO},
    world::World,
};

/// A process that sends signals to this one.
struct Sender {
    /// It ends with its input, at the end of this process.
    _process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// It is started before the first round. A child has a copy of every descriptor until it executes
/// its program, which closes the copies: if the pool and its peer close a connection with SO_LINGER
/// meanwhile, the last close of it is that of the child, and waits for a peer that is a copy, too.
static SENDER: OnceLock<Mutex<Sender>> = OnceLock::new();

/// Starts the process that sends signals.
pub(crate) fn start_sender() {
    let shell = Command::new("sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut shell = shell.expect("there is a shell");
    let sender = Sender {
        requests: shell.stdin.take().unwrap(),
        answers: BufReader::new(shell.stdout.take().unwrap()),
        _process: shell,
    };
    assert!(SENDER.set(Mutex::new(sender)).is_ok(), "started twice");
}

/// Another process sends three signals again and again, so that several wait for one thread.
pub(crate) fn signals_at_once(times: u32) -> io::Result<()> {
    let one = format!("kill -28 {0}; kill -18 {0}; kill -17 {0};", process::id());
    let mut sender = SENDER.get().unwrap().lock().unwrap();
    writeln!(sender.requests, "{} echo", one.repeat(times as usize))?;
    sender.answers.read_line(&mut String::new()).map(drop)
}

/// The peer of a ring sends two descriptors where one is expected.
pub(crate) fn bad_ring() -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(Duration::from_secs(1)))?;
    let number = theirs.as_raw_fd();
    let control = two_descriptors(number);
    let bytes = [IoSlice::new(b"R")];
    let message = MsgHdr::new().with_buffers(&bytes).with_control(&control);
    SockRef::from(&theirs).sendmsg(&message, 0)?;
    match RingConsumer::open(ours, 4096) {
        Ok(_) => Err(io::Error::other("it was taken for a ring")),
        Err(rejected) => Err(rejected.error),
    }
}

/// The control part of a message that carries a descriptor twice (SCM_RIGHTS of SOL_SOCKET, as
/// Linux lays it out).
fn two_descriptors(number: i32) -> Vec<u8> {
    let length = size_of::<usize>() + 4 * size_of::<i32>();
    let mut bytes = length.to_ne_bytes().to_vec();
    for word in [1_i32, 1, number, number] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// A connection whose socket waits for its peer when it is closed, full of output that the peer
/// does not read; its handler fills it, and ends it: at once, or when more input comes, so that the
/// end of the pool may find it full.
pub(crate) fn linger(world: &Arc<World>, slot: usize, at: usize) -> io::Result<()> {
    let Some(pool) = world.pool(at) else {
        return Ok(());
    };
    let listener = TcpListener::bind(address_for(Peers::One))?;
    let mut far = TcpStream::connect(listener.local_addr()?)?;
    let (near, _) = listener.accept()?;
    SockRef::from(&near).set_linger(Some(Duration::from_secs(60)))?;
    far.write_all(b"x")?;
    let ledger = &world.ledger;
    let filler = Filler {
        life: ledger.begin(Kind::Handler, "a handler that fills its socket"),
        stays: slot % 2 == 1,
    };
    let (id, stays) = (filler.life.id, filler.stays);
    world.ledger.accept(id);
    match pool.register(near, Interest::READ, filler) {
        Ok(handle) => world.ledger.set_handle(id, handle),
        Err(rejected) => {
            world.ledger.refuse(id);
            return Err(rejected.error);
        }
    }
    let mut client = Client::new(Far::tcp(far)?, Some(id)).awaited(true);
    client.is_half = !stays;
    put(world, slot, client);
    Ok(())
}

struct Filler {
    life: Life,
    /// It does not end after its first call, if no more than the first byte has come.
    stays: bool,
}

impl EventHandler<TcpStream> for Filler {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let count = cx.read(&mut [0; 16])?;
        let bytes = [NO_ECHO; 1 << 16];
        while cx.try_write(|mut stream| stream.write(&bytes)).is_ok() {}
        if std::mem::take(&mut self.stays) && count == 1 {
            return Ok(Next::Continue);
        }
        Ok(Next::Close)
    }

    fn moved(&mut self, handle: &Handle) {
        self.life.ledger().set_handle(self.life.id, handle.clone());
    }

    fn closed(&mut self, _: Closed) {
        self.life.closed();
    }
}

/// Registers handlers each of which closes the next one in its own `closed`, and closes the first
/// one.
pub(crate) fn chain(world: &Arc<World>, at: usize, links: usize) -> io::Result<()> {
    let Some(pool) = world.pool(at) else {
        return Ok(());
    };
    let handles = Arc::new(Mutex::new(Vec::new()));
    for number in 0..links {
        let link = Link {
            life: world.ledger.begin(Kind::Handler, "a link of a chain"),
            handles: Arc::clone(&handles),
            next: number + 1,
        };
        let id = link.life.id;
        world.ledger.accept(id);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        match pool.register(socket, Interest::NONE, link) {
            Ok(handle) => handles.lock().unwrap().push(handle),
            Err(rejected) => {
                world.ledger.refuse(id);
                return Err(rejected.error);
            }
        }
    }
    let first = handles.lock().unwrap().first().cloned();
    first.map_or(Ok(()), |first| first.close())
}

struct Link {
    life: Life,
    handles: Arc<Mutex<Vec<Handle>>>,
    next: usize,
}

impl EventHandler<UdpSocket> for Link {
    fn ready(&mut self, _: &mut Context<'_, UdpSocket>) -> io::Result<Next> {
        Ok(Next::Continue)
    }

    fn closed(&mut self, _: Closed) {
        self.life.closed();
        let next = self.handles.lock().unwrap().get(self.next).cloned();
        drop(next.map(|next| next.close()));
    }
}
