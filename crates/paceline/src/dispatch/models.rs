//! loom's models of claims, releases, the return list and the end of a registration.
//!
//! They run the product's own registry over a set that reports edges when a model says so, and a
//! "descriptor" that is a counter of unread bytes.

mod affinity;
mod concurrent;
mod groups;
mod item_source;
mod moves;
mod once;
mod open;
mod provenance;
mod requests;
mod time;

use std::{io, os::fd::RawFd, sync::Arc, time::Duration};

use loom::thread;

use super::{
    claim::{Claim, Duty},
    handler::{Closed, EventHandler, Interest, Next},
    hooks::Hooks,
    line::Line,
    registry::{Limits, Registry},
    return_list::{Link, Pushed, ReturnList, Sleep},
    Context, Handle,
};
use crate::{
    handle_set::{self, Answer, Batch, Event, HandleSet, Ready, Reports, Source},
    observe::Counters,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        explore, lock, Clock, Mutex, Parker, Timestamp, VirtualClock,
    },
};

/// A world of one descriptor: what it holds, which key watches it, where the leader sleeps.
#[derive(Clone)]
struct World(Arc<Inside>);

struct Inside {
    /// Bytes that were sent and not read. The kernel's lock, so to speak.
    unread: Mutex<usize>,
    reports: Reports,
    watched: Mutex<Watched>,
    leader: Parker,
    read: AtomicUsize,
    closed: AtomicUsize,
    busy: AtomicBool,
    clock: Arc<VirtualClock>,
}

/// What the kernel knows.
#[derive(Default)]
struct Watched {
    key: Option<u64>,
    armed: bool,
    /// Events that were not reported yet.
    untold: Vec<Event>,
}

impl World {
    fn new() -> Self {
        Self::reporting(Reports::Edges)
    }

    fn reporting(reports: Reports) -> Self {
        Self(Arc::new(Inside {
            reports,
            unread: Mutex::new(0),
            watched: Mutex::new(Watched::default()),
            leader: Parker::new(),
            read: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            clock: Arc::new(VirtualClock::new()),
        }))
    }

    fn registry(&self) -> Arc<Registry> {
        self.registry_over(Box::new(self.clone()))
    }

    /// The same over a set that is made of this one.
    fn registry_over(&self, set: Box<dyn HandleSet>) -> Arc<Registry> {
        let limits = Limits {
            read_budget: 1,
            output_limit: 1,
            unread_calls: u32::MAX,
            nesting: 1,
            post_limit: 1,
            idle_timeout: None,
            linger_time: Duration::ZERO,
            linger_limit: 0,
        };
        Registry::new(
            set,
            Clock::Virtual(Arc::clone(&self.0.clock)),
            limits,
            Hooks::default(),
            Arc::new(Counters::default()),
        )
    }

    fn register(&self, registry: &Registry, interest: Interest) -> Handle {
        let handler = Reader(self.clone());
        registry.register(Descriptor, interest, handler).unwrap()
    }

    /// The peer sends one byte: an edge.
    fn send(&self) {
        *lock(&self.0.unread) += 1;
        self.watch(true, |_| {});
        self.wake();
    }

    /// Changes what the kernel watches, and notes an event if it is `readable` and watched for.
    fn watch(&self, readable: bool, change: impl FnOnce(&mut Watched)) {
        let mut watched = lock(&self.0.watched);
        change(&mut watched);
        let reports = match self.0.reports {
            Reports::Edges => true,
            Reports::Once => watched.armed,
        };
        if let Some(key) = watched.key.filter(|_| readable && reports) {
            watched.armed = false;
            let ready = Ready::READABLE;
            watched.untold.push(Event { key, ready });
        }
    }

    /// Sleeps until it is woken; a time that is near passes in a moment. Returns whether it slept.
    fn sleep_until(&self, until: Option<Timestamp>) -> bool {
        const NEAR: Duration = Duration::from_secs(1);
        if until == Some(Timestamp::PAST) {
            return false;
        }
        let clock = &self.0.clock;
        let now = Clock::Virtual(Arc::clone(clock)).now();
        match until.map(|until| until.since(now)) {
            Some(left) if left < NEAR => {
                clock.advance(left);
                false
            }
            _ => {
                self.0.leader.sleep(None);
                self.0.leader.take();
                true
            }
        }
    }

