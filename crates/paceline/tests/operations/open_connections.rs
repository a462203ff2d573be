//! What a pool knows of its connections: how many are open, who their peers are.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Mutex,
    },
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::serve_all,
    listeners::{all_of, connect, echo, is_served, serve_until, without_threads, HERE},
    wait_until, LONG,
};
use paceline::{
    observe::open_metrics, Closed, Context, EventHandler, GroupHandler, Handle, Level, Listener,
    Members, Move, Next, Pool, Sets, Spread,
};
use socket2::SockRef;

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

/// However a connection ends, its place is free afterwards, once: the maker refuses it or panics,
/// the handler closes it, fails, or panics in `ready`, in `closed` and in its drop. It counts until
/// its source is dropped.
#[test]
fn no_end_leaks_a_place() {
    bounded(|| {
        let pool = without_threads(Pool::builder());
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

/// A handler that panics when it is dropped.
struct Loud;

impl EventHandler<TcpStream> for Loud {
    fn ready(&mut self, _: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        Ok(Next::Close)
    }
}

impl Drop for Loud {
    fn drop(&mut self) {
        panic!("in the drop");
    }
}

/// A handler that panics when it is dropped because its connection is refused: it ended the whole
/// listener if the pool that the connection was meant for was gone. It takes its own connection
/// with it, and no place.
#[test]
fn a_handler_that_panics_when_it_is_refused() {
    bounded(|| {
        let sets = Sets::builder().sets(1).threads(1).build().unwrap();
        let pool = sets.pool(0).clone();
        let listener = sets.listener().max_connections(1).refusal("gone");
        let listener = listener.bind(HERE, |_, _| Some(Loud)).unwrap();
        // Connections are for the sets, and the listener is in a pool that is held.
        drop(sets);
        for round in 1..=3 {
            assert_eq!(all_of(connect(listener.local_addr())), "gone");
            wait_until(|| pool.snapshot().panics == round);
            wait_until(|| listener.connections() == 0);
        }
        assert_eq!(pool.snapshot().refused, 3);
    });
}

/// The same while it is asked whether it speaks first, before the connection is registered.
#[test]
fn a_handler_that_panics_before_it_is_registered() {
    struct Mute;
    impl EventHandler<TcpStream> for Mute {
        fn ready(&mut self, _: &mut Context<'_, TcpStream>) -> io::Result<Next> {
            Ok(Next::Close)
        }

        fn speaks_first(&self) -> bool {
            panic!("asked whether it speaks first")
        }
    }
    bounded(|| {
        let pool = without_threads(Pool::builder());
        let listener = pool.listener().max_connections(1);
        let listener = listener.bind(HERE, |_, _| Some(Mute)).unwrap();
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

/// A group per connection: the place is that of the first member, also when it moves to another
/// group. What a group connects itself takes none.
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
        let pool = without_threads(Pool::builder());
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

/// A connection that moves to another pool keeps its place at its listener, and counts in the other
/// pool from then on. A listener that waits and is moved itself is called under its new key.
#[test]
fn moves_keep_the_place() {
    bounded(|| {
        let pools = [
            without_threads(Pool::builder()),
            without_threads(Pool::builder()),
        ];
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

/// With several sets a connection counts in the set that has it, and at the listener wherever that
/// is. The bound is that of the listener.
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

/// Every end is told with the address of the peer, which the system does not know any more when the
/// peer has reset the connection. Members of groups have one, and what the pool has connected; what
/// it was given has none.
#[test]
fn the_hook_of_ends_knows_the_peer() {
    bounded(|| {
        let (tell, told) = mpsc::channel();
        let settings = Pool::builder().on_closed(move |closed| {
            let listener = closed.listener().map(ToString::to_string);
            let line = closed.to_string();
            tell.send((closed.peer(), listener, line)).unwrap();
        });
        let pool = without_threads(settings);
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

/// The gauge of open connections is in the text that monitoring systems read, as a gauge.
#[test]
fn the_gauge_is_exported() {
    bounded(|| {
        let pool = without_threads(Pool::builder());
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
