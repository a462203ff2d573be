//! The times that the pool notes are those of the handlers themselves: what the end of another
//! handle takes is nobody's handler, and an estimate that counted it would wake followers for
//! nothing.

use std::{io, time::Duration};

use crate::support::{
    self, bounded,
    by_hand::{self, serve_all, turn},
};
use paceline::{
    simulated::{SimStream, Simulation},
    Closed, Context, EventHandler, Interest, Next, Pool, SetKind,
};

const SECOND: Duration = Duration::from_secs(1);

/// Ends at once; its end takes a second of the simulation's time.
struct SlowEnd(Simulation);

impl EventHandler<SimStream> for SlowEnd {
    fn ready(&mut self, _: &mut Context<'_, SimStream>) -> io::Result<Next> {
        Ok(Next::Close)
    }

    fn closed(&mut self, _: Closed) {
        self.0.clock().advance(SECOND);
    }
}

/// Each end is a time without a leader of its own. They are not added up, and not left to the next
/// handler.
#[test]
fn ends_are_not_the_next_handlers_time() {
    bounded(|| {
        let world = Simulation::new(1);
        let set = SetKind::Simulated(world.clone());
        let pool = Pool::builder().threads(0).handle_set(set).build();
        let pool = pool.expect("a pool");
        let mut peers = Vec::new();
        for _ in 0..5 {
            let (stream, peer) = world.stream();
            let registered = pool.register(stream, Interest::READ, SlowEnd(world.clone()));
            let _ = registered.expect("a registration");
            peer.send(b"x");
            peers.push(peer);
        }
        // One after the other, out of one line.
        assert_eq!(serve_all(&pool), 5);
        assert_eq!(world.clock().elapsed(), 5 * SECOND);
        let seen = pool.snapshot();
        assert_eq!(seen.longest_without_leader, SECOND);
        assert_eq!(seen.without_leader, 5 * SECOND);
    });
}

/// A handler that takes no time is short, whatever ended before it: nobody is woken for it.
#[test]
fn a_short_kind_stays_short_behind_slow_ends() {
    bounded(|| {
        let world = Simulation::new(1);
        let set = SetKind::Simulated(world.clone());
        let pool = Pool::builder().threads(0).handle_set(set).build();
        let pool = pool.expect("a pool");
        let (stream, short) = world.stream();
        let read_all = |cx: &mut Context<'_, SimStream>| -> io::Result<Next> {
            loop {
                cx.read(&mut [0; 8])?;
            }
        };
        let registered = pool.register(stream, Interest::READ, read_all);
        let _ = registered.expect("a registration");
        let mut follower = pool.enter().expect("a place");
        for _ in 0..64 {
            let (stream, ending) = world.stream();
            let registered = pool.register(stream, Interest::READ, SlowEnd(world.clone()));
            let _ = registered.expect("a registration");
            ending.send(b"x");
            short.send(b"x");
            follower = turn(turn(follower));
        }
        // Somebody sleeps; a kind that is taken for long would have it woken.
        let other = pool.clone();
        std::thread::scope(|scope| {
            let leader = by_hand::take_lead(follower);
            scope.spawn(move || other.join());
            by_hand::wait_asleep(&pool, 1);
            short.send(b"x");
            let follower = by_hand::claim(leader).promote().run();
            let wakes = pool.snapshot().wakes;
            drop(follower);
            assert!(pool.shutdown(support::LONG).is_clean());
            assert_eq!(wakes, 0);
        });
    });
}
