//! The end of a registration: who is told what, in which order, and who waits for it
//! (`close_and_wait`).

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc, Arc, Mutex,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{own_task, serve_all, sleeps},
    wait_until, LONG,
};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Closed, Context, EventHandler, Handle, Interest, Next, Pool, SetKind, WeakPool,
};
use paceline::{Descriptor, Source};

type Cx<'c> = Context<'c, Noting>;

/// Notes what happens. At one kind of note it may hold up whoever makes it.
#[derive(Default)]
struct Diary {
    notes: Mutex<Vec<String>>,
    gate: Mutex<Option<Gate>>,
}

struct Gate {
    at: &'static str,
    inside: mpsc::Sender<()>,
    permission: mpsc::Receiver<()>,
}

impl Diary {
    fn note(&self, what: String) {
        let mut gate = self.gate.lock().unwrap();
        if let Some(gate) = gate.take_if(|gate| what.starts_with(gate.at)) {
            gate.inside.send(()).unwrap();
            let _ = gate.permission.recv_timeout(LONG);
        }
        self.notes.lock().unwrap().push(what);
    }

    /// The next note of this kind waits: the receiver tells when somebody is there, the sender lets
    /// go.
    fn hold_at(&self, at: &'static str) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (inside, told) = mpsc::channel();
        let (open, permission) = mpsc::channel();
        let gate = Gate {
            at,
            inside,
            permission,
        };
        *self.gate.lock().unwrap() = Some(gate);
        (told, open)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap().clone()
    }
}

/// Everything that is told at an end for this reason, in order.
fn whole_end(why: &str) -> Vec<String> {
    vec![
        format!("hook: {why}"),
        format!("closed: {why}"),
        "handler dropped".to_owned(),
        "source dropped".to_owned(),
    ]
}

/// A source that notes its end.
struct Noting {
    stream: SimStream,
    diary: Arc<Diary>,
}

impl Source for Noting {
    fn descriptor(&self) -> Descriptor<'_> {
        self.stream.descriptor()
    }
}

impl Read for &Noting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.stream).read(buffer)
    }
}

impl Write for &Noting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        self.diary.note("source dropped".to_owned());
    }
}

/// A handler that notes its end.
struct Mortal<F> {
    ready: F,
    diary: Arc<Diary>,
}

