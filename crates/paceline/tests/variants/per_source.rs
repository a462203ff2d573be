//! A leader per source: for sources that have a wait of their own. At most one thread waits in each
//! (L1), a source has a leader while a thread is free (L2), the lead is given away before the
//! handler runs (L3), and all ends in time (S1).

use std::{
    collections::HashSet,
    io,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender},
        Arc, Condvar, Mutex,
    },
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use crate::support::{bounded, wait_until, LONG};
use paceline::{Arrived, BlockingSource, Interrupter, Left, SourcePool};

/// A channel that knows who waits in it.
struct Watched {
    channel: Receiver<u32>,
    inside: AtomicBool,
    leaders: Arc<Mutex<HashSet<ThreadId>>>,
}

impl Watched {
    fn new() -> (Sender<u32>, Self, Arc<Mutex<HashSet<ThreadId>>>) {
        let ((send, channel), leaders) = (mpsc::channel(), Arc::default());
        let source = Self {
            channel,
            inside: AtomicBool::new(false),
            leaders: Arc::clone(&leaders),
        };
        (send, source, leaders)
    }
}

impl BlockingSource for Watched {
    type Event = u32;

    fn wait(&mut self, until: Option<Instant>) -> io::Result<Arrived<u32>> {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "two leaders");
        self.leaders.lock().unwrap().insert(thread::current().id());
        let told = self.channel.wait(until);
        self.inside.store(false, Ordering::SeqCst);
        told
    }
}

/// A source that brings nothing, waits for ever, and can be interrupted. Counts how often it was
/// asked.
#[derive(Clone, Default)]
struct Deaf(Arc<(Mutex<bool>, Condvar, AtomicUsize)>);

impl BlockingSource for Deaf {
    type Event = ();

    fn wait(&mut self, until: Option<Instant>) -> io::Result<Arrived<()>> {
        let (interrupted, bell, waits) = &*self.0;
        waits.fetch_add(1, Ordering::SeqCst);
        assert!(until.is_none(), "it may wait for ever");
        let mut guard = interrupted.lock().unwrap();
        while !*guard {
            guard = bell.wait(guard).unwrap();
        }
        Ok(Arrived::Nothing)
    }

    fn interrupter(&self) -> Option<Interrupter> {
        let inside = Arc::clone(&self.0);
        Some(Box::new(move || {
            *inside.0.lock().unwrap() = true;
            inside.1.notify_all();
        }))
    }
}

/// brpc 1120: every thread led some source, and nobody was left to do anything. With as many
/// sources as threads the pool is refused, and so is a source too many; guests, who may leave, do
/// not count. What is over makes room.
#[test]
fn leaders_always_fewer_than_threads() {
    bounded(|| {
        let three = || {
            let builder = SourcePool::builder();
            (0..3).fold(builder, |builder, _| {
                builder.source("deaf", Deaf::default(), drop)
            })
        };
        for threads in [0, 1, 3] {
            let error = three().threads(threads).build().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let text = format!("3 sources with {threads} threads");
            assert!(error.to_string().contains(&text), "{error}");
        }
        let pool = three().threads(4).build().unwrap();
        let guest = {
            let pool = pool.clone();
            thread::spawn(move || pool.join().unwrap())
        };
        wait_until(|| (pool.snapshot().leaders, pool.snapshot().followers) == (3, 2));
        let rejected = pool.add("one too many", Deaf::default(), drop).unwrap_err();
        assert_eq!(rejected.error.kind(), io::ErrorKind::InvalidInput);
        assert!(rejected.to_string().contains("4 sources with 4 threads"));
        assert!(pool.shutdown(LONG).is_clean());
        guest.join().unwrap();
        let ended = pool.add("late", rejected.value.0, rejected.value.1);
        assert_eq!(ended.unwrap_err().error.kind(), io::ErrorKind::BrokenPipe);
    });
}

/// A source that is over makes room for another.
#[test]
fn what_is_over_makes_room() {
    bounded(|| {
        let (send, channel) = mpsc::channel::<u32>();
        let pool = SourcePool::builder()
            .threads(3)
            .source("deaf", Deaf::default(), drop)
            .source("short", channel, drop)
            .build()
            .unwrap();
        assert!(pool.add("third", Deaf::default(), drop).is_err());
        drop(send);
        wait_until(|| pool.snapshot().sources == 1);
        pool.add("third", Deaf::default(), drop).unwrap();
        wait_until(|| pool.snapshot().leaders == 2);
        assert!(pool.shutdown(LONG).is_clean());
    });
}

