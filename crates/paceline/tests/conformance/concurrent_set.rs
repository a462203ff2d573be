//! The concurrent handle set: all threads wait in it at once, each event is told to one of them,
//! and nobody leads.

use std::{
    io::{self, Read, Write},
    net::UdpSocket,
    os::unix::net::UnixStream,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Barrier, Mutex,
    },
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    bounded,
    by_hand::{claim, lead, own_task, serve_all, sleeps, status, take_lead},
    gate::Gate,
    told, wait_until, Witness, LONG,
};
use paceline::{
    observe::Role, turn::Waited, Builder, Closed, ConcurrentContext, Context, EventHandler, Handle,
    Interest, Left, Next, Pool, SetKind, TaskContext,
};

const MS: Duration = Duration::from_millis(1);

fn builder(threads: usize) -> Builder {
    Pool::builder()
        .threads(threads)
        .handle_set(SetKind::Concurrent)
}

fn pool(threads: usize) -> Pool {
    builder(threads).build().unwrap()
}

/// Threads that have joined, as the kernel knows them.
struct Joined(Vec<u32>);

impl Joined {
    /// So many more; they all sleep when this returns.
    fn to(pool: &Pool, count: usize) -> Self {
        let (tell, tasks) = mpsc::channel();
        for _ in 0..count {
            let (pool, tell) = (pool.clone(), tell.clone());
            thread::spawn(move || {
                tell.send(own_task()).unwrap();
                pool.join().unwrap();
            });
        }
        let tasks = tasks.iter().take(count).collect();
        let joined = Self(tasks);
        wait_until(|| pool.snapshot().threads >= count);
        joined.wait_asleep();
        joined
    }

    fn wait_asleep(&self) {
        wait_until(|| self.0.iter().all(|task| sleeps(*task)));
    }

    /// How many times they have gone to sleep, in all.
    fn sleeps_so_far(&self) -> u64 {
        let count = |task: &u32| status(*task, "voluntary_ctxt_switches:");
        let counts = self
            .0
            .iter()
            .map(|task| count(task).parse::<u64>().unwrap());
        counts.sum()
    }
}

/// A connection with this handler, and the peer's end.
fn serve(pool: &Pool, handler: impl EventHandler<UnixStream>) -> (Handle, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    far.set_read_timeout(Some(LONG)).unwrap();
    let handle = pool.register(near, Interest::READ, handler).unwrap();
    (handle, far)
}

/// Sends everything back.
fn echo(cx: &mut Context<'_, UnixStream>) -> io::Result<Next> {
    let mut buffer = [0; 64];
    match cx.read(&mut buffer)? {
        0 => Ok(Next::Close),
        count => cx.write_all(&buffer[..count]).map(|()| Next::Continue),
    }
}

fn expect_echo(mut far: &UnixStream, byte: u8) {
    far.write_all(&[byte]).unwrap();
    let mut answer = [0];
    far.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [byte]);
}

/// Activity 1.3: handle and set are both concurrent. Ten datagrams come, and three threads must be
/// inside at once; the kernel tells them. Nobody was promoted, nobody was woken, and each datagram
/// came once.
#[test]
fn a_concurrent_handle_needs_no_promotion_and_no_wake() {
    bounded(|| {
        let witness = Witness::default();
        let pool = builder(3).observer(witness.clone()).build().unwrap();
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        let barrier = Barrier::new(3);
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let handler = move |cx: &mut ConcurrentContext<'_, UdpSocket>| {
            let mut byte = [0];
            cx.try_read(|socket| socket.recv(&mut byte))?;
            if byte[0] < 9 {
                barrier.wait();
            }
            tell.lock().unwrap().send(byte[0]).unwrap();
            Ok(Next::Continue)
        };
        pool.register_concurrent(near, Interest::READ, handler)
            .unwrap();
        for _ in 0..100 {
            for byte in 0..10 {
                far.send(&[byte]).unwrap();
            }
            let mut all: Vec<_> = (0..10).map(|_| told.recv_timeout(LONG).unwrap()).collect();
            all.sort_unstable();
            assert_eq!(all, Vec::from_iter(0..10));
        }
        let seen = pool.snapshot();
        assert_eq!((seen.promotions, seen.wakes), (0, 0));
        assert_eq!(seen.leads_taken_back, 0);
        assert_eq!(witness.most_leaders(), 0);
        let report = pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
    });
}

