//! loom's models of the crew: threads that are hired while the pool ends (S2).

use std::sync::Arc;

use loom::thread;

use super::crew::Crew;
use crate::sync::{explore, Clock, Timestamp, VirtualClock};

/// A thread is called while a shutdown whose time is over lists the threads that are left. A thread
/// that has a place is in the list; a later one gets none.
#[test]
fn loom_hire_against_the_end() {
    explore(|| {
        let crew = Arc::new(Crew::default());
        let caller = {
            let crew = Arc::clone(&crew);
            thread::spawn(move || crew.hire().ok())
        };
        crew.stop_hiring();
        let named = crew.others();
        let hired = caller.join().unwrap();
        assert_eq!(named.first().map(|(index, _)| *index), hired);
    });
}

/// A thread is called while a shutdown waits for all: it waits for the caller, and for the called
/// thread.
#[test]
fn loom_end_waits_for_who_was_called() {
    explore(|| {
        let crew = Arc::new(Crew::default());
        let clock = Clock::Virtual(Arc::new(VirtualClock::new()));
        let seat = crew.enlist(0).unwrap();
        let caller = {
            let crew = Arc::clone(&crew);
            thread::spawn(move || {
                let inside = crew.arrived(seat.index());
                let called = crew.hire().map(|index| {
                    let crew = Arc::clone(&crew);
                    thread::spawn(move || drop(crew.arrived(index)))
                });
                drop(inside);
                called
            })
        };
        crew.stop_hiring();
        let far = Timestamp::PAST.after(std::time::Duration::from_secs(1));
        crew.wait_for_others(&clock, far, || false);
        assert_eq!(crew.len(), 0);
        if let Ok(called) = caller.join().unwrap() {
            called.join().unwrap();
        }
        assert_eq!(crew.len(), 0);
    });
}