    /// One owner at a time does this.
    fn owned<R>(&self, own: impl FnOnce(&Self) -> R) -> R {
        let busy = &self.0.busy;
        assert!(!busy.swap(true, Ordering::Relaxed), "two owners (H1)");
        let told = own(self);
        busy.store(false, Ordering::Relaxed);
        told
    }

    /// Reads everything, until the descriptor would block.
    fn read_from(&self, cx: &mut Context<'_, Descriptor>) -> io::Result<Next> {
        let world = &*self.0;
        loop {
            let count = cx.try_read(|_| match std::mem::take(&mut *lock(&world.unread)) {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                count => Ok(count),
            })?;
            world.read.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn read(&self) -> usize {
        self.0.read.load(Ordering::Relaxed)
    }

    fn closed(&self) -> usize {
        self.0.closed.load(Ordering::Relaxed)
    }
}

impl HandleSet for World {
    fn reports(&self) -> Reports {
        self.0.reports
    }

    /// Arming also sets the key of the report.
    fn arm(&self, _: RawFd, key: u64, _: Ready) -> io::Result<()> {
        let unread = lock(&self.0.unread);
        self.watch(*unread > 0, |watched| {
            watched.key = watched.key.and(Some(key));
            watched.armed = true;
        });
        Ok(())
    }

    fn add(&self, _: RawFd, key: u64) -> io::Result<()> {
        let unread = lock(&self.0.unread);
        self.watch(*unread > 0, |watched| watched.key = Some(key));
        Ok(())
    }

    fn remove(&self, _: RawFd) -> io::Result<()> {
        lock(&self.0.watched).key = None;
        Ok(())
    }

    fn wait(&self, events: &mut Vec<Event>, until: Option<Timestamp>) -> io::Result<Answer> {
        let slept = self.sleep_until(until);
        events.append(&mut lock(&self.0.watched).untold);
        Ok(Answer {
            batch: Batch::Whole,
            slept,
        })
    }

    fn wake(&self) {
        // The kernel's lock: a woken thread sees what was done before.
        let _kernel = lock(&self.0.watched);
        self.0.leader.post(1);
        self.0.leader.wake();
    }
}

struct Descriptor;

impl Source for Descriptor {
    fn descriptor(&self) -> handle_set::Descriptor<'_> {
        handle_set::Descriptor::modelled(0)
    }
}

/// Reads everything, until the descriptor would block.
struct Reader(World);

impl EventHandler<Descriptor> for Reader {
    fn ready(&mut self, cx: &mut Context<'_, Descriptor>) -> io::Result<Next> {
        self.0.owned(|world| world.read_from(cx))
    }

