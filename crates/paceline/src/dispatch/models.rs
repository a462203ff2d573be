//! loom's models of claims, releases, the return list and the end of a registration.
//!
//! They run the product's own registry over a set that tells edges when a model says so, and a
//! "descriptor" that is a counter of unread bytes.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    sync::Arc,
    time::Duration,
};

use loom::thread;

use super::{
    handler::{Closed, EventHandler, Interest, Next},
    line::Line,
    registry::{Limits, Registry},
    return_list::{Link, Pushed, ReturnList, Sleep},
    Context, Handle,
};
use crate::{
    handle_set::{Batch, Event, HandleSet, Ready},
    observe::Counters,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        explore, lock, Mutex, Parker,
    },
};

/// A world of one descriptor: what it holds, who watches it, where the leader sleeps.
#[derive(Clone)]
struct World(Arc<Inside>);

struct Inside {
    /// Bytes that were sent and not read. The kernel's lock, so to speak.
    unread: Mutex<usize>,
    /// The watcher's key, and the edges that were not told.
    watched: Mutex<(Option<u64>, Vec<Event>)>,
    leader: Parker,
    read: AtomicUsize,
    closed: AtomicUsize,
    busy: AtomicBool,
}

impl World {
    fn new() -> Self {
        Self(Arc::new(Inside {
            unread: Mutex::new(0),
            watched: Mutex::new((None, Vec::new())),
            leader: Parker::new(),
            read: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
        }))
    }

    fn registry(&self) -> Arc<Registry> {
        let limits = Limits {
            read_budget: 1,
            output_limit: 1,
        };
        Registry::new(
            Box::new(self.clone()),
            limits,
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
        let mut watched = lock(&self.0.watched);
        if let Some(key) = watched.0 {
            let ready = Ready::READABLE;
            watched.1.push(Event { key, ready });
        }
        drop(watched);
        self.wake();
    }

    fn read(&self) -> usize {
        self.0.read.load(Ordering::Relaxed)
    }

    fn closed(&self) -> usize {
        self.0.closed.load(Ordering::Relaxed)
    }
}

impl HandleSet for World {
    fn add(&self, _: RawFd, key: u64) -> io::Result<()> {
        lock(&self.0.watched).0 = Some(key);
        Ok(())
    }

    fn remove(&self, _: RawFd) -> io::Result<()> {
        lock(&self.0.watched).0 = None;
        Ok(())
    }

    fn wait(&self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<Batch> {
        if timeout.is_none() {
            self.0.leader.sleep(None);
            self.0.leader.clear();
        }
        events.append(&mut lock(&self.0.watched).1);
        Ok(Batch::Whole)
    }

    fn wake(&self) {
        // The kernel's lock: who is woken sees what was done before.
        let _kernel = lock(&self.0.watched);
        self.0.leader.post(1);
        self.0.leader.wake();
    }
}

struct Descriptor;

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        0
    }
}

/// Reads everything, until the descriptor would block.
struct Reader(World);

impl EventHandler<Descriptor> for Reader {
    fn ready(&mut self, cx: &mut Context<'_, Descriptor>) -> io::Result<Next> {
        let world = &*self.0 .0;
        assert!(!world.busy.swap(true, Ordering::Relaxed), "two owners (H1)");
        let told = loop {
            let read = cx.try_read(|_| match std::mem::take(&mut *lock(&world.unread)) {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                count => Ok(count),
            });
            match read {
                Ok(count) => world.read.fetch_add(count, Ordering::Relaxed),
                Err(dry) => break Err(dry),
            };
        };
        world.busy.store(false, Ordering::Relaxed);
        told
    }

    fn closed(&mut self, _: Closed) {
        self.0 .0.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Takes turns until nothing is ready: what the pool's threads do, with a lock in the lead's place.
/// The lead is given away before the handler runs, and taken back after it if it is free.
fn work(registry: &Registry, lead: &Mutex<Line>) {
    loop {
        let claim = lock(lead).next(registry, Some(Duration::ZERO)).unwrap();
        let Some(claim) = claim else { return };
        if let Some(claim) = claim.dispatch() {
            match lead.try_lock() {
                Ok(mut line) => drop(claim.release_into(&mut line)),
                Err(_) => drop(claim),
            }
        }
    }
}

/// The lead over an empty line.
fn lead() -> Arc<Mutex<Line>> {
    Arc::new(Mutex::new(Line::new()))
}

/// H1, H2: an edge comes while the handle's owner is at any point between claim and release, and
/// another thread leads. The bits are claimed before the first read, so the byte is read, now or at
/// the next visit, by one thread at a time.
#[test]
fn loom_edge_against_release() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        world.register(&registry, Interest::READ);
        let lead = lead();
        world.send();
        let other = {
            let (registry, lead) = (Arc::clone(&registry), Arc::clone(&lead));
            thread::spawn(move || work(&registry, &lead))
        };
        world.send();
        work(&registry, &lead);
        other.join().unwrap();
        work(&registry, &lead);
        assert_eq!(world.read(), 2);
    });
}

/// H2: an edge that comes while nobody is interested is there when somebody is.
#[test]
fn loom_edge_against_interest() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let handle = world.register(&registry, Interest::NONE);
        let peer = {
            let world = world.clone();
            thread::spawn(move || world.send())
        };
        let other = thread::spawn(move || handle.set_interest(Interest::READ).unwrap());
        let lead = lead();
        work(&registry, &lead);
        peer.join().unwrap();
        other.join().unwrap();
        work(&registry, &lead);
        assert_eq!(world.read(), 1);
    });
}

/// E6, `notify_enqueue_drain_order_loses_nothing`: two threads put slots back while the leader is about
/// to sleep. It does not sleep over them, and they arrive in order of their pushes, each once.
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
                leader.clear();
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

/// H3, `fd_reused_during_upcall_not_resumed`: close from elsewhere against an owner at work. Told once,
/// and nothing is dispatched afterwards.
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
        work(&registry, &lead);
        closer.join().unwrap();
        let read = world.read();
        work(&registry, &lead);
        assert_eq!(world.read(), read, "dispatched after close returned");
        assert_eq!(world.closed(), 1);
        assert_eq!(registry.live(), 0);
    });
}

/// S2: the sweep at the end of a pool against an owner at work and a close from elsewhere. The
/// registration ends exactly once, by whoever is last.
#[test]
fn loom_sweep_against_release() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let handle = world.register(&registry, Interest::READ);
        world.send();
        let sweeper = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || registry.shut().len())
        };
        let closer = thread::spawn(move || handle.close().is_ok());
        let lead = lead();
        work(&registry, &lead);
        sweeper.join().unwrap();
        let _ = closer.join().unwrap();
        assert_eq!(world.closed(), 1);
        assert_eq!(registry.live(), 0);
    });
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
        work(&registry, &lead);
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
                drop(claim.dispatch());
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
        work(&registry, &lead);
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
        work(&registry, &lead);
        other.join().unwrap();
        work(&registry, &lead);
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
                drop(claim.dispatch());
            }
        }
        closer.join().unwrap();
        drainer.join().unwrap();
        assert_eq!(world.closed(), 1);
    });
}