/// A panic of the interrupter's maker left `add` after it had taken a place, which nothing gave
/// back: the pool had room for one source less, and did not end with its last one. Now the pool is
/// as it was before that call. (L5, S1)
#[test]
fn a_panic_in_add_takes_no_place() {
    struct Bad(mpsc::Sender<()>);

    impl BlockingSource for Bad {
        type Event = ();

        fn wait(&mut self, _: Option<Instant>) -> io::Result<Arrived<()>> {
            Ok(Arrived::Over)
        }

        fn interrupter(&self) -> Option<Interrupter> {
            panic!("interrupter fails")
        }
    }

    impl Drop for Bad {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            panic!("drop fails");
        }
    }

    bounded(|| {
        let (send, channel) = mpsc::channel::<u32>();
        let (sender, dropped) = mpsc::channel();
        let builder = SourcePool::builder().threads(3);
        let pool = builder.source("good", channel, drop).build().unwrap();
        let add = || pool.add("bad", Bad(sender), drop);
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(add)).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"interrupter fails"));
        dropped.recv().unwrap();
        assert_eq!(pool.snapshot().sources, 1);
        let deaf = Deaf::default();
        pool.add("second", deaf, drop).unwrap();
        assert!(pool.add("third", Deaf::default(), drop).is_err());
        drop((send, pool));
        let (send, channel) = mpsc::channel::<u32>();
        let pool = SourcePool::builder().source("good", channel, drop);
        let pool = pool.build().unwrap();
        let (sender, _dropped) = mpsc::channel();
        let add = || pool.add("bad", Bad(sender), drop);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(add)).is_err());
        drop(send);
        pool.join().unwrap();
    });
}

/// Three sources, five threads: every event is handled once, one thread waits in each source at a
/// time, and it is not always the same one.
#[test]
fn any_follower_takes_any_source() {
    const EVENTS: u32 = 2_000;
    bounded(|| {
        let sum = Arc::new(AtomicUsize::new(0));
        let mut builder = SourcePool::builder().threads(5);
        let (mut senders, mut leaders) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let (send, source, seen) = Watched::new();
            let sum = Arc::clone(&sum);
            builder = builder.source("watched", source, move |event| {
                sum.fetch_add(event as usize, Ordering::SeqCst);
            });
            senders.push(send);
            leaders.push(seen);
        }
        let pool = builder.build().unwrap();
        wait_until(|| (pool.snapshot().leaders, pool.snapshot().followers) == (3, 2));
        for _ in 0..EVENTS {
            senders.iter().for_each(|send| send.send(1).unwrap());
            let snapshot = pool.snapshot();
            assert!(snapshot.leaders <= snapshot.sources);
        }
        drop(senders);
        pool.join().unwrap();
        assert!(pool.shutdown(LONG).is_clean());
        let snapshot = pool.snapshot();
        assert_eq!(sum.load(Ordering::SeqCst), 3 * EVENTS as usize);
        assert_eq!(snapshot.events, 3 * u64::from(EVENTS));
        assert_eq!((snapshot.sources, snapshot.leaders), (0, 0));
        for seen in leaders {
            assert!(
                seen.lock().unwrap().len() > 1,
                "one thread led all the time"
            );
        }
    });
}

/// L3: a handler that blocks leaves its source a leader: the next event of the same source is
/// handled meanwhile.
#[test]
fn promoted_before_the_handler_runs() {
    bounded(|| {
        let (send, channel) = mpsc::channel::<Receiver<()>>();
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let pool = SourcePool::builder()
            .threads(2)
            .source("gates", channel, move |gate: Receiver<()>| {
                let _ = gate.recv();
                tell.lock().unwrap().send(()).unwrap();
            })
            .build()
            .unwrap();
        wait_until(|| pool.snapshot().followers == 1);
        let (open, gate) = mpsc::channel();
        send.send(gate).unwrap();
        wait_until(|| pool.snapshot().promotions == 1);
        let (second, gate) = mpsc::channel();
        drop(second);
        send.send(gate).unwrap();
        told.recv_timeout(LONG).unwrap();
        drop(open);
        told.recv_timeout(LONG).unwrap();
        assert!(pool.shutdown(LONG).is_clean());
    });
}

/// With all threads in handlers a source waits; whoever comes back first takes it.
#[test]
fn whoever_comes_back_takes_it() {
    bounded(|| {
        let (send, channel) = mpsc::channel::<Receiver<()>>();
        let pool = SourcePool::builder()
            .threads(2)
            .source("gates", channel, |gate: Receiver<()>| {
                let _ = gate.recv();
            })
            .build()
            .unwrap();
        let gates: Vec<_> = (0..2)
            .map(|_| {
                let (open, gate) = mpsc::channel::<()>();
                send.send(gate).unwrap();
                open
            })
            .collect();
        wait_until(|| pool.snapshot().events == 2);
        wait_until(|| pool.snapshot().leaders == 0);
        let (third, gate) = mpsc::channel();
        drop(third);
        send.send(gate).unwrap();
        assert_eq!(pool.snapshot().events, 2);
        drop(gates);
        wait_until(|| pool.snapshot().events == 3);
        assert!(pool.shutdown(LONG).is_clean());
    });
}

