//! What actors and handlers of a round share.

use std::{
    collections::HashMap,
    io,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        Arc, Mutex,
    },
    thread,
    time::{Duration, Instant},
};

use paceline::{
    simulated::Simulation, Errand, Group, Handle, HandlerKind, InHandler, Level, Listener,
    Observation, Pace, Pool, Semaphore, Sender, TaskContext, Timer,
};

use crate::misuse::{
    ledger::{Bomb, Id, Kind, Ledger, Life},
    ops::{interest, Ask, Work},
    wire::{Client, Wire, PATIENCE},
};

/// So many slots, groups, timers and observers there are.
pub(crate) const SLOTS: usize = 8;
pub(crate) const GROUPS: usize = 2;
pub(crate) const TIMERS: usize = 4;
pub(crate) const OBSERVERS: usize = 3;

/// The end of a pool takes longer than it may by less than that, also on a busy machine.
const END: Duration = Duration::from_secs(4);

/// An item of the queue.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) life: Life,
    pub(crate) panics: bool,
    pub(crate) _bomb: Bomb,
}

/// A group's key, and the value of its handler.
pub(crate) type Grouping = (Group<Wire>, Id);

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) pools: Vec<Mutex<Option<Pool>>>,
    pub(crate) levels: Vec<Level>,
    pub(crate) simulation: Option<Simulation>,
    pub(crate) listeners: Mutex<Vec<Listener>>,
    pub(crate) slots: [Mutex<Option<Client>>; SLOTS],
    pub(crate) groups: [Mutex<Option<Grouping>>; GROUPS],
    pub(crate) timers: [Mutex<Option<Timer>>; TIMERS],
    pub(crate) observers: [Mutex<Option<Observation>>; OBSERVERS],
    pub(crate) queue: Mutex<Option<Sender<Item>>>,
    pub(crate) semaphore: Mutex<Option<Semaphore>>,
    /// The values behind accepted connections, by the ports of the client and the listener.
    pub(crate) accepted: Mutex<HashMap<(u16, u16), Id>>,
    /// Ends of members that handlers of groups were outcome.
    pub(crate) member_ends: Mutex<HashMap<Handle, u32>>,
    pub(crate) members: Mutex<Vec<Handle>>,
    /// Records that came out of rings.
    pub(crate) records: Mutex<HashMap<Id, u64>>,
    /// From now on handlers only answer.
    calm: AtomicBool,
    /// Acts that began before that.
    acting: AtomicUsize,
    /// Ends of pools that run while the actors do.
    ending: AtomicUsize,
    /// The pools end.
    pub(crate) ends: AtomicBool,
    pub(crate) is_over: AtomicBool,
    /// No thread of the pools waits any more, neither for virtual time nor for a peer that reads.
    pub(crate) stands_still: AtomicBool,
}

impl World {
    pub(crate) fn new(ledger: Arc<Ledger>, pools: Vec<Pool>, levels: Vec<Level>) -> Self {
        Self {
            ledger,
            pools: pools
                .into_iter()
                .map(|pool| Mutex::new(Some(pool)))
                .collect(),
            levels,
            simulation: None,
            listeners: Mutex::default(),
            slots: Default::default(),
            groups: Default::default(),
            timers: Default::default(),
            observers: Default::default(),
            queue: Mutex::default(),
            semaphore: Mutex::default(),
            accepted: Mutex::default(),
            member_ends: Mutex::default(),
            members: Mutex::default(),
            records: Mutex::default(),
            calm: AtomicBool::new(false),
            acting: AtomicUsize::new(0),
            ending: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            stands_still: AtomicBool::new(false),
        }
    }

    pub(crate) fn pool(&self, at: usize) -> Option<Pool> {
        let at = at % self.pools.len();
        self.pools[at].lock().unwrap().clone()
    }