impl<F> EventHandler<Noting> for Mortal<F>
where
    F: FnMut(&mut Cx<'_>) -> io::Result<Next> + Send + 'static,
{
    fn ready(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        (self.ready)(cx)
    }

    fn closed(&mut self, why: Closed) {
        self.diary.note(format!("closed: {why}"));
    }
}

impl<F> Drop for Mortal<F> {
    fn drop(&mut self) {
        self.diary.note("handler dropped".to_owned());
    }
}

/// A pool without threads of its own, whose hook writes into the diary.
struct Bench {
    world: Simulation,
    pool: Pool,
    diary: Arc<Diary>,
}

impl Bench {
    fn new() -> Self {
        let (world, diary) = (Simulation::new(1), Arc::new(Diary::default()));
        let of_hook = Arc::clone(&diary);
        let pool = Pool::builder()
            .threads(0)
            .handle_set(SetKind::Simulated(world.clone()))
            .on_closed(move |closed| of_hook.note(format!("hook: {}", closed.reason())));
        Self {
            pool: pool.build().unwrap(),
            world,
            diary,
        }
    }

    /// A connection that calls `ready` for its one byte.
    fn mortal<F>(&self, ready: F) -> (Handle, SimPeer)
    where
        F: FnMut(&mut Cx<'_>) -> io::Result<Next> + Send + 'static,
    {
        let (stream, peer) = self.world.stream();
        let diary = Arc::clone(&self.diary);
        let handler = Mortal {
            ready,
            diary: Arc::clone(&diary),
        };
        let source = Noting { stream, diary };
        let handle = self.pool.register(source, Interest::READ, handler);
        peer.send(b"x");
        (handle.unwrap(), peer)
    }

    fn serve_elsewhere(&self) -> JoinHandle<usize> {
        let pool = self.pool.clone();
        thread::spawn(move || serve_all(&pool))
    }
}

fn read_and_stay(cx: &mut Cx<'_>) -> io::Result<Next> {
    cx.read(&mut [0; 8])?;
    Ok(Next::Continue)
}

/// Every way to end is told to the hook, by its name, and then to the handler, and then handler and
/// source are dropped: each once and in this order. Only what failed counts as failed.
#[test]
fn every_end_is_told_once_and_in_order() {
    bounded(|| {
        type Ready = fn(&mut Cx<'_>) -> io::Result<Next>;
        let ways: [(Ready, &str); 5] = [
            (|_| Ok(Next::Close), "finished"),
            (|_| Err(io::Error::other("no")), "failed: no"),
            (|_| panic!("ouch"), "the handler panicked: ouch"),
            (
                |cx| cx.handle().close().map(|()| Next::Continue),
                "closed on request",
            ),
            (read_and_stay, "the pool was shut down"),
        ];
        for (ready, why) in ways {
            let bench = Bench::new();
            let (_handle, peer) = bench.mortal(ready);
            serve_all(&bench.pool);
            let _ = bench.pool.shutdown(Duration::ZERO);
            assert_eq!(bench.diary.notes(), whole_end(why));
            assert!(peer.is_closed_by_pool());
            let failed = u64::from(why.starts_with("failed"));
            assert_eq!(bench.pool.snapshot().failed, failed, "{why}");
            drop(bench.pool);
            assert_eq!(bench.diary.notes().len(), 4);
        }
    });
}

/// A closure has no `closed`, so its errors went unseen. The hook sees them: those that it returns,
/// and those that happen when nobody is in it, because kept output can't be sent.
#[test]
fn errors_of_closures_reach_the_hook() {
    bounded(|| {
        let world = Simulation::new(1);
        let (tell, told) = mpsc::channel();
        let pool = Pool::builder()
            .threads(0)
            .handle_set(SetKind::Simulated(world.clone()))
            .on_closed(move |closed| match closed.reason() {
                Closed::Failed(error) => tell.send((closed.id(), error.kind())).unwrap(),
                other => panic!("{other}"),
            });
        let pool = pool.build().unwrap();
        let register = |handler: fn(&mut Context<'_, SimStream>) -> io::Result<Next>| {
            let (stream, peer) = world.stream();
            let handle = pool.register(stream, Interest::READ, handler).unwrap();
            peer.send(b"x");
            serve_all(&pool);
            (handle, peer)
        };
        let (fails, _) = register(|_| Err(io::ErrorKind::AddrInUse.into()));
        let (loses, peer) = register(|cx| {
            while cx.read(&mut [0; 8]).is_ok() {}
            cx.write_all(&[7; 200]).map(|()| Next::Continue)
        });
        peer.reset();
        serve_all(&pool);
        let expected = [
            (fails.id(), io::ErrorKind::AddrInUse),
            (loses.id(), io::ErrorKind::BrokenPipe),
        ];
        assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
        assert_eq!((pool.snapshot().failed, pool.snapshot().panics), (2, 0));
    });
}

/// Handles are closed by several threads, by their own handlers and by a shutdown, all at the same
/// time: the hook hears of each registration once.
#[test]
fn hook_is_told_once_whoever_closes() {
    bounded(|| {
        const HANDLES: usize = 300;
        let (world, told) = (
            Simulation::one_shot(1),
            Arc::new(Mutex::new(HashMap::new())),
        );
        let of_hook = Arc::clone(&told);
        let pool = Pool::builder()
            .threads(3)
            .handle_set(SetKind::Simulated(world.clone()))
            .on_closed(move |closed| *of_hook.lock().unwrap().entry(closed.id()).or_insert(0) += 1);
        let pool = pool.build().unwrap();
        let (handles, peers): (Vec<_>, Vec<_>) = (0..HANDLES)
            .map(|_| {
                let (stream, peer) = world.stream();
                let handler = |_: &mut Context<'_, SimStream>| Ok(Next::Close);
                (
                    pool.register(stream, Interest::READ, handler).unwrap(),
                    peer,
                )
            })
            .unzip();
        let closers: Vec<_> = (0..2)
            .map(|_| {
                let handles = handles.clone();
                thread::spawn(move || handles.iter().for_each(|handle| drop(handle.close())))
            })
            .collect();
        peers.iter().step_by(2).for_each(|peer| peer.send(b"x"));
        let report = pool.shutdown(LONG);
        closers
            .into_iter()
            .for_each(|closer| closer.join().unwrap());
        assert!(report.is_clean(), "{report}");
        let told = told.lock().unwrap();
        assert!(
            handles.iter().all(|handle| told[&handle.id()] == 1),
            "{told:?}"
        );
        assert_eq!(told.len(), HANDLES);
    });
}

/// What a report says is read in logs: it names the threads that are stuck, and says nothing about
/// what did not happen.
#[test]
fn reports_name_what_is_left_and_nothing_else() {
    bounded(|| {
        let bench = Bench::new();
        assert_eq!(
            bench.pool.shutdown(LONG).to_string(),
            "everything was finished"
        );

        let bench = Bench::new();
        bench.mortal(|cx| cx.write_all(&[7; 200]).and_then(|()| read_and_stay(cx)));
        serve_all(&bench.pool);
        let report = bench.pool.shutdown(Duration::ZERO).to_string();
        assert_eq!(report, "1 handle closed unfinished (136 bytes unsent)");

        let world = Simulation::new(1);
        let pool = Pool::builder()
            .threads(1)
            .name("rider")
            .handle_set(SetKind::Simulated(world.clone()));
        let pool = pool.build().unwrap();
        let (stream, peer) = world.stream();
        let (permission, gate) = mpsc::channel::<()>();
        let handler = move |cx: &mut Context<'_, SimStream>| {
            cx.write_all(b"inside")?;
            let _ = gate.recv_timeout(LONG);
            Ok(Next::Close)
        };
        pool.register(stream, Interest::READ, handler).unwrap();
        peer.send(b"x");
        assert_eq!(peer.wait_for(6), b"inside");
        let report = pool.shutdown(Duration::ZERO).to_string();
        assert_eq!(
            report,
            "1 handle still busy; 1 thread stuck: rider-0 (thread 0)"
        );
        drop(permission);
        peer.wait_closed();
    });
}

/// Waits for the end of a handle on a thread of its own, and tells what the diary said then.
fn waiter(bench: &Bench, handle: &Handle) -> JoinHandle<(io::Result<()>, Vec<String>)> {
    let (handle, diary) = (handle.clone(), Arc::clone(&bench.diary));
    let task = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&task);
    let waiter = thread::spawn(move || {
        told.store(own_task(), Ordering::SeqCst);
        let waited = handle.close_and_wait();
        (waited, diary.notes())
    });
    // It sleeps, or it has not waited at all.
    wait_until(|| {
        let task = task.load(Ordering::SeqCst);
        waiter.is_finished() || (task != 0 && sleeps(task))
    });
    waiter
}

/// Everything has happened when a waiter returns. (One that came too late is told that it is over.)
fn assert_waited(waiter: JoinHandle<(io::Result<()>, Vec<String>)>, why: &str) {
    let (waited, notes) = waiter.join().unwrap();
    let told = waited.map_err(|error| error.kind());
    assert!(
        matches!(told, Ok(()) | Err(io::ErrorKind::NotFound)),
        "{told:?}"
    );
    assert_eq!(notes, whole_end(why));
}

/// An idle handle ends in the very call, which may come from another handle's handler.
#[test]
fn close_and_wait_ends_an_idle_handle() {
    bounded(|| {
        let bench = Bench::new();
        let (handle, _peer) = bench.mortal(read_and_stay);
        serve_all(&bench.pool);
        handle.close_and_wait().unwrap();
        assert_eq!(bench.diary.notes(), whole_end("closed on request"));

        let bench = Bench::new();
        let (handle, _peer) = bench.mortal(read_and_stay);
        serve_all(&bench.pool);
        let (tell, told) = mpsc::channel();
        let diary = Arc::clone(&bench.diary);
        let closer = move |cx: &mut Cx<'_>| {
            cx.blocking(|| handle.close_and_wait())?;
            tell.send(diary.notes()).unwrap();
            read_and_stay(cx)
        };
        let (_closer, _other) = bench.mortal(closer);
        serve_all(&bench.pool);
        assert_eq!(told.recv().unwrap(), whole_end("closed on request"));
    });
}

