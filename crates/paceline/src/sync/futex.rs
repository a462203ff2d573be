//! Sleeping in the kernel: a futex.

use std::{ptr, sync::atomic::AtomicU32, time::Duration};

/// The kernel keeps the queue of sleepers, so there is nothing to hold here.
#[derive(Debug)]
pub(super) struct Futex;

impl Futex {
    pub(super) fn new() -> Self {
        Self
    }

    /// Sleeps while `word` is `value`. Returns on a wake, on `timeout`, on a signal, or at once if
    /// the word is something else: the caller looks again in every case.
    pub(super) fn sleep_while(&self, word: &AtomicU32, value: u32, timeout: Option<Duration>) {
        let timeout = timeout.map(timespec);
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: `word` is a live, aligned 32-bit word, and `timeout` is null or points to a
        // timespec that lives until the call returns. The kernel writes to neither.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                value,
                timeout,
            );
        }
    }

    /// Wakes one thread that sleeps on `word`.
    pub(super) fn wake_one(&self, word: &AtomicU32) {
        wake(word, 1);
    }

    /// Wakes every thread that sleeps on `word`.
    pub(super) fn wake_all(&self, word: &AtomicU32) {
        wake(word, i32::MAX);
    }
}

fn wake(word: &AtomicU32, most: i32) {
    // SAFETY: the kernel uses the address of `word` as a key and does not access its contents.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            most,
        );
    }
}

/// A relative time-out, measured by the kernel on the monotonic clock.
fn timespec(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}
