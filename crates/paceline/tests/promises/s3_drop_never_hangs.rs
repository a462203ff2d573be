//! S3: dropping a pool never hangs, wherever its last handle is dropped.

use std::{
    cell::RefCell,
    io::{self, Read, Write},
    net::TcpStream,
    sync::{mpsc, Arc, Mutex},
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{claim, lead, Scene},
    tcp_pair, told, wait_until, Witness, LONG,
};
use paceline::{observe::Role, Closed, Context, EventHandler, Interest, Next, Pool};

fn watched(threads: usize) -> (Pool, Witness) {
    let witness = Witness::default();
    let pool = Pool::builder()
        .threads(threads)
        .observer(witness.clone())
        .build()
        .unwrap();
    (pool, witness)
}

/// Dropped by its owner while the leader sleeps: the threads go, and idle handles are told.
#[test]
fn from_outside() {
    bounded(|| {
        let (pool, witness) = watched(4);
        witness.wait_for(Role::Leader, 1);
        witness.wait_for(Role::Follower, 3);
        let (near, mut far) = tcp_pair();
        let (handler, end) = told(|_: &mut Context<'_, TcpStream>| Ok(Next::Continue));
        let handle = pool.register(near, Interest::READ, handler).unwrap();
        drop(pool);
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Shutdown)));
        assert_eq!(far.read_to_end(&mut Vec::new()).unwrap(), 0);
        witness.wait_for(Role::Gone, 4);
        let stale = handle.close().unwrap_err();
        assert_eq!(stale.kind(), io::ErrorKind::NotFound);
    });
}

/// Dropped right after the build, before its threads have run.
#[test]
fn right_after_the_build() {
    bounded(|| {
        for _ in 0..100 {
            let (pool, witness) = watched(3);
            drop(pool);
            witness.wait_for(Role::Gone, 3);
        }
    });
}

/// Clones share the pool: it lives until the last one goes, also one in a thread that is lent to
/// it.
#[test]
fn while_threads_are_joined() {
    bounded(|| {
        let (pool, witness) = watched(0);
        let (near, mut far) = tcp_pair();
        let weak = pool.downgrade();
        let handler = move |cx: &mut Context<'_, TcpStream>| {
            let mut byte = [0];
            cx.read(&mut byte)?;
            cx.write_all(&byte)?;
            if byte == *b"e" {
                let pool = weak.upgrade().unwrap();
                assert!(pool.shutdown(LONG).is_clean());
            }
            Ok(Next::Continue)
        };
        pool.register(near, Interest::READ, handler).unwrap();
        let joined: Vec<_> = (0..2)
            .map(|_| {
                let pool = pool.clone();
                thread::spawn(move || pool.join())
            })
            .collect();
        // Both are inside: one leads, and the other does not.
        wait_until(|| witness.count(Role::Leader) == 1 && witness.count(Role::Follower) == 1);
        drop(pool);
        far.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        far.write_all(b"e").unwrap();
        for thread in joined {
            thread.join().unwrap().unwrap();
        }
        witness.wait_for(Role::Gone, 2);
    });
}

/// A handler that owns the last handle to its own pool drops it while it runs: the drop does not
/// wait for the handler, which goes on to its end and is told then.
#[test]
fn from_a_handler() {
    bounded(|| {
        let (pool, witness) = watched(2);
        let (near, mut far) = tcp_pair();
        let (dropped, is_dropped) = mpsc::channel();
        let mut last = Some(pool.clone());
        let (gate, open) = mpsc::channel::<()>();
        let (handler, end) = told(move |_: &mut Context<'_, TcpStream>| {
            open.recv_timeout(LONG).unwrap();
            drop(last.take());
            dropped.send(()).unwrap();
            Ok(Next::Continue)
        });
        pool.register(near, Interest::READ, handler).unwrap();
        far.write_all(b"x").unwrap();
        drop(pool);
        gate.send(()).unwrap();
        is_dropped.recv_timeout(LONG).unwrap();
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Shutdown)));
        witness.wait_for(Role::Gone, 2);
        assert!(is_dropped.recv_timeout(LONG).is_err(), "called again");
    });
}

/// The last handle to the pool is inside a handler that ends: it is dropped together with the
/// handler, by a thread of the pool or by the thread that closed it.
#[test]
fn together_with_a_handler() {
    bounded(|| {
        for by_pool in [false, true] {
            let (pool, witness) = watched(2);
            let (near, mut far) = tcp_pair();
            let last = pool.clone();
            let (handler, end) = told(move |_: &mut Context<'_, TcpStream>| {
                let _ = &last;
                Ok(Next::Close)
            });
            let handle = pool.register(near, Interest::READ, handler).unwrap();
            drop(pool);
            if by_pool {
                far.write_all(b"x").unwrap()
            } else {
                handle.close().unwrap()
            }
            end.recv_timeout(LONG).unwrap();
            witness.wait_for(Role::Gone, 2);
        }
    });
}

