//! A handler waits for something of its own, and its thread serves the pool meanwhile (N1): hybrid
//! associations, a thread that is unbound at first and bound while it waits.

use std::{
    io,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc,
    },
    thread::{self, ThreadId},
    time::Duration,
};

use crate::support::{
    bell::{on_byte, pool, pool_of, waiter, Bell, ANY},
    bounded,
    gate::Gate,
    wait_until, LONG,
};
use paceline::{observe::Role, Errand, InHandler, Order, Pool, Returned, Serve, SetKind, Wake};

/// N1: the only thread waits, inside a handler, for what an event of the same pool will bring.
#[test]
fn the_only_thread_serves_while_it_waits() {
    bounded(|| {
        for serve in [Serve::Chain, Serve::Any] {
            let (pool, world, witness) = pool(1);
            let bell = Bell::new();
            let (_peer, told) = waiter(&pool, &world, &bell, Errand { serve, ..ANY });
            let (ringer, other) = (Arc::clone(&bell), Arc::clone(&bell));
            let (_ringer, rope) = on_byte(&pool, &world, move |_| ringer.ring());
            wait_until(|| other.has_waiter());
            rope.send(b"x");
            assert_eq!(told.recv_timeout(LONG).unwrap().0, Returned::Done);
            assert_eq!(witness.most_leaders(), 1);
            // It is free again.
            let bell = Bell::new();
            bell.ring();
            let (_peer, told) = waiter(&pool, &world, &bell, ANY);
            assert_eq!(told.recv_timeout(LONG).unwrap().0, Returned::Done);
        }
    });
}

/// A thread that waits is recalled wherever it is: asleep as follower or standby, or leading in the
/// set.
#[test]
fn recalled_from_any_role() {
    bounded(|| {
        // Beside one that leads it follows; alone it leads.
        for threads in [1, 2, 3] {
            let (pool, world, witness) = pool(threads);
            witness.wait_for(Role::Leader, 1);
            let bell = Bell::new();
            let (_peer, told) = waiter(&pool, &world, &bell, ANY);
            wait_until(|| bell.has_waiter());
            wait_until(|| world.clock().asleep() == threads);
            bell.ring();
            assert_eq!(told.recv_timeout(LONG).unwrap().0, Returned::Done);
            wait_until(|| world.clock().asleep() == threads);
            let mut told = witness.log().into_iter();
            assert!(told.all(|(_, role)| role != Role::Gone), "it was there");
        }
    });
}

/// Who waits for something that came before it waits does not leave its handler at all.
#[test]
fn what_is_there_is_not_waited_for() {
    bounded(|| {
        let (pool, world, _) = pool(1);
        let bell = Bell::new();
        bell.ring();
        let (_peer, told) = waiter(&pool, &world, &bell, ANY);
        assert_eq!(told.recv_timeout(LONG).unwrap().0, Returned::Done);
    });
}

/// B2: an errand ends by its time, and one inside another by the smaller of both.
#[test]
fn nested_errands_inherit_the_smaller_deadline() {
    bounded(|| {
        let (pool, world, _) = pool(1);
        let seconds = |seconds| Errand {
            within: Some(Duration::from_secs(seconds)),
            ..ANY
        };
        let bells = [Bell::new(), Bell::new()];
        let (_outer, outer) = waiter(&pool, &world, &bells[0], seconds(5));
        wait_until(|| bells[0].has_waiter());
        let (_inner, inner) = waiter(&pool, &world, &bells[1], seconds(500));
        wait_until(|| bells[1].has_waiter());
        world.clock().advance(Duration::from_secs(4));
        wait_until(|| world.clock().asleep() == 1);
        assert!(inner.try_recv().is_err() && outer.try_recv().is_err());
        world.clock().advance(Duration::from_secs(1));
        assert_eq!(inner.recv_timeout(LONG).unwrap().0, Returned::TimedOut);
        assert_eq!(outer.recv_timeout(LONG).unwrap().0, Returned::TimedOut);
    });
}

