//! Hang-ups and errors: with input, without input, and without interest.

#![allow(
    clippy::incompatible_msrv,
    reason = "pipes of std; the tests are not built by the oldest Rust"
)]

use std::{
    io::{self, ErrorKind, PipeReader, PipeWriter, Read},
    net::TcpStream,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc,
    },
    time::Duration,
};

use crate::support::{tcp_pair, told, wait_until, LONG};
use paceline::Source;
use paceline::{Closed, Context, EventHandler, Handle, Interest, Next};
use socket2::SockRef;

use super::world::{Set, World};

/// The writer's end of a pipe is closed, and there is no input: a hang-up is all that the kernel
/// tells. The reader's handler is called, and reads the end.
fn a_pipe_without_a_writer(set: Set) {
    for before in [true, false] {
        let world = World::new(set);
        let (reader, writer) = io::pipe().unwrap();
        let mut writer = Some(writer).filter(|_| !before);
        let (handler, end) = told(|cx: &mut Context<'_, PipeReader>| {
            assert_eq!(cx.read(&mut [0; 16])?, 0);
            assert!(cx.is_hung_up());
            Ok(Next::Close)
        });
        world
            .pool
            .register(reader, Interest::READ, handler)
            .unwrap();
        if !before {
            assert_eq!(world.work(), 0, "nothing has come");
        }
        drop(writer.take());
        assert_eq!(world.work(), 1);
        assert!(matches!(end.try_recv(), Ok(Closed::Finished)));
    }
}
on_kernel_sets!(a_pipe_without_a_writer);

/// The reader's end of a full pipe is closed. The handler that waits for room learns it.
fn a_pipe_without_a_reader(set: Set) {
    let world = World::new(set);
    let (reader, writer) = io::pipe().unwrap();
    let (handler, end) = told(|cx: &mut Context<'_, PipeWriter>| loop {
        cx.write_now(&[0; 4096])?;
    });
    world
        .pool
        .register(writer, Interest::WRITE, handler)
        .unwrap();
    assert_eq!(world.work(), 1);
    assert_eq!(world.work(), 0, "it is full");
    drop(reader);
    assert_eq!(world.work(), 1);
    let why = end.try_recv();
    assert!(
        matches!(&why, Ok(Closed::Failed(error)) if error.kind() == ErrorKind::BrokenPipe),
        "{why:?}"
    );
}
on_kernel_sets!(a_pipe_without_a_reader);

/// The peer goes away while nobody is interested: nobody is called. As soon as somebody is
/// interested in input, or in room, the end is told.
fn a_hang_up_without_interest_is_kept(set: Set) {
    for interest in [Interest::READ, Interest::WRITE] {
        let world = World::new(set);
        let (tell, calls) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, _>| {
            tell.send(cx.is_hung_up()).unwrap();
            cx.read(&mut [0; 16])?;
            Ok(Next::Close)
        };
        let (handle, far) = world.serve(Interest::NONE, handler);
        far.go();
        for _ in 0..5 {
            assert_eq!(world.work(), 0, "nobody is interested");
        }
        assert_eq!(world.handled(), 0);
        handle.set_interest(interest).unwrap();
        world.work();
        assert_eq!(calls.try_iter().collect::<Vec<_>>(), [true]);
    }
}
on_every_set!(a_hang_up_without_interest_is_kept);

