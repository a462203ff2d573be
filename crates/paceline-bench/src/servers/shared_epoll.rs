//! All threads wait in one epoll, and each takes one event at a time.
//!
//! Edge-triggered, so nothing is armed anew; but then a second edge of a connection may reach a second thread
//! while the first one serves. So each place counts its edges: a thread that finds zero serves, and continues
//! until it has seen every edge; the others leave theirs to it.

use std::{
    io,
    net::{TcpListener, TcpStream},
    sync::{
        atomic::{AtomicU32, Ordering},
        Arc, Mutex, PoisonError,
    },
    thread,
};

use super::{
    door::Door,
    epoll::{is_hung_up, number_of, source_of, Epoll, Event, EventFlags, EDGES},
    peer::{Peer, State},
    slots::Slots,
    Setting,
};
use crate::service::ROOM;

/// What the listener waits for, once: one thread at a time accepts.
const OF_DOOR: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

/// Serves with `setting.threads` threads.
pub(super) fn serve(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    let crew = Arc::new(Crew::new(listener, setting.steps)?);
    for _ in 1..setting.threads {
        let of_thread = Arc::clone(&crew);
        thread::Builder::new().spawn(move || of_thread.work())?;
    }
    crew.work()
}

struct Crew {
    epoll: Epoll,
    door: Door,
    places: Slots<Place>,
    steps: u32,
}

#[derive(Default)]
struct Place {
    /// Edges that are not served yet; not zero while a thread serves.
    edges: AtomicU32,
    peer: Mutex<Option<Peer>>,
}

impl Crew {
    fn new(listener: TcpListener, steps: u32) -> io::Result<Self> {
        let (epoll, door) = (Epoll::new()?, Door::new(listener)?);
        epoll.add(&door, OF_DOOR)?;
        Ok(Self {
            epoll,
            door,
            places: Slots::new(),
            steps,
        })
    }

    /// The life of a thread.
    fn work(&self) -> io::Result<()> {
        let mut buffer = [0; ROOM];
        loop {
            let event = self.epoll.next()?;
            if source_of(&event) == number_of(&self.door) {
                self.accept();
            } else {
                self.visit(&event, &mut buffer);
            }
        }
    }

    fn visit(&self, event: &Event, buffer: &mut [u8]) {
        let Some(place) = self.places.of(source_of(event)) else {
            return;
        };
        // Acquire: what the thread before left in the place. Release, below, pairs with it.
        if place.edges.fetch_add(1, Ordering::AcqRel) != 0 {
            return;
        }
        let mut hung_up = is_hung_up(event);
        let mut seen = 1;
        loop {
            place.serve(buffer, hung_up, self.steps);
            match place.leave(seen) {
                Ok(_) => return,
                // Edges arrived meanwhile, with flags that no thread has read.
                Err(more) => (seen, hung_up) = (more, true),
            }
        }
    }

    fn accept(&self) {
        while let Some(stream) = self.door.next() {
            self.admit(stream);
        }
        let _ = self.epoll.arm(&self.door, OF_DOOR);
    }

    fn admit(&self, stream: TcpStream) {
        let Some(place) = self.places.of(number_of(&stream)) else {
            return;
        };
        let mut peer = place.peer.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = &peer.insert(Peer::new(stream)).stream;
        if self.epoll.add(stream, EDGES).is_err() {
            *peer = None;
        }
    }
}

impl Place {
    /// Reads and replies until nothing is left.
    fn serve(&self, buffer: &mut [u8], hung_up: bool, steps: u32) {
        let mut slot = self.peer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = slot.as_mut() {
            if peer.serve_all(buffer, hung_up, steps) == State::Ended {
                *slot = None;
            }
        }
    }

    /// Leaves the place if no edge came since `seen` were counted; otherwise returns how many there are now.
    fn leave(&self, seen: u32) -> Result<u32, u32> {
        self.edges
            .compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire)
    }
}
