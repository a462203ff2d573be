//! H3: nothing is dispatched for a handle after its deregistration returned, and never to the new
//! owner of a reused number or slot.

use std::{
    collections::VecDeque,
    io::{self, Write},
    net::TcpStream,
    os::{fd::AsRawFd, unix::net::UnixStream},
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc, Arc, Barrier, Mutex,
    },
    thread,
};

use crate::support::{
    bounded,
    by_hand::{claim, lead, serve_all, Scene},
    tcp_pair, told, wait_until, Random, LONG,
};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Closed, Context, EventHandler, Handle, Interest, Next, Pool, WeakPool,
};
use paceline::{Descriptor, Source};

/// A handler that counts its calls and reads everything.
fn counting(calls: &Arc<AtomicUsize>) -> impl EventHandler<SimStream> {
    let calls = Arc::clone(calls);
    move |cx: &mut Context<'_, SimStream>| {
        calls.fetch_add(1, Ordering::SeqCst);
        while cx.read(&mut [0; 16])? > 0 {}
        Ok(Next::Close)
    }
}

fn count(calls: &AtomicUsize) -> usize {
    calls.load(Ordering::SeqCst)
}

/// A thread closes a handle that is idle and has an event on its way: `closed` is told before
/// `close` returns, by that very call, and the event finds nobody.
#[test]
fn close_from_another_thread() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (world, pool) = (&scene.world, &scene.pool);
        let (stream, peer) = world.stream();
        let calls = Arc::new(AtomicUsize::new(0));
        let calls_seen = Arc::clone(&calls);
        let (handler, end) = told(move |_: &mut Context<'_, SimStream>| {
            calls.fetch_add(1, Ordering::SeqCst);
            Ok(Next::Continue)
        });
        let handle = pool.register(stream, Interest::READ, handler).unwrap();
        peer.send(b"too late");
        thread::spawn(move || handle.close())
            .join()
            .unwrap()
            .unwrap();
        assert!(matches!(end.try_recv(), Ok(Closed::Requested)));
        assert!(peer.is_closed_by_pool());
        assert_eq!(serve_all(pool), 0);
        assert_eq!(count(&calls_seen), 0);
    });
}

/// A handler closes its own handle and goes on: the call is recorded, the handler runs to its end,
/// and that was its last call although much of its input is unread.
#[test]
fn close_from_the_own_handler() {
    bounded(|| {
        let (near, mut far) = tcp_pair();
        let pool = Pool::builder().threads(2).build().unwrap();
        let (calls, calls_seen) = mpsc::channel();
        let (handler, end) = told(move |cx: &mut Context<'_, TcpStream>| {
            cx.handle().close().unwrap();
            let again = cx.handle().close().unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::NotFound);
            let mut one = [0];
            cx.read(&mut one)?;
            cx.write_all(&one)?;
            calls.send(one[0]).unwrap();
            Ok(Next::Continue)
        });
        far.write_all(b"abc").unwrap();
        pool.register(near, Interest::READ, handler).unwrap();
        let why = end.recv_timeout(LONG).unwrap();
        assert!(matches!(why, Closed::Requested), "{why:?}");
        assert_eq!(calls_seen.iter().collect::<Vec<_>>(), b"a");
        assert!(end.recv_timeout(LONG).is_err(), "told once");
    });
}

