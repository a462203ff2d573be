//! H2: no lost event: at rest, no active handle has unconsumed readiness within its interest.

use std::{
    fs, io,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc,
    },
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{self, serve_all, Scene},
    tcp_pair, told, wait_until, Witness, LONG,
};
use paceline::Source;
use paceline::{simulated::SimStream, Closed, Context, EventHandler, Interest, Next, Pool};
use socket2::SockRef;

/// Reads once per call into `N` bytes, and gives away all it got when the stream has ended.
struct Collect<const N: usize> {
    all: Vec<u8>,
    whole: mpsc::Sender<Vec<u8>>,
}

fn collect<const N: usize>() -> (Collect<N>, mpsc::Receiver<Vec<u8>>) {
    let (whole, all) = mpsc::channel();
    let collect = Collect {
        all: Vec::new(),
        whole,
    };
    (collect, all)
}

impl<S, const N: usize> EventHandler<S> for Collect<N>
where
    for<'s> &'s S: Read,
{
    fn ready(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        let mut buffer = [0; N];
        match cx.read(&mut buffer)? {
            0 => {
                self.whole.send(std::mem::take(&mut self.all)).unwrap();
                Ok(Next::Close)
            }
            count => {
                self.all.extend(&buffer[..count]);
                Ok(Next::Continue)
            }
        }
    }
}

/// Registers `source`, then does `feed`, and returns all that was read until the end of the stream.
fn read_once_per_call<const N: usize, S>(source: S, feed: impl FnOnce()) -> Vec<u8>
where
    S: Source,
    for<'s> &'s S: Read,
{
    let pool = Pool::builder().threads(2).build().unwrap();
    let (handler, all) = collect::<N>();
    pool.register(source, Interest::READ, handler).unwrap();
    feed();
    all.recv_timeout(LONG).unwrap()
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

/// Data and the end of the stream come together and make one edge. Whoever takes a short read for
/// "it is empty" never sees the end: there is no second edge. Here they are there before the
/// registration, so it is one edge for sure; then as they come.
#[test]
fn data_and_end_of_stream_in_one_edge() {
    bounded(|| {
        for before in [true, false] {
            for _ in 0..50 {
                let (near, mut far) = tcp_pair();
                let mut send = || {
                    far.write_all(&bytes(100)).unwrap();
                    far.shutdown(Shutdown::Write).unwrap();
                };
                if before {
                    send();
                    assert_eq!(read_once_per_call::<8192, _>(near, || {}), bytes(100));
                } else {
                    assert_eq!(read_once_per_call::<8192, _>(near, send), bytes(100));
                }
            }
        }
    });
}

/// More than the handler's buffer comes at once, and then nothing more: no edge tells of the rest.
/// The handler is called again because its source did not run dry.
#[test]
fn nine_kib_into_eight_then_silence() {
    bounded(|| {
        for count in [8 << 10, (8 << 10) + 1, 9 << 10, 16 << 10, 50_000] {
            let pool = Pool::builder().threads(2).build().unwrap();
            let (near, mut far) = tcp_pair();
            let handler = |cx: &mut Context<'_, TcpStream>| {
                let mut buffer = [0; 8 << 10];
                let count = cx.read(&mut buffer)?;
                cx.write_all(&buffer[..count])?;
                Ok(Next::Continue)
            };
            far.write_all(&bytes(count)).unwrap();
            pool.register(near, Interest::READ, handler).unwrap();
            let mut answer = vec![0; count];
            far.read_exact(&mut answer).unwrap();
            assert_eq!(answer, bytes(count));
        }
    });
}

/// The same for pipes and Unix sockets, where a short read means nothing.
#[test]
fn pipes_and_unix_sockets_as_sources() {
    bounded(|| {
        let data = bytes(40_000);
        let (near, mut far) = io::pipe().unwrap();
        let all = read_once_per_call::<8192, _>(near, move || {
            far.write_all(&bytes(40_000)).unwrap();
        });
        assert_eq!(all, data);
        let (near, mut far) = UnixStream::pair().unwrap();
        let all = read_once_per_call::<8192, _>(near, move || {
            far.write_all(&bytes(40_000)).unwrap();
        });
        assert_eq!(all, data);
        // In many pieces, so that there are short reads and more comes right after them.
        let (near, mut far) = io::pipe().unwrap();
        let all = read_once_per_call::<8192, _>(near, move || {
            data.chunks(100)
                .for_each(|chunk| far.write_all(chunk).unwrap());
        });
        assert_eq!(all, bytes(40_000));
    });
}

