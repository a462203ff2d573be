//! loom's models of the lead: every interleaving of the product's own code, weak memory included.
//!
//! The lead's own data is a counter in a cell that loom watches: two holders at once, or one that
//! does not see what the last one did, fail the model (L1). A thread that is never woken is a
//! deadlock, which loom reports (L2). Time passes only where a model advances its clock; a model
//! that does not shows that no tick was needed.

use std::{mem, sync::Arc, time::Duration};

use loom::thread;

use super::{
    outcome::Promotion, word::Standby, Arrival, HeldLead, Lead, Marks, Order, Policy, Rejoined,
    Running, Seat, Until, Wake,
};
use crate::{
    observe::Counters,
    sync::{
        atomic::{AtomicBool, Ordering},
        explore, Clock, Parker, VirtualClock,
    },
};

mod closing;
mod elastic;
mod handed;
mod recall;
mod roaming_idle;
mod standby;
mod succession;

const TICK: Duration = Duration::from_secs(1);

const EAGER: (Wake, Order) = (Wake::Eager, Order::Newest);
const EAGER_OLDEST: (Wake, Order) = (Wake::Eager, Order::Oldest);
const EAGER_PRIORITY: (Wake, Order) = (Wake::Eager, Order::Priority);
const EAGER_SYSTEM: (Wake, Order) = (Wake::Eager, Order::System);
const NEWEST: (Wake, Order) = (Wake::Adaptive, Order::Newest);
const OLDEST: (Wake, Order) = (Wake::Adaptive, Order::Oldest);
const PRIORITY: (Wake, Order) = (Wake::Adaptive, Order::Priority);
const SYSTEM: (Wake, Order) = (Wake::Adaptive, Order::System);

/// A pool without a handle set: its threads, its clock, and the lead over a counter of turns.
struct Pool {
    lead: Lead<usize>,
    clock: Arc<VirtualClock>,
    /// Where a leader of the closing models waits for its event, which never comes.
    waker: Parker,
}

impl Pool {
    fn new(policy: (Wake, Order)) -> Arc<Self> {
        Self::of(policy, false)
    }

    /// The system is asked what an opener is up to that is late. Here it always says that it only
    /// lacks a core.
    fn asking(policy: (Wake, Order)) -> Arc<Self> {
        Self::of(policy, true)
    }

    fn of((wake, order): (Wake, Order), asks: bool) -> Arc<Self> {
        let policy = Policy {
            wake,
            order,
            cores: 2,
            tick: TICK,
        };
        let lead = Lead::vacant(0, policy, Arc::new(Counters::default()));
        Arc::new(Self {
            lead: lead.asking(asks),
            clock: Arc::new(VirtualClock::new()),
            waker: Parker::new(),
        })
    }

    fn clock(&self) -> Clock {
        Clock::Virtual(Arc::clone(&self.clock))
    }

    /// `until`: a deadline in ticks from the beginning.
    fn arrive(&self, seat: &Arc<Seat>, until: Option<u32>) -> Arrival<'_, usize> {
        let start = Clock::Virtual(Arc::new(VirtualClock::new())).now();
        let deadline = until.map(|until| start.after(until * TICK));
        self.lead.arrive(seat, &self.clock(), Until::at(deadline))
    }

    /// The first to arrive leads.
    fn first(&self) -> HeldLead<'_, usize> {
        match self.arrive(&seat(0), None) {
            Arrival::Leads(held) => held,
            _ => panic!("the lead is vacant"),
        }
    }

    /// Leads once, counts it, and gives the lead back.
    fn turn(&self, seat: &Arc<Seat>, until: Option<u32>) -> Turn {
        match self.arrive(seat, until) {
            Arrival::TimedOut | Arrival::Handed => Turn::TimedOut,
            Arrival::Closed => Turn::Closed,
            Arrival::Leads(held) => {
                drop(count(held));
                Turn::Led
            }
        }
    }

    /// The number of turns, seen by a thread that can lead for sure: the lead is not lost.
    fn turns(&self) -> usize {
        match self.arrive(&seat(9), None) {
            Arrival::Leads(mut held) => held.with_owned(|turns| *turns),
            _ => panic!("nobody closed, and there is no deadline"),
        }
    }

    fn promote<'a>(
        &'a self,
        held: HeldLead<'a, usize>,
        marks: Marks,
    ) -> (Running<'a, usize>, Promotion) {
        let sight = held.sight();
        held.promote(sight, marks, self.clock().now())
    }

    fn close(&self) {
        self.lead.close();
        self.waker.post(1);
        self.waker.wake();
    }

    /// Leads until the pool is closed, as a leader that waits for an event.
    fn lead_until_closed(&self, seat: &Arc<Seat>) {
        if let Arrival::Leads(held) = self.arrive(seat, None) {
            while !self.lead.is_closed() {
                self.waker.sleep(None);
            }
            drop(held);
        }
    }

    /// Waits until a thread stands by.
    fn until_watched(&self) {
        while self.lead.word.look().standby() == Standby::None {
            thread::yield_now();
        }
    }

    /// Waits until a thread is parked.
    fn until_parked(&self) {
        while !self.lead.word.look().is_parked() {
            thread::yield_now();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Led,
    TimedOut,
    Closed,
}

fn seat(index: usize) -> Arc<Seat> {
    Seat::new(index, index as u8)
}

fn count(mut held: HeldLead<'_, usize>) -> HeldLead<'_, usize> {
    held.with_owned(|turns| *turns += 1);
    held
}

/// A thread that takes one turn.
fn guest(pool: &Arc<Pool>, index: usize, until: Option<u32>) -> thread::JoinHandle<Turn> {
    let pool = Arc::clone(pool);
    thread::spawn(move || pool.turn(&seat(index), until))
}

/// One event: lead, promote, rejoin, and lead once more if that is allowed. Returns how often it
/// led.
fn work(pool: &Pool, seat: &Arc<Seat>) -> usize {
    let Arrival::Leads(held) = pool.arrive(seat, None) else {
        panic!("nobody closes");
    };
    let (running, promotion) = pool.promote(count(held), Marks::default());
    assert_ne!(promotion, Promotion::Closing);
    match running.rejoin(seat, pool.clock().now()) {
        Rejoined::Leads(held) => {
            drop(count(held));
            2
        }
        Rejoined::Follows | Rejoined::Surprised => 1,
    }
}
