//! L5, where values of the user's are dropped that several threads share: observers, hooks and
//! settings of a pool, sources of a `SourcePool`, what a `Mux` has. A source that panicked when it
//! was dropped aborted the process: its end was caught, but the thread that led it had the last
//! reference, and dropped that in the middle of its turn. So did an observer that went while a
//! thread called it, and two hooks of one pool. Now a destructor of the user's takes nothing along,
//! on any thread and in any place.
//!
//! One table: each row drops values that panic, in one place. (What belongs to one registration is
//! in the other one.)

use std::{
    io::{self, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    panic::{catch_unwind, AssertUnwindSafe},
    sync::{mpsc, Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::support::grenades::{
    check_alive, each_survives, keep_busy, pool, Explosive, Field, Grenade, Row,
};
use crate::support::{tcp_pair, wait_until, LONG};
use paceline::{
    bound::{self, Header, Mux, Protocol, Whose},
    observe::{Observer, Role},
    Arrived, BlockingSource, Context, HandleId, Interest, Interrupter, Next, Order, Pool,
    SourcePool, TaskContext,
};

/// An observer, whose calls may be slow.
struct Watcher {
    _grenade: Grenade,
    /// Sends word of its call for an event, and waits for permission to go on.
    slow: Option<(mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>)>,
}

impl Observer for Watcher {
    fn role_changed(&self, _: usize, role: Role) {
        if let (Role::Processing, Some((sender, gate))) = (role, &self.slow) {
            sender.send(()).unwrap();
            let _ = gate.lock().unwrap().recv_timeout(LONG);
        }
    }
}

fn watcher(field: &Field) -> Watcher {
    Watcher {
        _grenade: field.grenade(),
        slow: None,
    }
}

/// An observer that panics in all calls where it may.
struct Fails;

impl Observer for Fails {
    fn panicked(&self, _: HandleId, _: &str) {
        panic!("panicked fails");
    }

    fn failed(&self, _: HandleId, _: &io::Error) {
        panic!("failed fails");
    }

    fn grown(&self, _: usize) {
        panic!("grown fails");
    }

    fn retired(&self, _: usize) {
        panic!("retired fails");
    }
}

/// A pool with hooks, settings and observers that panic when they are dropped.
fn with_hooks(field: &Field) -> Pool {
    let grenades: Vec<_> = (0..7).map(|_| field.grenade()).collect();
    let [of_panic, of_end, of_error, of_stuck, of_priority, of_nice, of_cores] =
        <[Grenade; 7]>::try_from(grenades).unwrap();
    let builder = Pool::builder().threads(1).order(Order::Priority);
    builder
        .on_panic(move |_, _| of_panic.touch())
        .on_closed(move |_| of_end.touch())
        .on_error(move |_| of_error.touch())
        .stuck_after(Duration::from_secs(3600), move |_| of_stuck.touch())
        .thread_priority(move |_| {
            of_priority.touch();
            1
        })
        .thread_nice(move |_| {
            of_nice.touch();
            0
        })
        .thread_affinity(move |_| {
            of_cores.touch();
            Vec::new()
        })
        .observer(watcher(field))
        .observer(watcher(field))
        .build()
        .unwrap()
}

/// A source of a `SourcePool`, with an interrupter. Its first wait returns this.
struct Waits {
    _grenade: Grenade,
    says: Option<io::Result<Arrived<()>>>,
    interrupted: Arc<(Mutex<bool>, Condvar)>,
    of_interrupter: Mutex<Option<Grenade>>,
}

impl BlockingSource for Waits {
    type Event = ();

    fn wait(&mut self, _: Option<Instant>) -> io::Result<Arrived<()>> {
        if let Some(says) = self.says.take() {
            return says;
        }
        let (interrupted, moved) = &*self.interrupted;
        let waited = moved.wait_timeout_while(interrupted.lock().unwrap(), LONG, |interrupted| {
            !*interrupted
        });
        drop(waited);
        Ok(Arrived::Nothing)
    }

    fn interrupter(&self) -> Option<Interrupter> {
        let grenade = self.of_interrupter.lock().unwrap().take()?;
        let interrupted = Arc::clone(&self.interrupted);
        Some(Box::new(move || {
            grenade.touch();
            *interrupted.0.lock().unwrap() = true;
            interrupted.1.notify_all();
        }))
    }
}

fn waits(field: &Field, says: Option<io::Result<Arrived<()>>>) -> Waits {
    Waits {
        _grenade: field.grenade(),
        says,
        interrupted: Arc::default(),
        of_interrupter: Mutex::new(Some(field.grenade())),
    }
}

/// A pool of such a source, which says this, and of one that is still served afterwards.
fn source_pool(field: &Field, says: io::Result<Arrived<()>>) {
    let (send, receive) = mpsc::channel();
    let (sender, done) = mpsc::channel();
    let of_handler = field.grenade();
    let pool = SourcePool::builder()
        .threads(3)
        .source("bad", waits(field, Some(says)), move |()| {
            of_handler.touch()
        })
        .source("good", receive, move |()| sender.send(()).unwrap())
        .build()
        .unwrap();
    wait_until(|| pool.snapshot().sources == 1);
    send.send(()).unwrap();
    done.recv_timeout(LONG).unwrap();
    drop(pool);
    field.wait();
}

/// One byte of id, one byte of body.
struct Tiny(Grenade);

impl Protocol for Tiny {
    type Request = u8;
    const ID_BITS: u32 = 8;

    fn encode(&self, request: &u8, id: u64, out: &mut Vec<u8>) -> io::Result<()> {
        self.0.touch();
        out.extend([id as u8, *request]);
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        Ok(bytes.first().map(|id| Header {
            whose: Whose::Call((*id).into()),
            skip: 1,
            length: 1,
        }))
    }
}

/// A connection whose stream, protocol and connector panic when they are dropped; and its first
/// peer.
fn mux(field: &Field) -> (Mux<Tiny>, TcpStream) {
    let ((near, far), of_connector) = (tcp_pair(), field.grenade());
    let stream = Explosive {
        stream: near,
        grenade: field.grenade(),
    };
    let first = Mutex::new(Some(stream));
    let connect = move || {
        of_connector.touch();
        let first = first.lock().unwrap().take();
        first.ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
    };
    let mux = bound::Builder::new()
        .calls(16)
        .connect_with(connect, Tiny(field.grenade()))
        .unwrap();
    (mux, far)
}

const TABLE: &[Row] = &[
    // Hooks, settings and observers.
    ("hooks and settings, dropped by the caller", |field| {
        let pool = with_hooks(field);
        assert!(pool.shutdown(LONG).is_clean());
        drop(pool);
        field.wait();
    }),
    (
        "hooks and settings, dropped by a thread of the pool",
        |field| {
            let pool = with_hooks(field);
            let go = keep_busy(&pool);
            drop(pool);
            drop(go);
            field.wait();
        },
    ),
    ("hooks and settings, while a panic unwinds", |field| {
        let pool = with_hooks(field);
        assert!(pool.shutdown(LONG).is_clean());
        let unwinding = AssertUnwindSafe(move || {
            let _pool = pool;
            panic!("on purpose");
        });
        assert!(catch_unwind(unwinding).is_err());
        field.wait();
    }),
    ("settings of a pool that is never built", |field| {
        let (first, second) = (field.grenade(), field.grenade());
        let builder = Pool::builder().on_panic(move |_, _| first.touch());
        drop(builder.on_panic(move |_, _| second.touch()));
        field.wait();
    }),
    (
        "observers, dropped by the thread that has added them",
        |field| {
            let pool = pool();
            drop(pool.observe(watcher(field)));
            field.wait();
            check_alive(&pool);
        },
    ),
    (
        "observers, dropped by the thread that calls them",
        |field| {
            let pool = pool();
            let ((sender, done), (go, gate)) = (mpsc::channel(), mpsc::channel());
            let observation = pool.observe(Watcher {
                slow: Some((sender, Mutex::new(gate))),
                ..watcher(field)
            });
            let post = pool.post(|_| {});
            post.unwrap();
            done.recv_timeout(LONG).unwrap();
            drop(observation);
            drop(go);
            field.wait();
            check_alive(&pool);
        },
    ),
    ("observers, left at the end", |field| {
        let pool = pool();
        let go = keep_busy(&pool);
        std::mem::forget([pool.observe(watcher(field)), pool.observe(watcher(field))]);
        drop(pool);
        drop(go);
        field.wait();
    }),
    // And where they are called, not dropped.
    ("hooks and observers that panic in their calls", |field| {
        let pool = Pool::builder()
            .threads(1)
            .on_panic(|_, _| panic!("on_panic fails"))
            .on_closed(|_| panic!("on_closed fails"))
            .observer(Fails)
            .observer(Fails)
            .build()
            .unwrap();
        let _observation = pool.observe(Fails);
        for fails in [true, false] {
            let (source, mut peer) = UnixStream::pair().unwrap();
            let grenade = field.grenade();
            let handler = move |_: &mut Context<'_, UnixStream>| -> io::Result<Next> {
                grenade.touch();
                assert!(fails, "on purpose");
                Err(io::Error::other("on purpose"))
            };
            pool.register(source, Interest::READ, handler).unwrap();
            peer.write_all(b"x").unwrap();
            field.wait();
        }
        check_alive(&pool);
    }),
    ("observers of threads that come and go", |_| {
        let pool = Pool::builder()
            .threads(1..=3)
            .keep_alive(Duration::from_millis(1));
        let pool = pool.observer(Fails).build().unwrap();
        let busy = [keep_busy(&pool), keep_busy(&pool)];
        check_alive(&pool);
        drop(busy);
        // A leader and its standby stay.
        wait_until(|| pool.snapshot().retired > 0);
        check_alive(&pool);
    }),
    // Sources with leaders of their own.
    ("blocking source, over", |field| {
        source_pool(field, Ok(Arrived::Over));
    }),
    ("blocking source, failed, and the error", |field| {
        let error = io::Error::other(field.grenade());
        source_pool(field, Err(error));
    }),
    ("blocking sources, left at the end", |field| {
        let (one, other) = (field.grenade(), field.grenade());
        let pool = SourcePool::builder()
            .source("one", waits(field, None), move |()| one.touch())
            .source("other", waits(field, None), move |()| other.touch())
            .build()
            .unwrap();
        wait_until(|| pool.snapshot().leaders == 2);
        drop(pool);
        field.wait();
    }),
    ("blocking sources of a pool that is never built", |field| {
        let (one, other) = (field.grenade(), field.grenade());
        let builder = SourcePool::builder()
            .source("one", waits(field, None), move |()| one.touch())
            .source("other", waits(field, None), move |()| other.touch());
        drop(builder);
        field.wait();
    }),
    // Connections of many callers.
    ("stream, protocol and connector", |field| {
        drop(mux(field));
        field.wait();
    }),
    ("stream, lost while a caller leads", |field| {
        let (mux, far) = mux(field);
        let caller = mux.clone();
        let caller = thread::spawn(move || caller.call(&1, LONG).map(drop));
        wait_until(|| mux.callers().led);
        drop(far);
        assert!(caller.join().unwrap().is_err());
        drop(mux);
        field.wait();
    }),
    ("stream, protocol and connector, read by a pool", |field| {
        let pool = pool();
        let (mux, far) = mux(field);
        pool.attach(&mux).unwrap();
        let (sender, done) = mpsc::channel();
        let caller = move |cx: &mut TaskContext<'_>| {
            sender.send(()).unwrap();
            assert!(mux.call_in(cx, &1, LONG).is_err());
        };
        pool.post(caller).unwrap();
        done.recv_timeout(LONG).unwrap();
        drop(far);
        field.wait();
        check_alive(&pool);
    }),
];

/// No panic of a destructor aborts the process, takes a thread along, or keeps another value from
/// being dropped.
#[test]
fn what_threads_share() {
    each_survives(module_path!(), "what_threads_share", TABLE);
}