    /// Ends the acts; what was begun goes on.
    pub(crate) fn calm_down(&self) {
        self.calm.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    pub(crate) fn acting(&self) -> usize {
        self.acting.load(Ordering::SeqCst)
    }

    /// An act begins, unless it is too late for that.
    pub(crate) fn act(self: &Arc<Self>) -> Option<Acting> {
        self.acting.fetch_add(1, Ordering::SeqCst);
        let acting = Acting(Arc::clone(self));
        (!self.calm.load(Ordering::SeqCst)).then_some(acting)
    }

    /// The value behind the client in a slot.
    pub(crate) fn life(&self, slot: usize) -> Option<Id> {
        let mut client = self.slots[slot].lock().unwrap();
        let client = client.as_mut()?;
        if client.life.is_none() {
            let accepted = self.accepted.lock().unwrap();
            client.life = accepted.get(&client.ports?).copied();
        }
        client.life
    }

    pub(crate) fn handle(&self, slot: usize) -> Option<Handle> {
        self.ledger.handle(self.life(slot)?)
    }

    /// Asks something of the handle in a slot. It holds no lock meanwhile.
    pub(crate) fn ask(&self, slot: usize, ask: Ask) -> io::Result<()> {
        match self.handle(slot) {
            Some(handle) => self.ask_handle(&handle, ask),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(crate) fn ask_handle(&self, handle: &Handle, ask: Ask) -> io::Result<()> {
        match ask {
            Ask::Close => handle.close(),
            Ask::Interest(bits) => handle.set_interest(interest(bits)),
            Ask::Suspend => handle.suspend(),
            Ask::Resume => handle.resume(),
            Ask::Notify => handle.notify(),
            Ask::TimeOut(idle) => handle.set_timeout(idle),
            Ask::Deadline(within) => handle.set_deadline(within),
            Ask::Priority(priority) => handle.set_priority(priority),
            Ask::Pin(thread) => self.pin(handle, thread),
            Ask::Sticky(span) => handle.prefer_last_thread(span),
            Ask::Unpin => handle.unpin(),
            Ask::MoveTo(level) => match self.levels.get(level) {
                Some(level) => handle.move_to(level).map(drop),
                None => Ok(()),
            },
            Ask::Adopt(group) => match self.group(group) {
                Some((group, _)) => group.adopt(handle).map(drop),
                None => Ok(()),
            },
        }
    }

    /// A kind that the layer above gives, as long as the first pool is there.
    pub(crate) fn kind(&self, number: usize) -> Option<HandlerKind> {
        let pool = self.pool(0)?;
        Some(match number {
            0 => pool.handler_kind("misuse: learnt"),
            1 => pool.handler_kind("misuse: blocks").blocks(),
            _ => pool.handler_kind("misuse: short").fixed(Pace::Short),
        })
    }

    fn pin(&self, handle: &Handle, thread: usize) -> io::Result<()> {
        let threads = self.pool(thread).map(|pool| pool.inspect().thread_ids());
        let threads = threads.unwrap_or_default();
        let Some(first) = threads.get(thread % threads.len().max(1)) else {
            return Ok(());
        };
        match thread % 3 {
            0 => handle.pin_to(&threads),
            _ => handle.pin_to(&[*first]),
        }
    }

    pub(crate) fn group(&self, group: usize) -> Option<Grouping> {
        self.groups[group].lock().unwrap().clone()
    }

    /// The work of a post or a timer, as a closure. The value notes that it is dropped.
    pub(crate) fn work(
        self: &Arc<Self>,
        work: Work,
        what: &'static str,
    ) -> (Id, impl FnOnce(&mut TaskContext<'_>) + Send + 'static) {
        let life = self.ledger.begin(Kind::Once, what);
        let (id, world, bomb) = (life.id, Arc::clone(self), Bomb(work.drop_panics));
        let work = move |cx: &mut TaskContext<'_>| {
            let _parts = (&life, &bomb);
            life.called();
            if let Some(_acting) = world.act() {
                world.do_work(&work, cx);
            }
        };
        (id, work)
    }

    fn do_work(&self, work: &Work, cx: &mut TaskContext<'_>) {
        if let Some((slot, ask)) = work.ask {
            let _ = self.ask(slot, ask);
        }
        if let Some(span) = work.blocks {
            cx.blocking(|| thread::sleep(span));
        }
        if let Some((within, serve)) = work.serves {
            let errand = Errand {
                within: Some(within),
                serve: serve.get(),
                own: None,
            };
            let _ = cx.serve_until(errand, || false);
        }
        if work.panics {
            panic!("misuse: in a task");
        }
    }

    /// Posts, and drops what is given back.
    pub(crate) fn post(self: &Arc<Self>, pool: &Pool, work: Work) -> io::Result<()> {
        let (id, work) = self.work(work, "a post");
        match pool.post(work) {
            Ok(()) => self.ledger.accept(id),
            Err(rejected) => {
                discard(rejected.value);
                return Err(rejected.error);
            }
        }
        Ok(())
    }

    /// Ends every pool that is left, from any thread.
    pub(crate) fn drop_pool(&self, at: usize) {
        let at = at % self.pools.len();
        let pool = self.pools[at].lock().unwrap().take();
        self.check_end(Duration::ZERO, || drop(pool));
    }

    pub(crate) fn shut_down(&self, at: usize, within: Duration) {
        if let Some(pool) = self.pool(at) {
            self.check_end(within, || drop(pool.shutdown(within)));
        }
    }

    /// Ends a pool, which takes no longer than it may (S1, S3): no client reads meanwhile for whom
    /// a close may wait. (A pool among several may close a handle of another one that goes on.)
    fn check_end(&self, within: Duration, ending: impl FnOnce()) {
        let start = Instant::now();
        self.ending.fetch_add(1, Ordering::SeqCst);
        ending();
        self.ending.fetch_sub(1, Ordering::SeqCst);
        let took = start.elapsed();
        if self.pools.len() == 1 && took > within + END {
            let text = format!("S1, S3: the end of a pool within {within:?} took {took:?}");
            self.ledger.complain(text);
        }
    }

    /// How long a client does not read for whom a close may wait.
    pub(crate) fn patience(&self) -> Duration {
        if self.is_calm() {
            Duration::ZERO
        } else if self.ending.load(Ordering::SeqCst) > 0 {
            2 * END
        } else {
            PATIENCE
        }
    }
}

/// An act goes on.
#[derive(Debug)]
pub(crate) struct Acting(Arc<World>);

impl Drop for Acting {
    fn drop(&mut self) {
        self.0.acting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Drops what may panic.
pub(crate) fn discard<T>(value: T) {
    let dropping = std::panic::AssertUnwindSafe(|| drop(value));
    let _ = std::panic::catch_unwind(dropping);
}
