//! Service levels: what has waited too long in the line is not served but told, and who is next is
//! a setting. What the plain pattern cannot: it has no queue in which events could be dropped or
//! put in another order.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{serve_all, turn},
};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Builder, Context, EventHandler, Handle, Interest, Members, Next, Pool, QueueOrder, SetKind,
};

const LIMIT: Duration = Duration::from_millis(10);
const MOMENT: Duration = Duration::from_millis(1);

/// What happened to which handle, in order.
type Log = Arc<Mutex<Vec<(usize, What)>>>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Served,
    Expired(Duration),
    Closed(String),
}

use What::{Expired, Served};

/// Reads everything.
fn drain(cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
    while cx.read(&mut [0; 8])? > 0 {}
    Ok(Next::Close)
}

struct Service {
    number: usize,
    log: Log,
    /// What it does with what has waited too long; by default it closes.
    patient: bool,
}

impl Service {
    fn note(&self, what: What) {
        self.log.lock().unwrap().push((self.number, what));
    }
}

impl EventHandler<SimStream> for Service {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
        self.note(Served);
        drain(cx)
    }

    fn expired(&mut self, cx: &mut Context<'_, SimStream>, age: Duration) -> io::Result<Next> {
        self.note(Expired(age));
        if self.patient {
            cx.write_all(b"later")?;
            drain(cx)
        } else {
            Ok(Next::Close)
        }
    }

    fn closed(&mut self, why: paceline::Closed) {
        self.note(What::Closed(why.to_string()));
    }
}

/// A pool without threads, in a world whose clock stands still, and what happens in it.
struct Scene {
    world: Simulation,
    pool: Pool,
    log: Log,
    handles: Vec<(Handle, SimPeer)>,
}

impl Scene {
    fn new(settings: impl FnOnce(Builder) -> Builder, handles: usize) -> Self {
        let world = Simulation::new(1);
        let pool = Pool::builder()
            .threads(0)
            .handle_set(SetKind::Simulated(world.clone()));
        let (pool, log) = (settings(pool).build().unwrap(), Log::default());
        let handles = (0..handles)
            .map(|number| {
                let (stream, peer) = world.stream();
                let service = Service {
                    number,
                    log: Arc::clone(&log),
                    patient: true,
                };
                let handle = pool.register(stream, Interest::READ, service).unwrap();
                (handle, peer)
            })
            .collect();
        Self {
            world,
            pool,
            log,
            handles,
        }
    }

    fn send(&self, number: usize) {
        self.handles[number].1.send(b"x");
    }

    fn pass(&self, span: Duration) {
        self.world.clock().advance(span);
    }

    /// What happened since this was last asked.
    fn seen(&self) -> Vec<(usize, What)> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    /// Who was served, in order.
    fn order(&self) -> Vec<usize> {
        self.seen().into_iter().map(|(number, _)| number).collect()
    }
}

/// Three handles are ready when the leader looks. The first has a slow handler: when the turn of
/// the others comes they have waited too long, and are told so. They answer that, and are served
/// again when they come in time.
#[test]
fn what_waited_too_long_is_told() {
    bounded(|| {
        let scene = Scene::new(|pool| pool.age_limit(LIMIT), 3);
        (0..3).for_each(|number| scene.send(number));
        let follower = turn(scene.pool.enter().unwrap());
        assert_eq!(scene.seen(), [(0, Served)]);
        scene.pass(LIMIT + MOMENT);
        let follower = turn(follower);
        assert_eq!(scene.seen(), [(1, Expired(LIMIT + MOMENT))]);
        scene.pass(MOMENT);
        drop(turn(follower));
        assert_eq!(scene.seen(), [(2, Expired(LIMIT + 2 * MOMENT))]);
        assert_eq!(scene.handles[1].1.wait_for(5), b"later");
        assert_eq!(scene.pool.snapshot().expired, 2);
        (0..3).for_each(|number| scene.send(number));
        assert_eq!(serve_all(&scene.pool), 3);
        assert_eq!(scene.order(), [0, 1, 2]);
        assert_eq!(scene.pool.snapshot().expired, 2);
    });
}

