//! The client that most people would write today: tasks, a connection with a task that reads and one that writes.

use std::{
    collections::HashMap,
    io,
    sync::{atomic::Ordering, Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Builder,
    sync::{mpsc, oneshot},
};

use super::{clients::locked, frames, CallArgs, Seen, Stretch};

/// Who waits for which reply.
type Waiting = Arc<Mutex<HashMap<u32, oneshot::Sender<Vec<u8>>>>>;

/// As many tasks call as threads would.
pub(super) fn run(args: &CallArgs) -> io::Result<Seen> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let stream = runtime.block_on(TcpStream::connect(args.address))?;
    stream.set_nodelay(true)?;
    let (mut reading, mut writing) = stream.into_split();
    let waiting = Waiting::default();
    let for_reader = Arc::clone(&waiting);
    runtime.spawn(async move {
        let mut buffer = Vec::with_capacity(64 * 1024);
        while reading
            .read_buf(&mut buffer)
            .await
            .is_ok_and(|count| count > 0)
        {
            let mut rest = &buffer[..];
            while let Some((id, body, after)) = frames::split(rest) {
                let caller = locked(&for_reader).remove(&id);
                if let Some(caller) = caller {
                    let _ = caller.send(body.to_vec());
                }
                rest = after;
            }
            let used = buffer.len() - rest.len();
            buffer.drain(..used);
        }
    });
    let (requests, mut to_write) = mpsc::channel::<(u32, Vec<u8>)>(1024);
    runtime.spawn(async move {
        let mut out = Vec::new();
        while let Some((id, body)) = to_write.recv().await {
            frames::append(&mut out, id, &body);
            // Whatever else is there goes into the same write.
            while let Ok((id, body)) = to_write.try_recv() {
                frames::append(&mut out, id, &body);
            }
            if writing.write_all(&out).await.is_err() {
                return;
            }
            out.clear();
        }
    });
    let stretch = Arc::new(Stretch::new(args.threads));
    let ids = Arc::new(std::sync::atomic::AtomicU32::new(0));
    for number in 0..args.threads {
        let (stretch, ids) = (Arc::clone(&stretch), Arc::clone(&ids));
        let (waiting, requests) = (Arc::clone(&waiting), requests.clone());
        runtime.spawn(async move {
            while !stretch.over.load(Ordering::Relaxed) {
                let id = ids.fetch_add(1, Ordering::Relaxed);
                let (reply, replied) = oneshot::channel();
                locked(&waiting).insert(id, reply);
                let body = frames::REQUEST.to_vec();
                if requests.send((id, body)).await.is_err() {
                    return;
                }
                let Ok(reply) = replied.await else {
                    return;
                };
                assert!(reply == frames::REQUEST, "another's reply");
                stretch.counts[number].fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let seen = stretch.measure(args.seconds);
    runtime.shutdown_background();
    seen
}
