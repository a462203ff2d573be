//! Each limit closes the connection that meets it, is counted, and is named in the access log and
//! in `Ended::Limit`. (`output` is in `output.rs`, `overload` in `engines.rs`, those of TLS in
//! `secure`, and `mailbox` in `rooms`, where the connection goes on.)

use std::{sync::mpsc, time::Duration};

use paceline_server::{
    codec::{dot_chunks, line},
    LeastRate, Limit, Limits, Next,
};

use crate::support::{
    actor::Actor,
    times_met,
    world::{assert_gets, finish, on_both_engines, MAIN},
};

/// No limit but those that a test asks for.
fn none() -> Limits {
    Limits::default()
        .silent(Duration::from_secs(1_000_000))
        .least_rate(None)
        .idle(None)
}

const RATE: LeastRate = LeastRate {
    bytes_per_second: 100,
    grace: Duration::from_secs(5),
};

/// A connection too many gets its refusal whole, is counted, and takes nothing from the others. A
/// place that becomes free is taken by the next one.
#[test]
fn full_house() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let listen = world.listen().limits(none().connections(2));
        let listen = listen.refusal("-ERR too many\r\n");
        let builder = world.builder();
        let server = builder.listener(listen, line(80), move |_| Actor::new(&calls));
        let server = world.start(server);
        let (a, b) = (world.inlet.connect(), world.inlet.connect());
        let refused = world.inlet.connect();
        refused.wait_closed();
        assert_gets(&refused, "-ERR too many\r\n");
        assert_eq!(times_met(&server, MAIN, Limit::Connections), 1);
        for peer in [&a, &b] {
            peer.send(b"x\n");
            assert_gets(peer, "x\r\n");
        }
        finish(&a);
        let c = world.inlet.connect();
        c.send(b"y\n");
        assert_gets(&c, "y\r\n");
        assert_eq!(world.calls.count("start"), 3);
    });
}

/// A client that says nothing holds a connection for ten seconds, not for ever.
#[test]
fn silent_connection() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || Actor::new(&calls));
        let peer = world.inlet.connect();
        world.pass(Duration::from_millis(9_900));
        assert!(!peer.is_closed_by_pool());
        world.pass(Duration::from_millis(200));
        peer.wait_closed();
        world.assert_ended_by(&server, Limit::Silent);
    });
}

/// axum 2741: the time for a head was inert without a timer, so a client could take for ever. Here
/// the time of an item ends it, though the client sends a byte now and then.
#[test]
fn header_timeout_really_fires() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let limits = none().item_time(Duration::from_secs(30));
        let server = world.serve(limits, line(80), move || Actor::new(&calls));
        let peer = world.inlet.connect();
        world.pass_seconds(100);
        for _ in 0..29 {
            peer.send(b"x");
            world.pass_seconds(1);
        }
        assert!(!peer.is_closed_by_pool());
        peer.send(b"x");
        world.pass_seconds(2);
        peer.wait_closed();
        world.assert_ended_by(&server, Limit::ItemTime);
    });
}

/// The time of an item begins with its own first byte, and ends with its last one.
#[test]
fn each_item_has_a_time_of_its_own() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let limits = none().item_time(Duration::from_secs(30));
        let _server = world.serve(limits, line(80), move || Actor::new(&calls));
        let peer = world.inlet.connect();
        peer.send(b"a");
        for _ in 0..5 {
            peer.send(b"b\na");
            assert_gets(&peer, "ab\r\n");
            world.pass_seconds(20);
        }
        peer.send(b"\n");
        assert_gets(&peer, "a\r\n");
        world.pass_seconds(1000);
        assert!(!peer.is_closed_by_pool());
    });
}

/// A message in many chunks has one time, also when its chunks need several turns.
#[test]
fn chunks_share_the_time_of_their_message() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let limits = none().item_time(Duration::from_secs(30)).per_turn(1, 1);
        let server = world.serve(limits, dot_chunks(80), move || {
            Actor::new(&calls).on_item(|item, cx| {
                cx.send(if item.is_last() { "end" } else { "." })?;
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"a\r\n.\r\n");
        assert_gets(&peer, "end");
        world.pass_seconds(100);
        for _ in 0..29 {
            peer.send(b"a\r\nb");
            assert_gets(&peer, ".");
            world.pass_seconds(1);
        }
        peer.send(b"\r\n");
        assert_gets(&peer, ".");
        world.pass_seconds(2);
        peer.wait_closed();
        world.assert_ended_by(&server, Limit::ItemTime);
    });
}

