//! Coroutines of `may`, one per connection. A task that sleeps blocks the worker that runs it.

use std::{
    io,
    net::{TcpListener, TcpStream},
    thread::available_parallelism,
};

use may::{coroutine::Builder, go, io::CoIo};

use super::{threads, Setting};

/// A worker per core that this process may use.
pub(super) fn per_core(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    let workers = available_parallelism().map_or(1, usize::from);
    serve(&listener, setting, workers)
}

/// `setting.threads` workers.
pub(super) fn wide(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(&listener, setting, setting.threads)
}

/// Serves with so many workers; this thread accepts. A process has one set of workers, made by the first call.
fn serve(listener: &TcpListener, setting: &Setting, workers: usize) -> io::Result<()> {
    may::config().set_workers(workers);
    may::config().set_worker_pin(false);
    loop {
        let stream = threads::next(listener);
        // What can't be spawned is closed.
        let _ = spawn(stream, setting.steps);
    }
}

fn spawn(stream: TcpStream, steps: u32) -> io::Result<()> {
    let stream = CoIo::new(stream).map_err(|error| io::Error::other(error.to_string()))?;
    go!(Builder::new(), move || threads::converse(stream, steps)).map(drop)
}
