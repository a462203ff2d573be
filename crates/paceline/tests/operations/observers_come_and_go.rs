//! Observers that come and go while the pool works: each is told while it is there, and nothing
//! else is.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{claim, echo, find_nothing, lead, serve_all, take_lead, turn},
    gate::Gate,
    wait_until, Witness,
};
use paceline::{
    observe::{Observer, Role},
    simulated::{SimStream, Simulation},
    Context, EventHandler, HandleId, Interest, Next, Pool, SetKind,
};

/// Notes everything that it is told.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn notes(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Observer for Diary {
    fn role_changed(&self, thread: usize, role: Role) {
        self.note(format!("{thread} {role}"));
    }

    fn away_changed(&self, thread: usize, is_away: bool) {
        let what = if is_away { "blocks" } else { "is back" };
        self.note(format!("{thread} {what}"));
    }

    fn panicked(&self, handle: HandleId, message: &str) {
        self.note(format!("{handle} panicked: {message}"));
    }

    fn failed(&self, handle: HandleId, error: &io::Error) {
        self.note(format!("{handle} failed: {error}"));
    }

    fn grown(&self, thread: usize) {
        self.note(format!("{thread} grown"));
    }

    fn retired(&self, thread: usize) {
        self.note(format!("{thread} retired"));
    }
}

/// Panics wherever that harms nobody.
struct Clumsy;

impl Observer for Clumsy {
    fn panicked(&self, _: HandleId, _: &str) {
        panic!("clumsy");
    }

    fn failed(&self, _: HandleId, _: &io::Error) {
        panic!("clumsy");
    }
}

fn world_and_pool() -> (Simulation, Pool) {
    let world = Simulation::new(1);
    let set = SetKind::Simulated(world.clone());
    let pool = Pool::builder().threads(0).handle_set(set);
    (world, pool.build().unwrap())
}

/// Whether the pool's `Debug` form says that somebody observes: only then do its threads tell.
fn is_observed(pool: &Pool) -> bool {
    format!("{pool:?}").contains("observed: true")
}

/// Each hears what happens between its coming and its going, and the pool's threads tell only while
/// somebody is there.
#[test]
fn told_while_they_are_there() {
    bounded(|| {
        let (world, pool) = world_and_pool();
        let (stream, peer) = world.stream();
        pool.register(stream, Interest::READ, echo).unwrap();
        assert!(!is_observed(&pool));
        peer.send(b"1");
        let follower = turn(pool.enter().unwrap());

        let (early, late) = (Diary::default(), Diary::default());
        let first = pool.observe(early.clone());
        assert!(is_observed(&pool));
        peer.send(b"2");
        let follower = turn(follower);
        let second = pool.observe(late.clone());
        peer.send(b"3");
        let follower = turn(follower);
        drop(first);
        assert!(is_observed(&pool));
        drop(find_nothing(take_lead(follower)));
        drop(second);
        assert!(!is_observed(&pool));
        peer.send(b"4");
        assert_eq!(serve_all(&pool), 1);

        let event = ["0 leader", "0 processing"];
        assert_eq!(early.notes(), [event, event].concat());
        let end = ["0 leader", "0 follower", "0 gone"];
        assert_eq!(late.notes(), [&event[..], &end[..]].concat());
        assert_eq!(peer.received(), b"1234");
    });
}

/// A board, or an observer that the pool was built with, stays when guests have gone. Several that
/// it was built with are all told.
#[test]
fn those_of_the_builder_stay() {
    bounded(|| {
        let (one, other) = (Diary::default(), Diary::default());
        let pool = Pool::builder()
            .threads(0)
            .observer(one.clone())
            .observer(other.clone());
        let pool = pool.build().unwrap();
        drop(pool.observe(Diary::default()));
        assert!(is_observed(&pool));
        drop(pool.enter().unwrap());
        assert_eq!(one.notes(), ["0 follower", "0 gone"]);
        assert_eq!(other.notes(), one.notes());

        let shown = Pool::builder().threads(0).board(true).build().unwrap();
        drop(shown.observe(Diary::default()));
        assert!(is_observed(&shown));
    });
}

/// An observation may outlive its pool, and the observer is dropped with the observation.
#[test]
fn observers_are_dropped_when_they_go() {
    bounded(|| {
        let (_, pool) = world_and_pool();
        let diary = Diary::default();
        let observation = pool.observe(diary.clone());
        assert_eq!(Arc::strong_count(&diary.0), 2);
        drop(observation);
        assert_eq!(Arc::strong_count(&diary.0), 1);
        let outlives = pool.observe(diary.clone());
        drop(pool);
        drop(outlives);
        assert_eq!(Arc::strong_count(&diary.0), 1);
    });
}

