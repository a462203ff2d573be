//! Concurrent handles: two threads inside, while more arrives and a third closes the handle.

use super::*;
use crate::dispatch::{ConcurrentContext, ConcurrentHandler};

/// Takes bytes, one at a time, until there is none; others may do so meanwhile.
pub(super) struct Taker(pub(super) World);

impl ConcurrentHandler<Descriptor> for Taker {
    fn ready(&self, cx: &mut ConcurrentContext<'_, Descriptor>) -> io::Result<Next> {
        let world = &*self.0 .0;
        loop {
            cx.try_read(|_| {
                let mut unread = lock(&world.unread);
                match *unread {
                    0 => Err(io::ErrorKind::WouldBlock.into()),
                    _ => {
                        *unread -= 1;
                        Ok(())
                    }
                }
            })?;
            world.read.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn closed(&self, _: Closed) {
        self.0 .0.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Takes turns until nothing is ready, as the pool's threads do: the handle is given back, then
/// used.
fn work_at_once(registry: &Registry, lead: &Mutex<Line>) {
    while let Some(claim) = next(registry, lead) {
        let clock = Clock::Virtual(Arc::new(VirtualClock::new()));
        let mut afterwards = claim.afterwards();
        let done = claim.dispatch(&clock, clock.now(), &OffDuty, &mut afterwards);
        drop(done.claim);
        registry.run_afterwards(afterwards, &OffDuty);
    }
}

/// H2: two threads use it at once, and a byte comes while either may be finding nothing. Each byte
/// is taken, by one.
fn two_at_once(reports: Reports) {
    explore(move || {
        let world = World::reporting(reports);
        let registry = world.registry();
        let handler = Taker(world.clone());
        let handle = registry.register_concurrent(Descriptor, Interest::READ, handler);
        drop(handle.unwrap());
        let lead = lead();
        world.send();
        let other = {
            let (registry, lead) = (Arc::clone(&registry), Arc::clone(&lead));
            let world = world.clone();
            thread::spawn(move || {
                world.send();
                work_at_once(&registry, &lead);
            })
        };
        work_at_once(&registry, &lead);
        other.join().unwrap();
        work_at_once(&registry, &lead);
        assert_eq!(world.read(), 2);
    });
}

#[test]
fn loom_two_at_once() {
    two_at_once(Reports::Edges);
}

#[test]
fn loom_two_at_once_once() {
    two_at_once(Reports::Once);
}

/// H3, S2: closed while a thread is inside: `closed` is called once, by the last to leave, and
/// nothing is left.
#[test]
fn loom_closed_by_the_last_one() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let handler = Taker(world.clone());
        let handle = registry.register_concurrent(Descriptor, Interest::READ, handler);
        let handle = handle.unwrap();
        let lead = lead();
        world.send();
        let closer = thread::spawn(move || drop(handle.close_and_wait()));
        work_at_once(&registry, &lead);
        // A thread that waits for the end may need a turn of a leading thread.
        while registry.live() > 0 {
            thread::yield_now();
            work_at_once(&registry, &lead);
        }
        closer.join().unwrap();
        assert_eq!(world.closed(), 1);
    });
}
