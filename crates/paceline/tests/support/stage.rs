//! A pool on the simulated set whose every thread is accounted for: it leads, is inside a handler,
//! or sleeps. Time is moved look by look.

use std::{
    io,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc, Arc,
    },
    thread,
    time::Duration,
};

use paceline::{
    observe::{Role, Snapshot},
    simulated::{SimPeer, SimStream, Simulation},
    Builder, Context, EventHandler, Interest, Next, Pool, SetKind,
};

use crate::support::{
    by_hand::{self, wait_asleep},
    pause, wait_until, Witness, LONG,
};

/// The period of the standby's looks.
pub const TICK: Duration = Duration::from_micros(500);

/// A pool in a world of its own, and everyone asleep there: one thread leads, one stands by.
pub struct Stage {
    pub world: Simulation,
    pub pool: Pool,
    pub witness: Witness,
    threads: usize,
}

impl Stage {
    /// With threads of the pool's own. Which of them leads is chance.
    pub fn new(threads: usize, set: impl FnOnce(Builder) -> Builder) -> Self {
        let stage = Self::empty(threads, |pool| set(pool.threads(threads)));
        stage.rest(0);
        stage
    }

    /// With threads that came one after the other, with these priorities: the first of them leads.
    pub fn joined(priorities: &[u8], set: impl FnOnce(Builder) -> Builder) -> Self {
        let stage = Self::empty(priorities.len(), |pool| set(pool.threads(0)));
        for (index, priority) in priorities.iter().copied().enumerate() {
            let pool = stage.pool.clone();
            thread::spawn(move || pool.entrance().priority(priority).join().unwrap());
            let expected = match index {
                0 => Role::Leader,
                _ => Role::Follower,
            };
            wait_until(|| stage.witness.role(index) == Some(expected));
            wait_asleep(&stage.pool, index);
        }
        stage.rest(0);
        stage
    }

    fn empty(threads: usize, set: impl FnOnce(Builder) -> Builder) -> Self {
        let (world, witness) = (Simulation::new(1), Witness::default());
        let pool = Pool::builder()
            .tick(TICK)
            .handle_set(SetKind::Simulated(world.clone()))
            .observer(witness.clone());
        Self {
            pool: set(pool).build().unwrap(),
            world,
            witness,
            threads,
        }
    }

    pub fn serve(&self, handler: impl EventHandler<SimStream>) -> SimPeer {
        let (stream, peer) = self.world.stream();
        self.pool.register(stream, Interest::READ, handler).unwrap();
        peer
    }

    /// A connection whose bytes are sent back, by one call per event.
    pub fn echo(&self) -> SimPeer {
        self.serve(by_hand::echo)
    }

