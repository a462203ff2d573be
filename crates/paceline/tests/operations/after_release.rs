//! What a handler leaves to be done after its handle was given back: `Context::after_release`.

use std::{
    io,
    sync::{mpsc, Arc, Mutex},
    thread,
    time::Duration,
};

use crate::support::{bounded, by_hand::serve_all, LONG};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Closed, Context, EventHandler, Handle, Interest, Next, Panics, Pool, SetKind, TaskContext,
};

type Cx<'c> = Context<'c, SimStream>;

/// What happened, in order.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A pool in a world of its own; hooks and handlers write into the notes.
struct Bench {
    world: Simulation,
    pool: Pool,
    notes: Notes,
}

impl Bench {
    fn new(threads: usize, panics: Panics) -> Self {
        let (world, notes) = (Simulation::new(1), Notes::default());
        let (of_end, of_panic) = (notes.clone(), notes.clone());
        let pool = Pool::builder()
            .threads(threads)
            .panics(panics)
            .on_closed(move |closed| of_end.add(format!("hook: {}", closed.reason())))
            .on_panic(move |id, text| of_panic.add(format!("panic of {id}: {text}")))
            .handle_set(SetKind::Simulated(world.clone()));
        Self {
            pool: pool.build().unwrap(),
            world,
            notes,
        }
    }

