//! The bound association keeps its promises (B1 to B4), and does not make the paper's mistakes (E8
//! to E15, E20, E21, E23).

use std::{
    io::{self, Write},
    thread,
    time::Duration,
};

use crate::support::{
    self,
    bound::{self, call, frame, mux, mux_of, wait_asleep, Framed, Plain},
    bounded, wait_until, LONG,
};
use paceline::bound::{Builder, Elect, Mux};

const SHORT: Duration = Duration::from_millis(20);

/// B1: replies in another order than requests; each caller has its own. The leader reads for the
/// others, wakes exactly those whose reply is there, and leads on.
#[test]
fn b1_a_reply_reaches_exactly_its_caller() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let callers: Vec<_> = (0..8_u8)
            .map(|number| {
                let mux = mux.clone();
                let caller = thread::spawn(move || call(&mux, &[number]));
                (number, caller)
            })
            .collect();
        let mut requests: Vec<_> = (0..8).map(|_| peer.request()).collect();
        wait_asleep(&mux, 7);
        requests.reverse();
        for (id, body) in requests {
            peer.reply(id, &[body[0], 1, 2, 3]);
        }
        for (number, caller) in callers {
            assert_eq!(caller.join().unwrap().unwrap(), [number, 1, 2, 3]);
        }
        let seen = mux.snapshot();
        assert_eq!((seen.calls, seen.replies), (8, 8));
        assert_eq!(mux.callers(), paceline::bound::Callers::default());
    });
}

/// B2: every caller ends: by its reply, its deadline, by forgetting the call, or by the loss of the
/// connection.
#[test]
fn b2_a_waiter_always_ends() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let replied = mux.prepare().unwrap().send(b"replied").unwrap();
        let (id, _) = peer.request();
        peer.reply(id, b"yes");
        assert_eq!(*replied.join(LONG).unwrap(), *b"yes");

        let late = mux.prepare().unwrap().send(b"late").unwrap();
        let told = late.join(SHORT).unwrap_err();
        assert_eq!(told.error.kind(), io::ErrorKind::TimedOut);
        drop(told);
        drop(mux.prepare().unwrap());
        drop(mux.prepare().unwrap().send(b"forgotten").unwrap());
        let callers = mux.callers();
        assert_eq!((callers.under_way, callers.forgotten), (0, 2));

        let lost = mux.prepare().unwrap().send(b"lost").unwrap();
        drop(peer);
        let told = lost.join(LONG).unwrap_err();
        assert_ne!(told.error.kind(), io::ErrorKind::TimedOut);
        drop(told);
        let callers = mux.callers();
        assert_eq!((callers.under_way, callers.forgotten), (0, 0));
    });
}

/// B3: the leader leaves with its reply while others sleep: it elects exactly one of them, and so
/// on to the last one.
#[test]
fn b3_while_anyone_sleeps_somebody_leads() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let callers: Vec<_> = (0..4_u8)
            .map(|number| {
                let mux_of_caller = mux.clone();
                let caller = thread::spawn(move || call(&mux_of_caller, &[number]));
                wait_until(|| {
                    let callers = mux.callers();
                    callers.waits && callers.asleep == usize::from(number)
                });
                caller
            })
            .collect();
        // Each leader's own reply comes first: the oldest leads next.
        for (number, caller) in callers.into_iter().enumerate() {
            let (id, body) = peer.request();
            assert_eq!(body, [number as u8]);
            peer.reply(id, b"");
            caller.join().unwrap().unwrap();
            wait_until(|| mux.callers().asleep == 2_usize.saturating_sub(number));
        }
        let seen = mux.snapshot();
        assert_eq!(seen.elections, 3);
        assert_eq!(seen.wakes, 3, "nobody else was woken");
        assert_eq!(seen.data_handed_over, 0, "every thread read its own reply");
        assert_eq!(seen.leads_left_open, 1);
    });
}

