//! A completion set, on io_uring: requests lie in the kernel, and a ring reports which of them have
//! a completion.
//!
//! Each registration is one request, a **poll that reports every edge** (`IORING_POLL_ADD_MULTI`).
//! It is submitted once; no system call is made for it again. The leader reads its reports from
//! memory, in batches. Its name in the ring is its key, so the caller recognizes late reports of a
//! removed one, as in every set.
//!
//! **Whose requests they are.** io_uring ties a request to the thread that submits it: that thread
//! is interrupted in whatever call it sits to do the request's work, and when it ends its requests
//! end with it. A handle set knows no thread. So a thread of the kernel's own takes the submissions
//! (`IORING_SETUP_SQPOLL`): no handler's system call is interrupted, no registration ends with a
//! thread. It sleeps when nothing happens.
//!
//! **A request that ends** (a completion without `IORING_CQE_F_MORE`) is submitted again, as long
//! as its key is registered. The kernel ends one when the ring is full: then its last word waits in
//! the kernel, which puts it into the ring before the next wait. So nothing is lost, however small
//! the ring is.
//!
//! **To remove** is to cancel until the kernel knows the request no more. Until then it keeps the
//! file open, and the peer of a closed connection would not learn of the close.
//!
//! **To poll without sleeping.** Between an event and its completion lies a turn of the kernel's
//! thread. A poll wants to see everything that has happened before, so it rings a bell of its own,
//! and reads until it hears it: that thread takes things in the order of their arrival. The thread
//! may still be busy with a bell that was heard, and would take another ring of it for the same; so
//! there are two bells, in turns. By the time the one is heard, the thread is done with the other.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsRawFd, RawFd},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use super::{
    epoll, poll,
    ring::{Completion, GoesOn},
    system::{forget_linger, set_nonblocking, time_left},
    uring::{bell, Ring},
    Answer, Batch, Event, HandleSet, Ready, Reports,
};
use crate::sync::{lock, Clock, Mutex, Timestamp};

/// How many completions the ring holds; more wait in the kernel.
const MOST_COMPLETIONS: u32 = 256;

/// The key of the waker, which no handle can have.
const WAKER: u64 = u64::MAX;

/// The keys of the bells of a poll, likewise.
const BELLS: [u64; 2] = [u64::MAX - 1, u64::MAX - 2];

/// All keys from here on are ours.
const FIRST_OF_OURS: u64 = u64::MAX - 2;

/// Everything that a descriptor may report.
const ALL: i32 = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI;

/// What a bell may report: that it was rung.
const RUNG: i32 = libc::EPOLLIN;

/// An io_uring, its waker, and what is registered.
#[derive(Debug)]
pub(crate) struct CompletionSet {
    ring: Ring,
    /// Also the right to submit: one thread at a time.
    table: Mutex<Table>,
    waker: File,
    /// Only the holder of the lead rings them.
    bells: [File; 2],
    /// How many looks there were.
    looks: AtomicUsize,
    clock: Clock,
}

/// What is registered, by key and by descriptor.
#[derive(Debug, Default)]
struct Table {
    descriptors: HashMap<u64, RawFd>,
    keys: HashMap<RawFd, u64>,
}

impl CompletionSet {
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        let set = Self {
            ring: Ring::new(MOST_COMPLETIONS)?,
            table: Mutex::new(Table::default()),
            waker: bell()?,
            bells: [bell()?, bell()?],
            looks: AtomicUsize::new(0),
            clock,
        };
        set.watch(set.waker.as_raw_fd(), WAKER)?;
        for (bell, key) in set.bells.iter().zip(BELLS) {
            set.watch(bell.as_raw_fd(), key)?;
        }
        Ok(set)
    }

    /// Registers, and submits the poll.
    fn watch(&self, descriptor: RawFd, key: u64) -> io::Result<()> {
        let mut table = lock(&self.table);
        table.insert(descriptor, key)?;
        let submitted = self.submit(descriptor, key);
        submitted.inspect_err(|_| drop(table.remove(descriptor)))
    }

    /// Submits the poll of what is registered, under the lock.
    fn submit(&self, descriptor: RawFd, key: u64) -> io::Result<()> {
        let bits = if key < FIRST_OF_OURS { ALL } else { RUNG };
        self.ring.poll_edges(descriptor, key, bits as u32)
    }

    /// Reports what is in the ring, and submits again what has ended.
    fn take(&self, mut tell: impl FnMut(Completion)) -> io::Result<()> {
        let mut ended = Vec::new();
        self.ring.completions().take_all(|completion| {
            tell(completion);
            if completion.goes_on == GoesOn::No {
                ended.push(completion);
            }
        });
        // All of them, also behind one that fails.
        let submitted = ended.into_iter().map(|it| self.submit_again(it));
        submitted.fold(Ok(()), io::Result::and)
    }

    /// Rings the bell whose turn it is, and reports everything until it is heard.
    fn look(&self, events: &mut Vec<Event>) -> io::Result<()> {
        // The next leader knows how many there were: the lead orders this.
        let turn = self.looks.fetch_add(1, Ordering::Relaxed) % BELLS.len();
        ring(&self.bells[turn]);
        let mut is_heard = false;
        while !is_heard {
            self.ring.wait(None)?;
            self.take(|completion| {
                is_heard |= completion.key == BELLS[turn];
                events.extend(self.event(completion));
            })?;
        }
        Ok(())
    }

    /// What a completion means for a handle. A cancelled poll means nothing; one that the kernel
    /// refuses counts as a hang-up.
    fn event(&self, completion: Completion) -> Option<Event> {
        let Completion { key, result, .. } = completion;
        let ready = match result {
            _ if key >= FIRST_OF_OURS => return None,
            bits if bits >= 0 => self.without_rumours(key, epoll::ready(bits as u32)),
            error if error == -libc::ECANCELED => return None,
            _ => Ready::READABLE | Ready::WRITABLE | Ready::HANG_UP,
        };
        Some(Event { key, ready })
    }

    /// A socket says "and perhaps it is urgent" whenever something comes, and the kernel passes
    /// that on. So it is asked.
    fn without_rumours(&self, key: u64, ready: Ready) -> Ready {
        if !ready.has(Ready::URGENT) {
            return ready;
        }
        // Under the lock, so that the number is not another's.
        let table = lock(&self.table);
        match table.descriptors.get(&key) {
            Some(descriptor) if poll::is_urgent(*descriptor) => ready,
            _ => ready.without(Ready::URGENT),
        }
    }

    /// A poll has ended. It is submitted again if it is still registered, and the kernel did not
    /// refuse it.
    fn submit_again(&self, ended: Completion) -> io::Result<()> {
        let table = lock(&self.table);
        let registered = table.descriptors.get(&ended.key);
        let Some(descriptor) = registered.filter(|_| was_not_refused(ended)) else {
            return Ok(());
        };
        if let Some(turn) = BELLS.iter().position(|key| *key == ended.key) {
            // Else it would be heard at once, and nothing has rung it.
            let _ = (&self.bells[turn]).read(&mut [0; 8]);
        }
        self.submit(*descriptor, ended.key)
    }
}

