//! The board: who does what, and since when. On a virtual clock, so that times are exact.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{self, claim, echo, take_lead, turn},
    wait_until,
};
use paceline::{
    observe::{Role, ThreadReport},
    simulated::{SimPeer, SimStream, Simulation},
    Context, EventHandler, Handle, Interest, Next, Pool, SetKind, WeakPool,
};

const SECOND: Duration = Duration::from_secs(1);

/// A pool with a board, in a world of its own.
fn shown(threads: usize) -> (Simulation, Pool) {
    let world = Simulation::new(1);
    let pool = Pool::builder()
        .threads(threads)
        .name("shown")
        .board(true)
        .handle_set(SetKind::Simulated(world.clone()));
    (world, pool.build().unwrap())
}

fn serve(
    pool: &Pool,
    world: &Simulation,
    handler: impl EventHandler<SimStream>,
) -> (Handle, SimPeer) {
    let (stream, peer) = world.stream();
    let handle = pool.register(stream, Interest::READ, handler).unwrap();
    (handle, peer)
}

/// The one thread there is.
fn only(pool: &Pool) -> ThreadReport {
    let [thread] = <[_; 1]>::try_from(pool.inspect().threads()).expect("one thread");
    thread
}

/// Tells what the board says in the middle of a call, and while it blocks.
struct Curious {
    pool: WeakPool,
    world: Simulation,
}

impl EventHandler<SimStream> for Curious {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> std::io::Result<Next> {
        let pool = self.pool.upgrade().unwrap();
        self.world.clock().advance(SECOND);
        let said = only(&pool);
        assert_eq!((said.role, said.lasts), (Role::Processing, SECOND));
        let call = said.handles.expect("it handles this");
        assert_eq!((call.handle, call.lasts), (cx.handle().id(), SECOND));
        assert!(call.handler.ends_with("Curious"), "{}", call.handler);
        cx.blocking(|| {
            self.world.clock().advance(SECOND);
            let said = only(&pool);
            assert_eq!((said.role, said.lasts), (Role::Away, SECOND));
            assert_eq!(said.handles.unwrap().lasts, 2 * SECOND);
        });
        assert_eq!(only(&pool).role, Role::Processing);
        echo(cx)
    }
}

/// One thread goes through the roles, and time passes in each: the board tells the role, and for
/// how long; in a handler also whose, and for how long the whole call has lasted, also while that
/// is away.
#[test]
fn each_role_is_shown_with_its_time() {
    bounded(|| {
        let (world, pool) = shown(0);
        assert_eq!(pool.inspect().threads(), []);
        let curious = Curious {
            pool: pool.downgrade(),
            world: world.clone(),
        };
        let (_, peer) = serve(&pool, &world, curious);
        let follower = pool.enter().unwrap();
        world.clock().advance(SECOND);
        let said = only(&pool);
        assert_eq!(
            (said.role, said.lasts, said.handles),
            (Role::Follower, SECOND, None)
        );
        assert_eq!(said.name, "an unnamed thread");

        let leader = take_lead(follower);
        world.clock().advance(3 * SECOND);
        let said = only(&pool);
        assert_eq!(
            (said.role, said.lasts, said.handles),
            (Role::Leader, 3 * SECOND, None)
        );

        peer.send(b"x");
        let follower = claim(leader).promote().run();
        assert_eq!(peer.received(), b"x");
        assert_eq!(
            pool.snapshot().panics,
            0,
            "the handler found what it should"
        );
        drop(by_hand::find_nothing(take_lead(follower)));
        assert_eq!(pool.inspect().threads(), []);
    });
}

/// A thread that leads again right after an event, and sleeps in the set, is shown as the leader.
#[test]
fn who_leads_on_is_shown_as_the_leader() {
    bounded(|| {
        let (world, pool) = shown(1);
        let (_, peer) = serve(&pool, &world, echo);
        for _ in 0..3 {
            peer.send(b"x");
            assert_eq!(peer.wait_for(1), b"x");
            wait_until(|| world.clock().asleep() == 1);
            assert_eq!(only(&pool).role, Role::Leader);
        }
        assert_eq!(only(&pool).to_string(), "shown-0: leader for 0ns");
    });
}

