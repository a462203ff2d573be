//! Handlers that wait for something of their own, under every schedule: who is recalled comes back,
//! wherever it is.

use paceline::{Errand, InHandler, Recall, Returned, Serve};
use shuttle::sync::{
    atomic::{AtomicBool, Ordering},
    Mutex,
};

use super::*;

/// What a handler waits for.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    recall: Mutex<Option<Recall>>,
}

impl Bell {
    fn wait(&self, cx: &mut impl InHandler) -> io::Result<Returned> {
        *self.recall.lock().unwrap() = Some(cx.recall()?);
        let errand = Errand {
            within: None,
            serve: Serve::Any,
            own: None,
        };
        cx.serve_until(errand, || self.rung.load(Ordering::Acquire))
    }

    /// As soon as somebody waits, or is about to.
    fn ring(&self) {
        let recall = loop {
            if let Some(recall) = self.recall.lock().unwrap().clone() {
                break recall;
            }
            thread::yield_now();
        };
        self.rung.store(true, Ordering::Release);
        recall.now();
    }
}

/// B2, W1: the standby has looked while the handler ran, so that its thread, back at the front, has
/// a look of its own before it sleeps there. That look may use up the wake by which it is recalled.
#[test]
fn shuttle_recall_against_a_look() {
    check(|| {
        let world = world();
        let pool = pool_on(&world, 2);
        let bell = Arc::new(Bell::default());
        let (here, clock) = (Arc::clone(&bell), world.clone());
        let (stream, peer) = world.stream();
        let handler = move |cx: &mut Context<'_, SimStream>| {
            if cx.read(&mut [0; 8])? == 0 {
                return Ok(Next::Close);
            }
            clock.clock().advance(TICK);
            (0..4).for_each(|_| thread::yield_now());
            assert_eq!(here.wait(cx)?, Returned::Done);
            cx.write_all(b"y").map(|()| Next::Continue)
        };
        pool.register(stream, Interest::READ, handler).unwrap();
        one_shot::settle(&world, 2);
        peer.send(b"x");
        bell.ring();
        assert_eq!(peer.wait_for(1), b"y");
        peer.finish();
        peer.wait_closed();
        assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
    });
}
