//! Replies, elections, deadlines and forgetting.

use super::*;

/// B1, B3: two callers, replies in the other order, both there before or during the joins. The
/// leader reads for the other; the caller that has its reply first leaves the lead to the other, or
/// open.
#[test]
fn loom_bound_two_callers() {
    explore(|| {
        let world = World::new();
        let [one, other] = [world.sent(), world.sent()];
        let caller = world.joined(other);
        world.wire.bring(&world.reply(other));
        world.wire.bring(&world.reply(one));
        assert_eq!(world.join(one), Ended::Replied);
        assert_eq!(caller.join().unwrap(), Ended::Replied);
        world.assert_empty();
    });
}

/// B3, E10: the last one leaves with its reply while another comes. That one leads, or is elected:
/// its own reply comes only after the first one has gone.
#[test]
fn loom_bound_last_one_leaves() {
    explore(|| {
        let world = World::new();
        let [one, other] = [world.sent(), world.sent()];
        world.wire.bring(&world.reply(one));
        let caller = world.joined(other);
        assert_eq!(world.join(one), Ended::Replied);
        world.wire.bring(&world.reply(other));
        assert_eq!(caller.join().unwrap(), Ended::Replied);
        world.assert_empty();
    });
}

/// `timeout_races_reply_dispatch` (TAO): the leader completes a reply while the one that waits for
/// it gives up. It has its reply or it has not; either way the slot is given back once, and the
/// leader reads on.
#[test]
fn loom_bound_reply_against_deadline() {
    explore(|| {
        let world = World::new();
        let [leader, late] = [world.sent(), world.sent()];
        let leading = world.leads();
        world.lay_down(late);
        world.wire.bring(&world.reply(late));
        world.wire.bring(&world.reply(leader));
        let sleeper = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let told = world
                    .link
                    .sleep(late, Patience::until(Some(Timestamp::PAST)));
                match told {
                    Err(Joined::Replied) => {
                        assert_eq!(world.link.calls.take_reply(late), [late.index as u8]);
                    }
                    Err(Joined::TimedOut) => {}
                    _ => panic!("neither its reply nor its deadline"),
                }
                drop(told);
                world.link.calls.forget(late);
            })
        };
        let told = leading.lead(leader, Wants::Data, NEVER);
        assert!(matches!(told, Some(Joined::Replied)));
        drop(told);
        world.link.calls.forget(leader);
        sleeper.join().unwrap();
        world.assert_empty();
    });
}

/// `elected_then_timed_out_passes_on`: the leader elects a sleeper whose time is over. It passes
/// the lead on to the sleeper behind it, which no other thread would wake; if it had left before,
/// that sleeper is elected at once.
#[test]
fn loom_bound_election_against_deadline() {
    explore(|| {
        let world = World::new();
        let [leader, late, last] = [world.sent(), world.sent(), world.sent()];
        let leading = world.leads();
        world.lay_down(late);
        world.lay_down(last);
        let sleeper = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let deadline = Patience::until(Some(Timestamp::PAST));
                let told = match world.link.sleep(late, deadline) {
                    Ok(elected) => elected.lead(late, Wants::Data, deadline),
                    Err(told) => Some(told),
                };
                assert!(matches!(told, Some(Joined::TimedOut)));
            })
        };
        drop(leading);
        sleeper.join().unwrap();
        assert_eq!(world.phase(last), Phase::Elected);
        assert_eq!(world.phase(late), Phase::Expected);
        // And that one finds its reply.
        world.wire.bring(&world.reply(last));
        let elected = world.link.sleep(last, NEVER).ok().unwrap();
        drop(elected.lead(last, Wants::Data, NEVER));
        assert_eq!(world.phase(last), Phase::Replied);
        for key in [leader, late, last] {
            world.link.calls.forget(key);
        }
        assert!(!world.link.callers().led);
    });
}

/// A call is forgotten while its reply is read: it is late or unheard of, and its slot is given
/// back once.
#[test]
fn loom_bound_forgotten_against_reply() {
    explore(|| {
        let world = World::new();
        let [one, other] = [world.sent(), world.sent()];
        let forgetting = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.link.calls.forget(other))
        };
        world.wire.bring(&world.reply(other));
        world.wire.bring(&world.reply(one));
        assert_eq!(world.join(one), Ended::Replied);
        forgetting.join().unwrap();
        world.assert_empty();
    });
}

/// A caller that gave up joins again while the leader leaves: it is found in the line where it was,
/// or leads.
#[test]
fn loom_bound_joined_again() {
    explore(|| {
        let world = World::new();
        let [one, other] = [world.sent(), world.sent()];
        world.wire.bring(&world.reply(one));
        let caller = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                // In time or not: it has not forgotten the call.
                let _ = world.join_and_keep(other, Some(Timestamp::PAST));
                match world.phase(other) {
                    Phase::Replied => world.link.calls.forget(other),
                    _ => assert_eq!(world.join(other), Ended::Replied),
                }
            })
        };
        assert_eq!(world.join(one), Ended::Replied);
        world.wire.bring(&world.reply(other));
        caller.join().unwrap();
        world.assert_empty();
    });
}