/// A client that sends a byte per second of a long item is too slow after the grace, whatever the
/// idle time-out says.
#[test]
fn read_rate() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let limits = none().least_rate(RATE);
        let server = world.serve(limits, line(800), move || Actor::new(&calls));
        let peer = world.inlet.connect();
        for _ in 0..5 {
            peer.send(b"x");
            world.pass(Duration::from_millis(950));
        }
        assert!(!peer.is_closed_by_pool());
        peer.send(b"x");
        world.pass(Duration::from_millis(950));
        peer.wait_closed();
        world.assert_ended_by(&server, Limit::ReadRate);
    });
}

/// Items before an item say nothing of the speed at which that one comes: else a burst of small
/// ones would buy a minute of silence.
#[test]
fn a_burst_buys_no_silence() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let limits = none().least_rate(RATE).per_turn(100, 100_000);
        let server = world.serve(limits, line(800), move || {
            Actor::new(&calls).on_item(|_, _| Ok(Next::Continue))
        });
        let peer = world.inlet.connect();
        peer.send(&[&b"y".repeat(700)[..], b"\n"].concat().repeat(10));
        peer.send(b"x");
        world.pass_seconds(6);
        peer.wait_closed();
        world.assert_ended_by(&server, Limit::ReadRate);
    });
}

/// Puma's thirty seconds in all broke uploads. A large item that comes at a steady 300 bytes a
/// second is taken, however long that lasts.
#[test]
fn steady_upload() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), line(1 << 20), move || {
            Actor::new(&calls).on_item(|item, cx| {
                cx.reply(format!("{} bytes", item.len()))?;
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        for _ in 0..120 {
            peer.send(&[b'x'; 1500]);
            world.pass_seconds(5);
        }
        peer.send(b"\n");
        assert_gets(&peer, "180000 bytes\r\n");
    });
}

/// A client that reads ten bytes a second of a long answer is closed; it holds no thread, and the
/// server keeps one answer.
#[test]
fn slow_read() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let limits = none().least_rate(RATE);
        let server = world.serve(limits, line(80), move || {
            Actor::new(&calls).on_item(|_, cx| {
                cx.send(vec![b'x'; 100_000])?;
                Ok(Next::Continue)
            })
        });
        let (slow, quick) = (world.inlet.connect(), world.inlet.connect());
        slow.send(b"a\nb\n");
        for _ in 0..4 {
            assert_gets(&slow, [b'x'; 10]);
            world.pass_seconds(1);
        }
        quick.send(b"a\n");
        assert_gets(&quick, vec![b'x'; 100_000]);
        assert!(!slow.is_closed_by_pool());
        for _ in 0..4 {
            let _ = slow.received();
            world.pass_seconds(1);
        }
        slow.wait_closed();
        world.assert_ended_by(&server, Limit::WriteRate);
    });
}

/// A client that takes output slowly, but fast enough, gets all of it. It is not read meanwhile, so
/// that time does not count for the item of which it has sent a half.
#[test]
fn a_steady_reader_gets_everything() {
    on_both_engines(|world| {
        let (calls, (remotes, received)) = (world.calls.clone(), mpsc::channel());
        let limits = none().least_rate(RATE).item_time(Duration::from_secs(20));
        let _server = world.serve(limits, line(80), move || {
            let remotes = remotes.clone();
            Actor::new(&calls).on_start(move |cx| {
                remotes.send(cx.remote()).unwrap();
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"hal");
        world.settle();
        assert!(received.recv().unwrap().send(vec![b'x'; 15_000]));
        for _ in 0..50 {
            assert_gets(&peer, [b'x'; 300]);
            world.pass_seconds(2);
        }
        world.pass_seconds(2);
        peer.send(b"f\n");
        assert_gets(&peer, "half\r\n");
    });
}

/// The last answer has its time too, though the session is called no more: a client that takes
/// nothing of it is closed.
#[test]
fn the_last_answer_is_taken_in_time() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls).on_item(|_, cx| {
                cx.send(vec![b'x'; 2400])?;
                Ok(Next::Close)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"a\n");
        world.calls.wait_for("handle a");
        world.pass_seconds(14);
        assert!(!peer.is_closed_by_pool());
        world.pass_seconds(2);
        peer.wait_closed();
        world.assert_ended_by(&server, Limit::WriteRate);
    });
}

/// A connection is closed gently with output that is not sent yet. The deadline of what it waited
/// for before must not cut that output.
#[test]
fn a_gentle_end_outlives_earlier_deadlines() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls).on_item(|_, cx| {
                cx.send(vec![b'x'; 500])?;
                Ok(Next::CloseGently)
            })
        });
        let peer = world.inlet.connect();
        world.pass(Duration::from_millis(9_900));
        peer.send(b"quit\n");
        world.calls.wait_for("handle quit");
        world.pass_seconds(1);
        assert_gets(&peer, [b'x'; 500]);
        finish(&peer);
        world.calls.wait_for("closed: finished");
        assert_eq!(times_met(&server, MAIN, Limit::WriteRate), 0);
    });
}

