//! Gentle ends: the peer gets the last answer whole, and holds its handle no longer than the pool
//! allows.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::{UnixDatagram, UnixStream},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::support::{bounded, by_hand::serve_all, kernel_sets, tcp_pair, told, wait_until, LONG};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Builder, Closed, Context, EventHandler, Handle, Interest, Members, Next, Overdue, Pool,
    SetKind, Source,
};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A pool whose linger time is a second, in a world of its own; the test serves it.
struct Scene {
    world: Simulation,
    pool: Pool,
}

impl Scene {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(set: impl FnOnce(Builder) -> Builder) -> Self {
        let world = Simulation::new(1);
        let builder = Pool::builder()
            .threads(0)
            .linger_time(SECOND)
            .handle_set(SetKind::Simulated(world.clone()));
        let pool = set(builder).build().unwrap();
        Self { world, pool }
    }

    /// A connection that answers its first bytes with `answer`, and ends gently. It reads one byte
    /// of them.
    fn answering(&self, answer: &'static [u8]) -> Line {
        let (handler, end) = told(move |cx: &mut Context<'_, SimStream>| {
            cx.read(&mut [0])?;
            cx.write_all(answer)?;
            Ok(Next::CloseGently)
        });
        self.line(handler, end)
    }

    fn line(&self, handler: impl EventHandler<SimStream>, end: mpsc::Receiver<Closed>) -> Line {
        let (stream, peer) = self.world.stream();
        let handle = self.pool.register(stream, Interest::READ, handler);
        let handle = handle.unwrap();
        Line { handle, peer, end }
    }

    fn pass(&self, span: Duration) {
        self.world.clock().advance(span);
        serve_all(&self.pool);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.pool.shutdown(Duration::ZERO);
    }
}

struct Line {
    handle: Handle,
    peer: SimPeer,
    end: mpsc::Receiver<Closed>,
}

impl Line {
    fn has_ended(&self) -> Option<String> {
        self.end.try_recv().ok().map(|why| why.to_string())
    }
}

/// The peer reads the answer and its end, and the connection stays until the peer is done too.
#[test]
fn waits_for_the_peers_end() {
    let scene = Scene::new();
    let line = scene.answering(b"no");
    line.peer.send(b"a request that nobody reads to its end");
    serve_all(&scene.pool);
    assert_eq!(line.peer.received(), b"no");
    assert!(line.peer.is_output_ended());
    line.peer.send(b"more of it");
    scene.pass(999 * MS);
    assert_eq!(line.has_ended(), None);
    assert!(!line.peer.is_closed_by_pool());
    line.peer.finish();
    serve_all(&scene.pool);
    assert_eq!(line.has_ended().unwrap(), "finished");
    assert!(line.peer.is_closed_by_pool());
}

/// A peer that never ends its side is not waited for beyond the linger time, whatever it sends.
#[test]
fn waits_no_longer_than_the_linger_time() {
    let scene = Scene::new();
    let line = scene.answering(b"no");
    line.peer.send(b"x");
    serve_all(&scene.pool);
    for _ in 0..9 {
        line.peer.send(b"and another thing");
        scene.pass(100 * MS);
        assert_eq!(line.has_ended(), None);
    }
    scene.pass(100 * MS);
    assert_eq!(line.has_ended().unwrap(), "finished");
    assert_eq!(scene.pool.snapshot().timed_out, 0, "all was sent");
}

/// Nor for more than the linger limit, in however many pieces that comes.
#[test]
fn reads_no_more_than_the_linger_limit() {
    let scene = Scene::with(|builder| builder.linger_limit(100).read_budget(16));
    let line = scene.answering(b"no");
    line.peer.send(&[b'x'; 1 + 99]);
    serve_all(&scene.pool);
    assert_eq!(line.has_ended(), None);
    line.peer.send(b"x");
    serve_all(&scene.pool);
    assert_eq!(line.has_ended().unwrap(), "finished");
}

/// Kept output is sent first; only then the output ends.
#[test]
fn sends_what_is_kept_first() {
    let scene = Scene::new();
    let line = scene.answering(&[b'a'; 200]);
    line.peer.send(b"x");
    serve_all(&scene.pool);
    let mut read = 0;
    while read < 200 {
        // 64 bytes are on their way.
        assert_eq!(line.peer.is_output_ended(), read + 64 >= 200);
        // A slow reader is no dead one: it has the linger time for each piece.
        scene.pass(900 * MS);
        read += line.peer.received().len();
        serve_all(&scene.pool);
    }
    assert!(line.peer.is_output_ended());
    assert_eq!(line.has_ended(), None);
    line.peer.finish();
    serve_all(&scene.pool);
    assert_eq!(line.has_ended().unwrap(), "finished");
}

