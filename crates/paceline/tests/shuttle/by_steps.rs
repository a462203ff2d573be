//! L2, W1 and I1-I4 as liveness by steps: between two steps of the clock the pool comes to rest,
//! every thread accounted for, and what the promises say must hold there after so many steps and
//! not one more.

use std::sync::atomic::AtomicU64;

use paceline::observe::{Observer, Role};
use shuttle::sync::{Condvar, Mutex};

use super::*;

/// Handlers wait here until they are let through, one by one.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    moved: Condvar,
}

#[derive(Default)]
struct GateState {
    /// Inside, and not let through yet.
    waiting: usize,
    permits: usize,
}

impl Gate {
    pub(super) fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        while state.permits == 0 {
            state = self.moved.wait(state).unwrap();
        }
        state.permits -= 1;
    }

    pub(super) fn let_through(&self, count: usize) {
        let mut state = self.state.lock().unwrap();
        state.waiting -= count;
        state.permits += count;
        self.moved.notify_all();
    }

    pub(super) fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting
    }
}

/// What a handler says before it waits at the gate.
#[derive(Clone, Copy, PartialEq)]
enum Telling {
    Nothing,
    Blocking,
}

/// Counts who leads.
#[derive(Clone, Default)]
struct Leaders(Arc<AtomicU64>);

impl Observer for Leaders {
    fn role_changed(&self, thread: usize, role: Role) {
        match role {
            Role::Leader => self.0.fetch_or(1 << thread, Ordering::SeqCst),
            _ => self.0.fetch_and(!(1 << thread), Ordering::SeqCst),
        };
    }
}

/// A pool whose threads are all accounted for: asleep, at the gate, or gone.
struct Steps {
    world: Simulation,
    pool: Pool,
    leaders: Leaders,
    gate: Arc<Gate>,
    threads: usize,
    gone: Arc<AtomicUsize>,
}

impl Steps {
    /// So many threads of the pool's own, and so many guests.
    fn new(own: usize, guests: usize, wake: Wake, order: Order) -> Self {
        let (world, leaders) = (world(), Leaders::default());
        let builder = builder_on(&world, own).wake(wake).order(order);
        let builder = match order {
            Order::Priority => builder.thread_priority(|index| index as u8),
            _ => builder,
        };
        Self {
            pool: builder.observer(leaders.clone()).build().unwrap(),
            world,
            leaders,
            gate: Arc::default(),
            threads: own + guests,
            gone: Arc::default(),
        }
    }

    /// Waits until nothing more happens by itself.
    fn settle(&self) {
        let at_rest = || {
            // The sleepers last: who is gone or at the gate stays there.
            let accounted = self.gone.load(Ordering::SeqCst) + self.gate.waiting();
            accounted + self.world.clock().asleep() == self.threads
        };
        while !at_rest() {
            thread::yield_now();
        }
    }

    /// One step of the clock, and everything that follows from it.
    fn step(&self) {
        self.world.clock().advance(TICK);
        self.settle();
    }

    /// A step of the clock at any moment of what is done meanwhile.
    fn step_meanwhile(&self, act: impl FnOnce()) {
        let world = self.world.clone();
        let step = thread::spawn(move || world.clock().advance(TICK));
        act();
        step.join().unwrap();
    }

    fn serve(&self, handler: impl EventHandler<SimStream>) -> SimPeer {
        let (stream, peer) = self.world.stream();
        self.pool.register(stream, Interest::READ, handler).unwrap();
        peer
    }

    /// A connection whose handler waits at the gate for each event.
    fn gated(&self, telling: Telling) -> SimPeer {
        let gate = Arc::clone(&self.gate);
        self.serve(move |cx: &mut Context<'_, SimStream>| {
            // To the end, so that an event is one call.
            while cx.read(&mut [0; 8]).is_ok() {}
            match telling {
                Telling::Nothing => gate.pass(),
                Telling::Blocking => cx.blocking(|| gate.pass()),
            }
            Ok(Next::Continue)
        })
    }

    fn wait_at_gate(&self, count: usize) {
        while self.gate.waiting() < count {
            thread::yield_now();
        }
    }

    fn ticks(&self) -> u64 {
        self.pool.snapshot().ticks
    }

    fn leaders(&self) -> u32 {
        self.leaders.0.load(Ordering::SeqCst).count_ones()
    }

    fn end(self) {
        self.gate.let_through(self.gate.waiting());
        let report = self.pool.shutdown(Duration::from_secs(1));
        assert!(report.is_clean(), "{report}");
    }
}

