//! Concurrent handles: several threads use one at once, nothing is lost, and its end is told when
//! all have left.

use std::{
    io,
    net::UdpSocket,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Barrier, Mutex,
    },
    thread,
    time::Duration,
};

use crate::support::{self, bounded, example, kernel_sets, wait_until, LONG};
use paceline::{Closed, ConcurrentContext, ConcurrentHandler, Interest, Next, Panics, Pool, Wake};

type Cx<'c> = ConcurrentContext<'c, UdpSocket>;

/// A socket for the pool, and one that sends to it.
fn sockets() -> (UdpSocket, UdpSocket) {
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    far.set_read_timeout(Some(LONG)).unwrap();
    (near, far)
}

fn pools(threads: usize) -> impl Iterator<Item = Pool> {
    let all = kernel_sets()
        .into_iter()
        .flat_map(|set| [Wake::Eager, Wake::Adaptive].map(|wake| (set.clone(), wake)));
    all.map(move |(set, wake)| {
        let pool = Pool::builder().threads(threads).handle_set(set).wake(wake);
        pool.build().unwrap()
    })
}

/// Takes one datagram.
fn receive(cx: &mut Cx<'_>) -> io::Result<u8> {
    let mut byte = [0];
    cx.try_read(|socket| socket.recv(&mut byte))?;
    Ok(byte[0])
}

/// Ten datagrams are queued; the handler lets nobody go before three threads are inside. An
/// iterative handle would wait for ever. Each datagram comes once.
#[test]
fn several_threads_receive_at_once() {
    bounded(|| {
        for pool in pools(3) {
            let (near, far) = sockets();
            let barrier = Arc::new(Barrier::new(3));
            let (tell, told) = mpsc::channel();
            let tell = Mutex::new(tell);
            let handler = move |cx: &mut Cx<'_>| {
                let byte = receive(cx)?;
                if byte < 9 {
                    cx.blocking(|| barrier.wait());
                }
                tell.lock().unwrap().send(byte).unwrap();
                Ok(Next::Continue)
            };
            let handle = pool
                .register_concurrent(near, Interest::NONE, handler)
                .unwrap();
            for byte in 0..10 {
                far.send(&[byte]).unwrap();
            }
            handle.set_interest(Interest::READ).unwrap();
            let mut all: Vec<_> = (0..10).map(|_| told.recv_timeout(LONG).unwrap()).collect();
            all.sort_unstable();
            assert_eq!(all, Vec::from_iter(0..10));
            let report = pool.shutdown(LONG);
            assert!(report.is_clean(), "{report}");
        }
    });
}

/// H2: whenever a datagram comes, while others are being received or just as the last one finds
/// nothing, somebody receives it; and each once.
#[test]
fn nothing_is_lost_or_doubled() {
    const DATAGRAMS: usize = 2000;
    bounded(|| {
        for pool in pools(3) {
            let (near, far) = sockets();
            let received = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&received);
            let handler = move |cx: &mut Cx<'_>| {
                receive(cx)?;
                counted.fetch_add(1, Ordering::SeqCst);
                Ok(Next::Continue)
            };
            pool.register_concurrent(near, Interest::READ, handler)
                .unwrap();
            for sent in 1..=DATAGRAMS {
                far.send(&[0]).unwrap();
                // One at a time, and now and then some together.
                if sent % 7 != 0 {
                    wait_until(|| received.load(Ordering::SeqCst) == sent);
                }
            }
            wait_until(|| received.load(Ordering::SeqCst) == DATAGRAMS);
        }
    });
}

/// An idle pool with a concurrent handle is idle: nobody looks at it again and again.
#[test]
fn dry_is_dry() {
    bounded(|| {
        for pool in pools(2) {
            let (near, far) = sockets();
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&calls);
            let handler = move |cx: &mut Cx<'_>| {
                counted.fetch_add(1, Ordering::SeqCst);
                receive(cx).map(|_| Next::Continue)
            };
            pool.register_concurrent(near, Interest::READ, handler)
                .unwrap();
            far.send(&[0]).unwrap();
            wait_until(|| calls.load(Ordering::SeqCst) >= 1);
            // A post goes through after everything that was due before it.
            for _ in 0..10 {
                let (done, wait) = mpsc::channel();
                pool.post(move |_| done.send(()).unwrap()).unwrap();
                wait.recv_timeout(LONG).unwrap();
            }
            let before = calls.load(Ordering::SeqCst);
            for _ in 0..10 {
                let (done, wait) = mpsc::channel();
                pool.post(move |_| done.send(()).unwrap()).unwrap();
                wait.recv_timeout(LONG).unwrap();
            }
            assert_eq!(calls.load(Ordering::SeqCst), before);
        }
    });
}

