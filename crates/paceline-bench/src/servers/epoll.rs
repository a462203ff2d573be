//! What the servers written by hand ask of epoll. An event carries the number of its descriptor.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

pub(super) use rustix::event::epoll::{Event, EventFlags};
use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, CreateFlags, EventData},
    io::Errno,
};

/// What an edge-triggered server waits for, registered once per connection. Room for output is reported only after there
/// was none.
pub(super) const EDGES: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

/// An epoll.
pub(super) struct Epoll(OwnedFd);

impl Epoll {
    /// One with nothing in it.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor.
    pub(super) fn add(&self, source: impl AsFd, flags: EventFlags) -> io::Result<()> {
        let data = data_of(&source);
        Ok(epoll::add(&self.0, source, data, flags)?)
    }

    /// Arms a descriptor anew.
    pub(super) fn arm(&self, source: impl AsFd, flags: EventFlags) -> io::Result<()> {
        let data = data_of(&source);
        Ok(epoll::modify(&self.0, source, data, flags)?)
    }

    /// Waits for one event.
    pub(super) fn next(&self) -> io::Result<Event> {
        let mut room = [MaybeUninit::uninit(); 1];
        loop {
            match epoll::wait(&self.0, &mut room, None) {
                Ok(([event, ..], _)) => return Ok(*event),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for events: as many as `events` has room for.
    pub(super) fn batch(&self, events: &mut Vec<Event>) -> io::Result<()> {
        events.clear();
        match epoll::wait(&self.0, spare_capacity(events), None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The number of a descriptor, as events carry it.
pub(super) fn number_of(source: impl AsFd) -> usize {
    usize::try_from(source.as_fd().as_raw_fd()).unwrap_or_default()
}

/// The number of the descriptor that an event is about.
pub(super) fn source_of(event: &Event) -> usize {
    event.data.u64() as usize
}

/// Whether an event reports that a short read need not be the last: the end of the stream, or an error, follows.
pub(super) fn is_hung_up(event: &Event) -> bool {
    // The event is packed: its flags can't be borrowed.
    let flags = event.flags;
    flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
}

fn data_of(source: impl AsFd) -> EventData {
    EventData::new_u64(number_of(source) as u64)
}