/// L2, I1, I2: handlers block for ever, one after the other, until one thread is left; a tick comes
/// at any moment of each promotion. Afterwards an event is served after two looks at most (none if
/// the handler told, or if the policy wakes for every event), and as long as nobody leads each tick
/// is a look: somebody stands by.
fn blind_for_two_looks(wake: Wake, order: Order, telling: Telling) {
    check(move || {
        const THREADS: usize = 5;
        let most = match (wake, telling) {
            (Wake::Adaptive, Telling::Nothing) => 2,
            _ => 0,
        };
        let steps = Steps::new(THREADS, 0, wake, order);
        let tally = Tally::default();
        let (_, echo) = connect(&steps.world, &steps.pool, &tally);
        for stuck in 1..THREADS {
            let peer = steps.gated(telling);
            steps.step_meanwhile(|| peer.send(b"!"));
            steps.wait_at_gate(stuck);
            echo.send(b"?");
            steps.settle();
            let mut looks = 0;
            while echo.received().is_empty() {
                assert!(looks < most, "nobody leads after {looks} looks (L2)");
                let before = steps.ticks();
                steps.step();
                assert_eq!(steps.ticks(), before + 1, "nobody stands by (I1, I2)");
                looks += 1;
            }
        }
        steps.end();
    });
}

#[test]
fn shuttle_blind_for_two_looks_newest() {
    blind_for_two_looks(Wake::Adaptive, Order::Newest, Telling::Nothing);
}

#[test]
fn shuttle_blind_for_two_looks_oldest() {
    blind_for_two_looks(Wake::Adaptive, Order::Oldest, Telling::Nothing);
}

#[test]
fn shuttle_blind_for_two_looks_priority() {
    blind_for_two_looks(Wake::Adaptive, Order::Priority, Telling::Nothing);
}

#[test]
fn shuttle_blind_for_two_looks_system() {
    blind_for_two_looks(Wake::Adaptive, Order::System, Telling::Nothing);
}

#[test]
fn shuttle_told_blocking_newest() {
    blind_for_two_looks(Wake::Adaptive, Order::Newest, Telling::Blocking);
}

#[test]
fn shuttle_told_blocking_oldest() {
    blind_for_two_looks(Wake::Adaptive, Order::Oldest, Telling::Blocking);
}

#[test]
fn shuttle_told_blocking_priority() {
    blind_for_two_looks(Wake::Adaptive, Order::Priority, Telling::Blocking);
}

#[test]
fn shuttle_told_blocking_system() {
    blind_for_two_looks(Wake::Adaptive, Order::System, Telling::Blocking);
}

#[test]
fn shuttle_never_blind_eager() {
    blind_for_two_looks(Wake::Eager, Order::Newest, Telling::Nothing);
}

#[test]
fn shuttle_never_blind_eager_priority() {
    blind_for_two_looks(Wake::Eager, Order::Priority, Telling::Nothing);
}

/// Watches for a core that has nothing to do although an event waits and a thread is free.
#[derive(Default)]
struct IdleCore {
    /// The number of looks when that was first seen.
    since: Option<u64>,
}

impl IdleCore {
    const CORES: usize = 2;

    /// At rest, with so many events that no handler has finished. Such a state may outlast so many
    /// looks.
    fn check(&mut self, steps: &Steps, unfinished: usize, most: u64) {
        steps.settle();
        self.since = if steps.gate.waiting() < Self::CORES.min(unfinished) {
            self.since.or(Some(steps.ticks()))
        } else {
            None
        };
        let looks = self.since.map_or(0, |since| steps.ticks() - since);
        assert!(looks <= most, "a core is idle after {looks} looks (W1)");
    }
}

const EVENTS: usize = 7;

fn many_events(order: Order) -> (Steps, Vec<SimPeer>) {
    let steps = Steps::new(4, 0, Wake::Adaptive, order);
    let peers: Vec<_> = (0..EVENTS).map(|_| steps.gated(Telling::Nothing)).collect();
    steps.settle();
    peers.iter().for_each(|peer| peer.send(b"!"));
    (steps, peers)
}

/// W1: more events than cores, and handlers that end one by one, each before or after a tick. An
/// idle core is seen after one look at most, and has its thread after the second.
fn idle_core_for_two_looks(order: Order) {
    check(move || {
        let (steps, _peers) = many_events(order);
        let mut idle = IdleCore::default();
        for left in (1..EVENTS).rev() {
            idle.check(&steps, left + 1, 1);
            let tick_first = shuttle::rand::thread_rng().gen();
            if tick_first {
                steps.step();
                idle.check(&steps, left + 1, 1);
            }
            steps.gate.let_through(1);
            idle.check(&steps, left, 1);
            if !tick_first {
                let before = steps.ticks();
                steps.step();
                let looked = steps.ticks() == before + 1;
                assert!(looked || idle.since.is_none(), "nobody stands by (W1)");
            }
        }
        steps.end();
    });
}

#[test]
fn shuttle_idle_core_newest() {
    idle_core_for_two_looks(Order::Newest);
}