/// The limit itself is not too long; and what is told once is not told again for what comes next.
#[test]
fn the_limit_is_in_time() {
    bounded(|| {
        let scene = Scene::new(|pool| pool.age_limit(LIMIT), 2);
        (0..2).for_each(|number| scene.send(number));
        let follower = turn(scene.pool.enter().unwrap());
        scene.pass(LIMIT);
        drop(turn(follower));
        assert_eq!(scene.seen(), [(0, Served), (1, Served)]);
    });
}

/// A handler that says nothing else closes what has waited too long, with the reason.
#[test]
fn by_default_it_closes() {
    struct Plain(Log);
    impl EventHandler<SimStream> for Plain {
        fn ready(&mut self, _: &mut Context<'_, SimStream>) -> io::Result<Next> {
            panic!("it is not called");
        }
        fn closed(&mut self, why: paceline::Closed) {
            self.0
                .lock()
                .unwrap()
                .push((9, What::Closed(why.to_string())));
        }
    }
    bounded(|| {
        let scene = Scene::new(|pool| pool.age_limit(LIMIT), 1);
        scene.send(0);
        let (stream, peer) = scene.world.stream();
        let plain = Plain(Arc::clone(&scene.log));
        scene.pool.register(stream, Interest::READ, plain).unwrap();
        peer.send(b"x");
        let follower = turn(scene.pool.enter().unwrap());
        scene.pass(2 * LIMIT);
        drop(turn(follower));
        let why = "failed: what was ready has waited in the line for 20ms";
        assert_eq!(scene.seen()[1], (9, What::Closed(why.to_owned())));
        peer.wait_closed();
    });
}

/// What is kept of output is sent, however long that has waited; and the next event is not taken
/// for the old one.
#[test]
fn kept_output_has_no_age() {
    bounded(|| {
        let scene = Scene::new(|pool| pool.age_limit(LIMIT), 1);
        let (stream, peer) = scene.world.stream();
        let log = Arc::clone(&scene.log);
        let mut calls = 0;
        let handler = move |cx: &mut Context<'_, SimStream>| {
            log.lock().unwrap().push((7, Served));
            calls += 1;
            cx.write_all(&[calls; 100])?;
            drain(cx)
        };
        scene
            .pool
            .register(stream, Interest::READ, handler)
            .unwrap();
        peer.send(b"x");
        serve_all(&scene.pool);
        // Behind a slow one there is room for the rest.
        scene.send(0);
        let mut answer = peer.received();
        assert!(answer.len() < 100, "the rest is kept");
        let follower = turn(scene.pool.enter().unwrap());
        scene.pass(2 * LIMIT);
        drop(follower);
        serve_all(&scene.pool);
        answer.extend(peer.received());
        assert_eq!(answer, vec![1; 100]);
        peer.send(b"y");
        serve_all(&scene.pool);
        assert_eq!(peer.wait_for(64), vec![2; 64]);
        let mine = scene.seen().into_iter().filter(|(number, _)| *number == 7);
        assert_eq!(
            mine.map(|(_, what)| what).collect::<Vec<_>>(),
            [Served, Served]
        );
    });
}

/// Posts and members of groups are served, however long they have waited.
#[test]
fn posts_and_members_have_no_age() {
    bounded(|| {
        let scene = Scene::new(|pool| pool.age_limit(LIMIT), 1);
        let log = Arc::clone(&scene.log);
        let group = scene
            .pool
            .group(
                move |cx: &mut Context<'_, SimStream>, _: &mut Members<'_, _>| {
                    log.lock().unwrap().push((5, Served));
                    drain(cx)
                },
            )
            .unwrap();
        let (stream, peer) = scene.world.stream();
        group.register(stream, Interest::READ).unwrap();
        serve_all(&scene.pool);
        scene.send(0);
        peer.send(b"x");
        let log = Arc::clone(&scene.log);
        let post = move |_: &mut paceline::TaskContext<'_>| log.lock().unwrap().push((6, Served));
        scene.pool.post(post).unwrap();
        let follower = turn(scene.pool.enter().unwrap());
        scene.pass(2 * LIMIT);
        drop(follower);
        serve_all(&scene.pool);
        let mut seen = scene.seen();
        seen.sort_by_key(|(number, _)| *number);
        let served = [(0, Served), (5, Served), (6, Served)];
        assert!(
            seen == served || seen[0].0 == 0 && seen[1..] == served[1..],
            "{seen:?}"
        );
        assert!(scene.pool.snapshot().expired <= 1);
    });
}