/// A hang-up or an error is told whether one asks for it or not; loops that had no interest in it
/// were told without end (Ice; seastar 1785). Here nobody is called and the leader goes on
/// sleeping: for both ends of a pipe, a reset connection, and one whose handler does not care. Then
/// somebody is interested, and each is told.
fn errhup_only_event_does_not_spin(set: Set) {
    let world = World::new(set);
    let leader = world.join_and_rest();
    let calls = Arc::new(AtomicUsize::new(0));
    let (reader, writer) = io::pipe().unwrap();
    let (second_reader, second_writer) = io::pipe().unwrap();
    let (near, far) = tcp_pair();
    let handles = [
        uninterested(&world, writer, &calls),
        uninterested(&world, second_reader, &calls),
        uninterested(&world, near, &calls),
    ];
    let (ignores, ignored) = tcp_pair();
    let ignorant_calls = Arc::new(AtomicUsize::new(0));
    let ignorant = ignoring_the_end(&ignorant_calls);
    world
        .pool
        .register(ignores, Interest::READ, ignorant)
        .unwrap();

    SockRef::from(&far)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop((reader, second_writer, far, ignored));
    wait_until(|| ignorant_calls.load(Ordering::SeqCst) > 0);
    let slept = leader.sleeps_so_far();
    for _ in 0..20 {
        world.rest(&leader);
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    // Each of the five may have ended one wait; if each change is told by itself, two.
    let waits = leader.sleeps_so_far() - slept;
    let most = if set == Set::completion { 11 } else { 6 };
    assert!(waits <= most, "{waits} waits have ended");
    let seen = ignorant_calls.load(Ordering::SeqCst);
    assert!(seen < 4, "{seen} calls");
    assert!(world.handled() < 4, "{:?}", world.pool.snapshot());

    let interests = [Interest::WRITE, Interest::READ, Interest::READ];
    for (handle, interest) in handles.iter().zip(interests) {
        let before = calls.load(Ordering::SeqCst);
        handle.set_interest(interest).unwrap();
        wait_until(|| calls.load(Ordering::SeqCst) == before + 1);
    }
}
on_kernel_sets!(errhup_only_event_does_not_spin);

/// The peer is gone, in both directions, and the handler reads the end and asks for more. A set
/// that must be armed would tell that hang-up whenever it is; the handler is called once for the
/// end, once more for the hang-up, and then left alone.
fn who_ignores_a_hang_up_is_left_alone(set: Set) {
    let world = World::new(set);
    let calls = Arc::new(AtomicUsize::new(0));
    let (_handle, far) = world.serve(Interest::READ, ignoring_the_end(&calls));
    far.go();
    assert!((1..=2).contains(&world.work()), "{calls:?} calls");
    for _ in 0..5 {
        assert_eq!(world.work(), 0);
    }
}
on_kernel_sets!(who_ignores_a_hang_up_is_left_alone);

/// Registers a source without interest; when it is called all the same, that is counted and its
/// end.
fn uninterested<S>(world: &World, source: S, calls: &Arc<AtomicUsize>) -> Handle
where
    S: Source,
{
    let calls = Arc::clone(calls);
    let handler = move |_: &mut Context<'_, S>| {
        calls.fetch_add(1, Ordering::SeqCst);
        Ok(Next::Close)
    };
    world
        .pool
        .register(source, Interest::NONE, handler)
        .unwrap()
}

/// Counts its calls, and asks for more whatever it read.
fn ignoring_the_end<S>(calls: &Arc<AtomicUsize>) -> impl EventHandler<S>
where
    for<'s> &'s S: Read,
{
    let calls = Arc::clone(calls);
    move |cx: &mut Context<'_, S>| {
        calls.fetch_add(1, Ordering::SeqCst);
        let _ = cx.read(&mut [0; 16]);
        Ok(Next::Continue)
    }
}

/// The peer resets its connection while the handler waits for input: the handler is called, and
/// reads the error.
fn a_reset_is_told(set: Set) {
    let world = World::with_threads(set, 2);
    let (near, far) = tcp_pair();
    let (handler, end) = told(|cx: &mut Context<'_, TcpStream>| {
        let mut all = Vec::new();
        cx.try_read(|mut source| source.read_to_end(&mut all))?;
        Ok(Next::Continue)
    });
    world.pool.register(near, Interest::READ, handler).unwrap();
    SockRef::from(&far)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(far);
    let why = end.recv_timeout(LONG).unwrap();
    assert!(
        matches!(&why, Closed::Failed(error) if error.kind() == ErrorKind::ConnectionReset),
        "{why:?}"
    );
}
on_kernel_sets!(a_reset_is_told);

/// The peer has stopped sending, which the handler has read, and then resets the connection: the
/// handler, which may be preparing an answer, is told.
fn a_reset_after_the_end_is_told(set: Set) {
    let world = World::with_threads(set, 2);
    let (near, far) = tcp_pair();
    let (calls, called) = mpsc::channel();
    let handler = move |cx: &mut Context<'_, TcpStream>| {
        let read = cx.read(&mut [0; 16]);
        let told = read.as_ref().map_err(io::Error::kind).copied();
        // After the end of the test nobody listens.
        let _ = calls.send(told);
        read.map(|_| Next::Continue)
    };
    world.pool.register(near, Interest::READ, handler).unwrap();
    far.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(called.recv_timeout(LONG), Ok(Ok(0)));
    SockRef::from(&far)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(far);
    // A read gives the end once more; a write would give the error.
    assert_eq!(called.recv_timeout(LONG), Ok(Ok(0)));
}
on_kernel_sets!(a_reset_after_the_end_is_told);
