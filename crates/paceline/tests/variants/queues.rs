//! Queues as sources: what was accepted is handled once, in order, within bounds; or given back, or
//! in the report (S2).

use std::{
    collections::HashSet,
    io,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc, Arc, Barrier, Mutex,
    },
    thread,
    time::Duration,
};

use crate::support::{
    self, bounded,
    by_hand::{asleep, serve_all, turn, Scene},
    kernel_sets, wait_until, LONG,
};
use paceline::{
    simulated::Simulation, Closed, ConcurrentItemHandler, ItemHandler, Panics, Pool, Sender,
    SetKind, TaskContext,
};

/// A handler made of a closure, which tells its end.
struct Told<F>(F, mpsc::Sender<Closed>);

impl<T, F: FnMut(T) + Send + 'static> ItemHandler<T> for Told<F> {
    fn handle(&mut self, item: T, _: &mut TaskContext<'_>) {
        self.0(item);
    }

    fn closed(&mut self, why: Closed) {
        self.1.send(why).unwrap();
    }
}

/// A handler that adds up what it gets, and counts how often it is told the end; by several threads
/// at once.
#[derive(Clone, Default)]
struct Sum(Arc<(AtomicUsize, AtomicUsize)>);

impl Sum {
    fn get(&self) -> usize {
        self.0 .0.load(Ordering::SeqCst)
    }

    fn ends(&self) -> usize {
        self.0 .1.load(Ordering::SeqCst)
    }
}

impl ConcurrentItemHandler<usize> for Sum {
    fn handle(&self, item: usize, _: &mut TaskContext<'_>) {
        self.0 .0.fetch_add(item, Ordering::SeqCst);
    }

    fn closed(&self, _: Closed) {
        self.0 .1.fetch_add(1, Ordering::SeqCst);
    }
}

/// The same, for one thread at a time.
struct SerialSum(Sum);

impl ItemHandler<usize> for SerialSum {
    fn handle(&mut self, item: usize, cx: &mut TaskContext<'_>) {
        ConcurrentItemHandler::handle(&self.0, item, cx);
    }

    fn closed(&mut self, why: Closed) {
        ConcurrentItemHandler::closed(&self.0, why);
    }
}

/// What was sent first is handled first, each once, some at every visit.
#[test]
fn handled_once_and_in_order() {
    let (scene, done) = (Scene::unobserved(), Arc::new(Mutex::new(Vec::new())));
    let handled = Arc::clone(&done);
    let handler = move |item: u32, _: &mut TaskContext<'_>| handled.lock().unwrap().push(item);
    let sender = scene.pool.sources().queue(100, handler).unwrap();
    (0..100).for_each(|item| sender.send(item).unwrap());
    assert_eq!(sender.len(), 100);
    let turns = serve_all(&scene.pool);
    assert!((2..100).contains(&turns), "{turns} turns");
    assert_eq!(*done.lock().unwrap(), Vec::from_iter(0..100));
    assert!(sender.is_empty());
    assert_eq!(serve_all(&scene.pool), 0);
}

/// As many as may wait do; one more is given back, untouched, and accepted when there is room.
#[test]
fn a_full_queue_gives_it_back() {
    let (scene, done) = (Scene::unobserved(), Arc::new(Mutex::new(Vec::new())));
    let handled = Arc::clone(&done);
    let handler = move |item: &'static str, _: &mut TaskContext<'_>| {
        handled.lock().unwrap().push(item);
    };
    let sender = scene.pool.sources().queue(2, handler).unwrap();
    sender.send("one").unwrap();
    sender.send("two").unwrap();
    let rejected = sender.send("three").unwrap_err();
    assert_eq!(rejected.error.kind(), io::ErrorKind::QuotaExceeded);
    assert!(rejected.to_string().contains("is full, with 2 items"));
    serve_all(&scene.pool);
    sender.send(rejected.value).unwrap();
    serve_all(&scene.pool);
    assert_eq!(*done.lock().unwrap(), ["one", "two", "three"]);
}

