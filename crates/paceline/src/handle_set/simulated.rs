//! A handle set without an operating system: scripted and seeded events on a virtual clock.
//!
//! One more platform beside epoll, for tests of the pool and of handlers. Nothing happens here
//! unless a test does it, descriptors are reused as soon as they are free, time stands still until
//! it is moved, and on request the world misbehaves in every way that the contract of a handle set
//! allows.
//!
//! ```
//! use paceline::{simulated::Simulation, Context, Interest, Next, Pool, SetKind};
//!
//! let world = Simulation::new(7);
//! let pool = Pool::builder()
//!     .threads(2)
//!     .handle_set(SetKind::Simulated(world.clone()))
//!     .build()?;
//! let (stream, peer) = world.stream();
//! pool.register(stream, Interest::READ, |cx: &mut Context<'_, _>| {
//!     let mut buffer = [0; 16];
//!     let count = cx.read(&mut buffer)?;
//!     cx.write_all(&buffer[..count])?;
//!     Ok(Next::Continue)
//! })?;
//! peer.send(b"hello");
//! assert_eq!(peer.wait_for(5), b"hello");
//! # std::io::Result::Ok(())
//! ```

mod many;
mod set;

use std::{
    collections::VecDeque,
    fmt,
    io::{self, Read, Write},
    os::fd::RawFd,
    sync::{
        // Numbers that order nothing.
        atomic::{AtomicI32, Ordering},
        Arc,
    },
    time::{Duration, Instant},
};

pub(crate) use self::set::SimulatedSet;
use self::set::{Watch, Watched};
use super::{Descriptor, HandleSet, Ready, Reports, Source};
pub use crate::sync::VirtualClock;
use crate::sync::{lock, Clock, Mutex, MutexGuard, Parker};

/// A world of streams, and the handle set of one pool in it. Cloning gives another handle to it.
#[derive(Clone)]
pub struct Simulation {
    world: Arc<World>,
    /// Which of the world's sets.
    set: usize,
}

/// What the world does to the pool now and then, all of it legal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Events are reported again for keys that are gone.
    pub stale: bool,
    /// Events are reported twice.
    pub doubled: bool,
    /// Reads, writes and waits are interrupted.
    pub interrupted: bool,
    /// Reads and writes move one byte.
    pub short: bool,
    /// A wait brings one event at a time.
    pub single: bool,
}

impl Faults {
    /// None of them.
    pub const NONE: Self = Self {
        stale: false,
        doubled: false,
        interrupted: false,
        short: false,
        single: false,
    };
    /// Every one of them.
    pub const ALL: Self = Self {
        stale: true,
        doubled: true,
        interrupted: true,
        short: true,
        single: true,
    };
}

/// How long a peer waits for the pool, in real time: a test that expects too much shall not hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// The first descriptor of the first world, and how many each world may have.
const DESCRIPTORS: RawFd = 1 << 30;
const DESCRIPTORS_PER_WORLD: RawFd = 1 << 14;

/// The first descriptor of a new world.
fn next_range() -> RawFd {
    static WORLDS: AtomicI32 = AtomicI32::new(0);
    // After 2^16 worlds the numbers begin anew.
    let number = WORLDS.fetch_add(1, Ordering::Relaxed) & 0xFFFF;
    DESCRIPTORS + number * DESCRIPTORS_PER_WORLD
}

/// How much a stream takes from the pool before its peer reads.
const CAPACITY: usize = 64;

/// A fault that is switched on strikes once in this many times.
const FAULT_EVERY: u64 = 4;

