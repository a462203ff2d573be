//! The client that most people would write today: a connection with a task that reads and one that writes. Its callers are
//! tasks too, or threads that block.

use std::{
    collections::HashMap,
    io,
    sync::{
        atomic::{AtomicU32, Ordering},
        Arc, Mutex,
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        tcp::{OwnedReadHalf, OwnedWriteHalf},
        TcpStream,
    },
    runtime::{Builder, Runtime},
    sync::{mpsc, oneshot},
};

use super::{clients::locked, frames, with_threads, CallArgs, Seen, Stretch};

/// The waiting caller of each reply.
type Waiting = Arc<Mutex<HashMap<u32, oneshot::Sender<Vec<u8>>>>>;

/// A request with its id.
type Request = (u32, Vec<u8>);

/// A connection with its two tasks; clones share it.
#[derive(Clone)]
struct Connection {
    waiting: Waiting,
    requests: mpsc::Sender<Request>,
    ids: Arc<AtomicU32>,
}

impl Connection {
    fn new(runtime: &Runtime, args: &CallArgs) -> io::Result<Self> {
        let stream = runtime.block_on(TcpStream::connect(args.address))?;
        stream.set_nodelay(true)?;
        let (reading, writing) = stream.into_split();
        let waiting = Waiting::default();
        let (requests, to_write) = mpsc::channel(1024);
        runtime.spawn(read_for_all(reading, Arc::clone(&waiting)));
        runtime.spawn(write_for_all(writing, to_write));
        Ok(Self {
            waiting,
            requests,
            ids: Arc::default(),
        })
    }

    /// Whether the reply was right; `None` if there is no connection.
    async fn call(&self, request: &[u8]) -> Option<bool> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (reply, replied) = oneshot::channel();
        locked(&self.waiting).insert(id, reply);
        self.requests.send((id, request.to_vec())).await.ok()?;
        replied.await.ok().map(|reply| reply == request)
    }
}

async fn read_for_all(mut from: OwnedReadHalf, waiting: Waiting) {
    let mut buffer = Vec::with_capacity(64 * 1024);
    while from
        .read_buf(&mut buffer)
        .await
        .is_ok_and(|count| count > 0)
    {
        let mut rest = &buffer[..];
        while let Some((id, body, after)) = frames::split(rest) {
            let caller = locked(&waiting).remove(&id);
            if let Some(caller) = caller {
                let _ = caller.send(body.to_vec());
            }
            rest = after;
        }
        let used = buffer.len() - rest.len();
        buffer.drain(..used);
    }
}

async fn write_for_all(mut to: OwnedWriteHalf, mut requests: mpsc::Receiver<Request>) {
    let mut out = Vec::new();
    while let Some((id, body)) = requests.recv().await {
        frames::append(&mut out, id, &body);
        // All further requests are sent in the same write.
        while let Ok((id, body)) = requests.try_recv() {
            frames::append(&mut out, id, &body);
        }
        if to.write_all(&out).await.is_err() {
            return;
        }
        out.clear();
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().enable_all().build()
}

/// Threads call, as a program of plain threads would: each blocks until its call is over.
pub(super) fn by_threads(args: &CallArgs) -> io::Result<Seen> {
    let runtime = runtime()?;
    let connection = Connection::new(&runtime, args)?;
    let seen = with_threads(args, || {
        let (connection, handle) = (connection.clone(), runtime.handle().clone());
        Ok(move |request: &[u8]| {
            let reply = handle.block_on(connection.call(request));
            reply.ok_or_else(|| io::ErrorKind::NotConnected.into())
        })
    });
    runtime.shutdown_background();
    seen
}

/// As many tasks call as threads would: no thread has to be woken for a reply.
pub(super) fn run(args: &CallArgs) -> io::Result<Seen> {
    let runtime = runtime()?;
    let connection = Connection::new(&runtime, args)?;
    let stretch = Arc::new(Stretch::new(args.threads));
    for number in 0..args.threads {
        let (stretch, connection) = (Arc::clone(&stretch), connection.clone());
        runtime.spawn(async move {
            while !stretch.over.load(Ordering::Relaxed) {
                match connection.call(&frames::REQUEST).await {
                    Some(right) => assert!(right, "another's reply"),
                    None => return,
                }
                stretch.counts[number].fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let seen = stretch.measure(args.seconds);
    runtime.shutdown_background();
    seen
}
