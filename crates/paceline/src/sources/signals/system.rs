//! What the system calls when a signal arrives, and the registrations that want it.
//!
//! A table of **places** that is never freed: the system may call at any time, on any thread, also
//! while a place is being given up. All that it finds there is valid memory and an open descriptor;
//! at worst it notes a signal for a registration that has just ended, or rings a bell for nothing.
//!
//! `unsafe`, because std has no `sigaction`, and no other way to write to a descriptor while any
//! line of any function may be half done.

use std::{
    io,
    mem,
    os::{fd::AsRawFd, unix::net::UnixStream},
    ptr,
    // No protocol that a checker explores: the system's calls can't be part of it.
    sync::{
        atomic::{AtomicI32, AtomicU64, Ordering},
        Mutex, MutexGuard, OnceLock, PoisonError,
    },
};

use super::Signal;

/// So many registrations may have signals at the same time, in the whole process.
const PLACES: usize = 64;

/// What the handler of the system knows of one registration.
struct Desk {
    /// The signals that are noted here.
    wanted: AtomicU64,
    /// Those that have arrived and were not reported yet.
    noted: AtomicU64,
    /// The end of the bell that is written to; -1 while there is none.
    bell: AtomicI32,
}

static DESKS: [Desk; PLACES] = [const {
    Desk {
        wanted: AtomicU64::new(0),
        noted: AtomicU64::new(0),
        bell: AtomicI32::new(-1),
    }
}; PLACES];

/// The bells: what is read, and what is written to. Made when they are first needed, and never
/// closed.
static BELLS: [OnceLock<(UnixStream, UnixStream)>; PLACES] = [const { OnceLock::new() }; PLACES];

/// Which registration has which place, and the previous actions.
static BOOK: Mutex<Book> = Mutex::new(Book {
    taken: [false; PLACES],
    before: [const { None }; 65],
});

struct Book {
    taken: [bool; PLACES],
    /// By number of the signal: how many want it, and what the system did with it before the first
    /// of them came.
    before: [Option<(usize, libc::sigaction)>; 65],
}

fn book() -> MutexGuard<'static, Book> {
    BOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in the table, for one registration.
pub(super) struct Place(usize);

impl Place {
    /// Takes a place for these signals, as bits. Returns the one that could not be had, if it was
    /// for one.
    pub(super) fn take(bits: u64) -> Result<Self, (Option<Signal>, io::Error)> {
        let mut book = book();
        let Some(index) = book.taken.iter().position(|taken| !taken) else {
            let text = format!("{PLACES} registrations have some already");
            return Err((None, io::Error::new(io::ErrorKind::QuotaExceeded, text)));
        };
        let bell = make_bell(index).map_err(|error| (None, error))?;
        let desk = &DESKS[index];
        desk.noted.store(0, Ordering::SeqCst);
        desk.bell.store(bell, Ordering::SeqCst);
        desk.wanted.store(bits, Ordering::SeqCst);
        for signal in Signal::of_bits(bits) {
            if let Err(error) = book.install(signal) {
                let so_far = bits & (signal.bit() - 1);
                book.restore(so_far);
                desk.wanted.store(0, Ordering::SeqCst);
                return Err((Some(signal), error));
            }
        }
        book.taken[index] = true;
        Ok(Self(index))
    }

    /// The end of the bell that is read.
    pub(super) fn bell(&self) -> &'static UnixStream {
        let (read, _) = BELLS[self.0].get().expect("made when the place was taken");
        read
    }

    /// The signals that have come.
    pub(super) fn noted(&self) -> u64 {
        let desk = &DESKS[self.0];
        // What was noted for the one before is not ours.
        desk.noted.load(Ordering::SeqCst) & desk.wanted.load(Ordering::SeqCst)
    }

    /// This one is about to be reported.
    pub(super) fn forget(&self, signal: Signal) {
        DESKS[self.0]
            .noted
            .fetch_and(!signal.bit(), Ordering::SeqCst);
    }
}

impl Drop for Place {
    /// First the system does again what it did before, then nothing is noted any more.
    fn drop(&mut self) {
        let mut book = book();
        let desk = &DESKS[self.0];
        book.restore(desk.wanted.load(Ordering::SeqCst));
        desk.wanted.store(0, Ordering::SeqCst);
        book.taken[self.0] = false;
    }
}