/// Of the followers one stands by, and the board says which.
#[test]
fn the_standby_is_told_from_the_others() {
    bounded(|| {
        let (world, pool) = shown(4);
        wait_until(|| world.clock().asleep() == 4);
        let roles = |wanted: Role| {
            pool.inspect()
                .threads()
                .iter()
                .filter(|it| it.role == wanted)
                .count()
        };
        assert_eq!(
            (
                roles(Role::Leader),
                roles(Role::Standby),
                roles(Role::Follower)
            ),
            (1, 1, 2)
        );
        let names: Vec<_> = pool
            .inspect()
            .threads()
            .into_iter()
            .map(|thread| thread.name)
            .collect();
        assert_eq!(names, ["shown-0", "shown-1", "shown-2", "shown-3"]);
    });
}

/// The standby is known by its place, whoever else is there: one that has entered and does not
/// follow yet is not it.
#[test]
fn the_standby_is_told_by_its_place() {
    bounded(|| {
        let (world, pool) = shown(0);
        let leader = by_hand::lead(&pool);
        let _idle = pool.enter().unwrap();
        let joined = pool.clone();
        let joined = thread::spawn(move || joined.join());
        wait_until(|| world.clock().asleep() == 1);
        let threads = pool.inspect().threads();
        let standby = threads.iter().position(|it| it.role == Role::Standby);
        assert_eq!((threads.len(), standby), (3, Some(2)));
        drop(leader);
        let _ = pool.shutdown(Duration::ZERO);
        joined.join().unwrap().unwrap();
    });
}

/// Without a board nothing is known, and that is no error.
#[test]
fn without_a_board_nothing_is_shown() {
    let world = Simulation::new(1);
    let set = SetKind::Simulated(world);
    let pool = Pool::builder().threads(0).handle_set(set).build().unwrap();
    let _follower = pool.enter().unwrap();
    assert_eq!(pool.inspect().threads(), []);
    assert_eq!(pool.inspect().stuck(Duration::ZERO), []);
    assert_eq!(pool.inspect().histograms(), None);
}

struct One;
struct Other;

impl EventHandler<SimStream> for One {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> std::io::Result<Next> {
        echo(cx)
    }
}

impl EventHandler<SimStream> for Other {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> std::io::Result<Next> {
        echo(cx)
    }
}

/// A thread goes from one handle to the other, with handlers of different types, as fast as it can.
/// Whoever looks never sees the one's handle with the other's handler.
#[test]
fn no_report_is_torn() {
    bounded(|| {
        let (world, pool) = shown(0);
        let (one, of_one) = serve(&pool, &world, One);
        let (_, of_other) = serve(&pool, &world, Other);
        let over = Arc::new(AtomicBool::new(false));
        let looker = {
            let (pool, over, one) = (pool.clone(), Arc::clone(&over), one.id());
            thread::spawn(move || {
                let mut looks = 0;
                while !over.load(Ordering::Relaxed) {
                    for call in pool
                        .inspect()
                        .threads()
                        .into_iter()
                        .filter_map(|it| it.handles)
                    {
                        let expected = if call.handle == one { "One" } else { "Other" };
                        assert!(call.handler.ends_with(&format!("::{expected}")), "{call}");
                    }
                    looks += 1;
                }
                looks
            })
        };
        let mut follower = pool.enter().unwrap();
        for _ in 0..5000 {
            of_one.send(b"x");
            of_other.send(b"x");
            follower = turn(turn(follower));
            assert_eq!(
                (of_one.received(), of_other.received()),
                (vec![b'x'], vec![b'x'])
            );
        }
        over.store(true, Ordering::Relaxed);
        assert!(looker.join().expect("every report was whole") > 0);
        drop(follower);
    });
}
