//! `poll`: to be had on every Unix system. Each wait looks at every descriptor that is armed.
//!
//! Armed descriptors are in a table under a lock. A wait copies it, and sleeps without the lock; a
//! report takes its descriptor out. So while the leader sleeps the table may change under it (E6).
//! It is woken for that exactly when it matters, and once: if a descriptor is armed that its copy
//! lacks, or if one is removed that its copy has. The second because the kernel holds on to what is
//! being polled: the peer of a closed connection would not learn of the close, nor an address be
//! free, before the wait ends. So a removal waits for that.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    sync::PoisonError,
    time::Duration,
};

use super::{
    system::{attempted, checked, forget_linger, milliseconds, set_nonblocking, time_left},
    Answer, Batch, Event, HandleSet, Ready, Reports,
};
use crate::sync::{lock, Clock, Condvar, Mutex, Timestamp};

/// A table of descriptors, and a socket pair to end a wait.
#[derive(Debug)]
pub(crate) struct PollSet {
    table: Mutex<Table>,
    /// A wait has ended.
    ended: Condvar,
    waker: UnixStream,
    /// The waker's other end, which every wait looks at too.
    woken: UnixStream,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Table {
    watched: HashMap<RawFd, Watched>,
    /// A thread waits, with a copy of the table as it was.
    waiting: bool,
    /// How many waits have begun.
    waits: u64,
    /// The wait that goes on was woken already.
    kicked: bool,
    /// The memory of one wait, kept for the next.
    polled: Polled,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    key: u64,
    /// What `poll` shall look for, besides errors and hang-ups; `None` while it is not armed.
    armed: Option<i16>,
}

/// What one wait looks at: the armed part of the table, the waker first.
#[derive(Debug, Default)]
struct Polled {
    descriptors: Vec<libc::pollfd>,
    keys: Vec<u64>,
}

/// The key of the waker, which no handle can have.
const WAKER: u64 = u64::MAX;

#[cfg(target_os = "linux")]
const PEER_STOPPED: i16 = libc::POLLRDHUP;
/// Elsewhere the end of a stream is seen by reading it.
#[cfg(not(target_os = "linux"))]
const PEER_STOPPED: i16 = 0;

impl PollSet {
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        let pair = || -> io::Result<_> {
            let (waker, woken) = UnixStream::pair()?;
            waker.set_nonblocking(true)?;
            woken.set_nonblocking(true)?;
            Ok((waker, woken))
        };
        let (waker, woken) = pair().map_err(|error| attempted("make a waker", &error))?;
        Ok(Self {
            table: Mutex::new(Table::default()),
            ended: Condvar::new(),
            waker,
            woken,
            clock,
        })
    }

    /// Makes a copy of what is armed; from here on a change of the table wakes.
    fn begin_wait(&self) -> Polled {
        let mut table = lock(&self.table);
        let mut copy = std::mem::take(&mut table.polled);
        copy.descriptors.clear();
        copy.keys.clear();
        copy.push(self.woken.as_raw_fd(), WAKER, libc::POLLIN);
        for (descriptor, watched) in &table.watched {
            if let Some(armed) = watched.armed {
                copy.push(*descriptor, watched.key, armed);
            }
        }
        table.waiting = true;
        table.waits += 1;
        table.kicked = false;
        copy
    }

    /// Disarms and collects what `poll` reported.
    fn end_wait(&self, copy: Polled, events: &mut Vec<Event>) {
        let mut table = lock(&self.table);
        table.waiting = false;
        self.ended.notify_all();
        for (polled, key) in copy.descriptors.iter().zip(&copy.keys) {
            if polled.revents == 0 || *key == WAKER {
                continue;
            }
            // It may have been removed, and its number given to another.
            let watched = table.watched.get_mut(&polled.fd);
            if let Some(watched) = watched.filter(|watched| watched.key == *key) {
                watched.armed = None;
                let ready = ready(polled.revents);
                events.push(Event { key: *key, ready });
            }
        }
        table.polled = copy;
    }