/// Counts how it ends, and holds its threads inside.
struct Held {
    inside: Mutex<mpsc::Sender<()>>,
    gate: Mutex<mpsc::Receiver<()>>,
    users: Arc<AtomicUsize>,
    closed: Mutex<mpsc::Sender<(Closed, usize)>>,
}

impl ConcurrentHandler<UdpSocket> for Held {
    fn ready(&self, cx: &mut Cx<'_>) -> io::Result<Next> {
        receive(cx)?;
        self.users.fetch_add(1, Ordering::SeqCst);
        self.inside.lock().unwrap().send(()).unwrap();
        cx.blocking(|| self.gate.lock().unwrap().recv().unwrap());
        self.users.fetch_sub(1, Ordering::SeqCst);
        Ok(Next::Continue)
    }

    fn closed(&self, why: Closed) {
        let users = self.users.load(Ordering::SeqCst);
        self.closed.lock().unwrap().send((why, users)).unwrap();
    }
}

/// Closed while two threads are inside: told once, after both have left; `close_and_wait` returns
/// after that, and the slot is another's long before.
#[test]
fn closed_when_the_last_one_has_left() {
    bounded(|| {
        let pool = Pool::builder().threads(3).build().unwrap();
        let (near, far) = sockets();
        let (inside, entered) = mpsc::channel();
        let (go, gate) = mpsc::channel();
        let (closed, end) = mpsc::channel();
        let handler = Held {
            inside: Mutex::new(inside),
            gate: Mutex::new(gate),
            users: Arc::default(),
            closed: Mutex::new(closed),
        };
        let handle = pool
            .register_concurrent(near, Interest::READ, handler)
            .unwrap();
        far.send(&[1]).unwrap();
        entered.recv_timeout(LONG).unwrap();
        far.send(&[2]).unwrap();
        entered.recv_timeout(LONG).unwrap();
        let waiter = thread::spawn(move || handle.close_and_wait());
        // The next registration uses its slot, and is not disturbed by those who leave.
        let (other, to_other) = sockets();
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let echo = move |cx: &mut Cx<'_>| {
            let byte = receive(cx)?;
            tell.lock().unwrap().send(byte).unwrap();
            Ok(Next::Continue)
        };
        pool.register_concurrent(other, Interest::READ, echo)
            .unwrap();
        to_other.send(&[7]).unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(7));
        assert!(end.try_recv().is_err(), "two threads are inside");
        go.send(()).unwrap();
        go.send(()).unwrap();
        let (why, users) = end.recv_timeout(LONG).unwrap();
        assert!(matches!(why, Closed::Requested), "{why}");
        assert_eq!(users, 0);
        waiter.join().unwrap().unwrap();
        assert!(end.try_recv().is_err(), "once");
        let report = pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
    });
}

/// What a handler says holds for the handle: close, fail, panic.
#[test]
fn a_handler_ends_it() {
    type Case = (fn() -> io::Result<Next>, &'static str, Panics);
    let cases: [Case; 4] = [
        (|| Ok(Next::Close), "finished", Panics::Close),
        (
            || Err(io::Error::other("broken")),
            "failed: broken",
            Panics::Close,
        ),
        (|| panic!("oh"), "the handler panicked: oh", Panics::Close),
        (|| panic!("oh"), "", Panics::Keep),
    ];
    bounded(move || {
        for (answer, expected, panics) in cases {
            let (tell, told) = mpsc::channel();
            let tell = Mutex::new(tell);
            let pool = Pool::builder().threads(2).panics(panics);
            let pool = pool.on_closed(move |closed| {
                let _ = tell.lock().unwrap().send(closed.reason().to_string());
            });
            let pool = pool.build().unwrap();
            let (near, far) = sockets();
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&calls);
            let handler = move |cx: &mut Cx<'_>| {
                receive(cx)?;
                counted.fetch_add(1, Ordering::SeqCst);
                answer()
            };
            pool.register_concurrent(near, Interest::READ, handler)
                .unwrap();
            far.send(&[0]).unwrap();
            match expected {
                "" => {
                    wait_until(|| calls.load(Ordering::SeqCst) == 1);
                    far.send(&[0]).unwrap();
                    wait_until(|| calls.load(Ordering::SeqCst) == 2);
                }
                expected => assert_eq!(told.recv_timeout(LONG).as_deref(), Ok(expected)),
            }
        }
    });
}