/// A handler takes one byte per call and says "continue". It is called again for each, though there
/// was one edge for all; also when it reads behind the pool's back, which never counts as running
/// dry.
#[test]
fn a_handler_that_stops_early_is_called_again() {
    bounded(|| {
        let (near, mut far) = tcp_pair();
        far.write_all(&bytes(1000)).unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_once_per_call::<1, _>(near, || {}), bytes(1000));

        let pool = Pool::builder().threads(2).build().unwrap();
        let (near, mut far) = tcp_pair();
        let handler = |cx: &mut Context<'_, TcpStream>| {
            let mut one = [0];
            let count = cx.source().read(&mut one).unwrap_or(0);
            cx.write_all(&one[..count])?;
            Ok(Next::Continue)
        };
        far.write_all(&bytes(300)).unwrap();
        let handle = pool.register(near, Interest::READ, handler).unwrap();
        let mut answer = [0; 300];
        far.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..], bytes(300));
        handle.close().unwrap();
    });
}

/// A handler that reads until "would block" stops when its share is read, and is called again for
/// the rest.
#[test]
fn the_rest_beyond_the_budget_is_not_lost() {
    bounded(|| {
        let pool = Pool::builder().threads(1).read_budget(16).build().unwrap();
        let (near, mut far) = tcp_pair();
        let (shares, all_shares) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, TcpStream>| {
            let (mut share, mut buffer) = (0, [0; 10]);
            loop {
                match cx.read(&mut buffer) {
                    Ok(count) => share += count,
                    Err(error) => {
                        shares.send(share).unwrap();
                        return Err(error);
                    }
                }
            }
        };
        far.write_all(&bytes(50)).unwrap();
        pool.register(near, Interest::READ, handler).unwrap();
        let mut read = 0;
        while read < 50 {
            let share = all_shares.recv_timeout(LONG).unwrap();
            assert!(share <= 16, "{share}");
            read += share;
        }
    });
}

/// A one-shot registration for both directions was disarmed for both when one of them fired (ACE 23
/// on its tracker, kaappi 1462). Here one interest is taken away and the other still works, both
/// ways.
#[test]
fn remove_one_interest_keeps_other_armed() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (stream, peer) = scene.world.stream();
        let (calls, called) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, SimStream>| {
            calls.send((cx.is_readable(), cx.is_writable())).unwrap();
            while cx.read(&mut [0; 16])? > 0 {}
            Ok(Next::Continue)
        };
        let both = Interest::READ | Interest::WRITE;
        let handle = scene.pool.register(stream, both, handler).unwrap();
        handle.set_interest(Interest::READ).unwrap();
        assert_eq!(serve_all(&scene.pool), 0, "there is room, and no interest");
        peer.send(b"x");
        assert_eq!(serve_all(&scene.pool), 1);
        assert_eq!(called.try_recv(), Ok((true, true)));
        handle.set_interest(Interest::WRITE).unwrap();
        peer.send(b"y");
        // It is called for the room alone. It reads all the same, and the room is not used up: it
        // would be called for ever.
        let follower = by_hand::turn(scene.pool.enter().unwrap());
        assert_eq!(called.try_recv(), Ok((true, true)));
        handle.set_interest(Interest::READ).unwrap();
        drop(follower);
        peer.send(b"z");
        serve_all(&scene.pool);
        assert!(called.try_recv().unwrap().0, "the input still counts");
    });
}

