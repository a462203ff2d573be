//! Deadlines, and what a handler may do when a time of its handle is over. All of it on a clock
//! that stands still until the test moves it.

use std::{
    io,
    net::{TcpListener, TcpStream},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc,
    },
    time::Duration,
};

use crate::support::{
    self, bounded,
    by_hand::{self, advance, serve_all, Scene},
    LONG,
};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Closed, ConcurrentContext, Context, EventHandler, GroupHandler, Handle, Interest, Members,
    Move, Next, Overdue, Panics, Pool, SetKind,
};

const MS: Duration = Duration::from_millis(1);

/// What a handler does when a time of its handle is over.
type Answer = fn(&mut Context<'_, SimStream>, Overdue) -> io::Result<Next>;

/// Sends back what comes, and notes everything that the pool calls it for.
struct Session {
    log: mpsc::Sender<String>,
    answer: Answer,
}

impl Session {
    fn note(&self, what: impl Into<String>) {
        // At the end of the pool the test may have dropped the receiver.
        let _ = self.log.send(what.into());
    }
}

impl EventHandler<SimStream> for Session {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
        self.note("ready");
        by_hand::echo(cx)
    }

    fn overdue(&mut self, cx: &mut Context<'_, SimStream>, what: Overdue) -> io::Result<Next> {
        self.note(format!("{what:?}"));
        (self.answer)(cx, what)
    }

    fn closed(&mut self, why: Closed) {
        self.note(why.to_string());
    }
}

impl GroupHandler<SimStream> for Session {
    fn ready(
        &mut self,
        cx: &mut Context<'_, SimStream>,
        _: &mut Members<'_, SimStream>,
    ) -> io::Result<Next> {
        EventHandler::ready(self, cx)
    }

    fn overdue(
        &mut self,
        cx: &mut Context<'_, SimStream>,
        what: Overdue,
        _: &mut Members<'_, SimStream>,
    ) -> io::Result<Next> {
        EventHandler::overdue(self, cx, what)
    }

    fn closed(&mut self, _: &Handle, why: Closed, _: &mut Members<'_, SimStream>) {
        self.note(why.to_string());
    }
}

fn goes_on(_: &mut Context<'_, SimStream>, _: Overdue) -> io::Result<Next> {
    Ok(Next::Continue)
}

fn says_goodbye(cx: &mut Context<'_, SimStream>, _: Overdue) -> io::Result<Next> {
    cx.write_all(b"bye").map(|()| Next::Close)
}

/// A connection, and what its handler was called for since the last look.
struct Line {
    handle: Handle,
    peer: SimPeer,
    log: mpsc::Receiver<String>,
}

impl Line {
    fn new(scene: &Scene, answer: Answer) -> Self {
        Self::with_interest(scene, Interest::READ, answer)
    }

    fn with_interest(scene: &Scene, interest: Interest, answer: Answer) -> Self {
        let (log, told) = mpsc::channel();
        let (stream, peer) = scene.world.stream();
        let session = Session { log, answer };
        Self {
            handle: scene.pool.register(stream, interest, session).unwrap(),
            peer,
            log: told,
        }
    }

    fn calls(&self) -> Vec<String> {
        self.log.try_iter().collect()
    }
}

/// Lets time pass, and everything happen that is due then.
fn pass(scene: &Scene, span: Duration) {
    advance(scene, span);
    serve_all(&scene.pool);
}

/// A client that sent a byte now and then held its connection for 8.4 s against a limit of 2 s: the
/// only limit was the idle time-out, which every byte restarts. A deadline is put off by nothing
/// that the peer does.
#[test]
fn a_dripping_client_meets_its_deadline() {
    let scene = Scene::unobserved();
    let line = Line::new(&scene, gives_up);
    line.handle.set_timeout(Some(100 * MS)).unwrap();
    line.handle.set_deadline(Some(2000 * MS)).unwrap();
    for _ in 0..39 {
        line.peer.send(b"x");
        pass(&scene, 50 * MS);
        assert_eq!(line.calls(), ["ready"]);
    }
    line.peer.send(b"x");
    pass(&scene, 49 * MS);
    assert_eq!(line.calls(), ["ready"]);
    pass(&scene, MS);
    assert_eq!(line.calls(), ["Deadline", "its time was over"]);
    assert!(line.peer.is_closed_by_pool());
    assert_eq!(scene.pool.snapshot().timed_out, 1);
    let late = line.handle.set_deadline(None).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::NotFound);
}

