//! The sets, a pool on one of them, and connections that look alike on all.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{mpsc, Arc},
    thread,
    time::Duration,
};

use crate::support::{
    by_hand::{own_task, serve_all, sleeps, status},
    is_to_be_had, wait_until, Witness, LONG,
};
use paceline::{
    observe::Role,
    simulated::{SimPeer, SimStream, Simulation},
    Context, EventHandler, Handle, Interest, Next, Pool, SetKind, Wake,
};
use paceline::{Descriptor, Source};

/// Makes a test of `case` for each set.
macro_rules! on_sets {
    ($case:ident: $($set:ident),+ $(,)?) => {
        mod $case {
            $(
                #[test]
                fn $set() {
                    let set = crate::conformance::world::Set::$set;
                    crate::support::bounded(move || {
                        if set.is_to_be_had() {
                            super::$case(set);
                        }
                    });
                }
            )+
        }
    };
}

macro_rules! on_every_set {
    ($case:ident) => {
        on_sets!($case: epoll, one_shot, poll, concurrent, completion, simulated, simulated_one_shot, simulated_concurrent);
    };
}

/// For cases that need the kernel's own sources.
macro_rules! on_kernel_sets {
    ($case:ident) => {
        on_sets!($case: epoll, one_shot, poll, concurrent, completion);
    };
}

/// Where the leader waits. Named as the tests are.
#[allow(non_camel_case_types, reason = "they are the names of tests")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Set {
    epoll,
    one_shot,
    poll,
    concurrent,
    completion,
    simulated,
    simulated_one_shot,
    simulated_concurrent,
}

impl Set {
    /// Whether a handle is silent while it is busy, and the kernel says so.
    pub(crate) fn is_silent_while_busy(self) -> bool {
        matches!(self, Self::one_shot | Self::poll | Self::concurrent)
    }

    /// Whether this system has it; else that is said.
    pub(crate) fn is_to_be_had(self) -> bool {
        self != Self::completion || is_to_be_had(&SetKind::Completion)
    }

    /// What a thread is told to be that waits in the set.
    fn waiting_role(self) -> Role {
        match self {
            Self::concurrent | Self::simulated_concurrent => Role::Follower,
            _ => Role::Leader,
        }
    }

    fn simulation(self) -> Option<Simulation> {
        match self {
            Self::simulated => Some(Simulation::new(1)),
            Self::simulated_one_shot => Some(Simulation::one_shot(1)),
            Self::simulated_concurrent => Some(Simulation::concurrent(1)),
            _ => None,
        }
    }

    fn kind(self, simulation: Option<&Simulation>) -> SetKind {
        match (self, simulation) {
            (_, Some(simulation)) => SetKind::Simulated(simulation.clone()),
            (Self::one_shot, None) => SetKind::OneShot,
            (Self::poll, None) => SetKind::Poll,
            (Self::concurrent, None) => SetKind::Concurrent,
            (Self::completion, None) => SetKind::Completion,
            (_, None) => SetKind::Epoll,
        }
    }
}

/// A pool on one of the sets.
pub(crate) struct World {
    pub(crate) pool: Pool,
    pub(crate) witness: Witness,
    waiting_role: Role,
    simulation: Option<Simulation>,
}

impl World {
    /// Without threads: the test plays all the roles, or lets threads join.
    pub(crate) fn new(set: Set) -> Self {
        Self::with_threads(set, 0)
    }

    pub(crate) fn with_threads(set: Set, threads: usize) -> Self {
        let (simulation, witness) = (set.simulation(), Witness::default());
        let pool = Pool::builder()
            .threads(threads)
            .wake(Wake::Eager)
            .handle_set(set.kind(simulation.as_ref()))
            .observer(witness.clone())
            .build()
            .unwrap();
        Self {
            pool,
            witness,
            waiting_role: set.waiting_role(),
            simulation,
        }
    }

    /// A new connection: the pool's end, and the peer's.
    pub(crate) fn pair(&self) -> (Near, Far) {
        match &self.simulation {
            None => {
                let (near, far) = UnixStream::pair().unwrap();
                far.set_nonblocking(true).unwrap();
                (Near(Arc::new(NearEnd::Unix(near))), Far::Unix(far))
            }
            Some(simulation) => {
                let (near, far) = simulation.stream();
                (
                    Near(Arc::new(NearEnd::Simulated(near))),
                    Far::Simulated(far),
                )
            }
        }
    }

    /// Registers a new connection. Its handle, and the peer's end.
    pub(crate) fn serve(
        &self,
        interest: Interest,
        handler: impl EventHandler<Near>,
    ) -> (Handle, Far) {
        let (near, far) = self.pair();
        let handle = self.pool.register(near, interest, handler).unwrap();
        (handle, far)
    }

    /// Plays the roles until nothing is left to do. How many events that were.
    pub(crate) fn work(&self) -> usize {
        serve_all(&self.pool)
    }

    /// A thread that works in the pool until its end.
    pub(crate) fn join(&self) -> Worker {
        let pool = self.pool.clone();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            tell.send(own_task()).unwrap();
            pool.join().unwrap();
        });
        Worker(told.recv_timeout(LONG).unwrap())
    }

    /// As [`join`](Self::join); it sleeps in the set when this returns.
    pub(crate) fn join_and_rest(&self) -> Worker {
        let worker = self.join();
        self.rest(&worker);
        worker
    }

    /// Waits until somebody waits in the set and `worker` sleeps.
    pub(crate) fn rest(&self, worker: &Worker) {
        self.witness.wait_for(self.waiting_role, 1);
        worker.wait_asleep();
    }

    /// How many times a thread went to handle an event.
    pub(crate) fn handled(&self) -> usize {
        let log = self.witness.log();
        let handled = log.iter().filter(|(_, role)| *role == Role::Processing);
        handled.count()
    }
}

