//! The boundary between a user's panic, which is caught and told, and one of ours, which aborts.

use std::{
    any::Any,
    mem,
    panic::{catch_unwind, AssertUnwindSafe},
    process,
};

/// Runs `user`, which may panic. Tells the panic's message.
///
/// Unwind safety is the user's affair: after a panic the handler is only told `closed` and dropped.
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

/// Runs the pool's own code. If that panics, its promises can't be kept any more: the process aborts.
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
