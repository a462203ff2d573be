//! Signals as sources: told as ordinary events, to everyone who wants them; and afterwards all is
//! as it was before.
//!
//! Signals belong to the whole process, so the tests take turns.

use std::{
    io,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc, Arc,
    },
    time::Duration,
};

use super::turns::take_turn;
use crate::support::{bounded, kernel_sets, wait_until, LONG};
use paceline::{Closed, ItemHandler, Panics, Pool, Signal, TaskContext};
use signal_hook::{
    consts::{SIGPROF, SIGTTIN, SIGTTOU, SIGURG, SIGVTALRM, SIGXFSZ},
    low_level::raise,
};

/// Runs a test while no other test runs.
fn in_turn(test: impl FnOnce() + Send + 'static) {
    let _turn = take_turn();
    bounded(test);
}

fn signal(number: i32) -> Signal {
    Signal::from_number(number).unwrap()
}

/// Passes on what it is told.
struct Told(mpsc::Sender<Signal>, mpsc::Sender<Closed>);

impl ItemHandler<Signal> for Told {
    fn handle(&mut self, signal: Signal, _: &mut TaskContext<'_>) {
        let _ = self.0.send(signal);
    }

    fn closed(&mut self, why: Closed) {
        let _ = self.1.send(why);
    }
}

fn told() -> (Told, mpsc::Receiver<Signal>, mpsc::Receiver<Closed>) {
    let ((tell, told), (closed, end)) = (mpsc::channel(), mpsc::channel());
    (Told(tell, closed), told, end)
}

/// Told on every set, to a thread of the pool.
#[test]
fn told_on_every_set() {
    in_turn(|| {
        for set in kernel_sets() {
            let pool = Pool::builder().threads(2).handle_set(set).build().unwrap();
            let (handler, signals, end) = told();
            pool.sources()
                .signals([Signal::USR1, Signal::USR2], handler)
                .unwrap();
            for signal in [Signal::USR1, Signal::USR2, Signal::USR1] {
                raise(signal.number()).unwrap();
                assert_eq!(signals.recv_timeout(LONG).unwrap(), signal);
            }
            assert!(pool.shutdown(LONG).is_clean());
            assert!(matches!(end.recv_timeout(LONG).unwrap(), Closed::Shutdown));
        }
    });
}

/// Signals that come before anybody looks are one of each kind, lowest number first: none is lost,
/// none is doubled.
#[test]
fn several_of_a_kind_are_one() {
    in_turn(|| {
        let pool = Pool::builder().threads(0).build().unwrap();
        let (handler, signals, _end) = told();
        let both = [signal(SIGTTIN), signal(SIGTTOU)];
        pool.sources().signals(both, handler).unwrap();
        for _ in 0..100 {
            raise(SIGTTOU).unwrap();
            raise(SIGTTIN).unwrap();
        }
        let mut all = Vec::new();
        wait_until(|| {
            let _ = pool.join_timeout(Duration::from_millis(1)).unwrap();
            all.extend(signals.try_iter());
            all.len() >= 2
        });
        let _ = pool.shutdown(Duration::ZERO);
        all.extend(signals.try_iter());
        assert_eq!(all, both);
    });
}

/// Two pools have the same signal: each is told. When one lets go the other still is.
#[test]
fn several_pools_are_told() {
    in_turn(|| {
        let pools = [(); 2].map(|()| Pool::builder().threads(1).build().unwrap());
        let [(one, first, _), (other, second, _)] = [told(), told()];
        let handle = pools[0].sources().signals([signal(SIGURG)], one).unwrap();
        pools[1].sources().signals([signal(SIGURG)], other).unwrap();
        raise(SIGURG).unwrap();
        assert_eq!(first.recv_timeout(LONG).unwrap(), signal(SIGURG));
        assert_eq!(second.recv_timeout(LONG).unwrap(), signal(SIGURG));
        handle.close_and_wait().unwrap();
        raise(SIGURG).unwrap();
        assert_eq!(second.recv_timeout(LONG).unwrap(), signal(SIGURG));
        assert!(first.try_recv().is_err());
    });
}

