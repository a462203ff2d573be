//! Any descriptor that can be waited for is a source, on every set of the kernel: what arrives is
//! told, and so is its end.
//!
//! The kernel's own sources (`eventfd`, `timerfd`, pseudo-terminals) are to be had from `libc`
//! only, so the module [`system`] is unsafe code.

#![allow(
    clippy::incompatible_msrv,
    reason = "pipes of std; the tests are not built by the oldest Rust"
)]

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    net::UdpSocket,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::{UnixDatagram, UnixStream},
    },
    path::PathBuf,
    process,
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

use crate::support::{bounded, is_to_be_had, told, wait_until, Told, LONG};
use paceline::{Closed, Context, EventHandler, Interest, Next, Pool, SetKind};

/// Makes a test of each case on each set of the kernel: `CASE::SET`.
macro_rules! on_kernel_sets {
    ($($case:ident),+ $(,)?) => {
        $(
            mod $case {
                use super::*;

                #[test]
                fn epoll() {
                    bounded(|| super::$case(&pool(SetKind::Epoll)));
                }

                #[test]
                fn one_shot() {
                    bounded(|| super::$case(&pool(SetKind::OneShot)));
                }

                #[test]
                fn concurrent() {
                    bounded(|| super::$case(&pool(SetKind::Concurrent)));
                }

                #[test]
                fn completion() {
                    if is_to_be_had(&SetKind::Completion) {
                        bounded(|| super::$case(&pool(SetKind::Completion)));
                    }
                }

                #[test]
                fn poll() {
                    bounded(|| super::$case(&pool(SetKind::Poll)));
                }
            }
        )+
    };
}

on_kernel_sets! {
    a_unix_stream,
    a_unix_listener,
    a_path_in_use,
    a_pipe,
    both_ends_of_a_pipe,
    a_unix_datagram_socket,
    a_udp_socket,
    an_eventfd,
    a_counting_eventfd,
    a_timerfd,
    a_serial_line,
    the_other_end_of_a_serial_line,
    an_end_typed_at_a_terminal,
}

fn pool(set: SetKind) -> Pool {
    Pool::builder().threads(2).handle_set(set).build().unwrap()
}

/// What a test sees of a source.
struct Seen {
    bytes: mpsc::Receiver<Vec<u8>>,
    end: mpsc::Receiver<Closed>,
}

impl Seen {
    /// Waits until exactly this has come.
    fn expect(&self, wanted: &[u8]) {
        let mut all = Vec::new();
        while all.len() < wanted.len() {
            all.extend(self.bytes.recv_timeout(LONG).unwrap());
        }
        assert_eq!(all, wanted);
    }

    /// Waits for the end of the stream; nothing else has come.
    fn expect_end(&self) {
        let why = self.end.recv_timeout(LONG).unwrap();
        assert!(matches!(why, Closed::Finished), "{why:?}");
        assert!(self.bytes.try_recv().is_err(), "there was more");
    }
}

