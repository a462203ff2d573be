//! Half-sync/half-reactive: one thread waits and reads, and gives the requests through a channel to workers,
//! which perform them and reply.
//!
//! ```text
//!  reader --- job --> channel --- job --> worker: performs, replies      [Connection::give, Connection::work]
//!     '------ job --> backlog of a connection whose last job is still with a worker
//! ```
//!
//! One worker at a time has a connection, so replies keep their order. The reader is edge-triggered: nothing
//! is armed anew for a request. Replies that a peer does not take lie on its desk, and no worker waits for it.

use std::{
    collections::VecDeque,
    io,
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use crossbeam_channel::{bounded, Receiver, Sender};

use super::{
    counts::LastThread,
    door::Door,
    epoll::{is_hung_up, number_of, source_of, Epoll, Event, EventFlags, EDGES},
    peer::{read, send, State},
    Setting,
};
use crate::service::{perform_all, Rest, ROOM};

/// So many events are taken by one wait.
const BATCH: usize = 256;

/// So many jobs fit into the channel. Then the reader waits.
const JOBS: usize = 4096;

/// So many jobs of one connection may wait behind another one. Then it is not read any more, until they are done.
const BACKLOG: usize = 64;

/// Serves with `setting.threads` workers; this thread reads.
pub(super) fn serve(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    let (jobs, of_workers) = bounded(JOBS);
    let epoll = Arc::new(Epoll::new()?);
    for _ in 0..setting.threads {
        let (jobs, epoll, steps) = (of_workers.clone(), Arc::clone(&epoll), setting.steps);
        thread::Builder::new().spawn(move || work(&jobs, &epoll, steps))?;
    }
    Reader::new(listener, epoll, jobs)?.run()
}

/// Work for one connection.
struct Job {
    connection: Arc<Connection>,
    work: Work,
}

enum Work {
    /// The whole requests that one read brought.
    Requests(Box<[u8]>),
    /// Replies that the peer did not take.
    Replies(Box<[u8]>),
}

/// What reader and workers share of a connection.
struct Connection {
    stream: TcpStream,
    last: LastThread,
    desk: Mutex<Desk>,
}

/// Where jobs of one connection wait.
#[derive(Default)]
struct Desk {
    /// A worker has a job of this connection, or will have.
    is_busy: bool,
    backlog: VecDeque<Box<[u8]>>,
    /// Replies that the peer did not take. The connection stays busy until they are sent.
    unsent: Option<Box<[u8]>>,
    /// The reader has stopped reading; the worker that empties the backlog arms the connection again.
    is_paused: bool,
}

/// The life of a worker.
fn work(jobs: &Receiver<Job>, epoll: &Epoll, steps: u32) {
    for job in jobs {
        job.connection.work(job.work, epoll, steps);
    }
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            last: LastThread::default(),
            desk: Mutex::default(),
        }
    }

    /// Handles an event: sends replies that wait on the desk, and returns whether to read.
    fn look(self: &Arc<Self>, jobs: &Sender<Job>) -> Reading {
        let mut desk = self.desk();
        let reading = desk.reading();
        let unsent = desk.unsent.take();
        drop(desk);
        if let Some(replies) = unsent {
            self.send_job(Work::Replies(replies), jobs);
        }
        reading
    }

    /// Gives requests to a worker, or leaves them to the worker of this connection; returns whether to read on.
    fn give(self: &Arc<Self>, requests: Box<[u8]>, jobs: &Sender<Job>) -> Reading {
        let mut desk = self.desk();
        if desk.is_busy {
            desk.backlog.push_back(requests);
            return desk.reading();
        }
        desk.is_busy = true;
        drop(desk);
        self.send_job(Work::Requests(requests), jobs);
        Reading::On
    }

    fn send_job(self: &Arc<Self>, work: Work, jobs: &Sender<Job>) {
        let connection = Arc::clone(self);
        let _ = jobs.send(Job { connection, work });
    }

    /// Does a job, and those that came for this connection meanwhile.
    fn work(&self, mut work: Work, epoll: &Epoll, steps: u32) {
        loop {
            let replies = match work {
                Work::Replies(replies) => replies,
                Work::Requests(requests) => {
                    self.last.note();
                    perform_all(&requests, steps);
                    requests
                }
            };
            // If it fails the connection is gone, which the reader finds out too.
            let sent = send(&self.stream, &replies).unwrap_or(replies.len());
            if sent < replies.len() {
                return self.put_down(replies[sent..].into(), epoll);
            }
            match self.next(epoll) {
                Some(more) => work = Work::Requests(more),
                None => return,
            }
        }
    }

    /// Leaves replies on the desk until the peer takes more. Armed after that, so that the edge finds them there.
    #[cold]
    fn put_down(&self, replies: Box<[u8]>, epoll: &Epoll) {
        self.desk().unsent = Some(replies);
        let _ = epoll.arm(&self.stream, EDGES);
    }

    fn next(&self, epoll: &Epoll) -> Option<Box<[u8]>> {
        let mut desk = self.desk();
        let next = desk.backlog.pop_front();
        desk.is_busy = next.is_some();
        if next.is_none() && std::mem::take(&mut desk.is_paused) {
            let _ = epoll.arm(&self.stream, EDGES);
        }
        next
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    /// Whether more may be read. If not, the worker that empties the backlog arms the connection again.
    fn reading(&mut self) -> Reading {
        self.is_paused = self.unsent.is_some() || self.backlog.len() >= BACKLOG;
        if self.is_paused {
            Reading::Paused
        } else {
            Reading::On
        }
    }
}

