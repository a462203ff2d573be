//! The seam to io_uring: what the kernel's header says, the system calls, and the memory that both
//! sides see.
//!
//! Unsafe because the system calls and the shared memory are. The kernel keeps both mappings alive
//! as long as they are mapped, so every reference into them is bound to the [`Ring`] that unmaps
//! them.

use std::{
    fs::File,
    io,
    marker::PhantomData,
    mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use super::{
    ring::{Completions, Entry},
    system::{attempted, checked},
};

// The kernel's names and numbers (`linux/io_uring.h`).
const IORING_SETUP_SQPOLL: u32 = 1 << 1;
const IORING_SETUP_CQSIZE: u32 = 1 << 3;
const IORING_FEAT_SINGLE_MMAP: u32 = 1 << 0;
const IORING_FEAT_NODROP: u32 = 1 << 1;
const IORING_FEAT_EXT_ARG: u32 = 1 << 8;
const IORING_OFF_SQ_RING: libc::off_t = 0;
const IORING_OFF_SQES: libc::off_t = 0x1000_0000;
const IORING_ENTER_GETEVENTS: u32 = 1 << 0;
const IORING_ENTER_SQ_WAKEUP: u32 = 1 << 1;
const IORING_ENTER_SQ_WAIT: u32 = 1 << 2;
const IORING_ENTER_EXT_ARG: u32 = 1 << 3;
const IORING_OP_POLL_ADD: u8 = 6;
const IORING_POLL_ADD_MULTI: u32 = 1 << 0;
const IORING_REGISTER_SYNC_CANCEL: u32 = 24;

/// How long the kernel's thread looks for more before it sleeps, in milliseconds: as short as it
/// can be.
const SQ_THREAD_IDLE: u32 = 1;

#[derive(Default)]
#[repr(C)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    resv: [u32; 3],
    sq_off: SqOffsets,
    cq_off: CqOffsets,
}

#[derive(Default)]
#[repr(C)]
struct SqOffsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    flags: u32,
    dropped: u32,
    array: u32,
    resv1: u32,
    user_addr: u64,
}

#[derive(Default)]
#[repr(C)]
struct CqOffsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    overflow: u32,
    cqes: u32,
    flags: u32,
    resv1: u32,
    user_addr: u64,
}

/// `io_uring_sqe`, of which a poll needs these.
#[derive(Default)]
#[repr(C)]
struct Submission {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    off: u64,
    addr: u64,
    len: u32,
    poll32_events: u32,
    user_data: u64,
    rest: [u64; 3],
}

#[derive(Default)]
#[repr(C)]
struct GeteventsArg {
    sigmask: u64,
    sigmask_sz: u32,
    pad: u32,
    ts: u64,
}

#[repr(C)]
struct KernelTimespec {
    tv_sec: i64,
    tv_nsec: i64,
}

#[derive(Default)]
#[repr(C)]
struct SyncCancelReg {
    addr: u64,
    fd: i32,
    flags: u32,
    timeout: [i64; 2],
    opcode: u8,
    pad: [u8; 7],
    pad2: [u64; 3],
}

const _: () = assert!(mem::size_of::<Params>() == 120);
const _: () = assert!(mem::size_of::<Submission>() == 64);
const _: () = assert!(mem::size_of::<SyncCancelReg>() == 64);
const _: () = assert!(mem::size_of::<Entry>() == 16);

/// An io_uring whose requests belong to a thread of the kernel's own, with room for one submission
/// at a time.
#[derive(Debug)]
pub(super) struct Ring {
    descriptor: OwnedFd,
    rings: Mapping,
    submissions: Mapping,
    at: Places,
}

/// Where things are in the first mapping.
#[derive(Clone, Copy, Debug)]
struct Places {
    sq_head: u32,
    sq_tail: u32,
    cq_head: u32,
    cq_tail: u32,
    cqes: u32,
    cq_entries: u32,
}

/// What became of a request that is to be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Cancelled {
    /// It will end soon.
    Soon,
    /// There is none, and nothing of it is left: the kernel has let go of its descriptor.
    Gone,
}