/// A handler closes another handle: an idle one is told at once, inside the call; one whose own
/// handler runs right now is told when that returns, by the thread that has it, and is not called
/// again.
#[test]
fn close_from_anothers_handler() {
    bounded(|| {
        let pool = Pool::builder().threads(3).build().unwrap();
        let (idle, _idle_far) = tcp_pair();
        let (idle_handler, idle_end) = told(|_: &mut Context<'_, TcpStream>| Ok(Next::Continue));
        let idle = pool.register(idle, Interest::READ, idle_handler).unwrap();

        let (busy, mut busy_far) = tcp_pair();
        let (entered, has_entered) = mpsc::channel();
        let (gate, open) = mpsc::channel();
        let (busy_handler, busy_end) = told(move |cx: &mut Context<'_, TcpStream>| {
            cx.read(&mut [0])?;
            entered.send(()).unwrap();
            open.recv_timeout(LONG).unwrap();
            Ok(Next::Continue)
        });
        let busy = pool.register(busy, Interest::READ, busy_handler).unwrap();
        busy_far.write_all(b"12").unwrap();
        has_entered.recv_timeout(LONG).unwrap();

        let (closer, mut closer_far) = tcp_pair();
        let (done, is_done) = mpsc::channel();
        let both = Mutex::new((idle_end, busy_end));
        let closer_handler = move |cx: &mut Context<'_, TcpStream>| {
            cx.read(&mut [0])?;
            let (idle_end, busy_end) = &*both.lock().unwrap();
            idle.close().unwrap();
            busy.close().unwrap();
            let idle_told = matches!(idle_end.try_recv(), Ok(Closed::Requested));
            let busy_untold = busy_end.try_recv().is_err();
            gate.send(()).unwrap();
            let busy_told = matches!(busy_end.recv_timeout(LONG), Ok(Closed::Requested));
            done.send([idle_told, busy_untold, busy_told]).unwrap();
            Ok(Next::Continue)
        };
        pool.register(closer, Interest::READ, closer_handler)
            .unwrap();
        closer_far.write_all(b"x").unwrap();
        assert_eq!(is_done.recv_timeout(LONG).unwrap(), [true; 3]);
        assert!(has_entered.recv_timeout(LONG).is_err(), "called again");
    });
}

/// ACE's thread pool reactor resumed a handle by its number when the upcall was over. If the upcall
/// had closed it, and another thread had opened a connection that got the number, that one was
/// resumed while it was suspended (ACE 2395, E5). Here the number and the slot go to another
/// registration while the old one's turn is not over yet; what is put back then is nobody's.
#[test]
fn fd_reused_during_upcall_not_resumed() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (world, pool) = (&scene.world, &scene.pool);
        let (stream, old_peer) = world.stream();
        let number = stream.descriptor().as_raw_fd();
        let (freed, is_freed) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        let source = Freed(Some(stream), freed, may_go_on);
        let close_at_once = |_: &mut Context<'_, Freed>| Ok(Next::Close);
        let old = pool
            .register(source, Interest::READ, close_at_once)
            .unwrap();
        old_peer.send(b"x");
        let turn = thread::spawn({
            let pool = pool.clone();
            move || serve_all(&pool)
        });

        is_freed.recv_timeout(LONG).unwrap();
        let (stream, peer) = world.stream();
        assert_eq!(
            stream.descriptor().as_raw_fd(),
            number,
            "the number is used again"
        );
        let calls = Arc::new(AtomicUsize::new(0));
        let next = pool
            .register(stream, Interest::NONE, counting(&calls))
            .unwrap();
        assert_eq!(slot_of(&next), slot_of(&old), "the slot is used again");
        peer.send(b"for the next owner");
        go_on.send(()).unwrap();

        assert_eq!(turn.join().unwrap(), 1);
        assert_eq!(count(&calls), 0, "the suspended one was resumed");
        next.set_interest(Interest::READ).unwrap();
        assert_eq!(serve_all(pool), 1);
        assert_eq!(count(&calls), 1);
    });
}

/// A source that tells when its number is free again, and holds up the thread that dropped it.
struct Freed(Option<SimStream>, mpsc::Sender<()>, mpsc::Receiver<()>);

impl Source for Freed {
    fn descriptor(&self) -> Descriptor<'_> {
        self.0.as_ref().unwrap().descriptor()
    }
}

impl Drop for Freed {
    fn drop(&mut self) {
        self.0 = None;
        self.1.send(()).unwrap();
        self.2.recv_timeout(LONG).unwrap();
    }
}

/// The slot's number: what stands before the generation in the handle's name.
fn slot_of(handle: &Handle) -> String {
    let name = handle.id().to_string();
    name.split('.').next().unwrap().to_owned()
}