#[test]
fn shuttle_idle_core_oldest() {
    idle_core_for_two_looks(Order::Oldest);
}

#[test]
fn shuttle_idle_core_priority() {
    idle_core_for_two_looks(Order::Priority);
}

#[test]
fn shuttle_idle_core_system() {
    idle_core_for_two_looks(Order::System);
}

/// W1 with a tick at any moment of each end. Here the test can't see if for a moment all cores were
/// busy, after which the two looks begin anew, so it grants one more.
fn idle_core_in_a_race(order: Order) {
    check(move || {
        let (steps, _peers) = many_events(order);
        let mut idle = IdleCore::default();
        for left in (1..EVENTS).rev() {
            idle.check(&steps, left + 1, 2);
            steps.step_meanwhile(|| steps.gate.let_through(1));
        }
        // Who is on its way to the gate would never be let through.
        steps.settle();
        steps.end();
    });
}

#[test]
fn shuttle_idle_core_in_a_race_newest() {
    idle_core_in_a_race(Order::Newest);
}

#[test]
fn shuttle_idle_core_in_a_race_oldest() {
    idle_core_in_a_race(Order::Oldest);
}

/// I3, I4: guests whose time ends, tick by tick, in whatever role they have then, while events
/// come; and one handler is stuck for ever. Where nobody is stuck somebody leads at every rest,
/// without another tick; else by the second. What was sent is answered.
fn leavers_have_successors(wake: Wake, order: Order, stuck: bool) {
    check(move || {
        const GUESTS: usize = 3;
        let steps = Steps::new(2, GUESTS, wake, order);
        let tally = Tally::default();
        let (_, echo) = connect(&steps.world, &steps.pool, &tally);
        let guests: Vec<_> = (0..GUESTS as u32)
            .map(|index| {
                let (pool, gone) = (steps.pool.clone(), Arc::clone(&steps.gone));
                thread::spawn(move || {
                    let left = pool.join_timeout((index + 2) * TICK).unwrap();
                    assert_eq!(left, Left::TimedOut);
                    gone.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        let held_up = stuck.then(|| steps.gated(Telling::Nothing));
        held_up.iter().for_each(|peer| peer.send(b"!"));
        let (mut blind, mut sent, mut answered) = (0, 0, 0);
        for _ in 0..GUESTS + 4 {
            steps.settle();
            answered += echo.received().len();
            blind = match steps.leaders() {
                0 => blind + 1,
                _ => 0,
            };
            let most = if stuck && wake == Wake::Adaptive {
                2
            } else {
                0
            };
            assert!(blind <= most, "nobody leads after {most} ticks (I3, I4)");
            assert!(blind > 0 || answered == sent, "an event waits at rest (H2)");
            steps.step_meanwhile(|| echo.send(b"?"));
            sent += 1;
        }
        steps.gate.let_through(steps.gate.waiting());
        guests.into_iter().for_each(|guest| guest.join().unwrap());
        steps.end();
    });
}

#[test]
fn shuttle_leavers_newest() {
    leavers_have_successors(Wake::Adaptive, Order::Newest, false);
}

#[test]
fn shuttle_leavers_newest_stuck() {
    leavers_have_successors(Wake::Adaptive, Order::Newest, true);
}

#[test]
fn shuttle_leavers_oldest_stuck() {
    leavers_have_successors(Wake::Adaptive, Order::Oldest, true);
}

#[test]
fn shuttle_leavers_priority_stuck() {
    leavers_have_successors(Wake::Adaptive, Order::Priority, true);
}

#[test]
fn shuttle_leavers_system_stuck() {
    leavers_have_successors(Wake::Adaptive, Order::System, true);
}

#[test]
fn shuttle_leavers_eager_stuck() {
    leavers_have_successors(Wake::Eager, Order::Newest, true);
}

#[test]
fn shuttle_leavers_eager_system() {
    leavers_have_successors(Wake::Eager, Order::System, false);
}

/// S1: the standby looks while the pool drains, so that the leader has a look of its own before it
/// sleeps; and the last handle is ended by another thread meanwhile. What ends the drain is noticed
/// all the same.
#[test]
fn shuttle_shutdown_against_a_look() {
    check(|| {
        let steps = Steps::new(3, 0, Wake::Adaptive, Order::Newest);
        let peer = steps.serve(|cx: &mut Context<'_, SimStream>| {
            while cx.read(&mut [0; 8])? > 0 {}
            // Somebody else leads from here on.
            cx.blocking(|| (0..8).for_each(|_| thread::yield_now()));
            Ok(Next::Close)
        });
        steps.settle();
        let world = steps.world.clone();
        let looks = thread::spawn(move || {
            for _ in 0..8 {
                world.clock().advance(TICK);
                (0..4).for_each(|_| thread::yield_now());
            }
        });
        peer.finish();
        steps.end();
        looks.join().unwrap();
    });
}