/// Interest off, event, interest on: the event is dispatched then, and not before. An edge is noted
/// whatever the interest is.
#[test]
fn an_event_without_interest_is_kept() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let (marker, mut marker_far) = tcp_pair();
        pool.register(marker, Interest::READ, |cx: &mut Context<'_, TcpStream>| {
            let mut byte = [0];
            cx.read(&mut byte)?;
            cx.write_all(&byte)?;
            Ok(Next::Continue)
        })
        .unwrap();
        let (near, mut far) = tcp_pair();
        let (calls, called) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, TcpStream>| {
            // One more than comes: it is dry when that is told, and nobody is on the way to it.
            let mut bytes = [0; 2];
            cx.read(&mut bytes)?;
            calls.send(bytes[0]).unwrap();
            Ok(Next::Continue)
        };
        let handle = pool.register(near, Interest::READ, handler).unwrap();
        for round in 0..100 {
            handle.set_interest(Interest::NONE).unwrap();
            far.write_all(&[round]).unwrap();
            // The leader has looked at the set since: this came after the byte.
            marker_far.write_all(b"m").unwrap();
            marker_far.read_exact(&mut [0]).unwrap();
            assert!(called.try_recv().is_err(), "nobody is interested");
            handle.set_interest(Interest::READ).unwrap();
            assert_eq!(called.recv_timeout(LONG), Ok(round));
        }
    });
}

/// tokio kept one tick for the whole driver and cleared a resource's readiness if the tick had not
/// changed; an edge that fell between two of them was cleared too, and its task hung (tokio 6133).
/// Ours keeps readiness per handle. The edge comes when the handler has read its source dry but not
/// returned, while the leader is busy with others.
#[test]
fn shared_tick_hang() {
    bounded(|| {
        let scene = Scene::with_threads(2, Witness::default());
        let (other, other_peer) = scene.world.stream();
        let (passed, has_passed) = mpsc::channel();
        let other_handler = move |cx: &mut Context<'_, SimStream>| {
            cx.read(&mut [0; 16])?;
            passed.send(()).unwrap();
            Ok(Next::Continue)
        };
        scene
            .pool
            .register(other, Interest::READ, other_handler)
            .unwrap();
        let (stream, peer) = scene.world.stream();
        let (dry, is_dry) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, SimStream>| {
            let mut read: Vec<u8> = Vec::new();
            let mut buffer = [0; 16];
            let told = loop {
                match cx.read(&mut buffer) {
                    Ok(count) => read.extend(&buffer[..count]),
                    Err(error) => break error,
                }
            };
            dry.send(read).unwrap();
            may_go_on.recv_timeout(LONG).unwrap();
            Err(told)
        };
        scene
            .pool
            .register(stream, Interest::READ, handler)
            .unwrap();
        peer.send(&[0]);
        for round in 1..100 {
            assert_eq!(is_dry.recv_timeout(LONG).unwrap(), [round - 1]);
            peer.send(&[round]);
            // The set tells in order, so the leader has the new edge when the other one was
            // handled.
            other_peer.send(b"x");
            has_passed.recv_timeout(LONG).unwrap();
            go_on.send(()).unwrap();
        }
        assert_eq!(is_dry.recv_timeout(LONG).unwrap(), [99]);
        go_on.send(()).unwrap();
    });
}

/// A hang-up or an error is told whether one asks for it or not; loops that had no interest in it
/// were told without end (Ice; seastar 1785). Ours is told once: the handler is called a few times
/// at most, and the leader sleeps. On a pipe, on a socket, without interest, and with a handler
/// that does not care.
#[test]
fn errhup_only_event_does_not_spin() {
    bounded(|| {
        let calls = Arc::new(AtomicUsize::new(0));
        let pool = Pool::builder().threads(1).name("hang-up").build().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        pool.register(writer, Interest::NONE, careless(&calls))
            .unwrap();
        let (second_reader, second_writer) = io::pipe().unwrap();
        pool.register(second_reader, Interest::NONE, careless(&calls))
            .unwrap();
        let (near, far) = tcp_pair();
        pool.register(near, Interest::NONE, careless(&calls))
            .unwrap();
        let (cares, cares_far) = tcp_pair();
        let seen = Arc::new(AtomicUsize::new(0));
        let of_handler = Arc::clone(&seen);
        let sees_the_end = move |cx: &mut Context<'_, TcpStream>| {
            of_handler.fetch_add(1, Ordering::SeqCst);
            let told = cx.read(&mut [0; 16]);
            Ok(told.map_or(Next::Continue, |_| Next::Continue))
        };
        pool.register(cares, Interest::READ, sees_the_end).unwrap();
        SockRef::from(&far)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop((reader, second_writer, far));
        cares_far.shutdown(Shutdown::Both).unwrap();

        wait_until(|| seen.load(Ordering::SeqCst) > 0);
        let leader = thread_named("hang-up");
        for _ in 0..20 {
            wait_until(|| sleeps(&leader));
        }
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        assert!(seen.load(Ordering::SeqCst) < 5, "{seen:?}");
        assert!(pool.snapshot().promotions < 5, "{:?}", pool.snapshot());
    });
}

