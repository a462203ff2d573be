//! S1: shutdown ends by its deadline, from any role, called from anywhere, also before anyone
//! joined.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Mutex,
    },
    thread,
    time::Duration,
};

use crate::support::{bounded, kernel_sets, tcp_pair, told, wait_until, Told, Witness, LONG};
use paceline::{
    observe::Role,
    simulated::{SimPeer, SimStream, Simulation},
    Closed, Context, EventHandler, Handle, Interest, Left, Next, Order, Pool, SetKind,
    ShutdownReport, Wake, WeakPool,
};

/// A handler that waits for input for ever.
fn idle<S: 'static>() -> (Told<impl EventHandlerFn<S>>, mpsc::Receiver<Closed>) {
    told(|_: &mut Context<'_, S>| Ok(Next::Continue))
}

/// A closure that is a handler.
trait EventHandlerFn<S>: FnMut(&mut Context<'_, S>) -> io::Result<Next> + Send + 'static {}

impl<S, F> EventHandlerFn<S> for F where
    F: FnMut(&mut Context<'_, S>) -> io::Result<Next> + Send + 'static
{
}

fn simulated(threads: usize) -> (Simulation, Pool) {
    let world = Simulation::new(5);
    let pool = Pool::builder()
        .threads(threads)
        .handle_set(SetKind::Simulated(world.clone()))
        .build()
        .unwrap();
    (world, pool)
}

/// From outside, with idle handles: all are told, the pool's threads and those that joined go, and
/// the report is clean.
#[test]
fn from_outside() {
    bounded(|| {
        let witness = Witness::default();
        let pool = Pool::builder()
            .threads(2)
            .observer(witness.clone())
            .build()
            .unwrap();
        let ends: Vec<_> = (0..5)
            .map(|_| {
                let (near, far) = tcp_pair();
                let (handler, end) = idle();
                pool.register(near, Interest::READ, handler).unwrap();
                (far, end)
            })
            .collect();
        let joined = thread::spawn({
            let pool = pool.clone();
            move || pool.join()
        });
        witness.wait_for(Role::Leader, 1);
        witness.wait_for(Role::Follower, 2);
        let report = pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        joined.join().unwrap().unwrap();
        assert_eq!(witness.count(Role::Gone), 3);
        for (mut far, end) in ends {
            assert!(matches!(end.try_recv(), Ok(Closed::Shutdown)));
            assert_eq!(far.read_to_end(&mut Vec::new()).unwrap(), 0);
        }
    });
}

/// However the followers sleep, each in its own place or all in one, none of them is left there.
#[test]
fn sleepers_of_every_order_go() {
    bounded(|| {
        for wake in [Wake::Eager, Wake::Adaptive] {
            for order in [Order::Newest, Order::Oldest, Order::Priority, Order::System] {
                let pool = Pool::builder().threads(4).wake(wake).order(order);
                let pool = pool.build().unwrap();
                wait_until(|| format!("{pool:?}").contains("followers: 3"));
                let report = pool.shutdown(LONG);
                assert!(report.is_clean(), "{wake:?}, {order:?}: {report}");
            }
        }
    });
}

/// A server whose leader blocks in the set for ever can't be stopped (spserver, read). Here the
/// leader sleeps, nothing will ever happen, and the shutdown wakes it. Threads that joined return
/// `Ok`.
#[test]
fn shutdown_wakes_blocked_leader() {
    bounded(|| {
        let witness = Witness::default();
        let pool = Pool::builder()
            .threads(0)
            .observer(witness.clone())
            .build()
            .unwrap();
        let joined: Vec<_> = (0..3)
            .map(|_| {
                let pool = pool.clone();
                thread::spawn(move || pool.join())
            })
            .collect();
        witness.wait_for(Role::Leader, 1);
        witness.wait_for(Role::Follower, 2);
        let report = pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        for thread in joined {
            thread.join().unwrap().unwrap();
        }
        assert_eq!(witness.count(Role::Gone), 3);
    });
}

/// The same with a deadline of their own: they say that the pool closed, not that time was over.
#[test]
fn join_timeout_tells_the_shutdown() {
    bounded(|| {
        let witness = Witness::default();
        let pool = Pool::builder()
            .threads(1)
            .observer(witness.clone())
            .build()
            .unwrap();
        let joined = thread::spawn({
            let pool = pool.clone();
            move || pool.join_timeout(LONG * 10)
        });
        witness.wait_for(Role::Leader, 1);
        witness.wait_for(Role::Follower, 1);
        assert!(pool.shutdown(LONG).is_clean());
        assert_eq!(joined.join().unwrap().unwrap(), Left::Closing);
    });
}

/// A stop that came before the server had made its wake-up channel was forgotten, and the server
/// ran for ever (Thrift 2142). Ours is built with its waker, so a shutdown right after the build
/// ends even threads that have not run yet.
#[test]
fn stop_with_no_waker_yet() {
    bounded(|| {
        for round in 0..100 {
            let pool = Pool::builder().threads(round % 5).build().unwrap();
            let report = pool.shutdown(LONG);
            assert!(report.is_clean(), "{report}");
        }
    });
}

/// Threads that entered the event loop after its end was asked for ran it for ever, because each
/// entry cleared the flag (ACE 1999). Here the end is sticky: who joins later is told at once.
#[test]
fn shutdown_flag_sticky_before_join() {
    bounded(|| {
        let pool = Pool::builder().threads(0).build().unwrap();
        assert!(pool.shutdown(Duration::ZERO).is_clean());
        for _ in 0..3 {
            pool.join().unwrap();
            assert_eq!(pool.join_timeout(LONG).unwrap(), Left::Closing);
            let late = pool.enter().err().unwrap();
            assert_eq!(late.kind(), ErrorKind::BrokenPipe);
            assert!(late.to_string().contains("shut down"), "{late}");
        }
    });
}

/// A handler ends its own pool: it is not waited for, though its handle is still open; the others
/// are gone when the call returns.
#[test]
fn from_a_handler() {
    bounded(|| {
        let (world, pool) = simulated(3);
        let (other, _other_peer) = world.stream();
        let (other_handler, other_end) = idle();
        pool.register(other, Interest::READ, other_handler).unwrap();
        let (stream, peer) = world.stream();
        let (reports, report) = mpsc::channel();
        let weak = pool.downgrade();
        let (handler, end) = told(move |_: &mut Context<'_, SimStream>| {
            reports.send(shutdown(&weak, LONG)).unwrap();
            Ok(Next::Continue)
        });
        pool.register(stream, Interest::READ, handler).unwrap();
        // Virtual time stands still: only a shutdown that waits for nothing in vain returns.
        peer.send(b"end it");
        let report = report.recv_timeout(LONG).unwrap();
        assert!(report.is_clean(), "{report}");
        assert!(matches!(other_end.try_recv(), Ok(Closed::Shutdown)));
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Shutdown)));
    });
}