impl Ring {
    /// A ring with room for `completions`; more of them wait in the kernel.
    pub(super) fn new(completions: u32) -> io::Result<Self> {
        let mut params = Params {
            flags: IORING_SETUP_SQPOLL | IORING_SETUP_CQSIZE,
            cq_entries: completions,
            sq_thread_idle: SQ_THREAD_IDLE,
            ..Params::default()
        };
        let descriptor = setup(1, &mut params).map_err(|error| refusal(&error))?;
        let needed = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
        if params.features & needed != needed {
            return Err(too_old());
        }
        let (sq, cq) = (&params.sq_off, &params.cq_off);
        let of_entries = params.cq_entries as usize * mem::size_of::<Entry>();
        let length = (cq.cqes as usize + of_entries).max(sq.array as usize + 4);
        let ring = Self {
            rings: Mapping::new(&descriptor, length, IORING_OFF_SQ_RING)?,
            submissions: Mapping::new(&descriptor, mem::size_of::<Submission>(), IORING_OFF_SQES)?,
            descriptor,
            at: Places {
                sq_head: sq.head,
                sq_tail: sq.tail,
                cq_head: cq.head,
                cq_tail: cq.tail,
                cqes: cq.cqes,
                cq_entries: params.cq_entries,
            },
        };
        // A kernel that can't say whether a request is gone does not know the question.
        match ring.cancel(u64::MAX) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(too_old()),
            asked => asked.map(|_| ring),
        }
    }

    /// Submits a poll of `descriptor` for `bits` that reports every edge under `key`, beginning
    /// with what is ready already. When this returns the kernel has begun it; its verdict is a
    /// completion. One caller at a time.
    pub(super) fn poll_edges(&self, descriptor: RawFd, key: u64, bits: u32) -> io::Result<()> {
        let submission = Submission {
            opcode: IORING_OP_POLL_ADD,
            fd: descriptor,
            len: IORING_POLL_ADD_MULTI,
            poll32_events: if cfg!(target_endian = "big") {
                bits.rotate_left(16)
            } else {
                bits
            },
            user_data: key,
            ..Submission::default()
        };
        let place = self.submissions.start.cast::<Submission>();
        // SAFETY: the mapping is one submission long. The kernel reads it only while the tail is
        // past the head, and it is not: the last call waited for that, and no other thread is in
        // this one.
        unsafe { place.write(submission) };
        let (head, tail) = (self.word(self.at.sq_head), self.word(self.at.sq_tail));
        let next = tail.load(Ordering::Relaxed).wrapping_add(1);
        // Pairs with the kernel's load of the tail: it sees the submission whole.
        tail.store(next, Ordering::Release);
        // The first place of the array of indices is zero, as the kernel made it. Pairs with the
        // kernel's store of the head, which comes after it has begun what it took.
        while head.load(Ordering::Acquire) != next {
            // There is room for one, so a caller that waits for room waits for this one.
            let flags = IORING_ENTER_SQ_WAKEUP | IORING_ENTER_SQ_WAIT;
            self.enter(0, flags, None)
                .map_err(|error| attempted("submit a poll (io_uring_enter)", &error))?;
        }
        Ok(())
    }

    /// Ends the request with this key: when this returns, nothing of it is left but its past
    /// reports.
    pub(super) fn end(&self, key: u64) -> io::Result<()> {
        loop {
            match self.cancel(key) {
                Ok(Cancelled::Gone) => return Ok(()),
                Ok(Cancelled::Soon) => pause(),
                Err(error) => return Err(attempted("cancel a poll (io_uring_register)", &error)),
            }
        }
    }

    /// Asks the kernel to end the request with this key.
    fn cancel(&self, key: u64) -> io::Result<Cancelled> {
        let question = SyncCancelReg {
            addr: key,
            fd: -1,
            timeout: [-1, -1],
            ..SyncCancelReg::default()
        };
        // SAFETY: `question` is what this operation reads, once, and lives until the call returns.
        let told = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                self.descriptor.as_raw_fd(),
                IORING_REGISTER_SYNC_CANCEL,
                ptr::from_ref(&question),
                1,
            )
        };
        match checked(told as i32) {
            Ok(_) => Ok(Cancelled::Soon),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT) => Ok(Cancelled::Gone),
                Some(libc::EALREADY | libc::EINTR) => Ok(Cancelled::Soon),
                _ => Err(error),
            },
        }
    }

    /// Sleeps until a completion is there, for at most `timeout`, or until it is interrupted.
    /// Before that the kernel moves to the ring what had no room there.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self.enter(1, IORING_ENTER_GETEVENTS, timeout) {
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR) => Ok(()),
                _ => Err(attempted("wait for events (io_uring_enter)", &error)),
            },
            Ok(()) => Ok(()),
        }
    }

    /// What the kernel has reported.
    pub(super) fn completions(&self) -> Completions<'_> {
        let count = self.at.cq_entries as usize;
        // SAFETY: so many entries are at this place of the mapping, which lives as long as `self`.
        // They are words that are read by atomic loads only.
        let entries = unsafe { slice::from_raw_parts(self.rings.at(self.at.cqes).cast(), count) };
        Completions {
            head: self.word(self.at.cq_head),
            tail: self.word(self.at.cq_tail),
            entries,
        }
    }

    fn enter(&self, at_least: u32, flags: u32, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| KernelTimespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let argument = GeteventsArg {
            ts: timeout.as_ref().map_or(0, |ts| ptr::from_ref(ts) as u64),
            ..GeteventsArg::default()
        };
        // SAFETY: `argument`, which is as long as it is said to be, and what it points to live
        // until the call returns.
        let told = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.descriptor.as_raw_fd(),
                0,
                at_least,
                flags | IORING_ENTER_EXT_ARG,
                ptr::from_ref(&argument),
                mem::size_of::<GeteventsArg>(),
            )
        };
        checked(told as i32).map(drop)
    }

    /// The word at this place of the first mapping.
    fn word(&self, place: u32) -> &AtomicU32 {
        // SAFETY: the kernel said that a word is there; the mapping is longer than that, and lives
        // as long as `self`. Both sides change it by atomic operations only.
        unsafe { AtomicU32::from_ptr(self.rings.at(place).cast()) }
    }
}

