//! Memory that two processes share, and how its descriptor goes from one to the other.
//!
//! `unsafe`, because std neither maps memory nor passes descriptors. What is mapped is only ever seen as atomic words, so
//! it is no matter to the compiler what another process writes there. And it can't go away: the memory is **sealed**
//! against shrinking before it is mapped, which is asked of the kernel and not of the peer.

use std::{
    io, mem,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    ptr::{self, NonNull},
    slice,
};

use crate::sync::atomic::AtomicU64;

/// Nobody makes it smaller or larger, and nobody takes this back.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Words that are shared with another process.
pub(super) struct Map {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: it is a piece of memory that belongs to nobody's thread; all that is told of it are atomics.
unsafe impl Send for Map {}
// SAFETY: likewise.
unsafe impl Sync for Map {}

impl Map {
    /// New memory of so many words, all zero, and its descriptor.
    pub(super) fn create(words: usize) -> io::Result<(Self, OwnedFd)> {
        let bytes = words
            .checked_mul(8)
            .and_then(|it| libc::off_t::try_from(it).ok());
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a string with its end, which is read.
        let told = unsafe { libc::memfd_create(c"paceline-ring".as_ptr(), flags) };
        let descriptor = checked(told)?;
        // SAFETY: it is new, and nobody else's.
        let memory = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // SAFETY: it takes numbers.
        checked(unsafe { libc::ftruncate(memory.as_raw_fd(), bytes) })?;
        // SAFETY: it takes numbers.
        checked(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        Ok((Self::of_memory(&memory, words)?, memory))
    }

    /// Memory that a peer has made, if it is what it should be, and not more than `most` words.
    pub(super) fn open(memory: OwnedFd, most: usize) -> io::Result<Self> {
        let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidData, text));
        // SAFETY: it takes numbers.
        let seals = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS {
            return invalid("it is not memory that is sealed against shrinking");
        }
        // SAFETY: all zeros are a valid `stat`.
        let mut stat: libc::stat = unsafe { mem::zeroed() };
        // SAFETY: the kernel writes one whole `stat`.
        checked(unsafe { libc::fstat(memory.as_raw_fd(), &mut stat) })?;
        match usize::try_from(stat.st_size) {
            Ok(bytes) if bytes % 8 != 0 => invalid("its size is no number of words"),
            Ok(bytes) if bytes / 8 > most => invalid("it is larger than allowed"),
            Ok(bytes) => Self::of_memory(&memory, bytes / 8),
            Err(_) => invalid("its size is no size"),
        }
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped there, readable and writable, until this is dropped. The kernel begins them at
        // the start of a page. Any bits are a valid atomic, and other processes' writes are as those of another thread
        // that uses atomics. The memory can't shrink: it is sealed.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// The descriptor's memory has at least so many words, for ever.
    fn of_memory(memory: &OwnedFd, words: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses a place that nothing else has.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                words * 8,
                access,
                libc::MAP_SHARED,
                memory.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, words })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `of_memory`, as long as this, and nobody borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// What goes with the descriptor.
const GREETING: u8 = b'R';

/// Room for control data with one descriptor, aligned as the kernel's headers are.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    bytes: [u8; 64],
}

/// One message of one byte, with room for control data. Calls `transfer` with it.
fn message(
    byte: &mut u8,
    control: &mut Control,
    room: usize,
    transfer: impl FnOnce(&mut libc::msghdr) -> isize,
) -> io::Result<usize> {
    let mut part = libc::iovec {
        iov_base: ptr::from_mut(byte).cast(),
        iov_len: 1,
    };
    // SAFETY: all zeros are a valid `msghdr`: no address, no parts, no control data.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = ptr::from_mut(control).cast();
    message.msg_controllen = room as _;
    match usize::try_from(transfer(&mut message)) {
        Ok(count) => Ok(count),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// How much control data one descriptor takes, with its header and without it.
fn sizes() -> (usize, usize) {
    let one = mem::size_of::<libc::c_int>() as u32;
    // SAFETY: they compute with numbers.
    let space = unsafe { libc::CMSG_SPACE(one) };
    // SAFETY: likewise.
    let length = unsafe { libc::CMSG_LEN(one) };
    (space as usize, length as usize)
}

/// Passes the descriptor on.
pub(super) fn send(over: &UnixStream, memory: &OwnedFd) -> io::Result<()> {
    let (space, length) = sizes();
    let (mut control, mut byte) = (Control { bytes: [0; 64] }, GREETING);
    let count = message(&mut byte, &mut control, space, |message| {
        // SAFETY: the control data of this message has room for a header: `space` bytes, aligned.
        let header = unsafe { libc::CMSG_FIRSTHDR(message) };
        let whole = libc::cmsghdr {
            cmsg_len: length as _,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        };
        // SAFETY: see above.
        unsafe { header.write(whole) };
        // SAFETY: behind the header there is room for one descriptor.
        let place = unsafe { libc::CMSG_DATA(header) }.cast::<libc::c_int>();
        // SAFETY: as above; it need not be aligned.
        unsafe { place.write_unaligned(memory.as_raw_fd()) };
        // SAFETY: the message, its part and its control data live until the call returns, which reads them.
        unsafe { libc::sendmsg(over.as_raw_fd(), message, libc::MSG_NOSIGNAL) }
    })?;
    match count {
        1 => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives a descriptor. There is room for one; what else a peer may send the kernel closes.
pub(super) fn receive(over: &UnixStream) -> io::Result<OwnedFd> {
    let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidData, text));
    let (space, length) = sizes();
    let (mut control, mut byte) = (Control { bytes: [0; 64] }, 0);
    let mut received = None;
    let count = message(&mut byte, &mut control, space, |message| {
        // SAFETY: the message, its part and its control data live until the call returns, which writes to them.
        let count = unsafe { libc::recvmsg(over.as_raw_fd(), message, libc::MSG_CMSG_CLOEXEC) };
        if count >= 0 {
            received = first_descriptor(message, length);
        }
        count
    })?;
    match (count, byte, received) {
        (0, ..) => Err(io::ErrorKind::UnexpectedEof.into()),
        (_, GREETING, Some(memory)) => Ok(memory),
        _ => invalid("the peer sent something else than the memory of a ring"),
    }
}

/// The descriptor in the control data of a message that the kernel has filled.
fn first_descriptor(message: &libc::msghdr, length: usize) -> Option<OwnedFd> {
    // SAFETY: the kernel has said how much control data there is; null if there is no whole header.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    let header = NonNull::new(header)?;
    // SAFETY: it points to a whole header in the control data.
    let told = unsafe { header.read() };
    let is_one = told.cmsg_level == libc::SOL_SOCKET
        && told.cmsg_type == libc::SCM_RIGHTS
        && told.cmsg_len as usize == length;
    if !is_one {
        return None;
    }
    // SAFETY: behind the header there is one descriptor: its length says so.
    let place = unsafe { libc::CMSG_DATA(header.as_ptr()) }.cast::<libc::c_int>();
    // SAFETY: see above; it need not be aligned.
    let descriptor = unsafe { place.read_unaligned() };
    // SAFETY: the kernel has made it for us, and nobody else has it.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn checked(told: libc::c_int) -> io::Result<libc::c_int> {
    match told {
        0.. => Ok(told),
        _ => Err(io::Error::last_os_error()),
    }
}
