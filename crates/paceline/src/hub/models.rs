//! loom's models of the membership: threads that are hired while the pool ends (S2).

use std::sync::Arc;

use loom::thread;

use super::membership::Membership;
use crate::sync::{explore, Clock, Timestamp, VirtualClock};

/// A thread is called while a shutdown whose time is over lists the threads that are left. A thread
/// that has a place is in the list; a later one gets none.
#[test]
fn loom_hire_against_the_end() {
    explore(|| {
        let membership = Arc::new(Membership::default());
        let caller = {
            let membership = Arc::clone(&membership);
            thread::spawn(move || membership.hire().ok())
        };
        membership.stop_hiring();
        let named = membership.others();
        let hired = caller.join().unwrap();
        assert_eq!(named.first().map(|(index, _)| *index), hired);
    });
}

/// A thread is called while a shutdown waits for all: it waits for the caller, and for the called
/// thread.
#[test]
fn loom_end_waits_for_who_was_called() {
    explore(|| {
        let membership = Arc::new(Membership::default());
        let clock = Clock::Virtual(Arc::new(VirtualClock::new()));
        let seat = membership.enlist(0).unwrap();
        let caller = {
            let membership = Arc::clone(&membership);
            thread::spawn(move || {
                let inside = membership.arrived(seat.index());
                let called = membership.hire().map(|index| {
                    let membership = Arc::clone(&membership);
                    thread::spawn(move || drop(membership.arrived(index)))
                });
                drop(inside);
                called
            })
        };
        membership.stop_hiring();
        let far = Timestamp::PAST.after(std::time::Duration::from_secs(1));
        membership.wait_for_others(&clock, far, || false);
        assert_eq!(membership.len(), 0);
        if let Ok(called) = caller.join().unwrap() {
            called.join().unwrap();
        }
        assert_eq!(membership.len(), 0);
    });
}
