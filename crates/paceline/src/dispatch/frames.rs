//! Which handlers run on the calling thread: so that nobody waits for itself.

use std::cell::{Cell, RefCell};

use super::handle::Key;
use crate::sync::{thread_local, thread_local_const};

/// User code of a registry that runs on this thread.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Frame {
    /// The registry's address; zero, where there is none.
    registry: usize,
    /// The registration whose handler it is; `None` once its handle was given back.
    of: Option<Key>,
}

impl Frame {
    /// No user code runs here.
    const NONE: Self = Self {
        registry: 0,
        of: None,
    };
}

thread_local_const! {
    /// The innermost frame: nearly always the only one.
    static INNERMOST: Cell<Frame> = Cell::new(Frame::NONE);
}

thread_local! {
    /// Those around it, one inside the other.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's macro takes no const block")]
    static OUTER: RefCell<Vec<Frame>> = RefCell::new(Vec::new());
}

/// One more frame of the registry at this address, until it is left. (At the very end of a thread, when its variables are
/// dropped, there may be no list any more; then nobody waits there either.)
#[inline]
pub(super) fn enter(registry: usize, of: Option<Key>) -> Entered {
    let is_inner = INNERMOST.try_with(|frame| {
        let is_inner = frame.get().registry != 0;
        if is_inner {
            set_aside(frame.get());
        }
        frame.set(Frame { registry, of });
        is_inner
    });
    Entered {
        is_inner: is_inner.unwrap_or(false),
    }
}

/// User code runs in a frame, and must not unwind out of it.
#[must_use]
pub(super) struct Entered {
    /// There is one around it.
    is_inner: bool,
}

impl Entered {
    #[inline]
    pub(super) fn leave(self) {
        match self.is_inner {
            true => take_back(),
            false => put_innermost(Frame::NONE),
        }
    }
}

fn put_innermost(frame: Frame) {
    let _ = INNERMOST.try_with(|innermost| innermost.set(frame));
}

#[cold]
#[inline(never)]
fn set_aside(outer: Frame) {
    let _ = OUTER.try_with(|frames| frames.borrow_mut().push(outer));
}

/// The frame that was set aside last is the innermost one again.
#[cold]
#[inline(never)]
fn take_back() {
    let last = OUTER.try_with(|frames| frames.borrow_mut().pop());
    put_innermost(last.ok().flatten().unwrap_or(Frame::NONE));
}

/// How many frames of this registry there are.
pub(super) fn count(registry: usize) -> usize {
    count_if(|frame| frame.registry == registry)
}

/// The registrations whose handlers run here.
pub(super) fn keys(registry: usize) -> Vec<Key> {
    let innermost = INNERMOST.try_with(Cell::get).ok();
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
    let innermost = INNERMOST.try_with(Cell::get).ok();
    let outer =
        OUTER.try_with(|frames| frames.borrow().iter().filter(|frame| holds(frame)).count());
    usize::from(innermost.as_ref().is_some_and(&holds)) + outer.unwrap_or(0)
}
