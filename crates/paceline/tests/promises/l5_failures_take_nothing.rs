//! L5: what a user's code does wrong costs its own handle and nothing else: neither the lead, nor a
//! thread, nor another handle. E4: and the handle is closed, not left asleep.

use std::{
    env,
    error::Error,
    fmt,
    io::{self, Read, Write},
    net::TcpStream,
    panic::panic_any,
    process::Command,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc, Arc,
    },
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{serve_all, turn, wait_asleep, Scene},
    name_of, told, Witness, LONG,
};
use paceline::{
    observe::Role,
    simulated::{SimPeer, SimStream},
    Closed, Context, EventHandler, Handle, Interest, Next, Pool,
};
use paceline::{Descriptor, Source};

/// The paper's decorator (E4): a handler that fails skips the line that reactivates its handle,
/// which sleeps for ever; and where the exception goes on, it takes the thread with it. Now the
/// thread that called the handler goes on with the lead in its hands; the handler is told why its
/// handle was closed.
#[test]
fn panicking_handler_takes_only_its_handle() {
    bounded(|| {
        let scene = Scene::unobserved();
        let bystander = scene.echo();
        let (peer, end) = told_on(&scene, |_| panic!("on purpose"));
        peer.send(b"x");
        bystander.send(b"1");
        let follower = turn(turn(scene.pool.enter().unwrap()));
        let seen = scene.pool.snapshot();
        assert_eq!((seen.panics, seen.leads_taken_back), (1, 2));
        assert_eq!(reason(&end), "Panicked(\"on purpose\")");
        assert!(peer.is_closed_by_pool());
        assert_eq!(bystander.received(), b"1");
        bystander.send(b"2");
        drop(turn(follower));
        assert_eq!(bystander.received(), b"2");
    });
}

/// A pool that loses a thread per panic serves until the last one is gone. Two threads survive two
/// hundred panics, and at the end one leads and the other sleeps, as at the beginning.
#[test]
fn no_thread_is_lost_by_panics() {
    bounded(|| {
        const PANICS: u64 = 200;
        let witness = Witness::default();
        let scene = Scene::with_threads(2, witness.clone());
        let bystander = scene.echo();
        for _ in 0..PANICS {
            let (peer, end) = told_on(&scene, |_| panic!("on purpose"));
            peer.send(b"x");
            bystander.send(b"1");
            assert_eq!(bystander.wait_for(1), b"1");
            assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Panicked(_))));
            peer.wait_closed();
        }
        assert_eq!(scene.pool.snapshot().panics, PANICS);
        wait_asleep(&scene.pool, 1);
        witness.wait_for(Role::Leader, 1);
        assert_eq!(witness.count(Role::Gone), 0);
        assert_eq!(witness.most_leaders(), 1);
    });
}

/// What a panic says may be text of two kinds, or anything. It may even be a value whose destructor
/// panics again, outside of the first net, with another value of that kind: each is told, and does
/// no harm.
#[test]
fn panics_of_every_kind_are_told() {
    bounded(|| {
        let kinds: [(fn(), &str); 4] = [
            (|| panic!("text"), "Panicked(\"text\")"),
            (|| panic!("{}", 7), "Panicked(\"7\")"),
            (|| panic_any(7), "Panicked(\"a panic without a message\")"),
            (
                || panic_any(PanicsOnDrop(PAYLOADS_IN_A_ROW)),
                "Panicked(\"a panic without a message\")",
            ),
        ];
        let scene = Scene::unobserved();
        let bystander = scene.echo();
        for (panics, expected) in kinds {
            let (peer, end) = told_on(&scene, move |_| {
                panics();
                Ok(Next::Continue)
            });
            peer.send(b"x");
            bystander.send(b"1");
            assert_eq!(serve_all(&scene.pool), 2);
            assert_eq!(reason(&end), expected);
            assert!(peer.is_closed_by_pool());
            assert_eq!(bystander.received(), b"1");
        }
        assert_eq!(scene.pool.snapshot().panics, 4);
    });
}

const PAYLOADS_IN_A_ROW: u32 = 3;

/// A value whose destructor panics, with another one of the kind.
struct PanicsOnDrop(u32);

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        if let Some(left) = self.0.checked_sub(1) {
            panic_any(PanicsOnDrop(left));
        }
    }
}

