//! Room for output, and output that waits for it.

use std::{
    io::{self, ErrorKind},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc,
    },
};

use crate::support::{told, wait_until};
use paceline::{Closed, Context, EventHandler, Interest, Next};
use socket2::SockRef;

use super::world::{bytes, Near, Set, World};

/// Counts its calls, and writes until there is no more room; reads nothing.
fn filling(calls: &Arc<AtomicUsize>) -> impl EventHandler<Near> {
    let calls = Arc::clone(calls);
    move |cx: &mut Context<'_, Near>| {
        calls.fetch_add(1, Ordering::SeqCst);
        loop {
            cx.write_now(&[b'o'; 4096])?;
        }
    }
}

/// A handler that waits for room is called when there is some, is left alone while there is none,
/// and is called again after the peer has read.
fn room_for_output(set: Set) {
    let world = World::new(set);
    let calls = Arc::new(AtomicUsize::new(0));
    let (_, far) = world.serve(Interest::WRITE, filling(&calls));
    for round in 1..=5 {
        assert_eq!(world.work(), 1, "there is room");
        assert_eq!(world.work(), 0, "it is full");
        assert_eq!(calls.load(Ordering::SeqCst), round);
        assert!(!far.received().is_empty());
    }
}
on_every_set!(room_for_output);

/// Handles waited for both directions in one step, and the removal of one disarmed the other too
/// (ACE 23 on its tracker, kaappi 1462). Whichever is removed, the other one still counts.
fn remove_one_interest_keeps_other_armed(set: Set) {
    let both = Interest::READ | Interest::WRITE;
    for (left, other_way) in [(Interest::READ, false), (Interest::WRITE, true)] {
        let world = World::new(set);
        let calls = Arc::new(AtomicUsize::new(0));
        let (handle, far) = world.serve(both, filling_and_reading(&calls));
        world.work();
        let before = calls.load(Ordering::SeqCst);
        assert_eq!(world.work(), 0, "there is neither room nor input");
        handle.set_interest(left).unwrap();
        assert_eq!(world.work(), 0, "nothing has come");
        // What nobody waits for any more.
        if other_way {
            far.send(b"input")
        } else {
            assert!(!far.received().is_empty())
        }
        world.work();
        assert_eq!(calls.load(Ordering::SeqCst), before, "nobody asked for it");
        // What is still waited for.
        if other_way {
            assert!(!far.received().is_empty())
        } else {
            far.send(b"input")
        }
        world.work();
        assert!(calls.load(Ordering::SeqCst) > before, "{left:?} is lost");
        // And what was not asked for is there when it is again.
        let before = calls.load(Ordering::SeqCst);
        far.received();
        far.send(b"more");
        handle.set_interest(both).unwrap();
        world.work();
        assert!(calls.load(Ordering::SeqCst) > before, "{both:?} is lost");
    }
}
on_every_set!(remove_one_interest_keeps_other_armed);

/// The same the other way round: who has one direction armed and asks for the other must not lose
/// the first.
fn add_one_interest_keeps_other_armed(set: Set) {
    for first in [Interest::READ, Interest::WRITE] {
        let world = World::new(set);
        let calls = Arc::new(AtomicUsize::new(0));
        let (handle, far) = world.serve(Interest::WRITE, filling_and_reading(&calls));
        assert_eq!(world.work(), 1, "there is room");
        handle.set_interest(first).unwrap();
        world.work();
        handle
            .set_interest(Interest::READ | Interest::WRITE)
            .unwrap();
        world.work();
        assert_eq!(
            calls.load(Ordering::SeqCst),
            1,
            "there is neither room nor input"
        );
        if first == Interest::READ {
            far.send(b"input")
        } else {
            assert!(!far.received().is_empty())
        }
        world.work();
        assert_eq!(calls.load(Ordering::SeqCst), 2, "{first:?} is lost");
    }
}
on_every_set!(add_one_interest_keeps_other_armed);

/// Counts its calls, reads everything, and writes until there is no more room.
fn filling_and_reading(calls: &Arc<AtomicUsize>) -> impl EventHandler<Near> {
    let calls = Arc::clone(calls);
    move |cx: &mut Context<'_, Near>| {
        calls.fetch_add(1, Ordering::SeqCst);
        refused(|| cx.read(&mut [0; 64]))?;
        refused(|| cx.write_now(&[b'o'; 4096]))?;
        Ok(Next::Continue)
    }
}

/// Repeats an operation until it would block.
fn refused(mut operation: impl FnMut() -> io::Result<usize>) -> io::Result<()> {
    loop {
        match operation() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
}

/// A handler answers with more than its peer takes, and says that this was all. What is left is
/// kept, whatever the handle waits for, and is sent when the peer reads, however late; then the
/// handle closes.
fn kept_output_is_sent_when_the_peer_reads_late(set: Set) {
    const ANSWER: usize = 200_000;
    let world = World::new(set);
    let (near, far) = world.pair();
    if let Some(socket) = near.socket() {
        SockRef::from(socket).set_send_buffer_size(4096).unwrap();
    }
    let (handler, end) = told(|cx: &mut Context<'_, Near>| {
        cx.read(&mut [0; 16])?;
        cx.handle().set_interest(Interest::NONE)?;
        cx.write_all(&bytes(ANSWER))?;
        assert!(cx.unsent() > 0);
        Ok(Next::Close)
    });
    world.pool.register(near, Interest::READ, handler).unwrap();
    far.send(b"x");
    world.work();
    assert_eq!(world.work(), 0, "the peer does not read");
    assert!(end.try_recv().is_err(), "output is kept");
    let mut answer = Vec::new();
    wait_until(|| {
        answer.extend(far.received());
        world.work();
        answer.len() >= ANSWER
    });
    assert!(answer == bytes(ANSWER), "something else came");
    assert!(matches!(end.try_recv(), Ok(Closed::Finished)));
    far.wait_closed();
}
on_every_set!(kept_output_is_sent_when_the_peer_reads_late);

/// A handler is told what is ready, and nothing that is not: no input where none has come, no room
/// where it found none, and no hang-up while its peer is there.
fn a_handler_knows_what_is_ready(set: Set) {
    let world = World::new(set);
    let (tell, told) = mpsc::channel();
    let handler = move |cx: &mut Context<'_, Near>| {
        assert!(!cx.is_hung_up());
        tell.send((cx.is_readable(), cx.is_writable())).unwrap();
        while cx.read(&mut [0; 8]).is_ok_and(|count| count > 0) {}
        loop {
            cx.write_now(&[0; 4096])?;
        }
    };
    let (handle, far) = world.serve(Interest::READ, handler);
    let calls = || {
        world.work();
        told.try_iter().collect::<Vec<_>>()
    };
    handle.notify().unwrap();
    assert!(matches!(calls()[..], [(false, _)]), "nothing has come");
    handle.notify().unwrap();
    assert_eq!(calls(), [(false, false)], "it has filled it");
    far.send(b"x");
    assert_eq!(calls(), [(true, false)]);
    while !far.received().is_empty() {}
    handle.set_interest(Interest::WRITE).unwrap();
    assert_eq!(calls(), [(false, true)]);
}
on_every_set!(a_handler_knows_what_is_ready);
