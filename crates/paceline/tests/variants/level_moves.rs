//! Service levels: a handle goes on in another pool with all that it has, and nothing is lost on
//! the way (H1, H2, H3).

use std::{
    io::{self, Read, Write},
    net::UdpSocket,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{mpsc, Mutex},
    time::Duration,
};

use crate::support::{
    bounded,
    levels::{asks, echo, echo_there, hears, moved, next, pairs, pool, script, Told},
    tcp_pair, wait_until, LONG,
};
use paceline::{
    simulated::Simulation, ConcurrentContext, Context, Handle, Interest, Members, Move, Next,
    OutputLimit, Pool, SetKind,
};

/// A handler tells the class of its connection by the first byte, and moves; the rest is read
/// there. The new key is told, and the old one is stale.
#[test]
fn unread_input_goes_along() {
    bounded(|| {
        for (from, to) in pairs() {
            let level = to.as_level("urgent");
            let (handler, told) = script(echo_there(&level));
            let (near, far) = tcp_pair();
            (&far).write_all(&[1, 2, 3]).unwrap();
            let old = from.register(near, Interest::READ, handler).unwrap();
            hears(&far, &[1, 2, 3]);
            let new = moved(&told);
            assert_eq!(old.notify().unwrap_err().kind(), io::ErrorKind::NotFound);
            asks(&far, &[4]);
            assert_eq!(from.snapshot().moved, 1);
            new.close_and_wait().unwrap();
            assert_eq!(next(&told), Told::Closed("closed on request".to_owned()));
            assert!(told.recv().is_err(), "told once");
        }
    });
}

/// The same from outside, while nothing happens at the handle; and back.
#[test]
fn idle_handles_move_from_outside() {
    bounded(|| {
        for (from, to) in pairs() {
            let (there, back) = (to.as_level("there"), from.as_level("back"));
            let (handler, told) = script(echo);
            let (near, far) = UnixStream::pair().unwrap();
            let mut handle = from.register(near, Interest::READ, handler).unwrap();
            for (turn, level) in [&there, &back, &there].into_iter().enumerate() {
                asks(&far, &[turn as u8]);
                handle = goes_to(&handle, level);
                assert_eq!(moved(&told), handle);
            }
            asks(&far, &[9]);
            drop(far);
            assert_eq!(next(&told), Told::Closed("finished".to_owned()));
        }
    });
}

/// Moves a handle, as soon as its last call is over.
fn goes_to(handle: &Handle, level: &paceline::Level) -> Handle {
    let mut new = None;
    wait_until(|| match handle.move_to(level).unwrap() {
        Move::Moved(handle) => new.replace(handle).is_none(),
        Move::Busy => false,
    });
    new.unwrap()
}

/// What is kept of output goes along, and is sent there.
#[test]
fn kept_output_goes_along() {
    const SIZE: usize = 250 << 10;
    bounded(|| {
        for (from, to) in pairs() {
            let level = to.as_level("there");
            let (handler, told) = script(move |cx: &mut Context<'_, _>| {
                let mut byte = [0];
                if cx.read(&mut byte)? == 0 || byte == [2] {
                    return Ok(Next::Close);
                }
                cx.write_all(&vec![7; SIZE])?;
                assert!(cx.unsent() > 0);
                cx.move_to(&level)
            });
            let (near, mut far) = tcp_pair();
            socket2::SockRef::from(&near)
                .set_send_buffer_size(4096)
                .unwrap();
            from.register(near, Interest::READ, handler).unwrap();
            far.write_all(&[1]).unwrap();
            drop(moved(&told));
            let report = from.shutdown(LONG);
            assert!(report.is_clean(), "{report}");
            let mut all = vec![0; SIZE];
            far.read_exact(&mut all).unwrap();
            assert_eq!(all, vec![7; SIZE]);
            far.write_all(&[2]).unwrap();
            assert_eq!(next(&told), Told::Closed("finished".to_owned()));
        }
    });
}