/// A queue with one place goes round and round.
#[test]
fn one_place_is_enough() {
    let (scene, sum) = (Scene::unobserved(), Sum::default());
    let sender = scene
        .pool
        .sources()
        .queue(1, SerialSum(sum.clone()))
        .unwrap();
    for round in 1..=100 {
        sender.send(1).unwrap();
        assert!(sender.send(1).is_err());
        serve_all(&scene.pool);
        assert_eq!(sum.get(), round);
    }
}

/// What can't be is refused, and the handler given back.
#[test]
fn impossible_capacities() {
    let pool = Pool::builder().threads(0).build().unwrap();
    for (capacity, kind) in [
        (0, io::ErrorKind::InvalidInput),
        (usize::MAX, io::ErrorKind::OutOfMemory),
    ] {
        let rejected = pool
            .sources()
            .queue(capacity, SerialSum(Sum::default()))
            .unwrap_err();
        assert_eq!(rejected.error.kind(), kind, "{rejected}");
        let rejected = pool.sources().queue_concurrent(capacity, rejected.value.0);
        assert_eq!(rejected.unwrap_err().error.kind(), kind);
    }
}

/// A leader that sleeps is woken by the first item, and only by that: the others cost no system
/// call.
#[test]
fn one_wake_for_many() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 1);
        let (inside, entered) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let done = Arc::new(AtomicUsize::new(0));
        let handled = Arc::clone(&done);
        let handler = move |first: bool, _: &mut TaskContext<'_>| {
            if first {
                inside.send(()).unwrap();
                gate.recv().unwrap();
            }
            handled.fetch_add(1, Ordering::SeqCst);
        };
        let sender = pool.sources().queue(101, handler).unwrap();
        let wakes = world.wakes();
        sender.send(true).unwrap();
        entered.recv_timeout(LONG).unwrap();
        assert_eq!(world.wakes() - wakes, 1);
        (0..100).for_each(|_| sender.send(false).unwrap());
        go.send(()).unwrap();
        wait_until(|| done.load(Ordering::SeqCst) == 101);
        assert_eq!(world.wakes() - wakes, 1);
    });
}

/// F1: a queue that is never empty starves no handle. Its handler sends the next item to itself;
/// after each of its turns the others have theirs.
#[test]
fn a_queue_that_is_never_empty() {
    let (scene, count) = (Scene::unobserved(), Arc::new(AtomicUsize::new(0)));
    let (peer, counted) = (scene.echo(), Arc::clone(&count));
    let own: Arc<Mutex<Option<Sender<()>>>> = Arc::default();
    let again = Arc::clone(&own);
    let handler = move |(): (), _: &mut TaskContext<'_>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let sender = again.lock().unwrap();
        sender.as_ref().unwrap().send(()).unwrap();
    };
    let sender = scene.pool.sources().queue(8, handler).unwrap();
    sender.send(()).unwrap();
    *own.lock().unwrap() = Some(sender);
    let mut follower = scene.pool.enter().unwrap();
    for _ in 0..20 {
        peer.send(b"x");
        for _ in 0..2 + 64 {
            follower = turn(follower);
        }
        assert_eq!(peer.received(), b"x");
    }
    drop(follower);
    assert!(count.load(Ordering::SeqCst) > 0);
    own.lock().unwrap().take();
}

/// H1: one thread at a time, whoever sends from wherever, and the items of each sender in its
/// order.
#[test]
fn one_at_a_time_and_in_order() {
    const ITEMS: usize = 5_000;
    bounded(|| {
        let pool = Pool::builder().threads(4).build().unwrap();
        let (busy, done) = (AtomicBool::new(false), Arc::new(AtomicUsize::new(0)));
        let (mut last, handled) = ([0; 3], Arc::clone(&done));
        let handler = move |(who, number): (usize, usize), _: &mut TaskContext<'_>| {
            assert!(!busy.swap(true, Ordering::SeqCst), "two threads");
            assert_eq!(last[who] + 1, number);
            last[who] = number;
            busy.store(false, Ordering::SeqCst);
            handled.fetch_add(1, Ordering::SeqCst);
        };
        let sender = pool.sources().queue(16, handler).unwrap();
        let senders: Vec<_> = (0..3)
            .map(|who| {
                let sender = sender.clone();
                thread::spawn(move || (1..=ITEMS).for_each(|n| insist(&sender, (who, n))))
            })
            .collect();
        senders.into_iter().for_each(|it| it.join().unwrap());
        wait_until(|| done.load(Ordering::SeqCst) == 3 * ITEMS);
        assert!(pool.shutdown(LONG).is_clean());
    });
}