/// Somebody else has begun the end, by a call or because the handler wanted it, and is held up in
/// the middle of it: in the hook, in `closed`, in the one or the other drop. The key is stale by
/// then; whoever waits comes back when all of it is over, not before. Three at once.
#[test]
fn close_and_wait_waits_for_an_end_that_has_begun() {
    bounded(|| {
        for at in ["hook", "closed", "handler", "source"] {
            for by_itself in [false, true] {
                let bench = Bench::new();
                let (handle, _peer) = bench.mortal(move |cx| {
                    read_and_stay(cx)?;
                    Ok(if by_itself {
                        Next::Close
                    } else {
                        Next::Continue
                    })
                });
                if !by_itself {
                    serve_all(&bench.pool);
                }
                let (inside, open) = bench.diary.hold_at(at);
                let ender = if by_itself {
                    bench.serve_elsewhere()
                } else {
                    let handle = handle.clone();
                    thread::spawn(move || handle.close().map_or(1, |()| 0))
                };
                inside.recv_timeout(LONG).expect("the end begins");
                let waiters = [(); 3].map(|()| waiter(&bench, &handle));
                open.send(()).unwrap();
                let why = if by_itself {
                    "finished"
                } else {
                    "closed on request"
                };
                waiters
                    .into_iter()
                    .for_each(|waiter| assert_waited(waiter, why));
                ender.join().unwrap();
                let over = handle.close_and_wait().unwrap_err();
                assert_eq!(over.kind(), io::ErrorKind::NotFound);
            }
        }
    });
}