/// An event that the set had noted before a handle was closed comes afterwards, when its slot has a
/// new owner. Systems that look up the slot alone hand it to that one. Ours compares generations:
/// the event is counted as stale, and the new owner is not called.
#[test]
fn close_during_batch_is_not_dispatched() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (world, pool) = (&scene.world, &scene.pool);
        let [first_calls, second_calls, third_calls] =
            [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let (first, first_peer) = world.stream();
        let (second, second_peer) = world.stream();
        pool.register(first, Interest::READ, counting(&first_calls))
            .unwrap();
        let second = pool
            .register(second, Interest::READ, counting(&second_calls))
            .unwrap();
        first_peer.send(b"1");
        let processing = claim(lead(pool)).promote();
        // The second one's event is in the set now, and the batch of the first was before it.
        second_peer.send(b"2");
        second.close().unwrap();
        let (third, third_peer) = world.stream();
        let third = pool
            .register(third, Interest::READ, counting(&third_calls))
            .unwrap();
        assert_eq!(slot_of(&third), slot_of(&second));
        drop(processing.run());
        assert_eq!(serve_all(pool), 0);
        assert_eq!(pool.snapshot().stale_events, 1);
        third_peer.send(b"3");
        assert_eq!(serve_all(pool), 1);
        let calls = [first_calls, second_calls, third_calls].map(|calls| count(&calls));
        assert_eq!(calls, [1, 0, 1]);
    });
}

/// The same for an event that has left the set already: both handles are in the leader's own line
/// when the first one's handler closes the second. The second has its turn, but only to be told the
/// end.
#[test]
fn close_of_a_handle_in_the_line_is_not_dispatched() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (world, pool) = (&scene.world, &scene.pool);
        let (first, first_peer) = world.stream();
        let (second, second_peer) = world.stream();
        let calls = Arc::new(AtomicUsize::new(0));
        let calls_seen = Arc::clone(&calls);
        let (handler, end) = told(move |_: &mut Context<'_, SimStream>| {
            calls.fetch_add(1, Ordering::SeqCst);
            Ok(Next::Continue)
        });
        let second = pool.register(second, Interest::READ, handler).unwrap();
        let close_it = move |cx: &mut Context<'_, SimStream>| {
            second.close().unwrap();
            while cx.read(&mut [0; 16])? > 0 {}
            Ok(Next::Continue)
        };
        pool.register(first, Interest::READ, close_it).unwrap();
        first_peer.send(b"1");
        second_peer.send(b"2");
        assert_eq!(serve_all(pool), 2);
        assert!(matches!(end.try_recv(), Ok(Closed::Requested)));
        assert_eq!(count(&calls_seen), 0);
    });
}

/// A close hook that called back into the reactor met a lock that its caller held (ACE 1055; TAO
/// 1482, 1551; Thrift 2070). Ours is called outside of every lock: it registers, closes others,
/// changes interests, and waits for an end; on a thread of the pool and on another's.
#[test]
fn close_callback_runs_outside_locks() {
    bounded(|| {
        let pool = Pool::builder().threads(1).build().unwrap();
        for by_pool in [false, true] {
            let (other, _other_far) = tcp_pair();
            let (other_handler, other_end) =
                told(|_: &mut Context<'_, TcpStream>| Ok(Next::Continue));
            let other = pool.register(other, Interest::NONE, other_handler).unwrap();
            let (done, is_done) = mpsc::channel();
            let (near, mut far) = tcp_pair();
            let handler = CallsBack {
                pool: pool.downgrade(),
                other,
                done,
            };
            let handle = pool.register(near, Interest::READ, handler).unwrap();
            if by_pool {
                far.write_all(b"x").unwrap()
            } else {
                handle.close().unwrap()
            }
            is_done.recv_timeout(LONG).unwrap();
            let why = other_end.recv_timeout(LONG).unwrap();
            assert!(matches!(why, Closed::Requested), "{why:?}");
        }
        assert_eq!(pool.snapshot().panics, 0);
    });
}

/// Calls the pool for everything when it is closed.
struct CallsBack {
    pool: WeakPool,
    other: Handle,
    done: mpsc::Sender<()>,
}

impl EventHandler<TcpStream> for CallsBack {
    fn ready(&mut self, _: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        Ok(Next::Close)
    }

    fn closed(&mut self, _: Closed) {
        let pool = self.pool.upgrade().unwrap();
        let (near, _far) = tcp_pair();
        let handler = |_: &mut Context<'_, TcpStream>| Ok(Next::Continue);
        let new = pool.register(near, Interest::READ, handler).unwrap();
        new.set_interest(Interest::READ | Interest::WRITE).unwrap();
        new.close_and_wait().unwrap();
        self.other.set_interest(Interest::READ).unwrap();
        self.other.close().unwrap();
        let _ = (pool.snapshot(), format!("{pool:?}"));
        self.done.send(()).unwrap();
    }
}

/// Handlers that register and close others in the middle of a dispatch made ACE loop without a wait
/// (ACE 1890, 2540). Here each event closes an idle handle and its own, and opens two pairs of
/// them, up to a limit. There are exactly as many turns as there is something to do, and then the
/// leader waits: it sleeps, and does not look again and again.
#[test]
fn handler_set_changes_mid_dispatch() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (world, pool) = (&scene.world, &scene.pool);
        let tree = Tree {
            pool: pool.downgrade(),
            world: world.clone(),
            left: Arc::new(AtomicUsize::new(31)),
            ended: Arc::new(AtomicUsize::new(0)),
            idle: None,
        };
        tree.grow();
        assert_eq!(serve_all(pool), 31);
        assert_eq!(count(&tree.ended), 62);
        assert_eq!(serve_all(pool), 0);

        let _leader = scene.joined();
        tree.left.store(31, Ordering::SeqCst);
        tree.grow();
        wait_until(|| count(&tree.ended) == 124 && world.clock().asleep() == 1);
        assert_eq!(pool.snapshot().promotions, 62);
    });
}

