//! H2 for output: what `write_all` took is sent, in order and to the last byte, and nobody else
//! waits for it.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc,
    },
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{serve_all, Scene},
    tcp_pair, told, wait_until, LONG,
};
use paceline::{simulated::SimStream, Closed, Context, EventHandler, Interest, Next, OutputLimit};
use paceline::{Descriptor, Source};
use paceline::{Pool, SetKind};
use socket2::SockRef;

/// How much a simulated stream takes before its peer reads.
const ROOM: usize = 64;

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

/// A connection with little room, and a pool that keeps up to `limit` bytes for it.
fn narrow(limit: usize) -> (Pool, TcpStream, TcpStream) {
    let pool = Pool::builder()
        .threads(1)
        .output_limit(limit)
        .build()
        .unwrap();
    let (near, far) = tcp_pair();
    SockRef::from(&near).set_send_buffer_size(32 << 10).unwrap();
    SockRef::from(&far).set_recv_buffer_size(64 << 10).unwrap();
    (pool, near, far)
}

/// A handler that answers each byte with `count` bytes, and the receiver of how many were kept
/// then. Who reads nothing before that leaves no room for a large answer.
fn answer_with(count: usize) -> (impl EventHandler<TcpStream>, mpsc::Receiver<usize>) {
    let (keeps, kept) = mpsc::channel();
    let handler = move |cx: &mut Context<'_, TcpStream>| {
        if cx.read(&mut [0])? == 0 {
            return Ok(Next::Close);
        }
        cx.write_all(&bytes(count))?;
        keeps.send(cx.unsent()).unwrap();
        Ok(Next::Continue)
    };
    (handler, kept)
}

/// Waits until output is kept.
fn wait_for_kept(kept: &mpsc::Receiver<usize>) {
    assert!(kept.recv_timeout(LONG).unwrap() > 0, "the socket took all");
}

const MUCH: usize = 1 << 20;

/// Much more than the socket takes: the reader gets all of it, though it takes its time.
#[test]
fn a_slow_reader_gets_everything() {
    bounded(|| {
        let (pool, near, mut far) = narrow(MUCH);
        let (handler, kept) = answer_with(MUCH);
        pool.register(near, Interest::READ, handler).unwrap();
        far.write_all(b"xx").unwrap();
        wait_for_kept(&kept);
        let mut all = vec![0; MUCH];
        for _ in 0..2 {
            for part in all.chunks_mut(5000) {
                far.read_exact(part).unwrap();
            }
            assert_eq!(all, bytes(MUCH));
        }
    });
}

/// Ice did its input and output between two waits, so one slow peer held up everybody (Ice, read).
/// With one thread only, and a peer that takes nothing, everybody else is served.
#[test]
fn slow_reader_does_not_stop_waiting() {
    bounded(|| {
        let (pool, near, mut far) = narrow(MUCH);
        let (handler, kept) = answer_with(MUCH);
        pool.register(near, Interest::READ, handler).unwrap();
        far.write_all(b"x").unwrap();
        wait_for_kept(&kept);
        let (other, mut other_far) = tcp_pair();
        let (handler, _kept) = answer_with(10);
        pool.register(other, Interest::READ, handler).unwrap();
        for _ in 0..100 {
            other_far.write_all(b"x").unwrap();
            let mut answer = [0; 10];
            other_far.read_exact(&mut answer).unwrap();
            assert_eq!(answer[..], bytes(10));
        }
        let mut all = vec![0; MUCH];
        far.read_exact(&mut all).unwrap();
        assert_eq!(all, bytes(MUCH));
    });
}