    fn closed(&mut self, _: Closed) {
        self.0 .0.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// PoolRef a claimed handle; nothing reaches the pool.
fn dispatch(claim: Claim<'_>) -> Option<Claim<'_>> {
    let clock = Clock::Virtual(Arc::new(VirtualClock::new()));
    let mut afterwards = claim.afterwards();
    let done = claim.dispatch(&clock, clock.now(), &OffDuty, &mut afterwards);
    done.claim
}

struct OffDuty;

impl Duty for OffDuty {
    fn go_away(&self) {}
    fn come_back(&self) {}
    fn call_for_help(&self) {}
}

/// Takes turns until nothing is ready: what the pool's threads do, with a lock in the lead's place.
/// The lead is given away before the handler runs. A thread that is `lucky` finds it free
/// afterwards.
fn work(registry: &Registry, lead: &Mutex<Line>, lucky: bool) {
    while let Some(claim) = next(registry, lead) {
        release(dispatch(claim), lead, lucky);
    }
}

/// Waits, as the holder of the lead, and gives it away with what came.
fn next<'r>(registry: &'r Registry, lead: &Mutex<Line>) -> Option<Claim<'r>> {
    lock(lead).next(registry, Some(Timestamp::PAST)).unwrap()
}

fn release(claim: Option<Claim<'_>>, lead: &Mutex<Line>, lucky: bool) {
    match claim {
        Some(claim) if lucky => drop(claim.release_into(&mut lock(lead))),
        claim => drop(claim),
    }
}

/// The lead over an empty line.
fn lead() -> Arc<Mutex<Line>> {
    Arc::new(Mutex::new(Line::new()))
}

/// H1, H2: an edge comes while the handle's owner is at any point between claim and release, and
/// another thread leads. The bits are claimed before the first read, so the byte is read, now or at
/// the next visit, by one thread at a time.
fn edge_against_release(reports: Reports) {
    explore(move || {
        let world = World::reporting(reports);
        let registry = world.registry();
        world.register(&registry, Interest::READ);
        let lead = lead();
        world.send();
        let other = {
            let (registry, lead) = (Arc::clone(&registry), Arc::clone(&lead));
            thread::spawn(move || work(&registry, &lead, false))
        };
        world.send();
        work(&registry, &lead, true);
        other.join().unwrap();
        work(&registry, &lead, true);
        assert_eq!(world.read(), 2);
    });
}

#[test]
fn loom_edge_against_release() {
    edge_against_release(Reports::Edges);
}

/// H2: an edge that arrives while there is no interest is there when interest is set.
fn edge_against_interest(reports: Reports) {
    explore(move || {
        let world = World::reporting(reports);
        let registry = world.registry();
        let handle = world.register(&registry, Interest::NONE);
        let peer = {
            let world = world.clone();
            thread::spawn(move || world.send())
        };
        let other = thread::spawn(move || handle.set_interest(Interest::READ).unwrap());
        let lead = lead();
        work(&registry, &lead, true);
        peer.join().unwrap();
        other.join().unwrap();
        work(&registry, &lead, true);
        assert_eq!(world.read(), 1);
    });
}

#[test]
fn loom_edge_against_interest() {
    edge_against_interest(Reports::Edges);
}

/// E6, `notify_enqueue_drain_order_loses_nothing`: two threads put slots back while the leader is
/// about to sleep. It does not sleep over them, and each arrives once.
#[test]
fn loom_return_list_against_sleep() {
    explore(|| {
        let list = Arc::new((ReturnList::new(), [Link::new(), Link::new()], Parker::new()));
        let pushers: Vec<_> = (0..2)
            .map(|index| {
                let list = Arc::clone(&list);
                thread::spawn(move || {
                    let (returned, links, leader) = &*list;
                    if let Pushed::WakeLeader = returned.push(index, &links[index as usize]) {
                        leader.post(1);
                        leader.wake();
                    }
                })
            })
            .collect();
        let (returned, links, leader) = &*list;
        let mut taken = Vec::new();
        while taken.len() < 2 {
            if let Sleep::Announced = returned.announce_sleep() {
                leader.sleep(None);
                leader.take();
            }
            returned.take_all(|index| &links[index as usize], |index| taken.push(index));
        }
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
        for pusher in pushers {
            pusher.join().unwrap();
        }
    });
}

/// H3, `fd_reused_during_upcall_not_resumed`: close from elsewhere against an owner at work.
/// `closed` is called once, and nothing is dispatched afterwards.
#[test]
fn loom_close_against_release() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let handle = world.register(&registry, Interest::READ);
        world.send();
        let closer = {
            let world = world.clone();
            thread::spawn(move || {
                handle.close().unwrap();
                world.send();
            })
        };
        let lead = lead();
        work(&registry, &lead, true);
        closer.join().unwrap();
        let read = world.read();
        work(&registry, &lead, true);
        assert_eq!(world.read(), read, "dispatched after close returned");
        assert_eq!(world.closed(), 1);
        assert_eq!(registry.live(), 0);
    });
}

/// S2: the sweep at the end of a pool against an owner at work and a close from elsewhere. No
/// thread leads any more. The registration ends exactly once, by the last of them.
fn sweep_against_release(lucky: bool) {
    explore(move || {
        let world = World::new();
        let registry = world.registry();
        let handle = world.register(&registry, Interest::READ);
        world.send();
        let lead = lead();
        let owner = {
            let (registry, lead) = (Arc::clone(&registry), Arc::clone(&lead));
            thread::spawn(move || {
                if let Some(claim) = next(&registry, &lead) {
                    release(dispatch(claim), &lead, lucky);
                }
            })
        };
        let closer = thread::spawn(move || handle.close().is_ok());
        registry.shut();
        owner.join().unwrap();
        let _ = closer.join().unwrap();
        assert_eq!(world.closed(), 1);
        assert_eq!(registry.live(), 0);
    });
}

