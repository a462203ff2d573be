//! Time-outs: handles at which nothing happens are closed, and no others. Most of it on a clock
//! that stands still until the test moves it.

use std::{
    io,
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Mutex,
    },
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{self, advance, asleep, pause, serve_all, Scene},
    told, wait_until, LONG,
};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Closed, ConcurrentContext, Context, EventHandler, GroupHandler, Handle, Interest, Members,
    Next, Pool,
};

const MS: Duration = Duration::from_millis(1);

/// A connection that is sent back, and how it ends.
fn told_echo(scene: &Scene) -> (Handle, SimPeer, mpsc::Receiver<Closed>) {
    let (handler, end) = told(by_hand::echo);
    let (stream, peer) = scene.world.stream();
    let handle = scene.pool.register(stream, Interest::READ, handler);
    (handle.unwrap(), peer, end)
}

/// The idle time-out: a handle that nothing happens at is closed; whatever happens puts it off.
#[test]
fn idle_handles_are_closed() {
    let scene = Scene::unobserved();
    let (handle, peer, end) = told_echo(&scene);
    handle.set_timeout(Some(100 * MS)).unwrap();
    for _ in 0..5 {
        advance(&scene, 99 * MS);
        peer.send(b"x");
        assert_eq!(serve_all(&scene.pool), 1);
    }
    advance(&scene, 99 * MS);
    assert_eq!(serve_all(&scene.pool), 0);
    assert!(end.try_recv().is_err());
    advance(&scene, MS);
    serve_all(&scene.pool);
    assert!(matches!(end.try_recv(), Ok(Closed::TimedOut)));
    assert!(peer.is_closed_by_pool());
    assert_eq!(scene.pool.snapshot().timed_out, 1);
    assert_eq!(
        handle.set_timeout(None).unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
}

/// Taken back, it is over; set again, it begins anew.
#[test]
fn a_timeout_can_be_taken_back() {
    let scene = Scene::unobserved();
    let (handle, _peer, end) = told_echo(&scene);
    handle.set_timeout(Some(10 * MS)).unwrap();
    handle.set_timeout(None).unwrap();
    advance(&scene, 100 * MS);
    serve_all(&scene.pool);
    handle.set_timeout(Some(10 * MS)).unwrap();
    advance(&scene, 5 * MS);
    handle.set_timeout(Some(10 * MS)).unwrap();
    advance(&scene, 9 * MS);
    serve_all(&scene.pool);
    assert!(end.try_recv().is_err());
    advance(&scene, MS);
    serve_all(&scene.pool);
    assert!(matches!(end.try_recv(), Ok(Closed::TimedOut)));
}

/// A handler that takes longer than the time-out is not idle, and neither is a handle that was
/// suspended.
#[test]
fn busy_or_suspended_is_not_idle() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 2);
        let (inside, entered) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let (handler, end) = told(move |cx: &mut Context<'_, _>| {
            inside.send(()).unwrap();
            gate.recv().unwrap();
            by_hand::echo(cx)
        });
        let (stream, peer) = world.stream();
        let handle = pool.register(stream, Interest::READ, handler).unwrap();
        handle.set_timeout(Some(50 * MS)).unwrap();
        peer.send(b"x");
        entered.recv_timeout(LONG).unwrap();
        for _ in 0..10 {
            wait_until(|| world.clock().asleep() >= 1);
            world.clock().advance(20 * MS);
        }
        handle.suspend().unwrap();
        go.send(()).unwrap();
        assert_eq!(peer.wait_for(1), b"x");
        for _ in 0..10 {
            wait_until(|| world.clock().asleep() == 2);
            world.clock().advance(20 * MS);
        }
        assert!(end.try_recv().is_err());
        handle.resume().unwrap();
        for _ in 0..6 {
            wait_until(|| world.clock().asleep() == 2);
            world.clock().advance(20 * MS);
        }
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::TimedOut)));
    });
}

/// The same for a member of a group.
#[test]
fn idle_members_are_closed() {
    struct Echo(mpsc::Sender<Closed>);
    impl GroupHandler<SimStream> for Echo {
        fn ready(
            &mut self,
            cx: &mut Context<'_, SimStream>,
            _: &mut Members<'_, SimStream>,
        ) -> io::Result<Next> {
            by_hand::echo(cx)
        }
        fn closed(&mut self, _: &Handle, why: Closed, _: &mut Members<'_, SimStream>) {
            self.0.send(why).unwrap();
        }
    }
    let scene = Scene::unobserved();
    let (tell, end) = mpsc::channel();
    let group = scene.pool.group(Echo(tell)).unwrap();
    let (stream, peer) = scene.world.stream();
    let member = group.register(stream, Interest::READ).unwrap();
    serve_all(&scene.pool);
    member.set_timeout(Some(100 * MS)).unwrap();
    for _ in 0..5 {
        advance(&scene, 99 * MS);
        peer.send(b"x");
        serve_all(&scene.pool);
        assert_eq!(peer.received(), b"x");
    }
    advance(&scene, 99 * MS);
    serve_all(&scene.pool);
    assert!(end.try_recv().is_err());
    advance(&scene, MS);
    serve_all(&scene.pool);
    assert!(matches!(end.try_recv(), Ok(Closed::TimedOut)));
}

