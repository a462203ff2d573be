//! Input and its end.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc,
    },
};

use crate::support::{tcp_pair, told, LONG};
use paceline::Source;
use paceline::{Closed, Context, EventHandler, Interest, Next};

use super::world::{bytes, Near, Set, World};

/// Reads once per call into `N` bytes, tells what it read, and closes at the end of the stream.
fn once_per_call<const N: usize, S>() -> (impl EventHandler<S>, mpsc::Receiver<Vec<u8>>)
where
    for<'s> &'s S: Read,
    S: Source,
{
    let (tell, told) = mpsc::channel();
    let handler = move |cx: &mut Context<'_, S>| {
        let mut buffer = [0; N];
        let count = cx.read(&mut buffer)?;
        tell.send(buffer[..count].to_vec()).unwrap();
        Ok(match count {
            0 => Next::Close,
            _ => Next::Continue,
        })
    };
    (handler, told)
}

/// Data and the end of the stream come together and make one edge: no second one tells of the end.
/// They are there before the registration, or come after it.
fn data_and_end_of_stream_in_one_edge(set: Set) {
    for before in [true, false] {
        let world = World::new(set);
        let (near, far) = world.pair();
        let (handler, reads) = once_per_call::<8192, Near>();
        let send = || {
            far.send(&bytes(100));
            far.finish();
        };
        if before {
            send();
            world.pool.register(near, Interest::READ, handler).unwrap();
        } else {
            world.pool.register(near, Interest::READ, handler).unwrap();
            assert_eq!(world.work(), 0, "nothing has come");
            send();
        }
        world.work();
        let reads: Vec<_> = reads.try_iter().collect();
        assert_eq!(reads, [bytes(100), Vec::new()]);
        far.wait_closed();
    }
}
on_every_set!(data_and_end_of_stream_in_one_edge);

/// The same over TCP, where a short read is taken for "it is empty": but not if the end is known.
/// Threads read while the two are sent one after the other, so they meet in every order.
fn data_and_end_of_a_tcp_stream(set: Set) {
    let world = World::with_threads(set, 2);
    for _ in 0..100 {
        let (near, mut far) = tcp_pair();
        let (handler, reads) = once_per_call::<8192, TcpStream>();
        world.pool.register(near, Interest::READ, handler).unwrap();
        far.write_all(&bytes(100)).unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        loop {
            let read = reads.recv_timeout(LONG).unwrap();
            if read.is_empty() {
                break;
            }
            all.extend(read);
        }
        assert_eq!(all, bytes(100));
    }
}
on_kernel_sets!(data_and_end_of_a_tcp_stream);

/// What that is for: a request that fits into the handler's buffer costs one call and one read.
fn a_short_read_empties_a_tcp_stream(set: Set) {
    let world = World::new(set);
    let (near, mut far) = tcp_pair();
    far.write_all(b"request").unwrap();
    near.peek(&mut [0]).unwrap();
    let (handler, reads) = once_per_call::<8192, TcpStream>();
    world.pool.register(near, Interest::READ, handler).unwrap();
    assert_eq!(world.work(), 1);
    assert_eq!(reads.try_recv().unwrap(), b"request");
}
on_kernel_sets!(a_short_read_empties_a_tcp_stream);

/// Of any other source it says nothing: this one gives a byte at a time, whatever it has. All is
/// read, though no edge tells of the rest.
fn a_short_read_says_nothing_of_other_sources(set: Set) {
    let world = World::new(set);
    let (near, mut far) = UnixStream::pair().unwrap();
    let (handler, reads) = once_per_call::<8192, Dribbling>();
    let source = Dribbling(near);
    world
        .pool
        .register(source, Interest::READ, handler)
        .unwrap();
    far.write_all(b"request").unwrap();
    world.work();
    assert_eq!(reads.try_iter().flatten().collect::<Vec<_>>(), b"request");
}
on_kernel_sets!(a_short_read_says_nothing_of_other_sources);

struct Dribbling(UnixStream);

impl AsFd for Dribbling {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for &Dribbling {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(&mut buffer[..1])
    }
}

