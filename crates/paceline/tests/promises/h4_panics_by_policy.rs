//! H4: a handle whose handler panicked is closed or kept by policy, never left asleep (E4); and
//! whatever panics, no thread dies of it.

use std::{
    env,
    io::{self, Read, Write},
    os::unix::process::ExitStatusExt,
    process::Command,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc, Arc, Mutex,
    },
};

use crate::support::{
    self, bounded,
    by_hand::{self, serve_all, turn},
    name_of,
    stage::{self, Counts, Stage},
    told, LONG,
};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Closed, Context, EventHandler, Handle, Interest, Next, Panics, Pool, SetKind,
};
use paceline::{Descriptor, Source};

type Cx<'c> = Context<'c, SimStream>;
type Notes = Arc<Mutex<Vec<String>>>;

/// A pool without threads of its own, and what its hook was told.
struct Bench {
    world: Simulation,
    pool: Pool,
    panics: Notes,
}

impl Bench {
    fn new(world: Simulation, policy: Panics) -> Self {
        let panics = Notes::default();
        let of_hook = Arc::clone(&panics);
        let pool = Pool::builder()
            .threads(0)
            .panics(policy)
            .on_panic(move |id, text| of_hook.lock().unwrap().push(format!("{id} {text}")))
            .handle_set(SetKind::Simulated(world.clone()));
        Self {
            pool: pool.build().unwrap(),
            world,
            panics,
        }
    }

    fn serve<H: EventHandler<SimStream>>(&self, handler: H) -> (Handle, SimPeer) {
        let (stream, peer) = self.world.stream();
        let handle = self.pool.register(stream, Interest::READ, handler);
        (handle.unwrap(), peer)
    }

    /// The hook was told exactly this since the last look, and it was counted.
    fn assert_panics(&self, expected: &[&str]) {
        let told = std::mem::take(&mut *self.panics.lock().unwrap());
        assert_eq!(told, expected);
    }
}

/// In both kinds of world: a set that reports once says nothing more about a handle that nobody
/// arms.
fn in_both_worlds(policy: Panics, test: fn(&Bench)) {
    bounded(move || {
        test(&Bench::new(Simulation::new(1), policy));
        test(&Bench::new(Simulation::one_shot(1), policy));
    });
}

/// The default: the handle is closed, its handler and the hook are told the message, it is counted
/// once, and the others go on.
#[test]
fn close_tells_handler_and_hook() {
    in_both_worlds(Panics::default(), |bench| {
        let (_, bystander) = bench.serve(by_hand::echo);
        let (handler, end) = told(|_: &mut Cx<'_>| panic!("number {}", 7));
        let (handle, peer) = bench.serve(handler);
        peer.send(b"x");
        bystander.send(b"1");
        serve_all(&bench.pool);
        bench.assert_panics(&[&format!("{} number 7", handle.id())]);
        let why = end.try_recv().unwrap();
        assert!(matches!(&why, Closed::Panicked(text) if text == "number 7"));
        assert!(end.try_recv().is_err());
        assert!(peer.is_closed_by_pool());
        assert_eq!(bench.pool.snapshot().panics, 1);
        bystander.send(b"2");
        serve_all(&bench.pool);
        assert_eq!(bystander.received(), b"12");
    });
}

/// The paper's decorator skipped the reactivation when its handler threw, and the handle slept for
/// ever (E4). A handle that is kept is called again for what it had not read, before or after it
/// read a part, and for what comes later, however often its handler panics.
#[test]
fn keep_calls_again() {
    in_both_worlds(Panics::Keep, |bench| {
        for read_before in [0, 1, 64] {
            let mut calls = 0;
            let (handler, end) = told(move |cx: &mut Cx<'_>| {
                calls += 1;
                if calls % 2 == 1 {
                    // The buffer is empty at first: nothing is read.
                    let _ = cx.read(&mut [0; 64][..read_before]);
                    panic!("call {calls}");
                }
                by_hand::echo(cx)
            });
            let (handle, peer) = bench.serve(handler);
            for round in 0..5 {
                peer.send(b"abc");
                serve_all(&bench.pool);
                assert_eq!(peer.received(), &b"abc"[read_before.min(3)..]);
                bench.assert_panics(&[&format!("{} call {}", handle.id(), 2 * round + 1)]);
            }
            assert!(end.try_recv().is_err());
            handle.close().unwrap();
            assert!(matches!(end.try_recv(), Ok(Closed::Requested)));
        }
        assert_eq!(bench.pool.snapshot().panics, 15);
    });
}

