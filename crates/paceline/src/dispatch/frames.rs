//! Which handlers run on the calling thread: so that nobody waits for itself.

use std::cell::{Cell, RefCell};

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
    /// The innermost frame: nearly always the only one.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's macro takes no const block")]
    static INNERMOST: Cell<Option<Frame>> = Cell::new(None);
    /// Those around it, one inside the other.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's macro takes no const block")]
    static OUTER: RefCell<Vec<Frame>> = RefCell::new(Vec::new());
}

/// Runs `user` as one more frame of the registry at this address. It must not unwind. (At the very end of a
/// thread, when its variables are dropped, there may be no list any more; then nobody waits there either.)
pub(super) fn enter<R>(registry: usize, of: Option<Key>, user: impl FnOnce() -> R) -> R {
    let innermost = Some(Frame { registry, of });
    let outer = INNERMOST.try_with(|frame| frame.replace(innermost));
    let outer = outer.ok().flatten();
    if let Some(outer) = outer {
        let _ = OUTER.try_with(|frames| frames.borrow_mut().push(outer));
    }
    let told = user();
    if outer.is_some() {
        let _ = OUTER.try_with(|frames| frames.borrow_mut().pop());
    }
    let _ = INNERMOST.try_with(|frame| frame.set(outer));
    told
}

/// How many frames of this registry there are.
pub(super) fn count(registry: usize) -> usize {
    count_if(|frame| frame.registry == registry)
}

/// The registrations whose handlers run here.
pub(super) fn keys(registry: usize) -> Vec<Key> {
    let innermost = INNERMOST.try_with(Cell::get).ok().flatten();
    let outer = OUTER.try_with(|frames| frames.borrow().clone());
    let all = outer.unwrap_or_default().into_iter().chain(innermost);
    all.filter(|frame| frame.registry == registry)
        .filter_map(|frame| frame.of)
        .collect()
}

/// Whether this registration's own handler runs here.
pub(super) fn contains(registry: usize, key: Key) -> bool {
    let of = Some(key);
    count_if(|frame| *frame == Frame { registry, of }) > 0
}

fn count_if(holds: impl Fn(&Frame) -> bool) -> usize {
    let innermost = INNERMOST.try_with(Cell::get).ok().flatten();
    let outer =
        OUTER.try_with(|frames| frames.borrow().iter().filter(|frame| holds(frame)).count());
    usize::from(innermost.as_ref().is_some_and(&holds)) + outer.unwrap_or(0)
}
