//! Which handlers run on the calling thread: so that no thread waits for itself.

use std::cell::{Cell, RefCell};

use super::handle::Key;
use crate::sync::{thread_local, thread_local_const};

/// User code of a registry that runs on this thread.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Frame {
    /// The registry's address. Zero, which no registry has, stands for no frame: so a thread's
    /// variable needs no `Option`, and is asked by one comparison.
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

/// One more frame of the registry at this address, until it is [left](Entered::leave). (Not a
/// closure around the user code: what that returns would go through memory, at every event.)
#[inline]
pub(super) fn enter(registry: usize, of: Option<Key>) -> Entered {
    let entered = INNERMOST.try_with(|frame| {
        let entered = match frame.get().registry {
            0 => Entered::Alone,
            _ => set_aside(frame.get()),
        };
        if entered != Entered::Unseen {
            frame.set(Frame { registry, of });
        }
        entered
    });
    entered.unwrap_or(Entered::Unseen)
}

/// User code runs in a frame, and must not unwind out of it.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Entered {
    /// The only one of this thread.
    Alone,
    /// There is one around it.
    Inside,
    /// At the very end of a thread, when its variables are dropped, there may be no list any more.
    /// The frame around it stays the innermost.
    Unseen,
}

impl Entered {
    #[inline]
    pub(super) fn leave(self) {
        match self {
            Self::Alone => put_innermost(Frame::NONE),
            Self::Inside => take_back(),
            Self::Unseen => {}
        }
    }
}

fn put_innermost(frame: Frame) {
    let _ = INNERMOST.try_with(|innermost| innermost.set(frame));
}

#[cold]
#[inline(never)]
fn set_aside(outer: Frame) -> Entered {
    match OUTER.try_with(|frames| frames.borrow_mut().push(outer)) {
        Ok(()) => Entered::Inside,
        Err(_) => Entered::Unseen,
    }
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    const ONE: usize = 1;
    const OTHER: usize = 2;

    /// What is counted, frame by frame.
    #[test]
    fn one_inside_the_other() {
        let outer = enter(ONE, None);
        let inner = enter(OTHER, None);
        assert_eq!((count(ONE), count(OTHER)), (1, 1));
        inner.leave();
        assert_eq!((count(ONE), count(OTHER)), (1, 0));
        outer.leave();
        assert_eq!((count(ONE), count(OTHER)), (0, 0));
    }

    /// A variable of a thread whose end, if the list is gone by then, enters two frames.
    struct AtTheEnd(mpsc::Sender<[usize; 3]>);

    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            if OUTER.try_with(|_| ()).is_ok() {
                return;
            }
            let outer = enter(ONE, None);
            let inner = enter(OTHER, None);
            let inside = count(ONE);
            inner.leave();
            let beside = count(ONE);
            outer.leave();
            self.0.send([inside, beside, count(ONE)]).unwrap();
        }
    }

    std::thread_local! {
        static BEFORE_THE_LIST: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
        static AFTER_THE_LIST: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
    }

    /// At the very end of a thread there is no list: the outer frame is there until it is left, and
    /// not longer. (The system does not say in which order variables are dropped. One of these two
    /// is dropped after the list.)
    #[test]
    fn the_outer_one_stays_when_the_list_is_gone() {
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            BEFORE_THE_LIST.set(Some(AtTheEnd(tell.clone())));
            OUTER.with(|_| ());
            AFTER_THE_LIST.set(Some(AtTheEnd(tell)));
        })
        .join()
        .unwrap();
        assert_eq!(told.iter().collect::<Vec<_>>(), [[1, 1, 0]]);
    }
}