/// A notification and a request of one's own to be called again are not lost by a panic, and output
/// that was kept before it is sent.
#[test]
fn keep_loses_neither_notifications_nor_output() {
    in_both_worlds(Panics::Keep, |bench| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let of_handler = Arc::clone(&seen);
        let (handle, peer) = bench.serve(move |cx: &mut Cx<'_>| {
            let mut seen = of_handler.lock().unwrap();
            seen.push(cx.is_notified());
            if seen.len() == 1 {
                drop(seen);
                cx.write_all(&[7; 200])?;
                panic!("ouch");
            }
            by_hand::echo(cx)
        });
        handle.notify().unwrap();
        let mut received = 0;
        while received < 200 {
            serve_all(&bench.pool);
            let count = peer.received().len();
            assert_ne!(count, 0, "after {received}");
            received += count;
        }
        serve_all(&bench.pool);
        assert_eq!(seen.lock().unwrap()[..2], [true, true]);
    });
}

/// A handler that always panics and never reads is called for ever, but as one among others:
/// between two of its calls each healthy one has its turn.
#[test]
fn kept_panics_starve_nobody() {
    in_both_worlds(Panics::Keep, |bench| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let _peers = [0, 1, 2].map(|id| {
            let of_handler = Arc::clone(&order);
            let (_, peer) = bench.serve(move |_: &mut Cx<'_>| {
                of_handler.lock().unwrap().push(id);
                assert_ne!(id, 0, "it panics");
                Ok(Next::Continue)
            });
            peer.send(b"x");
            peer
        });
        let mut follower = bench.pool.enter().unwrap();
        while order.lock().unwrap().len() < 300 {
            follower = turn(follower);
        }
        drop(follower);
        let order = order.lock().unwrap();
        let is_fair = |ids: &[i32]| ids[0] != ids[1] && ids[0] != ids[2] && ids[1] != ids[2];
        assert!(order.windows(3).all(is_fair), "{order:?}");
    });
}

/// Panics everywhere: told of the end, and when it is dropped.
struct Sore;

impl EventHandler<Fragile> for Sore {
    fn ready(&mut self, cx: &mut Context<'_, Fragile>) -> io::Result<Next> {
        cx.read(&mut [0; 8])?;
        Ok(Next::Close)
    }

    fn closed(&mut self, _: Closed) {
        panic!("in closed");
    }
}

impl Drop for Sore {
    fn drop(&mut self) {
        panic!("in drop of handler");
    }
}

/// A source that panics when it is broken: at reads, at writes, and when it is dropped.
struct Fragile {
    stream: SimStream,
    broken: Arc<AtomicBool>,
}

impl Fragile {
    fn check(&self, what: &str) {
        assert!(!self.broken.load(Ordering::SeqCst), "{what}");
    }
}

impl Source for Fragile {
    fn descriptor(&self) -> Descriptor<'_> {
        self.stream.descriptor()
    }
}

impl Read for &Fragile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check("in read");
        (&self.stream).read(buffer)
    }
}

impl Write for &Fragile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check("in write");
        (&self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        self.check("in drop of source");
    }
}

fn fragile(
    bench: &Bench,
    handler: impl EventHandler<Fragile>,
) -> (Handle, SimPeer, Arc<AtomicBool>) {
    let (stream, peer) = bench.world.stream();
    let broken = Arc::new(AtomicBool::new(false));
    let source = Fragile {
        stream,
        broken: Arc::clone(&broken),
    };
    let handle = bench.pool.register(source, Interest::READ, handler);
    (handle.unwrap(), peer, broken)
}

/// The policy is about handlers. What panics at the end of a handle, in `closed` and in both drops,
/// is told and counted one by one under every policy, and the handle is gone.
#[test]
fn panics_at_the_end_are_told() {
    for policy in [Panics::Close, Panics::Keep] {
        in_both_worlds(policy, |bench| {
            let (handle, peer, broken) = fragile(bench, Sore);
            serve_all(&bench.pool);
            broken.store(true, Ordering::SeqCst);
            handle.close().unwrap();
            let told = ["in closed", "in drop of handler", "in drop of source"];
            let told = told.map(|text| format!("{} {text}", handle.id()));
            bench.assert_panics(&told.each_ref().map(String::as_str));
            assert!(peer.is_closed_by_pool());
            assert_eq!(bench.pool.snapshot().panics, 3);
        });
    }
}

/// A source that panics while the handler reads is the handler's panic: by policy. One that panics
/// while the pool sends kept output can't be sent to again: its handle is closed even if panics are
/// to be kept.
#[test]
fn panicking_source_is_closed() {
    in_both_worlds(Panics::Keep, |bench| {
        let (tell, end) = mpsc::channel();
        let handler = Talkative { tell };
        let (handle, peer, broken) = fragile(bench, handler);
        broken.store(true, Ordering::SeqCst);
        peer.send(b"x");
        drop(turn(bench.pool.enter().unwrap()));
        bench.assert_panics(&[&format!("{} in read", handle.id())]);
        broken.store(false, Ordering::SeqCst);
        serve_all(&bench.pool);
        assert_eq!(peer.received().len(), 64);

        broken.store(true, Ordering::SeqCst);
        serve_all(&bench.pool);
        let of_pool = format!("{} in write", handle.id());
        let of_drop = format!("{} in drop of source", handle.id());
        bench.assert_panics(&[&of_pool, &of_drop]);
        let why = end.try_recv().unwrap();
        assert!(
            matches!(&why, Closed::Panicked(text) if text == "in write"),
            "{why}"
        );
        assert!(peer.is_closed_by_pool());
        assert_eq!(bench.pool.snapshot().panics, 3);
    });
}