/// A peer that does not read holds its handle for the linger time, and not for ever. So it is after
/// a last word, also if the handler has asked for a plain end.
#[test]
fn a_peer_that_takes_nothing_is_given_up() {
    struct LastWord(Next, mpsc::Sender<Closed>);
    impl EventHandler<SimStream> for LastWord {
        fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
            cx.write_all(&[b'a'; 100])?;
            Ok(Next::Continue)
        }
        fn overdue(&mut self, cx: &mut Context<'_, SimStream>, _: Overdue) -> io::Result<Next> {
            cx.write_all(b"bye")?;
            Ok(self.0)
        }
        fn closed(&mut self, why: Closed) {
            let _ = self.1.send(why);
        }
    }
    for next in [Next::Close, Next::CloseGently] {
        let scene = Scene::new();
        let (tell, end) = mpsc::channel();
        let line = scene.line(LastWord(next, tell), end);
        line.handle.notify().unwrap();
        serve_all(&scene.pool);
        line.handle.set_deadline(Some(10 * MS)).unwrap();
        scene.pass(10 * MS);
        line.handle.suspend().unwrap();
        scene.pass(999 * MS);
        assert_eq!(line.has_ended(), None);
        scene.pass(MS);
        assert_eq!(line.has_ended().unwrap(), "its time was over", "{next:?}");
        assert_eq!(scene.pool.snapshot().timed_out, 1);
    }
}

/// Neither a suspension nor another interest holds up the end.
#[test]
fn nothing_holds_it_up() {
    let changes: [fn(&Handle) -> io::Result<()>; 3] = [
        |handle| handle.suspend(),
        |handle| handle.set_interest(Interest::NONE),
        |handle| handle.notify(),
    ];
    for change in changes {
        let scene = Scene::new();
        let line = scene.answering(b"no");
        line.peer.send(b"xyz");
        serve_all(&scene.pool);
        change(&line.handle).unwrap();
        serve_all(&scene.pool);
        assert_eq!(line.has_ended(), None);
        line.peer.finish();
        serve_all(&scene.pool);
        assert_eq!(line.has_ended().unwrap(), "finished");
        assert_eq!(line.peer.received(), b"no", "one call");
    }
}

/// A request's deadline that is cleared from elsewhere, or moved, does not put the end off.
#[test]
fn nothing_puts_it_off() {
    let changes: [fn(&Handle) -> io::Result<()>; 3] = [
        |handle| handle.set_deadline(None),
        |handle| handle.set_deadline(Some(LONG)),
        |handle| handle.set_timeout(None),
    ];
    for change in changes {
        let scene = Scene::new();
        let line = scene.answering(b"no");
        line.peer.send(b"x");
        serve_all(&scene.pool);
        change(&line.handle).unwrap();
        scene.pass(SECOND);
        assert_eq!(line.has_ended().unwrap(), "finished");
    }
}

/// A peer that was done before, or is gone, is not waited for; nor does anybody wait where the pool
/// does not linger.
#[test]
fn waits_for_nothing_without_need() {
    for linger_time in [SECOND, Duration::ZERO] {
        let scene = Scene::with(|builder| builder.linger_time(linger_time));
        let line = scene.answering(b"no");
        line.peer.send(b"x");
        if !linger_time.is_zero() {
            line.peer.finish();
        }
        serve_all(&scene.pool);
        assert_eq!(line.has_ended().unwrap(), "finished");
        assert_eq!(line.peer.received(), b"no");
    }
}

/// The same for a member of a group.
#[test]
fn members_end_gently() {
    let scene = Scene::new();
    let handler = |cx: &mut Context<'_, SimStream>, _: &mut Members<'_, SimStream>| {
        cx.read(&mut [0])?;
        cx.write_all(b"no")?;
        Ok(Next::CloseGently)
    };
    let group = scene.pool.group(handler).unwrap();
    let (stream, peer) = scene.world.stream();
    group.register(stream, Interest::READ).unwrap();
    peer.send(b"xyz");
    serve_all(&scene.pool);
    assert_eq!(peer.received(), b"no");
    assert!(peer.is_output_ended() && !peer.is_closed_by_pool());
    scene.pass(SECOND);
    assert!(peer.is_closed_by_pool());
    assert_eq!(scene.pool.snapshot().timed_out, 0);
}