impl Simulation {
    /// A world without streams. `seed` decides when faults strike.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::holding(State::new(seed, Reports::Edges))
    }

    /// The same, with a set that reports once and must be armed again, as
    /// [`SetKind::OneShot`](crate::SetKind::OneShot) does.
    #[must_use]
    pub fn one_shot(seed: u64) -> Self {
        Self::holding(State::new(seed, Reports::Once))
    }

    fn holding(state: State) -> Self {
        Self {
            set: 0,
            world: Arc::new(World {
                reports: state.reports,
                is_for_many: state.is_for_many(),
                first_descriptor: next_range(),
                state: Mutex::new(state),
                clock: Arc::new(VirtualClock::new()),
            }),
        }
    }

    /// Another handle set in the same world, for one more pool: with the same streams, clock and
    /// faults.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self {
            set: lock(&self.world.state).add_watch(),
            world: Arc::clone(&self.world),
        }
    }

    /// A new connection: the pool's end, and the peer's.
    #[must_use]
    pub fn stream(&self) -> (SimStream, SimPeer) {
        let peer = Arc::new(Parker::new());
        let (id, descriptor) = lock(&self.world.state).open(Arc::clone(&peer));
        let end = End {
            world: Arc::clone(&self.world),
            id,
        };
        let stream = SimStream {
            descriptor: end.world.first_descriptor + descriptor,
            end: end.clone(),
        };
        (stream, SimPeer { end, parker: peer })
    }

    /// The clock by which every deadline of the pool is measured.
    #[must_use]
    pub fn clock(&self) -> &VirtualClock {
        &self.world.clock
    }

    /// Switches faults on or off.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.world.state).faults = faults;
    }

    /// How many times a fault struck.
    #[must_use]
    pub fn faults_injected(&self) -> u64 {
        lock(&self.world.state).injected
    }

    /// How often the pool has ended a wait of its own leader, to have it look at something else.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        lock(&self.world.state).watches[self.set].wakes
    }

    /// Makes the wait that goes on now, or else the next one, fail with an error of this kind,
    /// once. No event is lost by it.
    pub fn fail_next_wait(&self, kind: io::ErrorKind) {
        let mut state = lock(&self.world.state);
        state.watches[self.set].failure = Some(kind);
        self.world.wake_leader(state, self.set);
    }

    /// Its handle set, for the one pool that may have it.
    pub(crate) fn set(&self) -> io::Result<Box<dyn HandleSet>> {
        let watch = &mut lock(&self.world.state).watches[self.set];
        if std::mem::replace(&mut watch.is_taken, true) {
            let text = "build a pool: this simulation belongs to a pool already";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let world = Arc::clone(&self.world);
        Ok(Box::new(SimulatedSet::new(world, self.set, watch)))
    }

    pub(crate) fn clock_of_pool(&self) -> Clock {
        Clock::Virtual(Arc::clone(&self.world.clock))
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").finish_non_exhaustive()
    }
}

/// The pool's end of a simulated connection: a source like any other.
#[derive(Debug)]
pub struct SimStream {
    end: End,
    descriptor: RawFd,
}

impl Source for SimStream {
    fn descriptor(&self) -> Descriptor<'_> {
        Descriptor::simulated(self)
    }
}

impl SimStream {
    pub(super) fn number(&self) -> RawFd {
        self.descriptor
    }

    /// Ends the output: the peer reads the end after what was sent.
    ///
    /// # Errors
    /// `NotConnected` if the peer has reset the connection.
    pub fn end_output(&self) -> io::Result<()> {
        let mut state = self.end.state();
        let stream = &mut state.streams[self.end.id];
        if stream.is_reset() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        stream.output_ended = true;
        state.tell_peer(self.end.id);
        Ok(())
    }

    pub(super) fn has_input(&self) -> bool {
        !self.end.state().streams[self.end.id].input.is_empty()
    }

    /// Reads up to `room` bytes and drops them.
    pub(super) fn discard(&self, room: usize) -> io::Result<usize> {
        let mut scrap = [0; CAPACITY];
        let mut stream = self;
        stream.read(&mut scrap[..room.min(CAPACITY)])
    }
}

impl Read for &SimStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.end.state();
        state.interrupt()?;
        let room = state.shortened(buffer.len());
        let stream = &mut state.streams[self.end.id];
        if let Some(PeerEnd::Reset) = stream.ended {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let count = room.min(stream.input.len());
        if count == 0 && stream.ended.is_none() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        for (place, byte) in buffer.iter_mut().zip(stream.input.drain(..count)) {
            *place = byte;
        }
        Ok(count)
    }
}

