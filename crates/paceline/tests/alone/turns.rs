//! The lock that makes all tests of this program take turns.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test of this program runs, and keeps the others out while the guard lives.
///
/// A test takes its turn before it starts the clock of `bounded`: waiting for others is no hang.
pub(super) fn take_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
