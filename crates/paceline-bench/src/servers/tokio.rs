//! Tokio, a task per connection.

// `tokio_unstable` is given only to the second build, of the server `tokio-eager`.
#![allow(unexpected_cfgs)]

use std::{future::Future, io, net::TcpListener, thread::available_parallelism, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener as Listener, TcpStream},
    runtime::Builder,
    task::{block_in_place, spawn_blocking},
    time::sleep,
};

use super::{counts::LastThread, Setting};
use crate::service::{perform_all, tasks, Rest, Task, ROOM};

/// How long to pause when there is no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(1);

/// Where a task of the service that sleeps is done.
#[derive(Clone, Copy)]
enum Sleeper {
    /// On the worker, which serves no other task meanwhile: a common mistake.
    Worker,
    /// On a thread for blocking calls.
    BlockingThread,
    /// On the worker, which gives its other tasks away before.
    InPlace,
}

/// Everything is done on the workers.
pub(super) fn inline(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, Sleeper::Worker, &mut runtime(setting))
}

/// Requests that sleep run on at most `setting.threads` threads for blocking calls.
pub(super) fn blocking(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(
        listener,
        setting,
        Sleeper::BlockingThread,
        &mut runtime(setting),
    )
}

/// What sleeps stays on the worker, and another thread takes the worker's place.
pub(super) fn in_place(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, Sleeper::InPlace, &mut runtime(setting))
}

/// Everything is done on the workers, and a worker that polled wakes another to poll on.
#[cfg(tokio_unstable)]
pub(super) fn eager(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    let mut runtime = runtime(setting);
    runtime.enable_eager_driver_handoff();
    serve(listener, setting, Sleeper::Worker, &mut runtime)
}

/// A worker per core that this process may use; `setting.threads` threads for blocking calls.
fn runtime(setting: &Setting) -> Builder {
    let workers = available_parallelism().map_or(1, usize::from);
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(workers)
        .max_blocking_threads(setting.threads)
        .enable_io()
        .enable_time();
    builder
}

fn serve(
    listener: TcpListener,
    setting: &Setting,
    sleeper: Sleeper,
    runtime: &mut Builder,
) -> io::Result<()> {
    let steps = setting.steps;
    accept_in(runtime, listener, move |stream| {
        converse(stream, sleeper, steps)
    })
}

/// Serves each connection by `converse`, on a worker per core.
pub(crate) fn serve_by<F>(
    listener: TcpListener,
    setting: &Setting,
    converse: impl Fn(TcpStream) -> F + Send + 'static,
) -> io::Result<()>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    accept_in(&mut runtime(setting), listener, converse)
}

fn accept_in<F>(
    runtime: &mut Builder,
    listener: TcpListener,
    converse: impl Fn(TcpStream) -> F + Send + 'static,
) -> io::Result<()>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    listener.set_nonblocking(true)?;
    runtime.build()?.block_on(async move {
        let listener = Listener::from_std(listener)?;
        // A task of its own: the thread in `block_on` is not one of the workers.
        let accepting = tokio::spawn(accept(listener, converse));
        accepting.await.map_err(io::Error::other)
    })
}

/// Accepts for ever. After any error it accepts the next connection.
async fn accept<F>(listener: Listener, converse: impl Fn(TcpStream) -> F)
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                tokio::spawn(converse(stream));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Serves one connection until it ends.
async fn converse(mut stream: TcpStream, sleeper: Sleeper, steps: u32) -> io::Result<()> {
    let (mut buffer, mut rest, last) = ([0; ROOM], Rest::NONE, LastThread::default());
    loop {
        let before = rest.restore(&mut buffer);
        let count = stream.read(&mut buffer[before..]).await?;
        if count == 0 {
            return Ok(());
        }
        last.note();
        let whole = rest.keep(&buffer[..before + count]);
        perform(&buffer[..whole], sleeper, steps).await;
        stream.write_all(&buffer[..whole]).await?;
    }
}

async fn perform(whole: &[u8], sleeper: Sleeper, steps: u32) {
    match sleeper {
        Sleeper::Worker => perform_all(whole, steps),
        Sleeper::BlockingThread | Sleeper::InPlace => {
            for task in tasks(whole) {
                perform_one(task, sleeper, steps).await;
            }
        }
    }
}

async fn perform_one(task: Task, sleeper: Sleeper, steps: u32) {
    match sleeper {
        Sleeper::BlockingThread if task.blocks() => {
            let _ = spawn_blocking(move || task.perform(steps)).await;
        }
        Sleeper::InPlace if task.blocks() => block_in_place(|| task.perform(steps)),
        _ => task.perform(steps),
    }
}