/// The end from its own handler can't be waited for; a shutdown from there does not wait for it.
#[test]
fn ended_from_inside() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let (near, far) = sockets();
        let (tell, told) = mpsc::channel();
        let (tell, weak) = (Mutex::new(tell), pool.downgrade());
        let handler = move |cx: &mut Cx<'_>| {
            receive(cx)?;
            let error = cx.handle().close_and_wait().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Deadlock);
            let report = weak.upgrade().unwrap().shutdown(Duration::from_secs(10));
            tell.lock().unwrap().send(report.is_clean()).unwrap();
            Ok(Next::Continue)
        };
        pool.register_concurrent(near, Interest::READ, handler)
            .unwrap();
        far.send(&[0]).unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(true));
    });
}

/// The example answers, says on which threads it did, and ends gracefully.
#[test]
fn the_example_answers() {
    support::example("udp_echo");
    bounded(|| {
        for set in ["leader", "concurrent"] {
            the_example_answers_on(set);
        }
    });
}

fn the_example_answers_on(set: &str) {
    let mut command = std::process::Command::new(support::example("udp_echo"));
    command.args(["--listen", "127.0.0.1:0", "--threads", "2", "--set", set]);
    let server = example::Server::start(&mut command);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client.connect(server.address).unwrap();
    for number in 0..100_u8 {
        client.send(&[number]).unwrap();
        let mut answer = [0; 8];
        assert_eq!(client.recv(&mut answer).unwrap(), 1);
        assert_eq!(answer[0], number);
    }
    example::signal("TERM", server.id());
    let output = server.output();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("everything was finished"), "{text}");
    let silent = text.contains("; 0 promotions, 0 wakes");
    assert_eq!(silent, set == "concurrent", "{text}");
}

/// H3: a thread is still inside when its handle is closed and its slot given to another. That it
/// finds nothing there says nothing about the other: what had come for that one is not lost.
#[test]
fn who_leaves_late_harms_nobody() {
    bounded(|| {
        let pool = Pool::builder().threads(3).build().unwrap();
        let (near, far) = sockets();
        let (inside, entered) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let (leaving, left) = mpsc::channel();
        let (inside, gate, leaving) = (Mutex::new(inside), Mutex::new(gate), Mutex::new(leaving));
        let late = move |cx: &mut Cx<'_>| {
            receive(cx)?;
            inside.lock().unwrap().send(()).unwrap();
            cx.blocking(|| gate.lock().unwrap().recv().unwrap());
            let nothing = receive(cx);
            leaving.lock().unwrap().send(()).unwrap();
            nothing.map(|_| Next::Continue)
        };
        let handle = pool
            .register_concurrent(near, Interest::READ, late)
            .unwrap();
        far.send(&[1]).unwrap();
        entered.recv_timeout(LONG).unwrap();
        handle.close().unwrap();
        let (tell, told) = mpsc::channel();
        let tell = Arc::new(Mutex::new(tell));
        let slot = |id: paceline::HandleId| id.to_string().split('.').next().map(str::to_owned);
        // Until one gets the slot, which may not be free yet. The others keep theirs.
        let mut kept = Vec::new();
        let (next, to_other) = loop {
            let (other, to_other) = sockets();
            let tell = Arc::clone(&tell);
            let echo = move |cx: &mut Cx<'_>| {
                let byte = receive(cx)?;
                tell.lock().unwrap().send(byte).unwrap();
                Ok(Next::Continue)
            };
            let next = pool
                .register_concurrent(other, Interest::NONE, echo)
                .unwrap();
            if slot(next.id()) == slot(handle.id()) {
                break (next, to_other);
            }
            kept.push((next, to_other));
            support::pause();
        };
        to_other.send(&[7]).unwrap();
        // The leader looks into the set for each of these, and finds that it has come.
        for _ in 0..3 {
            let (done, wait) = mpsc::channel();
            pool.post(move |_| done.send(()).unwrap()).unwrap();
            wait.recv_timeout(LONG).unwrap();
        }
        go.send(()).unwrap();
        left.recv_timeout(LONG).unwrap();
        next.set_interest(Interest::READ).unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(7));
    });
}