/// S1: leaders that wait for ever are interrupted, others look up; a handler that does not return
/// is listed. An idle source that can be interrupted is asked once, and costs nothing.
#[test]
fn shutdown_ends_in_time() {
    bounded(|| {
        let (deaf, (send, channel)) = (Deaf::default(), mpsc::channel::<Receiver<()>>());
        let pool = SourcePool::builder()
            .threads(4)
            .source("deaf", deaf.clone(), drop)
            .source("gates", channel, |gate: Receiver<()>| {
                let _ = gate.recv();
            })
            .build()
            .unwrap();
        wait_until(|| pool.snapshot().leaders == 2);
        let (open, gate) = mpsc::channel();
        send.send(gate).unwrap();
        wait_until(|| pool.snapshot().events == 1);
        let report = pool.shutdown(Duration::from_millis(300));
        assert_eq!(report.stuck_threads.len(), 1, "{report:?}");
        assert_eq!(deaf.0 .2.load(Ordering::SeqCst), 1);
        drop(open);
        assert_eq!(pool.join_timeout(LONG).unwrap(), Left::Closing);
    });
}

/// S1: from a handler, too; and dropping the last handle ends the threads without waiting.
#[test]
fn ended_from_a_handler_and_by_a_drop() {
    bounded(|| {
        let (send, channel) = mpsc::channel::<SourcePool>();
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let source = Deaf::default();
        let pool = SourcePool::builder()
            .threads(3)
            .source("itself", channel, move |pool: SourcePool| {
                let report = pool.shutdown(LONG);
                tell.lock().unwrap().send(report.is_clean()).unwrap();
            })
            .source("deaf", source.clone(), drop)
            .build()
            .unwrap();
        send.send(pool.clone()).unwrap();
        assert!(told.recv_timeout(LONG).unwrap());
        drop(pool);
        let second = Deaf::default();
        let pool = SourcePool::builder().source("deaf", second.clone(), drop);
        drop(pool.build().unwrap());
        wait_until(|| Arc::strong_count(&second.0) == 1);
    });
}

/// L5: a handler that panics takes neither its thread nor its source along. A wait that fails or
/// panics ends its source, which is listed by name; the others go on.
#[test]
fn failures_stay_where_they_are() {
    struct Failing(&'static str);
    impl BlockingSource for Failing {
        type Event = ();
        fn wait(&mut self, _: Option<Instant>) -> io::Result<Arrived<()>> {
            assert_ne!(self.0, "panics", "on purpose");
            Err(io::Error::other("on purpose"))
        }
    }
    bounded(|| {
        let (send, channel) = mpsc::channel::<u32>();
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let pool = SourcePool::builder()
            .threads(4)
            .source("fails", Failing("fails"), drop)
            .source("panics", Failing("panics"), drop)
            .source("good", channel, move |event| {
                tell.lock().unwrap().send(event).unwrap();
                assert_ne!(event, 7, "on purpose");
            })
            .build()
            .unwrap();
        // A lock that was poisoned would end the row of numbers.
        for event in [1, 2, 3] {
            send.send(event).unwrap();
            assert_eq!(told.recv_timeout(LONG).unwrap(), event);
        }
        send.send(7).unwrap();
        wait_until(|| pool.snapshot().panics == 1);
        send.send(8).unwrap();
        assert_eq!(told.recv_timeout(LONG).unwrap(), 7);
        assert_eq!(told.recv_timeout(LONG).unwrap(), 8);
        wait_until(|| pool.snapshot().sources == 1);
        let report = pool.shutdown(LONG);
        assert!(!report.is_clean());
        let mut failed: Vec<_> = report
            .failed
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        failed.sort_unstable();
        assert_eq!(failed, ["fails", "panics"]);
    });
}

/// A guest leads for its time, and then its source is led by another: nothing is lost in between.
#[test]
fn guests_come_and_go() {
    bounded(|| {
        let (send, channel) = mpsc::channel::<u32>();
        let sum = Arc::new(AtomicUsize::new(0));
        let added = Arc::clone(&sum);
        let pool = SourcePool::builder()
            .threads(2)
            .look_every(Duration::from_secs(3600))
            .source("channel", channel, move |event| {
                added.fetch_add(event as usize, Ordering::SeqCst);
            })
            .build()
            .unwrap();
        for _ in 0..50 {
            send.send(1).unwrap();
            let left = pool.join_timeout(Duration::from_millis(1)).unwrap();
            assert_eq!(left, Left::TimedOut);
        }
        wait_until(|| sum.load(Ordering::SeqCst) == 50);
        drop(send);
        pool.join().unwrap();
    });
}

/// Settings that make no sense are refused.
#[test]
fn leaders_that_never_wait_are_refused() {
    let builder = SourcePool::builder().look_every(Duration::ZERO);
    let error = builder.build().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}