/// Who uses a concurrent handle does not own it; that it is used counts all the same.
#[test]
fn used_is_not_idle() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (inside, entered) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let (inside, gate) = (Mutex::new(inside), Mutex::new(gate));
        let handler = move |_: &mut ConcurrentContext<'_, SimStream>| {
            inside.lock().unwrap().send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
            Ok(Next::Continue)
        };
        let (stream, _peer) = scene.world.stream();
        let handle = scene
            .pool
            .register_concurrent(stream, Interest::NONE, handler)
            .unwrap();
        handle.set_timeout(Some(50 * MS)).unwrap();
        handle.notify().unwrap();
        let user = scene.joined();
        entered.recv_timeout(LONG).unwrap();
        for _ in 0..5 {
            advance(&scene, 60 * MS);
            serve_all(&scene.pool);
        }
        assert_eq!(scene.pool.snapshot().timed_out, 0);
        go.send(()).unwrap();
        wait_until(|| {
            advance(&scene, 20 * MS);
            scene.pool.snapshot().timed_out == 1
        });
        let _ = scene.pool.shutdown(Duration::ZERO);
        user.join().unwrap().unwrap();
    });
}

/// The time of a suspended handle does not pass: whatever its time-out, it is whole again when it
/// is resumed.
#[test]
fn suspended_time_does_not_count() {
    for (idle, expected) in [(100 * MS, 0), (Duration::ZERO, 1)] {
        let scene = Scene::unobserved();
        let (handle, _peer, end) = told_echo(&scene);
        handle.suspend().unwrap();
        handle.set_timeout(Some(idle)).unwrap();
        advance(&scene, 99 * MS);
        serve_all(&scene.pool);
        assert!(end.try_recv().is_err(), "suspended, and closed");
        handle.resume().unwrap();
        serve_all(&scene.pool);
        advance(&scene, 11 * MS);
        serve_all(&scene.pool);
        assert_eq!(end.try_iter().count(), expected, "{idle:?}");
    }
}

/// Nobody was free for longer than the time-out, and more handles have input than one look into the
/// set brings. Those that it does not bring are not idle.
#[test]
fn input_that_waits_is_not_idle() {
    const HANDLES: usize = 300;
    let pool = Pool::builder().threads(0).build().unwrap();
    let read = Arc::new(AtomicUsize::new(0));
    let mut peers = Vec::new();
    for _ in 0..HANDLES {
        let (near, far) = UnixStream::pair().unwrap();
        let counted = Arc::clone(&read);
        let handler = move |cx: &mut Context<'_, UnixStream>| {
            cx.read(&mut [0; 8])?;
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(Next::Continue)
        };
        let handle = pool.register(near, Interest::READ, handler).unwrap();
        handle.set_timeout(Some(20 * MS)).unwrap();
        peers.push(far);
    }
    peers
        .iter()
        .for_each(|mut peer| peer.write_all(b"x").unwrap());
    pause(40 * MS);
    serve_all(&pool);
    // Whoever was read may be idle again by now, on a busy machine.
    assert_eq!(read.load(Ordering::SeqCst), HANDLES);
}

/// Sends back what comes. One that may stay takes its time-out back before anything else, and
/// tells.
struct Guest {
    may_stay: bool,
    tell: mpsc::Sender<()>,
}

impl EventHandler<TcpStream> for Guest {
    fn speaks_first(&self) -> bool {
        self.may_stay
    }

    fn connected(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        cx.handle().set_timeout(None)?;
        let _ = self.tell.send(());
        Ok(Next::Continue)
    }

    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let mut byte = [0];
        match cx.read(&mut byte)? {
            0 => Ok(Next::Close),
            _ => cx.write_all(&byte).map(|()| Next::Continue),
        }
    }
}

impl GroupHandler<TcpStream> for Guest {
    fn ready(
        &mut self,
        cx: &mut Context<'_, TcpStream>,
        _: &mut Members<'_, TcpStream>,
    ) -> io::Result<Next> {
        EventHandler::ready(self, cx)
    }
}

/// Reads a byte of a connection, or its end.
fn read_one(mut stream: &TcpStream) -> Option<u8> {
    let mut byte = [0];
    let count = stream.read(&mut byte).expect("a byte or the end");
    (count == 1).then_some(byte[0])
}

/// A client that connects and says nothing was never closed: its handler, which would have set a
/// time-out, was never called. Now what a listener accepts has the pool's from its first moment on,
/// alone or in a group; and a handler that gives its handle another one before has its way.
#[test]
fn what_is_accepted_may_not_be_idle() {
    bounded(|| {
        // Long enough for the first one to be greeted. (It is the way from its accept to that, on a
        // busy machine.)
        let pool = Pool::builder().threads(2).idle_timeout(500 * MS);
        let pool = pool.build().unwrap();
        let (tell, greeted) = mpsc::channel();
        let guest = move |may_stay| {
            let tell = tell.clone();
            Some(Guest { may_stay, tell })
        };
        let (mut may_stay, of_group) = (true, guest.clone());
        let alone = pool.listen("127.0.0.1:0", move |_, _| {
            guest(std::mem::take(&mut may_stay))
        });
        let grouped = pool
            .listener()
            .bind_groups("127.0.0.1:0", move |_, _| of_group(false));
        let [alone, grouped] = [alone, grouped].map(|listener| listener.unwrap().local_addr());
        let mut stays = TcpStream::connect(alone).unwrap();
        greeted.recv_timeout(LONG).expect("the first is greeted");
        let others = [alone, grouped].map(|address| TcpStream::connect(address).unwrap());
        assert_eq!(others.each_ref().map(read_one), [None, None]);
        wait_until(|| pool.snapshot().timed_out == 2);
        stays.write_all(b"x").unwrap();
        assert_eq!(read_one(&stays), Some(b'x'));
    });
}

/// What would close everything at once is refused.
#[test]
fn an_idle_timeout_of_nothing_is_refused() {
    let error = Pool::builder().idle_timeout(Duration::ZERO).build().err();
    let error = error.expect("refused");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("idle_timeout"), "{error}");
}
