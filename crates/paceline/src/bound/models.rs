//! loom's models of the bound association: every interleaving of callers, leaders, senders,
//! replies, deadlines and losses.
//!
//! They run the product's own link over a connection that is a lock, and a clock that stands still.
//! A thread that is never woken is a deadlock, which loom reports (B2, B3). At the end of each
//! model nothing is left behind.

mod ends;
mod places;
mod pooled;
mod replies;
mod sending;

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, IoSlice},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use loom::thread;

use super::{
    calls::{Calls, Key},
    deadline::Patience,
    driver::{Joined, Wants},
    lead::{Arrival, End},
    leading::Leading,
    line::Line,
    link::{Bounds, Link},
    outbound::Sink,
    protocol::{Header, Protocol, Whose},
    sleepers::Elect,
    word::{FellAsleep, Phase},
};
use crate::{
    handle_set::Ready,
    sync::{explore, lock, Clock, Mutex, Parker, Timestamp, VirtualClock},
};

/// One byte of id, one of body.
struct Tiny;

impl Protocol for Tiny {
    type Request = u8;
    const ID_BITS: u32 = 8;

    fn encode(&self, request: &u8, id: u64, out: &mut Vec<u8>) -> io::Result<()> {
        out.extend([id as u8, *request]);
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        Ok(bytes.first().map(|id| Header {
            whose: Whose::Call((*id).into()),
            skip: 1,
            length: 1,
        }))
    }
}

/// The kernel's part: what is there to be read, what was written, and where the leader waits.
struct Wire {
    state: Mutex<WireState>,
    waiting: Arc<Parker>,
}

#[derive(Default)]
struct WireState {
    input: VecDeque<u8>,
    ended: bool,
    written: Vec<u8>,
    /// Writes fail.
    broken: bool,
    /// So many bytes are taken before it would block.
    room: usize,
    /// Becomes input as soon as something is written.
    echo: Vec<u8>,
    /// A wait is to end.
    woken: bool,
}

impl Wire {
    fn change(&self, change: impl FnOnce(&mut WireState)) {
        change(&mut lock(&self.state));
        self.waiting.post(1);
        self.waiting.wake();
    }

    /// These bytes come.
    fn bring(&self, bytes: &[u8]) {
        self.change(|state| state.input.extend(bytes));
    }
}

impl Sink for Wire {
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = lock(&self.state);
        if state.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        let count = all.len().min(state.room);
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.room -= count;
        state.written.extend(&all[..count]);
        let echo = std::mem::take(&mut state.echo);
        state.input.extend(echo);
        Ok(count)
    }
}

impl Line for Wire {
    fn descriptor(&self) -> io::Result<OwnedFd> {
        // A pool of the models asks for nothing but a descriptor.
        Ok(File::open("/dev/null")?.into())
    }

    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut state = lock(&self.state);
        let count = state.input.len().min(into.len());
        if count == 0 {
            return if state.ended {
                Ok(0)
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            };
        }
        for (place, byte) in into.iter_mut().zip(state.input.drain(..count)) {
            *place = byte;
        }
        Ok(count)
    }

    fn wait(&self, for_room: bool, clock: &Clock, until: Option<Timestamp>) -> io::Result<Ready> {
        loop {
            self.waiting.take();
            let mut state = lock(&self.state);
            let mut ready = Ready::NONE;
            if !state.input.is_empty() || state.ended {
                ready |= Ready::READABLE;
            }
            if for_room && state.room > 0 {
                ready |= Ready::WRITABLE;
            }
            let woken = std::mem::take(&mut state.woken);
            drop(state);
            if woken || !ready.is_empty() || clock.has_passed(until) {
                return Ok(ready);
            }
            clock.sleep(&self.waiting, until);
        }
    }

    fn wake(&self) {
        self.change(|state| state.woken = true);
    }
}

/// As long as it takes.
const NEVER: Patience<'static> = Patience::until(None);

/// A link on such a wire.
struct World {
    link: Arc<Link<Tiny>>,
    wire: Arc<Wire>,
}

