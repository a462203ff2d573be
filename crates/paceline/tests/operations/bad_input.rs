//! What can't be done is refused with an error that says what was attempted and why, and gives back
//! what was passed in.

use std::{
    fs::File,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd, RawFd},
    sync::{mpsc, Arc},
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{serve_all, Scene},
    tcp_pair, told,
    unowned::Unowned,
    wait_until, LONG,
};
use paceline::Source;
use paceline::{
    simulated::{SimStream, Simulation},
    Closed, Context, EventHandler, Interest, Left, Next, Pool, Rejected, SetKind,
};

fn pool() -> Pool {
    Pool::builder().threads(1).build().unwrap()
}

fn ignore<S>(_: &mut Context<'_, S>) -> io::Result<Next> {
    Ok(Next::Continue)
}

fn echo(cx: &mut Context<'_, Arc<TcpStream>>) -> io::Result<Next> {
    let mut byte = [0];
    let count = cx.try_read(|source| (&**source).read(&mut byte))?;
    cx.try_write(|source| (&**source).write(&byte[..count]))?;
    Ok(Next::Continue)
}

/// What `register` says to a source that it must refuse; source and handler come back as they were.
fn refusal<S>(pool: &Pool, source: S) -> (S, io::Error)
where
    S: Source,
{
    let number = source.descriptor().as_raw_fd();
    let token = Arc::new(());
    let of_handler = Arc::clone(&token);
    let handler = move |_: &mut Context<'_, S>| {
        let _ = &of_handler;
        Ok(Next::Continue)
    };
    let rejected = pool.register(source, Interest::READ, handler).unwrap_err();
    assert_eq!(Arc::strong_count(&token), 2, "the handler comes back");
    assert_eq!(rejected.value.0.descriptor().as_raw_fd(), number);
    let text = rejected.to_string();
    let attempt = format!("register descriptor {number}:");
    assert!(text.starts_with(&attempt), "{text}");
    let Rejected { value, error } = rejected;
    (value.0, error)
}

/// Numbers that are no descriptor.
#[test]
fn a_descriptor_that_is_not_open() {
    bounded(|| {
        let pool = pool();
        for number in [999_999, RawFd::MAX] {
            let (_, error) = refusal(&pool, Unowned(number));
            assert!(error.to_string().contains("never open"), "{error}");
        }
        let scene = Scene::unobserved();
        for number in [6, 7] {
            let (_, error) = refusal(&scene.pool, Unowned(number));
            assert!(error.to_string().contains("no stream"), "{error}");
        }
        assert!(pool.shutdown(LONG).is_clean());
    });
}

/// Streams of a simulation are no descriptors of the system, nor of another simulation; and a
/// simulation serves one pool.
#[test]
fn a_simulation_that_is_not_its_own() {
    bounded(|| {
        let (pool, scene, other) = (pool(), Scene::unobserved(), Simulation::new(1));
        let rejected = pool.register(other.stream().0, Interest::READ, ignore);
        assert!(rejected.unwrap_err().to_string().contains("never open"));
        let rejected = scene
            .pool
            .register(other.stream().0, Interest::READ, ignore);
        assert!(rejected.unwrap_err().to_string().contains("no stream"));
        let set = SetKind::Simulated(scene.world.clone());
        let second = Pool::builder().threads(1).handle_set(set).build();
        let error = second.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("belongs to a pool"), "{error}");
    });
}

/// "Would block" of something else than the lent source says what to do instead.
#[test]
fn a_source_that_is_read_directly() {
    bounded(|| {
        let pool = pool();
        let (near, mut far) = tcp_pair();
        let (handler, end) = told(|cx: &mut Context<'_, TcpStream>| {
            let mut source = cx.source();
            while source.read(&mut [0; 16])? > 0 {}
            Ok(Next::Close)
        });
        pool.register(near, Interest::READ, handler).unwrap();
        far.write_all(b"x").unwrap();
        let Closed::Failed(error) = end.recv_timeout(LONG).unwrap() else {
            panic!("not failed");
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(error.to_string().contains("try_read"), "{error}");
    });
}

/// The same source twice: the second is refused, and the first goes on working.
#[test]
fn a_source_that_is_registered_already() {
    bounded(|| {
        let pool = pool();
        let (near, mut far) = tcp_pair();
        let near = Arc::new(near);
        let handle = pool
            .register(Arc::clone(&near), Interest::READ, echo)
            .unwrap();
        for _ in 0..3 {
            let (_, error) = refusal(&pool, Arc::clone(&near));
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            assert!(error.to_string().contains("registered already"), "{error}");
            let (_, error) = refusal(&pool, Unowned(near.as_raw_fd()));
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        }
        far.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        // When it is closed it may be registered again.
        handle.close().unwrap();
        wait_until(|| Arc::strong_count(&near) == 1);
        pool.register(Arc::clone(&near), Interest::READ, echo)
            .unwrap();
        far.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
    });
}

