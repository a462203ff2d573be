//! Slow and silent clients beside quick ones: they hold no thread, and take no turn from others.

use std::{
    sync::{mpsc, Arc, Mutex},
    time::Duration,
};

use paceline_server::{codec::line, Engine, HalfSync, Limits, Next};

use crate::support::{
    actor::Actor,
    bounded,
    world::{assert_gets, on_both_engines, World},
};

/// astra and touche give each connection a worker, so that a few slow clients stop the server, and
/// one needs a proxy in front. Here clients that are slow in each phase hold no thread at all: all
/// of the pool's threads sleep.
#[test]
fn slow_client_holds_no_thread() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls).on_item(|_, cx| {
                cx.send(vec![b'x'; 1000])?;
                Ok(Next::Again)
            })
        });
        let silent = world.inlet.connect();
        let slow_to_send = world.inlet.connect();
        slow_to_send.send(b"half an it");
        let slow_to_read = world.inlet.connect();
        slow_to_read.send(b"a\n");
        world.calls.wait_for("handle a");
        // It waits until every thread of the pool sleeps.
        world.settle();
        for peer in [&silent, &slow_to_send, &slow_to_read] {
            assert!(!peer.is_closed_by_pool());
        }
        assert_eq!(world.calls.count("handle"), 1);
    });
}

/// A thousand clients that send a byte per second, each way, beside a quick one on four threads: it
/// waits for none of them, and none of them is harmed.
#[test]
fn thousand_slow_one_quick() {
    let half_sync = HalfSync::default().workers(1).capacity(2000);
    let half_sync = Engine::HalfSyncHalfAsync(half_sync);
    for engine in [Engine::LeaderFollowers, half_sync] {
        bounded(move || {
            let world = World::with(engine, 4);
            let calls = world.calls.clone();
            let _server = world.serve(Limits::default(), line(80), move || Actor::new(&calls));
            let slow: Vec<_> = (0..1000).map(|_| world.inlet.connect()).collect();
            let quick = world.inlet.connect();
            for second in 0..3 {
                for peer in &slow {
                    peer.send(b"x");
                }
                quick.send(format!("{second}\n").as_bytes());
                assert_gets(&quick, format!("{second}\r\n"));
                world.pass_seconds(1);
            }
            for peer in &slow {
                peer.send(b"\n");
                assert_gets(peer, "xxx\r\n");
            }
        });
    }
}

/// A thousand clients that take a byte per second of an answer beside a quick one on four threads:
/// it waits for none of them, no thread is with one, and each gets all of its answer.
#[test]
fn thousand_slow_readers_one_quick() {
    let half_sync = HalfSync::default().workers(1).capacity(2000);
    let half_sync = Engine::HalfSyncHalfAsync(half_sync);
    for engine in [Engine::LeaderFollowers, half_sync] {
        bounded(move || {
            let world = World::with(engine, 4);
            let calls = world.calls.clone();
            let _server = world.serve(Limits::default(), line(80), move || {
                Actor::new(&calls).on_item(|item, cx| {
                    if item == "long" {
                        cx.send(vec![b'x'; 200])?;
                    } else {
                        cx.reply(item)?;
                    }
                    Ok(Next::Continue)
                })
            });
            let slow: Vec<_> = (0..1000).map(|_| world.inlet.connect()).collect();
            let quick = world.inlet.connect();
            slow.iter().for_each(|peer| peer.send(b"long\n"));
            for second in 0..3 {
                slow.iter().for_each(|peer| assert_gets(peer, "x"));
                quick.send(format!("{second}\n").as_bytes());
                assert_gets(&quick, format!("{second}\r\n"));
                // It waits until every thread of the pool sleeps.
                world.pass_seconds(1);
            }
            slow.iter().for_each(|peer| assert_gets(peer, [b'x'; 197]));
        });
    }
}

/// A client that has many items waiting takes its turn, and no more, beside one that has one item.
#[test]
fn turns_are_shared() {
    let half_sync = Engine::HalfSyncHalfAsync(HalfSync::default().workers(1));
    for engine in [Engine::LeaderFollowers, half_sync] {
        bounded(move || {
            let world = World::with(engine, 1);
            let (enter, entered) = mpsc::channel();
            let (let_go, go) = mpsc::channel::<()>();
            let (calls, go) = (world.calls.clone(), Arc::new(Mutex::new(go)));
            let limits = Limits::default().per_turn(3, 1000);
            let _server = world.serve(limits, line(80), move || {
                let (enter, go) = (enter.clone(), Arc::clone(&go));
                Actor::new(&calls).on_item(move |item, cx| {
                    if item == "gate" {
                        enter.send(()).unwrap();
                        go.lock().unwrap().recv().unwrap();
                    }
                    if item == "many 9" {
                        cx.send("done")?;
                    }
                    Ok(Next::Continue)
                })
            });
            let [gate, many, one] = [(); 3].map(|()| world.inlet.connect());
            world.settle();
            // When the only thread is back it finds both others at once.
            gate.send(b"gate\n");
            entered.recv().unwrap();
            let items: String = (1..10).map(|number| format!("many {number}\n")).collect();
            many.send(items.as_bytes());
            one.send(b"one\n");
            let_go.send(()).unwrap();
            assert_gets(&many, "done");
            world.calls.wait_for("handle one");
            let all = world.calls.all();
            let one = all.iter().position(|call| call == "handle one");
            let last = all.iter().position(|call| call == "handle many 7");
            assert!(one < last, "{all:?}");
        });
    }
}

/// The size of the items of one turn is bounded too.
#[test]
fn a_turn_has_a_bound_of_bytes() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let limits = Limits::default()
            .per_turn(1000, 10)
            .idle(Duration::from_secs(60));
        let _server = world.serve(limits, line(80), move || {
            Actor::new(&calls).on_item(|item, cx| {
                cx.reply(item)?;
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"12345678\n12345678\n12345678\n");
        assert_gets(&peer, "12345678\r\n".repeat(3));
    });
}
