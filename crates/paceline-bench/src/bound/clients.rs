//! The clients that are compared.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::TcpStream,
    sync::{
        atomic::{AtomicU32, Ordering},
        Arc, Mutex, PoisonError,
    },
    thread,
    time::Duration,
};

use crossbeam_channel::{bounded, Sender};
use paceline::bound::{Builder, Elect, Header, Protocol, Whose};

use super::{frames, monitor, tasks, with_threads, CallArgs, Counted, Seen};

/// What a client is in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Ours,
    /// What a program of threads would pick instead.
    Peer,
    /// Its callers are no threads: shown, and not compared with.
    Tasks,
}

/// A client by name.
pub(super) struct Client {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) role: Role,
    pub(super) run: fn(&CallArgs) -> io::Result<Seen>,
}

/// All of them.
pub(super) const CLIENTS: &[Client] = &[
    Client {
        name: "paceline",
        about:
            "one connection; a waiting thread reads for all, and the oldest sleeping one is next",
        role: Role::Ours,
        run: |args| by_mux(args, Builder::new()),
    },
    Client {
        name: "paceline-newest",
        about: "the same, and the newest is next",
        role: Role::Ours,
        run: |args| by_mux(args, Builder::new().elect(Elect::Newest)),
    },
    Client {
        name: "paceline-spin",
        about: "the same as paceline, and the reader polls for 50 us before it sleeps",
        role: Role::Ours,
        run: |args| by_mux(args, Builder::new().leader_spin(Duration::from_micros(50))),
    },
    Client {
        name: "connections",
        about: "a connection for each thread",
        role: Role::Peer,
        run: by_connections,
    },
    Client {
        name: "reader",
        about: "one connection; a thread of its own reads, and notifies the callers by channels",
        role: Role::Peer,
        run: by_reader,
    },
    Client {
        name: "monitor",
        about: "one connection by the paper: a mutex, and a condition for each caller",
        role: Role::Peer,
        run: monitor::run,
    },
    Client {
        name: "tokio-threads",
        about: "one connection by tokio; the callers are threads, and block on a channel",
        role: Role::Peer,
        run: tasks::by_threads,
    },
    Client {
        name: "tokio-tasks",
        about: "the same, but the callers are tasks: no thread waits",
        role: Role::Tasks,
        run: tasks::run,
    },
];

struct Framed;

impl Protocol for Framed {
    type Request = [u8];
    const ID_BITS: u32 = 32;

    fn encode(&self, request: &[u8], id: u64, out: &mut Vec<u8>) -> io::Result<()> {
        frames::append(out, id as u32, request);
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        Ok(frames::header(bytes).map(|(id, length)| Header {
            whose: Whose::Call(id.into()),
            skip: frames::HEADER,
            length,
        }))
    }
}

/// One connection, and a waiting thread reads for all.
fn by_mux(args: &CallArgs, builder: Builder) -> io::Result<Seen> {
    let within = Duration::from_secs(30);
    let mux = builder.connect(args.address, within, Framed)?;
    let caller = || {
        let mux = mux.clone();
        Ok(move |request: &[u8]| {
            let reply = mux.call(request, within)?;
            Ok(*reply == *request)
        })
    };
    let mut seen = with_threads(args, caller)?;
    let counted = mux.snapshot();
    seen.counted = Some(Counted {
        replies: counted.replies,
        wakes: counted.wakes,
        elections: counted.elections,
        handed_over: counted.data_handed_over,
        writes: counted.writes,
    });
    Ok(seen)
}

/// A connection for each thread, which reads its own replies.
fn by_connections(args: &CallArgs) -> io::Result<Seen> {
    with_threads(args, || {
        let mut stream = TcpStream::connect(args.address)?;
        stream.set_nodelay(true)?;
        let mut out = Vec::new();
        Ok(move |request: &[u8]| {
            out.clear();
            frames::append(&mut out, 1, request);
            stream.write_all(&out)?;
            stream.read_exact(&mut out)?;
            Ok(out[frames::HEADER..] == *request)
        })
    })
}

/// The waiting caller of each reply.
type Waiting = Arc<Mutex<HashMap<u32, Sender<Vec<u8>>>>>;

/// One connection, a thread that reads it, and a channel for each caller.
fn by_reader(args: &CallArgs) -> io::Result<Seen> {
    let stream = TcpStream::connect(args.address)?;
    stream.set_nodelay(true)?;
    let waiting = Waiting::default();
    let reading = (stream.try_clone()?, Arc::clone(&waiting));
    let reader = thread::spawn(move || read_for_all(reading.0, &reading.1));
    let (writing, ids) = (Arc::new(Mutex::new(stream)), Arc::new(AtomicU32::new(0)));
    let seen = with_threads(args, || {
        let (waiting, writing, ids) =
            (Arc::clone(&waiting), Arc::clone(&writing), Arc::clone(&ids));
        let (reply, replies) = bounded(1);
        let mut out = Vec::new();
        Ok(move |request: &[u8]| {
            let id = ids.fetch_add(1, Ordering::Relaxed);
            locked(&waiting).insert(id, reply.clone());
            out.clear();
            frames::append(&mut out, id, request);
            locked(&writing).write_all(&out)?;
            let reply = replies.recv().map_err(io::Error::other)?;
            Ok(reply == request)
        })
    });
    locked(&writing).shutdown(std::net::Shutdown::Both)?;
    let _ = reader.join();
    seen
}

fn read_for_all(mut stream: TcpStream, waiting: &Waiting) -> io::Result<()> {
    let (mut buffer, mut filled) = (vec![0; 64 * 1024], 0);
    loop {
        match stream.read(&mut buffer[filled..])? {
            0 => return Ok(()),
            count => filled += count,
        }
        let mut rest = &buffer[..filled];
        while let Some((id, body, after)) = frames::split(rest) {
            let caller = locked(waiting).remove(&id);
            if let Some(caller) = caller {
                let _ = caller.send(body.to_vec());
            }
            rest = after;
        }
        let used = filled - rest.len();
        buffer.copy_within(used..filled, 0);
        filled -= used;
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
