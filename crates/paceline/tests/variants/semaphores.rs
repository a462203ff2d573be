//! Semaphores as sources: each unit is one event, and counts are exact.

use std::{
    io,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc, Barrier,
    },
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{asleep, serve_all, Scene},
    wait_until, LONG,
};
use paceline::{simulated::Simulation, Pool, TaskContext};

/// A handler that counts its calls, and where.
fn counter() -> (
    Arc<AtomicUsize>,
    impl Fn((), &mut TaskContext<'_>) + Send + Sync + 'static,
) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let handler = move |(): (), _: &mut TaskContext<'_>| {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    (count, handler)
}

/// A unit that was there at first, and each that is released, is one call; no more, no less.
#[test]
fn each_unit_is_one_event() {
    let (scene, (count, handler)) = (Scene::unobserved(), counter());
    let semaphore = scene.pool.sources().semaphore(3, handler).unwrap();
    assert_eq!(semaphore.value(), 3);
    serve_all(&scene.pool);
    assert_eq!((count.load(Ordering::SeqCst), semaphore.value()), (3, 0));
    semaphore.release().unwrap();
    semaphore.release_many(100).unwrap();
    semaphore.release_many(0).unwrap();
    assert_eq!(semaphore.value(), 101);
    serve_all(&scene.pool);
    assert_eq!(count.load(Ordering::SeqCst), 104);
    assert_eq!(serve_all(&scene.pool), 0);
}

/// More than can be counted is an error, and releases nothing.
#[test]
fn overflow_is_an_error() {
    let (scene, (count, handler)) = (Scene::unobserved(), counter());
    let semaphore = scene
        .pool
        .sources()
        .semaphore(u32::MAX - 1, handler)
        .unwrap();
    let error = semaphore.release_many(2).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    let text = format!("{} units wait already", u32::MAX - 1);
    assert!(error.to_string().contains(&text), "{error}");
    assert_eq!(semaphore.value(), u32::MAX - 1);
    semaphore.release().unwrap();
    assert!(semaphore.release().is_err());
    assert_eq!(semaphore.value(), u32::MAX);
    assert_eq!(count.load(Ordering::SeqCst), 0);
    let report = scene.pool.shutdown(Duration::ZERO);
    assert_eq!(report.unhandled_items, u32::MAX as usize);
}

/// The leader is woken by the first release, and not by others before it has looked.
#[test]
fn one_wake_for_many() {
    bounded(|| {
        let (world, (count, handler)) = (Simulation::new(1), counter());
        let pool = asleep(&world, 1);
        let semaphore = pool.sources().semaphore(0, handler).unwrap();
        let wakes = world.wakes();
        semaphore.release_many(1000).unwrap();
        wait_until(|| count.load(Ordering::SeqCst) == 1000);
        assert_eq!(world.wakes() - wakes, 1);
    });
}

/// Released by many threads, handled by many: not one too many, not one too few. And when the last
/// clone is gone, so is the semaphore.
#[test]
fn counts_are_exact() {
    bounded(|| {
        for at_once in [false, true] {
            let (pool, (count, handler)) = (Pool::builder().threads(3).build().unwrap(), counter());
            let semaphore = if at_once {
                pool.sources().semaphore_concurrent(5, handler).unwrap()
            } else {
                pool.sources().semaphore(5, handler).unwrap()
            };
            let others: Vec<_> = (0..3)
                .map(|_| {
                    let semaphore = semaphore.clone();
                    thread::spawn(move || (0..5_000).for_each(|_| semaphore.release().unwrap()))
                })
                .collect();
            others.into_iter().for_each(|it| it.join().unwrap());
            drop(semaphore);
            wait_until(|| count.load(Ordering::SeqCst) == 15_005);
            let report = pool.shutdown(LONG);
            assert!(report.is_clean(), "{report}");
            assert_eq!(count.load(Ordering::SeqCst), 15_005);
        }
    });
}

/// Several threads handle units at once, where that is asked for.
#[test]
fn handled_by_several_threads_at_once() {
    bounded(|| {
        let pool = Pool::builder().threads(3).build().unwrap();
        let (barrier, done) = (Barrier::new(3), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&done);
        let handler = move |(): (), cx: &mut TaskContext<'_>| {
            cx.blocking(|| barrier.wait());
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let _semaphore = pool.sources().semaphore_concurrent(3, handler).unwrap();
        wait_until(|| done.load(Ordering::SeqCst) == 3);
    });
}

/// S2: a drain handles what was released before it; what comes later is refused.
#[test]
fn a_drain_handles_what_was_released() {
    bounded(|| {
        let (pool, (count, handler)) = (Pool::builder().threads(2).build().unwrap(), counter());
        let semaphore = pool.sources().semaphore(0, handler).unwrap();
        semaphore.release_many(10_000).unwrap();
        let report = pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        assert_eq!(count.load(Ordering::SeqCst), 10_000);
        let error = semaphore.release().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert!(error.to_string().contains("it has ended"), "{error}");
    });
}

/// Closed, it handles what was released, and takes no more.
#[test]
fn closed_for_all() {
    let (scene, (count, handler)) = (Scene::unobserved(), counter());
    let semaphore = scene.pool.sources().semaphore(2, handler).unwrap();
    semaphore.clone().close();
    assert!(semaphore.release().is_err());
    serve_all(&scene.pool);
    assert_eq!(count.load(Ordering::SeqCst), 2);
    assert!(scene.pool.shutdown(Duration::ZERO).is_clean());
}