impl Drop for World {
    /// Sends the joined threads home, and waits for nothing.
    fn drop(&mut self) {
        let _ = self.pool.shutdown(Duration::ZERO);
    }
}

/// A thread, as the kernel knows it.
pub(crate) struct Worker(u32);

impl Worker {
    pub(crate) fn wait_asleep(&self) {
        wait_until(|| sleeps(self.0));
    }

    /// How many times it has gone to sleep. One that has just begun to sleep may not be counted
    /// yet.
    pub(crate) fn sleeps_so_far(&self) -> u64 {
        let count = status(self.0, "voluntary_ctxt_switches:");
        count.parse().unwrap()
    }
}

/// The pool's end of a connection. A clone has the same descriptor.
#[derive(Clone)]
pub(crate) struct Near(Arc<NearEnd>);

enum NearEnd {
    Unix(UnixStream),
    Simulated(SimStream),
}

impl Near {
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The socket, on the kernel's sets.
    pub(crate) fn socket(&self) -> Option<&UnixStream> {
        match &*self.0 {
            NearEnd::Unix(stream) => Some(stream),
            NearEnd::Simulated(_) => None,
        }
    }
}

impl Source for Near {
    fn descriptor(&self) -> Descriptor<'_> {
        match &*self.0 {
            NearEnd::Unix(stream) => stream.descriptor(),
            NearEnd::Simulated(stream) => stream.descriptor(),
        }
    }
}

impl Read for &Near {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &*self.0 {
            NearEnd::Unix(stream) => (&*stream).read(buffer),
            NearEnd::Simulated(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Near {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &*self.0 {
            NearEnd::Unix(stream) => (&*stream).write(bytes),
            NearEnd::Simulated(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The peer's end of a connection.
pub(crate) enum Far {
    Unix(UnixStream),
    Simulated(SimPeer),
}

impl Far {
    pub(crate) fn send(&self, bytes: &[u8]) {
        match self {
            Self::Unix(stream) => (&*stream).write_all(bytes).unwrap(),
            Self::Simulated(peer) => peer.send(bytes),
        }
    }

    /// Ends the stream after what was sent.
    pub(crate) fn finish(&self) {
        match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Write).unwrap(),
            Self::Simulated(peer) => peer.finish(),
        }
    }

    /// Goes away.
    pub(crate) fn go(self) {
        if let Self::Simulated(peer) = &self {
            peer.reset();
        }
    }

    /// Takes what has come so far.
    pub(crate) fn received(&self) -> Vec<u8> {
        match self {
            Self::Unix(stream) => received(stream).0,
            Self::Simulated(peer) => peer.received(),
        }
    }

    /// Waits for so many bytes.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        wait_until(|| {
            all.extend(self.received());
            all.len() >= count
        });
        all
    }

    /// Waits until the pool's end is closed, and all was received.
    pub(crate) fn wait_closed(&self) {
        wait_until(|| match self {
            Self::Unix(stream) => received(stream).1,
            Self::Simulated(peer) => peer.is_closed_by_pool(),
        });
    }
}

/// What has come, and whether that was all.
fn received(mut stream: &UnixStream) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    let told = stream.read_to_end(&mut all);
    let ended = match told {
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        // What it sent was never read: the end all the same.
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
        Ok(_) => true,
    };
    (all, ended)
}

/// A handler that reads until its source runs dry, and tells what it read by each call. The end of
/// the stream ends it.
pub(crate) fn until_dry() -> (impl EventHandler<Near>, mpsc::Receiver<Vec<u8>>) {
    let (tell, told) = mpsc::channel();
    let handler = move |cx: &mut Context<'_, Near>| {
        let (read, next) = read_until_dry(cx);
        // The test may be over.
        let _ = tell.send(read);
        next
    };
    (handler, told)
}

/// A handler that reads until its source runs dry, tells what it read, and then waits at a gate.
pub(crate) fn held() -> (impl Ready, Held) {
    let (tell, reads) = mpsc::channel();
    let (gate, open) = mpsc::channel::<()>();
    let handler = move |cx: &mut Context<'_, Near>| {
        let (read, next) = read_until_dry(cx);
        tell.send(read).unwrap();
        // A gate that is gone is open.
        let _ = open.recv_timeout(LONG);
        next
    };
    (handler, Held { reads, gate })
}

/// What a test has of a handler that waits at a gate.
pub(crate) struct Held {
    pub(crate) reads: mpsc::Receiver<Vec<u8>>,
    pub(crate) gate: mpsc::Sender<()>,
}

/// A handler as a closure.
pub(crate) trait Ready:
    FnMut(&mut Context<'_, Near>) -> io::Result<Next> + Send + 'static
{
}

impl<F> Ready for F where F: FnMut(&mut Context<'_, Near>) -> io::Result<Next> + Send + 'static {}

/// Reads everything; and what a handler shall say then.
pub(crate) fn read_until_dry(cx: &mut Context<'_, Near>) -> (Vec<u8>, io::Result<Next>) {
    let mut read = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        match cx.read(&mut buffer) {
            Ok(0) => return (read, Ok(Next::Close)),
            Ok(count) => read.extend(&buffer[..count]),
            Err(error) => return (read, Err(error)),
        }
    }
}

/// Bytes of which each tells where it belongs.
pub(crate) fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}