/// Four threads sleep in the set, and four messages come, one after the other: each gets one,
/// though no handler returns. They are followers while they wait, and nobody ever leads.
#[test]
fn several_wait_at_once() {
    bounded(|| {
        let (witness, gate) = (Witness::default(), Gate::shut());
        let pool = builder(4).observer(witness.clone()).build().unwrap();
        witness.wait_for(Role::Follower, 4);
        let fars: Vec<_> = (0..4)
            .map(|_| {
                let gate = Arc::clone(&gate);
                let handler = move |cx: &mut Context<'_, UnixStream>| {
                    gate.pass();
                    echo(cx)
                };
                serve(&pool, handler).1
            })
            .collect();
        for (count, mut far) in (1..).zip(&fars) {
            far.write_all(b"x").unwrap();
            witness.wait_for(Role::Processing, count);
            witness.wait_for(Role::Follower, 4 - count);
        }
        gate.wait_for(4);
        gate.let_through(4);
        for mut far in &fars {
            far.read_exact(&mut [0]).unwrap();
        }
        let seen = pool.snapshot();
        assert_eq!((seen.promotions, seen.wakes), (0, 0));
        assert_eq!(witness.most_leaders(), 0);
    });
}

/// Three threads sleep, and one message comes at a time: one thread gets up for it, and calls the
/// handler once.
#[test]
fn one_event_to_one_caller() {
    const MESSAGES: u64 = 200;
    bounded(|| {
        let pool = pool(0);
        let joined = Joined::to(&pool, 3);
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let (_, far) = serve(&pool, move |cx: &mut Context<'_, UnixStream>| {
            counted.fetch_add(1, Ordering::SeqCst);
            echo(cx)
        });
        let before = joined.sleeps_so_far();
        for round in 0..MESSAGES {
            expect_echo(&far, round as u8);
            joined.wait_asleep();
        }
        let slept = joined.sleeps_so_far() - before;
        assert_eq!(calls.load(Ordering::SeqCst) as u64, MESSAGES);
        // All three would be 600.
        assert!(slept < 2 * MESSAGES, "{slept} times somebody got up");
        let _ = pool.shutdown(LONG);
    });
}

/// All sleep, and work is posted: one is woken for it. Two that need each other are both done: who
/// is woken for the first wakes another for the second.
#[test]
fn a_post_wakes_one_and_two_wake_two() {
    bounded(|| {
        let pool = pool(0);
        let joined = Joined::to(&pool, 3);
        for posts in 1..=20 {
            let (done, wait) = mpsc::channel();
            pool.post(move |_| done.send(()).unwrap()).unwrap();
            wait.recv_timeout(LONG).unwrap();
            joined.wait_asleep();
            assert_eq!(pool.snapshot().wakes, posts);
        }
        for _ in 0..100 {
            let barrier = Arc::new(Barrier::new(4));
            for _ in 0..3 {
                let barrier = Arc::clone(&barrier);
                let meet = move |_: &mut TaskContext<'_>| {
                    barrier.wait();
                };
                pool.post(meet).unwrap();
            }
            barrier.wait();
        }
        let _ = pool.shutdown(LONG);
    });
}

