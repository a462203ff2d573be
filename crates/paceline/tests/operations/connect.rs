//! Outgoing connections: made without waiting, within a time; the handler is told what became of
//! them.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{pause, serve_all},
    kernel_sets, LONG,
};
use paceline::{Closed, Context, EventHandler, Handle, Next, Pool};
use socket2::{Domain, Socket, Type};

/// What a handler was told.
#[derive(Debug)]
enum Told {
    Connected,
    Received(Vec<u8>),
    Closed(Closed),
}

/// A client that speaks first.
struct Client(mpsc::Sender<Told>);

impl EventHandler<TcpStream> for Client {
    fn connected(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        self.0.send(Told::Connected).unwrap();
        cx.write_all(b"hello")?;
        Ok(Next::Continue)
    }

    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let mut buffer = [0; 64];
        let count = cx.read(&mut buffer)?;
        if count == 0 {
            return Ok(Next::Close);
        }
        self.0
            .send(Told::Received(buffer[..count].to_vec()))
            .unwrap();
        Ok(Next::Continue)
    }

    fn closed(&mut self, why: Closed) {
        let _ = self.0.send(Told::Closed(why));
    }
}

fn client() -> (Client, mpsc::Receiver<Told>) {
    let (tell, told) = mpsc::channel();
    (Client(tell), told)
}

fn next(told: &mpsc::Receiver<Told>) -> Told {
    told.recv_timeout(LONG).expect("something is told")
}

/// An address at which nobody listens.
fn deserted() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A listener that accepts nobody, its queue full: who connects there waits.
fn full() -> (Socket, Vec<Socket>, SocketAddr) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let waiting = (0..4).map(|_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&address.into());
        socket
    });
    let waiting = waiting.collect();
    (listener, waiting, address)
}

fn pools() -> impl Iterator<Item = Pool> {
    kernel_sets().into_iter().map(|set| {
        let pool = Pool::builder().threads(2).handle_set(set);
        pool.build().unwrap()
    })
}

/// It stands, is told so once and before everything else, and talks.
#[test]
fn it_stands_and_talks() {
    bounded(|| {
        for pool in pools() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let (client, told) = client();
            let address = listener.local_addr().unwrap();
            pool.connect(address, LONG, client).unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            let mut buffer = [0; 5];
            peer.read_exact(&mut buffer).unwrap();
            assert_eq!(&buffer, b"hello");
            assert!(matches!(next(&told), Told::Connected));
            peer.write_all(b"welcome").unwrap();
            assert!(matches!(next(&told), Told::Received(text) if text == b"welcome"));
            drop(peer);
            assert!(matches!(next(&told), Told::Closed(Closed::Finished)));
            assert!(told.recv_timeout(Duration::ZERO).is_err(), "nothing more");
        }
    });
}

/// The time to connect in is over, once it stands: an idle connection lives on.
#[test]
fn the_deadline_ends_with_the_connection() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (client, told) = client();
        let within = Duration::from_millis(50);
        pool.connect(listener.local_addr().unwrap(), within, client)
            .unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        assert!(matches!(next(&told), Told::Connected));
        let (done, wait) = mpsc::channel();
        pool.after(4 * within, move |_| done.send(()).unwrap())
            .unwrap();
        wait.recv_timeout(LONG).unwrap();
        peer.write_all(b"still here").unwrap();
        assert!(matches!(next(&told), Told::Received(text) if text == b"still here"));
    });
}

/// Refused: the handler is told, with the address; by `closed`, or by the call itself.
#[test]
fn refused_is_told() {
    bounded(|| {
        for pool in pools() {
            let (client, told) = client();
            let address = deserted();
            let text = match pool.connect(address, LONG, client) {
                Err(rejected) => rejected.to_string(),
                Ok(_) => match next(&told) {
                    Told::Closed(Closed::Failed(error)) => {
                        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
                        error.to_string()
                    }
                    other => panic!("{other:?}"),
                },
            };
            assert!(text.contains(&format!("connect to {address}")), "{text}");
        }
    });
}

/// Nobody answers: after its time it is closed.
#[test]
fn it_does_not_wait_for_ever() {
    bounded(|| {
        for pool in pools() {
            let (_listener, _waiting, address) = full();
            let (client, told) = client();
            let within = Duration::from_millis(30);
            pool.connect(address, within, client).unwrap();
            assert!(matches!(next(&told), Told::Closed(Closed::TimedOut)));
            assert_eq!(pool.snapshot().timed_out, 1);
        }
    });
}

/// It can be given up while it is being made; a shutdown does not wait for it either.
#[test]
fn it_can_be_given_up() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let (_listener, _waiting, address) = full();
        let (first, told) = client();
        let handle = pool.connect(address, LONG, first).unwrap();
        handle.close().unwrap();
        assert!(matches!(next(&told), Told::Closed(Closed::Requested)));
        let (second, told) = client();
        pool.connect(address, LONG, second).unwrap();
        let report = pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        assert!(matches!(next(&told), Told::Closed(Closed::Shutdown)));
        let (third, _told) = client();
        let rejected = pool.connect(address, LONG, third).unwrap_err();
        assert_eq!(rejected.error.kind(), ErrorKind::BrokenPipe);
        let Client(_given_back) = rejected.value;
    });
}

