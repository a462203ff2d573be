//! The primitives that everything else stands on, in three forms.
//!
//! | form | chosen by | what it is for |
//! | --- | --- | --- |
//! | std | default | the product |
//! | loom | `--cfg loom` | every interleaving of one protocol, weak memory included |
//! | shuttle | `--cfg shuttle` | random schedules of the whole pool |
//!
//! Every protocol imports its atomics, locks and threads from here, so that the checkers see all of
//! them. Std's own are used in all forms where no protocol rests on them: `Arc` and `Weak`,
//! counters and estimates that order nothing, the chunks of the slot table, which are only ever
//! added, and the pauses of a listener.

mod clock;
pub(crate) mod idle_class;
#[cfg(all(test, loom))]
mod models;
mod neighbour;
mod parker;
mod system;

#[cfg_attr(all(target_os = "linux", not(any(loom, shuttle))), path = "futex.rs")]
#[cfg_attr(
    not(all(target_os = "linux", not(any(loom, shuttle)))),
    path = "futex_monitor.rs"
)]
mod futex;

use std::time::Duration;

pub use clock::VirtualClock;
pub(crate) use clock::{Clock, Moment, Timestamp};
#[cfg(all(test, target_os = "linux", not(any(loom, shuttle))))]
pub(crate) use neighbour::beside;
pub(crate) use neighbour::{this_thread, waits_for_this_core, Number};
pub(crate) use parker::Parker;
pub(crate) use system::{confine, set_nice, voluntary_switches};

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::{atomic, Condvar, Mutex, MutexGuard},
    thread, thread_local,
};
#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{atomic, Condvar, Mutex, MutexGuard},
    thread, thread_local,
};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{
    sync::{atomic, Condvar, Mutex, MutexGuard},
    thread, thread_local,
};

#[cfg(not(loom))]
pub(crate) use cell::UnsafeCell;

/// A variable of each thread whose first value is a constant: so no access asks whether it has one
/// yet. (The checkers' own macros take no constants.)
macro_rules! thread_local_const {
    ($(#[$about:meta])* static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(any(loom, shuttle)))]
        std::thread_local! {
            $(#[$about])*
            static $name: $type = const { $value };
        }
        #[cfg(any(loom, shuttle))]
        $crate::sync::thread_local! {
            $(#[$about])*
            static $name: $type = $value;
        }
    };
}
pub(crate) use thread_local_const;

/// The cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Locks `mutex`, poisoned or not.
///
/// No user code ever runs under one of our locks, and a panic of our own code aborts the process
/// (see `dispatch::unwind`), so a poisoned lock can't be observed with broken contents.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Whether a thread has ended, so that joining it does not wait. (The checkers' threads end at
/// once.)
pub(crate) fn is_finished<T>(thread: &thread::JoinHandle<T>) -> bool {
    #[cfg(not(any(loom, shuttle)))]
    return thread.is_finished();
    #[cfg(any(loom, shuttle))]
    {
        let _ = thread;
        true
    }
}

/// So often a thread yields before it sleeps for moments.
const YIELDS: u32 = 100;

/// Tries until it succeeds, at what another thread makes possible at once, unless that has lost its
/// core. It yields first; then it sleeps for moments, since a yield gives nothing to a thread of
/// lower priority.
pub(crate) fn try_until_done<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let mut yields = 0;
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        if yields < YIELDS || cfg!(any(loom, shuttle)) {
            thread::yield_now()
        } else {
            std::thread::sleep(Duration::from_micros(50))
        }
        yields = yields.saturating_add(1);
    }
}

/// For how long a wait in the kernel may last that would last for so long. Under shuttle all
/// threads are one of the system's, which must not sleep: there it is a look, and the others run
/// before it.
#[inline]
pub(crate) fn patience(timeout: Option<Duration>) -> Option<Duration> {
    if cfg!(shuttle) {
        thread::yield_now();
        return Some(Duration::ZERO);
    }
    timeout
}

/// Explores every interleaving of `model`, within loom's bounds, and says how many there were.
#[cfg(all(test, loom))]
pub(crate) fn explore(model: impl Fn() + Sync + Send + 'static) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let explored = std::sync::Arc::new(AtomicUsize::new(0));
    let counter = std::sync::Arc::clone(&explored);
    loom::model(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!(
        "explored {} interleavings",
        explored.load(Ordering::Relaxed)
    );
}

#[cfg(not(loom))]
mod cell {
    /// `std`'s cell with loom's way to open it, so that loom can watch each access.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Calls `open` with a pointer through which the value may be changed.
        #[inline]
        pub(crate) fn with_mut<R>(&self, open: impl FnOnce(*mut T) -> R) -> R {
            open(self.0.get())
        }

        #[inline]
        pub(crate) fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }
}