/// An idle time-out goes along.
#[test]
fn idle_time_out_goes_along() {
    bounded(|| {
        for (from, to) in pairs() {
            let (handler, told) = script(echo);
            let (near, _far) = tcp_pair();
            let handle = from.register(near, Interest::READ, handler).unwrap();
            handle.set_timeout(Some(Duration::from_millis(30))).unwrap();
            let handle = match handle.move_to(&to.as_level("there")) {
                Ok(Move::Moved(handle)) => handle,
                // So slow a machine is it that the time was over.
                other => panic!("{other:?}"),
            };
            assert_eq!(moved(&told), handle);
            assert_eq!(next(&told), Told::Closed("its time was over".to_owned()));
            let timed_out = (from.snapshot().timed_out, to.snapshot().timed_out);
            assert_eq!(timed_out, (0, 1));
        }
    });
}

/// Interest, a notification, and that it is suspended: what was asked of the old key holds there.
#[test]
fn requests_go_along() {
    bounded(|| {
        for (from, to) in pairs() {
            let (tell, called) = mpsc::channel();
            let (handler, told) = script(move |cx: &mut Context<'_, UnixStream>| {
                tell.send(cx.is_notified()).unwrap();
                echo(cx)
            });
            let (near, far) = UnixStream::pair().unwrap();
            let handle = from.register(near, Interest::NONE, handler).unwrap();
            handle.suspend().unwrap();
            handle.notify().unwrap();
            (&far).write_all(&[5]).unwrap();
            let handle = goes_to(&handle, &to.as_level("there"));
            assert_eq!(moved(&told), handle);
            handle.resume().unwrap();
            assert!(called.recv_timeout(LONG).unwrap(), "it was notified");
            hears(&far, &[5]);
            (&far).write_all(&[6]).unwrap();
            handle.set_interest(Interest::READ).unwrap();
            hears(&far, &[6]);
        }
    });
}

/// A source with a buffer of its own, as TLS has: what is in there no set will ever report.
struct Buffered {
    stream: UnixStream,
    buffer: Mutex<Vec<u8>>,
}

impl AsFd for Buffered {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Read for &Buffered {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut buffer = self.buffer.lock().unwrap();
        if buffer.is_empty() {
            let mut record = [0; 64];
            let count = (&self.stream).read(&mut record)?;
            buffer.extend(&record[..count]);
        }
        let count = buffer.len().min(room.len());
        room[..count].copy_from_slice(&buffer[..count]);
        buffer.drain(..count);
        Ok(count)
    }
}

impl Write for &Buffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.stream).write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// H2: what a source has in a buffer of its own is dispatched there too (several requests in one
/// TLS record: Ice's bug).
#[test]
fn buffered_input_goes_along() {
    bounded(|| {
        for (from, to) in [
            (SetKind::Epoll, SetKind::Epoll),
            (SetKind::OneShot, SetKind::Poll),
        ] {
            let (from, to) = (pool(from), pool(to));
            let (handler, told) = script(echo_there(&to.as_level("there")));
            let (near, far) = UnixStream::pair().unwrap();
            (&far).write_all(&[1, 2, 3]).unwrap();
            let source = Buffered {
                stream: near,
                buffer: Mutex::default(),
            };
            // Edges only: a set that reports once takes a short read for the last one.
            let handle = from.register(source, Interest::READ, handler).unwrap();
            hears(&far, &[1, 2, 3]);
            drop((handle, moved(&told)));
        }
    });
}

