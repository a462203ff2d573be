//! Which handlers run on the calling thread: so that nobody waits for itself.

use std::cell::RefCell;

use super::handle::Key;
use crate::sync::thread_local;

/// User code of a registry that runs on this thread.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Frame {
    /// The registry's address.
    registry: usize,
    /// The registration whose handler it is; `None` once its handle was given back.
    of: Option<Key>,
}

thread_local! {
    /// One inside the other.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's macro takes no const block")]
    static FRAMES: RefCell<Vec<Frame>> = RefCell::new(Vec::new());
}

/// Runs `user` as one more frame of the registry at this address. It must not unwind. (At the very end of a
/// thread, when its variables are dropped, there may be no list any more; then nobody waits there either.)
pub(super) fn enter<R>(registry: usize, of: Option<Key>, user: impl FnOnce() -> R) -> R {
    let _ = FRAMES.try_with(|frames| frames.borrow_mut().push(Frame { registry, of }));
    let told = user();
    let _ = FRAMES.try_with(|frames| frames.borrow_mut().pop());
    told
}

/// How many frames of this registry there are.
pub(super) fn count(registry: usize) -> usize {
    count_if(|frame| frame.registry == registry)
}

/// How many of them have their handle.
pub(super) fn count_with_handle(registry: usize) -> usize {
    count_if(|frame| frame.registry == registry && frame.of.is_some())
}

/// Whether this registration's own handler runs here.
pub(super) fn contains(registry: usize, key: Key) -> bool {
    let of = Some(key);
    count_if(|frame| *frame == Frame { registry, of }) > 0
}

fn count_if(holds: impl Fn(&Frame) -> bool) -> usize {
    let counted =
        FRAMES.try_with(|frames| frames.borrow().iter().filter(|frame| holds(frame)).count());
    counted.unwrap_or(0)
}