/// A timer's time comes while all sleep: it is called, also if it is earlier than one that was set
/// before, and by periodic ones again and again. Nobody is woken for it but by the clock.
#[test]
fn timers_are_called() {
    bounded(|| {
        let pool = pool(0);
        let _joined = Joined::to(&pool, 3);
        let (tell, told) = mpsc::channel();
        let late = tell.clone();
        pool.after(3600 * 1000 * MS, move |_| late.send(0).unwrap())
            .unwrap();
        for number in 1..=20 {
            let tell = tell.clone();
            pool.after(MS, move |_| tell.send(number).unwrap()).unwrap();
            assert_eq!(told.recv_timeout(LONG), Ok(number));
        }
        let ticks = pool.every(MS, move |_| tell.send(99).unwrap()).unwrap();
        (0..10).for_each(|_| assert_eq!(told.recv_timeout(LONG), Ok(99)));
        ticks.cancel_and_wait().unwrap();
        let report = pool.shutdown(LONG);
        assert_eq!(report.timers_not_due, 1);
    });
}

/// A timer's time comes while nobody waits: whoever comes next calls it.
#[test]
fn a_timer_waits_for_somebody() {
    bounded(|| {
        let pool = pool(0);
        let (tell, told) = mpsc::channel();
        pool.after(MS, move |_| tell.send(()).unwrap()).unwrap();
        let start = Instant::now();
        wait_until(|| start.elapsed() > 5 * MS);
        assert_eq!(serve_all(&pool), 1);
        told.try_recv().unwrap();
        assert_eq!(serve_all(&pool), 0);
    });
}

/// An idle handle is closed when its time is over, and another whose input nobody has taken yet is
/// not: the kernel knows of it, or a thread that was told and has not come to it.
#[test]
fn idle_is_idle() {
    bounded(|| {
        let pool = pool(0);
        let (handler, end) = told(echo);
        let (idle, _far) = serve(&pool, handler);
        let (handler, other_end) = told(echo);
        let (busy, mut far) = serve(&pool, handler);
        for handle in [&idle, &busy] {
            handle.set_timeout(Some(5 * MS)).unwrap();
        }
        far.write_all(b"x").unwrap();
        let start = Instant::now();
        wait_until(|| start.elapsed() > 10 * MS);
        wait_until(|| {
            serve_all(&pool);
            matches!(end.try_recv(), Ok(Closed::TimedOut))
        });
        far.read_exact(&mut [0]).unwrap();
        wait_until(|| {
            serve_all(&pool);
            matches!(other_end.try_recv(), Ok(Closed::TimedOut))
        });
    });
}

/// What is asked of a handle reaches it while all sleep: a notification, a changed interest, a
/// close that is waited for.
#[test]
fn requests_reach_their_handle() {
    bounded(|| {
        let pool = pool(0);
        let joined = Joined::to(&pool, 2);
        let (tell, calls) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, UnixStream>| {
            tell.send(cx.is_notified()).unwrap();
            echo(cx)
        };
        let (handler, end) = told(handler);
        let (handle, mut far) = serve(&pool, handler);
        for _ in 0..20 {
            joined.wait_asleep();
            handle.notify().unwrap();
            assert_eq!(calls.recv_timeout(LONG), Ok(true));
            joined.wait_asleep();
            handle.set_interest(Interest::NONE).unwrap();
            far.write_all(b"x").unwrap();
            handle.set_interest(Interest::READ).unwrap();
            assert_eq!(calls.recv_timeout(LONG), Ok(false));
            far.read_exact(&mut [0]).unwrap();
        }
        joined.wait_asleep();
        handle.close_and_wait().unwrap();
        assert!(matches!(end.try_recv(), Ok(Closed::Requested)));
        let _ = pool.shutdown(LONG);
    });
}

/// Closed while its handler runs, and waited for: the end is told when the handler has returned.
#[test]
fn closed_while_busy() {
    bounded(|| {
        let (pool, gate) = (pool(2), Gate::shut());
        let inside = Arc::clone(&gate);
        let (handler, end) = told(move |cx: &mut Context<'_, UnixStream>| {
            inside.pass();
            echo(cx)
        });
        let (handle, mut far) = serve(&pool, handler);
        far.write_all(b"x").unwrap();
        gate.wait_for(1);
        let waiter = thread::spawn(move || handle.close_and_wait());
        gate.let_through(1);
        waiter.join().unwrap().unwrap();
        assert!(matches!(end.try_recv(), Ok(Closed::Requested)));
    });
}

