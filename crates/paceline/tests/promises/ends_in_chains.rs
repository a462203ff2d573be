//! Ends that lead to other ends. A `closed` that closed the next handle called that one's `closed`
//! before it returned: three thousand of them in a row overflowed the stack of their thread. Now a
//! thread finishes one end after the other, however many each brings about; and a wait inside of
//! `closed` still ends.

use std::{
    io,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Mutex, OnceLock,
    },
    thread,
    time::Duration,
};

use crate::support::by_hand::serve_all;
use crate::support::{bounded, bounded_by, LONG};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Closed, ConcurrentContext, ConcurrentHandler, Context, EventHandler, GroupHandler, Handle,
    Interest, Members, Next, Pool, SetKind, TaskContext, TimerGuard,
};

/// So many timers in a row; more than any stack here has room for, as are the handles.
const TIMERS: usize = 100_000;

/// So many handles in a row. (The simulated set takes longer for each, the more there are.)
const HANDLES: usize = 10_000;

/// Much less than a thread usually has.
const SMALL_STACK: usize = 128 * 1024;

/// A pool without threads of its own, in this world.
fn pool(world: &Simulation) -> Pool {
    pool_with(world, 0)
}

fn pool_with(world: &Simulation, threads: usize) -> Pool {
    let set = SetKind::Simulated(world.clone());
    let pool = Pool::builder().threads(threads).handle_set(set);
    pool.build().unwrap()
}

/// Runs `body` on a thread with a small stack.
fn on_a_small_stack(body: impl FnOnce() + Send + 'static) {
    bounded_by(LONG * 3, || {
        let thread = thread::Builder::new().stack_size(SMALL_STACK);
        thread.spawn(body).unwrap().join().unwrap();
    });
}

/// What a handler does in `closed`.
type OnEnd = Box<dyn FnOnce() + Send>;

/// A handler that does something in `closed`, once.
struct Ends(Mutex<Option<OnEnd>>);

impl Ends {
    fn with(act: impl FnOnce() + Send + 'static) -> Self {
        Self(Mutex::new(Some(Box::new(act))))
    }

    /// Closes the next one, and counts.
    fn closes(next: Option<Handle>, ended: &Arc<AtomicUsize>) -> Self {
        let ended = Arc::clone(ended);
        Self::with(move || {
            ended.fetch_add(1, Ordering::Relaxed);
            // At the end of a pool it is over already.
            next.iter().for_each(|next| drop(next.close()));
        })
    }

    fn end(&self) {
        let act = self.0.lock().unwrap().take();
        act.expect("it is called once")();
    }
}

impl<S> EventHandler<S> for Ends {
    fn ready(&mut self, _: &mut Context<'_, S>) -> io::Result<Next> {
        Ok(Next::Close)
    }

    fn closed(&mut self, _: Closed) {
        self.end();
    }
}

impl<S> ConcurrentHandler<S> for Ends {
    fn ready(&self, _: &mut ConcurrentContext<'_, S>) -> io::Result<Next> {
        Ok(Next::Close)
    }

    fn closed(&self, _: Closed) {
        self.end();
    }
}

impl GroupHandler<SimStream> for Ends {
    fn ready(
        &mut self,
        _: &mut Context<'_, SimStream>,
        _: &mut Members<'_, SimStream>,
    ) -> io::Result<Next> {
        Ok(Next::Close)
    }

    fn closed(&mut self, _: &Handle, _: Closed, _: &mut Members<'_, SimStream>) {
        self.end();
    }
}

fn register(pool: &Pool, world: &Simulation, handler: Ends) -> (Handle, SimPeer) {
    let (stream, peer) = world.stream();
    let handle = pool.register(stream, Interest::READ, handler).unwrap();
    (handle, peer)
}

/// Each handle's `closed` closes the next one; every other one is concurrent. Each is called once.
#[test]
fn handles_close_each_other() {
    on_a_small_stack(|| {
        let (world, ended) = (Simulation::new(1), Arc::default());
        let pool = pool(&world);
        let mut next = None;
        for number in 0..HANDLES {
            let (stream, ends) = (world.stream().0, Ends::closes(next.take(), &ended));
            let registered = match number % 2 {
                0 => pool.register(stream, Interest::READ, ends).unwrap(),
                _ => pool
                    .register_concurrent(stream, Interest::READ, ends)
                    .unwrap(),
            };
            next = Some(registered);
        }
        next.unwrap().close().unwrap();
        assert_eq!(ended.load(Ordering::Relaxed), HANDLES);
        assert!(pool.shutdown(Duration::ZERO).is_clean());
    });
}

/// One handle's `closed` closes all others at once.
#[test]
fn a_handle_closes_all_others() {
    on_a_small_stack(|| {
        let (world, ended) = (Simulation::new(1), Arc::default());
        let pool = pool(&world);
        let others: Vec<_> = (0..HANDLES)
            .map(|_| register(&pool, &world, Ends::closes(None, &ended)).0)
            .collect();
        let ends = Ends::with(move || others.iter().for_each(|other| other.close().unwrap()));
        register(&pool, &world, ends).0.close().unwrap();
        assert_eq!(ended.load(Ordering::Relaxed), HANDLES);
    });
}