impl Write for &SimStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.end.state();
        state.interrupt()?;
        let most = state.shortened(bytes.len());
        let stream = &mut state.streams[self.end.id];
        if stream.is_reset() || stream.output_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = most.min(CAPACITY - stream.output.len());
        if count == 0 {
            stream.out_of_room = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        stream.output.extend_from_slice(&bytes[..count]);
        state.tell_peer(self.end.id);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let mut state = self.end.state();
        let place = self.descriptor - self.end.world.first_descriptor;
        state.descriptors[place as usize] = None;
        state.streams[self.end.id].closed_by_pool = true;
        state.tell_peer(self.end.id);
    }
}

/// The other end of a simulated connection, in the hands of a test.
#[derive(Debug)]
pub struct SimPeer {
    end: End,
    parker: Arc<Parker>,
}

impl SimPeer {
    /// Sends bytes to the pool.
    pub fn send(&self, bytes: &[u8]) {
        self.change(|stream| stream.input.extend(bytes));
    }

    /// Ends the stream after what was sent.
    pub fn finish(&self) {
        self.change(|stream| stream.ended = Some(PeerEnd::Finished));
    }

    /// Breaks the connection; what was sent and not read is lost.
    pub fn reset(&self) {
        self.change(|stream| stream.ended = Some(PeerEnd::Reset));
    }

    /// Takes what the pool has sent so far.
    #[must_use]
    pub fn received(&self) -> Vec<u8> {
        self.take(usize::MAX)
    }

    /// Waits until the pool has sent `count` bytes, and takes them; or fewer, if it closed before.
    /// Panics after half a minute.
    #[must_use]
    pub fn wait_for(&self, count: usize) -> Vec<u8> {
        let mut received = Vec::new();
        self.wait_until(|| {
            // Before the look at what was sent: nothing is sent after the end.
            let is_closed = self.is_closed_by_pool();
            received.extend(self.take(count - received.len()));
            received.len() == count || is_closed
        });
        received
    }

    /// Waits until the pool has dropped its end. Panics after half a minute.
    pub fn wait_closed(&self) {
        self.wait_until(|| self.is_closed_by_pool());
    }

    /// Whether the pool has dropped its end.
    #[must_use]
    pub fn is_closed_by_pool(&self) -> bool {
        self.end.state().streams[self.end.id].closed_by_pool
    }

    /// Whether the pool has read everything that was sent.
    #[must_use]
    pub fn is_read_by_pool(&self) -> bool {
        self.end.state().streams[self.end.id].input.is_empty()
    }

    /// Whether the pool has ended its output, or dropped its end: after what was sent this peer
    /// reads the end.
    #[must_use]
    pub fn is_output_ended(&self) -> bool {
        let state = self.end.state();
        let stream = &state.streams[self.end.id];
        stream.output_ended || stream.closed_by_pool
    }

    /// Waits until `holds`, which may become true whenever the pool does something here.
    fn wait_until(&self, mut holds: impl FnMut() -> bool) {
        let start = Instant::now();
        loop {
            // Cleared before the look: a change that comes after it ends the sleep.
            self.parker.take();
            if holds() {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "the pool did not do in {PATIENCE:?} what was waited for"
            );
            self.parker.sleep(Some(PATIENCE));
        }
    }

    fn take(&self, most: usize) -> Vec<u8> {
        let mut state = self.end.state();
        let stream = &mut state.streams[self.end.id];
        let count = most.min(stream.output.len());
        let taken = stream.output.drain(..count).collect();
        // Room is news only to a writer that found none.
        if count > 0 && std::mem::take(&mut stream.out_of_room) {
            state.edge(self.end.id);
            self.end.world.wake_watchers(state, self.end.id);
        }
        taken
    }

    fn change(&self, change: impl FnOnce(&mut Stream)) {
        let mut state = self.end.state();
        change(&mut state.streams[self.end.id]);
        state.edge(self.end.id);
        self.end.world.wake_watchers(state, self.end.id);
    }
}

/// A connection in its world.
#[derive(Clone)]
struct End {
    world: Arc<World>,
    id: usize,
}

