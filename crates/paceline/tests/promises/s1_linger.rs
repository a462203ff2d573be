//! S1, S3: sockets with SO_LINGER whose peers do not read. close(2) waits for them until their time
//! is over, also where they are non-blocking: a shutdown of 300 ms took ten seconds for a linger
//! time of ten, and so did the drop of a pool. Now a pool that ends closes them at once, and the
//! kernel goes on sending what it has. (Here the linger time is an hour, so each test ends only if
//! no thread waits for that.)

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    sync::{mpsc, Arc},
    time::Duration,
};

use crate::support::{bounded, kernel_sets, tcp_pair, wait_until, LONG};
use paceline::{
    ConcurrentContext, Context, Handle, Interest, Members, Next, Pool, SetKind, ShutdownReport,
};
use socket2::SockRef;

const HOUR: Duration = Duration::from_secs(3600);

/// A source that knows when it is dropped.
struct Lingers {
    stream: TcpStream,
    _alive: Arc<()>,
}

impl AsFd for Lingers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A connection whose kernel buffers are full.
struct Connection {
    /// `None` once it is a source.
    source: Option<Lingers>,
    peer: TcpStream,
    alive: Arc<()>,
    /// What the peer will find, if it reads.
    sent: usize,
}

impl Connection {
    fn new(linger: Duration) -> Self {
        let (stream, peer) = tcp_pair();
        stream.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(count) = (&stream).write(&[7; 4096]) {
            sent += count;
        }
        SockRef::from(&stream).set_linger(Some(linger)).unwrap();
        let alive = Arc::new(());
        let source = Some(Lingers {
            stream,
            _alive: Arc::clone(&alive),
        });
        Self {
            source,
            peer,
            alive,
            sent,
        }
    }

    fn source(&mut self) -> Lingers {
        self.source.take().unwrap()
    }

    fn register(&mut self, pool: &Pool) -> Handle {
        let handler = |_: &mut Context<'_, Lingers>| Ok(Next::Continue);
        let registered = pool.register(self.source(), Interest::READ, handler);
        registered.unwrap()
    }

    /// Waits until the pool has closed it.
    fn wait_closed(&self) {
        wait_until(|| Arc::strong_count(&self.alive) == 1);
    }

    /// The peer reads now: everything has come, and then the end.
    fn check_whole(&mut self) {
        let mut all = Vec::new();
        self.peer.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), self.sent);
    }
}

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).build().unwrap()
}

fn shut(pool: &Pool) -> ShutdownReport {
    pool.shutdown(Duration::ZERO)
}

/// What is left is closed by the thread that calls the shutdown, on every set; the peer gets what
/// was sent.
#[test]
fn ended_by_force() {
    for set in kernel_sets() {
        bounded(move || {
            let pool = Pool::builder().threads(0).handle_set(set).build().unwrap();
            let mut connections = [(); 3].map(|()| Connection::new(HOUR));
            for connection in &mut connections {
                connection.register(&pool);
            }
            assert_eq!(shut(&pool).unfinished.len(), 3);
            for connection in &mut connections {
                connection.wait_closed();
                connection.check_whole();
            }
        });
    }
}

/// The drop of a pool waits no more than a shutdown does.
#[test]
fn ended_by_the_drop_of_the_pool() {
    bounded(|| {
        let mut connections = [(); 3].map(|()| Connection::new(HOUR));
        let pool = pool(2);
        for connection in &mut connections {
            connection.register(&pool);
        }
        drop(pool);
        connections.iter().for_each(Connection::wait_closed);
    });
}

/// A thread of the pool that drains is not stuck in close(2): idle connections are closed in time.
#[test]
fn drained() {
    bounded(|| {
        let mut connections = [(); 3].map(|()| Connection::new(HOUR));
        let pool = pool(1);
        for connection in &mut connections {
            connection.register(&pool);
        }
        let report = pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        connections.iter_mut().for_each(Connection::check_whole);
    });
}

/// A handler that returns after the end: its thread goes at once.
#[test]
fn busy_at_the_end() {
    bounded(|| {
        let (pool, mut connection) = (pool(1), Connection::new(HOUR));
        let ((inside, is_inside), (go, gate)) = (mpsc::channel(), mpsc::channel::<()>());
        let handler = move |cx: &mut Context<'_, Lingers>| {
            // With unread input the kernel would reset the connection, and not linger.
            (&cx.source().stream).read_exact(&mut [0])?;
            inside.send(()).unwrap();
            let _ = gate.recv_timeout(LONG);
            Ok(Next::Continue)
        };
        let source = connection.source();
        pool.register(source, Interest::READ, handler).unwrap();
        connection.peer.write_all(b"x").unwrap();
        is_inside.recv_timeout(LONG).unwrap();
        assert_eq!(shut(&pool).busy_handles, 1);
        drop(go);
        connection.wait_closed();
    });
}

/// Members of groups and concurrent handles are sources, too.
#[test]
fn members_and_concurrent_handles() {
    bounded(|| {
        let (mut member, mut concurrent) = (Connection::new(HOUR), Connection::new(HOUR));
        let pool = pool(0);
        let handler = |_: &mut Context<'_, Lingers>, _: &mut Members<'_, Lingers>| Ok(Next::Close);
        let group = pool.group(handler).unwrap();
        group.register(member.source(), Interest::READ).unwrap();
        let handler =
            |_: &mut ConcurrentContext<'_, Lingers>| -> io::Result<Next> { Ok(Next::Close) };
        pool.register_concurrent(concurrent.source(), Interest::READ, handler)
            .unwrap();
        assert_eq!(shut(&pool).unfinished.len(), 2);
        member.wait_closed();
        concurrent.wait_closed();
    });
}

/// A linger time of zero does not wait: it asks for a reset, and the peer still gets one.
#[test]
fn a_reset_stays_a_reset() {
    bounded(|| {
        let (pool, mut connection) = (pool(0), Connection::new(Duration::ZERO));
        connection.register(&pool);
        let _ = shut(&pool);
        let reset = connection.peer.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    });
}

/// A simulated descriptor is only a number: an option is not set on a file of this process that
/// happens to have it.
#[test]
fn simulated_descriptors_are_left_alone() {
    bounded(|| {
        let kept = Connection::new(HOUR);
        let world = paceline::simulated::Simulation::new(1);
        let set = SetKind::Simulated(world.clone());
        let pool = Pool::builder().threads(0).handle_set(set).build().unwrap();
        for _ in 0..64 {
            let (stream, _) = world.stream();
            let handler = |_: &mut Context<'_, _>| Ok(Next::Continue);
            pool.register(stream, Interest::READ, handler).unwrap();
        }
        assert_eq!(shut(&pool).unfinished.len(), 64);
        let source = kept.source.as_ref().unwrap();
        let linger = SockRef::from(&source.stream).linger().unwrap();
        assert_eq!(linger, Some(HOUR));
        let _ = SockRef::from(&source.stream).set_linger(None);
    });
}