/// A handler that reads once per call, sends back what it read, and tells it.
fn echo<S>() -> (impl EventHandler<S>, Seen)
where
    for<'s> &'s S: Read + Write,
{
    reading(|cx: &mut Context<'_, S>, bytes| cx.write_all(bytes))
}

/// A handler that reads once per call, does something with it, and tells it.
fn reading<S>(
    with: impl Fn(&mut Context<'_, S>, &[u8]) -> io::Result<()> + Send + 'static,
) -> (impl EventHandler<S>, Seen)
where
    for<'s> &'s S: Read,
{
    let (tell, bytes) = mpsc::channel();
    let ready = move |cx: &mut Context<'_, S>| {
        let mut buffer = [0; 64];
        let count = cx.read(&mut buffer)?;
        if count == 0 {
            return Ok(Next::Close);
        }
        with(cx, &buffer[..count])?;
        tell.send(buffer[..count].to_vec()).unwrap();
        Ok(Next::Continue)
    };
    let (handler, end): (Told<_>, _) = told(ready);
    (handler, Seen { bytes, end })
}

fn nothing_more<S>(_: &mut Context<'_, S>, _: &[u8]) -> io::Result<()> {
    Ok(())
}

/// Bytes of which each tells where it belongs; more than a handler reads at once.
fn bytes() -> Vec<u8> {
    (0..1000).map(|at| (at % 251) as u8).collect()
}

/// Bytes come and go over a Unix socket, and its end is told.
fn a_unix_stream(pool: &Pool) {
    let (near, mut far) = UnixStream::pair().unwrap();
    let (handler, seen) = echo();
    pool.register(near, Interest::READ, handler).unwrap();
    for _ in 0..10 {
        far.write_all(&bytes()).unwrap();
        let mut answer = vec![0; 1000];
        far.read_exact(&mut answer).unwrap();
        assert_eq!(answer, bytes());
        seen.expect(&bytes());
    }
    drop(far);
    seen.expect_end();
}

/// A path that is used by nothing and nobody else.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("paceline-sources-{}-{number}", process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Connections at a path are accepted and served, a refused one is closed, and a listener that is
/// closed listens no more.
fn a_unix_listener(pool: &Pool) {
    let path = SocketPath::new();
    let (ends, ended) = mpsc::channel();
    let mut accepted = 0;
    let make = move |_: &UnixStream, _| {
        accepted += 1;
        let (handler, seen) = echo();
        ends.send(seen).unwrap();
        (accepted <= 20).then_some(handler)
    };
    let listener = pool.listener().bind_unix(&path.0, make).unwrap();
    let mut peers: Vec<_> = (0..20)
        .map(|_| UnixStream::connect(&path.0).unwrap())
        .collect();
    for peer in &mut peers {
        peer.write_all(b"hello").unwrap();
        peer.read_exact(&mut [0; 5]).unwrap();
    }
    let mut refused = UnixStream::connect(&path.0).unwrap();
    assert_eq!(refused.read_to_end(&mut Vec::new()).unwrap(), 0);
    drop(peers);
    for seen in ended.iter().take(20) {
        seen.expect(b"hello");
        seen.expect_end();
    }
    assert_eq!(pool.snapshot().accepted, 21);
    assert_eq!(pool.snapshot().refused, 1);
    listener.handle().close_and_wait().unwrap();
    // A leader that sleeps in `poll` holds the socket until it has woken up.
    let told = || UnixStream::connect(&path.0).map_err(|error| error.kind());
    wait_until(|| matches!(told(), Err(ErrorKind::ConnectionRefused)));
}

/// A path where somebody listens, or where somebody has listened, can't be listened at; the error
/// says which path. Who listens there is not disturbed.
fn a_path_in_use(pool: &Pool) {
    let path = SocketPath::new();
    let make = |_: &UnixStream, _| Some(echo().0);
    let listener = pool.listener().bind_unix(&path.0, make).unwrap();
    let refusal = || {
        pool.listener()
            .bind_unix(&path.0, make)
            .map(drop)
            .unwrap_err()
    };
    let error = refusal();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let text = error.to_string();
    assert!(text.contains(path.0.to_str().unwrap()), "{text}");
    assert!(UnixStream::connect(&path.0).is_ok());
    listener.handle().close_and_wait().unwrap();
    assert_eq!(refusal().kind(), ErrorKind::AddrInUse);
    fs::remove_file(&path.0).unwrap();
    pool.listener().bind_unix(&path.0, make).unwrap();
}

/// Bytes arrive through a pipe, and its end is told.
fn a_pipe(pool: &Pool) {
    let (reader, mut writer) = io::pipe().unwrap();
    let (handler, seen) = reading(nothing_more);
    pool.register(reader, Interest::READ, handler).unwrap();
    for _ in 0..10 {
        writer.write_all(&bytes()).unwrap();
        seen.expect(&bytes());
    }
    drop(writer);
    seen.expect_end();
}

/// Both ends of a pipe are in one pool: one handler writes as much as there is room for, another
/// reads it all. The writer's end is told to the reader.
fn both_ends_of_a_pipe(pool: &Pool) {
    const ALL: usize = 1 << 20;
    let (reader, writer) = io::pipe().unwrap();
    let (handler, seen) = reading(nothing_more);
    let mut left = ALL;
    let writing = move |cx: &mut Context<'_, io::PipeWriter>| {
        while left > 0 {
            left -= cx.write_now(&[b'p'; 4096][..left.min(4096)])?;
        }
        Ok(Next::Close)
    };
    pool.register(reader, Interest::READ, handler).unwrap();
    pool.register(writer, Interest::WRITE, writing).unwrap();
    seen.expect(&[b'p'; ALL]);
    seen.expect_end();
}