/// A handler on top delays who waits below: that one is told when its frame is on top, however long
/// it is done.
#[test]
fn errands_end_in_the_order_of_the_stack() {
    bounded(|| {
        let (pool, world, _) = pool(1);
        let bells = [Bell::new(), Bell::new()];
        let (_outer, outer) = waiter(&pool, &world, &bells[0], ANY);
        wait_until(|| bells[0].has_waiter());
        let (_inner, inner) = waiter(&pool, &world, &bells[1], ANY);
        wait_until(|| bells[1].has_waiter());
        bells[0].ring();
        wait_until(|| world.clock().asleep() == 1);
        assert!(outer.try_recv().is_err(), "its frame is not on top");
        bells[1].ring();
        assert_eq!(inner.recv_timeout(LONG).unwrap().0, Returned::Done);
        assert_eq!(outer.recv_timeout(LONG).unwrap().0, Returned::Done);
    });
}

/// TAO corrupted a flag that nested loops shared: the end of the inner one cleared it for the outer
/// one. Here the same thread waits inside a wait; when the inner one is over it is bound on, as the
/// outer one says. So it is not taken for free: who waits beside it, and finds a stranger's event,
/// serves that and passes nothing on.
#[test]
fn nested_leadership_is_counted() {
    bounded(|| {
        let (pool, world, witness) = pool(2);
        let chain = Errand {
            serve: Serve::Chain,
            ..ANY
        };
        let [outer, inner, beside] = [Bell::new(), Bell::new(), Bell::new()];
        let rest = || wait_until(|| world.clock().asleep() == 2);
        let (tell, told) = mpsc::channel();
        let (here, done) = (Arc::clone(&inner), tell.clone());
        let (own, peer) = on_byte(&pool, &world, move |cx| {
            assert_eq!(here.wait(cx, chain).unwrap(), Returned::Done);
            done.send(thread::current().id()).unwrap();
        });
        let here = Arc::clone(&outer);
        let (_, rope) = on_byte(&pool, &world, move |cx| {
            let own = Some(&own);
            assert_eq!(
                here.wait(cx, Errand { own, ..chain }).unwrap(),
                Returned::Done
            );
            tell.send(thread::current().id()).unwrap();
        });
        rest();
        rope.send(b"x");
        wait_until(|| outer.has_waiter());
        rest();
        // Its own: it is back at the front, and serves it inside.
        peer.send(b"x");
        wait_until(|| inner.has_waiter());
        rest();
        inner.ring();
        let nested = told.recv_timeout(LONG).unwrap();
        rest();
        // Now the other one waits too, and nobody is free.
        let (_peer, other) = waiter(&pool, &world, &beside, chain);
        wait_until(|| beside.has_waiter());
        rest();
        let before = pool.snapshot().passed_on;
        let (_, echoed) = on_byte(&pool, &world, |cx| cx.write_all(b"y").unwrap());
        echoed.send(b"x");
        assert_eq!(echoed.wait_for(1), b"y");
        rest();
        assert_eq!(pool.snapshot().passed_on, before, "nobody was free");
        beside.ring();
        assert_ne!(other.recv_timeout(LONG).unwrap().1, nested);
        outer.ring();
        assert_eq!(told.recv_timeout(LONG), Ok(nested));
        assert_eq!(witness.most_leaders(), 1);
    });
}

/// Each frame has its own lead, so after many waits, one inside the other, there is one leader, and
/// everything is served.
#[test]
fn waits_inside_waits_leave_one_leader() {
    bounded(|| {
        let (pool, world, witness) = pool(2);
        let bells: Vec<_> = (0..10).map(|_| Bell::new()).collect();
        let mut waiters = Vec::new();
        for bell in &bells {
            waiters.push(waiter(&pool, &world, bell, ANY));
            wait_until(|| bell.has_waiter());
        }
        for bell in bells.iter().rev() {
            bell.ring();
        }
        for (_, told) in &waiters {
            assert_eq!(told.recv_timeout(LONG).unwrap().0, Returned::Done);
        }
        wait_until(|| world.clock().asleep() == 2);
        assert_eq!(witness.most_leaders(), 1);
        witness.wait_for(Role::Leader, 1);
        let (_, echoed) = on_byte(&pool, &world, |cx| cx.write_all(b"y").unwrap());
        echoed.send(b"x");
        assert_eq!(echoed.wait_for(1), b"y");
    });
}

