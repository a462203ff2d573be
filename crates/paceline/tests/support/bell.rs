//! A handler that waits for a bell, on a simulated set.

use std::{
    io,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc, Arc, Mutex,
    },
    thread::{self, ThreadId},
};

use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Builder, Context, Errand, Handle, InHandler, Interest, Next, Pool, Recall, Returned, Serve,
    SetKind,
};

use crate::support::Witness;

/// What a handler waits for.
#[derive(Default)]
pub struct Bell {
    pub rung: AtomicBool,
    recall: Mutex<Option<Recall>>,
}

impl Bell {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }

    pub fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        let recall = self.recall.lock().unwrap().clone();
        recall.iter().for_each(Recall::now);
    }

    /// Waits for the bell inside a handler.
    pub fn wait(&self, cx: &mut impl InHandler, errand: Errand<'_>) -> io::Result<Returned> {
        *self.recall.lock().unwrap() = Some(cx.recall()?);
        cx.serve_until(errand, || self.is_rung())
    }

    pub fn has_waiter(&self) -> bool {
        self.recall.lock().unwrap().is_some()
    }
}

/// A pool of so many threads on a simulated set.
pub fn pool(threads: usize) -> (Pool, Simulation, Witness) {
    pool_of(Pool::builder().threads(threads))
}

pub fn pool_of(builder: Builder) -> (Pool, Simulation, Witness) {
    let (world, witness) = (Simulation::new(1), Witness::default());
    let set = SetKind::Simulated(world.clone());
    let pool = builder.handle_set(set).observer(witness.clone());
    (pool.build().unwrap(), world, witness)
}

/// A handle that calls `ready` for every byte.
pub fn on_byte(
    pool: &Pool,
    world: &Simulation,
    mut ready: impl FnMut(&mut Context<'_, SimStream>) + Send + 'static,
) -> (Handle, SimPeer) {
    let (stream, peer) = world.stream();
    let ready = move |cx: &mut Context<'_, SimStream>| {
        if cx.read(&mut [0; 1])? == 0 {
            return Ok(Next::Close);
        }
        ready(cx);
        Ok(Next::Continue)
    };
    let handle = pool.register(stream, Interest::READ, ready).unwrap();
    (handle, peer)
}

/// A handle whose handler waits for `bell`, and tells how that ended, and on which thread.
pub fn waiter(
    pool: &Pool,
    world: &Simulation,
    bell: &Arc<Bell>,
    errand: Errand<'static>,
) -> (SimPeer, mpsc::Receiver<(Returned, ThreadId)>) {
    let (tell, told) = mpsc::channel();
    let bell = Arc::clone(bell);
    let (_, peer) = on_byte(pool, world, move |cx| {
        let returned = bell.wait(cx, errand).unwrap();
        tell.send((returned, thread::current().id())).unwrap();
    });
    peer.send(b"x");
    (peer, told)
}

pub const ANY: Errand<'static> = Errand {
    within: None,
    serve: Serve::Any,
    own: None,
};
