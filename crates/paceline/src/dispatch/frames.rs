//! Which handlers run on the calling thread: so that a shutdown does not wait for its own caller.

use std::cell::Cell;

use crate::sync::thread_local;

/// Handlers of one registry that run on this thread, one inside the other. Only the innermost
/// registry is known: a handler of one pool that calls into another's is rare, and costs such a
/// caller no more than its own deadline.
#[derive(Clone, Copy)]
struct Frames {
    /// The registry's address; zero for none.
    registry: usize,
    count: usize,
}

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's macro takes no const block")]
    static FRAMES: Cell<Frames> = Cell::new(Frames { registry: 0, count: 0 });
}

/// Runs `user` as one more frame of the registry at this address. It must not unwind.
pub(super) fn enter<R>(registry: usize, user: impl FnOnce() -> R) -> R {
    let outer = FRAMES.with(Cell::get);
    let count = count(registry) + 1;
    FRAMES.with(|frames| frames.set(Frames { registry, count }));
    let told = user();
    FRAMES.with(|frames| frames.set(outer));
    told
}

/// How many frames of this registry there are.
pub(super) fn count(registry: usize) -> usize {
    let frames = FRAMES.with(Cell::get);
    match frames.registry == registry {
        true => frames.count,
        false => 0,
    }
}
