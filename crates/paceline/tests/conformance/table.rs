//! Changes of what is watched, while the leader sleeps and at any other time.

use std::{
    net::TcpStream,
    os::fd::AsRawFd,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc,
    },
};

use crate::support::{
    by_hand::{claim, lead},
    told, LONG,
};
use paceline::Source;
use paceline::{Closed, Context, EventHandler, Handle, Interest, Next};

use super::world::{read_until_dry, until_dry, Far, Near, Set, Worker, World};

/// A leader that sleeps, with a copy of the table as it was, in `poll` (E6).
fn asleep(set: Set) -> (World, Worker) {
    let world = World::new(set);
    let leader = world.join_and_rest();
    (world, leader)
}

/// What is registered while the leader sleeps is told at once: what was there before, and what
/// comes.
fn registered_while_the_leader_sleeps(set: Set) {
    let (world, leader) = asleep(set);
    for before in [true, false] {
        let (near, far) = world.pair();
        let (handler, reads) = until_dry();
        if before {
            far.send(b"x");
        }
        world.pool.register(near, Interest::READ, handler).unwrap();
        if !before {
            world.rest(&leader);
            far.send(b"x");
        }
        assert_eq!(reads.recv_timeout(LONG).unwrap(), b"x");
        world.rest(&leader);
    }
}
on_every_set!(registered_while_the_leader_sleeps);

/// What gains interest while the leader sleeps is told at once: what came before, and what comes.
fn interested_while_the_leader_sleeps(set: Set) {
    let (world, leader) = asleep(set);
    for before in [true, false] {
        let (handler, reads) = until_dry();
        let (handle, far) = world.serve(Interest::NONE, handler);
        if before {
            far.send(b"x");
        }
        world.rest(&leader);
        handle.set_interest(Interest::READ).unwrap();
        if !before {
            world.rest(&leader);
            far.send(b"x");
        }
        assert_eq!(reads.recv_timeout(LONG).unwrap(), b"x");
        world.rest(&leader);
    }
}
on_every_set!(interested_while_the_leader_sleeps);

/// What is resumed while the leader sleeps is told at once: what came before, and what comes.
fn resumed_while_the_leader_sleeps(set: Set) {
    let (world, leader) = asleep(set);
    let (tell, reads) = mpsc::channel();
    let suspending = move |cx: &mut Context<'_, Near>| {
        let (read, next) = read_until_dry(cx);
        cx.handle().suspend()?;
        tell.send(read).unwrap();
        next
    };
    let (handle, far) = world.serve(Interest::READ, suspending);
    for round in 0..10 {
        let before = round % 2 == 0;
        if before {
            far.send(&[round]);
        }
        world.rest(&leader);
        handle.resume().unwrap();
        if !before {
            world.rest(&leader);
            far.send(&[round]);
        }
        assert_eq!(reads.recv_timeout(LONG).unwrap(), [round]);
        // It is suspended again when the handler has returned, and the leader leads again then.
        world.rest(&leader);
    }
}
on_every_set!(resumed_while_the_leader_sleeps);

/// A handle is closed while the leader sleeps. The kernel holds on to what is being polled, so
/// unless the leader is woken the peer learns of it when something else happens, or never.
fn closed_while_the_leader_sleeps(set: Set) {
    let (world, leader) = asleep(set);
    for _ in 0..3 {
        let (handler, end) = told(|_: &mut Context<'_, Near>| Ok(Next::Continue));
        let (handle, far) = world.serve(Interest::READ, handler);
        world.rest(&leader);
        handle.close().unwrap();
        assert!(matches!(end.try_recv(), Ok(Closed::Requested)));
        far.wait_closed();
    }
    assert_eq!(world.handled(), 0);
}
on_every_set!(closed_while_the_leader_sleeps);

/// Nobody waits for a handle without interest, or for one that is suspended: whatever becomes of
/// it, a leader that sleeps goes on sleeping. (Edge-triggered, every descriptor is watched from the
/// beginning.)
fn what_nobody_waits_for_wakes_nobody(set: Set) {
    let (world, leader) = asleep(set);
    let slept = leader.sleeps_so_far();
    let fars: Vec<Far> = (0..20)
        .map(|_| {
            let (handle, far) = world.serve(Interest::NONE, until_dry().0);
            far.send(b"x");
            handle.suspend().unwrap();
            handle.set_interest(Interest::READ).unwrap();
            handle.set_interest(Interest::NONE).unwrap();
            handle.resume().unwrap();
            leader.wait_asleep();
            handle.close().unwrap();
            far
        })
        .collect();
    leader.wait_asleep();
    fars.iter().for_each(Far::wait_closed);
    // One: the first sleep may not have been counted yet.
    let waits = leader.sleeps_so_far() - slept;
    assert!(waits <= 1, "{waits} waits have ended");
    assert_eq!(world.handled(), 0);
}
on_sets!(what_nobody_waits_for_wakes_nobody: one_shot, poll, concurrent);

/// The more there is to look at, the longer a leader takes to come back from its wait.
fn others(world: &World) -> Vec<(Handle, Far)> {
    let one = |_| world.serve(Interest::READ, until_dry().0);
    (0..100).map(one).collect()
}

/// A connection has sent something and is closed in that moment; its number and its slot are used
/// again at once. The leader may still have the event of the old one in its hands. The new
/// connection gets none but its own (ACE 2395).
fn a_reused_number_gets_no_event_of_the_old_one(set: Set) {
    let (world, leader) = asleep(set);
    let _others = others(&world);
    let empty = Arc::new(AtomicUsize::new(0));
    let mut reused = 0;
    for round in (0..=255).cycle().take(1000) {
        let (old, old_far) = world.pair();
        let number = old.descriptor().as_raw_fd();
        let handle = world.pool.register(old, Interest::READ, until_dry().0);
        world.rest(&leader);
        old_far.send(b"old");
        let _ = handle.unwrap().close_and_wait();
        let (new, new_far) = world.pair();
        reused += usize::from(new.descriptor().as_raw_fd() == number);
        let (handler, reads) = noting_empty_calls(&empty);
        let handle = world.pool.register(new, Interest::READ, handler).unwrap();
        // An event of the old one would be dispatched now.
        world.rest(&leader);
        new_far.send(&[round]);
        assert_eq!(reads.recv_timeout(LONG).unwrap(), [round]);
        handle.close_and_wait().unwrap();
    }
    assert_eq!(empty.load(Ordering::SeqCst), 0, "called for nothing");
    assert!(reused > 0, "no number was reused");
}
on_every_set!(a_reused_number_gets_no_event_of_the_old_one);

/// Tells what it reads, and counts the calls that find nothing.
fn noting_empty_calls(
    empty: &Arc<AtomicUsize>,
) -> (impl EventHandler<Near>, mpsc::Receiver<Vec<u8>>) {
    let empty = Arc::clone(empty);
    let (tell, told) = mpsc::channel();
    let handler = move |cx: &mut Context<'_, Near>| {
        let (read, next) = read_until_dry(cx);
        if read.is_empty() {
            empty.fetch_add(1, Ordering::SeqCst);
        } else {
            tell.send(read).unwrap()
        }
        next
    };
    (handler, told)
}