/// B4, E12: in the paper an unknown, late or doubled reply dereferences nothing. Now they are
/// counted, and harm nobody.
#[test]
fn b4_e12_unasked_replies_harm_nobody() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let late = mux.prepare().unwrap().send(b"late").unwrap();
        let (late_id, _) = peer.request();
        drop(late);
        let call = mux.prepare().unwrap().send(b"asked").unwrap();
        let (id, _) = peer.request();
        peer.reply(late_id, b"late");
        peer.reply(77_777, b"never asked");
        peer.reply(id, b"once");
        assert_eq!(*call.join(LONG).unwrap(), *b"once");
        let again = mux.prepare().unwrap().send(b"asked again").unwrap();
        peer.reply(id, b"twice");
        let (next, _) = peer.request();
        peer.reply(next, b"right");
        assert_eq!(*again.join(LONG).unwrap(), *b"right");
        let seen = mux.snapshot();
        let unasked = (
            seen.late_replies,
            seen.doubled_replies,
            seen.unknown_replies,
        );
        assert_eq!(unasked, (1, 1, 1));
        assert_eq!(mux.callers().forgotten, 0);
    });
}

/// E8: in the paper the leader may not be in its own table, and does not find its own reply. Here
/// it is registered before it sends, so a leader that is alone finds it: with one write, one wait
/// and one read, and no wake at all.
#[test]
fn e8_the_leader_finds_its_own_reply() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let answering = thread::spawn(move || {
            for _ in 0..100 {
                let (id, body) = peer.request();
                peer.reply(id, &body);
            }
            peer
        });
        for number in 0..100_u8 {
            assert_eq!(call(&mux, &[number; 50]).unwrap(), [number; 50]);
        }
        drop(answering.join().unwrap());
        let seen = mux.snapshot();
        assert_eq!((seen.writes, seen.waits, seen.reads), (100, 100, 100));
        assert_eq!((seen.wakes, seen.elections, seen.kicks), (0, 0, 0));
    });
}

/// E9: in the paper a promoted waiter was erased from the table, and its reply is not found. Here
/// the elected one stays until its reply.
#[test]
fn e9_the_elected_finds_its_reply() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let first = spawn_call(&mux, b"first");
        let (first_id, _) = peer.request();
        wait_asleep(&mux, 0);
        let second = spawn_call(&mux, b"second");
        let (second_id, _) = peer.request();
        wait_asleep(&mux, 1);
        peer.reply(first_id, b"1");
        assert_eq!(first.join().unwrap().unwrap(), b"1");
        wait_asleep(&mux, 0);
        peer.reply(second_id, b"2");
        assert_eq!(second.join().unwrap().unwrap(), b"2");
        assert_eq!(mux.snapshot().elections, 1);
    });
}

/// E10: in the paper the last one leaves without giving the lead back, and the next caller waits
/// for ever.
#[test]
fn e10_the_last_one_gives_the_lead_back() {
    bounded(|| {
        let (mux, mut peer) = mux();
        for _ in 0..3 {
            let caller = spawn_call(&mux, b"x");
            let (id, _) = peer.request();
            peer.reply(id, b"y");
            caller.join().unwrap().unwrap();
            assert!(!mux.callers().led);
        }
        assert_eq!(mux.snapshot().leads_left_open, 3);
    });
}

/// E11: in the paper a waiter that has registered and not joined yet may be elected: nobody leads
/// until it joins, and if its send failed, for ever. Here only a thread that sleeps is elected; a
/// registration that is dropped is forgotten.
#[test]
fn e11_only_a_sleeper_is_elected() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let registered = mux.prepare().unwrap();
        let sent = mux.prepare().unwrap().send(b"sent").unwrap();
        let (sent_id, _) = peer.request();
        let leader = spawn_call(&mux, b"leader");
        let (leader_id, _) = peer.request();
        wait_asleep(&mux, 0);
        let sleeper = spawn_call(&mux, b"sleeper");
        let (sleeper_id, _) = peer.request();
        wait_asleep(&mux, 1);
        // The leader leaves: of the three that are left one sleeps.
        peer.reply(leader_id, b"");
        leader.join().unwrap().unwrap();
        wait_asleep(&mux, 0);
        peer.reply(sleeper_id, b"");
        sleeper.join().unwrap().unwrap();
        assert!(!mux.callers().led, "nobody sleeps, so nobody is elected");
        let refused = registered.send(b"refused by the protocol").unwrap_err();
        drop(refused.value);
        peer.reply(sent_id, b"there");
        assert_eq!(*sent.join(LONG).unwrap(), *b"there");
        assert_eq!(mux.callers().under_way, 0);
    });
}