/// A thread of TAO's that waited for its reply, and served a long request meanwhile, kept the lead.
/// Here it gives it away as anyone does: the next thread that is free leads, and others are served.
#[test]
fn long_upcall_releases_leadership() {
    bounded(|| {
        for wake in [Wake::Eager, Wake::Adaptive] {
            let (pool, world, _) = pool_of(Pool::builder().threads(2).wake(wake));
            let (bell, busy, long) = (Bell::new(), Gate::shut(), Gate::shut());
            // The other thread is away, so that the one that waits serves the long request.
            let inside = Arc::clone(&busy);
            let (_, away) = on_byte(&pool, &world, move |cx| cx.blocking(|| inside.pass()));
            away.send(b"x");
            busy.wait_for(1);
            let (_peer, told) = waiter(&pool, &world, &bell, ANY);
            wait_until(|| bell.has_waiter());
            let (inside, (tell, by)) = (Arc::clone(&long), mpsc::channel());
            let (_, request) = on_byte(&pool, &world, move |_| {
                tell.send(thread::current().id()).unwrap();
                inside.pass();
            });
            request.send(b"x");
            long.wait_for(1);
            // It is still inside when the other one comes back.
            busy.let_through(1);
            let (_, echoed) = on_byte(&pool, &world, |cx| cx.write_all(b"y").unwrap());
            echoed.send(b"x");
            assert_eq!(echoed.wait_for(1), b"y");
            long.let_through(1);
            bell.ring();
            let ended = (Returned::Done, by.recv_timeout(LONG).unwrap());
            assert_eq!(told.recv_timeout(LONG), Ok(ended), "it was the one");
        }
    });
}

/// A thread of TAO's that served no requests while it waited left an event's handle suspended.
/// Here, who finds an event that is not its own affair, while another thread is free, puts it back
/// and gives the lead away: it is served, by another thread, and so is the next.
#[test]
fn noupcall_event_deferred_not_lost() {
    bounded(|| {
        let (pool, world, _) = pool(2);
        let bell = Bell::new();
        let (_peer, told) = waiter(
            &pool,
            &world,
            &bell,
            Errand {
                serve: Serve::Chain,
                ..ANY
            },
        );
        wait_until(|| bell.has_waiter());
        wait_until(|| world.clock().asleep() == 2);
        let (tell, served) = mpsc::channel();
        let (_, other) = on_byte(&pool, &world, move |_| {
            tell.send(thread::current().id()).unwrap();
        });
        let mut by = Vec::new();
        for _ in 0..20 {
            other.send(b"x");
            by.push(served.recv_timeout(LONG).unwrap());
            wait_until(|| world.clock().asleep() == 2);
        }
        bell.ring();
        let (returned, waited) = told.recv_timeout(LONG).unwrap();
        assert_eq!(returned, Returned::Done);
        assert!(!by.contains(&waited), "somebody else was free");
        assert!(pool.snapshot().passed_on <= 20);
    });
}

/// What belongs to its errand it serves itself, though another thread is free; anything else it
/// leaves to that one.
#[test]
fn its_own_event_is_served_by_who_waits() {
    bounded(|| {
        let (pool, world, _) = pool(2);
        let (bell, (tell, served)) = (Bell::new(), mpsc::channel());
        let tells = |tell: mpsc::Sender<ThreadId>| {
            on_byte(&pool, &world, move |_| {
                tell.send(thread::current().id()).unwrap();
            })
        };
        let ((own, peer), (_, stranger)) = (tells(tell.clone()), tells(tell));
        let (here, (tell, told)) = (Arc::clone(&bell), mpsc::channel());
        let (_, rope) = on_byte(&pool, &world, move |cx| {
            let errand = Errand {
                serve: Serve::Chain,
                own: Some(&own),
                ..ANY
            };
            assert_eq!(here.wait(cx, errand).unwrap(), Returned::Done);
            tell.send(thread::current().id()).unwrap();
        });
        wait_until(|| world.clock().asleep() == 2);
        rope.send(b"x");
        wait_until(|| bell.has_waiter());
        // It is back at the front, and the other one sleeps.
        wait_until(|| world.clock().asleep() == 2);
        peer.send(b"x");
        let by = served.recv_timeout(LONG).unwrap();
        wait_until(|| world.clock().asleep() == 2);
        assert_eq!(pool.snapshot().passed_on, 0);
        stranger.send(b"x");
        assert_ne!(served.recv_timeout(LONG), Ok(by));
        bell.ring();
        assert_eq!(told.recv_timeout(LONG), Ok(by));
    });
}

