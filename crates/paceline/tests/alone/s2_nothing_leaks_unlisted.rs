//! S2: what was accepted is finished, refused visibly, or listed in the shutdown report; nothing
//! leaks unlisted (threads, descriptors, memory).
//!
//! The tests count what the whole process holds, so all of them take turns, also those that count
//! nothing.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    os::fd::AsRawFd,
    sync::{mpsc, Arc},
    time::Duration,
};

use super::turns::take_turn;
use crate::support::{bounded, tcp_pair, told, wait_until, LONG};
use paceline::{
    simulated::Simulation, Closed, Context, EventHandler, Interest, Next, Pool, SetKind,
};
use socket2::SockRef;

/// Runs `body` alone and waits until the process holds as many descriptors as before, and no thread
/// with the name of the tests' pools.
fn leaves_nothing(body: impl FnOnce() + Send + 'static) {
    alone(|| {
        let before = descriptors();
        body();
        wait_until(|| pool_threads() == 0);
        // A handler's thread may be about to close something.
        wait_until(|| descriptors() == before);
    });
}

/// Runs `body` while no other test runs.
fn alone(body: impl FnOnce() + Send + 'static) {
    let _turn = take_turn();
    bounded(body);
}

/// Every open descriptor, and what kind of thing it is.
fn descriptors() -> BTreeMap<String, String> {
    let all = fs::read_dir("/proc/self/fd").unwrap();
    all.filter_map(|entry| {
        let entry = entry.unwrap();
        // The directory itself is listed too, and is gone by now.
        let target = fs::read_link(entry.path()).ok()?;
        let kind = target.to_string_lossy().into_owned();
        Some((entry.file_name().to_string_lossy().into_owned(), kind))
    })
    .filter(|(_, kind)| !kind.ends_with("/fd"))
    .collect()
}

/// How many threads have the name of the tests' pools.
fn pool_threads() -> usize {
    let all = fs::read_dir("/proc/self/task").unwrap();
    all.filter_map(|entry| fs::read_to_string(entry.unwrap().path().join("comm")).ok())
        .filter(|name| name.starts_with(NAME))
        .count()
}

const NAME: &str = "counted";

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).name(NAME).build().unwrap()
}

fn echo<S>(cx: &mut Context<'_, S>) -> io::Result<Next>
where
    for<'s> &'s S: Read + Write,
{
    let mut buffer = [0; 512];
    let count = cx.read(&mut buffer)?;
    cx.write_all(&buffer[..count])?;
    Ok(match count {
        0 => Next::Close,
        _ => Next::Continue,
    })
}

/// A handler that sends more than any socket takes when it is first called, and then waits.
fn flood(bytes: usize) -> impl EventHandler<TcpStream> {
    let mut sent = false;
    move |cx: &mut Context<'_, TcpStream>| {
        if !std::mem::replace(&mut sent, true) {
            cx.write_all(&vec![7; bytes])?;
        }
        while cx.read(&mut [0; 16])? > 0 {}
        Ok(Next::Close)
    }
}

/// Two ends of a connection with much less room between them than [`FLOOD`].
fn narrow_pair() -> (TcpStream, TcpStream) {
    let (near, far) = tcp_pair();
    SockRef::from(&near).set_send_buffer_size(32 << 10).unwrap();
    SockRef::from(&far).set_recv_buffer_size(64 << 10).unwrap();
    (near, far)
}

const FLOOD: usize = 2 << 20;

/// Threads, listeners, connections and handlers: after an orderly shutdown all of them are gone,
/// and the report has nothing to list.
#[test]
fn orderly_shutdown() {
    leaves_nothing(|| {
        let pool = pool(4);
        wait_until(|| pool_threads() == 4);
        let token = Arc::new(());
        let of_handlers = Arc::clone(&token);
        let listener = pool.listen("127.0.0.1:0", move |_, _| {
            let token = Arc::clone(&of_handlers);
            Some(move |cx: &mut Context<'_, TcpStream>| {
                let _ = &token;
                echo(cx)
            })
        });
        let address = listener.unwrap().local_addr();
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let mut client = TcpStream::connect(address).unwrap();
                client.set_read_timeout(Some(LONG)).unwrap();
                client.write_all(&[number; 100]).unwrap();
                client.read_exact(&mut [0; 100]).unwrap();
                client
            })
            .collect();
        let report = pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        assert_eq!(Arc::strong_count(&token), 1, "handlers are dropped");
        for mut client in clients {
            assert_eq!(client.read_to_end(&mut Vec::new()).unwrap(), 0);
        }
    });
}