/// The hook that is told about the end fails itself: after a proper end, after a panic, and in the
/// middle of somebody else's call of `close`, who must not be hit by it. The descriptor is closed
/// in each case.
#[test]
fn panicking_closed_takes_nothing() {
    bounded(|| {
        let scene = Scene::unobserved();
        let bystander = scene.echo();
        let calls = Arc::new(AtomicUsize::new(0));

        let (peer, _) = sore(&scene, || Ok(Next::Close), &calls);
        peer.send(b"x");
        bystander.send(b"1");
        assert_eq!(serve_all(&scene.pool), 2);
        assert!(peer.is_closed_by_pool());
        assert_eq!(bystander.received(), b"1");
        assert_eq!(scene.pool.snapshot().panics, 1);

        let (peer, _) = sore(&scene, || panic!("first"), &calls);
        peer.send(b"x");
        bystander.send(b"2");
        assert_eq!(serve_all(&scene.pool), 2);
        assert!(peer.is_closed_by_pool());
        assert_eq!(bystander.received(), b"2");
        assert_eq!(scene.pool.snapshot().panics, 3);

        let (peer, handle) = sore(&scene, || Ok(Next::Continue), &calls);
        handle.close().unwrap();
        assert!(peer.is_closed_by_pool());
        assert_eq!(scene.pool.snapshot().panics, 4);
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    });
}

/// At a shutdown every handle is told, whatever the others do.
#[test]
fn panicking_closed_does_not_stop_a_shutdown() {
    bounded(|| {
        let scene = Scene::with_threads(2, Witness::default());
        let calls = Arc::new(AtomicUsize::new(0));
        let peers: Vec<_> = (0..10)
            .map(|_| sore(&scene, || Ok(Next::Continue), &calls).0)
            .collect();
        let report = scene.pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        assert_eq!(calls.load(Ordering::Relaxed), 10);
        assert_eq!(scene.pool.snapshot().panics, 10);
        assert!(peers.iter().all(SimPeer::is_closed_by_pool));
    });
}

/// A connection whose handler panics when it is told about its end; `calls` counts how often it is
/// told.
fn sore(
    scene: &Scene,
    ready: fn() -> io::Result<Next>,
    calls: &Arc<AtomicUsize>,
) -> (SimPeer, Handle) {
    let (stream, peer) = scene.world.stream();
    let handler = Sore {
        ready,
        calls: Arc::clone(calls),
    };
    let handle = scene.pool.register(stream, Interest::READ, handler);
    (peer, handle.unwrap())
}

struct Sore {
    ready: fn() -> io::Result<Next>,
    calls: Arc<AtomicUsize>,
}

impl<S> EventHandler<S> for Sore {
    fn ready(&mut self, _: &mut Context<'_, S>) -> io::Result<Next> {
        (self.ready)()
    }

    fn closed(&mut self, _: Closed) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        panic!("closed fails");
    }
}

/// Destructors panic too, the handler's as well as the source's: caught and counted, and the slot
/// is free.
#[test]
fn panicking_drop_takes_nothing() {
    bounded(|| {
        let scene = Scene::unobserved();
        let bystander = scene.echo();

        let grenade = Grenade;
        let handler = move |_: &mut Context<'_, SimStream>| {
            let _held = &grenade;
            Ok(Next::Close)
        };
        let peer = scene.serve(handler);
        serve_beside(&scene, &peer, &bystander);
        assert_eq!(scene.pool.snapshot().panics, 1);

        let (stream, peer) = scene.world.stream();
        let source = Explosive {
            stream,
            _drop: Grenade,
        };
        let handler = |_: &mut Context<'_, Explosive>| Ok(Next::Close);
        scene
            .pool
            .register(source, Interest::READ, handler)
            .unwrap();
        serve_beside(&scene, &peer, &bystander);
        assert_eq!(scene.pool.snapshot().panics, 2);
    });
}

/// Sends to both; both are served, and the first one is closed.
fn serve_beside(scene: &Scene, peer: &SimPeer, bystander: &SimPeer) {
    peer.send(b"x");
    bystander.send(b"x");
    assert_eq!(serve_all(&scene.pool), 2);
    assert!(peer.is_closed_by_pool());
    assert_eq!(bystander.received(), b"x");
}

/// Panics when it is dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        panic!("drop fails");
    }
}

/// A source whose drop panics.
struct Explosive {
    stream: SimStream,
    _drop: Grenade,
}

impl Source for Explosive {
    fn descriptor(&self) -> Descriptor<'_> {
        self.stream.descriptor()
    }
}