/// The bell of a place, silent. What is written to.
fn make_bell(index: usize) -> io::Result<i32> {
    let pair = match BELLS[index].get() {
        Some(pair) => pair,
        None => {
            let pair = UnixStream::pair()?;
            pair.0.set_nonblocking(true)?;
            pair.1.set_nonblocking(true)?;
            BELLS[index].get_or_init(|| pair)
        }
    };
    while matches!(io::Read::read(&mut &pair.0, &mut [0; 256]), Ok(1..)) {}
    Ok(pair.1.as_raw_fd())
}

impl Book {
    /// One more wants this signal; the first one makes the system call us.
    fn install(&mut self, signal: Signal) -> io::Result<()> {
        let before = &mut self.before[usize::from(signal.0)];
        if let Some((users, _)) = before {
            if !is_ours(&current(signal)?) {
                let text = format!("hear of {signal}: another handler took the place of ours");
                return Err(io::Error::other(text));
            }
            *users += 1;
            return Ok(());
        }
        let old = exchange(signal, Some(&ours()))?;
        // Other code had replaced this crate's action, and put it back after the last registration
        // had ended. The action before that is not known any more.
        let old = if is_ours(&old) {
            the_systems_own()
        } else {
            old
        };
        *before = Some((1, old));
        Ok(())
    }

    /// One registration less wants these signals. After the last one the previous action is
    /// restored, unless other code has replaced it since.
    fn restore(&mut self, bits: u64) {
        for signal in Signal::of_bits(bits) {
            let place = &mut self.before[usize::from(signal.0)];
            match place {
                Some((users, _)) if *users > 1 => *users -= 1,
                _ => {
                    if let Some((_, before)) = place.take() {
                        give_back(signal, &before);
                    }
                }
            }
        }
    }
}

fn give_back(signal: Signal, before: &libc::sigaction) {
    if current(signal).is_ok_and(|now| is_ours(&now)) {
        // It was valid when it came.
        let _ = exchange(signal, Some(before));
    }
}