/// `closed` drops the last handle to the pool.
#[test]
fn from_closed() {
    bounded(|| {
        let (pool, witness) = watched(2);
        let (near, mut far) = tcp_pair();
        let (done, is_done) = mpsc::channel();
        let handler = DropsWhenClosed(Some(pool.clone()), done);
        pool.register(near, Interest::READ, handler).unwrap();
        drop(pool);
        far.write_all(b"x").unwrap();
        is_done.recv_timeout(LONG).unwrap();
        witness.wait_for(Role::Gone, 2);
    });
}

struct DropsWhenClosed(Option<Pool>, mpsc::Sender<()>);

impl EventHandler<TcpStream> for DropsWhenClosed {
    fn ready(&mut self, _: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        Ok(Next::Close)
    }

    fn closed(&mut self, _: Closed) {
        drop(self.0.take());
        self.1.send(()).unwrap();
    }
}

/// A handler does not return: the drop leaves it alone. Its thread goes when it does.
#[test]
fn while_a_handler_is_stuck() {
    bounded(|| {
        let (pool, witness) = watched(2);
        let (near, mut far) = tcp_pair();
        let (entered, has_entered) = mpsc::channel();
        let (gate, open) = mpsc::channel::<()>();
        let (handler, end) = told(move |_: &mut Context<'_, TcpStream>| {
            entered.send(()).unwrap();
            open.recv_timeout(LONG).unwrap();
            Ok(Next::Continue)
        });
        pool.register(near, Interest::READ, handler).unwrap();
        far.write_all(b"x").unwrap();
        has_entered.recv_timeout(LONG).unwrap();
        drop(pool);
        witness.wait_for(Role::Gone, 1);
        assert!(end.try_recv().is_err(), "its handler still runs");
        gate.send(()).unwrap();
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Shutdown)));
        witness.wait_for(Role::Gone, 2);
    });
}

/// The factory of a listener drops the last handle while it accepts: the connection is refused, and
/// everything ends.
#[test]
fn from_a_listeners_factory() {
    bounded(|| {
        let (pool, witness) = watched(2);
        let last = Arc::new(Mutex::new(Some(pool.clone())));
        let listener = pool.listen("127.0.0.1:0", move |_, _| {
            drop(last.lock().unwrap().take());
            Some(|_: &mut Context<'_, TcpStream>| Ok(Next::Continue))
        });
        let address = listener.unwrap().local_addr();
        drop(pool);
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        // Refused: the end of the stream, or a reset.
        assert!(!matches!(client.read(&mut [0]), Ok(1)));
        witness.wait_for(Role::Gone, 2);
    });
}

/// Dropped while messages flow, at any moment.
#[test]
fn under_load() {
    bounded(|| {
        for round in 0..50 {
            let (pool, witness) = watched(3);
            let clients: Vec<_> = (0..4)
                .map(|_| {
                    let (near, far) = tcp_pair();
                    pool.register(near, Interest::READ, |cx: &mut Context<'_, TcpStream>| {
                        let mut buffer = [0; 64];
                        let count = cx.read(&mut buffer)?;
                        cx.write_all(&buffer[..count])?;
                        Ok(Next::Continue)
                    })
                    .unwrap();
                    far
                })
                .collect();
            for mut client in clients.iter().cycle().take(round) {
                let _ = client.write_all(b"x");
            }
            drop(pool);
            witness.wait_for(Role::Gone, 3);
        }
    });
}

thread_local! {
    static POOL: RefCell<Option<Pool>> = const { RefCell::new(None) };
}

/// The last handle to a pool is a variable of a thread, and is dropped when that thread ends: later
/// than whatever the pool itself keeps there.
#[test]
fn from_a_variable_of_a_thread() {
    bounded(|| {
        let ended = thread::spawn(|| {
            // First used here, so dropped last.
            POOL.with(|pool| assert!(pool.borrow().is_none()));
            let pool = Pool::builder().threads(1).build().unwrap();
            pool.join_timeout(Duration::from_millis(5)).unwrap();
            POOL.with(|place| *place.borrow_mut() = Some(pool));
        });
        ended.join().unwrap();
    });
}

/// S1, S3: a handler whose `closed` waits for the end of its timer, which waits for its turn, when
/// the pool ends. The thread that ends the pool ends the timer as well.
#[test]
fn the_end_waits_for_no_turn() {
    const SOON: Duration = Duration::from_millis(5);
    struct WithTimer(Arc<Mutex<Option<paceline::Timer>>>);
    impl<S> EventHandler<S> for WithTimer {
        fn ready(&mut self, _: &mut Context<'_, S>) -> io::Result<Next> {
            Ok(Next::Continue)
        }

        fn closed(&mut self, _: Closed) {
            let timer = self.0.lock().unwrap().take();
            let _ = timer.expect("a timer").cancel_and_wait();
        }
    }
    bounded(|| {
        for cancelled_before in [false, true] {
            let scene = Scene::unobserved();
            let place = Arc::new(Mutex::new(None));
            let _peer = scene.serve(WithTimer(Arc::clone(&place)));
            let timer = scene.pool.after(SOON, |_| {}).unwrap();
            scene.world.clock().advance(SOON);
            drop(claim(lead(&scene.pool)));
            if cancelled_before {
                timer.cancel().unwrap();
            }
            *place.lock().unwrap() = Some(timer);
            drop(scene);
        }
    });
}
