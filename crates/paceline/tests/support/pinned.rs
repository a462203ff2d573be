//! Handles that belong to certain threads, and tell who calls them.

use std::{
    io,
    sync::{mpsc, Arc},
    thread::{self, ThreadId},
    time::Duration,
};

use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Closed, Context, EventHandler, Handle, Interest, Next, Pool,
};

use crate::support::{by_hand::pause, gate::Gate, LONG};

/// Tells which thread calls it, and why it ended.
struct Telling {
    calls: mpsc::Sender<ThreadId>,
    ends: mpsc::Sender<Closed>,
}

impl EventHandler<SimStream> for Telling {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
        // All that is there, so that it is called once for it.
        loop {
            match cx.read(&mut [0; 1]) {
                Ok(0) => return Ok(Next::Close),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.calls.send(thread::current().id()).ok();
        Ok(Next::Continue)
    }

    fn expired(&mut self, cx: &mut Context<'_, SimStream>, _: Duration) -> io::Result<Next> {
        self.ready(cx)
    }

    fn closed(&mut self, why: Closed) {
        self.ends.send(why).ok();
    }
}

/// A handle, and what is known of it.
pub struct Guest {
    pub handle: Handle,
    pub peer: SimPeer,
    calls: mpsc::Receiver<ThreadId>,
    ends: mpsc::Receiver<Closed>,
}

impl Guest {
    /// Of this pool, pinned to these threads; to any if none is named.
    pub fn new(pool: &Pool, world: &Simulation, threads: &[ThreadId]) -> Self {
        let (stream, peer) = world.stream();
        let ((calls, told), (ends, ended)) = (mpsc::channel(), mpsc::channel());
        let handler = Telling { calls, ends };
        let handle = pool.register(stream, Interest::NONE, handler).unwrap();
        if !threads.is_empty() {
            handle.pin_to(threads).unwrap();
        }
        handle.set_interest(Interest::READ).unwrap();
        Self {
            handle,
            peer,
            calls: told,
            ends: ended,
        }
    }

    pub fn send(&self) -> &Self {
        self.peer.send(b"x");
        self
    }

    /// Who was called.
    pub fn called(&self) -> ThreadId {
        self.calls.recv_timeout(LONG).unwrap()
    }

    /// Nobody was, in a while.
    pub fn is_not_called(&self) -> bool {
        pause(Duration::from_millis(20));
        self.calls.try_recv().is_err()
    }

    pub fn end(&self) -> Closed {
        self.ends.recv_timeout(LONG).unwrap()
    }
}

/// Keeps a thread busy, in a handler that waits at the gate.
pub fn keep_busy(pool: &Pool, world: &Simulation, thread: ThreadId, gate: &Arc<Gate>) -> SimPeer {
    let (stream, peer) = world.stream();
    let inside = Arc::clone(gate);
    let handler = move |cx: &mut Context<'_, SimStream>| {
        if cx.read(&mut [0; 1])? == 0 {
            return Ok(Next::Close);
        }
        cx.blocking(|| inside.pass());
        Ok(Next::Continue)
    };
    let handle = pool.register(stream, Interest::NONE, handler).unwrap();
    handle.pin_to(&[thread]).unwrap();
    handle.set_interest(Interest::READ).unwrap();
    let before = gate.inside();
    peer.send(b"x");
    gate.wait_for(before + 1);
    peer
}