/// Answers with more than its peer takes at once.
struct Talkative {
    tell: mpsc::Sender<Closed>,
}

impl EventHandler<Fragile> for Talkative {
    fn ready(&mut self, cx: &mut Context<'_, Fragile>) -> io::Result<Next> {
        cx.read(&mut [0; 8])?;
        cx.write_all(&[7; 200]).map(|()| Next::Continue)
    }

    fn closed(&mut self, why: Closed) {
        self.tell.send(why).unwrap();
    }
}

/// The process dies of SIGABRT, and not before the hook was told. The other handle's handler, which
/// does not panic, does not end it.
#[test]
fn abort_ends_the_process_after_the_hook() {
    const NAME: &str = "abort_ends_the_process_after_the_hook";
    const CHILD: &str = "PACELINE_TEST_CHILD";
    if env::var_os(CHILD).is_some() {
        return bounded(|| {
            let world = Simulation::new(1);
            let pool = Pool::builder()
                .threads(2)
                .panics(Panics::Abort)
                .on_panic(|_, text| eprintln!("the hook heard: {text}"))
                .handle_set(SetKind::Simulated(world.clone()));
            let pool = pool.build().unwrap();
            let register = |handler: fn(&mut Cx<'_>) -> io::Result<Next>| {
                let (stream, peer) = world.stream();
                pool.register(stream, Interest::READ, handler).unwrap();
                peer.send(b"x");
                peer
            };
            assert_eq!(register(by_hand::echo).wait_for(1), b"x");
            eprintln!("others are served");
            register(|_| panic!("the last straw")).wait_closed();
            eprintln!("it goes on");
        });
    }
    let mut child = Command::new(env::current_exe().unwrap());
    let told = child
        .args(["--exact", &name_of(module_path!(), NAME), "--nocapture"])
        .env(CHILD, "1");
    let told = told.output().unwrap();
    let said = String::from_utf8_lossy(&told.stderr);
    assert_eq!(told.status.signal(), Some(6), "{}: {said}", told.status);
    for text in ["others are served", "the hook heard: the last straw"] {
        assert!(said.contains(text), "{said}");
    }
    assert!(!said.contains("it goes on"), "{said}");
}

/// Hooks are user code too. Whichever of them panics, the handle ends as it should, its handler is
/// told, the next one is served, and no thread is lost.
#[test]
fn panicking_hooks_harm_nobody() {
    bounded(|| {
        for policy in [Panics::Close, Panics::Keep] {
            let stage = Stage::new(2, |pool| {
                let pool = pool.panics(policy);
                pool.on_panic(|_, _| panic!("in the hook of panics"))
                    .on_closed(|_| panic!("in the hook of ends"))
            });
            let bystander = stage.echo();
            for round in 0..20 {
                let (handler, end) = told(|cx: &mut Cx<'_>| {
                    cx.read(&mut [0; 1])?;
                    panic!("in the handler");
                });
                let peer = stage.serve(handler);
                peer.send(b"xx");
                if policy == Panics::Keep {
                    stage.rest(0);
                    assert!(end.try_recv().is_err(), "round {round}");
                    continue;
                }
                peer.wait_closed();
                let why = end.recv_timeout(LONG).unwrap();
                assert!(matches!(why, Closed::Panicked(_)), "{why}");
            }
            stage.ask(&bystander, 0);
            let report = stage.pool.shutdown(LONG);
            assert!(report.is_clean(), "{report}");
        }
    });
}

/// A panic leaves `cx.blocking` by another way than a return; a thread that is not counted as
/// running again makes the pool believe in idle cores for ever. Afterwards everything costs what it
/// did: a request is taken back at once and wakes nobody, and behind a handler that blocks somebody
/// leads.
#[test]
fn panic_in_blocking_comes_back() {
    bounded(|| {
        for policy in [Panics::Close, Panics::Keep] {
            let stage = Stage::new(3, |pool| pool.panics(policy).parallelism(1));
            let echo = stage.echo();
            for round in 1..=50 {
                let peer = stage.serve(|cx: &mut Cx<'_>| {
                    cx.read(&mut [0; 1])?;
                    cx.blocking(|| panic!("away"))
                });
                peer.send(b"x");
                support::wait_until(|| stage.pool.snapshot().panics == round);
                stage.rest(0);
            }
            let before = stage.pool.snapshot();
            (0..50).for_each(|_| stage.ask(&echo, 0));
            assert_eq!(stage.counts_since(&before), Counts::taken_back(50));
            assert!(stage.says("running: 0"), "{:?}", stage.pool);
            let stuck = stage.stuck(stage::Telling::Blocking);
            stuck.block();
            stage.ask(&echo, 1);
            stuck.release();
            assert_eq!(stage.pool.snapshot().panics, 50);
        }
    });
}