/// S2: a drain waits for the peer's end. It waits no longer than it may, and what was answered
/// whole is not listed as unfinished then.
#[test]
fn a_drain_waits_for_it_in_time() {
    for finishes in [true, false] {
        bounded(move || {
            let world = Simulation::new(1);
            let pool = Pool::builder()
                .threads(1)
                .handle_set(SetKind::Simulated(world.clone()))
                .build()
                .unwrap();
            let (handler, end) = told(|cx: &mut Context<'_, SimStream>| {
                cx.read(&mut [0])?;
                cx.write_all(b"no")?;
                Ok(Next::CloseGently)
            });
            let (stream, peer) = world.stream();
            pool.register(stream, Interest::READ, handler).unwrap();
            peer.send(b"xyz");
            assert_eq!(peer.wait_for(2), b"no");
            let shutdown = thread::spawn(move || pool.shutdown(SECOND));
            // The shutdown and the leader.
            wait_until(|| peer.is_output_ended() && world.clock().asleep() == 2);
            assert!(!peer.is_closed_by_pool());
            let expected = if finishes {
                peer.finish();
                "finished"
            } else {
                wait_until(|| {
                    world.clock().advance(100 * MS);
                    peer.is_closed_by_pool()
                });
                "the pool was shut down"
            };
            assert_eq!(end.recv_timeout(LONG).unwrap().to_string(), expected);
            let report = shutdown.join().unwrap();
            assert!(report.is_clean(), "{report}");
        });
    }
}

/// Sends far more than its peer reads, then reads what that one answers. Old servers closed at
/// once: then the rest of the request meets a closed socket, the system resets the connection, and
/// the client finds an error in the place of the answer, or behind it.
fn client_of<S>(near: S, far: impl Read + Write, next: Next, set: SetKind) -> io::Result<Vec<u8>>
where
    S: Source,
    for<'s> &'s S: Read + Write,
{
    let pool = Pool::builder().threads(2).handle_set(set).build().unwrap();
    let mut far = far;
    far.write_all(&[b'x'; 100_000]).unwrap();
    let handler = move |cx: &mut Context<'_, S>| {
        cx.read(&mut [0; 10])?;
        cx.write_all(b"413 too much")?;
        Ok(next)
    };
    pool.register(near, Interest::READ, handler).unwrap();
    let mut answer = Vec::new();
    let read = far.read_to_end(&mut answer);
    drop(far);
    let report = pool.shutdown(LONG);
    assert!(report.is_clean(), "{report}");
    read.map(|_| answer)
}

#[test]
fn the_answer_arrives_over_tcp() {
    for set in kernel_sets() {
        bounded(move || {
            let (near, far) = tcp_pair();
            let answer = client_of(near, far, Next::CloseGently, set);
            assert_eq!(answer.unwrap(), b"413 too much");
        });
    }
}

/// What happens without it, so that the test above shows something.
#[test]
fn a_plain_end_resets_the_connection() {
    bounded(|| {
        let (near, far) = tcp_pair();
        let error = client_of(near, far, Next::Close, SetKind::Epoll).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn the_answer_arrives_over_unix_sockets() {
    for set in kernel_sets() {
        bounded(move || {
            let (near, far) = UnixStream::pair().unwrap();
            far.set_read_timeout(Some(LONG)).unwrap();
            let answer = client_of(near, far, Next::CloseGently, set);
            assert_eq!(answer.unwrap(), b"413 too much");
        });
    }
}

/// A client that ends its side first, and a source that is no stream, close at once.
#[test]
fn what_can_not_linger_closes_at_once() {
    bounded(|| {
        let pool = Pool::builder().threads(1).linger_time(10 * LONG);
        let pool = pool.build().unwrap();
        let (handler, end) = told(|cx: &mut Context<'_, TcpStream>| {
            while cx.read(&mut [0; 16])? > 0 {}
            cx.write_all(b"done").map(|()| Next::CloseGently)
        });
        let (near, mut far) = tcp_pair();
        far.write_all(b"all").unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        pool.register(near, Interest::READ, handler).unwrap();
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Finished)));
        let (near, far) = UnixDatagram::pair().unwrap();
        let (handler, end) = told(|cx: &mut Context<'_, UnixDatagram>| {
            cx.try_read(|socket| socket.recv(&mut [0; 16]))?;
            Ok(Next::CloseGently)
        });
        pool.register(near, Interest::READ, handler).unwrap();
        far.send(b"one of several").unwrap();
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Finished)));
    });
}

/// A last word at a deadline, in the kernel's sets, whatever they report.
#[test]
fn a_last_word_in_every_set() {
    for set in kernel_sets() {
        bounded(move || {
            let pool = Pool::builder().threads(2).handle_set(set);
            let pool = pool.build().unwrap();
            let (near, mut far) = tcp_pair();
            let handle = pool.register(near, Interest::READ, Farewell).unwrap();
            handle.set_deadline(Some(10 * MS)).unwrap();
            // It reads all that comes, and is never idle for long.
            far.write_all(b"drip").unwrap();
            let mut said = Vec::new();
            far.read_to_end(&mut said).unwrap();
            assert_eq!(said, b"bye");
        });
    }
}

/// Reads everything, and says good-bye at its deadline.
struct Farewell;

impl EventHandler<TcpStream> for Farewell {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        cx.read(&mut [0; 16]).map(|_| Next::Continue)
    }
    fn overdue(&mut self, cx: &mut Context<'_, TcpStream>, _: Overdue) -> io::Result<Next> {
        cx.write_all(b"bye").map(|()| Next::Close)
    }
}