/// The end reaches everyone who sleeps, however many: the pool's own, and those that joined.
#[test]
fn a_shutdown_wakes_everyone() {
    bounded(|| {
        for handles in [0, 5] {
            let pool = pool(5);
            let guests: Vec<_> = (0..5)
                .map(|_| {
                    let pool = pool.clone();
                    thread::spawn(move || pool.join())
                })
                .collect();
            let _joined = Joined::to(&pool, 2);
            let fars: Vec<_> = (0..handles).map(|_| serve(&pool, echo).1).collect();
            let report = pool.shutdown(LONG);
            assert!(report.is_clean(), "{report}");
            guests
                .into_iter()
                .for_each(|guest| guest.join().unwrap().unwrap());
            for mut far in fars {
                assert_eq!(far.read_to_end(&mut Vec::new()).unwrap(), 0, "it is closed");
            }
        }
    });
}

/// S1: what has come before the shutdown is answered, though the kernel has told nobody of it yet:
/// the only thread is in a handler.
#[test]
fn a_shutdown_answers_what_has_come() {
    bounded(|| {
        let (pool, gate) = (pool(1), Gate::shut());
        let inside = Arc::clone(&gate);
        let (_, mut busy) = serve(&pool, move |cx: &mut Context<'_, UnixStream>| {
            inside.pass();
            echo(cx)
        });
        let answer = |cx: &mut Context<'_, UnixStream>| {
            assert!(!cx.is_hung_up(), "its peer is there");
            echo(cx)
        };
        let fars: Vec<_> = (0..10).map(|_| serve(&pool, answer).1).collect();
        busy.write_all(b"x").unwrap();
        gate.wait_for(1);
        for mut far in &fars {
            far.write_all(b"x").unwrap();
        }
        let ending = {
            let pool = pool.clone();
            thread::spawn(move || pool.shutdown(LONG))
        };
        wait_until(|| pool.post(|_| {}).is_err());
        gate.let_through(1);
        let report = ending.join().unwrap();
        assert!(report.is_clean(), "{report}");
        for mut far in fars {
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            assert_eq!(all, b"x");
        }
    });
}

/// A thread that joined for some time leaves when it is over, also if nothing ever happens; and one
/// whose time is over before it comes leads nobody and nothing.
#[test]
fn a_joined_thread_leaves_in_time() {
    bounded(|| {
        let pool = pool(0);
        let _joined = Joined::to(&pool, 1);
        for _ in 0..5 {
            assert_eq!(pool.join_timeout(5 * MS).unwrap(), Left::TimedOut);
        }
        assert_eq!(pool.join_timeout(Duration::ZERO).unwrap(), Left::TimedOut);
        let _ = pool.shutdown(LONG);
        assert_eq!(pool.join_timeout(LONG).unwrap(), Left::Closing);
        assert!(pool.enter().is_err());
    });
}

/// Threads come and go all the time, and each may be the one that was woken. What was posted is
/// done all the same.
#[test]
fn nothing_is_lost_if_a_waiter_leaves() {
    const POSTS: usize = 2000;
    bounded(|| {
        let pool = pool(1);
        let done = Arc::new(AtomicUsize::new(0));
        let visitors: Vec<_> = (0..3)
            .map(|number| {
                let (pool, done) = (pool.clone(), Arc::clone(&done));
                thread::spawn(move || {
                    while done.load(Ordering::SeqCst) < POSTS {
                        let _ = pool.join_timeout(number * MS / 2).unwrap();
                    }
                })
            })
            .collect();
        let (_, far) = serve(&pool, echo);
        for posts in 1..=POSTS {
            let counted = Arc::clone(&done);
            let count = move |_: &mut TaskContext<'_>| {
                counted.fetch_add(1, Ordering::SeqCst);
            };
            pool.post(count).unwrap();
            // One at a time, and now and then some together.
            if posts % 3 == 0 {
                wait_until(|| done.load(Ordering::SeqCst) == posts);
                expect_echo(&far, posts as u8);
            }
        }
        visitors
            .into_iter()
            .for_each(|visitor| visitor.join().unwrap());
        let report = pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
    });
}