/// A handler that replaces itself by two others.
#[derive(Clone)]
struct Tree {
    pool: WeakPool,
    world: Simulation,
    left: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    /// A handle without events, which goes with it.
    idle: Option<Handle>,
}

impl Tree {
    fn grow(&self) {
        let one_less = |left: usize| left.checked_sub(1);
        let order = Ordering::SeqCst;
        if self.left.fetch_update(order, order, one_less).is_ok() {
            let (idle, _) = self.register(None);
            let (_, peer) = self.register(Some(idle));
            peer.send(b"leaf");
        }
    }

    fn register(&self, idle: Option<Handle>) -> (Handle, SimPeer) {
        let pool = self.pool.upgrade().unwrap();
        let (stream, peer) = self.world.stream();
        let handler = Self {
            idle,
            ..self.clone()
        };
        let handle = pool.register(stream, Interest::READ, handler).unwrap();
        (handle, peer)
    }
}

impl EventHandler<SimStream> for Tree {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
        self.grow();
        self.grow();
        self.idle.take().unwrap().close().unwrap();
        cx.read(&mut [0; 16])?;
        Ok(Next::Close)
    }

    fn closed(&mut self, _: Closed) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

/// A key without a generation goes astray when its slot is used again (E5). Ours goes stale: every
/// call says so, says what was attempted, and leaves the slot's next owner alone, however often it
/// changed.
#[test]
fn stale_handle_is_not_found() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (world, pool) = (&scene.world, &scene.pool);
        let mut stale: Vec<Handle> = Vec::new();
        for _ in 0..50 {
            let (stream, peer) = world.stream();
            let calls = Arc::new(AtomicUsize::new(0));
            let handle = pool
                .register(stream, Interest::NONE, counting(&calls))
                .unwrap();
            peer.send(b"x");
            for old in &stale {
                let told = old.set_interest(Interest::READ).unwrap_err();
                assert_eq!(told.kind(), io::ErrorKind::NotFound);
                assert!(told.to_string().contains("set_interest"), "{told}");
                let told = old.close().unwrap_err();
                assert_eq!(told.kind(), io::ErrorKind::NotFound);
                assert!(told.to_string().contains("close"), "{told}");
            }
            assert_eq!(serve_all(pool), 0);
            assert_eq!(count(&calls), 0);
            assert!(!peer.is_closed_by_pool());
            handle.close().unwrap();
            stale.push(handle);
        }
        let slots: Vec<_> = stale.iter().map(slot_of).collect();
        assert!(slots.iter().all(|slot| *slot == slots[0]), "{slots:?}");
    });
}