/// E13: in the paper a blocking read of another's body holds up everyone. Here half a body is fed
/// as it comes: the leader whose time is over leaves, and whoever comes next reads on from there.
#[test]
fn e13_half_a_body_holds_up_nobody() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let slow = mux.prepare().unwrap().send(b"slow").unwrap();
        let (slow_id, _) = peer.request();
        let body = [7; 1000];
        let whole = frame(slow_id, &body);
        peer.send(&whole[..500]);
        let leader = mux.prepare().unwrap().send(b"leader").unwrap();
        let told = leader.join(SHORT).unwrap_err();
        assert_eq!(told.error.kind(), io::ErrorKind::TimedOut);
        let (leader_id, _) = peer.request();
        peer.send(&whole[500..]);
        peer.reply(leader_id, b"at last");
        assert_eq!(*told.value.join(LONG).unwrap(), *b"at last");
        assert_eq!(*slow.join(Duration::ZERO).unwrap(), body);
    });
}

/// E14: in the paper a lost connection is told to the leader only. Here everyone is told, at once:
/// those who sleep, the leader, and those who have not joined yet; whether it ended, was reset, or
/// sent nonsense.
#[test]
fn e14_a_loss_is_told_to_everyone() {
    bounded(|| {
        for end in ["closed", "nonsense", "too long", "a panic"] {
            let (mux, mut peer) = mux();
            let not_joined = mux.prepare().unwrap().send(b"not joined").unwrap();
            peer.request();
            let callers: Vec<_> = (0..4)
                .map(|_| {
                    let caller = spawn_call(&mux, b"x");
                    peer.request();
                    caller
                })
                .collect();
            wait_asleep(&mux, 3);
            match end {
                "closed" => drop(peer),
                "nonsense" => peer.send(&frame_of_length(1, 0xBAD)),
                "too long" => peer.send(&frame_of_length(1, 0x7FFF_FFFF)),
                _ => peer.send(&frame_of_length(1, 0xDEAD)),
            }
            let mut panics = 0;
            for caller in callers {
                match caller.join() {
                    Ok(told) => assert!(told.is_err(), "{end}"),
                    Err(_) => panics += 1,
                }
            }
            assert_eq!(panics, usize::from(end == "a panic"), "{end}");
            assert!(not_joined.join(LONG).is_err(), "{end}");
            assert!(mux.is_lost() && mux.prepare().is_err(), "{end}");
            assert_eq!(mux.callers(), paceline::bound::Callers::default(), "{end}");
        }
    });
}

fn frame_of_length(id: u32, length: u32) -> Vec<u8> {
    [id.to_be_bytes(), length.to_be_bytes()].concat()
}

/// E20: in the paper a reply that is there before the join skips the wait, and the loop then
/// overwrites the leader's id: two leaders. Here who joins late returns at once and touches
/// nothing: the leader is still in its wait.
#[test]
fn e20_reply_before_the_join_touches_nothing() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let early = mux.prepare().unwrap().send(b"early").unwrap();
        let (early_id, _) = peer.request();
        let leader = spawn_call(&mux, b"leader");
        let (leader_id, _) = peer.request();
        peer.reply(early_id, b"there");
        wait_until(|| mux.snapshot().replies == 1 && mux.callers().waits);
        let before = mux.snapshot();
        assert_eq!(*early.join(LONG).unwrap(), *b"there");
        assert_eq!(mux.snapshot(), before);
        assert!(mux.callers().waits, "and the leader leads");
        peer.reply(leader_id, b"");
        leader.join().unwrap().unwrap();
    });
}