/// What a handler does by default.
fn gives_up(_: &mut Context<'_, SimStream>, _: Overdue) -> io::Result<Next> {
    Err(io::ErrorKind::TimedOut.into())
}

/// A handler that does not know of times is closed by the default, for either time.
#[test]
fn by_default_a_handle_is_closed() {
    let set: [fn(&Handle) -> io::Result<()>; 2] = [
        |handle| handle.set_timeout(Some(10 * MS)),
        |handle| handle.set_deadline(Some(10 * MS)),
    ];
    for set in set {
        let scene = Scene::unobserved();
        let (handler, end) = support::told(by_hand::echo);
        let (stream, _peer) = scene.world.stream();
        let boxed: Box<dyn EventHandler<SimStream>> = Box::new(handler);
        let handle = scene.pool.register(stream, Interest::READ, boxed).unwrap();
        set(&handle).unwrap();
        pass(&scene, 9 * MS);
        assert!(end.try_recv().is_err());
        pass(&scene, MS);
        assert!(matches!(end.try_recv(), Ok(Closed::TimedOut)));
    }
}

/// When an idle connection was closed its handler could not say good-bye any more: `closed` has no
/// source. Now it is called before, writes its last word, and that is sent before the handle
/// closes.
#[test]
fn an_idle_handler_says_goodbye() {
    let scene = Scene::unobserved();
    let line = Line::new(&scene, says_goodbye);
    line.handle.set_timeout(Some(10 * MS)).unwrap();
    pass(&scene, 10 * MS);
    assert_eq!(line.calls(), ["Idle", "finished"]);
    assert_eq!(line.peer.received(), b"bye");
    assert_eq!(scene.pool.snapshot().timed_out, 0, "it has closed itself");
}

/// A handler behind a pointer hears of it too.
#[test]
fn boxed_handlers_hear_of_it() {
    let scene = Scene::unobserved();
    let (log, told) = mpsc::channel();
    let answer: Answer = says_goodbye;
    let boxed: Box<dyn EventHandler<SimStream>> = Box::new(Session { log, answer });
    let (stream, peer) = scene.world.stream();
    let handle = scene.pool.register(stream, Interest::READ, boxed).unwrap();
    handle.set_deadline(Some(MS)).unwrap();
    pass(&scene, MS);
    assert_eq!(told.try_iter().next().unwrap(), "Deadline");
    assert_eq!(peer.received(), b"bye");
}

/// An outgoing connection is no different once it stands: the time to connect in is over, and its
/// own time holds.
#[test]
fn outgoing_connections_hear_of_it() {
    struct Client(mpsc::Sender<Overdue>);
    impl EventHandler<TcpStream> for Client {
        fn ready(&mut self, _: &mut Context<'_, TcpStream>) -> io::Result<Next> {
            Ok(Next::Continue)
        }
        fn connected(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
            cx.set_deadline(Some(MS));
            Ok(Next::Continue)
        }
        fn overdue(&mut self, _: &mut Context<'_, TcpStream>, what: Overdue) -> io::Result<Next> {
            self.0.send(what).unwrap();
            Ok(Next::Close)
        }
    }
    bounded(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pool = Pool::builder().threads(1).build().unwrap();
        let (tell, told) = mpsc::channel();
        pool.connect(address, LONG, Client(tell)).unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(Overdue::Deadline));
    });
}

/// A handle that moves to another level keeps what is left of its deadline.
#[test]
fn a_deadline_goes_to_another_level() {
    let scene = Scene::unobserved();
    let set = SetKind::Simulated(scene.world.beside());
    let there = Pool::builder().threads(0).handle_set(set).build().unwrap();
    let line = Line::new(&scene, says_goodbye);
    line.handle.set_deadline(Some(10 * MS)).unwrap();
    pass(&scene, 4 * MS);
    let moved = line.handle.move_to(&there.as_level("there")).unwrap();
    assert!(matches!(moved, Move::Moved(_)));
    advance(&scene, 5 * MS);
    serve_all(&there);
    assert!(line.calls().is_empty());
    advance(&scene, MS);
    serve_all(&there);
    assert_eq!(line.calls(), ["Deadline", "finished"]);
    assert_eq!(line.peer.received(), b"bye");
}

