//! What another thread of this process is up to: whether it is ready to run, and where.

/// A thread, as the system knows it.
pub(crate) type Number = u32;

pub(crate) use told::{this_thread, waits_for_this_core};

#[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
mod told {
    use std::{
        cell::Cell,
        fs::File,
        io::{self, Cursor, Read, Write},
        str,
    };

    use super::Number;

    thread_local! {
        static THIS: Cell<Option<Number>> = const { Cell::new(None) };
    }

    /// The calling thread. The system is asked once.
    pub(crate) fn this_thread() -> Number {
        THIS.get().unwrap_or_else(|| {
            // SAFETY: it takes nothing, and always succeeds.
            let number = unsafe { libc::gettid() }.unsigned_abs();
            THIS.set(Some(number));
            number
        })
    }

    /// Whether another thread of this process is ready to run, and would do so on the core of the
    /// calling one. If the system does not know, it is not.
    pub(crate) fn waits_for_this_core(thread: Number) -> bool {
        let mut line = [0; 512];
        let said = |line| state_and_core(read_line(thread, line).ok()?);
        let core = this_core();
        // A thread that was moved meanwhile is not where it was asked about.
        thread != this_thread() && said(&mut line) == Some((b'R', core)) && this_core() == core
    }

    /// The core of the calling thread; a negative number if the system does not know.
    pub(super) fn this_core() -> libc::c_int {
        // SAFETY: it takes nothing, and returns a number.
        unsafe { libc::sched_getcpu() }
    }

    /// The line of a thread in `/proc`. A pool allocates nothing while it works, so it is read into
    /// what is there.
    fn read_line(thread: Number, line: &mut [u8]) -> io::Result<&[u8]> {
        let mut path = Cursor::new([0; 40]);
        write!(path, "/proc/self/task/{thread}/stat")?;
        let length = path.position() as usize;
        let path = str::from_utf8(&path.get_ref()[..length]).map_err(io::Error::other)?;
        let count = File::open(path)?.read(line)?;
        Ok(&line[..count])
    }

    /// The state of a thread, and the core on which it last ran, of its line; see proc_pid_stat(5).
    pub(super) fn state_and_core(line: &[u8]) -> Option<(u8, libc::c_int)> {
        /// Counted from the state on.
        const CORE: usize = 36;
        // Its name is made of any bytes; the last bracket is its end.
        let name_ends = line.iter().rposition(|byte| *byte == b')')?;
        let mut fields = str::from_utf8(&line[name_ends + 1..])
            .ok()?
            .split_ascii_whitespace();
        let state = fields.next()?.bytes().next()?;
        Some((state, fields.nth(CORE - 1)?.parse().ok()?))
    }
}

/// Not known here.
#[cfg(all(not(target_os = "linux"), not(any(loom, shuttle))))]
mod told {
    use super::Number;

    pub(crate) fn this_thread() -> Number {
        0
    }

    pub(crate) fn waits_for_this_core(_thread: Number) -> bool {
        false
    }
}

/// A checker schedules: of a known thread the worst is assumed, that it lacks a core.
#[cfg(any(loom, shuttle))]
mod told {
    use super::Number;

    pub(crate) fn this_thread() -> Number {
        1
    }

    pub(crate) fn waits_for_this_core(thread: Number) -> bool {
        thread != 0
    }
}

/// Another thread, beside the calling one on one core.
#[cfg(all(test, target_os = "linux", not(any(loom, shuttle))))]
pub(crate) mod beside {
    use std::{
        hint,
        sync::{
            atomic::{AtomicBool, Ordering},
            mpsc, Arc,
        },
        thread,
    };

    use super::{this_thread, told::this_core, waits_for_this_core, Number};
    use crate::sync::confine;

    /// Calls `test` with a thread that computes.
    pub(crate) fn computing<R: Send>(test: impl FnOnce(Number) -> R + Send) -> R {
        on_one_core(hint::spin_loop, test)
    }

    /// Calls it with one that sleeps.
    pub(crate) fn asleep<R: Send>(test: impl FnOnce(Number) -> R + Send) -> R {
        on_one_core(thread::park, |number| {
            // It has a number before it sleeps.
            let sleeps = (0..100_000).any(|_| {
                thread::yield_now();
                !waits_for_this_core(number)
            });
            assert!(sleeps, "it only has to be let run");
            test(number)
        })
    }

    /// On threads of their own: a confined thread stays so.
    fn on_one_core<R: Send>(pass_time: fn(), test: impl FnOnce(Number) -> R + Send) -> R {
        let core = usize::try_from(this_core()).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        thread::scope(|scope| {
            let asks = scope.spawn(|| {
                confine(&[core]).unwrap();
                let (tell, told) = mpsc::channel();
                let is_over = Arc::clone(&over);
                let other = thread::spawn(move || {
                    tell.send(this_thread()).unwrap();
                    while !is_over.load(Ordering::Acquire) {
                        pass_time();
                    }
                });
                let tested = test(told.recv().unwrap());
                over.store(true, Ordering::Release);
                other.thread().unpark();
                other.join().unwrap();
                tested
            });
            asks.join().unwrap()
        })
    }
}

#[cfg(all(test, target_os = "linux", not(any(loom, shuttle))))]
mod tests {
    use super::{told::state_and_core, *};

    /// Both are on one core, so the other one does not run while this one asks.
    #[test]
    fn who_computes_on_this_core_waits_for_it() {
        assert!(beside::computing(waits_for_this_core));
    }

    #[test]
    fn who_sleeps_waits_for_nothing() {
        assert!(!beside::asleep(waits_for_this_core));
    }

    #[test]
    fn nobody_waits_for_itself_nor_who_is_not_there() {
        assert!(!waits_for_this_core(this_thread()));
        assert!(!waits_for_this_core(0));
    }

    #[test]
    fn a_name_may_hold_anything() {
        let rest = " 1 2".repeat(18);
        let line = [b"12 (a) R 5 (\xC3)) R", rest.as_bytes(), b" 9"].concat();
        assert_eq!(state_and_core(&line), Some((b'R', 2)));
        assert_eq!(state_and_core(b"12 (a) R 1"), None);
        assert_eq!(state_and_core(b""), None);
    }
}