/// A handler that blocks is reported while an observer is there, on the thread that runs it, and
/// also when it panics: without that, an observer takes a thread that sleeps for one that computes.
#[test]
fn a_handler_that_blocks_is_reported() {
    bounded(|| {
        let (world, pool) = world_and_pool();
        let (stream, peer) = world.stream();
        let diary = Diary::default();
        let inside = diary.clone();
        let handler = move |cx: &mut Context<'_, SimStream>| {
            let mut byte = [0];
            cx.read(&mut byte)?;
            cx.blocking(|| {
                inside.note("inside".to_owned());
                assert_ne!(byte[0], b'!', "the handler's own panic");
            });
            Ok(Next::Continue)
        };
        pool.register(stream, Interest::READ, handler).unwrap();
        peer.send(b"1");
        serve_all(&pool);
        assert_eq!(diary.notes(), ["inside"]);

        let observation = pool.observe(diary.clone());
        for byte in [b"2", b"!"] {
            peer.send(byte);
            serve_all(&pool);
        }
        drop(observation);
        let notes = diary.notes();
        let turns = notes.iter().filter(|note| !note.contains("follow"));
        let turns: Vec<_> = turns
            .map(|note| note.split_once(' ').map_or("inside", |it| it.1))
            .collect();
        let blocks = ["blocks", "inside", "is back"];
        let count = turns.windows(3).filter(|three| *three == blocks).count();
        assert_eq!(count, 2, "{notes:?}");
    });
}

/// At no time are two threads told to be leaders, also not to one who comes in the middle: by hand,
/// the lead passes from thread to thread, with and without an event.
#[test]
fn a_late_observer_sees_one_leader() {
    bounded(|| {
        let (world, pool) = world_and_pool();
        let (stream, peer) = world.stream();
        pool.register(stream, Interest::READ, echo).unwrap();
        let leader = lead(&pool);
        let witness = Witness::default();
        let _observation = pool.observe(witness.clone());
        peer.send(b"x");
        let processing = claim(leader).promote();
        assert_eq!(serve_all(&pool), 0);
        assert_eq!(witness.most_leaders(), 1);
        drop(processing.run());
        assert_eq!(serve_all(&pool), 0);
        assert_eq!(
            (witness.most_leaders(), witness.count(Role::Leader)),
            (1, 0)
        );
    });
}

/// What goes wrong is told with the handle's name; and an observer that panics then harms nobody.
#[test]
fn failures_are_told() {
    bounded(|| {
        let (world, pool) = world_and_pool();
        let diary = Diary::default();
        let _clumsy = pool.observe(Clumsy);
        let _observation = pool.observe(diary.clone());
        let register = |ready: fn(&mut Context<'_, SimStream>) -> io::Result<Next>| {
            let (stream, peer) = world.stream();
            let handle = pool.register(stream, Interest::READ, ready).unwrap();
            peer.send(b"x");
            serve_all(&pool);
            handle.id()
        };
        let fails = register(|_| Err(io::Error::other("no")));
        let panics = register(|_| panic!("ouch"));
        let roles = ["follower", "leader", "processing", "gone"];
        let mut notes = diary.notes();
        notes.retain(|note| !roles.iter().any(|role| note.ends_with(role)));
        let expected = [
            format!("{fails} failed: no"),
            format!("{panics} panicked: ouch"),
        ];
        assert_eq!(notes, expected);
        assert_eq!(pool.snapshot().panics, 1);
    });
}

/// Blocks at a gate, and tells so.
struct Blocks(Arc<Gate>);

impl EventHandler<SimStream> for Blocks {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
        while cx.read(&mut [0; 8]).is_ok() {}
        cx.blocking(|| self.0.pass());
        Ok(Next::Continue)
    }
}

/// An elastic pool tells whom it calls and whom it lets go.
#[test]
fn threads_that_come_and_go_are_told() {
    bounded(|| {
        const KEEP_ALIVE: Duration = Duration::from_secs(10);
        let (world, gate, diary) = (Simulation::new(1), Gate::shut(), Diary::default());
        let pool = Pool::builder()
            .threads(2..=3)
            .keep_alive(KEEP_ALIVE)
            .handle_set(SetKind::Simulated(world.clone()))
            .observer(diary.clone());
        let pool = pool.build().unwrap();
        let peers: Vec<_> = (0..2)
            .map(|_| {
                let (stream, peer) = world.stream();
                pool.register(stream, Interest::READ, Blocks(gate.clone()))
                    .unwrap();
                peer.send(b"x");
                peer
            })
            .collect();
        gate.wait_for(2);
        wait_until(|| pool.snapshot().grown == 1);
        let has = |what: &str| diary.notes().iter().any(|note| note == what);
        wait_until(|| has("2 grown"));
        gate.let_through(2);
        let retired =
            |notes: Vec<String>| notes.iter().filter(|it| it.ends_with("retired")).count();
        wait_until(|| {
            world.clock().advance(KEEP_ALIVE);
            retired(diary.notes()) == 1
        });
        assert_eq!(pool.snapshot().retired, 1);
        drop(peers);
    });
}