/// The two destructors of one registration panic: if the second one runs while the first one
/// unwinds, the language ends the whole process. Each must have a net of its own.
#[test]
fn both_drops_panicking_do_not_end_the_process() {
    in_a_child("both_drops_panicking_do_not_end_the_process", || {
        let scene = Scene::unobserved();
        let (stream, peer) = scene.world.stream();
        let source = Explosive {
            stream,
            _drop: Grenade,
        };
        let grenade = Grenade;
        let handler = move |_: &mut Context<'_, Explosive>| {
            let _held = &grenade;
            Ok(Next::Close)
        };
        scene
            .pool
            .register(source, Interest::READ, handler)
            .unwrap();
        peer.send(b"x");
        assert_eq!(serve_all(&scene.pool), 1);
        assert!(peer.is_closed_by_pool());
        assert_eq!(scene.pool.snapshot().panics, 2);
    });
}

/// A source's own methods are the user's code too. One that can't tell its descriptor any more
/// costs its own handle, not the process.
#[test]
fn panicking_source_does_not_end_the_process() {
    in_a_child("panicking_source_does_not_end_the_process", || {
        let scene = Scene::with_threads(2, Witness::default());
        let bystander = scene.echo();
        let (stream, peer) = scene.world.stream();
        let broken = Arc::new(AtomicBool::new(false));
        let source = Breaks {
            stream,
            broken: Arc::clone(&broken),
        };
        let handler = |_: &mut Context<'_, Breaks>| Ok(Next::Close);
        scene
            .pool
            .register(source, Interest::READ, handler)
            .unwrap();
        broken.store(true, Ordering::Relaxed);
        peer.send(b"x");
        peer.wait_closed();
        bystander.send(b"1");
        assert_eq!(bystander.wait_for(1), b"1");
    });
}

/// A source that can't tell its descriptor any more once it is broken.
struct Breaks {
    stream: SimStream,
    broken: Arc<AtomicBool>,
}

impl Source for Breaks {
    fn descriptor(&self) -> Descriptor<'_> {
        assert!(!self.broken.load(Ordering::Relaxed), "it is broken");
        self.stream.descriptor()
    }
}

/// Runs the test called `name` again in a process of its own, which may die of it.
fn in_a_child(name: &str, body: impl FnOnce() + Send + 'static) {
    const CHILD: &str = "PACELINE_TEST_CHILD";
    if env::var_os(CHILD).is_some() {
        return bounded(body);
    }
    let mut child = Command::new(env::current_exe().unwrap());
    let test = name_of(module_path!(), name);
    let ended = child
        .args(["--exact", &test])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{}: {said}{errors}", ended.status);
    assert!(said.contains("1 passed"), "{said}");
}

/// The maker of handlers panics, in any way: that one connection is refused, the listener goes on.
#[test]
fn panicking_maker_refuses_one_connection() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let mut made = 0;
        let listener = pool.listen("127.0.0.1:0", move |_, _| {
            made += 1;
            match made {
                1 => panic!("no handler"),
                2 => panic_any(PanicsOnDrop(PAYLOADS_IN_A_ROW)),
                _ => Some(|cx: &mut Context<'_, TcpStream>| {
                    let mut buffer = [0; 8];
                    let count = cx.read(&mut buffer)?;
                    cx.write_all(&buffer[..count])?;
                    Ok(Next::Continue)
                }),
            }
        });
        let address = listener.unwrap().local_addr();
        for refused in 1..=2 {
            let mut client = connect(address);
            assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
            let seen = pool.snapshot();
            assert_eq!((seen.accepted, seen.panics), (refused, refused));
        }
        for _ in 0..3 {
            let mut client = connect(address);
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
        let seen = pool.snapshot();
        assert_eq!((seen.accepted, seen.refused, seen.panics), (5, 2, 2));
    });
}

fn connect(address: std::net::SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client
}

/// An error that a handler returns closes its handle, and is told as it was.
#[test]
fn failing_handler_takes_only_its_handle() {
    bounded(|| {
        let scene = Scene::unobserved();
        let bystander = scene.echo();
        let (peer, end) = told_on(&scene, |_| Err(io::Error::other("on purpose")));
        serve_beside(&scene, &peer, &bystander);
        match end.try_recv().unwrap() {
            Closed::Failed(error) => assert_eq!(error.to_string(), "on purpose"),
            other => panic!("{other:?}"),
        }
        assert!(end.try_recv().is_err());
        assert_eq!(scene.pool.snapshot().panics, 0);
    });
}