/// A call was forgotten in the line of sleepers, and its place is taken by a new one, which sleeps
/// there while the leader leaves. It is elected where it is, or was taken off the line before, and
/// leads.
#[test]
fn loom_bound_in_the_place_of_another() {
    explore(|| {
        let world = World::new();
        let [leader, gone] = [world.sent(), world.sent()];
        let leading = world.leads();
        world.lay_down(gone);
        assert!(world.link.calls.slot(gone).word.withdraw());
        world.link.calls.forget(gone);
        let others = [(); 2].map(|()| world.link.calls.register().unwrap());
        let new = world.sent();
        assert_eq!(new.index, gone.index, "there is no other place");
        let caller = world.joined(new);
        drop(leading);
        // No other thread would wake it.
        world.wire.bring(&world.reply(new));
        assert_eq!(caller.join().unwrap(), Ended::Replied);
        for key in others.into_iter().chain([leader]) {
            world.link.calls.forget(key);
        }
        let callers = world.link.callers();
        assert!(!callers.led && callers.under_way == 0);
    });
}

/// B3: a caller takes its reply and goes before the leader has it off the line. Another call has
/// its place, and sleeps there when the leader gets to that: it stays in the line, and is elected
/// when the leader leaves.
#[test]
fn loom_bound_in_the_place_of_one_that_was_told() {
    explore(|| {
        let world = World::new();
        let gone = world.sent();
        let others = [(); 3].map(|()| world.link.calls.register().unwrap());
        let leading = world.leads();
        world.lay_down(gone);
        world.wire.bring(&world.reply(gone));
        let caller = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                while world.phase(gone) != Phase::Replied {
                    thread::yield_now();
                }
                world.link.calls.forget(gone);
                let new = world.sent_when_there_is_room();
                assert_eq!(new.index, gone.index, "there is no other place");
                // The leader has read already: only its own caller reads that.
                world.wire.bring(&world.reply(new));
                assert_eq!(world.join(new), Ended::Replied);
            })
        };
        leading.read_once().unwrap();
        caller.join().unwrap();
        others
            .into_iter()
            .for_each(|key| world.link.calls.forget(key));
        world.assert_empty();
    });
}

/// The hand-over of the event: a sleeper wants to read its reply by itself. The leader gives it the
/// lead in the middle of the stream; it reads to the end of its body and passes the lead on, to the
/// one that gave it.
#[test]
fn loom_bound_reader() {
    explore(|| {
        let world = World::new();
        let [one, other] = [world.sent(), world.sent()];
        world.wire.bring(&world.reply(other));
        world.wire.bring(&world.reply(one));
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                match world.link.join(other, Wants::ToRead, NEVER) {
                    Joined::Reads(mut leading) => {
                        let mut body = [0; 8];
                        assert_eq!(leading.read_body(&mut body, NEVER).unwrap(), 1);
                        assert_eq!(body[0], other.index as u8);
                        leading.end_body(other);
                    }
                    // It came too late to read it by itself.
                    Joined::Replied => {
                        assert_eq!(world.link.calls.take_reply(other), [other.index as u8]);
                    }
                    Joined::Lost | Joined::TimedOut => panic!("its reply came"),
                }
                world.link.calls.forget(other);
            })
        };
        assert_eq!(world.join(one), Ended::Replied);
        reader.join().unwrap();
        world.assert_empty();
    });
}

/// Slots are taken and given back by two threads at once: none is lost, none is there twice.
#[test]
fn loom_bound_slots() {
    explore(|| {
        let world = World::new();
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let key = world.link.calls.register().unwrap();
                world.link.calls.forget(key);
                world.link.calls.register().unwrap()
            })
        };
        let key = world.link.calls.register().unwrap();
        world.link.calls.forget(key);
        let key = world.link.calls.register().unwrap();
        let others = other.join().unwrap();
        assert_ne!(key.index, others.index);
        world.link.calls.forget(key);
        world.link.calls.forget(others);
        world.assert_empty();
    });
}

/// Two calls take the places of forgotten ones, one after the other or at once, where only two ids
/// exist: no caller gets the id whose reply is still owed (B1).
#[test]
fn loom_bound_reclaimed_at_once() {
    explore(|| {
        let calls = Arc::new(Calls::new(1, 1).unwrap());
        let forgotten = |calls: &Calls| {
            let key = calls.register()?;
            let word = &calls.slot(key).word;
            assert!(word.queue());
            assert_eq!(word.begin_write(), Ok(()));
            let _ = word.end_write();
            calls.forget(key);
            Some(key.generation)
        };
        let owed = forgotten(&calls).expect("it is the first");
        let other = {
            let calls = Arc::clone(&calls);
            thread::spawn(move || forgotten(&calls))
        };
        let one = forgotten(&calls);
        let other = other.join().unwrap();
        assert_ne!(one, Some(owed));
        assert_ne!(other, Some(owed));
        assert_ne!(one, other, "there is one other id");
    });
}
