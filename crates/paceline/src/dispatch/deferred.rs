//! Ends of registrations that wait until the same thread has finished another one.
//!
//! `closed` and destructors are user code. They may close another handle, whose `closed` may close
//! a third one. Called one inside the other, a few thousand of them would overflow the stack. So a
//! thread that finishes a registration defers the ends that come meanwhile, and finishes them one
//! after the other.
//!
//! ```text
//!   close(a) -> closed(a) -> close(b)   b is out of the set and of its slot, and is deferred
//!            -> closed(b) -> close(c)   likewise
//!            -> closed(c)
//! ```
//!
//! A thread that waits for an end finishes what it has deferred first: it would wait for itself
//! otherwise. Each registry has a list of its own, because a thread may serve another pool for long
//! inside of `closed`.

use std::{cell::RefCell, collections::VecDeque};

use super::{entry::Ending, registry::End};
use crate::sync::thread_local;

/// An end that is deferred: what is left of the registration, and why it ends.
pub(super) type Deferred = (Box<dyn Ending>, End);

/// This thread finishes registrations of a registry.
struct Finishing {
    /// The registry's address.
    registry: usize,
    deferred: VecDeque<Deferred>,
}

thread_local! {
    /// Usually one at most.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's macro takes no const block")]
    static FINISHING: RefCell<Vec<Finishing>> = RefCell::new(Vec::new());
}

/// What becomes of an end on this thread.
#[must_use]
pub(super) enum When {
    /// The caller finishes it now, and after it what is deferred meanwhile; then it calls
    /// [`leave`].
    Now(Deferred),
    /// This thread finishes it after another one.
    Later,
}

/// Defers an end, if this thread finishes another one of this registry.
pub(super) fn enter_or_defer(registry: usize, end: Deferred) -> When {
    // At the very end of a thread, when its variables are dropped, there may be no list any more:
    // then nothing is deferred.
    let mut end = Some(end);
    let _ = FINISHING.try_with(|finishing| {
        let mut finishing = finishing.borrow_mut();
        match finishing.iter_mut().find(|it| it.registry == registry) {
            Some(first) => first.deferred.extend(end.take()),
            None => finishing.push(Finishing::of(registry)),
        }
    });
    end.map_or(When::Later, When::Now)
}

/// This thread finishes an end that can't be deferred.
pub(super) fn enter(registry: usize) -> Nesting {
    let nesting = FINISHING.try_with(|finishing| {
        let mut finishing = finishing.borrow_mut();
        let is_first = finishing.iter().all(|it| it.registry != registry);
        if is_first {
            finishing.push(Finishing::of(registry));
        }
        if is_first {
            Nesting::Outermost
        } else {
            Nesting::Inside
        }
    });
    nesting.unwrap_or(Nesting::Inside)
}

/// How a thread comes to finish an end that can't be deferred.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nesting {
    /// It finishes no other one of this registry. It calls [`leave`] afterwards.
    Outermost,
    /// Inside of another one, which comes to what is deferred.
    Inside,
}

/// The next end that this thread has deferred.
pub(super) fn next(registry: usize) -> Option<Deferred> {
    let next = FINISHING.try_with(|finishing| {
        let mut finishing = finishing.borrow_mut();
        let of_registry = finishing.iter_mut().find(|it| it.registry == registry);
        of_registry?.deferred.pop_front()
    });
    next.ok().flatten()
}

/// This thread has finished everything.
pub(super) fn leave(registry: usize) {
    let _ = FINISHING.try_with(|finishing| {
        let mut finishing = finishing.borrow_mut();
        debug_assert!(finishing
            .iter()
            .all(|it| it.registry != registry || it.deferred.is_empty()));
        finishing.retain(|it| it.registry != registry);
    });
}

impl Finishing {
    fn of(registry: usize) -> Self {
        Self {
            registry,
            deferred: VecDeque::new(),
        }
    }
}