/// More than the handler's buffer comes at once, and then nothing more: no edge tells of the rest.
/// The handler is called again because its source did not run dry, and then no more.
fn nine_kib_into_eight_then_silence(set: Set) {
    for before in [true, false] {
        let world = World::new(set);
        let (near, far) = world.pair();
        let (handler, reads) = once_per_call::<{ 8 << 10 }, Near>();
        if before {
            far.send(&bytes(9 << 10));
        }
        world.pool.register(near, Interest::READ, handler).unwrap();
        if !before {
            far.send(&bytes(9 << 10));
        }
        // Where a short read says nothing, one more call finds it dry.
        assert!(matches!(world.work(), 2 | 3));
        let reads: Vec<_> = reads.try_iter().collect();
        assert_eq!(reads.iter().map(Vec::len).collect::<Vec<_>>(), [8192, 1024]);
        assert_eq!(reads.concat(), bytes(9 << 10));
        assert_eq!(world.work(), 0, "it is dry");
    }
}
on_every_set!(nine_kib_into_eight_then_silence);

/// Counts its calls, reads once, and does not care what.
fn careless(calls: &Arc<AtomicUsize>) -> impl EventHandler<Near> {
    let calls = Arc::clone(calls);
    move |cx: &mut Context<'_, Near>| {
        calls.fetch_add(1, Ordering::SeqCst);
        cx.read(&mut [0; 16])?;
        Ok(Next::Continue)
    }
}

/// A handler reads the end of its stream and asks for more. A level-triggered set would tell the
/// end again and again; it is told once.
fn an_end_that_is_ignored_is_told_once(set: Set) {
    let world = World::new(set);
    let calls = Arc::new(AtomicUsize::new(0));
    let (handle, far) = world.serve(Interest::READ, careless(&calls));
    far.finish();
    assert_eq!(world.work(), 1);
    assert_eq!(world.work(), 0);
    // Nor when somebody asks for input once more: none will come.
    handle.set_interest(Interest::NONE).unwrap();
    handle.set_interest(Interest::READ).unwrap();
    assert_eq!(world.work(), 0);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    // It is still there, and output goes out.
    handle.close().unwrap();
    far.wait_closed();
}
on_every_set!(an_end_that_is_ignored_is_told_once);

/// The end comes while the handler runs, after its set told of data: a set that is silent while a
/// handle is busy has never said that the peer hung up. The handler reads the end all the same,
/// ignores it, and is not called for ever: at the latest when the set is looked at again, after 64
/// dispatches, it is known.
fn an_end_that_comes_during_the_call_is_told_once(set: Set) {
    let world = World::new(set);
    let (near, far) = world.pair();
    far.send(b"last");
    let (handler, end) = told(move |cx: &mut Context<'_, Near>| {
        let mut buffer = [0; 16];
        if cx.read(&mut buffer)? == 4 {
            far.finish();
            assert_eq!(cx.read(&mut buffer)?, 0);
        }
        Ok(Next::Continue)
    });
    world.pool.register(near, Interest::READ, handler).unwrap();
    let calls = world.work();
    assert!(calls <= 65, "{calls} calls");
    assert_eq!(world.work(), 0);
    assert!(end.try_recv().is_err(), "nobody has closed it");
}
on_every_set!(an_end_that_comes_during_the_call_is_told_once);

/// Each message is read by one call, a hundred times over: after each of them the handle is watched
/// again.
fn every_message_is_told(set: Set) {
    let world = World::new(set);
    let (handler, reads) = once_per_call::<16, Near>();
    let (handler, end) = told(into_ready(handler));
    let (_, far) = world.serve(Interest::READ, handler);
    for round in 0..100 {
        far.send(&[round]);
        world.work();
        assert_eq!(reads.try_iter().collect::<Vec<_>>(), [[round]]);
    }
    far.finish();
    world.work();
    assert!(matches!(end.try_recv(), Ok(Closed::Finished)));
}
on_every_set!(every_message_is_told);

/// The `ready` of a handler, as a closure.
fn into_ready<S: 'static>(
    mut handler: impl EventHandler<S>,
) -> impl FnMut(&mut Context<'_, S>) -> io::Result<Next> + Send + 'static {
    move |cx| handler.ready(cx)
}
