//! The boundary between a user's panic, which is caught and reported, and one of ours, which
//! aborts.
//!
//! A destructor of the user's runs inside the boundary, too. A value with one owner is dropped
//! inside [`caught`], and the panic reported. A value that several threads share is [`Contained`]
//! from where it enters the crate: any of them may be the last one to drop it, in the middle of
//! anything. Of several values each has a boundary of its own: a second panic while the first one
//! unwinds would abort the process.

use std::{
    any::Any,
    mem,
    ops::{Deref, DerefMut},
    panic::{catch_unwind, AssertUnwindSafe},
    process,
    sync::{
        // A number that orders nothing.
        atomic::{AtomicU64, Ordering},
        Arc,
    },
};

/// Runs `user`, which may panic. Returns the panic's message.
///
/// Unwind safety is the user's affair: after a panic the handler's `closed` is called, and it is
/// dropped.
pub(crate) fn caught<R>(user: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(user)).map_err(message)
}

/// A payload's text. The payload is user data too: dropping it may panic once more, and that second
/// payload is then leaked, because nothing is known about it any more.
fn message(payload: Box<dyn Any + Send>) -> String {
    let text = match payload.downcast_ref::<&str>() {
        Some(text) => (*text).to_owned(),
        None => match payload.downcast_ref::<String>() {
            Some(text) => text.clone(),
            None => "a panic without a message".to_owned(),
        },
    };
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(second);
    }
    text
}

/// Drops these values, each in a boundary of its own. The first panic's message.
pub(crate) fn drop_each<T>(values: impl IntoIterator<Item = T>) -> Result<(), String> {
    let mut first = Ok(());
    for value in values {
        first = first.and(caught(|| drop(value)));
    }
    first
}

/// A value of the user's that may be dropped anywhere: a panic of its destructor does not leave it.
pub(crate) struct Contained<T> {
    /// `None` only at the end.
    value: Option<T>,
    /// Counts that panic, where one is counted.
    panics: Option<Arc<AtomicU64>>,
}

impl<T> Contained<T> {
    pub(crate) fn new(value: T) -> Self {
        let (value, panics) = (Some(value), None);
        Self { value, panics }
    }

    pub(crate) fn counted(value: T, panics: &Arc<AtomicU64>) -> Self {
        let (value, panics) = (Some(value), Some(Arc::clone(panics)));
        Self { value, panics }
    }

    /// Gives the value back to the user.
    pub(crate) fn into_inner(mut self) -> T {
        self.value.take().expect(IS_THERE)
    }
}

const IS_THERE: &str = "the value is there until it is dropped or given back";

impl<T> Deref for Contained<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect(IS_THERE)
    }
}

impl<T> DerefMut for Contained<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect(IS_THERE)
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        let dropped = caught(|| drop(value));
        if let (Err(_), Some(panics)) = (dropped, &self.panics) {
            panics.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs the pool's own code. If that panics, its promises can't be kept any more: the process
/// aborts.
pub(crate) fn abort_on_unwind<R>(own: impl FnOnce() -> R) -> R {
    let bomb = Bomb;
    let told = own();
    mem::forget(bomb);
    told
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        // The checkers end a failed schedule by unwinding through every thread.
        if !cfg!(any(loom, shuttle)) {
            eprintln!("paceline: the pool's own code panicked; aborting");
            process::abort();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    struct Grenade;

    impl Drop for Grenade {
        fn drop(&mut self) {
            panic!("drop fails");
        }
    }

    /// A thread that drops a contained value goes on. Two of them in one structure, or one while a
    /// panic unwinds already, would abort the process otherwise.
    #[test]
    fn a_contained_value_does_no_harm() {
        let panics = Arc::default();
        let contain = || Contained::counted(Grenade, &panics);
        drop(contain());
        drop((contain(), contain()));
        drop(Contained::new(Grenade));
        let unwinding = caught(|| {
            let _held = contain();
            panic!("first");
        });
        assert_eq!(unwinding, Err("first".to_owned()));
        assert_eq!(panics.load(Ordering::Relaxed), 4);
        mem::forget(contain().into_inner());
        assert_eq!(panics.load(Ordering::Relaxed), 4);
    }

    /// Each of several values is dropped, and the first panic is reported.
    #[test]
    fn each_of_several_is_dropped() {
        let first = drop_each([Grenade, Grenade, Grenade]);
        assert_eq!(first, Err("drop fails".to_owned()));
    }
}