/// The handler runs: `close` would return at once and let it run on. Who waits for the end waits
/// for the handler, also from inside another handler, whose thread blocks for it.
#[test]
fn close_and_wait_waits_for_the_handler() {
    bounded(|| {
        for closed_before in [false, true] {
            let bench = Bench::new();
            let (tell, inside) = mpsc::channel();
            let (open, gate) = mpsc::channel::<()>();
            let (handle, _peer) = bench.mortal(move |cx| {
                tell.send(()).unwrap();
                gate.recv_timeout(LONG).expect("permission comes");
                read_and_stay(cx)
            });
            let server = bench.serve_elsewhere();
            inside.recv_timeout(LONG).expect("it is called");
            if closed_before {
                handle.close().unwrap();
            }
            let outside = waiter(&bench, &handle);
            let (tell, told) = mpsc::channel();
            let (diary, of_closer) = (Arc::clone(&bench.diary), handle.clone());
            let (_closer, _other) = bench.mortal(move |cx| {
                tell.send(Vec::new()).unwrap();
                let _too_late = cx.blocking(|| of_closer.close_and_wait());
                tell.send(diary.notes()).unwrap();
                read_and_stay(cx)
            });
            let closer = bench.serve_elsewhere();
            assert!(told.recv_timeout(LONG).unwrap().is_empty());
            assert!(bench.diary.notes().is_empty());
            open.send(()).unwrap();
            assert_waited(outside, "closed on request");
            let told = told.recv_timeout(LONG).expect("it comes back");
            assert_eq!(told, whole_end("closed on request"));
            server.join().unwrap();
            closer.join().unwrap();
        }
    });
}