/// What the system does with a signal of ours. It interrupts as few system calls as possible, and
/// uses the stack that the thread has for signals, if it has one.
///
/// Every other signal waits until the handler returns. A thread's stack for signals may have room
/// for two frames only (8 KiB, and up to 3.4 KiB for a frame with the state of AVX-512): signals
/// that come together must not interrupt each other there.
fn ours() -> libc::sigaction {
    let mut action = the_systems_own();
    action.sa_sigaction = handler();
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the set is written. (It can't fail: the pointer is valid.)
    unsafe { libc::sigfillset(&mut action.sa_mask) };
    action
}

fn handler() -> libc::sighandler_t {
    on_signal as extern "C" fn(libc::c_int) as *const () as libc::sighandler_t
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handler()
}

/// The system's default action.
fn the_systems_own() -> libc::sigaction {
    // SAFETY: all zeros are a valid `sigaction`: numbers, an empty set, and the system's own action
    // instead of a function.
    unsafe { mem::zeroed() }
}

/// What the system does with a signal.
fn current(signal: Signal) -> io::Result<libc::sigaction> {
    exchange(signal, None)
}

/// The same, and has it do something else, if that is wanted.
fn exchange(signal: Signal, new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut old = the_systems_own();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `new` is null or a whole `sigaction`, either this module's, whose function may be
    // called at any time (see there), or one that the system returned before; `old` is written.
    // Both live until the call returns.
    match unsafe { libc::sigaction(signal.number(), new, &mut old) } {
        0 => Ok(old),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Called by the system, in the middle of anything: it may use atomics and `write`, and nothing
/// that takes a lock or memory. None of its steps can panic.
extern "C" fn on_signal(number: libc::c_int) {
    let Some(signal) = Signal::from_number(number) else {
        return;
    };
    let errno = errno();
    // SAFETY: the system's pointer to this thread's `errno` is valid on this thread.
    let before = unsafe { *errno };
    for desk in &DESKS {
        if desk.wanted.load(Ordering::SeqCst) & signal.bit() != 0 {
            // First the note, then the bell: a thread that hears it finds the note.
            desk.noted.fetch_or(signal.bit(), Ordering::SeqCst);
            ring(desk.bell.load(Ordering::SeqCst));
        }
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// A bell that is full rings already.
fn ring(bell: i32) {
    // SAFETY: one byte is read from a static. The descriptor is one of ours, which is never closed.
    unsafe { libc::write(bell, [1_u8].as_ptr().cast(), 1) };
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn errno() -> *mut libc::c_int {
    #[cfg(target_os = "android")]
    use libc::__errno as location;
    #[cfg(target_os = "linux")]
    use libc::__errno_location as location;
    // SAFETY: it takes nothing, and returns where this thread's `errno` is.
    unsafe { location() }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn errno() -> *mut libc::c_int {
    // SAFETY: it takes nothing, and returns where this thread's `errno` is.
    unsafe { libc::__error() }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    use std::{env, process::Command};

    use super::*;

    /// No other test uses this one.
    fn signal() -> Signal {
        Signal::from_number(libc::SIGURG).expect("a signal that can be heard of")
    }

    /// A pool that hears of three signals died of SIGSEGV when all of them came at once, as
    /// `systemctl stop` can send them: each interrupted the handler of the one before, and three
    /// frames do not fit into the signal stack of a Rust thread where a frame has the state of
    /// AVX-512. Now one waits for the other. (Thirty of them do not fit anywhere.)
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[test]
    fn signals_that_come_at_once_wait_for_each_other() {
        const NAME: &str =
            "sources::signals::system::tests::signals_that_come_at_once_wait_for_each_other";
        const CHILD: &str = "PACELINE_TEST_CHILD";
        if env::var_os(CHILD).is_none() {
            let mut child = Command::new(env::current_exe().unwrap());
            let output = child.args(["--exact", NAME]).env(CHILD, "1").output();
            let output = output.unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{}: {said}", output.status);
            assert!(said.contains("1 passed"), "{said}");
            return;
        }
        // The C library keeps the first ones of the real-time signals for itself.
        let bits = (libc::SIGRTMIN()..=64).filter_map(Signal::from_number);
        let bits = bits.fold(0, |bits, signal| bits | signal.bit());
        let place = Place::take(bits).unwrap_or_else(|(_, error)| panic!("{error}"));
        all_at_once(bits);
        assert_eq!(place.noted(), bits);
    }

    /// Has the system call the handlers of all these signals on this thread, as it comes back from
    /// one system call.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn all_at_once(bits: u64) {
        let mut all = the_systems_own().sa_mask;
        // SAFETY: the set is written.
        unsafe { libc::sigfillset(&mut all) };
        let before = exchange_mask(&all);
        // SAFETY: it takes nothing.
        let me = unsafe { libc::pthread_self() };
        for signal in Signal::of_bits(bits) {
            // SAFETY: a thread that runs has a valid name.
            unsafe { libc::pthread_kill(me, signal.number()) };
        }
        exchange_mask(&before);
    }

    /// Blocks these signals on this thread, and no others. Those that were blocked before.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn exchange_mask(new: &libc::sigset_t) -> libc::sigset_t {
        let mut old = the_systems_own().sa_mask;
        // SAFETY: one set is read and the other one written; both live until the call returns.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, new, &mut old) };
        old
    }

    /// The second registration gets an error if other code has put its own handler in the place of
    /// this crate's. And what is put back when the last one leaves is never this crate's own.
    #[test]
    fn another_handler_in_our_place() {
        let signal = signal();
        let mut book = book();
        book.install(signal).unwrap();
        book.install(signal).unwrap();
        let replaced = exchange(signal, Some(&the_systems_own())).unwrap();
        assert!(is_ours(&replaced));
        let refused = book.install(signal).unwrap_err();
        assert!(
            refused.to_string().contains("took the place of ours"),
            "{refused}"
        );
        book.restore(signal.bit());
        book.restore(signal.bit());
        // The other one leaves when we have gone, and puts back what it found.
        exchange(signal, Some(&replaced)).unwrap();
        book.install(signal).unwrap();
        book.restore(signal.bit());
        assert!(!is_ours(&current(signal).unwrap()));
    }
}