/// A kept-alive connection on which nothing happens is closed after 75 seconds, not before.
#[test]
fn idle_keepalive() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || Actor::new(&calls));
        let peer = world.inlet.connect();
        for _ in 0..3 {
            peer.send(b"x\n");
            assert_gets(&peer, "x\r\n");
            world.pass_seconds(70);
        }
        assert!(!peer.is_closed_by_pool());
        world.pass_seconds(10);
        peer.wait_closed();
        world.assert_ended_by(&server, Limit::Idle);
    });
}

/// A session's own deadline passes whatever the client sends meanwhile, and once.
#[test]
fn deadline() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls).on_start(|cx| {
                cx.set_deadline(Duration::from_secs(20));
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        for _ in 0..4 {
            peer.send(b"x\n");
            assert_gets(&peer, "x\r\n");
            world.pass(Duration::from_millis(4_900));
        }
        assert!(!peer.is_closed_by_pool());
        world.pass_seconds(1);
        peer.wait_closed();
        world.assert_ended_by(&server, Limit::Deadline);
    });
}

/// A session clears its deadline, and moves it.
#[test]
fn a_deadline_can_be_changed() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(none(), line(80), move || {
            Actor::new(&calls)
                .on_item(|item, cx| {
                    let seconds: u64 = item.as_str()?.parse().unwrap();
                    cx.set_deadline((seconds > 0).then(|| Duration::from_secs(seconds)));
                    cx.reply("set")?;
                    Ok(Next::Continue)
                })
                .on_limit(|_, _| Next::Continue)
        });
        let peer = world.inlet.connect();
        peer.send(b"10\n");
        assert_gets(&peer, "set\r\n");
        world.pass_seconds(5);
        peer.send(b"10\n");
        assert_gets(&peer, "set\r\n");
        world.pass_seconds(8);
        assert_eq!(world.calls.count("overdue"), 0);
        world.pass_seconds(3);
        world.calls.wait_for("overdue deadline");
        world.pass_seconds(100);
        assert_eq!(world.calls.count("overdue"), 1);
        peer.send(b"10\n0\n");
        assert_gets(&peer, "set\r\nset\r\n");
        world.pass_seconds(100);
        assert_eq!(world.calls.count("overdue"), 1);
    });
}

/// An item that is too long is counted as that limit.
#[test]
fn item_size() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || Actor::new(&calls));
        let (fits, long) = (world.inlet.connect(), world.inlet.connect());
        fits.send(&[&[b'x'; 80][..], b"\r\n"].concat());
        assert_gets(&fits, [&[b'x'; 80][..], b"\r\n"].concat());
        long.send(&[b'x'; 81]);
        finish(&long);
        world
            .calls
            .wait_for("closed: malformed input: item is longer than 80 bytes");
        assert_eq!(times_met(&server, MAIN, Limit::ItemSize), 1);
        let log = world.log.text();
        assert!(log.contains("ended=malformed"), "{log}");
    });
}

/// A limit is met, and the session goes on: that time begins anew, each of them.
#[test]
fn a_session_may_go_on_after_each_limit() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let limits = Limits::default()
            .item_time(Duration::from_secs(6))
            .least_rate(RATE);
        let _server = world.serve(limits, line(80), move || {
            Actor::new(&calls)
                .on_item(|_, cx| {
                    cx.send(vec![b'x'; 1000])?;
                    Ok(Next::Continue)
                })
                .on_limit(|_, _| Next::Continue)
        });
        let peer = world.inlet.connect();
        for round in 1..4 {
            world.pass(Duration::from_millis(10_100));
            assert_eq!(world.calls.count("overdue silent"), round);
        }
        peer.send(b"x");
        world.pass(Duration::from_millis(5_500));
        assert_eq!(world.calls.count("overdue read_rate"), 1);
        world.pass(Duration::from_millis(5_500));
        assert_eq!(world.calls.count("overdue read_rate"), 2);
        peer.send(b"\n");
        world.calls.wait_for("handle x");
        for round in 1..4 {
            world.pass(Duration::from_millis(5_500));
            assert_eq!(world.calls.count("overdue write_rate"), round);
        }
        assert_gets(&peer, [b'x'; 1000]);
        world.pass_seconds(76);
        assert_eq!(world.calls.count("overdue idle"), 1);
        world.pass_seconds(76);
        assert_eq!(world.calls.count("overdue idle"), 2);
        assert!(!peer.is_closed_by_pool());
    });
}