/// The newest first: of those that are ready, the one that came last.
#[test]
fn newest_first() {
    bounded(|| {
        let scene = Scene::new(|pool| pool.queue_order(QueueOrder::Newest), 4);
        (0..3).for_each(|number| scene.send(number));
        let follower = turn(scene.pool.enter().unwrap());
        assert_eq!(scene.order(), [2]);
        // It comes while others wait: the leader finds it when it looks into the set.
        scene.send(3);
        drop((0..3).fold(follower, |follower, _| turn(follower)));
        assert_eq!(scene.order(), [1, 0, 3]);
    });
}

/// By rank: the highest first, among equals the one that has waited longest. A change holds from
/// the next time on.
#[test]
fn highest_first() {
    bounded(|| {
        let scene = Scene::new(|pool| pool.queue_order(QueueOrder::Priority), 6);
        for (number, priority) in [0, 5, 0, 9, 5, 255].into_iter().enumerate() {
            scene.handles[number].0.set_priority(priority).unwrap();
            scene.send(number);
        }
        serve_all(&scene.pool);
        assert_eq!(scene.order(), [5, 3, 1, 4, 0, 2]);
        scene.handles[2].0.set_priority(200).unwrap();
        (0..6).for_each(|number| scene.send(number));
        serve_all(&scene.pool);
        assert_eq!(scene.order(), [5, 2, 3, 1, 4, 0]);
        scene.handles[0].0.close().unwrap();
        let stale = scene.handles[0].0.set_priority(1).unwrap_err();
        assert_eq!(stale.kind(), io::ErrorKind::NotFound);
    });
}

/// F1 holds in an arranged line too: after 64 dispatches the set is looked at, whoever still waits.
#[test]
fn arranged_lines_look_into_the_set() {
    bounded(|| {
        const HANDLES: usize = 100;
        let scene = Scene::new(|pool| pool.queue_order(QueueOrder::Priority), HANDLES + 1);
        scene.handles[HANDLES].0.set_priority(1).unwrap();
        (0..HANDLES).for_each(|number| scene.send(number));
        let follower = turn(scene.pool.enter().unwrap());
        scene.send(HANDLES);
        drop((0..HANDLES).fold(follower, |follower, _| turn(follower)));
        let order = scene.order();
        assert_eq!(order[64], HANDLES, "{order:?}");
        assert_eq!(order.len(), HANDLES + 1);
    });
}

/// A rank goes along to another level.
#[test]
fn priority_goes_along() {
    bounded(|| {
        let from = Scene::new(|pool| pool, 2);
        let set = SetKind::Simulated(from.world.beside());
        let to = Pool::builder().threads(0).handle_set(set);
        let to = to.queue_order(QueueOrder::Priority).build().unwrap();
        from.handles[1].0.set_priority(1).unwrap();
        for (handle, peer) in &from.handles {
            let _ = handle.move_to(&to.as_level("there")).unwrap();
            peer.send(b"x");
        }
        serve_all(&to);
        assert_eq!(from.order(), [1, 0]);
    });
}

/// Where nobody leads there is no line to arrange.
#[test]
fn concurrent_sets_have_no_line() {
    for settings in [
        Pool::builder().age_limit(LIMIT),
        Pool::builder().queue_order(QueueOrder::Newest),
    ] {
        let refused = settings.handle_set(SetKind::Concurrent).build();
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("age_limit"), "{error}");
    }
}