/// Counts its calls and does nothing.
fn careless<S: 'static>(calls: &Arc<AtomicUsize>) -> impl EventHandler<S> {
    let calls = Arc::clone(calls);
    move |_: &mut Context<'_, S>| {
        calls.fetch_add(1, Ordering::SeqCst);
        Ok(Next::Continue)
    }
}

/// Where the system tells about the thread whose name begins like this.
fn thread_named(name: &str) -> std::path::PathBuf {
    let is_it = |path: &std::path::PathBuf| {
        fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.starts_with(name))
    };
    let mut found = None;
    // While other threads end, the list may leave one out.
    wait_until(|| {
        let all = fs::read_dir("/proc/self/task").unwrap();
        found = all.filter_map(|entry| Some(entry.ok()?.path())).find(is_it);
        found.is_some()
    });
    found.expect("it was found")
}

/// Whether a thread sleeps in the kernel: one that spins through waits which end at once never
/// does.
fn sleeps(thread: &std::path::Path) -> bool {
    let text = fs::read_to_string(thread.join("stat")).unwrap();
    let state = text.rsplit(") ").next().unwrap();
    state.starts_with('S')
}

/// A read stops short at the mark of urgent data, and no further edge tells of what comes after it.
/// The short read must not be taken for an empty stream.
#[test]
fn everything_after_urgent_data_arrives() {
    bounded(|| {
        for before in [true, false] {
            for _ in 0..50 {
                let (near, mut far) = tcp_pair();
                let mut send = || {
                    far.write_all(b"before").unwrap();
                    SockRef::from(&far).send_out_of_band(b"!").unwrap();
                    far.write_all(b"after").unwrap();
                };
                let pool = Pool::builder().threads(2).build().unwrap();
                let (read, all_read) = mpsc::channel();
                let handler = move |cx: &mut Context<'_, TcpStream>| {
                    let mut buffer = [0; 100];
                    let count = cx.read(&mut buffer)?;
                    read.send(buffer[..count].to_vec()).unwrap();
                    Ok(Next::Continue)
                };
                if before {
                    send();
                    pool.register(near, Interest::READ, handler).unwrap();
                } else {
                    pool.register(near, Interest::READ, handler).unwrap();
                    send();
                }
                let mut all = Vec::new();
                while all.len() < b"beforeafter".len() {
                    all.extend(all_read.recv_timeout(LONG).unwrap());
                }
                assert_eq!(all, b"beforeafter");
            }
        }
    });
}

/// Requests were read that no thread was free to serve: they sat in the process, where no other
/// server could take them and no time-out counted (Ice 2270, 2372). With all threads busy, nothing
/// is read here: neither from a connection that waits for a thread, nor from one whose handler has
/// taken a request and not yet asked for the next. The bytes stay in the socket, and are served
/// when a thread is free.
#[test]
fn no_read_without_free_thread() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let (entered, has_entered) = mpsc::channel();
        let mut busy: Vec<_> = (0..2)
            .map(|_| {
                let (gate, open) = mpsc::channel::<()>();
                let entered = entered.clone();
                let (far, window) = serve_one_by_one(&pool, b"requestrequest", move || {
                    entered.send(()).unwrap();
                    open.recv_timeout(LONG).unwrap();
                });
                has_entered.recv_timeout(LONG).unwrap();
                (gate, far, window)
            })
            .collect();
        let (mut far, window) = serve_one_by_one(&pool, b"request", || {});
        let unread = |window: &TcpStream| matches!(window.peek(&mut [0; 16]), Ok(7));
        wait_until(|| unread(&window));
        let before = pool.snapshot().promotions;
        thread::yield_now();
        assert!(unread(&window));
        assert!(busy.iter().all(|(_, _, window)| unread(window)));
        assert_eq!(pool.snapshot().promotions, before);
        for (gate, _, _) in &busy {
            (0..2).for_each(|_| gate.send(()).unwrap());
        }
        far.read_exact(&mut [0; 7]).unwrap();
        for (_, far, _) in &mut busy {
            far.read_exact(&mut [0; 14]).unwrap();
        }
    });
}