/// What a handler of datagrams tells: the length of each, or why it can't go on.
fn datagrams<S: 'static>(
    receive: impl Fn(&S, &mut [u8]) -> io::Result<usize> + Copy + Send + 'static,
) -> (
    impl EventHandler<S>,
    mpsc::Receiver<usize>,
    mpsc::Receiver<Closed>,
) {
    let (tell, lengths) = mpsc::channel();
    let (handler, end) = told(move |cx: &mut Context<'_, S>| {
        let mut buffer = [0; 64];
        let count = cx.try_read(|socket| receive(socket, &mut buffer))?;
        tell.send(count).unwrap();
        Ok(Next::Continue)
    });
    (handler, lengths, end)
}

/// Datagrams arrive one by one; an empty one is not the end.
fn a_unix_datagram_socket(pool: &Pool) {
    let (near, far) = UnixDatagram::pair().unwrap();
    let (handler, lengths, end) = datagrams(|socket: &UnixDatagram, buffer| socket.recv(buffer));
    let handle = pool.register(near, Interest::READ, handler).unwrap();
    for length in [5, 0, 3, 0, 0, 64, 1] {
        far.send(&[b'd'; 64][..length]).unwrap();
        assert_eq!(lengths.recv_timeout(LONG), Ok(length));
    }
    for length in 1..=8 {
        far.send(&[b'd'; 64][..length]).unwrap();
    }
    assert!(lengths.iter().take(8).eq(1..=8));
    assert!(end.try_recv().is_err());
    handle.close_and_wait().unwrap();
    // A leader that sleeps in `poll` holds the socket until it has woken up.
    let told = || far.send(b"gone").map_err(|error| error.kind());
    wait_until(|| told() == Err(ErrorKind::ConnectionRefused));
}

/// Datagrams arrive over UDP. Nobody listens at the other end any more: the system's word of that
/// is an error without input, and is told.
fn a_udp_socket(pool: &Pool) {
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    let sender = near.try_clone().unwrap();
    let (handler, lengths, end) = datagrams(|socket: &UdpSocket, buffer| socket.recv(buffer));
    pool.register(near, Interest::READ, handler).unwrap();
    for length in [5, 0, 64] {
        far.send(&[b'd'; 64][..length]).unwrap();
        assert_eq!(lengths.recv_timeout(LONG), Ok(length));
    }
    drop(far);
    sender.send(b"anybody?").unwrap();
    let why = end.recv_timeout(LONG).unwrap();
    let refused = |error: &io::Error| error.kind() == ErrorKind::ConnectionRefused;
    assert!(
        matches!(&why, Closed::Failed(error) if refused(error)),
        "{why:?}"
    );
}

/// A handler that reads numbers of the kernel, eight bytes each, and tells them.
fn numbers() -> (impl EventHandler<File>, mpsc::Receiver<u64>) {
    let (tell, numbers) = mpsc::channel();
    let handler = move |cx: &mut Context<'_, File>| {
        let mut number = [0; 8];
        assert_eq!(cx.read(&mut number)?, 8);
        tell.send(u64::from_ne_bytes(number)).unwrap();
        Ok(Next::Continue)
    };
    (handler, numbers)
}