/// What had arrived when the shutdown began is still handled: it was accepted.
#[test]
fn what_has_arrived_is_answered() {
    leaves_nothing(|| {
        for _ in 0..20 {
            let pool = pool(2);
            let clients: Vec<_> = (0..4)
                .map(|_| {
                    let (near, mut far) = tcp_pair();
                    far.write_all(&[9; 1000]).unwrap();
                    pool.register(near, Interest::READ, echo).unwrap();
                    far
                })
                .collect();
            let report = pool.shutdown(LONG);
            assert!(report.is_clean(), "{report}");
            for mut client in clients {
                let mut answer = Vec::new();
                client.read_to_end(&mut answer).unwrap();
                assert_eq!(answer, [9; 1000]);
            }
        }
    });
}

/// Kept output is sent first, if its reader takes it in time.
#[test]
fn kept_output_is_sent() {
    leaves_nothing(|| {
        let pool = Pool::builder()
            .threads(2)
            .name(NAME)
            .output_limit(FLOOD)
            .build()
            .unwrap();
        let (near, mut far) = narrow_pair();
        pool.register(near, Interest::READ, flood(FLOOD)).unwrap();
        far.write_all(b"begin").unwrap();
        far.read_exact(&mut [0]).unwrap();
        let reader = std::thread::spawn(move || {
            let mut rest = Vec::new();
            far.read_to_end(&mut rest).map(|_| rest.len())
        });
        let report = pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        assert_eq!(reader.join().unwrap().unwrap(), FLOOD - 1);
    });
}

/// Kept output that nobody takes is listed, with its handle and its size, and then given up.
#[test]
fn kept_output_unsent_is_listed() {
    leaves_nothing(|| {
        let pool = Pool::builder()
            .threads(2)
            .name(NAME)
            .output_limit(FLOOD)
            .build()
            .unwrap();
        let (near, mut far) = narrow_pair();
        let (inner, end) = told_flood();
        let handle = pool.register(near, Interest::READ, inner).unwrap();
        far.write_all(b"begin").unwrap();
        far.read_exact(&mut [0]).unwrap();
        let report = pool.shutdown(Duration::from_secs(1));
        assert_eq!(report.unfinished.len(), 1, "{report}");
        assert_eq!(report.unfinished[0].handle, handle.id());
        assert!(report.unfinished[0].unsent > 0, "{report}");
        assert!(report.to_string().contains("bytes unsent"), "{report}");
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Shutdown)));
        // What was taken before arrives; the rest never does.
        let mut rest = Vec::new();
        let _ = far.read_to_end(&mut rest);
        assert!(rest.len() + report.unfinished[0].unsent < FLOOD);
    });
}

fn told_flood() -> (impl EventHandler<TcpStream>, mpsc::Receiver<Closed>) {
    let mut flood = flood(FLOOD);
    told(move |cx: &mut Context<'_, TcpStream>| flood.ready(cx))
}

/// A handler that is stuck when the shutdown gives up holds its descriptor until it returns, and no
/// longer; neither does its thread.
#[test]
fn a_stuck_handler_holds_on_until_it_returns() {
    leaves_nothing(|| {
        let pool = pool(2);
        let (near, mut far) = tcp_pair();
        let (entered, has_entered) = mpsc::channel();
        let (gate, open) = mpsc::channel::<()>();
        let handler = move |_: &mut Context<'_, TcpStream>| {
            entered.send(()).unwrap();
            open.recv_timeout(LONG).unwrap();
            Ok(Next::Continue)
        };
        pool.register(near, Interest::READ, handler).unwrap();
        far.write_all(b"x").unwrap();
        has_entered.recv_timeout(LONG).unwrap();
        // It gives up at once. The other thread goes when it gets a core: then one is left.
        let mut report = pool.shutdown(Duration::ZERO);
        wait_until(|| {
            report = pool.shutdown(Duration::ZERO);
            report.stuck_threads.len() == 1
        });
        assert_eq!(report.busy_handles, 1, "{report}");
        drop(pool);
        wait_until(|| pool_threads() == 1);
        gate.send(()).unwrap();
        // The connection ends when the handler has returned, input read or not.
        let _ = far.read(&mut [0]);
    });
}