    /// Uses up the wakes that have come.
    fn drain_waker(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.woken).read(&mut bytes), Ok(count) if count == bytes.len()) {}
    }

    /// Wakes the thread that waits with a stale copy; once.
    fn kick(&self, table: &mut Table) {
        if table.waiting && !std::mem::replace(&mut table.kicked, true) {
            self.wake();
        }
    }
}

impl HandleSet for PollSet {
    fn reports(&self) -> Reports {
        Reports::Once
    }

    /// Each wait copies the table.
    fn is_cheap_to_poll(&self) -> bool {
        false
    }

    fn add(&self, descriptor: RawFd, key: u64) -> io::Result<()> {
        let mut table = lock(&self.table);
        if table.watched.contains_key(&descriptor) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        set_nonblocking(descriptor)?;
        refuse_if_always_ready(descriptor)?;
        table
            .watched
            .insert(descriptor, Watched { key, armed: None });
        Ok(())
    }

    fn arm(&self, descriptor: RawFd, key: u64, directions: Ready) -> io::Result<()> {
        let mut table = lock(&self.table);
        let watched = table.watched.get_mut(&descriptor);
        let Some(watched) = watched.filter(|watched| watched.key == key) else {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        };
        watched.armed = Some(awaited(directions));
        self.kick(&mut table);
        Ok(())
    }

    fn remove(&self, descriptor: RawFd) -> io::Result<()> {
        let mut table = lock(&self.table);
        let removed = table.watched.remove(&descriptor);
        if removed.is_some_and(|watched| watched.armed.is_some()) {
            self.kick(&mut table);
            let with_old_copy = table.waits;
            while table.waiting && table.waits == with_old_copy {
                let woken = self.ended.wait(table);
                table = woken.unwrap_or_else(PoisonError::into_inner);
            }
        }
        removed.map_or(Err(io::Error::from_raw_os_error(libc::ENOENT)), |_| Ok(()))
    }

    fn close_at_once(&self, descriptor: RawFd) {
        forget_linger(descriptor);
    }

    fn wait(&self, events: &mut Vec<Event>, until: Option<Timestamp>) -> io::Result<Answer> {
        let mut copy = self.begin_wait();
        let timeout = milliseconds(time_left(&self.clock, until));
        // SAFETY: the pointer and the length are those of the copy, which no other thread touches.
        let told = unsafe {
            libc::poll(
                copy.descriptors.as_mut_ptr(),
                copy.descriptors.len() as libc::nfds_t,
                timeout,
            )
        };
        let told = checked(told);
        if told.is_err() {
            // What the kernel left there means nothing.
            copy.descriptors.iter_mut().for_each(|it| it.revents = 0);
        }
        if copy.descriptors[0].revents != 0 {
            self.drain_waker();
        }
        self.end_wait(copy, events);
        match told {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(attempted("wait for events (poll)", &error))
            }
            _ => Ok(Answer {
                batch: Batch::Whole,
                slept: until != Some(Timestamp::PAST),
            }),
        }
    }

    fn wake(&self) {
        // Full is as good as written: the wait that is to end has not read it yet.
        let _ = (&self.waker).write(&[1]);
    }
}

impl Polled {
    fn push(&mut self, fd: RawFd, key: u64, events: i16) {
        let revents = 0;
        self.descriptors.push(libc::pollfd {
            fd,
            events,
            revents,
        });
        self.keys.push(key);
    }
}

/// What of `directions` is ready at one descriptor now, or whether there is an error or a hang-up.
/// In doubt nothing is.
#[cfg(target_os = "linux")]
pub(super) fn glance(fd: RawFd, directions: Ready) -> Ready {
    let mut polled = libc::pollfd {
        fd,
        events: awaited(directions),
        revents: 0,
    };
    // SAFETY: `polled` is one descriptor, as is said, and lives until the call returns.
    let told = unsafe { libc::poll(&mut polled, 1, 0) };
    if told > 0 {
        ready(polled.revents)
    } else {
        Ready::NONE
    }
}