/// What can't move is told so, and stays: nothing was lost.
#[test]
fn refusals_change_nothing() {
    bounded(|| {
        let (from, to) = (pool(SetKind::Epoll), pool(SetKind::Epoll));
        let there = to.as_level("there");
        let kind = |told: io::Result<Move>| told.unwrap_err().kind();

        let group = from.group(|cx: &mut Context<'_, UnixStream>, _: &mut Members<'_, _>| echo(cx));
        let (near, far) = UnixStream::pair().unwrap();
        let member = group.unwrap().register(near, Interest::READ).unwrap();
        assert_eq!(kind(member.move_to(&there)), io::ErrorKind::InvalidInput);
        asks(&far, &[1]);

        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let reader = |cx: &mut ConcurrentContext<'_, UdpSocket>| {
            cx.try_read(|socket| socket.recv(&mut [0; 8]))?;
            Ok(Next::Continue)
        };
        let handle = from.register_concurrent(socket, Interest::NONE, reader);
        let told = handle.unwrap().move_to(&there);
        assert_eq!(kind(told), io::ErrorKind::InvalidInput);

        let (near, far) = tcp_pair();
        let handle = from.register(near, Interest::READ, echo).unwrap();
        let here = handle.move_to(&from.as_level("here")).unwrap();
        assert_eq!(here, Move::Moved(handle.clone()));
        let _ = to.shutdown(LONG);
        assert_eq!(kind(handle.move_to(&there)), io::ErrorKind::BrokenPipe);
        drop(to);
        assert_eq!(kind(handle.move_to(&there)), io::ErrorKind::BrokenPipe);
        asks(&far, &[2]);
        // Its last call may not be over yet; as long as that lasts, the level is what is missing.
        handle.close_and_wait().unwrap();
        assert_eq!(kind(handle.move_to(&there)), io::ErrorKind::NotFound);
    });
}

/// A handle whose handler runs is not taken from it.
#[test]
fn busy_handles_stay() {
    bounded(|| {
        let (from, to) = (pool(SetKind::Epoll), pool(SetKind::Epoll));
        let there = to.as_level("there");
        let (tell, told) = mpsc::channel();
        let level = there.clone();
        let handler = move |cx: &mut Context<'_, _>| {
            tell.send(cx.handle().move_to(&level).unwrap()).unwrap();
            echo(cx)
        };
        let (near, far) = tcp_pair();
        let handle = from.register(near, Interest::READ, handler).unwrap();
        asks(&far, &[1]);
        assert_eq!(told.recv_timeout(LONG).unwrap(), Move::Busy);
        drop(goes_to(&handle, &there));
    });
}

/// A handler whose move is refused in the end is told so, and goes on where it is: with its unread
/// input.
#[test]
fn who_stays_is_told() {
    bounded(|| {
        let from = pool(SetKind::Epoll);
        // Its set refuses whatever has a real descriptor.
        let elsewhere = pool(SetKind::Simulated(Simulation::new(1)));
        let (handler, told) = script(echo_there(&elsewhere.as_level("elsewhere")));
        let (near, far) = tcp_pair();
        (&far).write_all(&[1, 2, 3]).unwrap();
        from.register(near, Interest::READ, handler).unwrap();
        hears(&far, &[1, 2, 3]);
        assert_eq!(next(&told), Told::Stayed(io::ErrorKind::InvalidInput));
        asks(&far, &[4]);
        assert_eq!(from.snapshot().moved, 0);
    });
}

/// A handler that wants to move a member of a group, or to a level that is shut down, is told at
/// once.
#[test]
fn handlers_are_refused_at_once() {
    bounded(|| {
        let (from, to) = (pool(SetKind::Epoll), pool(SetKind::Epoll));
        let (there, gone) = (to.as_level("there"), pool(SetKind::Epoll).as_level("gone"));
        let (tell, told) = mpsc::channel();
        let tell_too = tell.clone();
        let group = from.group(
            move |cx: &mut Context<'_, UnixStream>, _: &mut Members<'_, _>| {
                let _ = tell.send(cx.move_to(&there).unwrap_err().kind());
                echo(cx)
            },
        );
        let (near, far) = UnixStream::pair().unwrap();
        let _member = group.unwrap().register(near, Interest::READ).unwrap();
        asks(&far, &[1]);
        assert_eq!(told.recv_timeout(LONG), Ok(io::ErrorKind::InvalidInput));
        let shut_pool = pool(SetKind::Epoll);
        let _ = shut_pool.shutdown(LONG);
        for level in [gone, shut_pool.as_level("shut")] {
            let tell = tell_too.clone();
            let handler = move |cx: &mut Context<'_, _>| {
                let _ = tell.send(cx.move_to(&level).unwrap_err().kind());
                echo(cx)
            };
            let (near, far) = tcp_pair();
            let _handle = from.register(near, Interest::READ, handler).unwrap();
            asks(&far, &[1]);
            assert!(told.iter().any(|kind| kind == io::ErrorKind::BrokenPipe));
        }
    });
}

