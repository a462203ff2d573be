//! The end of the pool.

use std::{io, sync::mpsc, thread};

use crate::support::{told, LONG};
use paceline::{Closed, Context, Interest, Next};
use socket2::SockRef;

use super::world::{bytes, held, Far, Held, Near, Set, World};

fn echo(cx: &mut Context<'_, Near>) -> io::Result<Next> {
    let mut buffer = [0; 64];
    loop {
        match cx.read(&mut buffer)? {
            0 => return Ok(Next::Close),
            count => cx.write_all(&buffer[..count])?,
        }
    }
}

/// Requests are there when the shutdown begins, and a peer that reads late has not got all of its
/// answer. All are served to the end, idle handles are closed, and the report is clean.
fn a_shutdown_drains(set: Set) {
    const ANSWER: usize = 100_000;
    let world = World::with_threads(set, 2);
    let (late, kept) = kept_output(&world, ANSWER);
    let (_, idle) = world.serve(Interest::READ, echo);
    let asking: Vec<Far> = (0..20)
        .map(|_| world.serve(Interest::READ, echo).1)
        .collect();
    asking.iter().for_each(|far| far.send(b"request"));
    let pool = world.pool.clone();
    let shutdown = thread::spawn(move || pool.shutdown(LONG));
    idle.wait_closed();
    assert!(kept.try_recv().is_err(), "its output is kept");
    let answer = late.wait_for(ANSWER);
    assert!(answer == bytes(ANSWER), "something else came");
    let report = shutdown.join().unwrap();
    assert!(report.is_clean(), "{report}");
    for far in &asking {
        assert_eq!(far.received(), b"request");
        far.wait_closed();
    }
    assert!(matches!(kept.try_recv(), Ok(Closed::Shutdown)));
}
on_every_set!(a_shutdown_drains);

/// A connection that has output kept, because its peer did not read yet; and how it ends.
fn kept_output(world: &World, count: usize) -> (Far, mpsc::Receiver<Closed>) {
    let (near, far) = world.pair();
    if let Some(socket) = near.socket() {
        SockRef::from(socket).set_send_buffer_size(4096).unwrap();
    }
    let (has_written, written) = mpsc::channel();
    let (handler, end) = told(move |cx: &mut Context<'_, Near>| {
        cx.read(&mut [0; 16])?;
        cx.write_all(&bytes(count))?;
        assert!(cx.unsent() > 0);
        has_written.send(()).unwrap();
        Ok(Next::Continue)
    });
    world.pool.register(near, Interest::READ, handler).unwrap();
    far.send(b"x");
    written.recv_timeout(LONG).unwrap();
    (far, end)
}

/// A second request comes while the handler of the first runs, and then the shutdown begins. A set
/// that is silent while a handle is busy has not told of it; it is ready all the same, so it is
/// served before the end.
fn a_shutdown_serves_what_came_while_busy(set: Set) {
    let world = World::with_threads(set, 2);
    let (handler, Held { reads, gate }) = held();
    let (handler, end) = told(handler);
    let (_, far) = world.serve(Interest::READ, handler);
    let (_, idle) = world.serve(Interest::READ, echo);
    far.send(b"1");
    assert_eq!(reads.recv_timeout(LONG).unwrap(), b"1");
    far.send(b"2");
    let pool = world.pool.clone();
    let shutdown = thread::spawn(move || pool.shutdown(LONG));
    // It is told after the busy one was.
    idle.wait_closed();
    drop(gate);
    let report = shutdown.join().unwrap();
    assert!(report.is_clean(), "{report}");
    assert!(matches!(end.try_recv(), Ok(Closed::Shutdown)));
    // A set may tell once more of what was read already.
    let reads = reads.try_iter().filter(|read| !read.is_empty());
    assert_eq!(reads.collect::<Vec<_>>(), [b"2"]);
}
on_every_set!(a_shutdown_serves_what_came_while_busy);

/// A leader that sleeps, with no handle at all or with some that rest, is woken by the end of its
/// pool.
fn a_shutdown_wakes_the_leader(set: Set) {
    for handles in [0, 3] {
        let world = World::new(set);
        let leader = world.join_and_rest();
        let fars: Vec<Far> = (0..handles)
            .map(|_| world.serve(Interest::READ, echo).1)
            .collect();
        world.rest(&leader);
        let report = world.pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        fars.iter().for_each(Far::wait_closed);
    }
}
on_every_set!(a_shutdown_wakes_the_leader);