#[test]
fn loom_sweep_against_release() {
    sweep_against_release(false);
}

#[test]
fn loom_sweep_against_release_by_leader() {
    sweep_against_release(true);
}

/// S2: registering against a drain: the handle is refused, or drained like the others.
#[test]
fn loom_register_against_drain() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let newcomer = {
            let (registry, world) = (Arc::clone(&registry), world.clone());
            thread::spawn(move || {
                let handler = Reader(world);
                registry
                    .register(Descriptor, Interest::READ, handler)
                    .is_ok()
            })
        };
        registry.drain();
        let accepted = newcomer.join().unwrap();
        let lead = lead();
        work(&registry, &lead, true);
        assert_eq!(world.closed(), usize::from(accepted));
        assert!(registry.is_drained());
    });
}

/// S1: the last registration ends elsewhere while the leader is about to sleep: the leader is woken
/// and finds everything drained.
#[test]
fn loom_drained_leader_wakes() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let handle = world.register(&registry, Interest::READ);
        let other = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || {
                let _ = handle.close();
                registry.drain();
            })
        };
        let mut line = Line::new();
        while !registry.is_drained() {
            if let Some(claim) = line.next(&registry, None).unwrap() {
                drop(dispatch(claim));
            }
        }
        other.join().unwrap();
        assert_eq!(world.closed(), 1);
    });
}

/// H3, E5: a close that is held up between its two steps, while the registration ends otherwise and
/// the slot gets a new one. The new registration is not closed.
#[test]
fn loom_late_close_spares_the_next_owner() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let handle = world.register(&registry, Interest::READ);
        world.send();
        let closer = thread::spawn(move || handle.close().unwrap());
        let lead = lead();
        work(&registry, &lead, true);
        if world.closed() == 1 {
            let next = World::new();
            next.register(&registry, Interest::NONE);
            closer.join().unwrap();
            assert_eq!(next.closed(), 0, "a late close hit the slot's next owner");
        } else {
            closer.join().unwrap();
        }
    });
}

/// H2: interest is taken away and given back while a visit claims its bits.
#[test]
fn loom_interest_away_and_back() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let handle = world.register(&registry, Interest::READ);
        world.send();
        let other = thread::spawn(move || {
            handle.set_interest(Interest::NONE).unwrap();
            handle.set_interest(Interest::READ).unwrap();
        });
        let lead = lead();
        work(&registry, &lead, true);
        other.join().unwrap();
        work(&registry, &lead, true);
        assert_eq!(world.read(), 1);
    });
}

/// S1: the last registration ends in one thread while another begins the drain: one of the two sees
/// the other, and the leader is woken.
#[test]
fn loom_close_against_drain() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let handle = world.register(&registry, Interest::READ);
        let closer = thread::spawn(move || drop(handle.close()));
        let drainer = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || registry.drain())
        };
        let mut line = Line::new();
        while !registry.is_drained() {
            if let Some(claim) = line.next(&registry, None).unwrap() {
                drop(dispatch(claim));
            }
        }
        closer.join().unwrap();
        drainer.join().unwrap();
        assert_eq!(world.closed(), 1);
    });
}

/// S2: a handle is registered with input waiting, and the pool is drained at once, while the leader
/// is anywhere in its look: the input is read before the handle is taken for one that is done.
fn drain_reads_what_has_arrived(reports: Reports) {
    explore(move || {
        let world = World::reporting(reports);
        let registry = world.registry();
        world.send();
        let other = {
            let (registry, world) = (Arc::clone(&registry), world.clone());
            thread::spawn(move || {
                world.register(&registry, Interest::READ);
                registry.drain();
            })
        };
        let mut line = Line::new();
        while !registry.is_drained() {
            if let Some(claim) = line.next(&registry, None).unwrap() {
                drop(dispatch(claim));
            }
        }
        other.join().unwrap();
        assert_eq!((world.read(), world.closed()), (1, 1));
    });
}

#[test]
fn loom_drain_reads_what_has_arrived() {
    drain_reads_what_has_arrived(Reports::Edges);
}

#[test]
fn loom_drain_reads_what_has_arrived_once() {
    drain_reads_what_has_arrived(Reports::Once);
}