fn shutdown(weak: &WeakPool, within: Duration) -> ShutdownReport {
    weak.upgrade().unwrap().shutdown(within)
}

/// `closed` ends the pool, told by a thread of the pool and by the thread that called `close`.
#[test]
fn from_closed() {
    bounded(|| {
        for by_pool in [false, true] {
            let (world, pool) = simulated(2);
            let (stream, peer) = world.stream();
            let (reports, report) = mpsc::channel();
            let handler = EndsPool(pool.downgrade(), reports);
            let handle = pool.register(stream, Interest::READ, handler).unwrap();
            if by_pool {
                peer.finish()
            } else {
                handle.close().unwrap()
            }
            let report = report.recv_timeout(LONG).unwrap();
            assert!(report.is_clean(), "{report}");
            peer.wait_closed();
        }
    });
}

/// Shuts its pool down when it is closed.
struct EndsPool(WeakPool, mpsc::Sender<ShutdownReport>);

impl EventHandler<SimStream> for EndsPool {
    fn ready(&mut self, _: &mut Context<'_, SimStream>) -> io::Result<Next> {
        Ok(Next::Close)
    }

    fn closed(&mut self, _: Closed) {
        self.1.send(shutdown(&self.0, LONG)).unwrap();
    }
}

/// Two threads end the pool at the same time: both calls return, and together they list what was
/// left once.
#[test]
fn from_two_threads_at_once() {
    bounded(|| {
        for _ in 0..50 {
            let pool = Pool::builder().threads(2).build().unwrap();
            let ends: Vec<_> = (0..4)
                .map(|_| {
                    let (near, far) = tcp_pair();
                    let (handler, end) = idle();
                    pool.register(near, Interest::READ, handler).unwrap();
                    (far, end)
                })
                .collect();
            let other = thread::spawn({
                let pool = pool.clone();
                move || pool.shutdown(LONG)
            });
            let reports = [pool.shutdown(LONG), other.join().unwrap()];
            assert!(reports.iter().all(ShutdownReport::is_clean), "{reports:?}");
            for (_far, end) in ends {
                assert!(matches!(end.try_recv(), Ok(Closed::Shutdown)));
                assert!(end.try_recv().is_err(), "told once");
            }
        }
    });
}