/// Beyond the limit `write_all` fails with [`OutputLimit`], which says the numbers, and nothing of
/// it was taken: the peer gets what was accepted and not one byte more. It is never "would block".
#[test]
fn write_all_beyond_the_limit_takes_nothing() {
    bounded(|| {
        let world = paceline::simulated::Simulation::new(1);
        let pool = Pool::builder()
            .threads(0)
            .handle_set(SetKind::Simulated(world.clone()))
            .output_limit(200)
            .build()
            .unwrap();
        let (stream, peer) = world.stream();
        let (errors, all_errors) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, SimStream>| {
            while cx.read(&mut [0; 16]).is_ok() {}
            errors.send(cx.write_all(&[9; 201])).unwrap();
            cx.write_all(&bytes(200)).unwrap();
            assert_eq!(cx.unsent(), 200 - ROOM);
            errors.send(cx.write_all(&[9; ROOM + 1])).unwrap();
            cx.write_all(&[7; ROOM]).unwrap();
            assert_eq!(cx.unsent(), 200);
            errors.send(cx.write_all(&[9])).unwrap();
            let no_room = cx.write_now(&[9]).unwrap_err();
            assert_eq!(no_room.kind(), ErrorKind::WouldBlock, "kept output first");
            Ok(Next::Continue)
        };
        pool.register(stream, Interest::READ, handler).unwrap();
        peer.send(b"x");
        let (mut all, mut turns) = (Vec::new(), 0);
        while all.len() < 200 + ROOM {
            serve_all(&pool);
            all.extend(peer.received());
            turns += 1;
            assert!(turns < 100, "only {} bytes came", all.len());
        }
        serve_all(&pool);
        assert!(peer.received().is_empty());
        assert_eq!(all[..200], bytes(200));
        assert_eq!(all[200..], [7; ROOM]);
        let limits: Vec<_> = all_errors.try_iter().map(limit_of).collect();
        let limit = |kept, attempted| OutputLimit {
            limit: 200,
            kept,
            attempted,
        };
        assert_eq!(
            limits,
            [limit(0, 201), limit(200 - ROOM, ROOM + 1), limit(200, 1)]
        );
    });
}

/// What an error says about the limit.
fn limit_of(told: io::Result<()>) -> OutputLimit {
    let error = told.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
    assert!(error.to_string().contains("limit is 200"), "{error}");
    let inner = error.get_ref().unwrap();
    *inner.downcast_ref::<OutputLimit>().unwrap()
}

/// [`Next::Close`] with output kept: it is sent first, then comes the end.
#[test]
fn close_sends_kept_output_first() {
    bounded(|| {
        let (pool, near, mut far) = narrow(MUCH);
        let (mut answer, kept) = answer_with(MUCH);
        let (handler, end) =
            told(move |cx: &mut Context<'_, TcpStream>| answer.ready(cx).map(|_| Next::Close));
        pool.register(near, Interest::READ, handler).unwrap();
        far.write_all(b"x").unwrap();
        wait_for_kept(&kept);
        assert!(end.try_recv().is_err(), "it waits for its reader");
        let mut all = Vec::new();
        far.read_to_end(&mut all).unwrap();
        assert_eq!(all, bytes(MUCH));
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Finished)));
    });
}

/// There is room again while output is kept: what is written now still comes after it.
#[test]
fn new_output_waits_behind_kept_output() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (stream, peer) = scene.world.stream();
        let peer = Arc::new(peer);
        let (taken, all_taken) = mpsc::channel();
        let reader = Arc::clone(&peer);
        let handler = move |cx: &mut Context<'_, SimStream>| {
            while cx.read(&mut [0; 16]).is_ok() {}
            cx.write_all(&bytes(2 * ROOM))?;
            taken.send(reader.received()).unwrap();
            cx.write_all(b"new")?;
            Ok(Next::Continue)
        };
        scene
            .pool
            .register(stream, Interest::READ, handler)
            .unwrap();
        peer.send(b"x");
        serve_all(&scene.pool);
        let mut all = all_taken.try_recv().unwrap();
        while all.len() < 2 * ROOM + 3 {
            let before = all.len();
            all.extend(peer.received());
            assert!(all.len() > before, "only {before} bytes came");
            serve_all(&scene.pool);
        }
        assert_eq!(all[..2 * ROOM], bytes(2 * ROOM));
        assert_eq!(all[2 * ROOM..], *b"new");
    });
}