/// A timer's work owns the guard of the next timer: what is dropped with one cancels the other.
#[test]
fn timers_cancel_each_other() {
    on_a_small_stack(|| {
        let pool = pool(&Simulation::new(1));
        let mut next: Option<TimerGuard> = None;
        for _ in 0..TIMERS {
            let guard = next.take();
            let work = move |_: &mut TaskContext<'_>| drop(guard);
            next = Some(pool.after(LONG, work).unwrap().cancel_on_drop());
        }
        drop(next);
        let report = pool.shutdown(Duration::ZERO);
        assert_eq!(report.timers_not_due, 0);
    });
}

/// At the end of a pool, which ends all by force, each group's member closes that of the next
/// group.
#[test]
fn members_of_groups_close_each_other_at_the_end() {
    on_a_small_stack(|| {
        let world = Simulation::new(1);
        let (pool, ended) = (pool(&world), Arc::new(AtomicUsize::new(0)));
        let members: Arc<OnceLock<Vec<Handle>>> = Arc::default();
        let all = (0..HANDLES).map(|number| {
            let (ended, members) = (Arc::clone(&ended), Arc::clone(&members));
            let ends = Ends::with(move || {
                ended.fetch_add(1, Ordering::Relaxed);
                let next = members.get().unwrap().get(number + 1);
                next.iter().for_each(|next| next.close().unwrap());
            });
            let group = pool.group(ends).unwrap();
            let (stream, _) = world.stream();
            group.register(stream, Interest::READ).unwrap()
        });
        members.set(all.collect()).unwrap();
        let report = pool.shutdown(Duration::ZERO);
        assert_eq!(ended.load(Ordering::Relaxed), HANDLES);
        assert_eq!((report.unfinished.len(), report.busy_handles), (HANDLES, 0));
    });
}

/// Inside of `closed` a handler can wait for another end: its peer sees it when the wait returns.
#[test]
fn ends_can_be_waited_for_inside_of_closed() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = pool(&world);
        let (sender, done) = mpsc::channel();
        let mut next: Option<(Handle, SimPeer)> = None;
        for number in 0..4 {
            let (sender, waits) = (sender.clone(), next.take());
            let ends = Ends::with(move || {
                if let Some((handle, peer)) = &waits {
                    // It was asked for before, and is deferred.
                    assert!(number % 2 == 0 || handle.close().is_ok());
                    handle.close_and_wait().unwrap();
                    assert!(peer.is_closed_by_pool());
                }
                sender.send(number).unwrap();
            });
            next = Some(register(&pool, &world, ends));
        }
        next.unwrap().0.close_and_wait().unwrap();
        drop(sender);
        assert_eq!(done.iter().take(4).collect::<Vec<_>>(), [0, 1, 2, 3]);
    });
}

/// A shutdown inside of `closed` finishes what that has closed before, and what it ends itself. It
/// does not wait for the ends that its own thread has deferred.
#[test]
fn a_shutdown_inside_of_closed_leaves_nothing() {
    for (threads, within) in [(0, Duration::ZERO), (1, LONG * 10)] {
        bounded(move || {
            let world = Simulation::new(1);
            let (pool, ended) = (pool_with(&world, threads), Arc::default());
            let (before, _) = register(&pool, &world, Ends::closes(None, &ended));
            register(&pool, &world, Ends::closes(None, &ended));
            let (sender, reports) = mpsc::channel();
            let (shut, seen) = (pool.clone(), Arc::clone(&ended));
            let ends = Ends::with(move || {
                before.close().unwrap();
                let report = shut.shutdown(within);
                sender.send((report, seen.load(Ordering::Relaxed))).unwrap();
            });
            register(&pool, &world, ends).0.close().unwrap();
            let (report, ended) = reports.try_recv().unwrap();
            assert_eq!((report.busy_handles, ended), (0, 2), "{report}");
        });
    }
}

/// A thread that serves another pool inside of `closed` finishes the ends there as they come.
#[test]
fn another_pool_can_be_served_inside_of_closed() {
    bounded(|| {
        let (world, elsewhere) = (Simulation::new(1), Simulation::new(2));
        let (one, other) = (pool(&world), pool(&elsewhere));
        let ended = Arc::default();
        let (_, peer) = register(&other, &elsewhere, Ends::closes(None, &ended));
        peer.send(b"x");
        let (sender, seen) = mpsc::channel();
        let ends = Ends::with(move || {
            serve_all(&other);
            let is_closed = peer.is_closed_by_pool();
            sender
                .send((ended.load(Ordering::Relaxed), is_closed))
                .unwrap();
        });
        register(&one, &world, ends).0.close().unwrap();
        assert_eq!(seen.try_recv(), Ok((1, true)));
    });
}
