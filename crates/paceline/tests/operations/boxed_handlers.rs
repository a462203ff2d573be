//! A handler in a `Box<dyn EventHandler<S>>` is called for everything that its own type is called
//! for. A box that does not pass a call on has the default of the trait instead, and nothing says
//! so: the connection does not speak first, or closes where its handler would have answered. The
//! time is virtual. (Two other calls have their tests with the others of their kind: `overdue` in
//! `deadlines.rs`, `kind` in `promises/given_kinds.rs`.)

use std::{io, sync::mpsc, time::Duration};

use paceline::{
    simulated::{SimStream, Simulation},
    Closed, Context, EventHandler, Handle, Interest, Level, Move, Next, Pool, SetKind,
};

use crate::support::by_hand::serve_all;

const LIMIT: Duration = Duration::from_millis(10);

/// Notes its calls.
struct Session {
    calls: mpsc::Sender<String>,
    /// Where it asks to go on, in a world that it can't reach.
    elsewhere: Level,
}

impl Session {
    fn note(&self, call: impl Into<String>) {
        // At the end of the pool the test may have dropped the receiver.
        let _ = self.calls.send(call.into());
    }
}

impl EventHandler<SimStream> for Session {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
        self.note("ready");
        read_all(cx);
        cx.move_to(&self.elsewhere)
    }

    fn speaks_first(&self) -> bool {
        true
    }

    fn connected(&mut self, _: &mut Context<'_, SimStream>) -> io::Result<Next> {
        self.note("connected");
        Ok(Next::Continue)
    }

    fn expired(&mut self, cx: &mut Context<'_, SimStream>, age: Duration) -> io::Result<Next> {
        self.note(format!("expired after {age:?}"));
        read_all(cx);
        Ok(Next::Continue)
    }

    fn moved(&mut self, _: &Handle) {
        self.note("moved");
    }

    fn stayed(&mut self, why: io::Error) {
        self.note(format!("stayed: {:?}", why.kind()));
    }

    fn closed(&mut self, why: Closed) {
        self.note(why.to_string());
    }
}

/// Until the source has run dry.
fn read_all(cx: &mut Context<'_, SimStream>) {
    while cx.read(&mut [0; 8]).is_ok_and(|count| count > 0) {}
}

fn pool(world: &Simulation) -> Pool {
    let set = SetKind::Simulated(world.clone());
    let pool = Pool::builder().threads(0).handle_set(set);
    pool.age_limit(LIMIT).build().unwrap()
}

#[test]
fn hear_everything() {
    let world = Simulation::new(1);
    let [here, there] = [world.clone(), world.beside()].map(|world| pool(&world));
    let unreachable = pool(&Simulation::new(2));
    let (calls, called) = mpsc::channel();
    let called = || called.try_iter().collect::<Vec<_>>();

    let time = world.clone();
    let slow = move |cx: &mut Context<'_, SimStream>| {
        time.clock().advance(2 * LIMIT);
        read_all(cx);
        Ok(Next::Continue)
    };
    let (stream, first) = world.stream();
    here.register(stream, Interest::READ, slow).unwrap();
    let elsewhere = unreachable.as_level("elsewhere");
    let boxed: Box<dyn EventHandler<SimStream>> = Box::new(Session { calls, elsewhere });
    let (stream, peer) = world.stream();
    let handle = here.register(stream, Interest::READ, boxed).unwrap();
    serve_all(&here);
    assert_eq!(called(), ["connected"]);

    first.send(b"x");
    peer.send(b"x");
    serve_all(&here);
    assert_eq!(called(), ["expired after 20ms"]);

    peer.send(b"x");
    serve_all(&here);
    assert_eq!(called(), ["ready", "stayed: InvalidInput"]);

    let moved = handle.move_to(&there.as_level("there")).unwrap();
    assert_eq!(called(), ["moved"]);
    let Move::Moved(handle) = moved else {
        panic!("it is idle: {moved:?}")
    };
    handle.close().unwrap();
    assert_eq!(called(), ["closed on request"]);
}