impl HandleSet for CompletionSet {
    fn reports(&self) -> Reports {
        Reports::Edges
    }

    /// Each look asks the kernel's thread, and waits for its answer.
    fn is_cheap_to_poll(&self) -> bool {
        false
    }

    fn add(&self, descriptor: RawFd, key: u64) -> io::Result<()> {
        debug_assert!(key < FIRST_OF_OURS, "no handle has this key");
        poll::refuse_if_always_ready(descriptor)?;
        self.watch(descriptor, key)?;
        set_nonblocking(descriptor).inspect_err(|_| drop(self.remove(descriptor)))
    }

    fn arm(&self, _: RawFd, _: u64, _: Ready) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, descriptor: RawFd) -> io::Result<()> {
        let key = lock(&self.table).remove(descriptor)?;
        // What was submitted has begun, and no thread submits it again: it can only end.
        self.ring.end(key)
    }

    fn close_at_once(&self, descriptor: RawFd) {
        forget_linger(descriptor);
    }

    fn wait(&self, events: &mut Vec<Event>, until: Option<Timestamp>) -> io::Result<Answer> {
        let before = events.len();
        let left = time_left(&self.clock, until);
        if left != Some(Duration::ZERO) {
            self.ring.wait(left)?;
            self.take(|completion| events.extend(self.event(completion)))?;
        }
        let batch = if events.len() == before {
            // Its time is over, or it was woken: then the caller wants to know everything.
            self.look(events)?;
            Batch::Whole
        } else {
            // The most recent event may not be reported yet.
            Batch::Full
        };
        let slept = until != Some(Timestamp::PAST);
        Ok(Answer { batch, slept })
    }

    fn wake(&self) {
        ring(&self.waker);
    }
}

impl Table {
    fn insert(&mut self, descriptor: RawFd, key: u64) -> io::Result<()> {
        if self.keys.contains_key(&descriptor) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        self.keys.insert(descriptor, key);
        self.descriptors.insert(key, descriptor);
        Ok(())
    }

    /// The key under which it was registered.
    fn remove(&mut self, descriptor: RawFd) -> io::Result<u64> {
        let Some(key) = self.keys.remove(&descriptor) else {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        };
        self.descriptors.remove(&key);
        Ok(key)
    }
}

/// Only a full counter refuses it, and that bell is ringing.
fn ring(mut bell: &File) {
    let _ = bell.write(&1_u64.to_ne_bytes());
}

/// Whether a poll ended for want of room, or was cancelled: not for something that would be so
/// again.
fn was_not_refused(ended: Completion) -> bool {
    ended.result >= 0 || ended.result == -libc::ECANCELED
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// H2: a poll reports everything that has happened before. (The kernel's thread can't be held
    /// back here. With many peers and rounds it is behind in some of them: a poll that does not
    /// wait for it misses the last ones.)
    #[test]
    fn a_look_tells_everything() {
        const PEERS: usize = 16;
        const ROUNDS: u8 = 100;
        let set = match CompletionSet::new(Clock::monotonic()) {
            Ok(set) => set,
            Err(error) => return eprintln!("skipped: on a completion set: {error}"),
        };
        let pairs = [(); PEERS].map(|()| UnixStream::pair().unwrap());
        for (key, (near, _)) in (0..).zip(&pairs) {
            set.add(near.as_raw_fd(), key).unwrap();
        }
        for round in 0..ROUNDS {
            for (_, far) in &pairs {
                (&*far).write_all(&[round]).unwrap();
            }
            let mut events = Vec::new();
            let answer = set.wait(&mut events, Some(Timestamp::PAST)).unwrap();
            assert!(matches!(answer.batch, Batch::Whole) && !answer.slept);
            for (key, (near, _)) in (0..).zip(&pairs) {
                let told = |event: &Event| event.key == key && event.ready.has(Ready::READABLE);
                assert!(
                    events.iter().any(told),
                    "{key} in round {round}: {events:?}"
                );
                let mut message = [0];
                (&*near).read_exact(&mut message).unwrap();
                assert_eq!(message, [round]);
            }
        }
    }
}