/// Or it serves nothing: it is away until it has what it waits for, or its time is over.
#[test]
fn who_serves_nothing_is_away() {
    bounded(|| {
        let (pool, world, _) = pool(2);
        let nothing = Errand {
            serve: Serve::Nothing,
            ..ANY
        };
        let bell = Bell::new();
        let (_peer, told) = waiter(&pool, &world, &bell, nothing);
        wait_until(|| bell.has_waiter());
        let (tell, served) = mpsc::channel();
        let (_, other) = on_byte(&pool, &world, move |_| {
            tell.send(thread::current().id()).unwrap();
        });
        other.send(b"x");
        let by = served.recv_timeout(LONG).unwrap();
        bell.ring();
        let (returned, waited) = told.recv_timeout(LONG).unwrap();
        assert_eq!(returned, Returned::Done);
        assert_ne!(waited, by);

        let second = Duration::from_secs(1);
        let bell = Bell::new();
        let hurried = Errand {
            within: Some(second),
            ..nothing
        };
        let (_peer, told) = waiter(&pool, &world, &bell, hurried);
        wait_until(|| bell.has_waiter() && world.clock().asleep() == 2);
        world.clock().advance(second);
        let (returned, _) = told.recv_timeout(LONG).unwrap();
        assert_eq!(returned, Returned::TimedOut);
    });
}

/// But if nobody else is free, it serves: else the pool would be stuck.
#[test]
fn who_waits_serves_if_nobody_else_can() {
    bounded(|| {
        let (pool, world, _) = pool(2);
        let gate = Gate::shut();
        let inside = Arc::clone(&gate);
        let (_, busy) = on_byte(&pool, &world, move |cx| cx.blocking(|| inside.pass()));
        busy.send(b"x");
        gate.wait_for(1);
        let bell = Bell::new();
        let (_peer, told) = waiter(
            &pool,
            &world,
            &bell,
            Errand {
                serve: Serve::Chain,
                ..ANY
            },
        );
        wait_until(|| bell.has_waiter());
        let ringer = Arc::clone(&bell);
        let (_, rope) = on_byte(&pool, &world, move |_| ringer.ring());
        rope.send(b"x");
        assert_eq!(told.recv_timeout(LONG).unwrap().0, Returned::Done);
        gate.let_through(1);
    });
}

/// Threads that are free are elected before one that waits for something of its own, in every order
/// that can name one.
#[test]
fn helper_yields_to_pool_threads() {
    bounded(|| {
        for order in [Order::Newest, Order::Oldest, Order::Priority] {
            let builder = Pool::builder().threads(3).order(order);
            let (pool, world, _) = pool_of(builder.wake(Wake::Eager));
            let bell = Bell::new();
            let (_peer, told) = waiter(
                &pool,
                &world,
                &bell,
                Errand {
                    serve: Serve::Chain,
                    ..ANY
                },
            );
            wait_until(|| bell.has_waiter());
            wait_until(|| world.clock().asleep() == 3);
            let (tell, served) = mpsc::channel();
            let (_, other) = on_byte(&pool, &world, move |_| {
                tell.send(thread::current().id()).unwrap();
            });
            let mut by = Vec::new();
            for _ in 0..10 {
                other.send(b"x");
                by.push(served.recv_timeout(LONG).unwrap());
                wait_until(|| world.clock().asleep() == 3);
            }
            bell.ring();
            let (_, waited) = told.recv_timeout(LONG).unwrap();
            assert!(!by.contains(&waited), "{order:?}");
        }
    });
}