/// Files are always ready, so no set waits for them.
#[test]
fn a_regular_file() {
    bounded(|| {
        let pool = pool();
        for path in ["Cargo.toml", "."] {
            let (_, error) = refusal(&pool, File::open(path).unwrap());
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("regular file"), "{error}");
        }
    });
}

/// A descriptor that its owner closed behind the pool's back tells nothing any more. Its handle can
/// be closed like any other.
#[test]
fn a_descriptor_that_was_closed_meanwhile() {
    bounded(|| {
        let pool = pool();
        let (near, far) = tcp_pair();
        let number = near.as_raw_fd();
        let (handler, end) = told(ignore::<Unowned>);
        let handle = pool
            .register(Unowned(number), Interest::READ, handler)
            .unwrap();
        drop((near, far));
        handle.close().unwrap();
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Requested)));
        assert!(pool.shutdown(LONG).is_clean());
    });
}

/// The builder names everything that is wrong, not only the first.
#[test]
fn settings_that_cannot_be() {
    bounded(|| {
        let builder = || Pool::builder().threads(4097);
        let error = builder().build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("threads(4097)"), "{error}");
        assert!(error.to_string().contains("4096"), "{error}");
        let error = builder().name("a\0b").read_budget(0).build().unwrap_err();
        for part in ["build a pool", "threads(4097)", "name(", "read_budget(0)"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        assert!(Pool::builder().threads(0).build().is_ok());
        assert!(Pool::builder().threads(1).output_limit(0).build().is_ok());
    });
}

/// No output may be kept: then every `write_all` is beyond the limit, and says so.
#[test]
fn an_output_limit_of_zero() {
    bounded(|| {
        let pool = Pool::builder().threads(1).output_limit(0).build().unwrap();
        let (near, mut far) = tcp_pair();
        let (handler, end) = told(|cx: &mut Context<'_, TcpStream>| {
            cx.write_all(&[])?;
            cx.write_all(b"x")?;
            Ok(Next::Continue)
        });
        pool.register(near, Interest::READ, handler).unwrap();
        far.write_all(b"x").unwrap();
        let Closed::Failed(error) = end.recv_timeout(LONG).unwrap() else {
            panic!("not failed");
        };
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
        assert!(error.to_string().contains("send 1 bytes"), "{error}");
    });
}

/// Where one can't listen.
#[test]
fn an_address_that_cannot_be() {
    bounded(|| {
        let pool = pool();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let refused = |error: io::Error| {
            assert!(error.to_string().starts_with("listen"), "{error}");
            error.kind()
        };
        let taken = pool.listen(taken.local_addr().unwrap(), |_, _| Some(ignore));
        assert_eq!(refused(taken.unwrap_err()), ErrorKind::AddrInUse);
        let nonsense = pool.listen("nonsense", |_, _| Some(ignore));
        assert_eq!(refused(nonsense.unwrap_err()), ErrorKind::InvalidInput);
        let not_ours = pool.listen("192.0.2.1:0", |_, _| Some(ignore));
        assert_eq!(refused(not_ours.unwrap_err()), ErrorKind::AddrNotAvailable);
        let none: &[SocketAddr] = &[];
        let none = pool.listen(none, |_, _| Some(ignore));
        assert_eq!(refused(none.unwrap_err()), ErrorKind::InvalidInput);
    });
}

/// A handle whose registration is over says so, by its name, in every call.
#[test]
fn a_stale_handle() {
    bounded(|| {
        let pool = pool();
        let (near, _far) = tcp_pair();
        let handle = pool.register(near, Interest::READ, ignore).unwrap();
        handle.close().unwrap();
        let name = handle.id().to_string();
        let stale = [
            ("close", handle.close()),
            ("set_interest", handle.set_interest(Interest::READ)),
        ];
        for (attempt, told) in stale {
            let error = told.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            let text = error.to_string();
            assert!(text.starts_with(attempt) && text.contains(&name), "{text}");
        }
        drop(pool);
        assert_eq!(handle.close().unwrap_err().kind(), ErrorKind::NotFound);
    });
}

