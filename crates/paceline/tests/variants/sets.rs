//! Several sets: each with threads of its own, or one population that serves them all (relaxed
//! serialisation).

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc, Arc, Mutex,
    },
    thread,
    time::Duration,
};

use crate::support::{bounded, tcp_pair, wait_until, LONG};
use paceline::{
    observe::Role, Context, Interest, Leaders, Next, Order, SetKind, Sets, Spread, Wake,
};

fn echo<S>(cx: &mut Context<'_, S>) -> io::Result<Next>
where
    for<'s> &'s S: Read + Write,
{
    let mut buffer = [0; 64];
    let count = cx.read(&mut buffer)?;
    cx.write_all(&buffer[..count])?;
    Ok(if count == 0 {
        Next::Close
    } else {
        Next::Continue
    })
}

fn asks(mut peer: impl Read + Write, byte: u8) {
    peer.write_all(&[byte]).unwrap();
    let mut back = [0];
    peer.read_exact(&mut back).unwrap();
    assert_eq!(back, [byte]);
}

fn kinds() -> impl Iterator<Item = (Leaders, Wake)> {
    let leaders = [Leaders::Assigned, Leaders::Roaming];
    leaders
        .into_iter()
        .flat_map(|leaders| [Wake::Adaptive, Wake::Eager].map(|wake| (leaders, wake)))
}

fn sets(count: usize, threads: usize, leaders: Leaders, wake: Wake) -> Sets {
    Sets::builder()
        .sets(count)
        .threads(threads)
        .leaders(leaders)
        .each(move |_, pool| pool.wake(wake).board(true))
        .build()
        .unwrap()
}

/// Connections are spread over the sets, one after the other, and all are served.
#[test]
fn connections_are_spread() {
    bounded(|| {
        for (leaders, wake) in kinds() {
            let sets = sets(3, 6, leaders, wake);
            let listener = sets.listen("127.0.0.1:0", |_, _| Some(echo)).unwrap();
            let mut clients = Vec::new();
            for number in 0..12 {
                let client = TcpStream::connect(listener.local_addr()).unwrap();
                client.set_read_timeout(Some(LONG)).unwrap();
                asks(&client, number);
                clients.push(client);
            }
            for client in &clients {
                asks(client, 1);
            }
            // Each has had requests of four connections at least.
            let promotions: Vec<_> = sets.snapshot().iter().map(|it| it.promotions).collect();
            assert!(promotions.iter().all(|count| *count >= 8), "{promotions:?}");
            drop(clients);
            let reports = sets.shutdown(LONG);
            assert!(reports.iter().all(|it| it.is_clean()), "{reports:?}");
        }
    });
}

/// The rule that gives a handle to the set with the fewest.
#[test]
fn fewest_first() {
    bounded(|| {
        let sets = Sets::builder().sets(2).threads(2).spread(Spread::Fewest);
        let sets = sets.build().unwrap();
        let mut peers = Vec::new();
        let mut handles: Vec<_> = (0..4)
            .map(|_| {
                let (near, far) = UnixStream::pair().unwrap();
                peers.push(far);
                sets.register(near, Interest::READ, echo).unwrap()
            })
            .collect();
        // The first and the third are in one set: it has the fewest when they are gone.
        handles.remove(2).close_and_wait().unwrap();
        handles.remove(0).close_and_wait().unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        sets.register(near, Interest::READ, echo).unwrap();
        asks(&far, 1);
        assert!(sets.snapshot()[0].promotions >= 1);
    });
}

/// What can't be is refused, with the reason.
#[test]
fn bad_sets_are_refused() {
    let refused = |sets: io::Result<Sets>| {
        let error = sets.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    };
    let of = |count, threads, leaders| {
        let sets = Sets::builder().sets(count).threads(threads);
        sets.leaders(leaders)
    };
    assert!(refused(of(0, 2, Leaders::Assigned).build()).contains("sets(0)"));
    assert!(refused(of(3, 2, Leaders::Assigned).build()).contains("threads(2)"));
    assert!(refused(of(2, 4097, Leaders::Roaming).build()).contains("at most 4096"));
    // Every thread would lead some set, and none would be left to serve (brpc 1120).
    assert!(refused(of(2, 2, Leaders::Roaming).build()).contains("must be free"));
    let concurrent =
        of(1, 4, Leaders::Roaming).each(|_, pool| pool.handle_set(SetKind::Concurrent));
    assert!(refused(concurrent.build()).contains("set 0"));
    let oldest = of(1, 4, Leaders::Roaming).each(|_, pool| pool.order(Order::Oldest));
    assert!(refused(oldest.build()).contains("newest"));
    let wrong = of(2, 4, Leaders::Assigned).each(|set, pool| pool.parallelism(1 - set));
    assert!(refused(wrong.build()).contains("set 1"));
}

/// At rest every set is led, by one thread or by several, which can be seen, and the others are
/// free. Nobody wakes.
#[test]
fn every_set_is_led() {
    bounded(|| [Wake::Adaptive, Wake::Eager].map(every_set_is_led_with));
}

fn every_set_is_led_with(wake: Wake) {
    let sets = sets(3, 5, Leaders::Roaming, wake);
    let leads = |threads: &[paceline::observe::ThreadReport]| {
        threads.len() == 1 && threads[0].role == Role::Leader
    };
    wait_until(|| sets.idle() >= 2 && sets.threads().iter().all(|set| leads(set)));
    let names: Vec<_> = sets
        .threads()
        .iter()
        .map(|set| set[0].name.clone())
        .collect();
    assert!(
        names.iter().all(|name| name.starts_with("roamer-")),
        "{names:?}"
    );
    // After a few looks the watch sleeps deeply.
    let ticks = || sets.snapshot().iter().map(|it| it.ticks).sum::<u64>();
    let mut last = ticks();
    wait_until(|| {
        thread::sleep(Duration::from_millis(50));
        std::mem::replace(&mut last, ticks()) == last
    });
}

/// Handlers that wait for their gate.
struct Gates {
    begun: mpsc::Receiver<()>,
    open: mpsc::Sender<()>,
    tell: mpsc::Sender<()>,
    wait: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Gates {
    fn new() -> Self {
        let ((tell, begun), (open, wait)) = (mpsc::channel(), mpsc::channel());
        Self {
            begun,
            open,
            tell,
            wait: Arc::new(Mutex::new(wait)),
        }
    }

    /// A handler that blocks by surprise, until the gate is opened once for it.
    fn handler(&self) -> impl FnMut(&mut Context<'_, TcpStream>) -> io::Result<Next> {
        let (tell, wait) = (self.tell.clone(), Arc::clone(&self.wait));
        move |cx| {
            let mut byte = [0];
            if cx.read(&mut byte)? == 0 {
                return Ok(Next::Close);
            }
            let _ = tell.send(());
            let _ = wait.lock().unwrap().recv();
            cx.write_all(&byte).map(|()| Next::Continue)
        }
    }
}

/// The invariant: one set is blocked again and again, by surprise, and everybody who is free comes,
/// until only the leader of the other set is left: that one is not taken away. Then threads come
/// back, and all is as before.
#[test]
fn busy_sets_get_whoever_is_free() {
    bounded(|| {
        for wake in [Wake::Adaptive, Wake::Eager] {
            let sets = sets(2, 5, Leaders::Roaming, wake);
            // One waits in both sets, or two in one each.
            wait_until(|| sets.idle() >= 3);
            let gates = Gates::new();
            let blocked: Vec<_> = (0..4)
                .map(|_| {
                    let (near, mut far) = tcp_pair();
                    let pool = sets.pool(0);
                    pool.register(near, Interest::READ, gates.handler())
                        .unwrap();
                    far.write_all(&[1]).unwrap();
                    far
                })
                .collect();
            for _ in 0..4 {
                gates.begun.recv_timeout(LONG).unwrap();
            }
            let (near, far) = tcp_pair();
            sets.pool(1).register(near, Interest::READ, echo).unwrap();
            asks(&far, 2);
            wait_until(|| sets.idle() == 0);
            // One comes back, and leads the set that nobody led.
            let (near, waiting) = tcp_pair();
            sets.pool(0).register(near, Interest::READ, echo).unwrap();
            gates.open.send(()).unwrap();
            asks(&waiting, 3);
            (0..3).for_each(|_| gates.open.send(()).unwrap());
            for mut far in blocked {
                far.read_exact(&mut [0]).unwrap();
            }
            wait_until(|| sets.idle() >= 3);
            // Four were stuck, of which two may have led the sets before.
            let came: u64 = sets.snapshot().iter().map(|it| it.roamed).sum();
            assert!(came >= 2, "{came}");
        }
    });
}

/// Told blocking sends for the next leader at once: no tick is needed, for there is none that ever
/// comes.
#[test]
fn told_blocking_sends_for_a_leader() {
    bounded(|| {
        let sets = Sets::builder()
            .sets(2)
            .threads(4)
            .leaders(Leaders::Roaming)
            .each(|_, pool| pool.tick(LONG * 10));
        let sets = sets.build().unwrap();
        wait_until(|| sets.idle() >= 2);
        let (open, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let handler = move |cx: &mut Context<'_, _>| {
            cx.blocking(|| gate.lock().unwrap().recv().unwrap_err());
            echo(cx)
        };
        let (near, mut blocked) = tcp_pair();
        sets.pool(0)
            .register(near, Interest::READ, handler)
            .unwrap();
        let (near, far) = tcp_pair();
        sets.pool(0).register(near, Interest::READ, echo).unwrap();
        blocked.write_all(&[1]).unwrap();
        asks(&far, 2);
        drop(open);
        blocked.read_exact(&mut [0]).unwrap();
    });
}

/// S1, S2: what has arrived is still served, in every set; also in one that nobody led when the end
/// began.
#[test]
fn drained_in_the_end() {
    bounded(|| {
        for (leaders, wake) in kinds() {
            let sets = Arc::new(sets(2, 4, leaders, wake));
            let peers: Vec<_> = (0..8)
                .map(|_| {
                    let (near, mut far) = tcp_pair();
                    far.write_all(&[7; 10]).unwrap();
                    sets.register(near, Interest::READ, echo).unwrap();
                    far
                })
                .collect();
            let reports = sets.shutdown(LONG);
            assert!(reports.iter().all(|it| it.is_clean()), "{reports:?}");
            for mut far in peers {
                let mut all = Vec::new();
                far.read_to_end(&mut all).unwrap();
                assert_eq!(all, [7; 10]);
            }
        }
    });
}

/// The sets are dropped, and somebody holds their pools. Each pool loses its thread after one more
/// event, although another thread still sleeps in the other one. (In sets of this kind each has a
/// thread of its own that sleeps there.)
#[test]
fn held_pools_lose_their_threads() {
    bounded(|| {
        let sets = Sets::builder().sets(2).threads(3).leaders(Leaders::Roaming);
        let sets = sets.each(|_, pool| pool.handle_set(SetKind::Poll));
        let sets = sets.build().unwrap();
        let pools = [0, 1].map(|set| sets.pool(set).clone());
        let peers = pools.each_ref().map(|pool| {
            let (near, far) = tcp_pair();
            pool.register(near, Interest::READ, echo).unwrap();
            far
        });
        let each_has = |count| pools.iter().all(|pool| pool.snapshot().threads == count);
        wait_until(|| each_has(1));
        drop(sets);
        peers.iter().for_each(|peer| asks(peer, 1));
        wait_until(|| each_has(0));
    });
}

/// A handler ends all sets, and is not waited for. And who drops them waits for nobody (S3).
#[test]
fn ends_from_a_handler_and_by_drop() {
    bounded(|| {
        for (leaders, wake) in kinds() {
            let sets = Arc::new(sets(2, 4, leaders, wake));
            let (tell, told) = mpsc::channel();
            let weak = Arc::downgrade(&sets);
            let handler = move |cx: &mut Context<'_, _>| {
                let reports = weak.upgrade().unwrap().shutdown(LONG);
                tell.send(reports.iter().all(|it| it.is_clean())).unwrap();
                echo(cx)
            };
            let (near, mut far) = tcp_pair();
            sets.register(near, Interest::READ, handler).unwrap();
            far.write_all(&[1]).unwrap();
            assert!(told.recv_timeout(LONG).unwrap());
        }
        let gates = Gates::new();
        let blocked = sets(2, 4, Leaders::Roaming, Wake::Adaptive);
        let (near, mut far) = tcp_pair();
        blocked
            .register(near, Interest::READ, gates.handler())
            .unwrap();
        far.write_all(&[1]).unwrap();
        gates.begun.recv_timeout(LONG).unwrap();
        drop(blocked);
        gates.open.send(()).unwrap();
    });
}

/// A listener that was made elsewhere; and a thread of the user's own that joins one of the sets.
#[test]
fn listeners_and_guests() {
    bounded(|| {
        let sets = sets(2, 3, Leaders::Roaming, Wake::Adaptive);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = sets.listener().on(listener, |_, _| Some(echo)).unwrap();
        let pool = sets.pool(0).clone();
        let guest = thread::spawn(move || pool.join());
        for number in 0..20 {
            asks(TcpStream::connect(listener.local_addr()).unwrap(), number);
        }
        let reports = sets.shutdown(LONG);
        assert!(reports.iter().all(|it| it.is_clean()), "{reports:?}");
        guest.join().unwrap().unwrap();
        assert_eq!(sets.count(), 2);
    });
}

/// Many connections on few sets and threads, handlers that sleep now and then: every byte comes
/// back.
#[test]
fn nothing_is_lost_under_load() {
    bounded(|| {
        for (leaders, wake) in kinds() {
            every_byte_comes_back(sets(3, 6, leaders, wake));
        }
    });
}

/// The same in sets of other kinds, and where they are not of one kind: some can be waited in
/// beside others, some not.
#[test]
fn roaming_in_other_sets() {
    bounded(|| {
        let kinds = [
            [SetKind::OneShot, SetKind::OneShot],
            [SetKind::Poll, SetKind::Poll],
            [SetKind::Poll, SetKind::Epoll],
            [SetKind::Epoll, SetKind::OneShot],
        ];
        for kinds in kinds {
            let sets = Sets::builder()
                .sets(3)
                .threads(6)
                .leaders(Leaders::Roaming)
                .each(move |set, pool| pool.handle_set(kinds[set % 2].clone()));
            every_byte_comes_back(sets.build().unwrap());
        }
    });
}

/// A set that can't be waited in beside others is left without a leader, while the others are busy:
/// whoever is free comes.
#[test]
fn a_set_for_itself_is_not_forgotten() {
    bounded(|| {
        let sets = Sets::builder()
            .sets(3)
            .threads(5)
            .leaders(Leaders::Roaming)
            .each(|set, pool| match set {
                0 => pool.handle_set(SetKind::Poll),
                _ => pool,
            });
        let (sets, gates) = (sets.build().unwrap(), Gates::new());
        let (near, busy) = tcp_pair();
        sets.pool(1).register(near, Interest::READ, echo).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let traffic = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    asks(&busy, 1);
                }
            })
        };
        let (near, mut blocked) = tcp_pair();
        let handler = gates.handler();
        sets.pool(0)
            .register(near, Interest::READ, handler)
            .unwrap();
        blocked.write_all(&[1]).unwrap();
        gates.begun.recv_timeout(LONG).unwrap();
        for number in 0..3 {
            let (near, far) = tcp_pair();
            sets.pool(0).register(near, Interest::READ, echo).unwrap();
            asks(&far, number);
        }
        stop.store(true, Ordering::Relaxed);
        traffic.join().unwrap();
        gates.open.send(()).unwrap();
    });
}