/// A handler that wants to go where it is stays there, and that is nothing to be told of.
#[test]
fn moves_to_the_own_pool_are_none() {
    bounded(|| {
        for (own, _) in pairs() {
            let (handler, told) = script(echo_there(&own.as_level("here")));
            let (near, far) = tcp_pair();
            let handle = own.register(near, Interest::READ, handler).unwrap();
            asks(&far, &[1, 2, 3]);
            handle.close_and_wait().unwrap();
            assert_eq!(next(&told), Told::Closed("closed on request".to_owned()));
            assert_eq!(own.snapshot().moved, 0);
        }
    });
}

/// How much output is kept is a matter of the pool that keeps it.
#[test]
fn output_limits_do_not_go_along() {
    const THERE: usize = 100 << 10;
    bounded(|| {
        let from = pool(SetKind::Epoll);
        let to = Pool::builder().threads(1).output_limit(THERE);
        let to = to.build().unwrap();
        let (tell, limits) = mpsc::channel();
        let (handler, told) = script(move |cx: &mut Context<'_, UnixStream>| {
            let refused = cx.write_all(&vec![7; 10 << 20]).unwrap_err();
            let limit = refused.get_ref().and_then(|it| it.downcast_ref());
            let limit: &OutputLimit = limit.expect("it says what the limit is");
            tell.send(limit.limit).unwrap();
            echo(cx)
        });
        let (near, far) = UnixStream::pair().unwrap();
        let handle = from.register(near, Interest::READ, handler).unwrap();
        asks(&far, &[1]);
        assert_ne!(limits.recv_timeout(LONG), Ok(THERE));
        drop(goes_to(&handle, &to.as_level("there")));
        drop(moved(&told));
        asks(&far, &[2]);
        assert!(limits.iter().any(|limit| limit == THERE));
    });
}

/// Who has asked for the end of a handle gets it: a move does not take it away.
#[test]
fn the_end_comes_first() {
    bounded(|| {
        let (from, to) = (pool(SetKind::Epoll), pool(SetKind::Epoll));
        let level = to.as_level("there");
        let (handler, told) = script(move |cx: &mut Context<'_, UnixStream>| {
            cx.handle().close().unwrap();
            cx.move_to(&level)
        });
        let (near, far) = UnixStream::pair().unwrap();
        from.register(near, Interest::READ, handler).unwrap();
        (&far).write_all(&[1]).unwrap();
        assert_eq!(next(&told), Told::Stayed(io::ErrorKind::NotFound));
        assert_eq!(next(&told), Told::Closed("closed on request".to_owned()));
        assert_eq!((from.snapshot().moved, to.snapshot().moved), (0, 0));
        let report = to.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
    });
}

/// A handler that panics when it is told is told about, and the handle goes on.
#[test]
fn a_panic_on_the_way_is_told() {
    struct Panics;
    impl paceline::EventHandler<UnixStream> for Panics {
        fn ready(&mut self, cx: &mut Context<'_, UnixStream>) -> io::Result<Next> {
            echo(cx)
        }
        fn moved(&mut self, _: &Handle) {
            panic!("on the way");
        }
    }
    bounded(|| {
        let (from, to) = (pool(SetKind::Epoll), pool(SetKind::Epoll));
        let (near, far) = UnixStream::pair().unwrap();
        let handle = from.register(near, Interest::READ, Panics).unwrap();
        drop(goes_to(&handle, &to.as_level("there")));
        asks(&far, &[1]);
        assert_eq!((from.snapshot().panics, to.snapshot().panics), (0, 1));
    });
}

/// A time-out that a handler gave its handle when it was told of the move was overwritten by the
/// one that had come along.
#[test]
fn a_time_that_is_given_on_the_way_holds() {
    struct Hurries;
    impl paceline::EventHandler<UnixStream> for Hurries {
        fn ready(&mut self, cx: &mut Context<'_, UnixStream>) -> io::Result<Next> {
            echo(cx)
        }
        fn moved(&mut self, handle: &Handle) {
            handle.set_timeout(Some(Duration::from_millis(10))).unwrap();
        }
    }
    bounded(|| {
        let (from, to) = (pool(SetKind::Epoll), pool(SetKind::Epoll));
        let (near, far) = UnixStream::pair().unwrap();
        let handle = from.register(near, Interest::READ, Hurries).unwrap();
        handle.set_timeout(Some(Duration::from_secs(3600))).unwrap();
        drop(goes_to(&handle, &to.as_level("there")));
        assert_eq!((&far).read(&mut [0]).unwrap(), 0, "it is closed soon");
        wait_until(|| to.snapshot().timed_out == 1);
    });
}

