//! H2: a change of interest, at whatever moment, loses no event.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
    thread,
};

use crate::support::{
    bounded,
    by_hand::{self, serve_all, Scene},
};
use paceline::Interest;

/// The manual of every edge-triggered reactor says that an edge comes once: who drops it has lost
/// it (tokio 6133 and kaappi 1462 are of that family). While one thread is about to visit a handle,
/// another one loses and regains interest in it. Whatever the visit finds, the event is there in
/// the end.
#[test]
fn interest_lost_during_a_visit_keeps_the_event() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (stream, peer) = scene.world.stream();
        let handle = scene
            .pool
            .register(stream, Interest::READ, by_hand::echo)
            .unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let toggler = thread::spawn({
            let done = Arc::clone(&done);
            move || {
                while !done.load(Ordering::Relaxed) {
                    handle.set_interest(Interest::NONE).unwrap();
                    handle.set_interest(Interest::READ).unwrap();
                }
            }
        });
        for _ in 0..80_000 {
            peer.send(b"x");
            while peer.received().is_empty() {
                serve_all(&scene.pool);
            }
        }
        done.store(true, Ordering::Relaxed);
        toggler.join().unwrap();
    });
}