/// A handler that goes on is idle again after the same time, and has no deadline until it sets
/// another one.
#[test]
fn a_handler_may_go_on() {
    let scene = Scene::unobserved();
    let line = Line::new(&scene, goes_on);
    line.handle.set_timeout(Some(10 * MS)).unwrap();
    for _ in 0..3 {
        pass(&scene, 9 * MS);
        assert!(line.calls().is_empty());
        pass(&scene, MS);
        assert_eq!(line.calls(), ["Idle"]);
    }
    line.handle.set_timeout(None).unwrap();
    line.handle.set_deadline(Some(10 * MS)).unwrap();
    pass(&scene, 10 * MS);
    assert_eq!(line.calls(), ["Deadline"]);
    pass(&scene, LONG);
    assert!(line.calls().is_empty());
    line.peer.send(b"x");
    serve_all(&scene.pool);
    assert_eq!(line.peer.received(), b"x");
}

/// A new deadline from the call itself holds.
#[test]
fn a_handler_may_set_another_deadline() {
    let scene = Scene::unobserved();
    let line = Line::new(&scene, |cx, _| {
        cx.set_deadline(Some(10 * MS));
        Ok(Next::Continue)
    });
    line.handle.set_deadline(Some(10 * MS)).unwrap();
    for _ in 0..3 {
        pass(&scene, 10 * MS);
        assert_eq!(line.calls(), ["Deadline"]);
    }
}

/// A peer that does not read holds its handle: while output is kept the handler is called for
/// nothing. For its deadline it is, and so it is when it is idle.
#[test]
fn kept_output_holds_up_neither() {
    for (idle, expected) in [(false, "Deadline"), (true, "Idle")] {
        let scene = Scene::unobserved();
        let line = Line::new(&scene, gives_up);
        let flood = [b'f'; 64];
        line.peer.send(&flood);
        line.peer.send(&flood);
        serve_all(&scene.pool);
        line.peer.send(b"never handled");
        line.handle.notify().unwrap();
        serve_all(&scene.pool);
        let before = line.calls().len();
        assert!(before > 0);
        if idle {
            line.handle.set_timeout(Some(10 * MS)).unwrap()
        } else {
            line.handle.set_deadline(Some(10 * MS)).unwrap()
        }
        pass(&scene, 9 * MS);
        assert!(line.calls().is_empty());
        pass(&scene, MS);
        assert_eq!(line.calls(), [expected, "its time was over"]);
    }
}

/// While output is kept a notification waits. The call for a deadline does not use it up: it comes
/// when all is sent.
#[test]
fn other_calls_are_not_lost() {
    let scene = Scene::unobserved();
    let line = Line::new(&scene, goes_on);
    line.peer.send(&[b'f'; 64]);
    line.peer.send(&[b'f'; 64]);
    serve_all(&scene.pool);
    line.handle.notify().unwrap();
    line.handle.set_deadline(Some(MS)).unwrap();
    let _ = line.calls();
    pass(&scene, MS);
    assert_eq!(line.calls(), ["Deadline"]);
    assert_eq!(line.peer.received().len(), 64);
    serve_all(&scene.pool);
    assert_eq!(line.calls(), ["ready"], "the notification");
    // And one that comes together with the deadline.
    let _ = line.peer.received();
    serve_all(&scene.pool);
    let _ = line.calls();
    line.handle.set_deadline(Some(MS)).unwrap();
    line.handle.notify().unwrap();
    pass(&scene, MS);
    assert_eq!(line.calls(), ["Deadline", "ready"]);
}

/// A handle without interest has a deadline all the same.
#[test]
fn without_interest() {
    let scene = Scene::unobserved();
    let line = Line::with_interest(&scene, Interest::NONE, gives_up);
    line.handle.set_deadline(Some(10 * MS)).unwrap();
    line.peer.send(b"nobody reads this");
    pass(&scene, 10 * MS);
    assert_eq!(line.calls(), ["Deadline", "its time was over"]);
}