/// Two handlers end the pool at the same time, so each waits for a thread that waits for it. Both
/// end by their deadline.
#[test]
fn from_two_handlers_at_once() {
    bounded(|| {
        let (world, pool) = simulated(3);
        let (reports, report) = mpsc::channel();
        let entered = Arc::new(AtomicUsize::new(0));
        let peers: Vec<_> = (0..2)
            .map(|_| {
                let (stream, peer) = world.stream();
                let (weak, reports) = (pool.downgrade(), reports.clone());
                let entered = Arc::clone(&entered);
                let handler = move |_: &mut Context<'_, SimStream>| {
                    entered.fetch_add(1, Ordering::SeqCst);
                    wait_until(|| entered.load(Ordering::SeqCst) == 2);
                    reports.send(shutdown(&weak, LONG)).unwrap();
                    Ok(Next::Continue)
                };
                pool.register(stream, Interest::READ, handler).unwrap();
                peer.send(b"end it");
                peer
            })
            .collect();
        let mut ended = 0;
        wait_until(|| {
            world.clock().advance(Duration::from_secs(1));
            ended += report.try_iter().count();
            ended == 2
        });
        peers.iter().for_each(|peer| peer.wait_closed());
    });
}

/// A handler of one pool closes a handle of a second pool, whose `closed` ends the first. The first
/// pool does not know that it was called from its own handler; it ends by its deadline all the
/// same.
#[test]
fn from_a_handler_through_another_pool() {
    bounded(|| {
        let (world, pool) = simulated(2);
        let (other_world, other_pool) = simulated(1);
        let (stream, _other_peer) = other_world.stream();
        let (reports, report) = mpsc::channel();
        let handler = EndsPool(pool.downgrade(), reports);
        let inner = other_pool
            .register(stream, Interest::READ, handler)
            .unwrap();
        let (stream, peer) = world.stream();
        let (handler, end) = told(move |_: &mut Context<'_, SimStream>| {
            inner.close().unwrap();
            Ok(Next::Continue)
        });
        pool.register(stream, Interest::READ, handler).unwrap();
        peer.send(b"end it");
        wait_until(|| {
            world.clock().advance(Duration::from_secs(1));
            report.try_recv().is_ok()
        });
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Shutdown)));
    });
}

/// The wake-up channel of ACE's reactor was a handle like the others: its thread suspended it
/// during the upcall, and wakes were lost (ACE 1998, 3714). Ours is no handle of the pool. Each of
/// many rounds, and the shutdown in the end, need a wake of a leader that sleeps.
#[test]
fn wakeup_source_never_deactivated() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let (near, mut far) = tcp_pair();
        let (calls, called) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, TcpStream>| {
            cx.read(&mut [0])?;
            cx.handle().set_interest(Interest::NONE).unwrap();
            calls.send(()).unwrap();
            Ok(Next::Continue)
        };
        far.write_all(&[7; 500]).unwrap();
        let handle = pool.register(near, Interest::NONE, handler).unwrap();
        for _ in 0..500 {
            handle.set_interest(Interest::READ).unwrap();
            called.recv_timeout(LONG).unwrap();
        }
        let report = pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
    });
}

/// Whoever wrote to a full notify pipe was blocked until the reactor read it, for ever if that was
/// the reactor's own thread (ACE 2465). Here far more wakes than any pipe holds are left while
/// nobody waits, and none of them blocks.
#[test]
fn wakeup_never_blocks_when_full() {
    for set in kernel_sets() {
        bounded(|| {
            let pool = Pool::builder().threads(0).handle_set(set);
            let pool = pool.build().unwrap();
            for _ in 0..100_000 {
                assert!(pool.shutdown(Duration::ZERO).is_clean());
            }
        });
    }
}

/// A handler that does not return is not waited for beyond the deadline: its thread and its handle
/// are listed, and both end when it returns.
#[test]
fn stuck_handler_is_listed() {
    bounded(|| {
        let (world, pool) = simulated(0);
        let (stream, peer) = world.stream();
        let (entered, has_entered) = mpsc::channel();
        let (gate, open) = mpsc::channel();
        let (handler, end) = told(move |_: &mut Context<'_, SimStream>| {
            entered.send(()).unwrap();
            open.recv_timeout(LONG).unwrap();
            Ok(Next::Continue)
        });
        pool.register(stream, Interest::READ, handler).unwrap();
        let joined = thread::Builder::new().name("slow".to_owned());
        let joined = joined
            .spawn({
                let pool = pool.clone();
                move || pool.join()
            })
            .unwrap();
        peer.send(b"x");
        has_entered.recv_timeout(LONG).unwrap();

        let report = report_of(&world, &pool, |clock| clock.advance(LONG));
        assert_eq!(report.stuck_threads.len(), 1);
        assert!(report.stuck_threads[0].starts_with("slow"), "{report:?}");
        assert_eq!(report.busy_handles, 1);
        assert!(!report.is_clean());
        assert!(
            report.to_string().contains("stuck: slow (thread 0)"),
            "{report}"
        );
        assert!(end.try_recv().is_err(), "its handler still runs");

        gate.send(()).unwrap();
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Shutdown)));
        joined.join().unwrap().unwrap();
    });
}

