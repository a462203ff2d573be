//! Scratch buffers of the thread: memory to read into that belongs to no connection.

use std::{
    cell::RefCell,
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

/// The length of a buffer: what one call of a handler may read by default.
const LENGTH: usize = 64 * 1024;

/// So many buffers are kept per thread: one for each handler inside another.
const KEPT: usize = 4;

std::thread_local! {
    static KEPT_BUFFERS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of 64 KiB that belongs to the calling thread, lent until the guard is dropped.
///
/// Ten thousand idle connections need no buffers of their own: a handler reads into this one and
/// keeps what is left over. What it holds at first is left over from earlier use. A handler that
/// runs inside another one gets a buffer of its own.
///
/// ```
/// # use paceline::{scratch, Context, Next};
/// # use std::net::TcpStream;
/// let echo = |cx: &mut Context<'_, TcpStream>| {
///     let mut buffer = scratch();
///     let count = cx.read(&mut buffer)?;
///     cx.write_all(&buffer[..count])?;
///     Ok(if count == 0 { Next::Close } else { Next::Continue })
/// };
/// # fn is_handler<S>(_: impl paceline::EventHandler<S>) {}
/// # is_handler::<TcpStream>(echo);
/// ```
#[must_use]
pub fn scratch() -> Scratch {
    let kept = KEPT_BUFFERS.try_with(|kept| kept.borrow_mut().pop());
    let buffer = kept.ok().flatten();
    Scratch {
        buffer: buffer.unwrap_or_else(|| vec![0; LENGTH].into_boxed_slice()),
        of_this_thread: PhantomData,
    }
}

/// The guard of a scratch buffer: see [`scratch`].
pub struct Scratch {
    buffer: Box<[u8]>,
    of_this_thread: PhantomData<*const ()>,
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        // A thread that ends keeps nothing.
        let _ = KEPT_BUFFERS.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT {
                kept.push(buffer);
            }
        });
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch")
            .field("len", &self.buffer.len())
            .finish()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Handlers that were nested more deeply than usual leave no more behind than is meant to be
    /// kept.
    #[test]
    fn no_more_is_kept_than_meant() {
        let kept = || KEPT_BUFFERS.with_borrow(Vec::len);
        for nested in [1, KEPT, KEPT + 1, 2 * KEPT] {
            drop((0..nested).map(|_| scratch()).collect::<Vec<_>>());
            assert_eq!(kept(), nested.min(KEPT));
        }
    }
}