fn add(counter: &mut File, number: u64) {
    counter.write_all(&number.to_ne_bytes()).unwrap();
}

/// Somebody adds to an eventfd: the handler reads what was added.
fn an_eventfd(pool: &Pool) {
    let near = system::eventfd(0);
    let mut far = near.try_clone().unwrap();
    let (handler, numbers) = numbers();
    pool.register(near, Interest::READ, handler).unwrap();
    for number in 1..=10 {
        add(&mut far, number);
        assert_eq!(numbers.recv_timeout(LONG), Ok(number));
    }
}

/// An eventfd that gives one at a time is not empty after a read, and tells nothing more: the
/// handler is called again because its source did not run dry.
fn a_counting_eventfd(pool: &Pool) {
    let near = system::eventfd(libc::EFD_SEMAPHORE);
    let mut far = near.try_clone().unwrap();
    let (handler, numbers) = numbers();
    pool.register(near, Interest::READ, handler).unwrap();
    for _ in 0..3 {
        add(&mut far, 5);
        let ones = (0..5).map(|_| numbers.recv_timeout(LONG));
        assert_eq!(ones.collect::<Vec<_>>(), [Ok(1); 5]);
    }
    assert!(numbers.try_recv().is_err());
}

/// A timer of the kernel expires, again and again: each time the handler is told how often it has.
fn a_timerfd(pool: &Pool) {
    let timer = system::timerfd(Duration::from_millis(1));
    let (handler, numbers) = numbers();
    let handle = pool.register(timer, Interest::READ, handler).unwrap();
    for _ in 0..5 {
        assert!(numbers.recv_timeout(LONG).unwrap() > 0);
    }
    handle.close_and_wait().unwrap();
    assert!(numbers.iter().count() < 1000, "its handler is gone");
}

/// A serial line, played by a pseudo-terminal in raw mode: bytes come and go as they are, also
/// those that a terminal would act upon. When the line is cut, the end is told.
fn a_serial_line(pool: &Pool) {
    let (mut far, near) = system::raw_terminal();
    let (handler, seen) = echo();
    pool.register(near, Interest::READ, handler).unwrap();
    for _ in 0..10 {
        far.write_all(b"AT\r\n\x03\x04\x1a").unwrap();
        seen.expect(b"AT\r\n\x03\x04\x1a");
        let mut answer = [0; 7];
        far.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"AT\r\n\x03\x04\x1a");
    }
    far.write_all(&bytes()).unwrap();
    seen.expect(&bytes());
    let mut answer = vec![0; 1000];
    far.read_exact(&mut answer).unwrap();
    assert_eq!(answer, bytes());
    drop(far);
    // While the system hangs the line up, a read fails (EIO); a moment later it is at its end.
    let why = seen.end.recv_timeout(LONG).unwrap();
    let cut = matches!(&why, Closed::Failed(error) if error.raw_os_error() == Some(5));
    assert!(cut || matches!(why, Closed::Finished), "{why:?}");
}

/// The other end of such a line in the pool: that it was cut is an error there, and is told.
fn the_other_end_of_a_serial_line(pool: &Pool) {
    let (near, mut far) = system::raw_terminal();
    let (handler, seen) = echo();
    pool.register(near, Interest::READ, handler).unwrap();
    far.write_all(b"OK\r\n").unwrap();
    seen.expect(b"OK\r\n");
    far.read_exact(&mut [0; 4]).unwrap();
    drop(far);
    let why = seen.end.recv_timeout(LONG).unwrap();
    let cut = |error: &io::Error| error.raw_os_error() == Some(libc::EIO);
    assert!(
        matches!(&why, Closed::Failed(error) if cut(error)),
        "{why:?}"
    );
}