/// A new eventfd, which can be written to without waiting.
pub(super) fn bell() -> io::Result<File> {
    // SAFETY: no pointer is passed.
    let told = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    let descriptor = checked(told).map_err(|error| attempted("make a waker (eventfd)", &error))?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Lets the kernel's thread run for a moment.
fn pause() {
    let moment = libc::timespec {
        tv_sec: 0,
        tv_nsec: 10_000,
    };
    // SAFETY: `moment` lives until the call returns; where the rest of it would go may be null.
    unsafe { libc::nanosleep(&moment, ptr::null_mut()) };
}

fn setup(entries: u32, params: &mut Params) -> io::Result<OwnedFd> {
    // SAFETY: `params` is what this call reads and writes, and lives until it returns.
    let told = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, ptr::from_mut(params)) };
    let descriptor = checked(told as i32)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Says what to do about the two ways in which a system has no io_uring.
fn refusal(error: &io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS) => ": this kernel has no io_uring",
        Some(libc::EPERM) => {
            ": io_uring is not allowed here (kernel.io_uring_disabled, or a sandbox)"
        }
        _ => "",
    };
    let text = format!("make a completion set (io_uring_setup): {error}{why}");
    io::Error::new(error.kind(), text)
}

fn too_old() -> io::Error {
    let text = "make a completion set: the io_uring of this kernel is older than that of Linux 6.0";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Memory that is shared with the kernel.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
    /// It may be used by any thread: what is in it says how.
    of: PhantomData<AtomicU32>,
}

// SAFETY: a mapping belongs to the process. What is written to it is written by atomic operations,
// or by one caller at a time.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(of: &OwnedFd, length: usize, offset: libc::off_t) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: the kernel chooses a place where nothing is.
        let told = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                access,
                flags,
                of.as_raw_fd(),
                offset,
            )
        };
        let start = NonNull::new(told.cast()).filter(|_| told != libc::MAP_FAILED);
        let of = PhantomData;
        start
            .map(|start| Self { start, length, of })
            .ok_or_else(|| attempted("map a completion set (mmap)", &io::Error::last_os_error()))
    }
}

impl Mapping {
    fn at(&self, place: u32) -> *mut u8 {
        self.start.as_ptr().wrapping_add(place as usize)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped like this, and all references into it are bound to what is dropped
        // here.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that removes a handle at once after it was added asks the kernel for a poll that
    /// its thread, which has just been made, may not have begun. It would begin later, on a number
    /// that is another's by then.
    #[test]
    fn what_was_submitted_has_begun() {
        for key in 0..50 {
            let ring = match Ring::new(8) {
                Ok(ring) => ring,
                Err(error) => return eprintln!("skipped: on a completion set: {error}"),
            };
            let bell = bell().unwrap();
            let bits = libc::EPOLLIN as u32;
            ring.poll_edges(bell.as_raw_fd(), key, bits).unwrap();
            assert_eq!(ring.cancel(key).unwrap(), Cancelled::Soon);
            ring.end(key).unwrap();
            assert_eq!(ring.cancel(key).unwrap(), Cancelled::Gone);
        }
    }
}