/// After a shutdown every call says so and gives back what it was given, unharmed.
#[test]
fn use_after_shutdown_gives_everything_back() {
    leaves_nothing(|| {
        let pool = pool(1);
        let (near, _far) = tcp_pair();
        let handle = pool.register(near, Interest::READ, echo).unwrap();
        assert!(pool.shutdown(LONG).is_clean());

        let (mut near, mut far) = tcp_pair();
        near.set_read_timeout(Some(LONG)).unwrap();
        let number = near.as_raw_fd();
        let token = Arc::new(());
        let of_handler = Arc::clone(&token);
        let handler = move |cx: &mut Context<'_, TcpStream>| {
            let _ = &of_handler;
            echo(cx)
        };
        let rejected = pool.register(near, Interest::READ, handler).unwrap_err();
        assert_eq!(rejected.error.kind(), ErrorKind::BrokenPipe);
        assert!(rejected.to_string().contains("register"), "{rejected}");
        assert!(rejected.to_string().contains("shutting down"), "{rejected}");
        let handler;
        (near, handler) = rejected.value;
        assert_eq!(Arc::strong_count(&token), 2, "the handler is given back");
        drop(handler);
        assert_eq!(near.as_raw_fd(), number);
        far.write_all(b"still open").unwrap();
        near.read_exact(&mut [0; 10]).unwrap();
        near.shutdown(Shutdown::Both).unwrap();

        let refused = pool.listen("127.0.0.1:0", |_, _| Some(echo)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
        pool.join().unwrap();
        assert!(pool.enter().is_err());
        let stale = handle.set_interest(Interest::NONE).unwrap_err();
        assert_eq!(stale.kind(), ErrorKind::NotFound);
        assert_eq!(handle.close().unwrap_err().kind(), ErrorKind::NotFound);
        assert!(pool.shutdown(LONG).is_clean(), "once more is no harm");
    });
}

/// A pool that is only dropped, in the middle of its work, leaves nothing either.
#[test]
fn drop_in_the_middle_of_work() {
    leaves_nothing(|| {
        for _ in 0..10 {
            let pool = pool(3);
            let (ends, end) = mpsc::channel();
            let clients: Vec<_> = (0..5)
                .map(|_| {
                    let (near, mut far) = tcp_pair();
                    let handler = Ends(ends.clone());
                    pool.register(near, Interest::READ, handler).unwrap();
                    far.write_all(&[1; 300]).unwrap();
                    far
                })
                .collect();
            drop((pool, ends));
            assert_eq!(end.iter().count(), 5, "each is told once");
            drop(clients);
        }
    });
}

/// An echo that tells its end.
struct Ends(mpsc::Sender<()>);

impl EventHandler<TcpStream> for Ends {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        echo(cx)
    }

    fn closed(&mut self, _: Closed) {
        self.0.send(()).unwrap();
    }
}

/// What can't be built or registered holds nothing afterwards.
#[test]
fn refusals_hold_nothing() {
    leaves_nothing(|| {
        let too_many = Pool::builder().threads(1_000_000).name(NAME).build();
        assert!(too_many.is_err());
        let pool = pool(1);
        let file = fs::File::open("/proc/self/status").unwrap();
        let before = descriptors().len();
        let directory = fs::File::open("/proc").unwrap();
        let handler = |_: &mut Context<'_, fs::File>| Ok(Next::Continue);
        drop(pool.register(directory, Interest::READ, handler));
        assert_eq!(descriptors().len(), before);
        drop(file);
        assert!(pool.shutdown(LONG).is_clean());
    });
}

