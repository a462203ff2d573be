//! Which function of a session is called when.

use std::{io, thread, time::Duration};

use paceline::{Pool, SetKind};
use paceline_server::{codec::line, Limit, Limits, Next, Peer};

use crate::support::{
    actor::Actor,
    world::{assert_gets, finish, on_both_engines, Drain},
};

/// A server that may speak first, items in their order, the end of the input, and one last call.
#[test]
fn start_items_ended_closed() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls).on_start(|cx| {
                cx.reply("hello")?;
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        assert_gets(&peer, "hello\r\n");
        peer.send(b"a\r\nb\nc");
        assert_gets(&peer, "a\r\nb\r\n");
        peer.send(b"d\n");
        assert_gets(&peer, "cd\r\n");
        finish(&peer);
        world.calls.wait_for("closed: closed by the peer");
        let expected = ["start", "handle a", "handle b", "handle cd", "ended"];
        assert_eq!(world.calls.all()[..5], expected);
        assert_eq!(world.calls.all().len(), 6);
    });
}

/// hyper dropped the request of a client that ends its output behind it and waits for the answer.
/// Here the items before the end are answered, also one that needs several turns.
#[test]
fn half_closed_client_is_answered() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default().per_turn(2, 1000), line(80), move || {
            Actor::new(&calls).on_ended(|cx| {
                cx.reply("bye")?;
                Ok(Next::Close)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"a\nb\nc\nd\ne\n");
        peer.finish();
        assert_gets(&peer, "a\r\nb\r\nc\r\nd\r\ne\r\nbye\r\n");
        peer.wait_closed();
        world.calls.wait_for("closed: closed by the peer");
        assert_eq!(world.calls.count("ended"), 1);
    });
}

/// An answer in parts: each part when the last one is sent, and the next item after all of them.
#[test]
fn again_is_called_when_all_is_sent() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), line(80), move || {
            let mut left = 0;
            Actor::new(&calls)
                .on_item(move |item, cx| {
                    cx.send(format!("{}:", item.as_str()?))?;
                    Ok(if item == "long" {
                        Next::Again
                    } else {
                        Next::Continue
                    })
                })
                .on_again(move |cx| {
                    assert_eq!(cx.unsent(), 0);
                    left += 1;
                    cx.send("x".repeat(100))?;
                    Ok(if left % 3 == 0 {
                        Next::Continue
                    } else {
                        Next::Again
                    })
                })
        });
        let peer = world.inlet.connect();
        peer.send(b"long\nshort\n");
        let expected = format!("long:{}short:", "x".repeat(300));
        assert_gets(&peer, expected);
        let expected = [
            "start",
            "handle long",
            "again",
            "again",
            "again",
            "handle short",
        ];
        assert_eq!(world.calls.all(), expected);
    });
}

/// A worker saw that nothing was kept, so an answer in parts became one that met the output limit.
/// Now what the worker has collected counts, and each part has its turn, on a worker too.
#[test]
fn an_answer_in_parts_may_be_long() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let set = SetKind::Simulated(world.simulation.clone());
        let pool = Pool::builder().threads(2).handle_set(set);
        let pool = pool.output_limit(4000);
        let make = move |_: &_| {
            let (calls, mut next) = (calls.clone(), 0);
            let mut write = move |cx: &mut Peer<'_>| -> io::Result<Next> {
                while next < 2000 {
                    if cx.unsent() > 0 {
                        return Ok(Next::Again);
                    }
                    writeln!(cx, "{next:05}")?;
                    next += 1;
                }
                Ok(Next::Continue)
            };
            Actor::new(&calls.clone())
                .on_item(|_, _| Ok(Next::Again))
                .on_again(move |cx| {
                    calls.note(format!("on {}", thread::current().name().unwrap_or("")));
                    write(cx)
                })
        };
        let builder = world.builder_on(pool);
        let _server = world.start(builder.listener(world.listen(), line(80), make));
        let peer = world.inlet.connect();
        peer.send(b"a\nb\n");
        let expected: String = (0..2000).map(|number| format!("{number:05}\n")).collect();
        assert_gets(&peer, expected);
        world.calls.wait_for("handle b");
        let on_workers = world.calls.count("on server-worker");
        let parts = if world.is_half_sync() {
            world.calls.count("again")
        } else {
            0
        };
        assert_eq!(on_workers, parts);
    });
}

/// A greeting in parts: `again` is called behind `start` too, before the first item.
#[test]
fn a_greeting_may_have_parts() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls)
                .on_start(|cx| {
                    cx.send("y".repeat(100))?;
                    Ok(Next::Again)
                })
                .on_again(|cx| {
                    cx.send("ready\r\n")?;
                    Ok(Next::Continue)
                })
        });
        let peer = world.inlet.connect();
        peer.send(b"first\n");
        assert_gets(&peer, format!("{}ready\r\nfirst\r\n", "y".repeat(100)));
        assert_eq!(world.calls.all(), ["start", "again", "handle first"]);
    });
}

