//! Losses, closing, and connecting anew.

use super::*;
use crate::sync::atomic::{AtomicBool, Ordering};

/// B2, E14: the connection ends while two callers wait. Both get an outcome, whichever leads.
#[test]
fn loom_bound_loss_is_told() {
    explore(|| {
        let world = World::new();
        let [one, other] = [world.sent(), world.sent()];
        let caller = world.joined(other);
        world.wire.change(|state| state.ended = true);
        assert_eq!(world.join(one), Ended::Lost);
        assert_eq!(caller.join().unwrap(), Ended::Lost);
        world.assert_empty();
    });
}

/// The same by closing it, from a thread that neither leads nor waits.
#[test]
fn loom_bound_closed() {
    explore(|| {
        let world = World::new();
        let [one, other] = [world.sent(), world.sent()];
        let leading = world.leads();
        world.lay_down(other);
        drop(leading);
        // The elected one leads, or is on its way.
        let caller = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let elected = world.link.sleep(other, NEVER).ok().unwrap();
                let told = elected.lead(other, Wants::Data, NEVER);
                assert!(matches!(told, Some(Joined::Lost)));
                drop(told);
                world.link.calls.forget(other);
            })
        };
        let error = io::Error::other("it was closed");
        world.link.end(End::Closed, "close", &error);
        caller.join().unwrap();
        assert_eq!(world.join(one), Ended::Lost);
        world.assert_empty();
    });
}

/// A request is sent while the connection ends: it is refused, or its caller gets the loss. Then
/// there is another connection, to which nothing was moved.
#[test]
fn loom_bound_send_against_loss() {
    explore(|| {
        let world = World::new();
        let one = world.sent();
        let key = world.link.calls.register().unwrap();
        world.wire.change(|state| state.ended = true);
        let sending = {
            let world = Arc::clone(&world);
            thread::spawn(move || match world.link.send(key, &b'!') {
                Ok(()) => assert_eq!(world.join(key), Ended::Lost),
                Err(_) => world.link.calls.forget(key),
            })
        };
        assert_eq!(world.join(one), Ended::Lost);
        sending.join().unwrap();
        let wire = new_wire(100);
        assert!(world.link.begin(Arc::clone(&wire) as Arc<dyn Line>).is_ok());
        let again = world.sent();
        assert_eq!(lock(&wire.state).written, [world.reply(again)[0], b'?']);
        wire.bring(&world.reply(again));
        assert_eq!(world.join(again), Ended::Replied);
        world.assert_empty();
    });
}

/// Another connection is made while the last writer and the leader still report the loss of the old
/// one to its callers.
#[test]
fn loom_bound_anew_against_loss() {
    explore(|| {
        let world = World::new();
        let [one, other] = [world.sent(), world.sent()];
        let caller = world.joined(other);
        world.wire.change(|state| state.ended = true);
        assert_eq!(world.join(one), Ended::Lost);
        let wire = new_wire(100);
        while world
            .link
            .begin(Arc::clone(&wire) as Arc<dyn Line>)
            .is_err()
        {
            thread::yield_now();
        }
        assert_eq!(caller.join().unwrap(), Ended::Lost, "it was not moved");
        let again = world.sent();
        wire.bring(&world.reply(again));
        assert_eq!(world.join(again), Ended::Replied);
        world.assert_empty();
    });
}

/// A write fails while another caller leads, waits, or is on the way there. Both get the loss; a
/// connection that is made meanwhile is not taken for the lost one.
#[test]
fn loom_bound_write_fails() {
    explore(|| {
        let world = World::new();
        let one = world.sent();
        lock(&world.wire.state).broken = true;
        let leading = world.joined(one);
        let key = world.link.calls.register().unwrap();
        if world.link.send(key, &b'!').is_ok() {
            assert_eq!(world.join(key), Ended::Lost);
        } else {
            world.link.calls.forget(key);
        }
        let wire = new_wire(100);
        while world
            .link
            .begin(Arc::clone(&wire) as Arc<dyn Line>)
            .is_err()
        {
            thread::yield_now();
        }
        assert_eq!(leading.join().unwrap(), Ended::Lost);
        let again = world.sent();
        wire.bring(&world.reply(again));
        assert_eq!(world.join(again), Ended::Replied);
        world.assert_empty();
    });
}

/// S1: a wait is called off while its thread takes the lead, waits, or is on the way there. The
/// thread ends its wait, and the lead is open; a call of the leader that comes too early is no
/// reason to wait.
#[test]
fn loom_bound_leader_called_off() {
    explore(|| {
        let world = World::new();
        let key = world.sent();
        let is_over = Arc::new(AtomicBool::new(false));
        let caller = caller_until(&world, key, &is_over);
        is_over.swap(true, Ordering::AcqRel);
        world.link.rouse(key.index);
        assert_eq!(caller.join().unwrap(), Ended::TimedOut);
        world.wire.bring(&world.reply(key));
        assert_eq!(world.join(key), Ended::Replied, "it may be joined again");
        world.assert_empty();
    });
}

/// The same while another caller leads: the sleeper ends its wait without an election, and is found
/// awake afterwards.
#[test]
fn loom_bound_sleeper_called_off() {
    explore(|| {
        let world = World::new();
        let [key, own] = [world.sent(), world.sent()];
        let is_over = Arc::new(AtomicBool::new(false));
        let leading = world.leads();
        let caller = caller_until(&world, key, &is_over);
        is_over.swap(true, Ordering::AcqRel);
        world.link.rouse(key.index);
        assert_eq!(caller.join().unwrap(), Ended::TimedOut);
        world.wire.bring(&world.reply(own));
        let told = leading.lead(own, Wants::Data, NEVER);
        assert!(matches!(told, Some(Joined::Replied)));
        drop(told);
        world.link.calls.forget(key);
        world.link.calls.forget(own);
        assert!(!world.link.callers().led);
    });
}

/// Joins on a thread, until it is called off.
fn caller_until(
    world: &Arc<World>,
    key: Key,
    is_over: &Arc<AtomicBool>,
) -> thread::JoinHandle<Ended> {
    let (world, is_over) = (Arc::clone(world), Arc::clone(is_over));
    thread::spawn(move || {
        let is_over = || is_over.load(Ordering::Acquire);
        match world.link.join(key, Wants::Data, NEVER.unless(&is_over)) {
            Joined::TimedOut => Ended::TimedOut,
            _ => panic!("nobody answers"),
        }
    })
}