/// A handler that has said [`Next::Close`] is not called again, whatever comes while its output is
/// sent.
#[test]
fn a_finished_handler_is_not_called_again() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (stream, peer) = scene.world.stream();
        let calls = Arc::new(AtomicUsize::new(0));
        let of_handler = Arc::clone(&calls);
        let (handler, end) = told(move |cx: &mut Context<'_, SimStream>| {
            of_handler.fetch_add(1, Ordering::SeqCst);
            cx.read_while_sending(true);
            cx.write_all(&[7; 2 * ROOM])?;
            Ok(Next::Close)
        });
        scene
            .pool
            .register(stream, Interest::READ, handler)
            .unwrap();
        let mut taken = 0;
        while taken < 2 * ROOM {
            peer.send(b"more");
            serve_all(&scene.pool);
            taken += peer.received().len();
        }
        serve_all(&scene.pool);
        assert!(matches!(end.try_recv(), Ok(Closed::Finished)));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    });
}

/// While output is kept no input is dispatched, so a peer that does not read can't make us keep
/// more and more; a handler may ask for it nevertheless.
#[test]
fn input_waits_while_output_is_kept() {
    bounded(|| {
        for meanwhile in [false, true] {
            let scene = Scene::unobserved();
            let (stream, peer) = scene.world.stream();
            let (reads, all_reads) = mpsc::channel();
            let handler = move |cx: &mut Context<'_, SimStream>| {
                cx.read_while_sending(meanwhile);
                let mut buffer = [0; 16];
                let count = cx.read(&mut buffer)?;
                reads.send(buffer[..count].to_vec()).unwrap();
                if buffer[..count] == *b"much" {
                    cx.write_all(&[7; 2 * ROOM])?;
                }
                Ok(Next::Continue)
            };
            scene
                .pool
                .register(stream, Interest::READ, handler)
                .unwrap();
            peer.send(b"much");
            serve_all(&scene.pool);
            assert_eq!(all_reads.try_recv().unwrap(), b"much");
            peer.send(b"more");
            serve_all(&scene.pool);
            let read = all_reads.try_recv();
            assert_eq!(read.is_ok(), meanwhile, "{read:?}");
            // The reader takes all of it, and the input that waited has its turn.
            let mut taken = peer.received().len();
            while taken < 2 * ROOM {
                serve_all(&scene.pool);
                taken += peer.received().len();
            }
            serve_all(&scene.pool);
            let read = read.or_else(|_| all_reads.try_recv());
            assert_eq!(read.unwrap(), b"more");
            assert!(all_reads.try_recv().is_err(), "each is read once");
        }
    });
}

/// The peer stops sending but still reads: everything kept is sent, then its end is seen.
#[test]
fn a_half_closed_reader_gets_everything() {
    bounded(|| {
        let (pool, near, mut far) = narrow(MUCH);
        let (mut answer, kept) = answer_with(MUCH);
        let (handler, end) = told(move |cx: &mut Context<'_, TcpStream>| answer.ready(cx));
        pool.register(near, Interest::READ, handler).unwrap();
        far.write_all(b"x").unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        wait_for_kept(&kept);
        let mut all = Vec::new();
        far.read_to_end(&mut all).unwrap();
        assert_eq!(all, bytes(MUCH));
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Finished)));
    });
}

/// The reader goes away with output kept: the handler is told the error, and the memory goes.
#[test]
fn a_reader_that_resets_ends_the_handle() {
    bounded(|| {
        for finishing in [false, true] {
            let (pool, near, mut far) = narrow(MUCH);
            let (mut answer, kept) = answer_with(MUCH);
            let (handler, end) = told(move |cx: &mut Context<'_, TcpStream>| {
                answer
                    .ready(cx)
                    .map(|next| if finishing { Next::Close } else { next })
            });
            pool.register(near, Interest::READ, handler).unwrap();
            far.write_all(b"x").unwrap();
            wait_for_kept(&kept);
            SockRef::from(&far)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
            drop(far);
            let why = end.recv_timeout(LONG).unwrap();
            assert!(matches!(why, Closed::Failed(_)), "{why:?}");
            assert!(end.recv_timeout(LONG).is_err(), "told once");
        }
    });
}

/// Interest is switched off while output is kept: it is sent all the same.
#[test]
fn kept_output_needs_no_interest() {
    bounded(|| {
        let (pool, near, mut far) = narrow(MUCH);
        let (handler, kept) = answer_with(MUCH);
        let handle = pool.register(near, Interest::READ, handler).unwrap();
        far.write_all(b"xy").unwrap();
        wait_for_kept(&kept);
        handle.set_interest(Interest::NONE).unwrap();
        let mut all = vec![0; MUCH];
        far.read_exact(&mut all).unwrap();
        assert_eq!(all, bytes(MUCH));
        let before = pool.snapshot().promotions;
        handle.set_interest(Interest::READ).unwrap();
        far.read_exact(&mut all).unwrap();
        assert_eq!(all, bytes(MUCH));
        wait_until(|| pool.snapshot().promotions > before);
    });
}