/// Sends until there is room.
fn insist<T: Send>(sender: &Sender<T>, mut item: T) {
    while let Err(rejected) = sender.send(item) {
        assert_eq!(rejected.error.kind(), io::ErrorKind::QuotaExceeded);
        item = rejected.value;
        support::pause();
    }
}

/// A concurrent queue: three items are with three threads at the same time.
#[test]
fn handled_by_several_threads_at_once() {
    bounded(|| {
        let pool = Pool::builder().threads(3).build().unwrap();
        let (barrier, (done, wait)) = (Barrier::new(3), mpsc::channel());
        let done = Mutex::new(done);
        let handler = move |(): (), cx: &mut TaskContext<'_>| {
            cx.blocking(|| barrier.wait());
            let id = thread::current().id();
            done.lock().unwrap().send(id).unwrap();
        };
        let sender = pool.sources().queue_concurrent(3, handler).unwrap();
        (0..3).for_each(|_| sender.send(()).unwrap());
        let threads: HashSet<_> = (0..3).map(|_| wait.recv_timeout(LONG).unwrap()).collect();
        assert_eq!(threads.len(), 3);
    });
}

/// On every set, with either kind of handler: all that was sent is handled, and the pool ends
/// clean.
#[test]
fn on_every_set() {
    for set in kernel_sets() {
        bounded(move || {
            let pool = Pool::builder().threads(3).handle_set(set).build().unwrap();
            let (serial, shared) = (Sum::default(), Sum::default());
            let one = pool.sources().queue(8, SerialSum(serial.clone())).unwrap();
            let many = pool.sources().queue_concurrent(8, shared.clone()).unwrap();
            for _ in 0..1000 {
                insist(&one, 1);
                insist(&many, 1);
            }
            wait_until(|| serial.get() + shared.get() == 2000);
            drop((one, many));
            wait_until(|| serial.ends() + shared.ends() == 2);
            let report = pool.shutdown(LONG);
            assert!(report.is_clean(), "{report}");
        });
    }
}

/// A panic takes its own item along, is told, and by policy the queue goes on; or it ends, and what
/// was left is counted.
#[test]
fn a_panic_takes_one_item() {
    for (panics, handled, left) in [(Panics::Keep, 9, 0), (Panics::Close, 4, 5)] {
        let pool = Pool::builder()
            .threads(0)
            .handle_set(SetKind::Simulated(Simulation::new(1)))
            .panics(panics)
            .build()
            .unwrap();
        let (closed, end) = mpsc::channel();
        let done = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&done);
        let count = move |item: usize| {
            assert_ne!(item, 4, "this one");
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let sender = pool.sources().queue(16, Told(count, closed)).unwrap();
        (0..10).for_each(|item| sender.send(item).unwrap());
        serve_all(&pool);
        assert_eq!(done.load(Ordering::SeqCst), handled);
        assert_eq!(pool.snapshot().panics, 1);
        match panics {
            Panics::Close => {
                let error = sender.send(1).unwrap_err().error;
                assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
                assert!(matches!(end.try_recv().unwrap(), Closed::Panicked(_)));
            }
            _ => sender.send(1).unwrap(),
        }
        serve_all(&pool);
        let report = pool.shutdown(Duration::ZERO);
        assert_eq!(report.unhandled_items, left, "{report}");
    }
}

/// The same where several threads handle items: the end is told once, by whoever leaves last.
#[test]
fn a_panic_in_a_concurrent_queue() {
    bounded(|| {
        struct Touchy(mpsc::Sender<Closed>);
        impl ConcurrentItemHandler<bool> for Touchy {
            fn handle(&self, fails: bool, _: &mut TaskContext<'_>) {
                assert!(!fails, "this one");
            }
            fn closed(&self, why: Closed) {
                self.0.send(why).unwrap();
            }
        }
        let pool = Pool::builder().threads(2).build().unwrap();
        let (closed, end) = mpsc::channel();
        let sender = pool.sources().queue_concurrent(64, Touchy(closed)).unwrap();
        sender.send(true).unwrap();
        wait_until(|| {
            sender
                .send(false)
                .is_err_and(|it| it.error.kind() == io::ErrorKind::BrokenPipe)
        });
        let report = pool.shutdown(LONG);
        assert!(report.unhandled_items <= 64, "{report}");
        assert_eq!(report.busy_handles, 0);
        let ends: Vec<_> = end.iter().collect();
        assert!(matches!(ends[..], [Closed::Panicked(_)]), "{ends:?}");
    });
}