/// Whether a connection is read.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    On,
    Paused,
}

/// The thread that waits and reads.
struct Reader {
    epoll: Arc<Epoll>,
    door: Door,
    /// By the number of the descriptor.
    inputs: Vec<Option<Input>>,
    jobs: Sender<Job>,
    buffer: Box<[u8]>,
}

/// What only the reader has of a connection.
struct Input {
    connection: Arc<Connection>,
    rest: Rest,
}

impl Reader {
    fn new(listener: TcpListener, epoll: Arc<Epoll>, jobs: Sender<Job>) -> io::Result<Self> {
        let door = Door::new(listener)?;
        epoll.add(&door, EventFlags::IN | EventFlags::ET)?;
        Ok(Self {
            epoll,
            door,
            inputs: Vec::new(),
            jobs,
            buffer: vec![0; ROOM].into(),
        })
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(BATCH);
        loop {
            self.epoll.batch(&mut events)?;
            for event in &events {
                if source_of(event) == number_of(&self.door) {
                    self.accept();
                } else {
                    self.visit(event);
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Some(stream) = self.door.next() {
            let fd = number_of(&stream);
            if self.epoll.add(&stream, EDGES).is_err() {
                continue;
            }
            if fd >= self.inputs.len() {
                self.inputs.resize_with(fd + 1, || None);
            }
            let connection = Arc::new(Connection::new(stream));
            let rest = Rest::NONE;
            self.inputs[fd] = Some(Input { connection, rest });
        }
    }

    fn visit(&mut self, event: &Event) {
        let slot = self.inputs.get_mut(source_of(event));
        let Some(input) = slot.and_then(Option::as_mut) else {
            return;
        };
        let hung_up = is_hung_up(event);
        let state = input.take_in(&mut self.buffer, hung_up, &self.jobs);
        if !matches!(state, Ok(State::Open)) {
            // Workers may still have it; it is closed after their last reply.
            self.inputs[source_of(event)] = None;
        }
    }
}

impl Input {
    /// Reads until nothing is left, and gives the requests to workers.
    fn take_in(
        &mut self,
        buffer: &mut [u8],
        hung_up: bool,
        jobs: &Sender<Job>,
    ) -> io::Result<State> {
        let mut reading = self.connection.look(jobs);
        while reading == Reading::On {
            let before = self.rest.restore(buffer);
            let room = buffer.len() - before;
            let count = match read(&self.connection.stream, &mut buffer[before..])? {
                None => break,
                Some(0) => return Ok(State::Ended),
                Some(count) => count,
            };
            let whole = self.rest.keep(&buffer[..before + count]);
            if whole != 0 {
                reading = self.connection.give(buffer[..whole].into(), jobs);
            }
            if count < room && !hung_up {
                break;
            }
        }
        Ok(State::Open)
    }
}