    /// A connection whose handler blocks until it is released.
    pub fn stuck(&self, telling: Telling) -> Stuck {
        let (tell, inside) = mpsc::channel();
        let (permission, gate) = mpsc::channel();
        let block = move || {
            tell.send(()).unwrap();
            gate.recv_timeout(LONG).expect("permission comes");
        };
        let peer = self.serve(move |cx: &mut Context<'_, _>| {
            match telling {
                Telling::Nothing => block(),
                Telling::Blocking => cx.blocking(&block),
                Telling::WakeFollower => {
                    cx.wake_follower();
                    block();
                }
            }
            by_hand::echo(cx)
        });
        Stuck {
            peer,
            inside,
            permission,
        }
    }

    /// Three threads are away, and have told.
    pub fn block_three(&self) -> [Stuck; 3] {
        let stuck = [(); 3].map(|()| self.stuck(Telling::Blocking));
        stuck.iter().for_each(Stuck::block);
        self.rest(3);
        stuck
    }

    /// Two connections whose handlers always want to be called again, and notice if they meet.
    pub fn two_restless(&self) -> Arc<Meeting> {
        let meeting = Arc::new(Meeting::default());
        for _ in 0..2 {
            let inside = Arc::clone(&meeting);
            let peer = self.serve(move |_: &mut Context<'_, _>| inside.visit());
            peer.send(b"x");
        }
        meeting
    }

    /// One request and its answer, while `busy` threads are inside handlers; then all is at rest.
    pub fn ask(&self, peer: &SimPeer, busy: usize) {
        peer.send(b"x");
        assert_eq!(peer.wait_for(1), b"x");
        self.rest(busy);
    }

    /// Waits until `busy` threads are inside handlers and all others sleep, one of them as the
    /// leader: nothing more happens by itself. (A leader that was woken does not sleep, though it
    /// still leads: it is about to take an event, such as that of a handle whose panic was kept.)
    pub fn rest(&self, busy: usize) {
        self.rest_of(self.threads, busy);
    }

    /// The same if there are so many threads now.
    pub fn rest_of(&self, threads: usize, busy: usize) {
        wait_until(|| {
            self.world.clock().asleep() == threads - busy
                && self.witness.count(Role::Processing) == busy
                && self.witness.count(Role::Leader) == 1
        });
    }

    /// Lets a tick pass; the standby has begun to look when this returns.
    pub fn look(&self) {
        self.look_after(TICK);
    }

    /// Lets so much time pass that the standby looks; it has begun to when this returns.
    pub fn look_after(&self, time: Duration) {
        self.standby_ticks();
        let ticks = self.pool.snapshot().ticks;
        self.world.clock().advance(time);
        wait_until(|| self.pool.snapshot().ticks == ticks + 1);
    }

    /// The same while promotions go on: the look finds another opening than the last one, and a
    /// young one.
    pub fn look_at_a_busy_pool(&self) {
        const SHORT: Duration = Duration::from_micros(1);
        self.standby_ticks();
        self.world.clock().advance(TICK - SHORT);
        self.promotions_go_on();
        self.look_after(SHORT);
    }

    /// Waits until the standby sleeps until its next look; the last one is over then.
    pub fn standby_ticks(&self) {
        wait_until(|| self.somebody_watches_the_clock());
    }

    /// Only a standby sleeps by the clock here.
    pub fn somebody_watches_the_clock(&self) -> bool {
        format!("{:?}", self.world.clock()).contains("has_deadline: true")
    }

    pub fn promotions_go_on(&self) {
        let before = self.pool.snapshot().promotions;
        wait_until(|| self.pool.snapshot().promotions > before + 20);
    }

    /// Whether the pool's `Debug` form says so.
    pub fn says(&self, what: &str) -> bool {
        format!("{:?}", self.pool).contains(what)
    }

    pub fn counts_since(&self, before: &Snapshot) -> Counts {
        let now = self.pool.snapshot();
        Counts {
            promotions: now.promotions - before.promotions,
            taken_back: now.leads_taken_back - before.leads_taken_back,
            wakes: now.wakes - before.wakes,
            wasted: now.wasted_wakes - before.wasted_wakes,
            ticks: now.ticks - before.ticks,
        }
    }

    /// Which threads had this role, in order.
    pub fn log_of(&self, role: Role) -> Vec<usize> {
        let log = self.witness.log().into_iter();
        log.filter(|(_, other)| *other == role)
            .map(|(thread, _)| thread)
            .collect()
    }
}

impl Drop for Stage {
    /// Sends the joined threads home, and waits for nothing.
    fn drop(&mut self) {
        let _ = self.pool.shutdown(Duration::ZERO);
    }
}

/// What happened between two snapshots.
#[derive(Debug, Default, PartialEq)]
pub struct Counts {
    pub promotions: u64,
    pub taken_back: u64,
    pub wakes: u64,
    pub wasted: u64,
    pub ticks: u64,
}

impl Counts {
    /// So many requests on the short path, and nothing else.
    pub fn taken_back(requests: u64) -> Self {
        Self {
            promotions: requests,
            taken_back: requests,
            ..Self::default()
        }
    }
}

/// What a handler says before it blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Telling {
    Nothing,
    Blocking,
    WakeFollower,
}

/// A connection whose handler blocks.
pub struct Stuck {
    peer: SimPeer,
    inside: mpsc::Receiver<()>,
    permission: mpsc::Sender<()>,
}

impl Stuck {
    /// Sends something, and waits until a thread is inside and blocks.
    pub fn block(&self) {
        self.peer.send(b"s");
        self.inside.recv_timeout(LONG).expect("a thread comes");
    }

    /// Lets that thread go on, and waits for its answer.
    pub fn release(&self) {
        self.permission.send(()).unwrap();
        assert_eq!(self.peer.wait_for(1), b"s");
    }
}

/// Whether two handlers were ever inside at the same time.
#[derive(Default)]
pub struct Meeting {
    inside: AtomicUsize,
    met: AtomicBool,
}

impl Meeting {
    fn visit(&self) -> io::Result<Next> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        pause();
        if self.inside.load(Ordering::SeqCst) == 2 {
            self.met.store(true, Ordering::SeqCst);
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        // It has read nothing: it is called again.
        Ok(Next::Continue)
    }

    pub fn happened(&self) -> bool {
        self.met.load(Ordering::SeqCst)
    }
}
