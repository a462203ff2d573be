//! A pool reads the connection: its reader against the leading callers.
//!
//! The registry, the handle and the reader are the product's own; a model says when there is an
//! edge.

use std::os::fd::RawFd;

use super::*;
use crate::{
    dispatch::{Duty, Hooks, Limits, Line as ReadyLine, Registry},
    handle_set::{Answer, Batch, Event, HandleSet, Reports},
    observe::Counters,
};

/// The kernel's readiness of the one descriptor. Only the pool's thread reads it.
#[derive(Clone, Default)]
struct Edges(Arc<std::sync::Mutex<(u64, Vec<Event>)>>);

impl HandleSet for Edges {
    fn reports(&self) -> Reports {
        Reports::Edges
    }

    fn add(&self, _: RawFd, key: u64) -> io::Result<()> {
        self.0.lock().unwrap().0 = key;
        Ok(())
    }

    fn arm(&self, _: RawFd, _: u64, _: Ready) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: RawFd) -> io::Result<()> {
        Ok(())
    }

    fn wait(&self, events: &mut Vec<Event>, _: Option<Timestamp>) -> io::Result<Answer> {
        events.append(&mut self.0.lock().unwrap().1);
        Ok(Answer {
            batch: Batch::Whole,
            slept: false,
        })
    }

    fn wake(&self) {}
}

/// The pool, as far as the connection knows it: one thread takes turns when a model says so.
struct Pool {
    registry: Arc<Registry>,
    edges: Edges,
    ready: ReadyLine,
    clock: Clock,
}

impl Pool {
    /// Reads the connection of `world` from now on.
    fn attached_to(world: &World) -> Self {
        let (edges, clock) = (Edges::default(), world.link.clock.clone());
        let limits = Limits {
            read_budget: 1,
            output_limit: 1,
            unread_calls: u32::MAX,
            nesting: 1,
            post_limit: 1,
            idle_timeout: None,
            linger_time: Duration::ZERO,
            linger_limit: 0,
        };
        let registry = Registry::new(
            Box::new(edges.clone()),
            clock.clone(),
            limits,
            Hooks::default(),
            Arc::new(Counters::default()),
        );
        world.link.attach(&Arc::downgrade(&registry)).unwrap();
        let ready = ReadyLine::new();
        let mut pool = Self {
            registry,
            edges,
            ready,
            clock,
        };
        pool.work();
        pool
    }

    /// There is something new to be read.
    fn edge(&self) {
        let (key, events) = &mut *self.edges.0.lock().unwrap();
        let (key, ready) = (*key, Ready::READABLE);
        events.push(Event { key, ready });
    }

    /// Takes turns until nothing is ready.
    fn work(&mut self) {
        while let Some(claim) = self
            .ready
            .next(&self.registry, Some(Timestamp::PAST))
            .unwrap()
        {
            let mut afterwards = claim.afterwards();
            let now = self.clock.now();
            let visited = claim.dispatch(&self.clock, now, &OffDuty, &mut afterwards);
            if let Some(claim) = visited.claim {
                drop(claim.release_into(&mut self.ready));
            }
        }
    }
}

struct OffDuty;

impl Duty for OffDuty {
    fn go_away(&self) {}
    fn come_back(&self) {}
    fn call_for_help(&self) {}
}

/// B2: a thread outside of any handler has its reply and is about to leave while the reader gets
/// one more edge. The reader reads it, or finds the other one leading and turns away: then it is
/// called when that one has left. An edge that was used up does not come again.
#[test]
fn loom_bound_reader_turned_away() {
    explore(|| {
        let world = World::new();
        let mut pool = Pool::attached_to(&world);
        let awaited = world.sent();
        let leading = world.leads();
        world.wire.bring(&world.reply(awaited));
        let reader = thread::spawn(move || {
            pool.edge();
            pool.work();
            pool
        });
        drop(leading);
        let mut pool = reader.join().unwrap();
        pool.work();
        assert_eq!(world.phase(awaited), Phase::Replied, "it is left unread");
        world.link.calls.forget(awaited);
        world.assert_empty();
    });
}
