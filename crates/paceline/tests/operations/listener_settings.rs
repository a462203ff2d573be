//! Settings of a listener: how many connections it may have, what it says to those that it refuses, how long they may be
//! idle; and what a pool knows of its connections.
//!
//! Most tests play all the roles by hand, on sets of the kernel: no other thread accepts or closes anything.

use std::{
    env, fs,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    process,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Mutex,
    },
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{self, serve_all},
    is_to_be_had, wait_until, LONG,
};
use paceline::{
    observe::open_metrics,
    turn::{Led, Waited},
    Builder, Closed, Context, EventHandler, GroupHandler, Handle, Level, Listener, Members, Move,
    Next, Pool, SetKind, Sets, Spread,
};
use socket2::SockRef;

const HERE: &str = "127.0.0.1:0";

/// The kernel's sets whose roles can be played by hand.
fn led_sets() -> Vec<SetKind> {
    let mut sets = vec![SetKind::Epoll, SetKind::OneShot, SetKind::Poll];
    sets.extend(is_to_be_had(&SetKind::Completion).then_some(SetKind::Completion));
    sets
}

/// A pool without threads.
fn by_hand(settings: Builder) -> Pool {
    settings.threads(0).build().unwrap()
}

fn echo<S>(cx: &mut Context<'_, S>) -> io::Result<Next>
where
    for<'s> &'s S: Read + Write,
    S: 'static,
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

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Everything that the peer is sent.
fn all_of(mut stream: impl Read) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Sends a byte, which comes back.
fn is_served(pool: &Pool, mut stream: &TcpStream) {
    stream.write_all(b"x").unwrap();
    serve_until(pool, || has_input(stream));
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
}

fn has_input(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let told = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    told.is_ok()
}

/// Plays the roles until this is so: the kernel passes bytes on when it likes.
fn serve_until(pool: &Pool, is_so: impl Fn() -> bool) {
    wait_until(|| {
        serve_all(pool);
        is_so()
    });
}

/// One connection more than the listener may have: without a text it waited nowhere, because there was no bound. Now it
/// waits in the backlog, is connected for all that its peer knows, and is accepted when another one ends. The listener does
/// not turn in circles meanwhile: a pool at rest has no event.
#[test]
fn connections_beyond_the_bound_wait() {
    for set in led_sets() {
        bounded(|| {
            let pool = by_hand(Pool::builder().handle_set(set));
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

/// The bound is its own affair: a listener that the user has suspended while it waited stays so when a place becomes free,
/// and one that is resumed while it is full goes on waiting.
#[test]
fn the_users_suspension_is_another() {
    bounded(|| {
        let pool = by_hand(Pool::builder());
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

/// A text of refusal: a connection beyond the bound is accepted, answered and closed, whatever its peer has said already,
/// and it is no reset. The next one after an end is served.
#[test]
fn connections_beyond_the_bound_are_answered() {
    for set in led_sets() {
        bounded(|| {
            let pool = by_hand(Pool::builder().handle_set(set));
            let listener = pool.listener().max_connections(1).refusal("busy\n");
            let listener = listener.bind(HERE, |_, _| Some(echo)).unwrap();
            let served = connect(listener.local_addr());
            is_served(&pool, &served);
            for round in 1..=3 {
                let mut refused = connect(listener.local_addr());
                refused.write_all(&[b'?'; 10_000]).unwrap();
                serve_until(&pool, || pool.snapshot().refused == round);
                assert_eq!(listener.connections(), 1);
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
        let pool = by_hand(Pool::builder());
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
        let pool = by_hand(Pool::builder());
        let listener = pool.listener().max_connections(1).refusal("");
        let listener = listener.bind(HERE, |_, _| Some(echo)).unwrap();
        let _served = connect(listener.local_addr());
        let refused = connect(listener.local_addr());
        serve_until(&pool, || pool.snapshot().refused == 1);
        assert_eq!(all_of(&refused), "");
    });
}

/// S2: a connection that is in the backlog when the pool begins to shut down is refused visibly: with the text, if there is
/// one. It takes no place, and nothing is left.
#[test]
fn a_draining_pool_says_so() {
    bounded(|| {
        let pool = by_hand(Pool::builder());
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

/// A listener that waits for a place is idle: a shutdown closes it, and with it what waits in its backlog.
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

/// A source counts until it is dropped, which its handler's `closed` comes before.
struct Noting {
    open: Arc<AtomicUsize>,
    listener: Arc<Mutex<Option<Listener>>>,
    panics: bool,
}

impl EventHandler<TcpStream> for Noting {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        match cx.read(&mut [0; 8])? {
            0 => Ok(Next::Close),
            _ if self.panics => panic!("in the handler"),
            _ => Err(io::Error::other("of the handler")),
        }
    }

    fn closed(&mut self, _: Closed) {
        let listener = self.listener.lock().unwrap().clone();
        let open = listener.unwrap().connections();
        self.open.store(open, Ordering::SeqCst);
        assert!(!self.panics, "in closed");
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        assert!(!self.panics, "in the drop");
    }
}

/// However a connection ends, its place is free afterwards, once: the maker refuses it or panics, the handler closes it,
/// fails, or panics in `ready`, in `closed` and in its drop. It counts until its source is dropped.
#[test]
fn no_end_leaks_a_place() {
    bounded(|| {
        let pool = by_hand(Pool::builder());
        let open = Arc::new(AtomicUsize::new(0));
        let mut calls = 0;
        let own = Arc::new(Mutex::new(None));
        let make = {
            let (open, listener) = (Arc::clone(&open), Arc::clone(&own));
            move |_: &TcpStream, _| {
                calls += 1;
                let noting = |panics| Noting {
                    open: Arc::clone(&open),
                    listener: Arc::clone(&listener),
                    panics,
                };
                match calls % 4 {
                    0 => None,
                    1 => panic!("in the maker"),
                    2 => Some(noting(true)),
                    _ => Some(noting(false)),
                }
            }
        };
        let listener = pool.listener().max_connections(1).bind(HERE, make).unwrap();
        *own.lock().unwrap() = Some(listener.clone());
        for round in 1..=40 {
            let mut client = connect(listener.local_addr());
            let _ = client.write_all(b"x");
            serve_until(&pool, || pool.snapshot().accepted == round);
            serve_until(&pool, || listener.connections() == 0);
            let counted_in_closed = open.swap(0, Ordering::SeqCst);
            assert_eq!(counted_in_closed, usize::from(round % 4 > 1), "{round}");
            assert_eq!(pool.snapshot().connections, 0);
        }
        assert_eq!(pool.snapshot().refused, 20);
        own.lock().unwrap().take();
    });
}

/// A maker's handler that panics when it is dropped because the pool refuses it: it took the whole listener with it if the
/// pool to which the connection was to go was gone. It takes its own connection, and no place.
#[test]
fn a_handler_that_panics_when_it_is_refused() {
    struct Loud;
    impl EventHandler<TcpStream> for Loud {
        fn ready(&mut self, _: &mut Context<'_, TcpStream>) -> io::Result<Next> {
            Ok(Next::Close)
        }

        fn speaks_first(&self) -> bool {
            panic!("asked whether it speaks first")
        }
    }
    impl Drop for Loud {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("in the drop");
            }
        }
    }
    bounded(|| {
        let pool = by_hand(Pool::builder());
        let listener = pool.listener().max_connections(1);
        let listener = listener.bind(HERE, |_, _| Some(Loud)).unwrap();
        for round in 1..=3 {
            assert_eq!(all_of(connect_and_serve(&pool, &listener, round)), "");
            assert_eq!((listener.connections(), pool.snapshot().panics), (0, round));
        }
    });
}

/// A new connection, when the listener has refused so many.
fn connect_and_serve(pool: &Pool, listener: &Listener, refused: u64) -> TcpStream {
    let client = connect(listener.local_addr());
    serve_until(pool, || pool.snapshot().refused == refused);
    client
}

/// A group per connection: the place is that of the first member, also when it moves to another group. What a group
/// connects itself takes none.
#[test]
fn members_of_groups_count() {
    struct Session;
    impl GroupHandler<TcpStream> for Session {
        fn ready(
            &mut self,
            cx: &mut Context<'_, TcpStream>,
            _: &mut Members<'_, TcpStream>,
        ) -> io::Result<Next> {
            echo(cx)
        }
    }
    bounded(|| {
        let pool = by_hand(Pool::builder());
        let keep = pool.group(Session).unwrap();
        let (tell, handles) = mpsc::channel();
        let make = move |_: &TcpStream, _| {
            let tell = tell.clone();
            Some(
                move |cx: &mut Context<'_, TcpStream>, _: &mut Members<'_, TcpStream>| {
                    tell.send(cx.handle()).unwrap();
                    echo(cx)
                },
            )
        };
        let listener = pool.listener().max_connections(1).refusal("no");
        let listener = listener.bind_groups(HERE, make).unwrap();
        let address = listener.local_addr();
        let client = connect(address);
        is_served(&pool, &client);
        let member: Handle = handles.try_recv().unwrap();
        let moved = keep.adopt(&member).unwrap();
        assert_eq!(moved, paceline::Adoption::Moved);
        is_served(&pool, &client);
        let outgoing = TcpListener::bind(HERE).unwrap();
        keep.connect(outgoing.local_addr().unwrap(), LONG).unwrap();
        let _far = outgoing.accept().unwrap();
        serve_all(&pool);
        assert_eq!(
            (listener.connections(), pool.snapshot().connections),
            (1, 1)
        );
        assert_eq!(all_of(connect_and_serve(&pool, &listener, 1)), "no");
        drop(client);
        serve_until(&pool, || listener.connections() == 0);
        is_served(&pool, &connect(address));
        // A group that is ended by force.
        let last = connect_and_serve_one(&pool, &listener);
        let _ = pool.shutdown(Duration::ZERO);
        assert_eq!(
            (listener.connections(), pool.snapshot().connections),
            (0, 0)
        );
        drop(last);
    });
}

fn connect_and_serve_one(pool: &Pool, listener: &Listener) -> TcpStream {
    let client = connect(listener.local_addr());
    serve_until(pool, || listener.connections() == 1);
    client
}

/// A handler that gives its handle away.
struct Telling(mpsc::Sender<Handle>);

impl EventHandler<TcpStream> for Telling {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        self.0.send(cx.handle()).unwrap();
        echo(cx)
    }

    fn moved(&mut self, handle: &Handle) {
        self.0.send(handle.clone()).unwrap();
    }
}

/// Moves it; it is idle.
fn move_to(handle: &Handle, level: &Level) {
    assert!(matches!(handle.move_to(level).unwrap(), Move::Moved(_)));
}

/// A connection that moves to another pool keeps its place at its listener, and counts in the other pool from then on. A
/// listener that waits and is moved itself is called under its new key.
#[test]
fn moves_keep_the_place() {
    bounded(|| {
        let pools = [by_hand(Pool::builder()), by_hand(Pool::builder())];
        let [bulk, urgent] = &pools;
        let level = urgent.as_level("urgent");
        let counts = || [bulk, urgent].map(|pool| pool.snapshot().connections);
        let (tell, handles) = mpsc::channel();
        let make = move |_: &TcpStream, _| Some(Telling(tell.clone()));
        let listener = bulk.listener().max_connections(1).bind(HERE, make).unwrap();
        let client = connect(listener.local_addr());
        is_served(bulk, &client);
        let waits = connect(listener.local_addr());
        serve_all(bulk);
        assert_eq!(counts(), [1, 0]);
        move_to(&handles.try_recv().unwrap(), &level);
        assert_eq!((listener.connections(), counts()), (1, [0, 1]));
        is_served(urgent, &client);
        move_to(listener.handle(), &level);
        serve_all(urgent);
        assert_eq!(bulk.snapshot().accepted, 1, "it is full");
        drop(client);
        serve_until(urgent, || listener.connections() == 1);
        is_served(bulk, &waits);
        assert_eq!(counts(), [1, 0]);
        drop(waits);
        serve_until(bulk, || listener.connections() == 0);
        assert_eq!(counts(), [0, 0]);
    });
}

/// With several sets a connection counts in the set that has it, and at the listener wherever that is. The bound is that of
/// the listener.
#[test]
fn several_sets_have_one_bound() {
    bounded(|| {
        let sets = Sets::builder()
            .sets(2)
            .threads(2)
            .spread(Spread::RoundRobin);
        let sets = sets.build().unwrap();
        let listener = sets.listener().max_connections(4).refusal("full");
        let listener = listener.bind(HERE, |_, _| Some(echo)).unwrap();
        let mut clients = [(); 4].map(|()| connect(listener.local_addr()));
        for client in &mut clients {
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
        let counts = || {
            let snapshots = sets.snapshot();
            snapshots
                .iter()
                .map(|it| it.connections)
                .collect::<Vec<_>>()
        };
        assert_eq!((listener.connections(), counts()), (4, vec![2, 2]));
        assert_eq!(all_of(connect(listener.local_addr())), "full");
        drop(clients);
        wait_until(|| listener.connections() == 0);
        assert_eq!(counts(), [0, 0]);
    });
}

/// Every end is told with the address of the peer, which the system does not know any more when the peer has reset the
/// connection. Members of groups have one, and what the pool has connected; what it was given has none.
#[test]
fn the_hook_of_ends_knows_the_peer() {
    bounded(|| {
        let (tell, told) = mpsc::channel();
        let settings = Pool::builder().on_closed(move |closed| {
            let listener = closed.listener().map(ToString::to_string);
            let line = closed.to_string();
            tell.send((closed.peer(), listener, line)).unwrap();
        });
        let pool = by_hand(settings);
        let alone = pool.listen(HERE, |_, _| Some(echo)).unwrap();
        let grouped = pool.listener().bind_groups(HERE, |_, _| {
            Some(
                |cx: &mut Context<'_, TcpStream>, _: &mut Members<'_, TcpStream>| {
                    cx.read(&mut [0; 8])?;
                    Ok(Next::Close)
                },
            )
        });
        let grouped = grouped.unwrap();
        for listener in [&alone, &grouped] {
            let client = connect(listener.local_addr());
            let peer = client.local_addr().unwrap();
            let mut end = None;
            serve_until(&pool, || listener.connections() == 1);
            SockRef::from(&client)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
            drop(client);
            wait_until(|| {
                serve_all(&pool);
                end = end.take().or_else(|| told.try_recv().ok());
                end.is_some()
            });
            let (of, at, line) = end.unwrap();
            assert!(line.contains(": failed: "), "{line}");
            assert_eq!(of, Some(peer));
            assert_eq!(at, Some(listener.local_addr().to_string()));
            assert!(line.contains(&peer.to_string()), "{line}");
            // The end of the group itself.
            told.try_iter().for_each(|(of, _, _)| assert_eq!(of, None));
        }
        let far = TcpListener::bind(HERE).unwrap();
        let address = far.local_addr().unwrap();
        let outgoing = pool.connect(address, LONG, echo::<TcpStream>).unwrap();
        outgoing.close().unwrap();
        assert_eq!(told.recv_timeout(LONG).unwrap().0, Some(address));
        let (near, _far) = UnixStream::pair().unwrap();
        let given = pool.register(near, paceline::Interest::READ, echo::<UnixStream>);
        given.unwrap().close().unwrap();
        let (peer, listener, line) = told.recv_timeout(LONG).unwrap();
        assert_eq!((peer, listener), (None, None));
        assert!(line.ends_with(": closed on request"), "{line}");
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

/// A Unix listener has the same settings, and its maker gets what is known of the peer. A socket that listens already is
/// taken, and given back with the maker if it can't be.
#[test]
fn unix_listeners_have_settings_too() {
    bounded(|| {
        let (ours, theirs, other) = (SocketPath::new(), SocketPath::new(), SocketPath::new());
        let pool = by_hand(Pool::builder());
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
        let pool = by_hand(Pool::builder());
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

/// What can't be is refused before anything is bound, with a kind to match on, and all of it is named. A socket that listens
/// already comes back.
#[test]
fn settings_that_cannot_be_are_named() {
    let pool = by_hand(Pool::builder());
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

/// The gauge of open connections is in the text that monitoring systems read, as a gauge.
#[test]
fn the_gauge_is_exported() {
    bounded(|| {
        let pool = by_hand(Pool::builder());
        let listener = pool.listen(HERE, |_, _| Some(echo)).unwrap();
        let clients = [(); 3].map(|()| connect(listener.local_addr()));
        serve_until(&pool, || listener.connections() == 3);
        let text = open_metrics(&[("orders", &pool)]);
        assert!(
            text.contains("# TYPE paceline_connections gauge\n"),
            "{text}"
        );
        assert!(
            text.contains("\npaceline_connections{pool=\"orders\"} 3\n"),
            "{text}"
        );
        drop(clients);
        serve_until(&pool, || pool.snapshot().connections == 0);
        assert_eq!(pool.snapshot().accepted, 3);
    });
}
