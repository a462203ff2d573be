//! loom's models of leaders that take over sources.

use std::sync::Arc;

use loom::thread;

use super::succession::{Arrival, Lead, Succession};
use crate::sync::{
    atomic::{AtomicBool, Ordering},
    explore, Clock, Parker, Timestamp, VirtualClock,
};

/// Sources that know whether a thread is inside.
struct World {
    succession: Succession,
    led: [AtomicBool; 2],
    clock: Clock,
}

impl World {
    fn new(sources: usize) -> Arc<Self> {
        let world = Self {
            succession: Succession::default(),
            led: [AtomicBool::new(false), AtomicBool::new(false)],
            clock: Clock::Virtual(Arc::new(VirtualClock::new())),
        };
        (0..sources).for_each(|source| world.succession.add(source));
        Arc::new(world)
    }

    /// Leads once, unless its time is over or all ends. Returns whether it did.
    fn lead_once(&self, deadline: Option<Timestamp>) -> bool {
        let seat = Arc::new(Parker::new());
        match self.succession.arrive(&seat, &self.clock, deadline) {
            Arrival::Leads(lead) => {
                self.wait_and_promote(lead);
                true
            }
            Arrival::TimedOut | Arrival::Closed => false,
        }
    }

    fn wait_and_promote(&self, lead: Lead<'_>) {
        let led = &self.led[lead.source()];
        assert!(!led.swap(true, Ordering::Relaxed), "two leaders (L1)");
        led.store(false, Ordering::Relaxed);
        let _ = lead.promote();
    }
}

/// L1, L2: three threads, one source. A follower is handed it by the leader, or finds it vacant: no
/// thread sleeps for ever, and two never wait there.
#[test]
fn loom_source_is_handed_over() {
    explore(|| {
        let world = World::new(1);
        let others = [(); 2].map(|()| {
            let world = Arc::clone(&world);
            thread::spawn(move || assert!(world.lead_once(None)))
        });
        assert!(world.lead_once(None));
        others.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(
            (world.succession.vacant(), world.succession.counts()),
            (1, (0, 0))
        );
    });
}

/// L2: two sources, two threads that each lead twice: no source is left without a leader while one
/// is free.
#[test]
fn loom_no_source_is_left_behind() {
    explore(|| {
        let world = World::new(2);
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || assert!(world.lead_once(None) && world.lead_once(None)))
        };
        assert!(world.lead_once(None));
        other.join().unwrap();
        assert_eq!(
            (world.succession.vacant(), world.succession.counts()),
            (2, (0, 0))
        );
    });
}

/// A follower's time is over while it is handed a source: it passes that on, to the one that comes
/// back.
#[test]
fn loom_leaver_passes_it_on() {
    explore(|| {
        let world = World::new(1);
        let seat = Arc::new(Parker::new());
        let arrival = world.succession.arrive(&seat, &world.clock, None);
        let Arrival::Leads(lead) = arrival else {
            panic!("it was vacant");
        };
        let Clock::Virtual(clock) = &world.clock else {
            panic!("it is a virtual one");
        };
        let later = world.clock.now().after(std::time::Duration::from_secs(1));
        let leaver = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.lead_once(Some(later)))
        };
        clock.advance(std::time::Duration::from_secs(1));
        world.wait_and_promote(lead);
        leaver.join().unwrap();
        assert_eq!(
            (world.succession.vacant(), world.succession.counts()),
            (1, (0, 0))
        );
    });
}

/// S1: all ends while one thread leads and another is about to follow: both go.
#[test]
fn loom_close_against_arrival() {
    explore(|| {
        let world = World::new(1);
        let others = [(); 2].map(|()| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let _ = world.lead_once(None);
            })
        });
        world.succession.close();
        others.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(world.succession.counts(), (0, 0));
    });
}