impl World {
    fn new() -> Arc<Self> {
        Self::with_room(1000)
    }

    /// Whose wire takes so many bytes.
    fn with_room(room: usize) -> Arc<Self> {
        let clock = Clock::Virtual(Arc::new(VirtualClock::new()));
        let bounds = Bounds {
            calls: 4,
            unsent: 100,
            longest_reply: 100,
            elect: Elect::Oldest,
            leader_spin: Duration::ZERO,
        };
        let link = Link::new(Tiny, clock, &bounds);
        let link = Arc::new(link.map_err(|(_, error)| error).unwrap());
        let wire = new_wire(room);
        assert!(link.begin(Arc::clone(&wire) as Arc<dyn Line>).is_ok());
        Arc::new(Self { link, wire })
    }

    /// Registers and sends; the request is `b'?'`.
    fn sent(&self) -> Key {
        self.send(self.link.calls.register().unwrap())
    }

    /// The same, also while another thread is about to give a slot back.
    fn sent_when_there_is_room(&self) -> Key {
        loop {
            match self.link.calls.register() {
                Some(key) => return self.send(key),
                None => thread::yield_now(),
            }
        }
    }

    fn send(&self, key: Key) -> Key {
        self.link.send(key, &b'?').unwrap();
        key
    }

    /// The reply to a call, with its index for a body.
    fn reply(&self, key: Key) -> [u8; 2] {
        [self.link.calls.id(key) as u8, key.index as u8]
    }

    /// Joins, takes what came, and forgets the call.
    fn join(&self, key: Key) -> Ended {
        let ended = self.join_and_keep(key, None);
        self.link.calls.forget(key);
        ended
    }

    fn join_and_keep(&self, key: Key, deadline: Option<Timestamp>) -> Ended {
        match self.link.join(key, Wants::Data, Patience::until(deadline)) {
            Joined::Replied => {
                let reply = self.link.calls.take_reply(key);
                assert_eq!(reply, [key.index as u8], "another's reply (B1)");
                Ended::Replied
            }
            Joined::Reads(_) => panic!("it did not want to read"),
            Joined::Lost => Ended::Lost,
            Joined::TimedOut => Ended::TimedOut,
        }
    }

    /// The same on a thread.
    fn joined(self: &Arc<Self>, key: Key) -> thread::JoinHandle<Ended> {
        let world = Arc::clone(self);
        thread::spawn(move || world.join(key))
    }

    /// The lead is the calling thread's.
    fn leads(&self) -> Leading<'_, Tiny> {
        assert_eq!(self.link.lead.take(), Arrival::Leads);
        Leading::new(&self.link)
    }

    /// The caller of `key` falls asleep while another caller leads, up to the last step; a thread
    /// may sleep on for it.
    fn lay_down(&self, key: Key) {
        let slot = self.link.calls.slot(key);
        assert_eq!(slot.word.fall_asleep(Phase::Asleep), FellAsleep::Unlisted);
        let arrival = self.link.lead.take_or_push(key.index, slot);
        assert_eq!(arrival, Arrival::Follows);
    }

    fn phase(&self, key: Key) -> Phase {
        self.link.calls.slot(key).word.look().phase()
    }

    /// No caller is there, no thread leads, and every slot is there once.
    fn assert_empty(&self) {
        let callers = self.link.callers();
        let left = (callers.under_way, callers.forgotten, callers.asleep);
        assert_eq!(left, (0, 0, 0), "something is left behind");
        assert!(!callers.led, "nobody is left, and the lead is held");
        let mut keys: Vec<_> = (0..4)
            .map(|_| self.link.calls.register().expect("a slot is lost").index)
            .collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 4, "a slot is there twice");
    }
}

fn new_wire(room: usize) -> Arc<Wire> {
    let state = WireState {
        room,
        ..WireState::default()
    };
    Arc::new(Wire {
        state: Mutex::new(state),
        waiting: Arc::new(Parker::new()),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Replied,
    Lost,
    TimedOut,
}