/// The stack is not endless: by default 16 handlers may wait on one thread, and the next is
/// refused; what it was called for is not lost, and all others end well. With a higher limit there
/// are more.
#[test]
fn nested_depth_is_bounded() {
    bounded(|| {
        for (builder, limit) in [
            (Pool::builder(), 16),
            (Pool::builder().nesting(64), 64),
            (Pool::builder().nesting(0), 0),
        ] {
            let (pool, world, _) = pool_of(builder.threads(1));
            let (bell, refused) = (Bell::new(), Arc::new(AtomicUsize::new(0)));
            let (tell, told) = mpsc::channel();
            let mut peers = Vec::new();
            for depth in 0..=limit {
                let (bell, refused, tell) = (Arc::clone(&bell), Arc::clone(&refused), tell.clone());
                let (_, peer) = on_byte(&pool, &world, move |cx| {
                    match cx.serve_until(ANY, || bell.is_rung()) {
                        Err(error) => {
                            assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded, "{error}");
                            refused.fetch_add(1, Ordering::AcqRel);
                            bell.rung.store(true, Ordering::Release);
                        }
                        Ok(returned) => assert_eq!(returned, Returned::Done),
                    }
                    tell.send(depth).unwrap();
                });
                peer.send(b"x");
                peers.push(peer);
            }
            let mut ended: Vec<_> = (0..=limit)
                .map(|_| told.recv_timeout(LONG).unwrap())
                .collect();
            ended.sort_unstable();
            assert_eq!(ended, Vec::from_iter(0..=limit));
            assert_eq!(refused.load(Ordering::Acquire), 1);
        }
    });
}

/// S1: the end of the pool reaches a handler that waits, in whatever role its thread is.
#[test]
fn shutdown_ends_errands() {
    bounded(|| {
        for threads in [1, 2] {
            let (pool, world, _) = pool(threads);
            let bell = Bell::new();
            let (peer, told) = waiter(&pool, &world, &bell, ANY);
            wait_until(|| bell.has_waiter());
            wait_until(|| world.clock().asleep() == threads);
            drop(peer);
            let ender = thread::spawn(move || pool.shutdown(Duration::from_secs(1)));
            wait_until(|| {
                world.clock().advance(Duration::from_millis(100));
                ender.is_finished()
            });
            assert_eq!(told.recv_timeout(LONG).unwrap().0, Returned::Closing);
        }
    });
}

/// Where nobody can be named, nobody can be recalled; that is told at once.
#[test]
fn refused_where_nobody_can_be_named() {
    bounded(|| {
        for builder in [
            Pool::builder().order(Order::System),
            Pool::builder().handle_set(SetKind::Concurrent),
        ] {
            let pool = builder.threads(2).build().unwrap();
            let (tell, told) = mpsc::channel();
            pool.post(move |cx| {
                let kinds = [
                    cx.recall().unwrap_err().kind(),
                    cx.serve_until(ANY, || true).unwrap_err().kind(),
                ];
                tell.send(kinds).unwrap();
            })
            .unwrap();
            let kinds = told.recv_timeout(LONG).unwrap();
            assert_eq!(kinds, [io::ErrorKind::Unsupported; 2]);
        }
    });
}

/// L5: the question itself panics. That is the handler's panic: its handle is closed, its thread is
/// back where it was, and everything goes on.
#[test]
fn a_question_that_panics_takes_nothing_with_it() {
    bounded(|| {
        for (threads, serve) in [(1, Serve::Any), (2, Serve::Chain), (2, Serve::Nothing)] {
            let (pool, world, witness) = pool(threads);
            let asked = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&asked);
            let (_, peer) = on_byte(&pool, &world, move |cx| {
                let errand = Errand { serve, ..ANY };
                let _ = cx.serve_until(errand, || {
                    assert!(
                        count.fetch_add(1, Ordering::AcqRel) < 2,
                        "a question too many"
                    );
                    false
                });
            });
            peer.send(b"x");
            // Something to ask after.
            let (_, echoed) = on_byte(&pool, &world, |cx| cx.write_all(b"y").unwrap());
            wait_until(|| {
                echoed.send(b"x");
                world.clock().advance(Duration::from_secs(1));
                peer.is_closed_by_pool() || serve == Serve::Nothing
            });
            if serve != Serve::Nothing {
                assert_eq!(pool.snapshot().panics, 1, "{serve:?}");
                assert!(asked.load(Ordering::Acquire) >= 3);
            }
            let (_, echoed) = on_byte(&pool, &world, |cx| cx.write_all(b"z").unwrap());
            echoed.send(b"x");
            assert_eq!(echoed.wait_for(1), b"z");
            assert_eq!(witness.most_leaders(), 1);
        }
    });
}
