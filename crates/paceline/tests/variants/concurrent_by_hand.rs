//! Concurrent handles, stepped by hand on the simulated set: what one call finds, and what it
//! leaves for the next.

use std::{
    io::{self, Read},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Mutex,
    },
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{serve_all, Scene},
    LONG,
};
use paceline::{
    simulated::{SimStream, Simulation},
    ConcurrentContext, Interest, Next, Panics, Pool, SetKind,
};

type Cx<'c> = ConcurrentContext<'c, SimStream>;

/// A call knows whether it was asked for.
#[test]
fn called_for_input_or_asked_for() {
    let scene = Scene::unobserved();
    let (stream, peer) = scene.world.stream();
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let handler = move |cx: &mut Cx<'_>| {
        tell.lock().unwrap().send(cx.is_notified()).unwrap();
        cx.try_read(|mut stream| stream.read(&mut [0; 8]))?;
        Ok(Next::Continue)
    };
    let handle = scene
        .pool
        .register_concurrent(stream, Interest::READ, handler)
        .unwrap();
    peer.send(b"x");
    serve_all(&scene.pool);
    assert!(!told.try_iter().any(|notified| notified), "for input");
    handle.notify().unwrap();
    serve_all(&scene.pool);
    assert_eq!(Vec::from_iter(told.try_iter()), [true]);
}

/// What an operation says is told as it is; only an interrupted one is repeated.
#[test]
fn operations_say_what_they_found() {
    let (scene, (tell, told)) = (Scene::unobserved(), mpsc::channel());
    let (stream, peer) = scene.world.stream();
    let tell = Mutex::new(tell);
    let handler = move |cx: &mut Cx<'_>| {
        let mut attempts = 0;
        let repeated = cx.try_read(|_| {
            attempts += 1;
            match attempts {
                1 => Err(io::ErrorKind::Interrupted.into()),
                _ => Ok(()),
            }
        });
        let refused = cx.try_write(|_| Err::<(), _>(io::ErrorKind::ConnectionRefused.into()));
        tell.lock()
            .unwrap()
            .send((attempts, repeated, refused))
            .unwrap();
        Ok(Next::Close)
    };
    scene
        .pool
        .register_concurrent(stream, Interest::READ, handler)
        .unwrap();
    peer.send(b"x");
    serve_all(&scene.pool);
    let (attempts, repeated, refused) = told.try_recv().unwrap();
    assert_eq!((attempts, repeated.ok()), (2, Some(())));
    assert_eq!(
        refused.unwrap_err().kind(),
        io::ErrorKind::ConnectionRefused
    );
}

/// A call may take everything that is there: then nobody is called until more comes, and then
/// somebody is.
#[test]
fn one_call_takes_everything() {
    let (scene, calls) = (Scene::unobserved(), Arc::new(AtomicUsize::new(0)));
    let (stream, peer) = scene.world.stream();
    let counted = Arc::clone(&calls);
    let handler = move |cx: &mut Cx<'_>| {
        counted.fetch_add(1, Ordering::SeqCst);
        loop {
            cx.try_read(|mut stream| stream.read(&mut [0; 1]))?;
        }
    };
    scene
        .pool
        .register_concurrent(stream, Interest::READ, handler)
        .unwrap();
    for round in 1..=3 {
        peer.send(b"abc");
        serve_all(&scene.pool);
        assert_eq!(calls.load(Ordering::SeqCst), round);
    }
}

/// H2: something comes while one thread is inside and nobody else shall be called. What that thread
/// puts back does not take it away.
#[test]
fn putting_back_takes_nothing_away() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (stream, peer) = scene.world.stream();
        let (inside, entered) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let (inside, gate, tell) = (Mutex::new(inside), Mutex::new(gate), Mutex::new(tell));
        let handler = move |cx: &mut Cx<'_>| {
            inside.lock().unwrap().send(()).unwrap();
            let _ = gate.lock().unwrap().recv();
            let mut byte = [0];
            cx.try_read(|mut stream| stream.read(&mut byte))?;
            tell.lock().unwrap().send(byte[0]).unwrap();
            Ok(Next::Continue)
        };
        let handle = scene
            .pool
            .register_concurrent(stream, Interest::READ, handler)
            .unwrap();
        let user = scene.joined();
        peer.send(b"1");
        entered.recv_timeout(LONG).unwrap();
        handle.set_interest(Interest::NONE).unwrap();
        peer.send(b"2");
        // It has come, and nobody is called for it.
        assert_eq!(serve_all(&scene.pool), 0);
        go.send(()).unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(b'1'));
        handle.set_interest(Interest::READ).unwrap();
        go.send(()).unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(b'2'));
        drop(go);
        let _ = scene.pool.shutdown(Duration::ZERO);
        user.join().unwrap().unwrap();
    });
}

/// "Would block" of the source closes nothing. Another error does, though the source had run dry;
/// and so does a "would block" that came from elsewhere: nobody waits for it.
#[test]
fn only_the_sources_would_block_is_harmless() {
    type Handler = fn(&mut Cx<'_>) -> io::Result<Next>;
    fn read(cx: &mut Cx<'_>) -> io::Result<usize> {
        cx.try_read(|mut stream| stream.read(&mut [0; 8]))
    }
    let cases: [(Handler, u64); 3] = [
        (|cx| read(cx).map(|_| Next::Continue), 0),
        (
            |cx| {
                while read(cx).is_ok() {}
                Err(io::Error::other("broken"))
            },
            1,
        ),
        (|_| Err(io::ErrorKind::WouldBlock.into()), 1),
    ];
    for (handler, failed) in cases {
        let scene = Scene::unobserved();
        let (stream, peer) = scene.world.stream();
        scene
            .pool
            .register_concurrent(stream, Interest::READ, handler)
            .unwrap();
        peer.send(b"x");
        serve_all(&scene.pool);
        assert_eq!(scene.pool.snapshot().failed, failed);
    }
}

/// H2: who leaves without having looked, also by a panic, puts back what was ready: the next call
/// is for that.
#[test]
fn who_has_not_looked_puts_it_back() {
    let world = Simulation::new(1);
    let pool = Pool::builder()
        .threads(0)
        .handle_set(SetKind::Simulated(world.clone()))
        .panics(Panics::Keep)
        .build()
        .unwrap();
    let (stream, peer) = world.stream();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |cx: &mut Cx<'_>| {
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 => {}
            1 => panic!("the second time"),
            _ => {
                cx.try_read(|mut stream| stream.read(&mut [0; 8]))?;
            }
        }
        Ok(Next::Continue)
    };
    pool.register_concurrent(stream, Interest::READ, handler)
        .unwrap();
    peer.send(b"x");
    serve_all(&pool);
    // Two that do not look, one that reads, one that finds nothing more.
    assert_eq!(calls.load(Ordering::SeqCst), 4);
}