/// A handler can't wait for its own end, which needs it to return. It is told so, and nothing is
/// closed; the same for the other user code that runs at the end of its handle.
#[test]
fn close_and_wait_of_ones_own_is_refused() {
    bounded(|| {
        let bench = Bench::new();
        let (tell, told) = mpsc::channel();
        let (_handle, peer) = bench.mortal(move |cx| {
            let refused = cx.handle().close_and_wait().unwrap_err();
            tell.send((refused.kind(), refused.to_string())).unwrap();
            read_and_stay(cx)
        });
        for _ in 0..2 {
            peer.send(b"x");
            serve_all(&bench.pool);
            let (kind, text) = told.try_recv().expect("it is called");
            assert_eq!(kind, io::ErrorKind::Deadlock);
            assert!(text.contains("close_and_wait: handle 0."), "{text}");
        }
        assert!(bench.diary.notes().is_empty());
    });
}

/// Hooks run while the handle is in the hands of their thread: one that waits for the end of that
/// very handle would wait for itself. It is refused, as for the handler, and the end goes on.
#[test]
fn close_and_wait_inside_hooks_is_refused() {
    bounded(|| {
        let world = Simulation::new(1);
        let handle: Arc<Mutex<Option<Handle>>> = Arc::default();
        let (tell, told) = mpsc::channel();
        let attempt = {
            let handle = Arc::clone(&handle);
            move |hook: &str| {
                let handle = handle.lock().unwrap().clone().unwrap();
                let kind = handle.close_and_wait().unwrap_err().kind();
                tell.send((hook.to_owned(), kind)).unwrap();
            }
        };
        let (of_panic, of_end) = (attempt.clone(), attempt);
        let pool = Pool::builder()
            .threads(0)
            .handle_set(SetKind::Simulated(world.clone()))
            .on_panic(move |_, _| of_panic("on_panic"))
            .on_closed(move |_| of_end("on_closed"));
        let pool = pool.build().unwrap();
        let (stream, peer) = world.stream();
        let handler = |_: &mut Context<'_, SimStream>| panic!("ouch");
        *handle.lock().unwrap() = Some(pool.register(stream, Interest::READ, handler).unwrap());
        peer.send(b"x");
        serve_all(&pool);
        let refused =
            ["on_panic", "on_closed"].map(|hook| (hook.to_owned(), io::ErrorKind::Deadlock));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), refused);
        assert!(peer.is_closed_by_pool());
    });
}

/// A pool may be shut down from anywhere. From a hook, too, that does not wait for the handle which
/// its own thread still has: it ends at once, on a clock that stands still, and reports nothing.
#[test]
fn shutdown_inside_hooks_does_not_wait_for_itself() {
    bounded(|| {
        for in_hook_of_panics in [false, true] {
            let world = Simulation::new(1);
            let weak: Arc<Mutex<Option<WeakPool>>> = Arc::default();
            let (tell, told) = mpsc::channel();
            let of_hooks = Arc::clone(&weak);
            let shut = move |now: bool| {
                if let Some(weak) = now.then(|| of_hooks.lock().unwrap().take()).flatten() {
                    let report = weak.upgrade().unwrap().shutdown(LONG);
                    tell.send(report.to_string()).unwrap();
                }
            };
            let (of_panic, of_end) = (shut.clone(), shut);
            let pool = Pool::builder()
                .threads(2)
                .handle_set(SetKind::Simulated(world.clone()))
                .on_panic(move |_, _| of_panic(in_hook_of_panics))
                .on_closed(move |_| of_end(!in_hook_of_panics));
            let pool = pool.build().unwrap();
            *weak.lock().unwrap() = Some(pool.downgrade());
            let (stream, peer) = world.stream();
            let handler = |_: &mut Context<'_, SimStream>| panic!("ouch");
            pool.register(stream, Interest::READ, handler).unwrap();
            peer.send(b"x");
            let report = told.recv_timeout(LONG).expect("it waits for itself");
            assert_eq!(report, "everything was finished");
            peer.wait_closed();
        }
    });
}