/// Who types an end of file (Ctrl-D) at a terminal makes a read return nothing, and may go on
/// typing. A handler that takes it for no end is told what comes then: such an end is no hang-up.
fn an_end_typed_at_a_terminal(pool: &Pool) {
    let (mut far, near) = system::terminal();
    let (tell, reads) = mpsc::channel();
    let handler = move |cx: &mut Context<'_, File>| {
        let mut buffer = [0; 64];
        let count = cx.read(&mut buffer)?;
        tell.send(buffer[..count].to_vec()).unwrap();
        Ok(Next::Continue)
    };
    pool.register(near, Interest::READ, handler).unwrap();
    for _ in 0..3 {
        far.write_all(b"\x04").unwrap();
        assert_eq!(reads.recv_timeout(LONG).unwrap(), b"");
        far.write_all(b"more\n").unwrap();
        assert_eq!(reads.recv_timeout(LONG).unwrap(), b"more\n");
    }
}

/// A source of the caller's own making will do, if it keeps its descriptor.
#[test]
fn a_type_of_our_own() {
    struct Line(UnixStream);

    impl AsFd for Line {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    bounded(|| {
        let pool = pool(SetKind::Poll);
        let (near, far) = UnixStream::pair().unwrap();
        let (tell, told) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, Line>| {
            let mut byte = [0];
            cx.try_read(|line| (&line.0).read(&mut byte))?;
            tell.send(byte[0]).unwrap();
            Ok(Next::Continue)
        };
        pool.register(Line(near), Interest::READ, handler).unwrap();
        (&far).write_all(b"abc").unwrap();
        assert!(told.iter().take(3).eq(*b"abc"));
    });
}

/// Sources that only the system has, through `libc`.
mod system {
    use std::{
        fs::File,
        io,
        mem::MaybeUninit,
        os::fd::{FromRawFd, RawFd},
        ptr,
        time::Duration,
    };

    pub(super) fn eventfd(flags: i32) -> File {
        // SAFETY: no pointer is passed.
        let told = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | flags) };
        owned(told)
    }

    /// A timer that expires every `period`.
    pub(super) fn timerfd(period: Duration) -> File {
        // SAFETY: no pointer is passed.
        let told = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
        let period = libc::timespec {
            tv_sec: 0,
            tv_nsec: period.subsec_nanos().into(),
        };
        let setting = libc::itimerspec {
            it_interval: period,
            it_value: period,
        };
        // SAFETY: `setting` lives until the call returns; nothing is written where the pointer is
        // null.
        checked(unsafe { libc::timerfd_settime(told, 0, &setting, ptr::null_mut()) });
        owned(told)
    }

    /// A pseudo-terminal that changes no byte: the master's end, and the line's.
    pub(super) fn raw_terminal() -> (File, File) {
        let mut settings = MaybeUninit::<libc::termios>::zeroed();
        // SAFETY: it is plain data, of which every value is valid; it is only written here.
        unsafe { libc::cfmakeraw(settings.as_mut_ptr()) };
        opened(settings.as_ptr())
    }

    /// A pseudo-terminal as one types at it, line by line: the master's end, and the line's.
    pub(super) fn terminal() -> (File, File) {
        opened(ptr::null())
    }

    /// `settings` are null, or valid for the call.
    fn opened(settings: *const libc::termios) -> (File, File) {
        let (mut master, mut line) = (-1, -1);
        // SAFETY: all pointers are valid until the call returns, or null where that is allowed.
        let told = unsafe {
            libc::openpty(
                &mut master,
                &mut line,
                ptr::null_mut(),
                settings,
                ptr::null(),
            )
        };
        checked(told);
        (owned(master), owned(line))
    }

    fn checked(told: i32) -> RawFd {
        assert!(told >= 0, "{}", io::Error::last_os_error());
        told
    }

    fn owned(told: RawFd) -> File {
        let descriptor = checked(told);
        // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
        unsafe { File::from_raw_fd(descriptor) }
    }
}
