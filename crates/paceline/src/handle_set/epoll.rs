//! epoll, edge-triggered or one-shot, with an eventfd to end a wait; and one-shot for many threads
//! that wait at once.
//!
//! Edge-triggered, a descriptor is registered once for everything and never again: no `epoll_ctl`
//! per event. One-shot, an event silences its descriptor until it is armed again, and readiness
//! that lasts is reported again then. The eventfd is edge-triggered in both, so it is never read:
//! each write is a new edge, and one that arrives while no thread waits is found by the next wait.
//! It is no handle of the pool, so nothing can claim or suspend it (ACE 1998, 3714).
//!
//! Many threads may wait at once in the third form. The kernel reports each event to one of them,
//! and silences its descriptor. The alarm is a timerfd there, edge-triggered like the eventfd: when
//! its time comes, one thread wakes, and not all.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use super::{
    poll,
    system::{attempted, checked, forget_linger, milliseconds, set_nonblocking, time_left},
    Answer, Batch, Beside, ConcurrentSet, Event, HandleSet, Ready, Reports, Told,
};
use crate::sync::{Clock, Timestamp};

/// How many events one wait can bring; more stay in the kernel for the next.
const MOST_EVENTS: usize = 256;

/// The key of the eventfd, which no handle can have.
const WAKER: u64 = u64::MAX;

/// The key of the timerfd, likewise.
const ALARM: u64 = u64::MAX - 1;

/// Everything that a descriptor may report, once for ever.
const ALL_EDGES: i32 =
    libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET;

/// An epoll instance and its waker.
#[derive(Debug)]
pub(crate) struct Epoll {
    epoll: OwnedFd,
    waker: OwnedFd,
    /// By which deadlines are measured.
    clock: Clock,
    reports: Reports,
    /// The timerfd of a concurrent set.
    alarm: Option<OwnedFd>,
}

impl Epoll {
    pub(crate) fn new(clock: Clock, reports: Reports) -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
            .map_err(|error| attempted("make a handle set (epoll_create1)", &error))?;
        // SAFETY: no pointer is passed.
        let waker = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
            .map_err(|error| attempted("make a waker (eventfd)", &error))?;
        let set = Self {
            epoll,
            waker,
            clock,
            reports,
            alarm: None,
        };
        set.control(
            libc::EPOLL_CTL_ADD,
            set.waker.as_raw_fd(),
            libc::EPOLLIN | libc::EPOLLET,
            WAKER,
        )?;
        Ok(set)
    }

    /// One-shot, for many threads that wait at once.
    pub(crate) fn for_many(clock: Clock) -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no pointer is passed.
        let alarm = owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })
            .map_err(|error| attempted("make an alarm (timerfd_create)", &error))?;
        let mut set = Self::new(clock, Reports::Once)?;
        let edges = libc::EPOLLIN | libc::EPOLLET;
        set.control(libc::EPOLL_CTL_ADD, alarm.as_raw_fd(), edges, ALARM)?;
        set.alarm = Some(alarm);
        Ok(set)
    }

    /// Waits for as many events as there is `room` for. An interrupted wait brings none.
    #[inline]
    fn events<'r>(
        &self,
        room: &'r mut [MaybeUninit<libc::epoll_event>],
        until: Option<Timestamp>,
    ) -> io::Result<impl ExactSizeIterator<Item = libc::epoll_event> + 'r> {
        // SAFETY: `room` is as long as it is said to be.
        let told = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                room.as_mut_ptr().cast(),
                room.len() as i32,
                milliseconds(time_left(&self.clock, until)),
            )
        };
        let count = match checked(told) {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(attempted("wait for events (epoll_wait)", &error)),
        };
        // SAFETY: the kernel has written that many events from the start of `room`.
        let init = |event: &MaybeUninit<libc::epoll_event>| unsafe { event.assume_init() };
        Ok(room[..count].iter().map(init))
    }

    fn control(&self, operation: i32, descriptor: RawFd, edges: i32, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: edges as u32,
            u64: key,
        };
        // SAFETY: `event` lives until the call returns; the kernel copies it.
        let told =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, descriptor, &mut event) };
        checked(told).map(drop)
    }
}

impl HandleSet for Epoll {
    fn reports(&self) -> Reports {
        self.reports
    }

    fn add(&self, descriptor: RawFd, key: u64) -> io::Result<()> {
        debug_assert!(key < ALARM, "no handle has this key");
        let edges = match self.reports {
            Reports::Edges => ALL_EDGES,
            Reports::Once => libc::EPOLLONESHOT,
        };
        self.control(libc::EPOLL_CTL_ADD, descriptor, edges, key)?;
        set_nonblocking(descriptor).inspect_err(|_| drop(self.remove(descriptor)))
    }

