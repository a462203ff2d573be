//! Posted work: done once, in order, within bounds; given back, or in the report (S2).

use std::{
    collections::HashSet,
    io,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Barrier, Mutex,
    },
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{serve_all, turn, Scene},
    wait_until, LONG,
};
use paceline::{simulated::Simulation, Panics, Pool, SetKind, TaskContext, WeakPool};

fn simulated(limit: usize) -> (Simulation, Pool) {
    let world = Simulation::new(1);
    let set = SetKind::Simulated(world.clone());
    let pool = Pool::builder().threads(0).handle_set(set).post_limit(limit);
    (world, pool.build().unwrap())
}

/// What was posted first is done first, each once.
#[test]
fn done_once_and_in_order() {
    let (scene, done) = (Scene::unobserved(), Arc::new(Mutex::new(Vec::new())));
    for number in 0..100 {
        let done = Arc::clone(&done);
        scene
            .pool
            .post(move |_| done.lock().unwrap().push(number))
            .unwrap();
    }
    assert_eq!(serve_all(&scene.pool), 100);
    assert_eq!(*done.lock().unwrap(), Vec::from_iter(0..100));
    assert_eq!(serve_all(&scene.pool), 0);
    assert_eq!(scene.pool.snapshot().posted, 100);
}

/// A leader that sleeps is woken by the first post, and only by that.
#[test]
fn one_wake_for_many() {
    bounded(|| {
        let world = Simulation::new(1);
        let set = SetKind::Simulated(world.clone());
        let pool = Pool::builder().threads(1).handle_set(set).build().unwrap();
        wait_until(|| world.clock().asleep() == 1);
        let wakes = world.wakes();
        let (inside, entered) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        pool.post(move |_| {
            inside.send(()).unwrap();
            gate.recv().unwrap();
        })
        .unwrap();
        entered.recv_timeout(LONG).unwrap();
        assert_eq!(world.wakes() - wakes, 1);
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            let done = Arc::clone(&done);
            pool.post(move |_| {
                done.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
        }
        go.send(()).unwrap();
        wait_until(|| done.load(Ordering::SeqCst) == 100);
        assert_eq!(world.wakes() - wakes, 1);
    });
}

/// As many as may wait do; one more is given back, untouched. A post that has begun waits no more.
#[test]
fn a_full_queue_gives_it_back() {
    let (_world, pool) = simulated(2);
    let done = Arc::new(Mutex::new(Vec::new()));
    let work = |number: u32| {
        let done = Arc::clone(&done);
        move |_: &mut TaskContext<'_>| done.lock().unwrap().push(number)
    };
    pool.post(work(1)).unwrap();
    pool.post(work(2)).unwrap();
    let rejected = pool.post(work(3)).unwrap_err();
    assert_eq!(rejected.error.kind(), io::ErrorKind::QuotaExceeded);
    assert!(
        rejected.to_string().contains("2 wait already"),
        "{rejected}"
    );
    drop(turn(pool.enter().unwrap()));
    pool.post(rejected.value).unwrap();
    serve_all(&pool);
    assert_eq!(*done.lock().unwrap(), [1, 2, 3]);
}

/// With a limit of zero nothing can be posted; that is said, and nothing else breaks.
#[test]
fn a_limit_of_zero() {
    let (_world, pool) = simulated(0);
    assert!(pool.post(|_| {}).is_err());
    assert_eq!(serve_all(&pool), 0);
}

/// F1: work that posts itself again and again starves no handle: after each of its turns the others
/// have theirs.
#[test]
fn endless_posts_starve_nobody() {
    fn post_again(pool: &WeakPool, count: &Arc<AtomicUsize>) {
        let (weak, counted) = (pool.clone(), Arc::clone(count));
        let again = move |_: &mut TaskContext<'_>| {
            counted.fetch_add(1, Ordering::SeqCst);
            post_again(&weak, &counted);
        };
        if let Some(pool) = pool.upgrade() {
            let _ = pool.post(again);
        }
    }
    let (scene, count) = (Scene::unobserved(), Arc::default());
    let peer = scene.echo();
    post_again(&scene.pool.downgrade(), &count);
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
}