/// Many threads close one handle while its handler closes it too: exactly one of them is the one
/// who did it, and `closed` is told exactly once.
#[test]
fn closed_is_told_once_under_racing_closes() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let mut random = Random::new(3);
        for _ in 0..200 {
            let (near, mut far) = tcp_pair();
            let by_itself = random.once_in(2);
            let (handler, end) = told(move |_: &mut Context<'_, TcpStream>| {
                Ok(if by_itself {
                    Next::Close
                } else {
                    Next::Continue
                })
            });
            let handle = pool.register(near, Interest::READ, handler).unwrap();
            let start = Arc::new(Barrier::new(4));
            let closers: Vec<_> = (0..3)
                .map(|_| {
                    let (start, handle) = (Arc::clone(&start), handle.clone());
                    thread::spawn(move || {
                        start.wait();
                        handle.close().is_ok()
                    })
                })
                .collect();
            start.wait();
            far.write_all(b"x").unwrap();
            let closers = closers.into_iter().map(|closer| closer.join().unwrap());
            let successes = closers.filter(|success| *success).count();
            let why = end.recv_timeout(LONG).unwrap();
            match why {
                // The close came while the handler ran, which then ended it by itself.
                Closed::Finished => assert!(successes <= 1),
                Closed::Requested => assert_eq!(successes, 1),
                other => panic!("{other:?}"),
            }
            assert!(end.recv_timeout(LONG).is_err(), "told once");
        }
    });
}

/// `close` first asks for the end and then looks whether it can bring it about itself. In between,
/// the thread that has the handle may have ended it, and the slot may belong to somebody else: that
/// one must not be closed. Closers race with handlers that end by themselves, while a bystander
/// holds idle handles in the slots that become free: nobody but itself ever closes those.
#[test]
fn close_never_hits_the_next_owner_of_the_slot() {
    bounded(|| {
        let pool = Pool::builder().threads(3).build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let racers: Vec<_> = (0..12)
            .map(|_| {
                let (pool, stop) = (pool.clone(), Arc::clone(&stop));
                thread::spawn(move || race_with_own_end(&pool, &stop))
            })
            .collect();
        let hit = hold_idle_handles(&pool, 100_000);
        stop.store(true, Ordering::SeqCst);
        racers.into_iter().for_each(|racer| racer.join().unwrap());
        assert_eq!(hit, None, "a handle was closed by nobody");
    });
}

/// Closes handles at the moment when their handlers end them.
fn race_with_own_end(pool: &Pool, stop: &AtomicBool) {
    let (near, _far) = UnixStream::pair().unwrap();
    let near = Arc::new(near);
    while !stop.load(Ordering::SeqCst) {
        let handler = |_: &mut Context<'_, Arc<UnixStream>>| Ok(Next::Close);
        let handle = pool
            .register(Arc::clone(&near), Interest::WRITE, handler)
            .unwrap();
        let _ = handle.close();
        wait_until(|| Arc::strong_count(&near) == 1);
    }
}

/// Holds up to 64 handles at a time, `rounds` in all. Tells why one had ended before it was closed.
fn hold_idle_handles(pool: &Pool, rounds: usize) -> Option<String> {
    let mut free: VecDeque<_> = (0..64)
        .map(|_| Arc::new(UnixStream::pair().unwrap().0))
        .collect();
    let mut held = VecDeque::new();
    for _ in 0..rounds {
        if let Some(stream) = free.pop_front() {
            let (handler, end) = told(|_: &mut Context<'_, Arc<UnixStream>>| Ok(Next::Continue));
            let handle = pool
                .register(Arc::clone(&stream), Interest::NONE, handler)
                .unwrap();
            held.push_back((stream, handle, end));
        } else if let Some((stream, handle, end)) = held.pop_front() {
            let closed = handle.close();
            let why = end.recv_timeout(LONG).unwrap();
            if let Err(error) = closed {
                return Some(format!("{why:?}, then {error}"));
            }
            wait_until(|| Arc::strong_count(&stream) == 1);
            free.push_back(stream);
        }
    }
    None
}
