//! Buffers of the thread for what a relay adds: no session has any of its own.

use std::{
    cell::RefCell,
    ops::{Deref, DerefMut},
};

/// A buffer that has grown beyond this is given back to the system.
const KEPT: usize = 64 * 1024;

/// Bytes for both sides of a relay.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    pub(crate) to_server: Vec<u8>,
    pub(crate) to_client: Vec<u8>,
}

std::thread_local! {
    static SPARE: RefCell<Vec<Pair>> = const { RefCell::new(Vec::new()) };
}

/// Empty buffers, lent until the guard is dropped.
pub(crate) fn pair() -> PairGuard {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
    PairGuard(spare.ok().flatten().unwrap_or_default())
}

/// The guard of a pair of buffers.
#[derive(Debug)]
pub(crate) struct PairGuard(Pair);

impl Deref for PairGuard {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        &self.0
    }
}

impl DerefMut for PairGuard {
    fn deref_mut(&mut self) -> &mut Pair {
        &mut self.0
    }
}

impl Drop for PairGuard {
    fn drop(&mut self) {
        let mut pair = std::mem::take(&mut self.0);
        if pair.to_server.capacity().max(pair.to_client.capacity()) > KEPT {
            return;
        }
        pair.to_server.clear();
        pair.to_client.clear();
        // A thread that ends keeps nothing.
        let _ = SPARE.try_with(|spare| spare.borrow_mut().push(pair));
    }
}
