//! Posts and timers, against a leader that goes to sleep, a close, and a drain.

use std::time::Duration;

use super::*;
use crate::dispatch::{Overdue, TaskContext, TickContext};

const SOON: Duration = Duration::from_millis(1);
/// No model waits as long as that: a leader that sleeps until then sleeps until it is woken.
const LATE: Duration = Duration::from_secs(3600);

/// Counts calls.
#[derive(Clone)]
struct Calls(Arc<AtomicUsize>);

impl Calls {
    fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(0)))
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn once(&self) -> impl FnOnce(&mut TaskContext<'_>) + Send + 'static {
        let calls = self.clone();
        move |_| {
            calls.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn every(&self) -> impl FnMut(&mut TickContext<'_>) + Send + 'static {
        let calls = self.clone();
        move |_| {
            calls.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Leads, and sleeps in the set, until something was called.
fn lead_until(registry: &Registry, calls: &Calls) {
    let lead = lead();
    while calls.count() == 0 {
        let claim = lock(&lead).next(registry, None).unwrap();
        release(claim.and_then(dispatch), &lead, true);
    }
}

/// A timer is set while the leader is about to sleep without end: it does not sleep over it.
#[test]
fn loom_timer_against_sleep() {
    explore(|| {
        let (registry, calls) = (World::new().registry(), Calls::new());
        let setter = {
            let (registry, calls) = (Arc::clone(&registry), calls.clone());
            thread::spawn(move || drop(registry.after(SOON, calls.once()).unwrap()))
        };
        lead_until(&registry, &calls);
        setter.join().unwrap();
        assert_eq!(calls.count(), 1);
    });
}

/// Likewise while it is about to sleep until a later one.
#[test]
fn loom_earlier_timer_against_sleep() {
    explore(|| {
        let (registry, calls) = (World::new().registry(), Calls::new());
        registry
            .after(LATE, |_| unreachable!("nobody waits so long"))
            .unwrap();
        let setter = {
            let (registry, calls) = (Arc::clone(&registry), calls.clone());
            thread::spawn(move || drop(registry.after(SOON, calls.once()).unwrap()))
        };
        lead_until(&registry, &calls);
        setter.join().unwrap();
        assert_eq!(calls.count(), 1);
    });
}

/// Posted while the leader is about to sleep: it is done.
#[test]
fn loom_post_against_sleep() {
    explore(|| {
        let (registry, calls) = (World::new().registry(), Calls::new());
        let poster = {
            let (registry, calls) = (Arc::clone(&registry), calls.clone());
            thread::spawn(move || registry.post(calls.once()).unwrap())
        };
        lead_until(&registry, &calls);
        poster.join().unwrap();
        assert_eq!(calls.count(), 1);
    });
}

/// S2: posted while the pool begins to drain: done, given back, or lost and counted. One of the
/// three.
#[test]
fn loom_post_against_drain() {
    explore(|| {
        let (registry, calls) = (World::new().registry(), Calls::new());
        let poster = {
            let (registry, calls) = (Arc::clone(&registry), calls.clone());
            thread::spawn(move || usize::from(registry.post(calls.once()).is_err()))
        };
        registry.drain();
        let lead = lead();
        work(&registry, &lead, true);
        registry.shut();
        let refused = poster.join().unwrap();
        let (lost, live) = registry.left_undone();
        assert_eq!(live, 0);
        assert_eq!(refused + calls.count() + lost.posts, 1);
    });
}

/// S2: a timer is set while the pool begins to drain: given back, or dropped and counted.
#[test]
fn loom_timer_against_drain() {
    explore(|| {
        let (registry, calls) = (World::new().registry(), Calls::new());
        let setter = {
            let (registry, calls) = (Arc::clone(&registry), calls.clone());
            thread::spawn(move || usize::from(registry.after(LATE, calls.once()).is_err()))
        };
        registry.drain();
        let lead = lead();
        work(&registry, &lead, true);
        registry.shut();
        let refused = setter.join().unwrap();
        let (lost, live) = registry.left_undone();
        assert_eq!((live, calls.count()), (0, 0));
        assert_eq!(refused + lost.timers, 1);
    });
}

type Limit = fn(&Handle) -> io::Result<()>;

fn limit_idle(handle: &Handle) -> io::Result<()> {
    handle.set_timeout(Some(SOON))
}

fn limit_life(handle: &Handle) -> io::Result<()> {
    handle.set_deadline(Some(SOON))
}

/// H3: a time is set while the handle is closed and its slot given to the next one. It hits the
/// intended registration, or none.
fn limit_against_close(limit: Limit) {
    explore(move || {
        let world = World::new();
        let registry = world.registry();
        let first = world.register(&registry, Interest::READ);
        let setter = {
            let handle = first.clone();
            thread::spawn(move || drop(limit(&handle)))
        };
        let _ = first.close();
        let second = world.register(&registry, Interest::READ);
        setter.join().unwrap();
        world.0.clock.advance(LATE);
        work(&registry, &lead(), true);
        assert_eq!(world.closed(), 1, "the first, and not the second");
        second.close().unwrap();
    });
}

#[test]
fn loom_timeout_against_close() {
    limit_against_close(limit_idle);
}

#[test]
fn loom_deadline_against_close() {
    limit_against_close(limit_life);
}

/// H3: likewise, and the next one has a time of its own: a late comer takes nothing from it.
fn late_limit_against_the_next_ones(limit: Limit) {
    explore(move || {
        let world = World::new();
        let registry = world.registry();
        let first = world.register(&registry, Interest::READ);
        let setter = {
            let handle = first.clone();
            thread::spawn(move || drop(limit(&handle)))
        };
        let _ = first.close();
        let second = world.register(&registry, Interest::READ);
        limit(&second).unwrap();
        setter.join().unwrap();
        world.0.clock.advance(LATE);
        work(&registry, &lead(), true);
        assert_eq!(world.closed(), 2, "the second by its own time");
    });
}

#[test]
fn loom_late_timeout_against_the_next_ones() {
    late_limit_against_the_next_ones(limit_idle);
}

#[test]
fn loom_late_deadline_against_the_next_ones() {
    late_limit_against_the_next_ones(limit_life);
}

/// The wheel is about to look at a handle whose deadline was cleared, and its handler sets another
/// one, without the lock: the leader does not sleep over it.
#[test]
fn loom_new_deadline_against_the_look() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let key = world.register(&registry, Interest::READ).key();
        registry.set_own_deadline(key, Some(SOON));
        registry.set_own_deadline(key, None);
        let handler = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || registry.set_own_deadline(key, Some(2 * SOON)))
        };
        let lead = lead();
        while world.closed() == 0 {
            let claim = lock(&lead).next(&registry, None).unwrap();
            release(claim.and_then(dispatch), &lead, true);
        }
        handler.join().unwrap();
    });
}

/// A deadline passes, and its handler is about to be called. Another thread sets a later one: the
/// handler is called for the old one or for the new one, and for one of them only.
#[test]
fn loom_later_deadline_against_its_call() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let calls = Calls::new();
        let handler = Patient(calls.clone());
        let handle = registry
            .register(Descriptor, Interest::READ, handler)
            .unwrap();
        handle.set_deadline(Some(SOON)).unwrap();
        world.0.clock.advance(SOON);
        let setter = thread::spawn(move || handle.set_deadline(Some(LATE)).unwrap());
        let lead = lead();
        work(&registry, &lead, true);
        setter.join().unwrap();
        let of_the_old = calls.count();
        assert!(of_the_old <= 1);
        work(&registry, &lead, true);
        assert_eq!(calls.count(), of_the_old, "the new one has not passed");
        world.0.clock.advance(LATE);
        work(&registry, &lead, true);
        assert_eq!(calls.count(), of_the_old + 1);
    });
}

/// Goes on when a time is over.
struct Patient(Calls);

impl EventHandler<Descriptor> for Patient {
    fn ready(&mut self, _: &mut Context<'_, Descriptor>) -> io::Result<Next> {
        Ok(Next::Continue)
    }

    fn overdue(&mut self, _: &mut Context<'_, Descriptor>, _: Overdue) -> io::Result<Next> {
        self.0 .0.fetch_add(1, Ordering::Relaxed);
        Ok(Next::Continue)
    }
}

/// A timer is cancelled while its time comes: it is called once at most, and it is over.
#[test]
fn loom_cancel_against_its_time() {
    explore(|| {
        let world = World::new();
        let (registry, calls) = (world.registry(), Calls::new());
        let timer = registry.every(SOON, calls.every()).unwrap();
        world.0.clock.advance(SOON);
        let canceller = thread::spawn(move || timer.close().unwrap());
        let lead = lead();
        work(&registry, &lead, true);
        canceller.join().unwrap();
        let before = calls.count();
        world.0.clock.advance(LATE);
        work(&registry, &lead, true);
        assert!(before <= 1);
        assert_eq!(calls.count(), before);
        assert_eq!(registry.live(), 0);
    });
}