/// After a shutdown each call says so; `?` turns a rejection into an `io::Error`.
#[test]
fn a_pool_that_is_shut_down() {
    bounded(|| {
        let pool = pool();
        assert!(pool.shutdown(LONG).is_clean());
        let register = || -> io::Result<()> {
            pool.register(tcp_pair().0, Interest::READ, ignore)?;
            Ok(())
        };
        let listen = pool.listen("127.0.0.1:0", |_, _| Some(ignore)).map(drop);
        let attempts = [
            ("register", register()),
            ("register", listen),
            ("enter", pool.enter().map(drop)),
        ];
        // What join waits for has happened.
        pool.join().unwrap();
        assert_eq!(pool.join_timeout(LONG).unwrap(), Left::Closing);
        for (attempt, told) in attempts {
            let error = told.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            assert!(error.to_string().starts_with(attempt), "{error}");
        }
    });
}

/// A handler that joins its own pool would wait for events on top of its own. It is refused, in
/// `ready` and in `closed`; another pool may be joined.
#[test]
fn join_from_inside_a_handler() {
    bounded(|| {
        let scene = Scene::unobserved();
        let other = Scene::unobserved();
        let (told, all_told) = mpsc::channel();
        let handler = Joins {
            pool: scene.pool.clone(),
            told,
        };
        let (stream, peer) = scene.world.stream();
        scene
            .pool
            .register(stream, Interest::READ, handler)
            .unwrap();
        let other_pool = other.pool.clone();
        let (stream, other_peer) = scene.world.stream();
        let (joined, has_joined) = mpsc::channel();
        let joins_other = move |_: &mut Context<'_, SimStream>| {
            let time = other_pool.join_timeout(Duration::ZERO);
            joined.send(time.unwrap()).unwrap();
            Ok(Next::Close)
        };
        scene
            .pool
            .register(stream, Interest::READ, joins_other)
            .unwrap();
        peer.send(b"x");
        other_peer.send(b"x");
        serve_all(&scene.pool);
        assert_eq!(has_joined.try_recv(), Ok(Left::TimedOut));
        let all: Vec<_> = all_told.try_iter().collect();
        assert_eq!(all, [ErrorKind::Deadlock; 6]);
    });
}

/// Tries to join its own pool wherever it is called.
struct Joins {
    pool: Pool,
    told: mpsc::Sender<ErrorKind>,
}

impl Joins {
    fn join_in_every_way(&self) {
        let tries = [
            self.pool.join().map(drop),
            self.pool.join_timeout(Duration::ZERO).map(drop),
            self.pool.enter().map(drop),
        ];
        for told in tries {
            let error = told.unwrap_err();
            assert!(error.to_string().contains("inside a handler"), "{error}");
            self.told.send(error.kind()).unwrap();
        }
    }
}

impl EventHandler<SimStream> for Joins {
    fn ready(&mut self, _: &mut Context<'_, SimStream>) -> io::Result<Next> {
        self.join_in_every_way();
        Ok(Next::Close)
    }

    fn closed(&mut self, _: Closed) {
        self.join_in_every_way();
    }
}

/// The same when another pool's callback stands between: the thread is still inside a handler of
/// the first.
#[test]
fn join_from_inside_a_handler_through_another_pool() {
    bounded(|| {
        let (outer, inner) = (Scene::unobserved(), Scene::unobserved());
        let (told, all_told) = mpsc::channel();
        let joins_outer = JoinsWhenClosed(outer.pool.clone(), told);
        let (stream, _inner_peer) = inner.world.stream();
        let handle = inner
            .pool
            .register(stream, Interest::READ, joins_outer)
            .unwrap();
        let (stream, peer) = outer.world.stream();
        let closes_inner = move |_: &mut Context<'_, SimStream>| {
            handle.close().unwrap();
            Ok(Next::Close)
        };
        outer
            .pool
            .register(stream, Interest::READ, closes_inner)
            .unwrap();
        peer.send(b"x");
        serve_all(&outer.pool);
        let error = all_told.try_recv().unwrap();
        assert_eq!(error, Some(ErrorKind::Deadlock));
    });
}

/// Joins a pool for no time when it is closed, and tells the error.
struct JoinsWhenClosed(Pool, mpsc::Sender<Option<ErrorKind>>);

impl EventHandler<SimStream> for JoinsWhenClosed {
    fn ready(&mut self, _: &mut Context<'_, SimStream>) -> io::Result<Next> {
        Ok(Next::Continue)
    }

    fn closed(&mut self, _: Closed) {
        let told = self.0.join_timeout(Duration::ZERO);
        self.1.send(told.err().map(|error| error.kind())).unwrap();
    }
}
