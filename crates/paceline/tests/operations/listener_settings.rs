//! Settings of a listener: how many connections it may have, what it says to those that it refuses,
//! how long they may be idle.
//!
//! Most tests play all the roles by hand, on sets of the kernel: no other thread accepts or closes
//! anything.

use std::{
    env, fs,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    process,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use crate::support::{
    bounded, by_hand,
    by_hand::serve_all,
    is_to_be_had,
    listeners::{all_of, connect, echo, is_served, serve_until, without_threads, HERE},
    wait_until, LONG,
};
use paceline::{
    turn::{Led, Waited},
    Closed, Pool, SetKind,
};

/// The kernel's sets whose roles can be played by hand.
fn led_sets() -> Vec<SetKind> {
    let mut sets = vec![SetKind::Epoll, SetKind::OneShot, SetKind::Poll];
    sets.extend(is_to_be_had(&SetKind::Completion).then_some(SetKind::Completion));
    sets
}

/// One connection more than the listener may have: without a text it waited nowhere, because there
/// was no bound. Now it waits in the backlog, is connected for all that its peer knows, and is
/// accepted when another one ends. The listener does not turn in circles meanwhile: a pool at rest
/// has no event.
#[test]
fn connections_beyond_the_bound_wait() {
    for set in led_sets() {
        bounded(|| {
            let pool = without_threads(Pool::builder().handle_set(set));
            let listener = pool.listener().max_connections(2);
            let listener = listener.bind(HERE, |_, _| Some(echo)).unwrap();
            let clients = [(); 5].map(|()| connect(listener.local_addr()));
            serve_until(&pool, || listener.connections() == 2);
            assert_eq!(
                serve_all(&pool),
                0,
                "the listener is called again and again"
            );
            assert_eq!(pool.snapshot().accepted, 2);
            for (place, client) in clients.into_iter().enumerate() {
                is_served(&pool, &client);
                assert!(listener.connections() <= 2);
                drop(client);
                let open = 2.min(4 - place);
                let accepted = 5.min(3 + place) as u64;
                serve_until(&pool, || pool.snapshot().accepted == accepted);
                serve_until(&pool, || listener.connections() == open);
            }
            assert_eq!((pool.snapshot().accepted, pool.snapshot().refused), (5, 0));
        });
    }
}

/// The same where every thread waits for itself and nobody leads.
#[test]
fn connections_beyond_the_bound_wait_in_a_concurrent_set() {
    bounded(|| {
        let pool = Pool::builder().threads(3).handle_set(SetKind::Concurrent);
        let pool = pool.build().unwrap();
        let listener = pool.listener().max_connections(2);
        let listener = listener.bind(HERE, |_, _| Some(echo)).unwrap();
        let clients: Vec<_> = (0..40).map(|_| connect(listener.local_addr())).collect();
        for mut client in clients {
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
            assert!(listener.connections() <= 2);
        }
        wait_until(|| listener.connections() == 0);
        assert_eq!(pool.snapshot().accepted, 40);
    });
}

/// The bound is its own affair: a listener that the user has suspended while it waited stays so
/// when a place becomes free, and one that is resumed while it is full goes on waiting.
#[test]
fn the_users_suspension_is_another() {
    bounded(|| {
        let pool = without_threads(Pool::builder());
        let listener = pool.listener().max_connections(1);
        let listener = listener.bind(HERE, |_, _| Some(echo)).unwrap();
        let clients = [(); 2].map(|()| connect(listener.local_addr()));
        serve_until(&pool, || listener.connections() == 1);
        listener.handle().suspend().unwrap();
        let [first, second] = clients;
        drop(first);
        serve_until(&pool, || listener.connections() == 0);
        serve_all(&pool);
        assert_eq!(pool.snapshot().accepted, 1, "it is suspended");
        listener.handle().resume().unwrap();
        is_served(&pool, &second);
        let third = connect(listener.local_addr());
        for _ in 0..3 {
            listener.handle().suspend().unwrap();
            listener.handle().resume().unwrap();
            listener.handle().notify().unwrap();
            serve_all(&pool);
            assert_eq!(pool.snapshot().accepted, 2, "it is full");
        }
        drop(second);
        is_served(&pool, &third);
    });
}

/// A text of refusal: a connection beyond the bound is accepted, answered and closed, whatever its
/// peer has said already, and it is no reset. The next one after an end is served.
#[test]
fn connections_beyond_the_bound_are_answered() {
    for set in led_sets() {
        bounded(|| {
            let pool = without_threads(Pool::builder().handle_set(set));
            let listener = pool.listener().max_connections(1).refusal("busy\n");
            let listener = listener.bind(HERE, |_, _| Some(echo)).unwrap();
            let served = connect(listener.local_addr());
            is_served(&pool, &served);
            for round in 1..=3 {
                let mut refused = connect(listener.local_addr());
                refused.write_all(&[b'?'; 10_000]).unwrap();
                serve_until(&pool, || pool.snapshot().refused == round);
                assert_eq!(listener.connections(), 1);
                let reset = refused.take_error().unwrap();
                assert!(reset.is_none(), "{reset:?}");
                assert_eq!(all_of(&refused), "busy\n");
            }
            drop(served);
            serve_until(&pool, || listener.connections() == 0);
            is_served(&pool, &connect(listener.local_addr()));
            assert_eq!(pool.snapshot().accepted, 5);
        });
    }
}

/// More text than the socket takes: as much arrives as it took, and the listener waits for nothing.
#[test]
fn a_long_refusal_is_cut() {
    bounded(|| {
        let pool = without_threads(Pool::builder());
        let text = vec![b'n'; 64 << 20];
        let listener = pool.listener().max_connections(1).refusal(text);
        let listener = listener.bind(HERE, |_, _| Some(echo)).unwrap();
        let _served = connect(listener.local_addr());
        let refused = connect(listener.local_addr());
        serve_until(&pool, || pool.snapshot().refused == 1);
        let said = all_of(&refused);
        assert!(!said.is_empty() && said.len() < 64 << 20);
        assert!(said.bytes().all(|byte| byte == b'n'));
    });
}

/// An empty text closes without a word, and does not wait.
#[test]
fn an_empty_refusal_only_closes() {
    bounded(|| {
        let pool = without_threads(Pool::builder());
        let listener = pool.listener().max_connections(1).refusal("");
        let listener = listener.bind(HERE, |_, _| Some(echo)).unwrap();
        let _served = connect(listener.local_addr());
        let refused = connect(listener.local_addr());
        serve_until(&pool, || pool.snapshot().refused == 1);
        assert_eq!(all_of(&refused), "");
    });
}

/// S2: a connection that is in the backlog when the pool begins to shut down is refused visibly:
/// with the text, if there is one. It takes no place, and nothing is left.
#[test]
fn a_draining_pool_says_so() {
    bounded(|| {
        let pool = without_threads(Pool::builder());
        let listener = pool.listener().refusal("going away\n");
        let listener = listener.bind(HERE, |_, _| Some(echo)).unwrap();
        let peer = connect(listener.local_addr());
        // The event is there before the drain is.
        let follower = pool.enter().unwrap();
        let claimed = by_hand::claim(by_hand::take_lead(follower));
        let ender = pool.clone();
        let ender = std::thread::spawn(move || ender.shutdown(LONG));
        wait_until(|| pool.post(|_| {}).is_err());
        let mut follower = claimed.promote().run();
        while let Led::Leader(leader) = follower.lead() {
            follower = match leader.wait(by_hand::AT_ONCE).unwrap() {
                Waited::Claimed(claimed) => claimed.promote().run(),
                Waited::Nothing(follower) => follower,
            };
        }
        assert_eq!(all_of(&peer), "going away\n");
        let report = ender.join().unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!((listener.connections(), pool.snapshot().refused), (0, 1));
    });
}

/// A listener that waits for a place is idle: a shutdown closes it, and with it what waits in its
/// backlog.
#[test]
fn a_listener_that_waits_is_no_burden() {
    bounded(|| {
        let pool = Pool::builder().threads(1).build().unwrap();
        let listener = pool.listener().max_connections(1);
        let listener = listener.bind(HERE, |_, _| Some(echo)).unwrap();
        let clients = [(); 3].map(|()| connect(listener.local_addr()));
        wait_until(|| listener.connections() == 1);
        assert!(pool.shutdown(LONG).is_clean());
        for mut client in clients {
            let end = client.read(&mut [0]);
            let is_over = |error: io::Error| error.kind() == ErrorKind::ConnectionReset;
            assert!(end.map_or_else(is_over, |count| count == 0));
        }
        assert_eq!(
            (listener.connections(), pool.snapshot().connections),
            (0, 0)
        );
    });
}

/// A listener's time-out is for its own connections, longer or shorter than the pool's, or none.
#[test]
fn each_listener_has_its_own_patience() {
    bounded(|| {
        const SHORT: Duration = Duration::from_millis(20);
        let (tell, told) = mpsc::channel();
        let settings = Pool::builder().threads(2).idle_timeout(SHORT);
        let settings = settings.on_closed(move |closed| {
            let is_late = matches!(closed.reason(), Closed::TimedOut);
            tell.send((closed.peer(), is_late)).unwrap();
        });
        let pool = settings.build().unwrap();
        let make = |_: &TcpStream, _| Some(echo);
        let of_pool = pool.listen(HERE, make).unwrap();
        let long = pool.listener().idle_timeout(LONG * 10).bind(HERE, make);
        let never = pool.listener().idle_timeout(None).bind(HERE, make);
        let (long, never) = (long.unwrap(), never.unwrap());
        let stay = [&long, &never].map(|listener| connect(listener.local_addr()));
        wait_until(|| pool.snapshot().connections == 2);
        for _ in 0..3 {
            let client = connect(of_pool.local_addr());
            let peer = client.local_addr().unwrap();
            assert_eq!(all_of(&client), "");
            assert_eq!(told.recv_timeout(LONG).unwrap(), (Some(peer), true));
        }
        assert_eq!((long.connections(), never.connections()), (1, 1));
        for mut client in stay {
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
    });
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let listener = pool.listener().idle_timeout(Duration::from_millis(20));
        let listener = listener.bind(HERE, |_, _| Some(echo)).unwrap();
        assert_eq!(all_of(connect(listener.local_addr())), "");
        assert_eq!(pool.snapshot().timed_out, 1);
    });
}

