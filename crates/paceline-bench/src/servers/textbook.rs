//! Leader/Followers as the textbook has it: a mutex, a condition variable and one-shot epoll.
//!
//! ```text
//!  Follower   -> Leader      [Pool::lead]     waits on the condition until no thread leads
//!  Leader     -> Processing  [Pool::promote]  has one event, whose handle is silent now; wakes one follower
//!  Processing -> Follower    [Pool::process]  has read, replied, and armed its handle anew
//! ```

use std::{
    io,
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use super::{
    counts::{self, Leaderless},
    door::Door,
    epoll::{number_of, source_of, Epoll, Event, EventFlags},
    peer::{Brought, Peer},
    slots::Slots,
    Setting,
};
use crate::service::ROOM;

/// What every handle waits for, once. Level-triggered: if something is left, arming it again reports it.
const INPUT: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

/// What a handle waits for, once, whose peer does not take its replies.
const ROOM_FOR_OUTPUT: EventFlags = EventFlags::OUT.union(EventFlags::ONESHOT);

/// Serves with `setting.threads` threads.
pub(super) fn serve(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    let pool = Arc::new(Pool::new(listener, setting.steps)?);
    let of_counts = Arc::clone(&pool);
    counts::ask_leaderless(move || of_counts.lock().leaderless);
    for _ in 1..setting.threads {
        let of_thread = Arc::clone(&pool);
        thread::Builder::new().spawn(move || of_thread.join())?;
    }
    pool.join()
}

struct Pool {
    epoll: Epoll,
    door: Door,
    peers: Slots<Mutex<Option<Peer>>>,
    lead: Mutex<Lead>,
    /// Notified when the lead becomes vacant.
    vacant: Condvar,
    steps: u32,
}

/// What the mutex protects.
#[derive(Default)]
struct Lead {
    is_taken: bool,
    /// How many threads wait for it.
    followers: usize,
    /// Since when it is vacant, if that is counted.
    vacant_since: Option<Instant>,
    leaderless: Leaderless,
}

impl Pool {
    fn new(listener: TcpListener, steps: u32) -> io::Result<Self> {
        let (epoll, door) = (Epoll::new()?, Door::new(listener)?);
        epoll.add(&door, INPUT)?;
        Ok(Self {
            epoll,
            door,
            peers: Slots::new(),
            lead: Mutex::default(),
            vacant: Condvar::new(),
            steps,
        })
    }

    /// The life of a thread.
    fn join(&self) -> io::Result<()> {
        let mut buffer = [0; ROOM];
        loop {
            self.lead();
            let event = self.epoll.next();
            self.promote();
            self.process(&event?, &mut buffer);
        }
    }

    /// Waits until no thread leads, and leads.
    fn lead(&self) {
        let mut lead = self.lock();
        while lead.is_taken {
            lead.followers += 1;
            lead = self
                .vacant
                .wait(lead)
                .unwrap_or_else(PoisonError::into_inner);
            lead.followers -= 1;
        }
        lead.is_taken = true;
        lead.count_vacancy();
    }

    /// Gives the lead away, and wakes a follower if there is one. Woken after the lock is free, it need not
    /// wait for that too.
    fn promote(&self) {
        let mut lead = self.lock();
        lead.is_taken = false;
        lead.vacant_since = counts::is_on().then(Instant::now);
        let has_followers = lead.followers > 0;
        drop(lead);
        if has_followers {
            self.vacant.notify_one();
        }
    }

    fn process(&self, event: &Event, buffer: &mut [u8]) {
        let fd = source_of(event);
        if fd == number_of(&self.door) {
            return self.accept();
        }
        let Some(slot) = self.peers.of(fd) else {
            return;
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(peer) = slot.as_mut() else {
            return;
        };
        match peer.serve_once(buffer, self.steps) {
            Ok(Brought::End) | Err(_) => *slot = None,
            Ok(Brought::Stuck) => drop(self.epoll.arm(&peer.stream, ROOM_FOR_OUTPUT)),
            Ok(_) => drop(self.epoll.arm(&peer.stream, INPUT)),
        }
    }

    fn accept(&self) {
        while let Some(stream) = self.door.next() {
            self.admit(stream);
        }
        let _ = self.epoll.arm(&self.door, INPUT);
    }

    fn admit(&self, stream: TcpStream) {
        let Some(slot) = self.peers.of(number_of(&stream)) else {
            return;
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let peer = slot.insert(Peer::new(stream));
        if self.epoll.add(&peer.stream, INPUT).is_err() {
            *slot = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lead> {
        self.lead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lead {
    fn count_vacancy(&mut self) {
        if let Some(since) = self.vacant_since.take() {
            let vacancy = since.elapsed();
            self.leaderless.in_all += vacancy;
            self.leaderless.longest = self.leaderless.longest.max(vacancy);
        }
    }
}
