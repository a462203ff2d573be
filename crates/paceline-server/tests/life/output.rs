//! Replies: owned, shared, static, in several pieces; what the peer does not take is kept, in order
//! and bounded.

use std::{
    io::{IoSlice, Write},
    sync::Arc,
    time::Duration,
};

use paceline_server::{
    codec::{line, prefixed},
    LeastRate, Limit, Limits, Next, Piece,
};

use crate::support::{
    actor::Actor,
    times_met,
    world::{assert_gets, on_both_engines, MAIN},
};

/// All forms of output arrive in the order in which they were sent, also past what the peer takes
/// at once.
#[test]
fn every_form_arrives_in_order() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls).on_item(|_, cx| {
                let shared: Arc<[u8]> = Arc::from(vec![b's'; 2000]);
                cx.reply("framed")?;
                cx.send("static ")?;
                cx.send(String::from("owned "))?;
                cx.send(Arc::clone(&shared))?;
                let mut pieces = [Piece::from("one "), shared.into(), "two ".into()];
                cx.send_all(&mut pieces)?;
                assert!(pieces.iter().all(Piece::is_empty));
                cx.write_all(b"lent ")?;
                cx.write_all_vectored(&[IoSlice::new(b"a"), IoSlice::new(b"b ")])?;
                write!(cx, "{} ", 42)?;
                Write::write_all(cx, b"end")?;
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"go\n");
        let s = "s".repeat(2000);
        let expected = format!("framed\r\nstatic owned {s}one {s}two lent ab 42 end");
        assert_gets(&peer, expected);
    });
}

/// A payload that the codec can't frame is an error, and nothing of it is sent.
#[test]
fn a_payload_that_is_no_item_is_not_sent() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), line(8), move || {
            Actor::new(&calls).on_item(|_, cx| {
                let refused = cx.reply("two\r\nlines").unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
                cx.reply("one")?;
                Ok(Next::Close)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"go\n");
        assert_gets(&peer, "one\r\n");
        peer.wait_closed();
        assert_eq!(peer.received(), b"");
    });
}

/// While output is kept the session gets no item: a client that pipelines and reads nothing makes
/// the server keep a few answers, not all of them.
#[test]
fn kept_output_holds_back_items() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls).on_item(|item, cx| {
                cx.send(format!("{}{}", item.as_str()?, "x".repeat(999)))?;
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        // A worker collects the answers of one turn before the peer is asked. Without workers, short
        // answers leave together, up to 4 KiB of them.
        let most = if world.is_half_sync() { 16 } else { 5 };
        for _ in 0..40 {
            peer.send(b"a\n");
        }
        world.calls.wait_for("handle a");
        world.settle();
        assert!(world.calls.count("handle") <= most);
        let all = peer.wait_for(40 * 1000);
        assert_eq!(all.len(), 40 * 1000);
        assert_eq!(all.iter().filter(|byte| **byte == b'a').count(), 40);
    });
}

/// The limit of kept output: the write fails and takes nothing, `?` closes the connection, and the
/// limit is counted and named.
#[test]
fn output_limit() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let make = move |_: &_| {
            Actor::new(&calls).on_item(|item, cx| {
                cx.send(vec![b'x'; item.as_str()?.parse().unwrap()])?;
                Ok(Next::Continue)
            })
        };
        let builder = world.builder().output_limit(1000);
        let server = world.start(builder.listener(world.listen(), line(80), make));
        let good = world.inlet.connect();
        good.send(b"1000\n");
        assert_gets(&good, vec![b'x'; 1000]);
        let bad = world.inlet.connect();
        bad.send(b"1001\n");
        bad.wait_closed();
        assert_eq!(bad.received(), b"");
        world.assert_ended_by(&server, Limit::Output);
    });
}

/// An answer behind a length is framed with it, whatever it contains.
#[test]
fn a_reply_is_framed_by_its_codec() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), prefixed::<u16>(500), move || {
            Actor::new(&calls)
        });
        let peer = world.inlet.connect();
        let mut item = vec![1, 44];
        item.extend([b'\n'; 300]);
        peer.send(&item);
        assert_gets(&peer, item);
    });
}

/// A peer that had taken everything was closed as one that takes output too slowly: no event reports
/// that kept output is sent, and its deadline stayed. Now the connection finds out at the deadline.
#[test]
fn what_was_taken_has_no_deadline() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default().idle(None), line(80), move || {
            Actor::new(&calls).on_item(|_, cx| {
                // Nothing is read from here on, so no event of the peer comes.
                cx.remote().pause_input();
                cx.send(vec![b'x'; 2400])?;
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"a\n");
        assert_gets(&peer, [b'x'; 2400]);
        world.pass_seconds(60);
        world.pass_seconds(60);
        assert!(!peer.is_closed_by_pool(), "{:?}", world.calls.all());
        assert_eq!(times_met(&server, MAIN, Limit::WriteRate), 0);
    });
}

/// Times without end are settings like others.
#[test]
fn the_longest_times_are_no_overflow() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let rate = LeastRate {
            bytes_per_second: 1,
            grace: Duration::MAX,
        };
        let limits = Limits::default().item_time(Duration::MAX).least_rate(rate);
        let _server = world.serve(limits.silent(Duration::MAX), line(80), move || {
            Actor::new(&calls).on_item(|_, cx| {
                cx.send(vec![b'x'; 2400])?;
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"a\nhal");
        assert_gets(&peer, [b'x'; 2400]);
        world.settle();
        peer.send(b"f\n");
        assert_gets(&peer, [b'x'; 2400]);
        assert!(!world.calls.all().iter().any(|it| it.starts_with("closed")));
    });
}
