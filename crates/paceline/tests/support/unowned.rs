//! A source that breaks I/O safety: a number whose owner may close it, or that was never open. The
//! pool must answer it with an error and nothing else. Apart because it needs `unsafe`.

use std::os::fd::{AsFd, BorrowedFd, RawFd};

/// A descriptor's number, and no descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unowned(pub(crate) RawFd);

impl AsFd for Unowned {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: not sound if the descriptor is not open, which is what the tests are about.
        // Nothing but the pool uses it, and the pool only asks the kernel to watch that number.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}
