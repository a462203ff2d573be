//! Moves to another registry: against edges, requests, the end of the handle, and the end of either
//! pool.

use std::sync::Weak;

use super::*;
use crate::dispatch::Move;

/// One descriptor and two sets that may watch it. Each has a registry; the descriptor is of the
/// first.
struct Two {
    here: World,
    there: World,
    from: Arc<Registry>,
    to: Arc<Registry>,
}

/// The second set.
struct There {
    descriptor: World,
    set: World,
}

impl Two {
    fn new() -> Arc<Self> {
        let (here, there) = (World::new(), World::new());
        let set = There {
            descriptor: here.clone(),
            set: there.clone(),
        };
        Arc::new(Self {
            from: here.registry(),
            to: there.registry_over(Box::new(set)),
            here,
            there,
        })
    }

    /// The peer sends one byte: an edge in whichever sets watch.
    fn send(&self) {
        *lock(&self.here.0.unread) += 1;
        for world in [&self.here, &self.there] {
            world.watch(true, |_| {});
            world.wake();
        }
    }

    fn register(&self) -> Handle {
        self.here.register(&self.from, Interest::READ)
    }

    /// An attempt to move; whether it goes on there.
    fn moves(&self, handle: &Handle) -> bool {
        matches!(self.try_move(handle), Ok(Move::Moved(_)))
    }

    fn try_move(&self, handle: &Handle) -> io::Result<Move> {
        handle.move_into(&Arc::downgrade(&self.to))
    }

    /// Takes turns in both until nothing is ready.
    fn rest(&self) {
        work(&self.from, &lead(), true);
        work(&self.to, &lead(), true);
    }

    /// Registrations here and there.
    fn live(&self) -> (usize, usize) {
        (self.from.live(), self.to.live())
    }
}

impl HandleSet for There {
    fn reports(&self) -> Reports {
        self.set.reports()
    }

    fn arm(&self, _: RawFd, _: u64, _: Ready) -> io::Result<()> {
        Ok(())
    }

    fn add(&self, _: RawFd, key: u64) -> io::Result<()> {
        let unread = lock(&self.descriptor.0.unread);
        self.set
            .watch(*unread > 0, |watched| watched.key = Some(key));
        Ok(())
    }

    fn remove(&self, descriptor: RawFd) -> io::Result<()> {
        self.set.remove(descriptor)
    }

    fn wait(&self, events: &mut Vec<Event>, until: Option<Timestamp>) -> io::Result<Answer> {
        self.set.wait(events, until)
    }

    fn wake(&self) {
        self.set.wake();
    }
}

/// H1, H2: an edge comes while the handle moves, and both pools have leaders. It is read, once, by
/// one thread at a time.
#[test]
fn loom_edge_against_move() {
    explore(|| {
        let two = Two::new();
        let handle = two.register();
        let peer = {
            let two = Arc::clone(&two);
            thread::spawn(move || {
                two.send();
                work(&two.from, &lead(), true);
            })
        };
        let moved = two.moves(&handle);
        work(&two.to, &lead(), true);
        peer.join().unwrap();
        two.rest();
        assert_eq!(two.here.read(), 1);
        assert_eq!(two.live(), (usize::from(!moved), usize::from(moved)));
    });
}

/// Moves when it is called first, with everything unread.
struct Mover {
    reader: Reader,
    goes_to: Option<Weak<Registry>>,
}

impl EventHandler<Descriptor> for Mover {
    fn ready(&mut self, cx: &mut Context<'_, Descriptor>) -> io::Result<Next> {
        match self.goes_to.take() {
            Some(level) => self.reader.0.owned(|_| cx.go_to(&level)),
            None => self.reader.ready(cx),
        }
    }

    fn moved(&mut self, _: &Handle) {
        self.reader.0.owned(|_| ());
    }

    fn closed(&mut self, why: Closed) {
        self.reader.closed(why);
    }
}

