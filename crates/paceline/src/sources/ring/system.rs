//! Memory that two processes share, and how its descriptor goes from one to the other.
//!
//! `unsafe`, because std neither maps memory nor passes descriptors. What is mapped is only ever
//! seen as atomic words, so it is no matter to the compiler what another process writes there. And
//! it can't go away: the memory is **sealed** against shrinking before it is mapped, which is asked
//! of the kernel and not of the peer.

use std::{
    io, mem,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    ptr::{self, NonNull},
    slice,
};

use crate::sync::atomic::AtomicU64;

/// No process makes it smaller or larger, or takes this back.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Words that are shared with another process.
pub(super) struct Map {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: it is a piece of memory that belongs to no thread; all that is read of it are atomics.
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
        // SAFETY: it is new, and nothing else owns it.
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
        // SAFETY: so many words are mapped there, readable and writable, until this is dropped. The
        // kernel begins them at the start of a page. Any bits are a valid atomic, and other
        // processes' writes are as those of another thread that uses atomics. The memory can't
        // shrink: it is sealed.
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
        // SAFETY: it was mapped by `of_memory`, as long as this, and nothing borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// What goes with the descriptor.
const GREETING: u8 = b'R';

/// Room for control data: one descriptor, and what the system adds on request of the socket's owner
/// (credentials, a label).
const ROOM: usize = 256;

/// Control data, aligned as the kernel's headers are.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    bytes: [u8; ROOM],
}

/// The kernel sends descriptors of processes under this number, which older versions of libc do not
/// name.
const SCM_PIDFD: libc::c_int = 4;

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

/// How much control data so many descriptors take, with their header and without the padding behind
/// them.
fn length_of(descriptors: usize) -> usize {
    let bytes = descriptors * mem::size_of::<libc::c_int>();
    // SAFETY: it computes with numbers.
    unsafe { libc::CMSG_LEN(bytes as u32) as usize }
}

/// Passes the descriptor on.
pub(super) fn send(over: &UnixStream, memory: &OwnedFd) -> io::Result<()> {
    send_all(over, &[memory.as_raw_fd()])
}