/// A connection over which `requests` were sent, of seven bytes each. Its handler reads one per
/// call, does `work`, and sends it back. The far end, and a look at what was not read.
fn serve_one_by_one(
    pool: &Pool,
    requests: &[u8],
    mut work: impl FnMut() + Send + 'static,
) -> (TcpStream, TcpStream) {
    let (near, mut far) = tcp_pair();
    let window = near.try_clone().unwrap();
    pool.register(
        near,
        Interest::READ,
        move |cx: &mut Context<'_, TcpStream>| {
            let mut request = [0; 7];
            if cx.read(&mut request)? == 0 {
                return Ok(Next::Close);
            }
            work();
            cx.write_all(&request).map(|()| Next::Continue)
        },
    )
    .unwrap();
    far.write_all(requests).unwrap();
    (far, window)
}

/// "Would block" of the lent source means "nothing more now". Any other is an error like all
/// errors: nobody would call this handler again when that other thing is ready.
#[test]
fn a_foreign_would_block_is_an_error() {
    bounded(|| {
        let foreign = || io::Error::from(ErrorKind::WouldBlock);
        let why = end_of(move |_| Err(foreign()));
        assert!(is_would_block(&why), "{why:?}");
        let why = end_of(move |cx| {
            cx.read(&mut [0; 1])?;
            Err(foreign())
        });
        assert!(is_would_block(&why), "{why:?}");
        let why = end_of(move |cx| {
            cx.write_all(&[0; 1000])?;
            assert!(cx.unsent() > 0);
            Err(foreign())
        });
        assert!(is_would_block(&why), "{why:?}");
    });
}

/// The same for a handler that read its own source dry before, and asked somebody else then.
#[test]
fn a_foreign_would_block_after_a_dry_source_is_an_error() {
    bounded(|| {
        let (other, _other_far) = UnixStream::pair().unwrap();
        other.set_nonblocking(true).unwrap();
        let why = end_of(move |cx| {
            while cx.read(&mut [0; 16]).is_ok() {}
            (&other).read_exact(&mut [0])?;
            Ok(Next::Continue)
        });
        assert!(is_would_block(&why), "{why:?}");
    });
}

/// Calls a handler for one event; tells why it was closed, or that it was not.
fn end_of<F>(handler: F) -> Result<Closed, mpsc::TryRecvError>
where
    F: FnMut(&mut Context<'_, SimStream>) -> io::Result<Next> + Send + 'static,
{
    let scene = Scene::unobserved();
    let (stream, peer) = scene.world.stream();
    let (handler, end) = told(handler);
    scene
        .pool
        .register(stream, Interest::READ, handler)
        .unwrap();
    peer.send(b"x");
    drop(by_hand::turn(scene.pool.enter().unwrap()));
    end.try_recv()
}

fn is_would_block(why: &Result<Closed, mpsc::TryRecvError>) -> bool {
    matches!(why, Ok(Closed::Failed(error)) if error.kind() == ErrorKind::WouldBlock)
}

/// And the lent one's is not: the handle stays, and the next event is dispatched.
#[test]
fn the_lent_would_block_is_no_error() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (stream, peer) = scene.world.stream();
        let (handler, end) = told(|cx: &mut Context<'_, SimStream>| loop {
            cx.read(&mut [0; 16])?;
        });
        scene
            .pool
            .register(stream, Interest::READ, handler)
            .unwrap();
        for _ in 0..3 {
            peer.send(b"x");
            assert_eq!(serve_all(&scene.pool), 1);
        }
        assert!(end.try_recv().is_err());
    });
}