/// The queue ends when the last sender is gone, and not before its items are handled.
#[test]
fn it_ends_with_its_last_sender() {
    let (scene, sum) = (Scene::unobserved(), Sum::default());
    let sender = scene
        .pool
        .sources()
        .queue(8, SerialSum(sum.clone()))
        .unwrap();
    let other = sender.clone();
    sender.send(1).unwrap();
    drop(sender);
    serve_all(&scene.pool);
    assert_eq!((sum.get(), sum.ends()), (1, 0));
    other.send(2).unwrap();
    drop(other);
    assert_eq!(sum.ends(), 0);
    serve_all(&scene.pool);
    assert_eq!((sum.get(), sum.ends()), (3, 1));
}

/// Closed by one, it is closed for all: what was sent before is handled, what comes later given
/// back.
#[test]
fn closed_for_all() {
    let scene = Scene::unobserved();
    let ((closed, end), done) = (mpsc::channel(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&done);
    let count = move |item: usize| {
        counted.fetch_add(item, Ordering::SeqCst);
    };
    let sender = scene.pool.sources().queue(8, Told(count, closed)).unwrap();
    sender.send(1).unwrap();
    sender.clone().close();
    let rejected = sender.send(2).unwrap_err();
    assert_eq!(rejected.error.kind(), io::ErrorKind::BrokenPipe);
    assert!(rejected.to_string().contains("has ended"), "{rejected}");
    assert!(end.try_recv().is_err());
    serve_all(&scene.pool);
    assert_eq!(done.load(Ordering::SeqCst), 1);
    assert!(matches!(end.try_recv().unwrap(), Closed::Finished));
}

/// S2: what nobody handled stands in the report, and is dropped; the senders that are left do not
/// keep it.
#[test]
fn what_was_not_handled_is_in_the_report() {
    let pool = Pool::builder().threads(0).build().unwrap();
    let handler = |_: Arc<()>, _: &mut TaskContext<'_>| {};
    let senders = [
        pool.sources().queue(8, handler).unwrap(),
        pool.sources().queue_concurrent(8, handler).unwrap(),
    ];
    let held = Arc::new(());
    for sender in &senders {
        (0..4).for_each(|_| sender.send(Arc::clone(&held)).unwrap());
    }
    let report = pool.shutdown(Duration::ZERO);
    assert_eq!(report.unhandled_items, 8);
    assert!(!report.is_clean());
    assert_eq!(report.to_string(), "8 items not handled");
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(senders[0].send(held).is_err());
}

/// S2, with real threads against a shutdown: each item is handled, given back, or in the report.
#[test]
fn every_item_is_accounted_for() {
    bounded(|| {
        for round in 0..40 {
            let (pool, sum) = (Pool::builder().threads(2).build().unwrap(), Sum::default());
            let sender = match round % 2 {
                0 => pool.sources().queue(16, SerialSum(sum.clone())).unwrap(),
                _ => pool.sources().queue_concurrent(16, sum.clone()).unwrap(),
            };
            let senders: Vec<_> = (0..2)
                .map(|_| {
                    let sender = sender.clone();
                    thread::spawn(move || (0..2000).filter(|_| sender.send(1).is_ok()).count())
                })
                .collect();
            let report = match round % 4 {
                0 | 1 => pool.shutdown(LONG),
                _ => pool.shutdown(Duration::ZERO),
            };
            let accepted: usize = senders.into_iter().map(|it| it.join().unwrap()).sum();
            // What is with a thread at the deadline ends later.
            let mut lost = report.unhandled_items;
            wait_until(|| {
                lost += pool.shutdown(Duration::ZERO).unhandled_items;
                sum.get() + lost == accepted && sum.ends() == 1
            });
        }
    });
}
