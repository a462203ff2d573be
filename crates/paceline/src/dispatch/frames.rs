//! Which handlers run on the calling thread: so that a shutdown does not wait for its own caller.

use std::cell::RefCell;

use crate::sync::thread_local;

thread_local! {
    /// The addresses of the registries whose user code runs on this thread, one inside the other.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's macro takes no const block")]
    static FRAMES: RefCell<Vec<usize>> = RefCell::new(Vec::new());
}

/// Runs `user` as one more frame of the registry at this address. It must not unwind.
pub(super) fn enter<R>(registry: usize, user: impl FnOnce() -> R) -> R {
    FRAMES.with(|frames| frames.borrow_mut().push(registry));
    let told = user();
    FRAMES.with(|frames| frames.borrow_mut().pop());
    told
}

/// How many frames of this registry there are.
pub(super) fn count(registry: usize) -> usize {
    let of_this = |frames: &RefCell<Vec<usize>>| {
        let frames = frames.borrow();
        frames.iter().filter(|other| **other == registry).count()
    };
    FRAMES.with(of_this)
}