/// A path that is free, and is removed in the end.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let name = format!("paceline-listener-{}-{number}", process::id());
        Self(env::temp_dir().join(name))
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A Unix listener has the same settings, and its maker gets what is known of the peer. A socket
/// that listens already is taken, and given back with the maker if it can't be.
#[test]
fn unix_listeners_have_settings_too() {
    bounded(|| {
        let (ours, theirs, other) = (SocketPath::new(), SocketPath::new(), SocketPath::new());
        let pool = without_threads(Pool::builder());
        let (tell, peers) = mpsc::channel();
        let make = move |_: &UnixStream, peer: std::os::unix::net::SocketAddr| {
            tell.send(peer.as_pathname().map(PathBuf::from)).unwrap();
            Some(echo::<UnixStream>)
        };
        let listener = pool.listener().max_connections(1).refusal("full");
        let listener = listener.bind_unix(&ours.0, make.clone()).unwrap();
        assert_eq!(listener.local_addr().as_pathname(), Some(&*ours.0));
        let named = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
        let named = named.unwrap();
        named
            .bind(&socket2::SockAddr::unix(&theirs.0).unwrap())
            .unwrap();
        let address = socket2::SockAddr::unix(&ours.0).unwrap();
        named.connect(&address).unwrap();
        serve_until(&pool, || listener.connections() == 1);
        assert_eq!(peers.try_recv().unwrap(), Some(theirs.0.clone()));
        let refused = UnixStream::connect(&ours.0).unwrap();
        serve_until(&pool, || pool.snapshot().refused == 1);
        assert_eq!(all_of(refused), "full");
        drop(named);
        serve_until(&pool, || listener.connections() == 0);
        let given = UnixListener::bind(&other.0).unwrap();
        let given = pool.listener().backlog(5).on(given, make.clone()).unwrap();
        let mut unnamed = UnixStream::connect(&other.0).unwrap();
        unnamed.write_all(b"x").unwrap();
        unnamed.shutdown(Shutdown::Write).unwrap();
        serve_until(&pool, || peers.try_recv().is_ok_and(|peer| peer.is_none()));
        serve_until(&pool, || given.connections() == 0);
        assert_eq!(all_of(unnamed), "x");
        let _ = pool.shutdown(LONG);
        fs::remove_file(&other.0).unwrap();
        let given = UnixListener::bind(&other.0).unwrap();
        let rejected = pool.listener().on(given, make).unwrap_err();
        let address = rejected.value.0.local_addr().unwrap();
        assert_eq!(address.as_pathname(), Some(&*other.0));
        assert_eq!(rejected.error.kind(), ErrorKind::BrokenPipe);
    });
}