    fn arm(&self, descriptor: RawFd, key: u64, directions: Ready) -> io::Result<()> {
        let table = [
            (Ready::READABLE, libc::EPOLLIN | libc::EPOLLRDHUP),
            (Ready::WRITABLE, libc::EPOLLOUT),
        ];
        let awaited = table.iter().filter(|(ready, _)| directions.has(*ready));
        let bits = awaited.fold(libc::EPOLLONESHOT, |all, (_, bits)| all | bits);
        self.control(libc::EPOLL_CTL_MOD, descriptor, bits, key)
    }

    fn remove(&self, descriptor: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, descriptor, 0, 0)
    }

    fn close_at_once(&self, descriptor: RawFd) {
        forget_linger(descriptor);
    }

    fn wait(&self, events: &mut Vec<Event>, until: Option<Timestamp>) -> io::Result<Answer> {
        // Not cleared: that would cost more than a small batch is worth.
        let mut batch = [const { MaybeUninit::<libc::epoll_event>::uninit() }; MOST_EVENTS];
        let told = self.events(&mut batch, until)?;
        let count = told.len();
        let of_handles = told.filter(|event| event.u64 != WAKER);
        events.extend(of_handles.map(|event| Event {
            key: event.u64,
            ready: ready(event.events),
        }));
        let batch = if count == MOST_EVENTS {
            Batch::Full
        } else {
            Batch::Whole
        };
        let slept = until != Some(Timestamp::PAST);
        Ok(Answer { batch, slept })
    }

    fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: the pointer and the length are those of `one`, which lives until the call
        // returns. The only failure, a full counter, leaves the eventfd readable: the wake is on
        // its way.
        unsafe { libc::write(self.waker.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn beside(&self) -> Beside<'_> {
        Beside::Descriptor(self.epoll.as_raw_fd())
    }

    fn concurrent(&self) -> Option<&dyn ConcurrentSet> {
        self.alarm.is_some().then_some(self)
    }
}

impl ConcurrentSet for Epoll {
    fn wait_among_others(
        &self,
        room: usize,
        until: Option<Timestamp>,
        tell: &mut dyn FnMut(Told),
    ) -> io::Result<()> {
        let mut batch = [const { MaybeUninit::<libc::epoll_event>::uninit() }; MOST_EVENTS];
        let told = self.events(&mut batch[..room.min(MOST_EVENTS)], until)?;
        told.for_each(|event| {
            tell(match event.u64 {
                WAKER => Told::Woken,
                ALARM => Told::Alarm,
                key => Told::Handle(Event {
                    key,
                    ready: ready(event.events),
                }),
            });
        });
        Ok(())
    }

    fn set_alarm(&self, at: Option<Timestamp>) {
        let Some(alarm) = &self.alarm else {
            return;
        };
        // Zero would be no alarm at all.
        let left = at.map(|at| at.since(self.clock.now()).max(Duration::from_nanos(1)));
        let left = left.unwrap_or(Duration::ZERO);
        // SAFETY: all-zero bytes are a valid `itimerspec`, which is plain data.
        let mut setting: libc::itimerspec = unsafe { std::mem::zeroed() };
        setting.it_value.tv_sec = left.as_secs().try_into().unwrap_or(libc::time_t::MAX);
        setting.it_value.tv_nsec = left.subsec_nanos().into();
        // SAFETY: `setting` lives until the call returns; where the old one goes may be null.
        let told =
            unsafe { libc::timerfd_settime(alarm.as_raw_fd(), 0, &setting, std::ptr::null_mut()) };
        debug_assert_eq!(told, 0, "the descriptor is an alarm, the setting is valid");
    }

    fn glance(&self, descriptor: RawFd, directions: Ready) -> Ready {
        poll::glance(descriptor, directions)
    }
}

/// Translates the kernel's bits. An error or a hang-up makes both directions ready: the next read
/// or write returns it.
pub(super) fn ready(bits: u32) -> Ready {
    let hang_up = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
    let table = [
        (libc::EPOLLIN | hang_up, Ready::READABLE),
        (libc::EPOLLPRI, Ready::READABLE | Ready::URGENT),
        (
            libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR,
            Ready::WRITABLE,
        ),
        (hang_up, Ready::HANG_UP),
    ];
    let holds = table.iter().filter(|(mask, _)| bits & *mask as u32 != 0);
    holds.fold(Ready::NONE, |all, (_, ready)| all | *ready)
}

fn owned(told: i32) -> io::Result<OwnedFd> {
    let descriptor = checked(told)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
