//! The concurrent set, in which all threads wait at once, under every schedule: what is told to one
//! thread is lost to none, whoever sleeps, comes and goes.

use paceline::{ConcurrentContext, TaskContext};

use super::{
    one_shot::{
        close_and_reuse, every_byte_comes_back_once, meddled_with, no_notification_is_lost, settle,
    },
    *,
};

fn for_many() -> Simulation {
    Simulation::concurrent(shuttle::rand::thread_rng().gen())
}

/// H1, H2 under faults: every byte comes back, in order.
#[test]
fn shuttle_open_every_byte() {
    every_byte_comes_back_once(for_many, Wake::Adaptive, Order::Newest);
}

/// H2: what is wanted changes all the time, and whoever changes it arms.
#[test]
fn shuttle_open_meddled_with() {
    meddled_with(for_many);
}

/// H3.
#[test]
fn shuttle_open_close_and_reuse() {
    close_and_reuse(for_many);
}

/// H2: what no descriptor tells.
#[test]
fn shuttle_open_notify_loses_nothing() {
    no_notification_is_lost(for_many, Wake::Adaptive);
}

/// E3: whoever leaves may be the one that was woken, or have put something into the open line.
#[test]
fn shuttle_open_join_and_leave() {
    join_and_leave(for_many);
}

/// S1, S2, S3.
#[test]
fn shuttle_open_shutdown_at_any_moment() {
    shutdown_at_any_moment(for_many);
}

/// S3.
#[test]
fn shuttle_open_drop_at_any_moment() {
    drop_at_any_moment(for_many);
}

/// S2.
#[test]
fn shuttle_open_register_against_shutdown() {
    register_against_shutdown(for_many);
}

/// A concurrent handle: every byte is taken once, by whomever; and when all sleep, none is left.
#[test]
fn shuttle_open_concurrent_handle() {
    check(|| {
        let world = for_many();
        world.set_faults(Faults {
            short: false,
            ..Faults::ALL
        });
        let pool = pool_on(&world, 3);
        let (stream, peer) = world.stream();
        let taken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&taken);
        let take = move |cx: &mut ConcurrentContext<'_, SimStream>| {
            // It is called again and again while there is room for output: others must get a turn.
            thread::yield_now();
            cx.try_read(|mut source| io::Read::read(&mut source, &mut [0]))?;
            count.fetch_add(1, Ordering::SeqCst);
            Ok(Next::Continue)
        };
        let handle = pool
            .register_concurrent(stream, Interest::READ, take)
            .unwrap();
        peer.send(b"abc");
        let meddler = thread::spawn(move || {
            handle
                .set_interest(Interest::READ | Interest::WRITE)
                .unwrap();
            handle.set_interest(Interest::READ).unwrap();
        });
        peer.send(b"de");
        meddler.join().unwrap();
        settle(&world, 3);
        assert_eq!(taken.load(Ordering::SeqCst), 5, "input waits at rest (H2)");
        world.set_faults(Faults::NONE);
        assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
    });
}

/// Timers are set from two threads, the nearer one later or earlier, while all sleep or are about
/// to; and work is posted. Each is called once, when its time has come.
#[test]
fn shuttle_open_timers_and_posts() {
    check(|| {
        let world = for_many();
        let pool = pool_on(&world, 2);
        let called = Arc::new([(); 3].map(|()| AtomicUsize::new(0)));
        let work = |index: usize| {
            let called = Arc::clone(&called);
            move |_: &mut TaskContext<'_>| {
                called[index].fetch_add(1, Ordering::SeqCst);
            }
        };
        let (near, far, post) = (work(0), work(1), work(2));
        let other = {
            let pool = pool.clone();
            thread::spawn(move || {
                pool.after(5 * TICK, near).unwrap();
                pool.post(post).unwrap();
            })
        };
        pool.after(9 * TICK, far).unwrap();
        other.join().unwrap();
        let counts = || called.each_ref().map(|count| count.load(Ordering::SeqCst));
        settle(&world, 2);
        assert_eq!(counts(), [0, 0, 1]);
        world.clock().advance(5 * TICK);
        settle(&world, 2);
        assert_eq!(counts(), [1, 0, 1]);
        world.clock().advance(4 * TICK);
        settle(&world, 2);
        assert_eq!(counts(), [1, 1, 1]);
        assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
    });
}

/// Input comes while the idle time-out of its handle passes. It is answered, or the handle was
/// closed for being idle.
#[test]
fn shuttle_open_input_against_time_out() {
    check(|| {
        let (world, tally) = (for_many(), Tally::default());
        let pool = pool_on(&world, 2);
        let (handle, peer) = connect(&world, &pool, &tally);
        handle.set_timeout(Some(20 * TICK)).unwrap();
        settle(&world, 2);
        peer.send(b"x");
        world.clock().advance(20 * TICK);
        assert_eq!(peer.wait_for(1), b"x", "it came before its time was over");
        while !peer.is_closed_by_pool() {
            world.clock().advance(10 * TICK);
            thread::yield_now();
        }
        assert_eq!(tally.closed.load(Ordering::SeqCst), 1);
        assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
    });
}