/// The deadline is one for the whole call, and is used: what is finished shortly before it ends
/// gracefully.
#[test]
fn waits_until_shortly_before_the_deadline() {
    bounded(|| {
        let (world, pool) = simulated(2);
        let (stream, peer) = world.stream();
        let (entered, has_entered) = mpsc::channel();
        let (gate, open) = mpsc::channel();
        let (handler, end) = told(move |cx: &mut Context<'_, SimStream>| {
            entered.send(()).unwrap();
            open.recv_timeout(LONG).unwrap();
            while cx.read(&mut [0; 16])? > 0 {}
            Ok(Next::Continue)
        });
        pool.register(stream, Interest::READ, handler).unwrap();
        peer.send(b"x");
        has_entered.recv_timeout(LONG).unwrap();
        let report = report_of(&world, &pool, |clock| {
            clock.advance(LONG / 10 * 8);
            gate.send(()).unwrap();
        });
        assert!(report.is_clean(), "{report}");
        assert!(matches!(end.try_recv(), Ok(Closed::Shutdown)));
    });
}

/// Calls shutdown with the time `LONG`, and `meanwhile` once it has begun.
fn report_of(
    world: &Simulation,
    pool: &Pool,
    meanwhile: impl FnOnce(&paceline::simulated::VirtualClock),
) -> ShutdownReport {
    let ending = thread::spawn({
        let pool = pool.clone();
        move || pool.shutdown(LONG)
    });
    wait_until(|| is_draining(world, pool));
    meanwhile(world.clock());
    ending.join().unwrap()
}

fn is_draining(world: &Simulation, pool: &Pool) -> bool {
    let (handler, _end) = idle();
    let registered = pool.register(world.stream().0, Interest::READ, handler);
    registered.map(|handle| handle.close()).is_err()
}

/// While a shutdown ends what is left, a request for one of those handles comes from a thread that
/// holds a lock which the handler's `closed` takes. The request calls nobody, so nobody waits for
/// himself.
#[test]
fn requests_during_the_end_call_nobody() {
    bounded(|| {
        let (world, pool) = simulated(1);
        let (tell, told_closed) = mpsc::channel();
        let (permission, gate) = mpsc::channel::<()>();
        let lock = Arc::new(Mutex::new(()));
        let (first, _first_peer) = flooded(&world, &pool, move || {
            tell.send(()).unwrap();
            gate.recv_timeout(LONG).expect("permission comes");
        });
        let of_second = Arc::clone(&lock);
        let (second, _second_peer) =
            flooded(&world, &pool, move || drop(of_second.lock().unwrap()));
        let ending = thread::spawn({
            let pool = pool.clone();
            move || pool.shutdown(LONG)
        });
        wait_until(|| is_draining(&world, &pool));
        // Time for the drain is over, time for the pool's thread to leave is not: with the thread
        // still there, the second handle could be busy instead of unfinished.
        world.clock().advance(LONG / 10 * 9);
        told_closed.recv_timeout(LONG).unwrap();
        let held = lock.lock().unwrap();
        second.notify().unwrap();
        drop(held);
        permission.send(()).unwrap();
        let left = ending.join().unwrap().unfinished;
        let ids: Vec<_> = left.iter().map(|left| left.handle).collect();
        assert_eq!(ids, [first.id(), second.id()]);
    });
}

/// A handle at rest whose peer has not taken all of its output, which may be called all the same;
/// and what it does at its end.
fn flooded(
    world: &Simulation,
    pool: &Pool,
    closing: impl FnMut() + Send + 'static,
) -> (Handle, SimPeer) {
    let (stream, peer) = world.stream();
    let (tell, flooded) = mpsc::channel();
    let closing = Box::new(closing);
    let handler = Flooding { tell, closing };
    let handle = pool.register(stream, Interest::NONE, handler).unwrap();
    handle.notify().unwrap();
    flooded.recv_timeout(LONG).unwrap();
    wait_until(|| world.clock().asleep() == 1);
    (handle, peer)
}

struct Flooding {
    tell: mpsc::Sender<()>,
    closing: Box<dyn FnMut() + Send>,
}

impl EventHandler<SimStream> for Flooding {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
        if cx.unsent() == 0 {
            cx.write_all(&[0; 100])?;
            cx.read_while_sending(true);
            self.tell.send(()).unwrap();
        }
        Ok(Next::Continue)
    }

    fn closed(&mut self, _: Closed) {
        (self.closing)();
    }
}