impl End {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.world.state)
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.id)
    }
}

struct World {
    reports: Reports,
    /// Its set is a concurrent one.
    is_for_many: bool,
    /// What its descriptors are counted from: no real descriptor, and none of another world, is
    /// that high.
    first_descriptor: RawFd,
    state: Mutex<State>,
    clock: Arc<VirtualClock>,
}

/// Everything in the world.
struct State {
    reports: Reports,
    random: u64,
    faults: Faults,
    injected: u64,
    /// Which stream has which descriptor; the lowest free number is given out first, as by Unix.
    descriptors: Vec<Option<usize>>,
    streams: Vec<Stream>,
    /// What each of its sets has to report.
    watches: Vec<Watch>,
}

/// One connection.
struct Stream {
    /// Which sets watch it.
    watched: Vec<Watched>,
    input: VecDeque<u8>,
    output: Vec<u8>,
    /// The pool found no room for output.
    out_of_room: bool,
    ended: Option<PeerEnd>,
    /// The pool has shut down its side.
    output_ended: bool,
    closed_by_pool: bool,
    peer: Arc<Parker>,
}

#[derive(Clone, Copy)]
enum PeerEnd {
    Finished,
    Reset,
}

impl Stream {
    fn ready(&self) -> Ready {
        let reset = self.is_reset();
        let table = [
            (
                !self.input.is_empty() || self.ended.is_some(),
                Ready::READABLE,
            ),
            (self.output.len() < CAPACITY || reset, Ready::WRITABLE),
            (self.ended.is_some(), Ready::HANG_UP),
        ];
        let holds = table.iter().filter(|(holds, _)| *holds);
        holds.fold(Ready::NONE, |all, (_, ready)| all | *ready)
    }

    fn is_reset(&self) -> bool {
        matches!(self.ended, Some(PeerEnd::Reset))
    }
}

impl State {
    fn new(seed: u64, reports: Reports) -> Self {
        Self {
            reports,
            // The generator below must not start at zero.
            random: seed | 1 << 63,
            faults: Faults::NONE,
            injected: 0,
            descriptors: Vec::new(),
            streams: Vec::new(),
            watches: vec![Watch::new(None)],
        }
    }

    fn open(&mut self, peer: Arc<Parker>) -> (usize, RawFd) {
        let id = self.streams.len();
        self.streams.push(Stream {
            watched: Vec::new(),
            input: VecDeque::new(),
            output: Vec::new(),
            out_of_room: false,
            ended: None,
            output_ended: false,
            closed_by_pool: false,
            peer,
        });
        let free = self.descriptors.iter().position(Option::is_none);
        let descriptor = free.unwrap_or_else(|| {
            self.descriptors.push(None);
            self.descriptors.len() - 1
        });
        self.descriptors[descriptor] = Some(id);
        (id, descriptor as RawFd)
    }

    fn tell_peer(&mut self, id: usize) {
        let peer = &self.streams[id].peer;
        peer.post(1);
        peer.wake();
    }

    /// The stream that has the descriptor with this number, counted from the world's first.
    fn stream_of(&self, descriptor: RawFd) -> io::Result<usize> {
        let place = usize::try_from(descriptor).ok();
        let id = place.and_then(|place| *self.descriptors.get(place)?);
        id.ok_or_else(|| {
            let text = "it is no stream of this simulation (see Simulation::stream)";
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
    }

    fn interrupt(&mut self) -> io::Result<()> {
        if self.strikes(self.faults.interrupted) {
            Err(io::ErrorKind::Interrupted.into())
        } else {
            Ok(())
        }
    }

    fn shortened(&mut self, length: usize) -> usize {
        if self.strikes(self.faults.short) {
            length.min(1)
        } else {
            length
        }
    }

    /// Whether a fault strikes that is switched on.
    fn strikes(&mut self, on: bool) -> bool {
        let strikes = on && self.next_random() % FAULT_EVERY == 0;
        self.injected += u64::from(strikes);
        strikes
    }

    /// Marsaglia's xorshift.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