/// Several threads do posted work at once: it is no handle of which one thread at a time has hold.
#[test]
fn done_by_several_threads_at_once() {
    bounded(|| {
        let pool = Pool::builder().threads(3).build().unwrap();
        let barrier = Arc::new(Barrier::new(3));
        let (done, wait) = mpsc::channel();
        for _ in 0..3 {
            let (barrier, done) = (Arc::clone(&barrier), done.clone());
            let work = move |cx: &mut TaskContext<'_>| {
                cx.blocking(|| barrier.wait());
                done.send(thread::current().id()).unwrap();
            };
            pool.post(work).unwrap();
        }
        let threads: HashSet<_> = (0..3).map(|_| wait.recv_timeout(LONG).unwrap()).collect();
        assert_eq!(threads.len(), 3);
    });
}

/// A panic is told, and takes neither the thread nor other work with it, whatever the policy.
#[test]
fn a_panic_takes_nothing_with_it() {
    for panics in [Panics::Close, Panics::Keep] {
        let world = Simulation::new(1);
        let pool = Pool::builder()
            .threads(0)
            .handle_set(SetKind::Simulated(world))
            .panics(panics)
            .post_limit(2)
            .build()
            .unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            pool.post(|_| panic!("posted")).unwrap();
            let counted = Arc::clone(&done);
            pool.post(move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
            serve_all(&pool);
        }
        assert_eq!(done.load(Ordering::SeqCst), 10);
        assert_eq!(pool.snapshot().panics, 10);
        let report = pool.shutdown(Duration::ZERO);
        assert!(report.is_clean(), "{report}");
    }
}

/// S2: what was posted before the shutdown is done by the drain; what comes later is given back.
#[test]
fn a_drain_does_what_was_posted() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..500 {
            let done = Arc::clone(&done);
            pool.post(move |_| {
                done.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
        }
        let report = pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        assert_eq!(done.load(Ordering::SeqCst), 500);
        let rejected = pool.post(|_| {}).unwrap_err();
        assert_eq!(rejected.error.kind(), io::ErrorKind::BrokenPipe);
        assert!(rejected
            .to_string()
            .contains("post: the pool is shutting down"));
    });
}

/// S2: what nobody did in time stands in the report, and is dropped.
#[test]
fn what_was_not_done_is_in_the_report() {
    let (_world, pool) = simulated(100);
    let held = Arc::new(());
    for _ in 0..7 {
        let held = Arc::clone(&held);
        pool.post(move |_| drop(held)).unwrap();
    }
    let report = pool.shutdown(Duration::ZERO);
    assert_eq!(report.undone_tasks, 7);
    assert!(!report.is_clean());
    assert_eq!(report.to_string(), "7 tasks not done");
    assert_eq!(Arc::strong_count(&held), 1);
}

/// S2, with real threads against a shutdown: each post is done, given back, or in the report.
#[test]
fn every_post_is_accounted_for() {
    bounded(|| {
        for round in 0..30 {
            let pool = Pool::builder().threads(2).post_limit(64).build().unwrap();
            let done = Arc::new(AtomicUsize::new(0));
            let posters: Vec<_> = (0..2)
                .map(|_| {
                    let (pool, done) = (pool.clone(), Arc::clone(&done));
                    thread::spawn(move || {
                        let mut accepted = 0;
                        for _ in 0..2000 {
                            let done = Arc::clone(&done);
                            let work = move |_: &mut TaskContext<'_>| {
                                done.fetch_add(1, Ordering::SeqCst);
                            };
                            accepted += usize::from(pool.post(work).is_ok());
                        }
                        accepted
                    })
                })
                .collect();
            let report = match round % 2 {
                0 => pool.shutdown(LONG),
                _ => pool.shutdown(Duration::ZERO),
            };
            let accepted: usize = posters.into_iter().map(|it| it.join().unwrap()).sum();
            // One that got in at the last moment may end on its own thread, after the report.
            let mut lost = report.undone_tasks;
            wait_until(|| {
                lost += pool.shutdown(Duration::ZERO).undone_tasks;
                done.load(Ordering::SeqCst) + lost == accepted
            });
        }
    });
}