/// Who has waited for the end of a listener may listen at its address again, at once: nobody holds
/// on to the socket, not even a leader that sleeps.
fn a_closed_listener_frees_its_address(set: Set) {
    let (world, leader) = asleep(set);
    let make = |_: &TcpStream, _| Some(|_: &mut Context<'_, TcpStream>| Ok(Next::Continue));
    // Where no other test can take the port meanwhile.
    let mut listener = world.pool.listen("127.0.0.2:0", make).unwrap();
    let _others = others(&world);
    for _ in 0..100 {
        world.rest(&leader);
        listener.handle().close_and_wait().unwrap();
        listener = world.pool.listen(listener.local_addr(), make).unwrap();
    }
}
on_kernel_sets!(a_closed_listener_frees_its_address);

/// A connection has sent something, and is closed before anybody has looked into the set: what the
/// set may still have to tell of it does not reach the next owner of its number and its slot.
fn an_event_dies_with_its_handle(set: Set) {
    let world = World::new(set);
    for round in 0..10 {
        let (old, old_reads) = until_dry();
        let (handle, old_far) = world.serve(Interest::READ, old);
        old_far.send(b"old");
        handle.close().unwrap();
        let (new, reads) = until_dry();
        let (handle, far) = world.serve(Interest::READ, new);
        assert_eq!(world.work(), 0, "nothing has come");
        far.send(&[round]);
        assert_eq!(world.work(), 1);
        assert_eq!(reads.try_iter().collect::<Vec<_>>(), [[round]]);
        assert!(old_reads.try_recv().is_err(), "called after its end");
        handle.close().unwrap();
    }
}
on_every_set!(an_event_dies_with_its_handle);

/// Two handles have events, and the leader has taken both from the set. The second is closed while
/// it waits in the line: its event is not dispatched, neither to it nor to the next owner of its
/// number.
fn a_handle_closed_in_the_line_is_not_dispatched(set: Set) {
    let world = World::new(set);
    let pairs = [(); 2].map(|()| {
        let (handler, reads) = until_dry();
        let (handle, far) = world.serve(Interest::READ, handler);
        far.send(b"old");
        (handle, far, reads)
    });
    let claimed = claim(lead(&world.pool));
    // Which of them comes first is the set's affair. The other one is closed by the thread that has
    // it.
    pairs
        .iter()
        .for_each(|(handle, ..)| handle.close().unwrap());
    let (handler, reads) = until_dry();
    let (_, far) = world.serve(Interest::READ, handler);
    drop(claimed.promote().run());
    world.work();
    for (_, far, old_reads) in &pairs {
        assert!(old_reads.try_recv().is_err(), "called after its end");
        far.wait_closed();
    }
    assert!(reads.try_recv().is_err(), "the event of another");
    let (handler, reused_reads) = until_dry();
    let (_, reused_far) = world.serve(Interest::READ, handler);
    assert_eq!(world.work(), 0, "nothing has come");
    far.send(b"new");
    reused_far.send(b"newer");
    assert_eq!(world.work(), 2);
    assert_eq!(reads.try_iter().collect::<Vec<_>>(), [b"new"]);
    assert_eq!(reused_reads.try_iter().collect::<Vec<_>>(), [b"newer"]);
}
on_every_set!(a_handle_closed_in_the_line_is_not_dispatched);
