//! L5, where values of the user's are dropped that one registration has: handlers, sources, work,
//! timers, items. A group's handler that panicked in `closed` and left two pieces of work behind,
//! each of which panicked when it was dropped, aborted the process. Now a destructor of the user's
//! takes nothing along, whichever thread runs it and wherever.
//!
//! One table: each row drops values that panic, in one place. (What several threads share is in the
//! other one.)

use std::{
    io::{self, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    sync::{mpsc, Mutex},
    time::Duration,
};

use crate::support::grenades::{
    check_alive, each_survives, keep_busy, pool, Explosive, Field, Grenade, Row,
};
use crate::support::LONG;
use paceline::{
    Closed, ConcurrentContext, Context, EventHandler, GroupHandler, Handle, Interest, Members,
    Next, Panics, Pool, Signal, TaskContext, TickContext,
};

type Source = Explosive<UnixStream>;

fn explosive(field: &Field) -> (Source, UnixStream) {
    let (stream, peer) = UnixStream::pair().unwrap();
    let source = Explosive {
        stream,
        grenade: field.grenade(),
    };
    (source, peer)
}

/// A handler that does this when its peer has sent something, and whose drop panics.
fn handler(
    field: &Field,
    act: impl FnMut(&mut Context<'_, Source>) -> io::Result<Next> + Send + 'static,
) -> impl EventHandler<Source> {
    let (grenade, mut act) = (field.grenade(), act);
    move |cx: &mut Context<'_, Source>| {
        grenade.touch();
        act(cx)
    }
}

/// A handle whose source and handler panic when they are dropped.
fn register(
    field: &Field,
    pool: &Pool,
    act: impl FnMut(&mut Context<'_, Source>) -> io::Result<Next> + Send + 'static,
) -> (Handle, UnixStream) {
    let (source, peer) = explosive(field);
    let handler = handler(field, act);
    let handle = pool.register(source, Interest::READ, handler).unwrap();
    (handle, peer)
}

/// The same, after its peer has sent something.
fn served(
    field: &Field,
    act: impl FnMut(&mut Context<'_, Source>) -> io::Result<Next> + Send + 'static,
) {
    let pool = pool();
    let (_, mut peer) = register(field, &pool, act);
    peer.write_all(b"x").unwrap();
    field.wait();
    check_alive(&pool);
}

fn concurrent(field: &Field, pool: &Pool) -> UnixStream {
    let (source, peer) = explosive(field);
    let grenade = Mutex::new(field.grenade());
    let handler = move |_: &mut ConcurrentContext<'_, Source>| {
        grenade.lock().unwrap().touch();
        Ok(Next::Close)
    };
    pool.register_concurrent(source, Interest::READ, handler)
        .unwrap();
    peer
}

/// A group's handler that leaves work behind and panics when a member is closed.
struct Sore(Grenade, Vec<Grenade>);

impl GroupHandler<Source> for Sore {
    fn ready(
        &mut self,
        _: &mut Context<'_, Source>,
        _: &mut Members<'_, Source>,
    ) -> io::Result<Next> {
        self.0.touch();
        Ok(Next::Close)
    }

    fn closed(&mut self, _: &Handle, _: Closed, members: &mut Members<'_, Source>) {
        let others: Vec<_> = members.handles().collect();
        for (other, grenade) in others.iter().zip(std::iter::from_fn(|| self.1.pop())) {
            let leave_work = |cx: &mut Context<'_, Source>| {
                cx.after_release(move |_| grenade.touch());
                Ok(())
            };
            members.with(other, leave_work).unwrap();
        }
        panic!("closed fails");
    }
}

fn group(field: &Field, pool: &Pool, members: usize, work: usize) -> Vec<UnixStream> {
    let work = (0..work).map(|_| field.grenade()).collect();
    let group = pool.group(Sore(field.grenade(), work)).unwrap();
    let members = (0..members).map(|_| {
        let (source, peer) = explosive(field);
        group.register(source, Interest::READ).unwrap();
        peer
    });
    members.collect()
}

fn shut(pool: &Pool) {
    let _ = pool.shutdown(Duration::ZERO);
}

const TABLE: &[Row] = &[
    // Handles: by their own thread, by others, at the end.
    ("handler and source, finished", |field| {
        served(field, |_| Ok(Next::Close));
    }),
    ("handler and source, panicked", |field| {
        served(field, |_| panic!("on purpose"));
    }),
    ("handler and source, failed, and the error", |field| {
        let mut error = Some(field.grenade());
        served(field, move |_| Err(io::Error::other(error.take().unwrap())));
    }),
    ("handler and source, closed from outside", |field| {
        let pool = pool();
        let (handle, _peer) = register(field, &pool, |_| Ok(Next::Continue));
        handle.close().unwrap();
        field.wait();
        check_alive(&pool);
    }),
    ("handler and source, drained", |field| {
        let pool = pool();
        let _peers = [(); 3].map(|()| register(field, &pool, |_| Ok(Next::Continue)));
        assert!(pool.shutdown(LONG).is_clean());
        field.wait();
    }),
    ("handler and source, by force", |field| {
        let pool = Pool::builder().threads(0).build().unwrap();
        let _peers = [(); 3].map(|()| register(field, &pool, |_| Ok(Next::Continue)));
        shut(&pool);
        field.wait();
    }),
    (
        "handler and source, busy when the pool is dropped",
        |field| {
            let pool = pool();
            let (sender, done) = mpsc::channel();
            let (go, gate) = mpsc::channel::<()>();
            let (_, mut peer) = register(field, &pool, move |_| {
                sender.send(()).unwrap();
                let _ = gate.recv_timeout(LONG);
                Ok(Next::Continue)
            });
            peer.write_all(b"x").unwrap();
            done.recv_timeout(LONG).unwrap();
            drop(pool);
            drop(go);
            field.wait();
        },
    ),
    ("concurrent handler and source, finished", |field| {
        let pool = pool();
        let mut peer = concurrent(field, &pool);
        peer.write_all(b"x").unwrap();
        field.wait();
        check_alive(&pool);
    }),
    ("concurrent handler and source, by force", |field| {
        let pool = Pool::builder().threads(0).build().unwrap();
        let _peers = [concurrent(field, &pool), concurrent(field, &pool)];
        drop(pool);
        field.wait();
    }),
    // Groups.
    (
        "group handler, members, and work that is not done",
        |field| {
            let pool = pool();
            let mut peers = group(field, &pool, 3, 3);
            peers.iter_mut().for_each(|it| it.write_all(b"x").unwrap());
            field.wait();
            check_alive(&pool);
        },
    ),
    ("group handler and members, by force", |field| {
        let pool = Pool::builder().threads(0).build().unwrap();
        let _peers = [group(field, &pool, 3, 3), group(field, &pool, 2, 0)];
        drop(pool);
        field.wait();
    }),
    // Work and timers.
    ("posts, done", |field| {
        let (pool, grenade) = (pool(), field.grenade());
        pool.post(move |_| grenade.touch()).unwrap();
        field.wait();
        check_alive(&pool);
    }),
    ("posts, not done", |field| {
        let pool = pool();
        let go = keep_busy(&pool);
        for grenade in [field.grenade(), field.grenade()] {
            pool.post(move |_| grenade.touch()).unwrap();
        }
        drop(pool);
        drop(go);
        field.wait();
    }),
    ("timers, called", |field| {
        let (pool, once, every) = (pool(), field.grenade(), field.grenade());
        let span = Duration::from_millis(1);
        pool.after(span, move |_| once.touch()).unwrap();
        let tick = move |cx: &mut TickContext<'_>| {
            every.touch();
            cx.stop();
        };
        pool.every(span, tick).unwrap();
        field.wait();
        check_alive(&pool);
    }),
    ("timers, cancelled", |field| {
        let (pool, once, every) = (pool(), field.grenade(), field.grenade());
        let timer = pool.after(LONG, move |_| once.touch()).unwrap();
        timer.cancel().unwrap();
        let timer = pool.every(LONG, move |_| every.touch()).unwrap();
        drop(timer.cancel_on_drop());
        field.wait();
        check_alive(&pool);
    }),
    ("timers, not due at the end", |field| {
        let (pool, once, every) = (pool(), field.grenade(), field.grenade());
        pool.after(LONG, move |_| once.touch()).unwrap();
        pool.every(LONG, move |_| every.touch()).unwrap();
        drop(pool);
        field.wait();
    }),
    ("work for afterwards, done", |field| {
        let mut grenade = Some(field.grenade());
        served(field, move |cx| {
            let grenade = grenade.take();
            cx.after_release(move |_| grenade.iter().for_each(Grenade::touch));
            Ok(Next::Close)
        });
    }),
    ("work for afterwards, of a handler that panicked", |field| {
        let mut grenades = vec![field.grenade(), field.grenade()];
        served(field, move |cx| {
            for grenade in grenades.drain(..) {
                cx.after_release(move |_| grenade.touch());
            }
            panic!("on purpose")
        });
    }),
    // Items.
    ("items, handled", |field| {
        let pool = Pool::builder().threads(1).panics(Panics::Keep);
        let (pool, of_handler) = (pool.build().unwrap(), field.grenade());
        let handler = move |item: Grenade, _: &mut TaskContext<'_>| {
            of_handler.touch();
            drop(item);
        };
        let queue = pool.sources().queue(8, handler).unwrap();
        (0..3).for_each(|_| queue.send(field.grenade()).unwrap());
        drop(queue);
        field.wait();
        check_alive(&pool);
    }),
    ("items, left at the end", |field| {
        let pool = Pool::builder().threads(0).build().unwrap();
        let of_handler = field.grenade();
        let handler = move |_: Grenade, _: &mut TaskContext<'_>| of_handler.touch();
        let queue = pool.sources().queue(8, handler).unwrap();
        (0..3).for_each(|_| queue.send(field.grenade()).unwrap());
        drop(pool);
        field.wait();
    }),
    ("items and handlers of several threads", |field| {
        let pool = Pool::builder().threads(0).build().unwrap();
        let of_handler = Mutex::new(field.grenade());
        let handler = move |_: Grenade, _: &mut TaskContext<'_>| of_handler.lock().unwrap().touch();
        let queue = pool.sources().queue_concurrent(8, handler).unwrap();
        (0..3).for_each(|_| queue.send(field.grenade()).unwrap());
        drop(pool);
        field.wait();
    }),
    ("handlers of semaphores and signals", |field| {
        let (pool, one, all) = (pool(), field.grenade(), Mutex::new(field.grenade()));
        let (by_force, of_signals) = (field.grenade(), field.grenade());
        let handler = move |(): (), _: &mut TaskContext<'_>| one.touch();
        drop(pool.sources().semaphore(1, handler).unwrap());
        let handler = move |(): (), _: &mut TaskContext<'_>| all.lock().unwrap().touch();
        drop(pool.sources().semaphore_concurrent(1, handler).unwrap());
        let handler = move |(): (), _: &mut TaskContext<'_>| by_force.touch();
        let _kept = pool.sources().semaphore(0, handler).unwrap();
        let handler = move |_: Signal, _: &mut TaskContext<'_>| of_signals.touch();
        pool.sources().signals([Signal::USR1], handler).unwrap();
        check_alive(&pool);
        drop(pool);
        field.wait();
    }),
    // Listeners and connections.
    ("makers of handlers", |field| {
        let (pool, closed, left) = (pool(), field.grenade(), field.grenade());
        let ignore = |_: &mut Context<'_, TcpStream>| Ok(Next::Continue);
        let make = move |_: &TcpStream, _| {
            closed.touch();
            Some(ignore)
        };
        let listener = pool.listen("127.0.0.1:0", make).unwrap();
        listener.handle().close().unwrap();
        let make = move |_: &TcpStream, _| {
            left.touch();
            Some(ignore)
        };
        pool.listen("127.0.0.1:0", make).unwrap();
        check_alive(&pool);
        drop(pool);
        field.wait();
    }),
    ("handlers of connections that fail", |field| {
        let (pool, grenade) = (pool(), field.grenade());
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = unused.local_addr().unwrap();
        drop(unused);
        let handler = move |_: &mut Context<'_, TcpStream>| {
            grenade.touch();
            Ok(Next::Continue)
        };
        pool.connect(address, LONG, handler).unwrap();
        field.wait();
        check_alive(&pool);
    }),
];

/// No panic of a destructor aborts the process, takes a thread along, or keeps another value from
/// being dropped.
#[test]
fn what_a_registration_has() {
    each_survives(module_path!(), "what_a_registration_has", TABLE);
}
