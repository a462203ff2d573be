//! A handle that is busy, or suspended: which events arrive meanwhile, and when they are reported.

use std::{
    io,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc,
    },
    thread,
};

use crate::support::{
    by_hand::{serve_all, turn},
    LONG,
};
use paceline::{Context, EventHandler, Handle, Interest, Next, Pool};

use super::world::{held, read_until_dry, until_dry, Held, Near, Set, World};

/// How often the peer sends to a busy handle.
const FLOOD: u64 = 50;

/// Much input arrives at a handle whose handler runs. No event of it is claimed until the handle is
/// released, and no thread is woken for it. Then one event reports all of it. The leader sleeps through
/// it where the set is silent about a busy handle; edge-triggered, each piece may end a wait of the
/// leader, and one only.
fn a_flood_onto_a_busy_handle(set: Set) {
    let world = World::new(set);
    let (handler, Held { reads, gate }) = held();
    let (_, far) = world.serve(Interest::READ, handler);
    world.join();
    far.send(b"x");
    assert_eq!(reads.recv_timeout(LONG).unwrap(), b"x");
    let leader = world.join_and_rest();

    let (handled, wakes) = (world.handled(), world.pool.snapshot().wakes);
    let slept = leader.sleeps_so_far();
    for _ in 0..FLOOD {
        far.send(b"y");
        leader.wait_asleep();
    }
    let slept = leader.sleeps_so_far() - slept;
    assert_eq!(world.handled(), handled, "it is busy");
    assert_eq!(world.pool.snapshot().wakes, wakes, "no thread is needed");
    // One more: the first sleep may not have been counted yet.
    match set {
        _ if set.is_silent_while_busy() => assert!(slept <= 1, "{slept} waits have ended"),
        Set::epoll => assert!(slept <= FLOOD + 1, "{slept} waits have ended"),
        _ => {}
    }
    gate.send(()).unwrap();
    let rest = reads.recv_timeout(LONG).unwrap();
    assert_eq!(rest, [b'y'; FLOOD as usize]);
    assert_eq!(world.handled(), handled + 1);
}
on_every_set!(a_flood_onto_a_busy_handle);

/// Does something on another thread while it is inside for the first time, and tells what it read
/// by each call. Notices whether two threads are inside.
fn meanwhile(
    once: impl FnOnce(Handle) + Send + 'static,
) -> (impl EventHandler<Near>, mpsc::Receiver<Vec<u8>>) {
    let (tell, told) = mpsc::channel();
    let mut once = Some(once);
    let inside = Arc::new(AtomicUsize::new(0));
    let handler = move |cx: &mut Context<'_, Near>| -> io::Result<Next> {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
        let (read, next) = read_until_dry(cx);
        tell.send(read).unwrap();
        if let Some(once) = once.take() {
            let handle = cx.handle();
            thread::spawn(move || once(handle)).join().unwrap();
        }
        inside.fetch_sub(1, Ordering::SeqCst);
        next
    };
    (handler, told)
}

/// Nothing can be claimed in `pool`.
fn nothing_to_claim(pool: &Pool) {
    assert_eq!(serve_all(pool), 0, "a busy handle was claimed");
}

/// A changed interest re-armed a busy handle, and two threads were in one handler (ACE 4129). Here
/// another thread asks for room, which there is, while the handler runs: that is recorded. No other
/// thread gets the handle, and when it is released the handler is called for it.
fn interest_gained_while_busy_counts_at_release(set: Set) {
    let world = World::new(set);
    let pool = world.pool.clone();
    let (handler, reads) = meanwhile(move |handle| {
        for interest in [
            Interest::NONE,
            Interest::WRITE,
            Interest::READ | Interest::WRITE,
        ] {
            handle.set_interest(interest).unwrap();
            nothing_to_claim(&pool);
        }
    });
    let (handle, far) = world.serve(Interest::READ, handler);
    far.send(b"x");
    let mut follower = world.pool.enter().unwrap();
    for _ in 0..3 {
        follower = turn(follower);
    }
    drop(follower);
    let reads: Vec<_> = reads.try_iter().collect();
    assert_eq!(reads, [b"x".to_vec(), Vec::new(), Vec::new()]);
    handle.close().unwrap();
}
on_every_set!(interest_gained_while_busy_counts_at_release);

/// Interest is lost while the handler runs, and input arrives. The release reports nothing; when the
/// interest is back, the input is reported.
fn interest_lost_while_busy_keeps_the_input(set: Set) {
    let world = World::new(set);
    let pool = world.pool.clone();
    let (near, far) = world.pair();
    far.send(b"x");
    let (handler, reads) = meanwhile(move |handle| {
        handle.set_interest(Interest::NONE).unwrap();
        far.send(b"y");
        nothing_to_claim(&pool);
        // Its end would be an event of its own.
        std::mem::forget(far);
    });
    let handle = world.pool.register(near, Interest::READ, handler).unwrap();
    assert_eq!(world.work(), 1);
    assert_eq!(reads.try_iter().collect::<Vec<_>>(), [b"x"]);
    assert_eq!(world.work(), 0);
    handle.set_interest(Interest::READ).unwrap();
    world.work();
    assert_eq!(reads.try_iter().collect::<Vec<_>>(), [b"y"]);
    assert_eq!(world.work(), 0);
}
on_every_set!(interest_lost_while_busy_keeps_the_input);

/// A handle is suspended while it rests, and input arrives, several times: no handler is called. When
/// it is resumed, the input is reported.
fn suspended_while_input_comes(set: Set) {
    let world = World::new(set);
    let (handler, reads) = until_dry();
    let (handle, far) = world.serve(Interest::READ, handler);
    for round in 0..10 {
        handle.suspend().unwrap();
        far.send(&[round]);
        assert_eq!(world.work(), 0, "it is suspended");
        far.send(&[round]);
        assert_eq!(world.work(), 0, "it is suspended");
        handle.resume().unwrap();
        world.work();
        assert_eq!(reads.try_iter().collect::<Vec<_>>(), [[round; 2]]);
    }
    far.send(b"z");
    assert_eq!(world.work(), 1);
    assert_eq!(reads.try_iter().collect::<Vec<_>>(), [b"z"]);
}
on_every_set!(suspended_while_input_comes);

/// A handle is suspended by its own handler, which has used up its last event: a set that reports
/// once is silent about it from then on. When it is resumed, the input from before and after is
/// reported.
fn suspended_by_its_handler(set: Set) {
    let world = World::new(set);
    let (tell, reads) = mpsc::channel();
    let handler = move |cx: &mut Context<'_, Near>| {
        let (read, next) = read_until_dry(cx);
        tell.send(read).unwrap();
        cx.handle().suspend()?;
        next
    };
    let (handle, far) = world.serve(Interest::READ, handler);
    for round in 0..10 {
        // Before it is resumed, or after: the first one is resumed in vain.
        if round % 2 == 0 {
            far.send(&[round]);
        }
        handle.resume().unwrap();
        if round % 2 == 1 {
            world.work();
            far.send(&[round]);
        }
        world.work();
        assert_eq!(reads.try_iter().collect::<Vec<_>>(), [[round]]);
        assert_eq!(world.work(), 0);
    }
}
on_every_set!(suspended_by_its_handler);