/// A set that reports once says nothing of a handle while it is busy. Input that came meanwhile is
/// asked for before a drain takes the handle for one that is done.
#[test]
fn silent_handle_is_asked_before_it_is_drained() {
    alone(|| {
        let world = Simulation::one_shot(1);
        let pool = Pool::builder().handle_set(SetKind::Simulated(world.clone()));
        let pool = pool.threads(2).build().unwrap();
        let (stream, peer) = world.stream();
        let (tell, inside) = mpsc::channel();
        let (permission, gate) = mpsc::channel::<()>();
        let mut first = true;
        let echo_slowly = move |cx: &mut Context<'_, _>| {
            let (mut buffer, mut count) = ([0; 8], 0);
            while let Ok(more) = cx.read(&mut buffer[count..]) {
                count += more;
            }
            if std::mem::take(&mut first) {
                tell.send(()).unwrap();
                gate.recv_timeout(LONG).expect("permission comes");
            }
            cx.write_all(&buffer[..count]).map(|()| Next::Continue)
        };
        pool.register(stream, Interest::READ, echo_slowly).unwrap();
        peer.send(b"a");
        inside.recv_timeout(LONG).unwrap();
        peer.send(b"b");
        let ending = {
            let pool = pool.clone();
            std::thread::spawn(move || pool.shutdown(LONG))
        };
        // A refusal says that the drain has begun.
        let refuses = || {
            pool.register(world.stream().0, Interest::READ, echo)
                .is_err()
        };
        wait_until(refuses);
        permission.send(()).unwrap();
        assert!(ending.join().unwrap().is_clean());
        assert_eq!(peer.wait_for(2), b"ab");
    });
}

/// A handle that is busy when the others are ended by force, and ends just after them, with output
/// unsent: it is neither busy any more nor forgotten. Often, because its last moment may still
/// count as busy.
#[test]
fn a_handle_that_ends_during_the_sweep_is_listed() {
    alone(|| (0..50).for_each(|_| end_one_during_the_sweep()));
}

fn end_one_during_the_sweep() {
    let world = Simulation::new(1);
    let pool = Pool::builder().handle_set(SetKind::Simulated(world.clone()));
    let pool = pool.threads(1).build().unwrap();
    let (tell, inside) = mpsc::channel();
    let (permission, gate) = mpsc::channel::<()>();
    let (gone, is_gone) = mpsc::channel();
    let slow = move |cx: &mut Context<'_, _>| {
        tell.send(()).unwrap();
        gate.recv_timeout(LONG).expect("permission comes");
        cx.write_all(&[7; 100]).map(|()| Next::Continue)
    };
    let slow = Releasing(slow, gone);
    let (stream, peer) = world.stream();
    let first = pool.register(stream, Interest::READ, slow).unwrap();
    // Its end lets the first one go on, and waits until that is over.
    let (stream, _other) = world.stream();
    let second = Releases(permission, is_gone);
    pool.register(stream, Interest::NONE, second).unwrap();
    peer.send(b"x");
    inside.recv_timeout(LONG).unwrap();
    let report = pool.shutdown(Duration::ZERO);
    let of_first = report
        .unfinished
        .iter()
        .find(|left| left.handle == first.id());
    // It is in one of the two places.
    assert!(of_first.is_none_or(|left| left.unsent == 36), "{report}");
    let listed = usize::from(of_first.is_some());
    assert_eq!(listed + report.busy_handles, 1, "{report}");
}

/// Tells when it is dropped.
struct Releasing<F>(F, mpsc::Sender<()>);

impl<S, F> EventHandler<S> for Releasing<F>
where
    F: FnMut(&mut Context<'_, S>) -> io::Result<Next> + Send + 'static,
{
    fn ready(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        (self.0)(cx)
    }
}

impl<F> Drop for Releasing<F> {
    fn drop(&mut self) {
        let _ = self.1.send(());
    }
}

/// At its end, lets another handler go on and waits for its end.
struct Releases(mpsc::Sender<()>, mpsc::Receiver<()>);

impl<S> EventHandler<S> for Releases {
    fn ready(&mut self, _: &mut Context<'_, S>) -> io::Result<Next> {
        Ok(Next::Continue)
    }

    fn closed(&mut self, _: Closed) {
        self.0.send(()).unwrap();
        self.1.recv_timeout(LONG).expect("the other one ends");
    }
}