/// The same for a move that the handler asks for, with input that it has left unread.
#[test]
fn loom_handler_moves_against_edge() {
    explore(|| {
        let two = Two::new();
        let mover = Mover {
            reader: Reader(two.here.clone()),
            goes_to: Some(Arc::downgrade(&two.to)),
        };
        two.from
            .register(Descriptor, Interest::READ, mover)
            .unwrap();
        two.send();
        let peer = {
            let two = Arc::clone(&two);
            thread::spawn(move || {
                two.send();
                work(&two.to, &lead(), true);
            })
        };
        work(&two.from, &lead(), true);
        peer.join().unwrap();
        two.rest();
        assert_eq!(two.here.read(), 2);
        assert_eq!(two.live(), (0, 1));
    });
}

/// H3, and `closed` once: a request for the end by the old key. The first of the two decides: it
/// ends here, or that key is stale and it lives there.
#[test]
fn loom_close_against_move() {
    explore(|| {
        let two = Two::new();
        let handle = two.register();
        let closer = {
            let handle = handle.clone();
            thread::spawn(move || handle.close().is_ok())
        };
        let moved = two.moves(&handle);
        let closed = closer.join().unwrap();
        two.rest();
        assert_ne!(moved, closed, "one of the two");
        assert_eq!(two.here.closed(), usize::from(closed));
        assert_eq!(two.live(), (0, usize::from(moved)));
    });
}

/// A notification by the old key goes along, or that key is stale: it is never accepted and
/// forgotten.
#[test]
fn loom_notify_against_move() {
    explore(|| {
        let two = Two::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let handler = move |_: &mut Context<'_, Descriptor>| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(Next::Continue)
        };
        let handle = two
            .from
            .register(Descriptor, Interest::NONE, handler)
            .unwrap();
        let other = {
            let handle = handle.clone();
            thread::spawn(move || handle.notify().is_ok())
        };
        let _ = two.moves(&handle);
        let accepted = other.join().unwrap();
        two.rest();
        assert_eq!(calls.load(Ordering::Relaxed), usize::from(accepted));
    });
}

/// S2: the pool that the handle leaves ends meanwhile. It lives there, or was ended here.
#[test]
fn loom_move_against_the_end_of_its_pool() {
    explore(|| {
        let two = Two::new();
        let handle = two.register();
        let end = {
            let from = Arc::clone(&two.from);
            thread::spawn(move || from.shut())
        };
        let moved = two.moves(&handle);
        end.join().unwrap();
        assert_eq!(two.here.closed(), usize::from(!moved));
        assert_eq!(two.live(), (0, usize::from(moved)));
    });
}

/// S2: the pool that the handle goes to ends meanwhile. It was ended there, or stays here and is
/// whole.
#[test]
fn loom_move_against_the_end_of_the_other() {
    explore(|| {
        let two = Two::new();
        let handle = two.register();
        let end = {
            let to = Arc::clone(&two.to);
            thread::spawn(move || to.shut())
        };
        let moved = two.moves(&handle);
        end.join().unwrap();
        assert_eq!(two.here.closed(), usize::from(moved));
        assert_eq!(two.live(), (usize::from(!moved), 0));
        if !moved {
            two.send();
            two.rest();
            assert_eq!(two.here.read(), 1);
        }
    });
}

/// S1: both drain meanwhile, and each is drained in the end.
#[test]
fn loom_move_against_drains() {
    explore(|| {
        let two = Two::new();
        let handle = two.register();
        let mover = {
            let two = Arc::clone(&two);
            thread::spawn(move || drop(two.try_move(&handle)))
        };
        two.from.drain();
        two.to.drain();
        for registry in [&two.from, &two.to] {
            let mut line = Line::new();
            while !registry.is_drained() {
                if let Some(claim) = line.next(registry, None).unwrap() {
                    drop(dispatch(claim));
                }
            }
        }
        mover.join().unwrap();
        two.rest();
        assert_eq!(two.here.closed(), 1);
        assert_eq!(two.live(), (0, 0));
    });
}