/// A session that goes on with `Again` after a limit is called again, too.
#[test]
fn again_after_a_limit() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls)
                .on_limit(|_, _| Next::Again)
                .on_again(|cx| {
                    cx.send("still here\r\n")?;
                    Ok(Next::Continue)
                })
        });
        let peer = world.inlet.connect();
        world.pass_seconds(11);
        assert_gets(&peer, "still here\r\n");
        assert_eq!(world.calls.all(), ["start", "overdue silent", "again"]);
    });
}

/// Input that breaks the protocol gets a last word, and the session one call. Items before it are
/// handled, nothing behind it is.
#[test]
fn malformed_input_gets_a_last_word() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), line(4), move || {
            Actor::new(&calls).on_malformed(|cx| cx.send("500 what?\r\n").unwrap())
        });
        let peer = world.inlet.connect();
        peer.send(b"ok\ntoo long\nok\n");
        assert_gets(&peer, "ok\r\n500 what?\r\n");
        finish(&peer);
        world
            .calls
            .wait_for("closed: malformed input: item is longer than 4 bytes");
        assert_eq!(world.calls.count("handle"), 1);
        assert_eq!(world.calls.count("malformed"), 1);
        assert_eq!(world.calls.count("closed"), 1);
    });
}

/// The input may end within an item: that is no item.
#[test]
fn a_truncated_item_is_malformed() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), line(80), move || Actor::new(&calls));
        let peer = world.inlet.connect();
        peer.send(b"whole\nhal");
        finish(&peer);
        world
            .calls
            .wait_for("closed: malformed input: input ended within an item");
        assert_eq!(world.calls.count("handle"), 1);
        assert_eq!(world.calls.count("ended"), 0);
    });
}

/// A session switches its codec in the middle of a buffer: the rest goes to the new codec, once.
#[test]
fn codec_switched_mid_buffer() {
    use paceline_server::codec::{dot, prefixed};
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls).on_item(|item, cx| {
                match &item[..] {
                    b"DATA" => cx.switch(dot(100)),
                    b"BIN" => cx.switch(prefixed::<u8>(100)),
                    _ => cx.switch(line(80)),
                }
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"DATA\r\n..x\r\nBIN\r\n.\r\nBIN\r\n\x03a\nbDATA\r\n\r\n.\r\nlast\r\n");
        world.calls.wait_for("handle last");
        let expected = [
            "start",
            "handle DATA",
            "handle .x\r\nBIN\r\n",
            "handle BIN",
            "handle a\nb",
            "handle DATA",
            "handle \r\n",
            "handle last",
        ];
        assert_eq!(world.calls.all(), expected);
    });
}

/// `draining` is called between two items, once, and its word arrives.
#[test]
fn draining_gets_a_last_word() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls).on_draining(|cx| {
                cx.send("bye\r\n").unwrap();
                Next::CloseGently
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"a\n");
        assert_gets(&peer, "a\r\n");
        world.settle();
        let drain = Drain::begin(&world, &server, Duration::from_secs(30));
        assert_gets(&peer, "bye\r\n");
        finish(&peer);
        assert!(drain.end().is_clean());
        let expected = ["start", "handle a", "draining", "closed: the server ended"];
        assert_eq!(world.calls.all(), expected);
    });
}

/// A message in several items is one message: it is truncated if the input ends within it, and a
/// drain waits for its end.
#[test]
fn a_message_in_chunks_is_one_message() {
    use paceline_server::codec::dot_chunks;
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), dot_chunks(80), move || {
            Actor::new(&calls).on_item(|item, cx| {
                cx.send(if item.is_last() { "last" } else { "more" })?;
                Ok(Next::Continue)
            })
        });
        let (cut, whole) = (world.inlet.connect(), world.inlet.connect());
        cut.send(b"a\r\n");
        whole.send(b"a\r\n");
        assert_gets(&cut, "more");
        assert_gets(&whole, "more");
        finish(&cut);
        world
            .calls
            .wait_for("closed: malformed input: input ended within an item");
        let drain = Drain::begin(&world, &server, Duration::from_secs(30));
        world.wait_asleep();
        assert!(!world.calls.has("draining"));
        whole.send(b"b\r\n.\r\n");
        assert_gets(&whole, "last");
        finish(&whole);
        assert!(drain.end().is_clean());
        world.calls.wait_for("draining");
    });
}

/// A limit of time has a last word.
#[test]
fn a_last_word_arrives() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls).on_limit(|limit, cx| {
                cx.send(format!("bye: {limit}")).unwrap();
                Next::CloseGently
            })
        });
        let peer = world.inlet.connect();
        world.pass_seconds(11);
        assert_gets(&peer, "bye: silent");
        finish(&peer);
        world.assert_ended_by(&server, Limit::Silent);
    });
}