/// E21: in the paper the table is searched and changed while the monitor is released. Here
/// registering, sending, joining and forgetting go on in many threads while one reads; nobody gets
/// what is another's.
#[test]
fn e21_the_table_changes_while_it_is_read() {
    bounded(|| {
        let (mux, peer) = mux();
        echo(peer);
        let threads: Vec<_> = (0..6_u8)
            .map(|thread| {
                let mux = mux.clone();
                thread::spawn(move || {
                    for round in 0..200_u8 {
                        let request = [thread, round, thread ^ round];
                        match round % 4 {
                            0 => drop(mux.prepare().unwrap()),
                            1 => drop(mux.prepare().unwrap().send(&request).unwrap()),
                            _ => assert_eq!(call(&mux, &request).unwrap(), request),
                        }
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(mux.callers().under_way, 0);
    });
}

/// E23: in the paper the bound join has no time-out. Here it has one deadline for the whole join,
/// asleep or leading.
#[test]
fn e23_a_deadline_in_every_role() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let leader = spawn_call(&mux, b"leader");
        let (id, _) = peer.request();
        wait_asleep(&mux, 0);
        // As a sleeper.
        let told = mux.call(b"x", SHORT).unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::TimedOut);
        peer.reply(id, b"");
        leader.join().unwrap().unwrap();
        // As the leader.
        let told = mux.call(b"x", SHORT).unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::TimedOut);
        assert_eq!(mux.snapshot().timed_out, 2);
        assert!(!mux.callers().led);
    });
}

/// A caller lets others run and looks for its reply before it sleeps. With a slow peer that brings
/// nothing, and is left out, the longer the more often: of 31 callers the 1st, 3rd, 7th, 15th and
/// 31st look.
#[test]
fn looks_in_vain_are_left_out() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let leader = spawn_call(&mux, b"leader");
        let (id, _) = peer.request();
        wait_asleep(&mux, 0);
        for _ in 0..31 {
            let told = mux.call(b"x", Duration::from_millis(2)).unwrap_err();
            assert_eq!(told.kind(), io::ErrorKind::TimedOut);
        }
        // Fewer, if a caller was late before it could look.
        let seen = mux.snapshot();
        assert!((1..=5).contains(&seen.looks_vain), "{seen:?}");
        assert_eq!(seen.looks_found, 0);
        peer.reply(id, b"");
        leader.join().unwrap().unwrap();
    });
}

/// Who wants to read its reply by itself sleeps at once: if the leader found it awake, it would
/// read the reply into a buffer.
#[test]
fn who_reads_by_itself_does_not_look() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let leader = spawn_call(&mux, b"leader");
        let (leader_id, _) = peer.request();
        wait_asleep(&mux, 0);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let call = mux.prepare().unwrap().send(b"x").unwrap();
                let body = call.join_to_read(LONG).unwrap();
                body.is_direct()
            });
            let (id, _) = peer.request();
            wait_asleep(&mux, 1);
            let seen = mux.snapshot();
            assert_eq!((seen.looks_found, seen.looks_vain), (0, 0));
            peer.reply(id, b"long");
            assert!(reader.join().unwrap());
        });
        peer.reply(leader_id, b"");
        leader.join().unwrap().unwrap();
    });
}

/// Oldest first, where replies come in order: every thread reads its own, and none is handed over.
/// Newest first the one that leads reads for all the others.
#[test]
fn the_order_of_election() {
    bounded(|| {
        for (elect, order) in [(Elect::Oldest, [1, 2, 3]), (Elect::Newest, [3, 2, 1])] {
            let (mux, mut peer) = mux_of(Builder::new().elect(elect), Framed::default());
            let mut callers = Vec::new();
            let mut ids = Vec::new();
            for number in 0..4 {
                callers.push(Some(spawn_call(&mux, b"x")));
                ids.push(peer.request().0);
                wait_asleep(&mux, number);
            }
            // Each reply is for the one that must be leading now.
            for (left, number) in [0].into_iter().chain(order).enumerate() {
                let handed_over = mux.snapshot().data_handed_over;
                peer.reply(ids[number], b"");
                let caller = callers[number].take().unwrap();
                caller.join().unwrap().unwrap();
                assert_eq!(mux.snapshot().data_handed_over, handed_over, "{elect:?}");
                wait_until(|| mux.callers().asleep == 2_usize.saturating_sub(left));
            }
            assert_eq!(mux.snapshot().elections, 3);
        }
    });
}

