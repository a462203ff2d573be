//! The scratch buffers of a thread: each guard has memory of its own, and the memory is used again.

use std::{
    sync::{mpsc, Arc, Mutex},
    thread,
};

use crate::support::{
    bounded,
    by_hand::{serve_all, Scene},
};
use paceline::{scratch, simulated::SimStream, Context, Interest, Next, Scratch};

const LENGTH: usize = 64 * 1024;

/// Where a buffer begins.
fn place(buffer: &Scratch) -> usize {
    buffer.as_ptr() as usize
}

/// A handler inside another one must not write into the outer one's buffer: guards that live at the
/// same time never overlap, in whatever order they come and go, and more of them than are kept.
#[test]
fn guards_that_live_together_do_not_overlap() {
    bounded(|| {
        let mut guards: Vec<Scratch> = Vec::new();
        for round in 0..60_u8 {
            match round % 3 {
                2 => drop(guards.remove(usize::from(round) % guards.len())),
                _ => {
                    let mut fresh = scratch();
                    assert_eq!(fresh.len(), LENGTH);
                    fresh.fill(round);
                    guards.push(fresh);
                }
            }
            let mut places: Vec<_> = guards.iter().map(place).collect();
            places.sort_unstable();
            assert!(places.windows(2).all(|two| two[0] + LENGTH <= two[1]));
        }
        for guard in &guards {
            assert!(guard.iter().all(|byte| *byte == guard[0]), "overwritten");
        }
        assert!(guards.len() > 16);
    });
}

/// What was given back is lent again: no memory is asked for per request, at each depth of nesting.
#[test]
fn dropped_guards_are_used_again() {
    bounded(|| {
        let depth = |count: usize| -> Vec<usize> {
            let guards: Vec<_> = (0..count).map(|_| scratch()).collect();
            let mut places: Vec<_> = guards.iter().map(place).collect();
            places.sort_unstable();
            places
        };
        for count in 1..=4 {
            let first = depth(count);
            // Others ask for memory of that size meanwhile; they must not get these.
            let others: Vec<_> = (0..8).map(|_| vec![0_u8; LENGTH]).collect();
            assert!((0..100).all(|_| depth(count) == first), "{count}");
            drop(others);
        }
    });
}

/// It belongs to the thread: two threads never share one, and a thread may end while it holds some.
#[test]
fn threads_do_not_share() {
    bounded(|| {
        let (tell, told) = mpsc::channel();
        let mine = scratch();
        let other = thread::spawn(move || {
            let (first, second) = (scratch(), scratch());
            tell.send([place(&first), place(&second)]).unwrap();
            // The last of its thread-local variables may be gone when this one is dropped.
            thread_local!(static HELD: Mutex<Option<Scratch>> = const { Mutex::new(None) });
            HELD.with(|held| *held.lock().unwrap() = Some(first));
        });
        let places = told.recv().unwrap();
        assert!(!places.contains(&place(&mine)));
        other.join().unwrap();
    });
}

/// What it is for: a handler reads into it with its context, answers from it, and the next handler
/// on that thread has the same memory, also if the first one panicked with the guard in its hands;
/// one that runs while the first one is still inside has another.
#[test]
fn handlers_read_into_it() {
    bounded(|| {
        let scene = Scene::unobserved();
        let places = Arc::new(Mutex::new(Vec::new()));
        let echo = {
            let places = Arc::clone(&places);
            move |cx: &mut Context<'_, SimStream>| {
                let mut buffer = scratch();
                places.lock().unwrap().push(place(&buffer));
                let count = cx.read(&mut buffer)?;
                assert_ne!(&buffer[..count], b"panic");
                cx.write_all(&buffer[..count])?;
                Ok(Next::Continue)
            }
        };
        let peers = [(); 3].map(|()| scene.serve(echo.clone()));
        peers[0].send(b"panic");
        peers[1].send(b"hello");
        peers[2].send(&[7; 50]);
        serve_all(&scene.pool);
        assert_eq!(peers[1].received(), b"hello");
        assert_eq!(peers[2].received(), [7; 50]);
        assert!(peers[0].is_closed_by_pool());

        // A handler that ends another handle is told `closed` of it inside; that one reads, too.
        let (stream, _peer) = scene.world.stream();
        let inner = Inner(Arc::clone(&places));
        let inner = scene.pool.register(stream, Interest::READ, inner).unwrap();
        let of_outer = Arc::clone(&places);
        let outer = scene.serve(move |cx: &mut Context<'_, SimStream>| {
            let mut buffer = scratch();
            let count = cx.read(&mut buffer)?;
            let before = of_outer.lock().unwrap().len();
            inner.close()?;
            assert_ne!(of_outer.lock().unwrap()[before], place(&buffer));
            cx.write_all(&buffer[..count])?;
            Ok(Next::Close)
        });
        outer.send(b"outer");
        serve_all(&scene.pool);
        assert_eq!(outer.received(), b"outer");
        let places = places.lock().unwrap();
        let outermost = &places[..places.len() - 1];
        assert!(outermost.iter().all(|place| *place == places[0]));
    });
}

/// Overwrites a buffer of its own when it ends.
struct Inner(Arc<Mutex<Vec<usize>>>);

impl paceline::EventHandler<SimStream> for Inner {
    fn ready(&mut self, _: &mut Context<'_, SimStream>) -> std::io::Result<Next> {
        Ok(Next::Continue)
    }

    fn closed(&mut self, _: paceline::Closed) {
        let mut buffer = scratch();
        buffer.fill(1);
        self.0.lock().unwrap().push(place(&buffer));
    }
}
