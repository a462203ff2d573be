//! What a shutdown says that left something undone: one line, plain and complete.

use std::{
    io::{self, Write},
    net::TcpStream,
    time::Duration,
};

use crate::support::{
    self,
    by_hand::{serve_all, Scene},
};
use paceline::{simulated::SimStream, Context, Interest, Members, Next, Pool, TaskContext};

const HOUR: Duration = Duration::from_secs(3600);

/// A connection whose answer to one byte is larger than its peer takes at once: 36 bytes of it are
/// kept.
fn answers_much(cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
    cx.read(&mut [0])?;
    cx.write_all(&[b'a'; 100])?;
    Ok(Next::Continue)
}

/// The report counted timers that were dropped, and printed nothing of them; and of a client that
/// was never answered it said as much as of an idle one. Now the line says both.
#[test]
fn everything_left_is_said() {
    let scene = Scene::unobserved();
    let (kept, idle, asking) = (
        scene.serve(answers_much),
        scene.serve(answers_much),
        scene.serve(answers_much),
    );
    kept.send(b"x");
    serve_all(&scene.pool);
    // No thread serves the pool from here on.
    asking.send(b"never answered");
    let due = scene.pool.after(Duration::ZERO, |_| ()).unwrap();
    scene.pool.after(HOUR, |_| ()).unwrap();
    scene.pool.after(HOUR, |_| ()).unwrap();
    scene.pool.post(|_| ()).unwrap();
    let items = |(), _: &mut TaskContext<'_>| ();
    let queue = scene.pool.sources().queue(4, items).unwrap();
    for _ in 0..3 {
        assert!(queue.send(()).is_ok());
    }
    let report = scene.pool.shutdown(Duration::ZERO);
    let handles: Vec<_> = report.unfinished.iter().collect();
    assert_eq!(handles.len(), 3, "{report}");
    assert_eq!(handles.iter().filter(|it| it.unsent == 36).count(), 1);
    let expected =
        "3 handles closed unfinished (1 with unhandled input, 36 bytes unsent); 1 task not done; \
                    3 items not handled; 3 timers not due";
    assert_eq!(report.to_string(), expected);
    assert!(!report.is_clean());
    drop((due, idle));
}

/// What is not due is no failure, and is said all the same.
#[test]
fn timers_that_are_not_due() {
    for (timers, expected) in [
        (0, "everything was finished"),
        (1, "everything was finished; 1 timer not due"),
        (2, "everything was finished; 2 timers not due"),
    ] {
        let scene = Scene::unobserved();
        for _ in 0..timers {
            scene.pool.after(HOUR, |_| ()).unwrap();
        }
        let report = scene.pool.shutdown(Duration::ZERO);
        assert!(report.is_clean());
        assert_eq!(report.to_string(), expected);
    }
}

/// A handle that had something for its handler, and one that had not; alone and in a group.
#[test]
fn clients_without_an_answer_are_counted() {
    let scene = Scene::unobserved();
    let (stream, _idle) = scene.world.stream();
    scene
        .pool
        .register(stream, Interest::READ, answers_much)
        .unwrap();
    // It has asked twice, and the second time while its answer was kept.
    let (stream, twice) = scene.world.stream();
    let twice_handle = scene.pool.register(stream, Interest::READ, answers_much);
    let twice_handle = twice_handle.unwrap();
    let grouped =
        |cx: &mut Context<'_, SimStream>, _: &mut Members<'_, SimStream>| answers_much(cx);
    let group = scene.pool.group(grouped).unwrap();
    let (stream, member) = scene.world.stream();
    let member_handle = group.register(stream, Interest::READ).unwrap();
    twice.send(b"xx");
    member.send(b"xx");
    serve_all(&scene.pool);
    let report = scene.pool.shutdown(Duration::ZERO);
    let unhandled: Vec<_> = report.unfinished.iter().filter(|it| it.unhandled).collect();
    assert_eq!(unhandled.len(), 2, "{report:?}");
    for handle in [twice_handle, member_handle] {
        let found = unhandled.iter().find(|it| it.handle == handle.id());
        assert_eq!(found.unwrap().unsent, 36);
    }
    let expected = "3 handles closed unfinished (2 with unhandled input, 72 bytes unsent)";
    assert_eq!(report.to_string(), expected);
}

/// The same of sockets: the pool asks them, because no leader may have heard of what has come.
#[test]
fn sockets_are_asked() {
    for set in support::kernel_sets() {
        let pool = Pool::builder().threads(0).handle_set(set);
        let pool = pool.build().unwrap();
        let (_idle, mut asking) = [(); 2]
            .map(|()| {
                let (near, far) = support::tcp_pair();
                let handler = |_: &mut Context<'_, TcpStream>| Ok(Next::Continue);
                pool.register(near, Interest::READ, handler).unwrap();
                far
            })
            .into();
        asking.write_all(b"never answered").unwrap();
        let report = pool.shutdown(Duration::ZERO);
        let expected = "2 handles closed unfinished (1 with unhandled input)";
        assert_eq!(report.to_string(), expected);
    }
}