/// Many at once, to a pool that serves them: all stand, all are answered.
#[test]
fn many_at_once() {
    bounded(|| {
        let pool = Pool::builder().threads(4).build().unwrap();
        let listener = pool.listen("127.0.0.1:0", |_, _| {
            Some(|cx: &mut Context<'_, TcpStream>| {
                let mut buffer = [0; 64];
                let count = cx.read(&mut buffer)?;
                cx.write_all(&buffer[..count])?;
                Ok(if count == 0 {
                    Next::Close
                } else {
                    Next::Continue
                })
            })
        });
        let address = listener.unwrap().local_addr();
        let clients: Vec<_> = (0..200)
            .map(|_| {
                let (client, told) = client();
                pool.connect(address, LONG, client).unwrap();
                told
            })
            .collect();
        let waiters = clients.into_iter().map(|told| {
            thread::spawn(move || {
                assert!(matches!(next(&told), Told::Connected));
                assert!(matches!(next(&told), Told::Received(text) if text == b"hello"));
                told
            })
        });
        let waiters: Vec<_> = waiters.collect();
        waiters
            .into_iter()
            .for_each(|waiter| drop(waiter.join().unwrap()));
    });
}

/// A server that speaks first: its greeting comes although the client says nothing, once, and
/// before the first answer.
#[test]
fn a_server_speaks_first() {
    struct Greeting;
    impl EventHandler<TcpStream> for Greeting {
        fn speaks_first(&self) -> bool {
            true
        }

        fn connected(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
            cx.write_all(b"welcome ")?;
            Ok(Next::Continue)
        }

        fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
            let count = cx.read(&mut [0; 64])?;
            cx.write_all(b"answer ")?;
            Ok(if count == 0 {
                Next::Close
            } else {
                Next::Continue
            })
        }
    }
    bounded(|| {
        for pool in pools() {
            let listener = pool.listen("127.0.0.1:0", |_, _| Some(Greeting)).unwrap();
            let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            let mut buffer = [0; 8];
            stream.read_exact(&mut buffer).unwrap();
            assert_eq!(&buffer, b"welcome ");
            stream.write_all(b"?").unwrap();
            stream.read_exact(&mut buffer[..7]).unwrap();
            assert_eq!(&buffer[..7], b"answer ");
        }
    });
}

/// A handler that is called by hand: what it was told is looked at afterwards.
fn connected_by_hand(
    within: Duration,
    then: impl FnOnce(&Handle),
) -> (Pool, TcpStream, mpsc::Receiver<Told>) {
    let pool = Pool::builder().threads(0).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (client, told) = client();
    let handle = pool
        .connect(listener.local_addr().unwrap(), within, client)
        .unwrap();
    let (peer, _) = listener.accept().unwrap();
    then(&handle);
    (pool, peer, told)
}

/// It stood in time, and nobody was free to see: it stands.
#[test]
fn who_stood_in_time_stands() {
    let within = Duration::from_millis(5);
    let (pool, _peer, told) = connected_by_hand(within, |_| pause(4 * within));
    serve_all(&pool);
    assert!(matches!(next(&told), Told::Connected));
    assert!(told.try_recv().is_err());
}

/// An idle time-out that it was given before it stood is still there afterwards.
#[test]
fn a_timeout_of_its_own_stays() {
    let idle = Duration::from_millis(30);
    let (pool, _peer, told) = connected_by_hand(LONG, |handle| {
        handle.set_timeout(Some(idle)).unwrap();
    });
    serve_all(&pool);
    assert!(matches!(next(&told), Told::Connected));
    pause(2 * idle);
    serve_all(&pool);
    assert!(matches!(
        told.try_recv(),
        Ok(Told::Closed(Closed::TimedOut))
    ));
}

/// A notification that came before it stood is not forgotten, whatever `connected` says.
#[test]
fn notified_before_it_stands() {
    struct Notified(mpsc::Sender<&'static str>);
    impl EventHandler<TcpStream> for Notified {
        fn connected(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
            self.0.send("connected").unwrap();
            cx.read(&mut [0; 8])?;
            Ok(Next::Continue)
        }

        fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
            assert!(cx.is_notified());
            self.0.send("ready").unwrap();
            Ok(Next::Continue)
        }
    }
    let pool = Pool::builder().threads(0).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (tell, told) = mpsc::channel();
    let address = listener.local_addr().unwrap();
    let handle = pool.connect(address, LONG, Notified(tell)).unwrap();
    handle.notify().unwrap();
    let _peer = listener.accept().unwrap();
    serve_all(&pool);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), ["connected", "ready"]);
}