/// "Would block" from the lent source means "nothing more now". From elsewhere it is an error like
/// any other: taken for the same, it would leave a handle asleep that no event will wake.
#[test]
fn would_block_of_ones_own_is_an_error() {
    bounded(|| {
        let scene = Scene::unobserved();
        let bystander = scene.echo();
        let (peer, end) = told_on(&scene, |_| Err(io::ErrorKind::WouldBlock.into()));
        serve_beside(&scene, &peer, &bystander);
        let why = reason(&end);
        assert!(
            why.contains("kind: WouldBlock, error: \"operation would block: not told"),
            "{why}"
        );

        // Also after the source has told something else since.
        let (peer, end) = told_on(&scene, |cx| {
            cx.read(&mut [0; 1])?;
            Err(io::ErrorKind::WouldBlock.into())
        });
        serve_beside(&scene, &peer, &bystander);
        let why = reason(&end);
        assert!(
            why.contains("kind: WouldBlock, error: \"operation would block: not told"),
            "{why}"
        );
    });
}

/// An error is user data as well: the one that is dropped by the pool, because the handler does not
/// want to be told, panics while it is dropped.
#[test]
fn error_that_panics_on_drop_takes_nothing() {
    bounded(|| {
        let scene = Scene::unobserved();
        let bystander = scene.echo();
        let handler = |_: &mut Context<'_, SimStream>| {
            Err::<Next, _>(io::Error::other(Malicious(PanicsOnDrop(1))))
        };
        let peer = scene.serve(handler);
        serve_beside(&scene, &peer, &bystander);
        assert_eq!(scene.pool.snapshot().panics, 1);

        // The same where the pool takes it for "nothing more now".
        let handler = |cx: &mut Context<'_, SimStream>| {
            while cx.read(&mut [0; 8]).is_ok() {}
            let malicious = Malicious(PanicsOnDrop(1));
            Err::<Next, _>(io::Error::new(io::ErrorKind::WouldBlock, malicious))
        };
        let peer = scene.serve(handler);
        serve_beside(&scene, &peer, &bystander);
        assert_eq!(scene.pool.snapshot().panics, 2);
    });
}

/// An error whose destructor panics.
struct Malicious(#[allow(dead_code, reason = "it is there to be dropped")] PanicsOnDrop);

impl Error for Malicious {}

impl fmt::Debug for Malicious {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malicious")
    }
}

impl fmt::Display for Malicious {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malicious")
    }
}

/// Every way to end, and each is told once and by its own name.
#[test]
fn closed_is_told_once_with_its_reason() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (finished, finished_end) = told_on(&scene, |_| Ok(Next::Close));
        let (failed, failed_end) = told_on(&scene, |_| Err(io::ErrorKind::NotFound.into()));
        let (panicked, panicked_end) = told_on(&scene, |_| panic!("p"));
        let (own, own_end) = told_on(&scene, |cx| {
            cx.handle().close()?;
            Ok(Next::Continue)
        });
        let (stream, requested) = scene.world.stream();
        let (handler, requested_end) = told(|_: &mut Context<'_, SimStream>| Ok(Next::Close));
        let handle = scene.pool.register(stream, Interest::READ, handler);
        let (shut, shut_end) = told_on(&scene, |_| Ok(Next::Continue));

        let peers = [&finished, &failed, &panicked, &own];
        peers.iter().for_each(|peer| peer.send(b"x"));
        handle.unwrap().close().unwrap();
        serve_all(&scene.pool);
        assert!(!shut.is_closed_by_pool());
        let report = scene.pool.shutdown(Duration::ZERO);
        assert_eq!(report.busy_handles, 0);

        assert_eq!(reason(&finished_end), "Finished");
        assert_eq!(reason(&failed_end), "Failed(Kind(NotFound))");
        assert_eq!(reason(&panicked_end), "Panicked(\"p\")");
        assert_eq!(reason(&own_end), "Requested");
        assert_eq!(reason(&requested_end), "Requested");
        assert_eq!(reason(&shut_end), "Shutdown");
        let all = peers.into_iter().chain([&requested, &shut]);
        assert!(all.into_iter().all(SimPeer::is_closed_by_pool));
    });
}

/// The one word that was told, now that the handler is gone.
fn reason(end: &mpsc::Receiver<Closed>) -> String {
    let all: Vec<_> = end.try_iter().map(|why| format!("{why:?}")).collect();
    assert_eq!(
        end.try_recv().unwrap_err(),
        mpsc::TryRecvError::Disconnected
    );
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().unwrap()
}

/// A connection with this handler: its peer, and the channel on which its end is told.
fn told_on<F>(scene: &Scene, ready: F) -> (SimPeer, mpsc::Receiver<Closed>)
where
    F: FnMut(&mut Context<'_, SimStream>) -> io::Result<Next> + Send + 'static,
{
    let (handler, end) = told(ready);
    let peer = scene.serve(handler);
    (peer, end)
}