/// The backlog is what was asked for: with one of one, few connect before any is accepted.
#[test]
fn the_backlog_is_bounded() {
    bounded(|| {
        let pool = without_threads(Pool::builder());
        let narrow = pool.listener().backlog(1).bind(HERE, |_, _| Some(echo));
        let narrow = narrow.unwrap().local_addr();
        let wide = pool.listen(HERE, |_, _| Some(echo)).unwrap().local_addr();
        let connected = |address: SocketAddr| {
            let attempt = |_| {
                let client =
                    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
                let client = client.unwrap();
                client.set_nonblocking(true).unwrap();
                let _ = client.connect(&address.into());
                client
            };
            let clients: Vec<_> = (0..8).map(attempt).collect();
            clients.iter().filter(|it| it.peer_addr().is_ok()).count()
        };
        assert!(connected(narrow) < 8);
        assert_eq!(connected(wide), 8);
    });
}

/// What can't be is refused before anything is bound, with a kind to match on, and all of it is
/// named. A socket that listens already comes back.
#[test]
fn settings_that_cannot_be_are_named() {
    let pool = without_threads(Pool::builder());
    let wrong = || {
        let listener = pool.listener().max_connections(0).backlog(0);
        listener.idle_timeout(Duration::ZERO)
    };
    let path = SocketPath::new();
    let taken = TcpListener::bind(HERE).unwrap();
    let address = taken.local_addr().unwrap();
    let errors = [
        wrong().bind(address, |_, _| Some(echo)).map(drop),
        wrong()
            .bind_unix(&path.0, |_, _| Some(echo::<UnixStream>))
            .map(drop),
        wrong()
            .on(taken, |_, _| Some(echo))
            .map(drop)
            .map_err(|rejected| {
                assert_eq!(rejected.value.0.local_addr().unwrap(), address);
                rejected.error
            }),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        for named in [
            "listen",
            "max_connections(0)",
            "backlog(0)",
            "idle_timeout(0)",
        ] {
            assert!(text.contains(named), "{text}");
        }
    }
    assert!(!path.0.exists());
    let long = pool
        .listener()
        .backlog(u32::MAX)
        .bind(HERE, |_, _| Some(echo));
    let text = long.unwrap_err().to_string();
    assert!(text.contains("backlog(4294967295)"), "{text}");
}