    /// A connection that calls `ready` for each byte.
    fn serve<F>(&self, ready: F) -> (Handle, SimPeer)
    where
        F: FnMut(&mut Cx<'_>, &Notes) -> io::Result<Next> + Send + 'static,
    {
        let (stream, peer) = self.world.stream();
        let handler = Noting {
            ready,
            notes: self.notes.clone(),
        };
        let handle = self.pool.register(stream, Interest::READ, handler);
        (handle.unwrap(), peer)
    }
}

/// A handler that reads a byte per call and notes what it is told.
struct Noting<F> {
    ready: F,
    notes: Notes,
}

impl<F> EventHandler<SimStream> for Noting<F>
where
    F: FnMut(&mut Cx<'_>, &Notes) -> io::Result<Next> + Send + 'static,
{
    fn ready(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        let mut byte = [0];
        cx.read(&mut byte)?;
        let told = (self.ready)(cx, &self.notes);
        self.notes.add(format!("ready {}", char::from(byte[0])));
        told
    }

    fn closed(&mut self, why: Closed) {
        self.notes.add(format!("closed: {why}"));
    }
}

impl<F> Drop for Noting<F> {
    fn drop(&mut self) {
        self.notes.add("dropped");
    }
}

/// Work for afterwards: a note with a name and the thread it is made on.
fn note(notes: &Notes, name: &str) -> impl FnOnce(&mut TaskContext<'_>) + 'static {
    let (notes, name, expected) = (notes.clone(), name.to_owned(), thread::current().id());
    move |_| {
        assert_eq!(thread::current().id(), expected, "on another thread");
        notes.add(name);
    }
}

/// All of it runs after `ready` has returned, in order, on the handler's own thread, and before
/// that takes the next event.
#[test]
fn runs_afterwards_in_order_on_the_same_thread() {
    bounded(|| {
        let bench = Bench::new(0, Panics::Close);
        let (_handle, peer) = bench.serve(|cx, notes| {
            for name in ["one", "two", "three"] {
                cx.after_release(note(notes, name));
            }
            Ok(Next::Continue)
        });
        peer.send(b"ab");
        serve_all(&bench.pool);
        let expected = [
            "ready a", "one", "two", "three", "ready b", "one", "two", "three",
        ];
        assert_eq!(bench.notes.take(), expected);
    });
}

/// The reason for it: a long epilogue does not hold up the connection. While it blocks, the next
/// event, which came before or comes now, is handled by another thread.
#[test]
fn next_event_is_handled_meanwhile() {
    bounded(|| {
        for early in [true, false] {
            let bench = Bench::new(0, Panics::Close);
            let (tell, inside) = mpsc::channel();
            let (open, gate) = mpsc::channel::<()>();
            let mut epilogue = Some(move |_: &mut TaskContext<'_>| {
                tell.send(()).unwrap();
                gate.recv_timeout(LONG).expect("permission comes");
            });
            let (_handle, peer) = bench.serve(move |cx, _| {
                if let Some(epilogue) = epilogue.take() {
                    cx.after_release(epilogue);
                }
                Ok(Next::Continue)
            });
            peer.send(if early { b"ab" } else { b"a" });
            let pool = bench.pool.clone();
            let server = thread::spawn(move || serve_all(&pool));
            inside.recv_timeout(LONG).expect("it runs");
            if !early {
                peer.send(b"b");
            }
            serve_all(&bench.pool);
            assert_eq!(bench.notes.take(), ["ready a", "ready b"]);
            open.send(()).unwrap();
            server.join().unwrap();
        }
    });
}

/// If the handler panics what it had planned is not done, but dropped, whatever becomes of the
/// handle.
#[test]
fn dropped_if_the_handler_panics() {
    bounded(|| {
        for policy in [Panics::Close, Panics::Keep] {
            let bench = Bench::new(0, policy);
            let token = Arc::new(());
            let of_handler = Arc::clone(&token);
            let (handle, peer) = bench.serve(move |cx, notes| {
                let (held, note) = (Arc::clone(&of_handler), note(notes, "never"));
                cx.after_release(move |cx| {
                    let _held = held;
                    note(cx);
                });
                panic!("ouch");
            });
            peer.send(b"a");
            serve_all(&bench.pool);
            let told = format!("panic of {}: ouch", handle.id());
            let notes = bench.notes.take();
            assert_eq!(notes[0], told);
            assert!(!notes.contains(&"never".to_owned()));
            drop(bench);
            assert_eq!(Arc::strong_count(&token), 1, "it leaks");
        }
    });
}

/// Whichever way the handler ends its handle, what it had planned is done when the end is told and
/// all is dropped.
#[test]
fn runs_after_the_end_of_the_handle() {
    bounded(|| {
        type End = fn(&Handle) -> io::Result<Next>;
        let ways: [(End, &str); 3] = [
            (|_| Ok(Next::Close), "finished"),
            (|_| Err(io::Error::other("no")), "failed: no"),
            (
                |own| own.close().map(|()| Next::Continue),
                "closed on request",
            ),
        ];
        for (end, why) in &ways[..2] {
            let bench = Bench::new(0, Panics::Close);
            let end = *end;
            let (handle, peer) = bench.serve(move |cx, notes| {
                cx.after_release(note(notes, "afterwards"));
                end(&cx.handle())
            });
            peer.send(b"a");
            serve_all(&bench.pool);
            let (hook, closed) = (format!("hook: {why}"), format!("closed: {why}"));
            let expected = ["ready a", &hook, &closed, "dropped", "afterwards"];
            assert_eq!(bench.notes.take(), expected);
            handle.close().unwrap_err();
        }
        // Asked for by a call: the end is due at the next visit, and comes without fail.
        let (end, why) = ways[2];
        let bench = Bench::new(0, Panics::Close);
        let (_handle, peer) = bench.serve(move |cx, notes| {
            cx.after_release(note(notes, "afterwards"));
            end(&cx.handle())
        });
        peer.send(b"a");
        serve_all(&bench.pool);
        let notes = bench.notes.take();
        for expected in ["afterwards", "dropped", &format!("closed: {why}")] {
            assert!(notes.iter().any(|note| note == expected), "{notes:?}");
        }
    });
}

/// One of them panics: it is caught, counted and told in the name of its handle; the others run,
/// and the handle, which is not with this thread any more, lives on.
#[test]
fn a_panic_stops_only_itself() {
    bounded(|| {
        for policy in [Panics::Close, Panics::Keep] {
            let bench = Bench::new(0, policy);
            let (handle, peer) = bench.serve(|cx, notes| {
                cx.after_release(note(notes, "before"));
                cx.after_release(|_| panic!("afterwards"));
                cx.after_release(note(notes, "after"));
                Ok(Next::Continue)
            });
            let told = format!("panic of {}: afterwards", handle.id());
            for round in 1..=3 {
                peer.send(b"a");
                serve_all(&bench.pool);
                assert_eq!(bench.notes.take(), ["ready a", "before", &told, "after"]);
                assert_eq!(bench.pool.snapshot().panics, round);
            }
        }
    });
}

/// A shutdown from there does not wait for its own thread, and its handle, which has been given
/// back, ends like any other: nothing is left to report. If another handler is stuck meanwhile,
/// that one and its thread are reported, and nothing else.
#[test]
fn shutdown_from_afterwards() {
    bounded(|| {
        for other_is_stuck in [false, true] {
            let bench = Bench::new(2, Panics::Close);
            let (open, gate) = mpsc::channel::<()>();
            let (_stuck, stuck) = bench.serve(move |cx, _| {
                cx.write_all(b"inside")?;
                let _ = cx.blocking(|| gate.recv_timeout(LONG));
                Ok(Next::Continue)
            });
            if other_is_stuck {
                stuck.send(b"s");
                assert_eq!(stuck.wait_for(6), b"inside");
            }
            let (tell, told) = mpsc::channel();
            let weak = bench.pool.downgrade();
            let within = if other_is_stuck { Duration::ZERO } else { LONG };
            let (_handle, peer) = bench.serve(move |cx, _| {
                let (tell, pool) = (tell.clone(), weak.upgrade().unwrap());
                cx.after_release(move |_| tell.send(pool.shutdown(within)).unwrap());
                Ok(Next::Continue)
            });
            peer.send(b"a");
            let report = told.recv_timeout(LONG).expect("it ends");
            assert_eq!(report.busy_handles, usize::from(other_is_stuck), "{report}");
            assert_eq!(
                report.stuck_threads.len(),
                usize::from(other_is_stuck),
                "{report}"
            );
            assert_eq!(report.is_clean(), !other_is_stuck, "{report}");
            peer.wait_closed();
            drop(open);
            stuck.wait_closed();
        }
    });
}

/// The thread is still inside the pool: it can neither enter it once more nor join it.
#[test]
fn entering_from_afterwards_is_refused() {
    bounded(|| {
        let bench = Bench::new(0, Panics::Close);
        let weak = bench.pool.downgrade();
        let (_handle, peer) = bench.serve(move |cx, notes| {
            let (pool, notes) = (weak.upgrade().unwrap(), notes.clone());
            cx.after_release(move |_| {
                notes.add(format!(
                    "{:?}",
                    pool.enter().err().map(|error| error.kind())
                ));
                notes.add(format!("{:?}", pool.join().map_err(|error| error.kind())));
            });
            Ok(Next::Continue)
        });
        peer.send(b"a");
        serve_all(&bench.pool);
        let expected = ["ready a", "Some(Deadlock)", "Err(Deadlock)"];
        assert_eq!(bench.notes.take(), expected);
    });
}

/// The handle is nobody's by then, so its own end may be waited for there, which its handler may
/// not.
#[test]
fn own_end_can_be_waited_for() {
    bounded(|| {
        let bench = Bench::new(0, Panics::Close);
        let (_handle, peer) = bench.serve(|cx, notes| {
            let (own, notes) = (cx.handle(), notes.clone());
            let refused = own.close_and_wait().unwrap_err();
            notes.add(format!("{:?}", refused.kind()));
            // To the end, so that nobody puts the handle into the line.
            while cx.read(&mut [0; 8]).is_ok() {}
            cx.after_release(move |_| {
                own.close_and_wait().unwrap();
                notes.add("waited");
            });
            Ok(Next::Continue)
        });
        peer.send(b"a");
        serve_all(&bench.pool);
        let told = ["hook: closed on request", "closed: closed on request"];
        let expected = ["Deadlock", "ready a", told[0], told[1], "dropped", "waited"];
        assert_eq!(bench.notes.take(), expected);
    });
}

/// What a handler that panicked left for afterwards is dropped, and may panic once more, or ask for
/// what can't be: it is caught and told like any other, and the handle is still with this thread.
#[test]
fn what_is_dropped_may_panic_too() {
    bounded(|| {
        let bench = Bench::new(0, Panics::Close);
        let (tell, told) = mpsc::channel();
        let (_, peer) = bench.serve(move |cx: &mut Cx<'_>, _| {
            let (guard, waits) = (PanicsOnDrop, WaitsOnDrop(cx.handle(), tell.clone()));
            cx.after_release(move |_| drop(guard));
            cx.after_release(move |_| drop(waits));
            panic!("first");
        });
        peer.send(b"x");
        serve_all(&bench.pool);
        assert_eq!(told.try_recv(), Ok(io::ErrorKind::Deadlock));
        let notes = bench.notes.take();
        assert!(
            notes.iter().any(|note| note.ends_with("second")),
            "{notes:?}"
        );
        assert!(
            notes.iter().any(|note| note.contains("hook: ")),
            "{notes:?}"
        );
    });
}

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("second");
    }
}

struct WaitsOnDrop(Handle, mpsc::Sender<io::ErrorKind>);

impl Drop for WaitsOnDrop {
    fn drop(&mut self) {
        let refused = self.0.close_and_wait().unwrap_err();
        self.1.send(refused.kind()).unwrap();
    }
}
