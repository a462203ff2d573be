//! Queues and semaphores: a sender against the leader that falls asleep, against a full queue, and
//! against the end.

use super::*;
use crate::{
    dispatch::{ConcurrentItemHandler, ItemHandler, TaskContext},
    sources::{Count, Queue, Semaphore, Sender},
};

/// Adds up what it gets, and how often `closed` was called.
#[derive(Clone, Default)]
struct Adder(Arc<Sums>);

#[derive(Default)]
struct Sums {
    sum: AtomicUsize,
    closed: AtomicUsize,
}

impl Adder {
    fn add(&self, item: usize) {
        self.0.sum.fetch_add(item, Ordering::Relaxed);
    }

    fn sum(&self) -> usize {
        self.0.sum.load(Ordering::Relaxed)
    }

    fn closed(&self) -> usize {
        self.0.closed.load(Ordering::Relaxed)
    }

    fn note_closed(&self) {
        self.0.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// One after the other.
struct Serial(Adder);

impl ItemHandler<usize> for Serial {
    fn handle(&mut self, item: usize, _: &mut TaskContext<'_>) {
        self.0.add(item);
    }

    fn closed(&mut self, _: Closed) {
        self.0.note_closed();
    }
}

impl ItemHandler<()> for Serial {
    fn handle(&mut self, (): (), _: &mut TaskContext<'_>) {
        self.0.add(1);
    }
}

/// Several at once.
struct AtOnce(Adder);

impl ConcurrentItemHandler<usize> for AtOnce {
    fn handle(&self, item: usize, _: &mut TaskContext<'_>) {
        self.0.add(item);
    }

    fn closed(&self, _: Closed) {
        self.0.note_closed();
    }
}

fn queue(registry: &Registry, capacity: usize, adder: &Adder) -> Sender<usize> {
    let queue = Queue::new(capacity).unwrap();
    let handler = Serial(adder.clone());
    let handle = registry.register_store("queue", queue.store(), handler);
    queue.sender(handle.unwrap())
}

fn concurrent_queue(registry: &Registry, capacity: usize, adder: &Adder) -> Sender<usize> {
    let queue = Queue::new(capacity).unwrap();
    let handler = AtOnce(adder.clone());
    let handle = registry.register_concurrent_store("queue", queue.store(), handler);
    queue.sender(handle.unwrap())
}

/// Takes turns until nothing is ready, as the pool's threads do: what is concurrent is given back,
/// then used.
fn work_off(registry: &Registry, lead: &Mutex<Line>) {
    while let Some(claim) = next(registry, lead) {
        let clock = Clock::Virtual(Arc::new(VirtualClock::new()));
        let mut afterwards = claim.afterwards();
        let done = claim.dispatch(&clock, clock.now(), &OffDuty, &mut afterwards);
        drop(done.claim);
        registry.run_afterwards(afterwards, &OffDuty);
    }
}

/// Takes turns until nothing is registered any more: a drain.
fn drain(registry: &Registry, lead: &Mutex<Line>) {
    registry.drain();
    work_off(registry, lead);
    while registry.live() > 0 {
        thread::yield_now();
        work_off(registry, lead);
    }
}

/// H2: an item is sent while the leader looks for the last time, or sleeps already: it is woken, or
/// sees it.
#[test]
fn loom_send_against_sleep() {
    explore(|| {
        let (registry, adder) = (World::new().registry(), Adder::default());
        let sender = queue(&registry, 1, &adder);
        let other = {
            let sender = sender.clone();
            thread::spawn(move || sender.send(1).unwrap())
        };
        let mut line = Line::new();
        while adder.sum() == 0 {
            if let Some(claim) = line.next(&registry, None).unwrap() {
                drop(dispatch(claim));
            }
        }
        other.join().unwrap();
        assert_eq!(adder.sum(), 1);
    });
}

/// H2: two send into a queue with one place while a third thread takes. What was accepted is
/// handled, once; what was not is given back.
#[test]
fn loom_full_against_taken() {
    explore(|| {
        let (registry, adder) = (World::new().registry(), Adder::default());
        let (sender, lead) = (queue(&registry, 1, &adder), lead());
        let send = |item: usize| {
            let sender = sender.clone();
            move || match sender.send(item) {
                Ok(()) => item,
                Err(rejected) => {
                    assert_eq!(rejected.value, item);
                    0
                }
            }
        };
        let others = [thread::spawn(send(1)), thread::spawn(send(2))];
        work_off(&registry, &lead);
        let accepted: usize = others.map(|other| other.join().unwrap()).iter().sum();
        work_off(&registry, &lead);
        assert!(accepted > 0, "an empty queue accepts one");
        assert_eq!(adder.sum(), accepted);
    });
}

/// S2: an item is sent while the pool drains: handled if it was accepted, and given back if not;
/// the end comes after it.
fn send_against_the_drain(make: fn(&Registry, usize, &Adder) -> Sender<usize>) {
    explore(move || {
        let (registry, adder) = (World::new().registry(), Adder::default());
        let (sender, lead) = (make(&registry, 2, &adder), lead());
        let other = {
            let sender = sender.clone();
            thread::spawn(move || usize::from(sender.send(1).is_ok()))
        };
        drain(&registry, &lead);
        assert_eq!(other.join().unwrap(), adder.sum());
        assert_eq!(adder.closed(), 1);
        assert!(sender.send(1).is_err(), "nobody is there any more");
    });
}

#[test]
fn loom_send_against_the_drain() {
    send_against_the_drain(queue);
}

#[test]
fn loom_send_against_the_drain_at_once() {
    send_against_the_drain(concurrent_queue);
}

/// S2: an item is sent while everything ends by force: it is handled, given back, or counted.
#[test]
fn loom_send_against_the_end() {
    explore(|| {
        let (registry, adder) = (World::new().registry(), Adder::default());
        let sender = queue(&registry, 1, &adder);
        let other = thread::spawn(move || usize::from(sender.send(1).is_ok()));
        registry.shut();
        let accepted = other.join().unwrap();
        let (lost, live) = registry.left_undone();
        assert_eq!((lost.items, live), (accepted, 0));
        assert_eq!((adder.sum(), adder.closed()), (0, 1));
    });
}

/// The last sender goes while its item waits: that is handled, then the queue ends.
#[test]
fn loom_last_sender_goes() {
    explore(|| {
        let (registry, adder) = (World::new().registry(), Adder::default());
        let (sender, lead) = (queue(&registry, 1, &adder), lead());
        let worker = {
            let (registry, lead) = (Arc::clone(&registry), Arc::clone(&lead));
            thread::spawn(move || work_off(&registry, &lead))
        };
        sender.send(1).unwrap();
        drop(sender);
        worker.join().unwrap();
        work_off(&registry, &lead);
        assert_eq!((adder.sum(), adder.closed(), registry.live()), (1, 1, 0));
    });
}

/// H2: two threads handle at once while a second item comes. Each is handled once, and the queue
/// ends after that.
#[test]
fn loom_items_at_once() {
    explore(|| {
        let (registry, adder) = (World::new().registry(), Adder::default());
        let (sender, lead) = (concurrent_queue(&registry, 2, &adder), lead());
        sender.send(1).unwrap();
        let other = {
            let (registry, lead) = (Arc::clone(&registry), Arc::clone(&lead));
            thread::spawn(move || {
                sender.send(2).unwrap();
                drop(sender);
                work_off(&registry, &lead);
            })
        };
        work_off(&registry, &lead);
        other.join().unwrap();
        work_off(&registry, &lead);
        assert_eq!((adder.sum(), adder.closed(), registry.live()), (3, 1, 0));
    });
}

/// Units are released while one is taken, and while the pool drains: the counts are exact.
#[test]
fn loom_release_against_take() {
    explore(|| {
        let (registry, adder) = (World::new().registry(), Adder::default());
        let (count, lead) = (Arc::new(Count::new(1)), lead());
        let handler = Serial(adder.clone());
        let handle = registry.register_store("semaphore", &count, handler);
        let semaphore = Semaphore::new(count, handle.unwrap());
        let other = {
            let semaphore = semaphore.clone();
            thread::spawn(move || {
                let told = [semaphore.release_many(2), semaphore.release()];
                told[0].is_ok() as usize * 2 + told[1].is_ok() as usize
            })
        };
        work_off(&registry, &lead);
        drain(&registry, &lead);
        assert_eq!(adder.sum(), 1 + other.join().unwrap());
        assert!(semaphore.release().is_err());
    });
}