/// A protocol without ids: replies belong to requests by their order. The one whose reply comes
/// next is elected, also if others sleep longer; whoever was forgotten keeps its place in the
/// order.
#[test]
fn replies_in_order_without_ids() {
    bounded(|| {
        let builder = Builder::new().elect(Elect::NextReply);
        let (mux, mut peer) = mux_of(builder, Plain);
        let calls: Vec<_> = (0..3_u8)
            .map(|number| mux.prepare().unwrap().send(&[number]).unwrap())
            .collect();
        let forgotten = mux.prepare().unwrap().send(b"forgotten").unwrap();
        drop(forgotten);
        for number in 0..3_u8 {
            assert_eq!(peer.plain_request(), [number]);
        }
        let [first, second, third] = calls.try_into().unwrap();
        thread::scope(|scope| {
            let wait = |count| wait_asleep(&mux, count);
            let joined = |call: paceline::bound::Sent<'_, Plain>| {
                call.join(LONG).map(|reply| reply.to_vec()).unwrap()
            };
            let first = scope.spawn(move || joined(first));
            wait(0);
            let third = scope.spawn(move || joined(third));
            wait(1);
            let second = scope.spawn(move || joined(second));
            wait(2);
            peer.send(b"\x01a");
            assert_eq!(first.join().unwrap(), b"a");
            wait(1);
            peer.send(b"\x01b");
            assert_eq!(second.join().unwrap(), b"b");
            wait(0);
            peer.send(b"\x01c\x04late");
            assert_eq!(third.join().unwrap(), b"c");
        });
        let seen = mux.snapshot();
        assert_eq!((seen.elections, seen.data_handed_over), (2, 0));
        let last = mux.prepare().unwrap().send(b"last").unwrap();
        assert_eq!(peer.plain_request(), b"forgotten");
        assert_eq!(peer.plain_request(), b"last");
        peer.send(b"\x01d\x01e");
        assert_eq!(*last.join(LONG).unwrap(), *b"d");
        assert_eq!(mux.snapshot().late_replies, 1);
        assert_eq!(mux.snapshot().unknown_replies, 1);
    });
}

/// What the peer says of its own accord reaches the hook, and nobody's reply.
#[test]
fn messages_of_the_peers_own() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let call = mux.prepare().unwrap().send(b"x").unwrap();
        let (id, _) = peer.request();
        peer.reply(bound::PEERS_OWN, b"by the way");
        peer.reply(id, b"y");
        assert_eq!(*call.join(LONG).unwrap(), *b"y");
        assert_eq!(*mux.protocol().heard.lock().unwrap(), [b"by the way"]);
        assert_eq!(mux.snapshot().peer_messages, 1);
    });
}

/// There is room for so many calls and no more; who is refused is told, and a place that is given
/// back is there for the next. Replies that are kept keep their place.
#[test]
fn the_number_of_calls_is_bounded() {
    bounded(|| {
        let (mux, peer) = mux_of(Builder::new().calls(2), Framed::default());
        echo(peer);
        let reply = mux.call(b"x", LONG).unwrap();
        let registered = mux.prepare().unwrap();
        let told = mux.prepare().unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::QuotaExceeded);
        drop(reply);
        drop(mux.prepare().unwrap());
        drop(registered);
        // More calls than ids of so few bits can tell apart are refused at once.
        let (near, _far) = support::tcp_pair();
        let many = Builder::new().calls(1 << 31);
        let refused = many.build(near, Framed::default()).unwrap_err();
        assert_eq!(refused.error.kind(), io::ErrorKind::InvalidInput);
    });
}

fn spawn_call(
    mux: &Mux<Framed>,
    request: &'static [u8],
) -> thread::JoinHandle<io::Result<Vec<u8>>> {
    let mux = mux.clone();
    thread::spawn(move || call(&mux, request))
}

/// Answers everything with itself, until the connection ends.
fn echo(mut peer: bound::Peer) {
    thread::spawn(move || {
        while let Ok((id, body)) = peer.try_request() {
            // Who asked may have gone meanwhile.
            let _ = peer.0.write_all(&frame(id, &body));
        }
    });
}