/// The sets are dropped, and one of them is held still: nobody comes there any more, so its end
/// waits for nobody.
#[test]
fn a_set_that_nobody_serves_ends_at_once() {
    bounded(|| {
        let sets = sets(2, 4, Leaders::Roaming, Wake::Adaptive);
        let pool = sets.pool(1).clone();
        let (near, far) = tcp_pair();
        pool.register(near, Interest::READ, echo).unwrap();
        asks(&far, 1);
        drop(sets);
        // Somebody who sleeps there does the first of these, and goes.
        wait_until(|| {
            pool.post(|_| {}).unwrap();
            pool.snapshot().threads == 0
        });
        // Then nobody does this, and the end, which has so much time, does not wait for it.
        pool.post(|_| {}).unwrap();
        drop(pool.shutdown(LONG * 100));
    });
}

fn every_byte_comes_back(sets: Sets) {
    let peers: Vec<_> = (0..12_u8)
        .map(|number| {
            let (near, far) = tcp_pair();
            let mut calls = number;
            let handler = move |cx: &mut Context<'_, _>| {
                calls = calls.wrapping_add(1);
                if calls % 16 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                echo(cx)
            };
            sets.register(near, Interest::READ, handler).unwrap();
            far
        })
        .collect();
    thread::scope(|scope| {
        for peer in &peers {
            scope.spawn(move || (0..200).for_each(|byte| asks(peer, byte)));
        }
    });
    drop(peers);
    let reports = sets.shutdown(LONG);
    assert!(reports.iter().all(|it| it.is_clean()), "{reports:?}");
}