/// The deadline of a suspended handle goes on; its handler is called when it is resumed, and not
/// before. One that was cleared meanwhile is forgotten.
#[test]
fn a_suspended_handler_is_called_later() {
    for (clears, expected) in [(false, ["Deadline"].as_slice()), (true, &[])] {
        let scene = Scene::unobserved();
        let line = Line::new(&scene, goes_on);
        line.handle.suspend().unwrap();
        line.handle.set_deadline(Some(10 * MS)).unwrap();
        pass(&scene, 30 * MS);
        pass(&scene, 30 * MS);
        assert!(line.calls().is_empty(), "suspended, and called");
        if clears {
            line.handle.set_deadline(None).unwrap();
        }
        line.handle.resume().unwrap();
        serve_all(&scene.pool);
        assert_eq!(line.calls(), expected);
    }
}

/// The deadline passes while the handler runs. The call comes after that, and not if the handler
/// has cleared the deadline, or set a later one.
#[test]
fn while_the_handler_runs() {
    type Change = fn(&mut Context<'_, SimStream>);
    struct Slow {
        world: Simulation,
        change: Change,
        overdue: Arc<AtomicUsize>,
    }
    impl EventHandler<SimStream> for Slow {
        fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
            self.world.clock().advance(20 * MS);
            (self.change)(cx);
            assert_eq!(self.overdue.load(Ordering::SeqCst), 0);
            by_hand::echo(cx)
        }
        fn overdue(&mut self, _: &mut Context<'_, SimStream>, what: Overdue) -> io::Result<Next> {
            assert_eq!(what, Overdue::Deadline);
            self.overdue.fetch_add(1, Ordering::SeqCst);
            Ok(Next::Continue)
        }
    }
    let changes: [(Change, usize); 3] = [
        (|_| (), 1),
        (|cx| cx.set_deadline(None), 0),
        (|cx| cx.set_deadline(Some(10 * MS)), 0),
    ];
    for (change, expected) in changes {
        let scene = Scene::unobserved();
        let overdue = Arc::new(AtomicUsize::new(0));
        let (world, counted) = (scene.world.clone(), Arc::clone(&overdue));
        let handler = Slow {
            world,
            change,
            overdue: counted,
        };
        let (stream, peer) = scene.world.stream();
        let handle = scene.pool.register(stream, Interest::READ, handler);
        handle.unwrap().set_deadline(Some(10 * MS)).unwrap();
        peer.send(b"x");
        serve_all(&scene.pool);
        serve_all(&scene.pool);
        assert_eq!(peer.received(), b"x");
        assert_eq!(overdue.load(Ordering::SeqCst), expected);
    }
}

/// A deadline for each request, set at its first byte and cleared at its end: the wheel is changed
/// once in a deadline, not twice per request, and it ends no sleep of the leader.
#[test]
fn a_deadline_per_request_leaves_the_wheel_alone() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = by_hand::asleep(&world, 1);
        let (stream, peer) = world.stream();
        let handler = |cx: &mut Context<'_, SimStream>| {
            let mut byte = [0];
            while cx.read(&mut byte)? == 1 {
                match byte[0] {
                    b'<' => cx.set_deadline(Some(1000 * MS)),
                    b'>' => cx.set_deadline(None),
                    _ => {}
                }
                cx.write_all(&byte)?;
            }
            Ok(Next::Close)
        };
        pool.register(stream, Interest::READ, handler).unwrap();
        for _ in 0..50 {
            peer.send(b"<x>");
            assert_eq!(peer.wait_for(3), b"<x>");
            world.clock().advance(MS);
        }
        peer.send(b"<");
        assert_eq!(peer.wait_for(1), b"<");
        support::wait_until(|| world.clock().asleep() == 1);
        world.clock().advance(999 * MS);
        support::wait_until(|| world.clock().asleep() == 1);
        assert!(!peer.is_closed_by_pool());
        world.clock().advance(MS);
        peer.wait_closed();
        assert_eq!(pool.snapshot().timed_out, 1);
    });
}