/// Passes these descriptors on in one message.
fn send_all(over: &UnixStream, descriptors: &[RawFd]) -> io::Result<()> {
    let length = length_of(descriptors.len());
    assert!(length <= ROOM, "the control data has room for them");
    let (mut control, mut byte) = (Control { bytes: [0; ROOM] }, GREETING);
    let count = message(&mut byte, &mut control, length, |message| {
        // SAFETY: the control data of this message has room for a header: `length` bytes, aligned.
        let header = unsafe { libc::CMSG_FIRSTHDR(message) };
        let whole = libc::cmsghdr {
            cmsg_len: length as _,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        };
        // SAFETY: see above.
        unsafe { header.write(whole) };
        // SAFETY: as above; the descriptors come behind the header.
        let place = unsafe { libc::CMSG_DATA(header) }.cast::<libc::c_int>();
        for (at, descriptor) in descriptors.iter().enumerate() {
            // SAFETY: `length` has room for all of them.
            let place = unsafe { place.add(at) };
            // SAFETY: see above. It need not be aligned.
            unsafe { place.write_unaligned(*descriptor) };
        }
        // SAFETY: the message, its part and its control data live until the call returns, which
        // reads them.
        unsafe { libc::sendmsg(over.as_raw_fd(), message, libc::MSG_NOSIGNAL) }
    })?;
    if count == 1 {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Receives the one descriptor that the peer sends with its greeting.
///
/// Every descriptor of the message is owned before the message is judged: a peer that sends too
/// many of them leaves none open here.
pub(super) fn receive(over: &UnixStream) -> io::Result<OwnedFd> {
    let (mut control, mut byte) = (Control { bytes: [0; ROOM] }, 0);
    let (mut received, mut is_whole) = (Vec::new(), false);
    let count = message(&mut byte, &mut control, ROOM, |message| {
        // SAFETY: the message, its part and its control data live until the call returns, which
        // writes to them.
        let count = unsafe { libc::recvmsg(over.as_raw_fd(), message, libc::MSG_CMSG_CLOEXEC) };
        if count >= 0 {
            received = own_descriptors(message);
            is_whole = message.msg_flags & libc::MSG_CTRUNC == 0;
        }
        count
    })?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let only = received.pop().filter(|_| received.is_empty());
    match only {
        Some(memory) if byte == GREETING && is_whole => Ok(memory),
        _ => {
            let text = "the peer sent something else than the memory of a ring";
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
    }
}

/// The descriptors that the peer sent with this message, which the caller has just received. Those
/// of other kinds are closed.
fn own_descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut owned = Vec::new();
    // SAFETY: the kernel has set how much control data there is; null if it holds no whole header.
    let mut next = NonNull::new(unsafe { libc::CMSG_FIRSTHDR(message) });
    while let Some(header) = next {
        own_those_of(header, &mut owned);
        // SAFETY: `header` is one of this message's; null if no whole one follows.
        next = NonNull::new(unsafe { libc::CMSG_NXTHDR(message, header.as_ptr()) });
    }
    owned
}

/// Takes the descriptors behind one header into `owned`. What the system itself has opened is
/// closed here.
fn own_those_of(header: NonNull<libc::cmsghdr>, owned: &mut Vec<OwnedFd>) {
    // SAFETY: it points to a whole header in control data that the kernel has filled.
    let whole = unsafe { header.read() };
    let is_of_sockets = whole.cmsg_level == libc::SOL_SOCKET;
    let is_sent = is_of_sockets && whole.cmsg_type == libc::SCM_RIGHTS;
    let is_added = is_of_sockets && whole.cmsg_type == SCM_PIDFD;
    if !is_sent && !is_added {
        return;
    }
    let length: usize = whole.cmsg_len as _;
    let bytes = length.saturating_sub(length_of(0));
    // SAFETY: behind the header come so many bytes, says the kernel.
    let place = unsafe { libc::CMSG_DATA(header.as_ptr()) }.cast::<libc::c_int>();
    for at in 0..bytes / mem::size_of::<libc::c_int>() {
        // SAFETY: see above.
        let place = unsafe { place.add(at) };
        // SAFETY: see above. It need not be aligned.
        let descriptor = unsafe { place.read_unaligned() };
        // For a process that is gone the kernel may put an error there.
        if descriptor < 0 {
            continue;
        }
        // SAFETY: the kernel has opened it for this message, and nothing else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        owned.extend(is_sent.then_some(descriptor));
    }
}

fn checked(told: libc::c_int) -> io::Result<libc::c_int> {
    match told {
        0.. => Ok(told),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read, time::Duration};

    use super::*;

    /// Older versions of libc do not name it.
    const SO_PASSPIDFD: libc::c_int = 76;

    /// The receiver's end of a socket over which the returned peers' other ends were sent, so many
    /// in one message.
    fn sent(count: usize) -> (UnixStream, Vec<UnixStream>) {
        sent_to(UnixStream::pair().unwrap(), count)
    }

    fn sent_to(
        (ours, theirs): (UnixStream, UnixStream),
        count: usize,
    ) -> (UnixStream, Vec<UnixStream>) {
        let (kept, passed): (Vec<_>, Vec<_>) = pairs(count).into_iter().unzip();
        let numbers: Vec<_> = passed.iter().map(AsRawFd::as_raw_fd).collect();
        send_all(&theirs, &numbers).unwrap();
        (ours, kept)
    }

    fn pairs(count: usize) -> Vec<(UnixStream, UnixStream)> {
        (0..count).map(|_| UnixStream::pair().unwrap()).collect()
    }

    /// Whether the other end of this one is closed everywhere. It waits for that, within a bound.
    fn is_closed(mut kept: &UnixStream) -> bool {
        kept.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        matches!(kept.read(&mut [0]), Ok(0))
    }

    fn ask_for(of: &UnixStream, option: libc::c_int) -> bool {
        let on: libc::c_int = 1;
        // SAFETY: the option is an int, which is read.
        let result = unsafe {
            libc::setsockopt(
                of.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                ptr::from_ref(&on).cast(),
                mem::size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        result == 0
    }

    /// R1, S2: a peer that sent two descriptors where one belongs was refused, and both stayed open
    /// for ever: the control data had room for two, and only a message with exactly one was looked
    /// at. (A peer's end of a socket reads the end of the stream when the last descriptor of the
    /// other end is closed.)
    #[test]
    fn every_descriptor_of_a_refused_message_is_closed() {
        for count in [2, 3, 16, 60] {
            let (ours, kept) = sent(count);
            let refused = receive(&ours).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
            assert!(kept.iter().all(is_closed), "{count} were sent");
        }
    }

    /// What the owner of the socket has asked the system for takes room, so that some descriptors
    /// do not fit: those that did are closed, too.
    #[test]
    fn truncated_control_data_leaves_nothing_open() {
        let pair = UnixStream::pair().unwrap();
        assert!(ask_for(&pair.0, libc::SO_PASSCRED));
        let (ours, kept) = sent_to(pair, 60);
        assert!(receive(&ours).is_err());
        assert!(kept.iter().all(is_closed));
    }

    /// Beside the one descriptor there may be other control messages, which the owner of the socket
    /// has asked the system for: the ring is taken all the same. A descriptor of the peer's process
    /// (SO_PASSPIDFD) is none that the peer sent.
    #[test]
    fn other_control_messages_do_no_harm() {
        for option in [libc::SO_PASSCRED, SO_PASSPIDFD] {
            let pair = UnixStream::pair().unwrap();
            if !ask_for(&pair.0, option) {
                eprintln!("skipped: this kernel has no option {option}");
                continue;
            }
            let (ours, kept) = sent_to(pair, 1);
            let received = receive(&ours).unwrap();
            assert!(!is_closed_now(&kept[0]));
            drop(received);
            assert!(is_closed(&kept[0]));
            assert_eq!(of_processes(), 0, "what the system has opened is closed");
        }
    }

    /// How many descriptors of processes this one holds: no other test has any.
    fn of_processes() -> usize {
        let all = fs::read_dir("/proc/self/fd").unwrap();
        let targets = all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        targets
            .filter(|target| target.to_string_lossy().contains("pidfd"))
            .count()
    }

    fn is_closed_now(mut kept: &UnixStream) -> bool {
        kept.set_nonblocking(true).unwrap();
        let read = kept.read(&mut [0]);
        kept.set_nonblocking(false).unwrap();
        matches!(read, Ok(0))
    }

    /// A descriptor that was received is not passed on to programs that this process starts.
    #[test]
    fn what_is_received_is_closed_on_exec() {
        let (ours, _kept) = sent(1);
        let received = receive(&ours).unwrap();
        // SAFETY: it takes numbers.
        let flags = unsafe { libc::fcntl(received.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    }
}