/// Output that is kept waits for room, and for nothing else: a handler that found its source full
/// is visited no more until the peer has read, and then once.
#[test]
fn no_visit_before_there_is_room() {
    bounded(|| {
        let scene = Scene::unobserved();
        let peer = scene.serve(|cx: &mut Context<'_, SimStream>| {
            cx.read(&mut [0; 8])?;
            cx.write_all(&bytes(2 * ROOM))?;
            cx.read(&mut [0; 8])?;
            Ok(Next::Continue)
        });
        peer.send(b"x");
        assert_eq!(serve_all(&scene.pool), 1);
        assert_eq!(peer.received(), bytes(2 * ROOM)[..ROOM]);
        assert_eq!(serve_all(&scene.pool), 1);
        assert_eq!(peer.received(), bytes(2 * ROOM)[ROOM..]);
        assert_eq!(serve_all(&scene.pool), 0);
    });
}

/// `write!` sends its text whole: what there is no room for is kept like any other output.
#[test]
fn formatted_text_is_sent_whole() {
    bounded(|| {
        let scene = Scene::unobserved();
        let peer = scene.serve(|cx: &mut Context<'_, SimStream>| {
            cx.read(&mut [0; 8])?;
            write!(cx, "{:>width$}", "x", width = ROOM + 6)?;
            assert_eq!(cx.unsent(), 6);
            Ok(Next::Continue)
        });
        peer.send(b"x");
        serve_all(&scene.pool);
        let mut all = peer.received();
        serve_all(&scene.pool);
        all.extend(peer.received());
        assert_eq!(
            all,
            format!("{:>width$}", "x", width = ROOM + 6).into_bytes()
        );
    });
}

/// An operation that would block may be tried once more; one that fails in another way has failed,
/// and is not.
#[test]
fn failed_operation_is_not_repeated() {
    bounded(|| {
        let scene = Scene::unobserved();
        let tries = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&tries);
        let peer = scene.serve(move |cx: &mut Context<'_, SimStream>| {
            cx.try_write(|_| {
                count.fetch_add(1, Ordering::Relaxed);
                Err::<(), _>(ErrorKind::BrokenPipe.into())
            })?;
            Ok(Next::Continue)
        });
        peer.send(b"x");
        assert_eq!(serve_all(&scene.pool), 1);
        assert_eq!(tries.load(Ordering::Relaxed), 1);
    });
}

/// R1: a source that tells of more bytes than it was given is not believed. Its handle fails, with
/// a reason.
#[test]
fn a_boasting_source_fails() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (stream, peer) = scene.world.stream();
        let (handler, end) = told(|cx: &mut Context<'_, Boasting>| {
            cx.write_all(b"much")?;
            Ok(Next::Continue)
        });
        let pool = &scene.pool;
        pool.register(Boasting(stream), Interest::READ, handler)
            .unwrap();
        peer.send(b"x");
        serve_all(pool);
        let why = end.try_recv().unwrap();
        assert!(
            matches!(&why, Closed::Failed(error) if error.kind() == ErrorKind::InvalidData),
            "{why}"
        );
    });
}

struct Boasting(SimStream);

impl Source for Boasting {
    fn descriptor(&self) -> Descriptor<'_> {
        self.0.descriptor()
    }
}

impl Write for &Boasting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len() + 1)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A context shows, among other things, how much is kept.
#[test]
fn a_context_shows_what_is_kept() {
    let (scene, (tell, told)) = (Scene::unobserved(), mpsc::channel());
    let peer = scene.serve(move |cx: &mut Context<'_, SimStream>| {
        cx.write_all(&bytes(ROOM + 7))?;
        tell.send(format!("{cx:?}")).unwrap();
        Ok(Next::Close)
    });
    peer.send(b"x");
    serve_all(&scene.pool);
    let text = told.try_recv().unwrap();
    assert!(text.contains("unsent: 7"), "{text}");
}