/// Called for nothing but a notification, and closes: it is closed. And a notification whose call
/// panicked is not used up.
#[test]
fn notified_only() {
    bounded(|| {
        let pool = Pool::builder()
            .threads(2)
            .panics(Panics::Keep)
            .build()
            .unwrap();
        let (near, _far) = sockets();
        let calls = AtomicUsize::new(0);
        let handler = move |cx: &mut Cx<'_>| {
            assert!(cx.is_notified());
            match calls.fetch_add(1, Ordering::SeqCst) {
                0 => panic!("the first time"),
                _ => Ok(Next::Close),
            }
        };
        let handle = pool
            .register_concurrent(near, Interest::NONE, handler)
            .unwrap();
        handle.notify().unwrap();
        wait_until(|| handle.notify().is_err());
        wait_until(|| pool.snapshot().panics == 1);
    });
}

/// L5: two threads fail at once, and the error of the second, which nobody needs, panics when it is
/// dropped.
#[test]
fn an_error_that_panics_when_dropped() {
    #[derive(Debug)]
    struct Nasty;
    impl std::fmt::Display for Nasty {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("nasty")
        }
    }
    impl std::error::Error for Nasty {}
    impl Drop for Nasty {
        fn drop(&mut self) {
            assert!(thread::panicking(), "dropped");
        }
    }
    bounded(|| {
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let pool = Pool::builder().threads(3).on_closed(move |closed| {
            let _ = tell.lock().unwrap().send(closed.reason().to_string());
        });
        let pool = pool.build().unwrap();
        let (near, far) = sockets();
        let barrier = Barrier::new(2);
        let handler = move |cx: &mut Cx<'_>| {
            receive(cx)?;
            cx.blocking(|| barrier.wait());
            Err(io::Error::other(Nasty))
        };
        pool.register_concurrent(near, Interest::READ, handler)
            .unwrap();
        far.send(&[1]).unwrap();
        far.send(&[2]).unwrap();
        assert_eq!(told.recv_timeout(LONG).as_deref(), Ok("failed: nasty"));
        assert!(pool.shutdown(LONG).is_clean());
        assert!(pool.snapshot().panics > 0);
    });
}

/// S2: two threads inside of one handle shut the pool down. Its handle is excused once: the drain
/// goes on for the others.
#[test]
fn excused_once() {
    const CALLS: usize = 50;
    bounded(|| {
        let pool = Pool::builder().threads(4).build().unwrap();
        let (near, far) = sockets();
        let (inside, entered) = mpsc::channel();
        let barrier = Arc::new(Barrier::new(3));
        let (tell, reports) = mpsc::channel();
        let (inside, tell) = (Mutex::new(inside), Mutex::new(tell));
        let (gate, weak) = (Arc::clone(&barrier), pool.downgrade());
        let handler = move |cx: &mut Cx<'_>| {
            receive(cx)?;
            inside.lock().unwrap().send(()).unwrap();
            cx.blocking(|| gate.wait());
            let report = weak.upgrade().unwrap().shutdown(LONG / 2);
            tell.lock().unwrap().send(report).unwrap();
            Ok(Next::Continue)
        };
        pool.register_concurrent(near, Interest::READ, handler)
            .unwrap();
        far.send(&[1]).unwrap();
        far.send(&[2]).unwrap();
        entered.recv_timeout(LONG).unwrap();
        entered.recv_timeout(LONG).unwrap();
        let (other, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let many = move |_: &mut paceline::Context<'_, _>| {
            support::pause();
            Ok(match counted.fetch_add(1, Ordering::SeqCst) + 1 {
                CALLS => Next::Close,
                _ => Next::Again,
            })
        };
        let handle = pool.register(other, Interest::NONE, many).unwrap();
        handle.notify().unwrap();
        barrier.wait();
        for _ in 0..2 {
            let report = reports.recv_timeout(LONG).unwrap();
            assert!(report.unfinished.is_empty(), "{report}");
        }
        assert_eq!(calls.load(Ordering::SeqCst), CALLS);
    });
}