/// The same for a member of a group; and its deadline goes with it to another one.
#[test]
fn members_have_deadlines() {
    for moves in [false, true] {
        let scene = Scene::unobserved();
        let (log, told) = mpsc::channel();
        let session = |log| {
            let answer: Answer = says_goodbye;
            Session { log, answer }
        };
        let group = scene.pool.group(session(log.clone())).unwrap();
        let other = scene.pool.group(session(log)).unwrap();
        let (stream, peer) = scene.world.stream();
        let member = group.register(stream, Interest::READ).unwrap();
        serve_all(&scene.pool);
        member.set_deadline(Some(10 * MS)).unwrap();
        if moves {
            let _ = other.adopt(&member).unwrap();
        }
        for _ in 0..9 {
            peer.send(b"x");
            pass(&scene, MS);
        }
        assert!(told.try_iter().all(|call| call == "ready"));
        let _ = peer.received();
        pass(&scene, MS);
        assert_eq!(
            told.try_iter().collect::<Vec<_>>(),
            ["Deadline", "finished"]
        );
        assert_eq!(peer.received(), b"bye");
    }
}

/// A group's handler that does not know of times: its member is closed, and only that.
#[test]
fn members_are_closed_by_default() {
    let scene = Scene::unobserved();
    let handler =
        |cx: &mut Context<'_, SimStream>, _: &mut Members<'_, SimStream>| by_hand::echo(cx);
    let group = scene.pool.group(handler).unwrap();
    let (stream, late) = scene.world.stream();
    let member = group.register(stream, Interest::READ).unwrap();
    let (stream, early) = scene.world.stream();
    group.register(stream, Interest::READ).unwrap();
    member.set_deadline(Some(10 * MS)).unwrap();
    pass(&scene, 10 * MS);
    assert!(late.is_closed_by_pool() && !early.is_closed_by_pool());
    assert_eq!(scene.pool.snapshot().timed_out, 1);
}

/// A concurrent handle has no such call: it is closed.
#[test]
fn concurrent_handles_are_closed() {
    let scene = Scene::unobserved();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: &mut ConcurrentContext<'_, SimStream>| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(Next::Continue)
    };
    let (stream, peer) = scene.world.stream();
    let handle = scene
        .pool
        .register_concurrent(stream, Interest::READ, handler)
        .unwrap();
    handle.set_deadline(Some(10 * MS)).unwrap();
    handle.set_timeout(Some(5 * MS)).unwrap();
    pass(&scene, MS);
    handle.set_timeout(None).unwrap();
    pass(&scene, 8 * MS);
    assert!(!peer.is_closed_by_pool());
    assert_eq!(calls.load(Ordering::SeqCst), 0, "called for nothing");
    pass(&scene, MS);
    assert!(peer.is_closed_by_pool());
}

/// H3: the deadline of a registration is not the next one's in its slot.
#[test]
fn a_deadline_ends_with_its_handle() {
    let scene = Scene::unobserved();
    let first = Line::new(&scene, goes_on);
    first.handle.set_deadline(Some(10 * MS)).unwrap();
    first.handle.set_timeout(Some(10 * MS)).unwrap();
    first.handle.close().unwrap();
    let second = Line::new(&scene, goes_on);
    pass(&scene, 100 * MS);
    assert!(second.calls().is_empty());
    second.handle.set_timeout(Some(50 * MS)).unwrap();
    pass(&scene, 49 * MS);
    assert!(second.calls().is_empty());
    pass(&scene, MS);
    assert_eq!(second.calls(), ["Idle"]);
}

/// A handler that panics in the call for its deadline, and is kept, is not called for it again.
#[test]
fn a_panic_is_kept() {
    let world = Simulation::new(1);
    let pool = Pool::builder()
        .threads(0)
        .panics(Panics::Keep)
        .handle_set(SetKind::Simulated(world.clone()))
        .build()
        .unwrap();
    let scene = Scene { world, pool };
    let line = Line::new(&scene, |_, _| panic!("out of time"));
    line.handle.set_deadline(Some(10 * MS)).unwrap();
    line.peer.send(b"x");
    for _ in 0..5 {
        pass(&scene, 10 * MS);
    }
    let calls = line.calls();
    assert_eq!(calls.iter().filter(|call| *call == "Deadline").count(), 1);
    assert_eq!(line.peer.received(), b"x");
    assert_eq!(scene.pool.snapshot().panics, 1);
}
