//! Senders that combine, and output that is kept.

use super::*;

/// Two send at once: one writes for both, or each for itself; both requests are written, whole.
#[test]
fn loom_bound_senders_combine() {
    explore(|| {
        let world = World::new();
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.sent())
        };
        let keys = [world.sent(), other.join().unwrap()];
        let written = std::mem::take(&mut lock(&world.wire.state).written);
        let ids = keys.map(|key| world.link.calls.id(key) as u8);
        let [one, other] = ids;
        assert!(
            written == [one, b'?', other, b'?'] || written == [other, b'?', one, b'?'],
            "{written:?}"
        );
        for key in keys {
            world.wire.bring(&world.reply(key));
        }
        for key in keys {
            assert_eq!(world.join(key), Ended::Replied);
        }
        world.assert_empty();
    });
}

/// The wire takes nothing, and the leader is in its wait or on the way there. A sender leaves its
/// request to it; as soon as there is room the leader sends it. The leader's own reply comes only
/// after that.
#[test]
fn loom_bound_kept_output() {
    explore(|| {
        let world = World::with_room(2);
        let leader = world.sent();
        lock(&world.wire.state).echo = world.reply(leader).to_vec();
        let leading = world.joined(leader);
        let kept = world.sent();
        world.wire.change(|state| state.room = 100);
        assert_eq!(leading.join().unwrap(), Ended::Replied);
        world.wire.bring(&world.reply(kept));
        assert_eq!(world.join(kept), Ended::Replied);
        world.assert_empty();
    });
}

/// A request is forgotten while it waits to be written: it is written or not, and its slot is given
/// back once.
#[test]
fn loom_bound_forgotten_against_writing() {
    explore(|| {
        let world = World::with_room(0);
        let kept = world.sent();
        let writing = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.wire.change(|state| state.room = 100);
                let key = world.sent();
                world.wire.bring(&world.reply(key));
                world.join(key)
            })
        };
        world.link.calls.forget(kept);
        assert_eq!(writing.join().unwrap(), Ended::Replied);
        let reply = world.reply(kept);
        if world.link.callers().forgotten == 1 {
            let last = world.sent();
            world.wire.bring(&reply);
            world.wire.bring(&world.reply(last));
            assert_eq!(world.join(last), Ended::Replied);
        }
        world.assert_empty();
    });
}

/// Two replies come at once, and one of their callers sends again at once, while the leader may
/// have the pen: all that is sent is written.
#[test]
fn loom_bound_pen_of_the_leader() {
    explore(|| {
        let world = World::new();
        let (own, others) = (world.sent(), world.sent());
        let replies = [world.reply(others), world.reply(own)].concat();
        world.wire.bring(&replies);
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                assert_eq!(world.join(others), Ended::Replied);
                world.sent()
            })
        };
        assert_eq!(world.join(own), Ended::Replied);
        let again = other.join().unwrap();
        assert_eq!(lock(&world.wire.state).written.len(), 6);
        world.wire.bring(&world.reply(again));
        assert_eq!(world.join(again), Ended::Replied);
        world.assert_empty();
    });
}
