//! loom's models of the parker and the virtual clock.

use std::{sync::Arc, time::Duration};

use loom::thread;

use super::{
    atomic::{AtomicBool, Ordering},
    explore, Clock, Parker, VirtualClock,
};

const TICK: Duration = Duration::from_secs(1);

/// The parker: a message posted before, during or after falling asleep ends the sleep, and what was
/// done before it is seen.
#[test]
fn loom_parker_loses_no_message() {
    explore(|| {
        let parker = Arc::new(Parker::new());
        let before = Arc::new(AtomicBool::new(false));
        let sleeper = {
            let (parker, before) = (Arc::clone(&parker), Arc::clone(&before));
            thread::spawn(move || {
                while parker.take() == 0 {
                    parker.sleep(None);
                }
                assert!(before.load(Ordering::Relaxed));
            })
        };
        before.store(true, Ordering::Relaxed);
        parker.post(1);
        parker.wake();
        sleeper.join().unwrap();
    });
}

/// The virtual clock: all threads that sleep in one place until a deadline see it pass.
#[test]
fn loom_clock_wakes_its_sleepers() {
    explore(|| {
        let clock = Arc::new(VirtualClock::new());
        let parker = Arc::new(Parker::new());
        let sleepers: Vec<_> = (0..2)
            .map(|_| {
                let (clock, parker) = (Clock::Virtual(Arc::clone(&clock)), Arc::clone(&parker));
                let deadline = clock.now().after(TICK);
                thread::spawn(move || {
                    while !clock.has_passed(Some(deadline)) {
                        clock.sleep(&parker, Some(deadline));
                    }
                })
            })
            .collect();
        clock.advance(TICK);
        sleepers
            .into_iter()
            .for_each(|sleeper| sleeper.join().unwrap());
    });
}