/// S2: the pool that a handle has left ends without it; the one that it is in lists it.
#[test]
fn who_has_moved_is_not_waited_for() {
    bounded(|| {
        let (from, to) = (pool(SetKind::Epoll), pool(SetKind::Epoll));
        let (handler, told) = script(|cx: &mut Context<'_, _>| {
            cx.write_all(&vec![7; 250 << 10])?;
            Ok(Next::Continue)
        });
        let (near, _far) = tcp_pair();
        socket2::SockRef::from(&near)
            .set_send_buffer_size(4096)
            .unwrap();
        let handle = from.register(near, Interest::NONE, handler).unwrap();
        handle.notify().unwrap();
        let handle = goes_to(&handle, &to.as_level("there"));
        assert_eq!(moved(&told), handle);
        let report = from.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        let report = to.shutdown(Duration::from_millis(50));
        assert_eq!(report.unfinished.len(), 1, "{report}");
        assert_eq!(report.unfinished[0].handle, handle.id());
        assert_eq!(
            next(&told),
            Told::Closed("the pool was shut down".to_owned())
        );
    });
}

/// A work for afterwards is done when the handle is in its new level.
#[test]
fn afterwards_is_after_the_move() {
    bounded(|| {
        let (from, to) = (pool(SetKind::Epoll), pool(SetKind::Epoll));
        let level = to.as_level("there");
        let (tell, done) = mpsc::channel();
        let (handler, told) = script(move |cx: &mut Context<'_, UnixStream>| {
            cx.read(&mut [0])?;
            let (tell, old) = (tell.clone(), cx.handle());
            cx.after_release(move |_| tell.send(old.notify().is_err()).unwrap());
            cx.move_to(&level)
        });
        let (near, far) = UnixStream::pair().unwrap();
        let _old = from.register(near, Interest::READ, handler).unwrap();
        (&far).write_all(&[1]).unwrap();
        assert!(done.recv_timeout(LONG).unwrap(), "the old key is stale");
        drop(moved(&told));
    });
}

/// Connections of a simulated world move between the pools in it, with its faults.
#[test]
fn simulated_streams_move() {
    bounded(|| {
        for world in [Simulation::new(3), Simulation::one_shot(4)] {
            world.set_faults(paceline::simulated::Faults::ALL);
            let worlds = [world.clone(), world.beside()];
            let pools = worlds.map(|world| pool(SetKind::Simulated(world)));
            let levels: Vec<_> = pools.iter().map(|pool| pool.as_level("level")).collect();
            let (stream, peer) = world.stream();
            let mut calls = 0;
            let handler = move |cx: &mut Context<'_, _>| {
                calls += 1;
                let _ = echo(cx)?;
                cx.move_to(&levels[calls % 2])
            };
            pools[0].register(stream, Interest::READ, handler).unwrap();
            let sent: Vec<u8> = (0..200).collect();
            let mut back = Vec::new();
            for bytes in sent.chunks(10) {
                peer.send(bytes);
                back.extend(peer.wait_for(bytes.len()));
            }
            assert_eq!(back, sent);
            let moved: u64 = pools.iter().map(|pool| pool.snapshot().moved).sum();
            assert!(moved > 100, "{moved}");
            assert!(world.faults_injected() > 0);
        }
    });
}

/// A pool of a world has its own set.
#[test]
fn each_pool_of_a_world_has_a_set() {
    let world = Simulation::new(1);
    let _first = pool(SetKind::Simulated(world.clone()));
    let second = Pool::builder().handle_set(SetKind::Simulated(world.clone()));
    assert!(second.build().is_err());
    let _second = pool(SetKind::Simulated(world.beside()));
}