/// A handler wants to be called again, and the thread that called it leaves the pool: one that
/// sleeps takes it over. So it does with an event that was claimed and is put back.
#[test]
fn who_leaves_leaves_nothing_behind() {
    bounded(|| {
        for claimed_only in [true, false] {
            let pool = pool(0);
            let (tell, calls) = mpsc::channel();
            let mut again = true;
            let (_, mut far) = serve(&pool, move |cx: &mut Context<'_, UnixStream>| {
                tell.send(thread::current().id()).unwrap();
                if std::mem::take(&mut again) {
                    Ok(Next::Again)
                } else {
                    echo(cx)
                }
            });
            far.write_all(b"x").unwrap();
            let claimed = claim(lead(&pool));
            let _joined = Joined::to(&pool, 1);
            if claimed_only {
                drop(claimed)
            } else {
                let follower = claimed.promote().run();
                assert_eq!(calls.recv_timeout(LONG), Ok(thread::current().id()));
                drop(follower);
            }
            let other = calls.recv_timeout(LONG).unwrap();
            assert_ne!(other, thread::current().id());
            far.read_exact(&mut [0]).unwrap();
            let _ = pool.shutdown(LONG);
        }
    });
}

/// Two threads go through the roles by hand at the same time: both may lead, one gets the event,
/// and the other nothing.
#[test]
fn everyone_leads_by_hand() {
    bounded(|| {
        let pool = pool(0);
        let (_, mut far) = serve(&pool, echo);
        far.write_all(b"x").unwrap();
        let (first, second) = (lead(&pool), lead(&pool));
        let claimed = claim(first);
        let Waited::Nothing(second) = second.wait(Some(MS)).unwrap() else {
            panic!("it is claimed");
        };
        let follower = claimed.promote().run();
        far.read_exact(&mut [0]).unwrap();
        drop((take_lead(second), follower));
        assert_eq!(pool.snapshot().threads, 0);
    });
}

/// F1: two handles want to be called again and again, by the only thread. What the kernel has to
/// tell is heard all the same.
#[test]
fn the_set_is_looked_at() {
    bounded(|| {
        let pool = pool(1);
        let many = [(); 2].map(|()| {
            let again = |_: &mut Context<'_, UnixStream>| Ok(Next::Again);
            let (handle, far) = serve(&pool, again);
            handle.notify().unwrap();
            (handle, far)
        });
        let (_, far) = serve(&pool, echo);
        (0..20).for_each(|byte| expect_echo(&far, byte));
        let (tell, told) = mpsc::channel();
        pool.after(MS, move |_| tell.send(()).unwrap()).unwrap();
        told.recv_timeout(LONG).unwrap();
        many.iter().for_each(|(handle, _)| handle.close().unwrap());
    });
}

/// A handler panics: its handle is closed, and the thread goes on.
#[test]
fn a_panic_takes_nothing() {
    bounded(|| {
        let pool = pool(1);
        let (handler, end) = told(|_: &mut Context<'_, UnixStream>| panic!("oh"));
        let (_, mut far) = serve(&pool, handler);
        far.write_all(b"x").unwrap();
        let why = end.recv_timeout(LONG).unwrap();
        assert!(matches!(why, Closed::Panicked(_)), "{why}");
        let (_, far) = serve(&pool, echo);
        expect_echo(&far, 7);
    });
}

/// Nobody leads, so nobody can find out that a leader is missing and call one more thread.
#[test]
fn elastic_threads_are_refused() {
    let set = SetKind::Concurrent;
    let built = Pool::builder().threads(1..=4).handle_set(set).build();
    let error = built.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("threads(1..=4)"), "{error}");
}