/// Whether urgent data is pending at one descriptor now. In doubt it is.
#[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
pub(super) fn is_urgent(fd: RawFd) -> bool {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLPRI,
        revents: 0,
    };
    // SAFETY: `polled` is one descriptor, as is said, and lives until the call returns.
    let told = unsafe { libc::poll(&mut polled, 1, 0) };
    told < 0 || polled.revents & libc::POLLPRI != 0
}

/// Waits until one of `directions` is ready at a descriptor, or there is an error or a hang-up, or
/// `waker` can be read, or `timeout` has passed. What is ready, and whether the waker can be read.
/// An interrupted wait ends early.
pub(crate) fn poll_two(
    (fd, directions): (RawFd, Ready),
    waker: RawFd,
    timeout: Option<Duration>,
) -> io::Result<(Ready, bool)> {
    let polled = |fd, events| libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let mut both = [polled(fd, awaited(directions)), polled(waker, libc::POLLIN)];
    // SAFETY: `both` are two descriptors, as is said, and live until the call returns.
    let told = unsafe { libc::poll(both.as_mut_ptr(), 2, milliseconds(timeout)) };
    match checked(told) {
        Ok(_) => Ok((ready(both[0].revents), both[1].revents != 0)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok((Ready::NONE, false)),
        Err(error) => Err(attempted("wait for a reply (poll)", &error)),
    }
}

/// Waits until one of these descriptors can be read, or `timeout` has passed. An interrupted wait
/// ends early.
pub(super) fn poll_many(
    descriptors: impl Iterator<Item = RawFd>,
    timeout: Option<Duration>,
) -> io::Result<()> {
    let mut polled: Vec<_> = descriptors
        .map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: the pointer and the length are those of `polled`, which lives until the call returns.
    let told = unsafe {
        libc::poll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            milliseconds(timeout),
        )
    };
    match checked(told) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => {
            Err(attempted("wait in several sets (poll)", &error))
        }
        _ => Ok(()),
    }
}

/// Whether a descriptor can be read now. If that can't be known, a read gives the reason.
pub(crate) fn is_readable(fd: RawFd) -> bool {
    // A number that is none is passed over.
    let none = -1;
    let polled = poll_two((fd, Ready::READABLE), none, Some(Duration::ZERO));
    polled.map_or(true, |(ready, _)| ready.has(Ready::READABLE))
}

fn awaited(directions: Ready) -> i16 {
    let table = [
        (Ready::READABLE, libc::POLLIN | PEER_STOPPED),
        (Ready::WRITABLE, libc::POLLOUT),
    ];
    let awaited = table.iter().filter(|(ready, _)| directions.has(*ready));
    awaited.fold(0, |all, (_, bits)| all | bits)
}

/// Translates the kernel's bits. An error, a hang-up or a number that is not open any more makes
/// both directions ready: the next read or write returns it.
fn ready(bits: i16) -> Ready {
    let gone = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;
    let table = [
        (libc::POLLIN | PEER_STOPPED | gone, Ready::READABLE),
        (libc::POLLOUT | gone, Ready::WRITABLE),
        (PEER_STOPPED | gone, Ready::HANG_UP),
    ];
    let holds = table.iter().filter(|(mask, _)| bits & mask != 0);
    holds.fold(Ready::NONE, |all, (_, ready)| all | *ready)
}

/// A regular file or a directory is always ready, so it can't be waited for.
pub(super) fn refuse_if_always_ready(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `stat`, which is plain data.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` lives until the call returns.
    checked(unsafe { libc::fstat(descriptor, &mut stat) })?;
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFDIR => Err(io::Error::from_raw_os_error(libc::EPERM)),
        _ => Ok(()),
    }
}