/// What was there before is there again afterwards: a handler of somebody else's is called, and
/// only then.
#[test]
fn the_disposition_before_is_restored() {
    in_turn(|| {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGPROF, Arc::clone(&flag)).unwrap();
        let pool = Pool::builder().threads(1).build().unwrap();
        for _ in 0..3 {
            let (handler, signals, _end) = told();
            let handle = pool.sources().signals([signal(SIGPROF)], handler).unwrap();
            raise(SIGPROF).unwrap();
            signals.recv_timeout(LONG).unwrap();
            assert!(!flag.swap(false, Ordering::SeqCst));
            handle.close_and_wait().unwrap();
            raise(SIGPROF).unwrap();
            assert!(flag.swap(false, Ordering::SeqCst));
        }
    });
}

/// Who comes after us is left alone.
#[test]
fn a_later_disposition_is_left_alone() {
    in_turn(|| {
        let pool = Pool::builder().threads(1).build().unwrap();
        let (handler, _signals, _end) = told();
        let handle = pool.sources().signals([signal(SIGXFSZ)], handler).unwrap();
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGXFSZ, Arc::clone(&flag)).unwrap();
        handle.close_and_wait().unwrap();
        raise(SIGXFSZ).unwrap();
        assert!(flag.load(Ordering::SeqCst));
    });
}

/// A panic takes one signal along, and not the other that came with it.
#[test]
fn a_panic_takes_one_signal() {
    in_turn(|| {
        let pool = Pool::builder().threads(0).panics(Panics::Keep);
        let pool = pool.build().unwrap();
        let (tell, told) = mpsc::channel();
        let both = [signal(SIGVTALRM), Signal::WINCH];
        let handler = move |signal: Signal, _: &mut TaskContext<'_>| {
            tell.send(signal).unwrap();
            assert_ne!(signal, both[0], "this one");
        };
        pool.sources().signals(both, handler).unwrap();
        both.iter().for_each(|it| raise(it.number()).unwrap());
        let mut all = Vec::new();
        wait_until(|| {
            let _ = pool.join_timeout(Duration::from_millis(1)).unwrap();
            all.extend(told.try_iter());
            all.len() >= 2
        });
        assert_eq!(all, both);
        assert_eq!(pool.snapshot().panics, 1);
    });
}

/// What can't be caught, or should not be, is refused by name, and the handler given back.
#[test]
fn some_are_refused() {
    let _turn = take_turn();
    let pool = Pool::builder().threads(0).build().unwrap();
    for (number, words) in [
        (
            9,
            "signals: SIGKILL can't be an event: the system lets nobody catch it",
        ),
        (19, "SIGSTOP"),
        (
            11,
            "SIGSEGV can't be an event: it tells of a fault of the program",
        ),
    ] {
        let (handler, ..) = told();
        let rejected = pool
            .sources()
            .signals([Signal::USR1, signal(number)], handler);
        let rejected = rejected.unwrap_err();
        assert_eq!(rejected.error.kind(), io::ErrorKind::InvalidInput);
        assert!(rejected.to_string().contains(words), "{rejected}");
        let none = pool.sources().signals([], rejected.value).unwrap_err();
        assert!(none.to_string().contains("none is named"), "{none}");
        // The system's library keeps this one for itself; what was had already is given back.
        let reserved = pool
            .sources()
            .signals([signal(32)], none.value)
            .unwrap_err();
        assert!(reserved.to_string().contains("signal 32"), "{reserved}");
    }
    assert_eq!(
        (Signal::from_number(0), Signal::from_number(65)),
        (None, None)
    );
    assert_eq!(
        format!("{:?} {}", Signal::TERM, signal(40)),
        "SIGTERM signal 40"
    );
}

/// As many registrations as there are places; one more is refused, until one has ended.
#[test]
fn places_are_bounded_and_used_again() {
    in_turn(|| {
        let pool = Pool::builder().threads(1).build().unwrap();
        let take = |handler| pool.sources().signals([Signal::CONT], handler);
        let handles: Vec<_> = (0..64).map(|_| take(told().0).unwrap()).collect();
        let rejected = take(told().0).unwrap_err();
        assert_eq!(rejected.error.kind(), io::ErrorKind::QuotaExceeded);
        handles[5].close_and_wait().unwrap();
        take(rejected.value).unwrap();
        assert!(pool.shutdown(LONG).is_clean());
    });
}
