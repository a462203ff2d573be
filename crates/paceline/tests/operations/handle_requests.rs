//! What may be asked of a handle from anywhere at any time: suspend, resume, notify, and [`Next::Again`] (H1,
//! H2, H3). Each on a set that reports edges, and on one that reports once. For `close_and_wait` see `hooks.rs`.

use std::{
    collections::VecDeque,
    io,
    sync::{mpsc, Arc, Mutex},
    thread::{self, JoinHandle},
};

use crate::support::{
    bounded,
    by_hand::{claim, lead, serve_all, turn},
    wait_until, LONG,
};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Closed, Context, EventHandler, Handle, Interest, Next, Pool, SetKind,
};

type Cx<'c> = Context<'c, SimStream>;
type Request = fn(&Handle) -> io::Result<()>;

const REQUESTS: [(&str, Request); 4] = [
    ("suspend", Handle::suspend),
    ("resume", Handle::resume),
    ("notify", Handle::notify),
    ("close_and_wait", Handle::close_and_wait),
];

/// A pool in a world of its own. Without threads of its own nothing happens there but what the test does.
struct Bench {
    world: Simulation,
    pool: Pool,
}

impl Bench {
    fn new(world: Simulation, threads: usize) -> Self {
        let pool = Pool::builder()
            .threads(threads)
            .handle_set(SetKind::Simulated(world.clone()));
        Self {
            pool: pool.build().unwrap(),
            world,
        }
    }

    /// A connection whose handler follows a script.
    fn subject(&self, interest: Interest) -> Subject {
        let (stream, peer) = self.world.stream();
        let (closed, end) = mpsc::channel();
        let (calls, script) = (Calls::default(), Script::default());
        let handler = Scripted {
            calls: Arc::clone(&calls),
            script: Arc::clone(&script),
            closed,
        };
        let handle = self.pool.register(stream, interest, handler).unwrap();
        Subject {
            handle,
            peer,
            calls,
            script,
            end,
        }
    }

    /// Serves on the test's own thread until nothing is left to do.
    fn serve(&self) -> usize {
        serve_all(&self.pool)
    }

    /// The same on another thread.
    fn serve_elsewhere(&self) -> JoinHandle<usize> {
        let pool = self.pool.clone();
        thread::spawn(move || serve_all(&pool))
    }
}

/// Runs `test` in both kinds of world.
fn in_both_worlds(threads: usize, test: fn(&Bench)) {
    bounded(move || {
        test(&Bench::new(Simulation::new(1), threads));
        test(&Bench::new(Simulation::one_shot(1), threads));
    });
}

/// One entry per call: what it read, after `!` if it was asked for.
type Calls = Arc<Mutex<Vec<String>>>;
type Step = Box<dyn FnOnce(&mut Cx<'_>) -> io::Result<Next> + Send>;
type Script = Arc<Mutex<VecDeque<Step>>>;

/// Notes each call and does the next step of its script; without one it reads all there is.
struct Scripted {
    calls: Calls,
    script: Script,
    closed: mpsc::Sender<Closed>,
}

impl EventHandler<SimStream> for Scripted {
    fn ready(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        let mark = if cx.is_notified() { "!" } else { "" };
        self.calls.lock().unwrap().push(mark.to_owned());
        let step = self.script.lock().unwrap().pop_front();
        match step {
            Some(step) => step(cx),
            None => {
                let text = String::from_utf8(read_all(cx)).unwrap();
                self.calls
                    .lock()
                    .unwrap()
                    .last_mut()
                    .unwrap()
                    .push_str(&text);
                Ok(Next::Continue)
            }
        }
    }

    fn closed(&mut self, why: Closed) {
        let _ = self.closed.send(why);
    }
}

fn read_all(cx: &mut Cx<'_>) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 64]);
    while let Ok(count @ 1..) = cx.read(&mut buffer) {
        all.extend(&buffer[..count]);
    }
    all
}

/// A handle under test, and everything that is seen of it.
struct Subject {
    handle: Handle,
    peer: SimPeer,
    calls: Calls,
    script: Script,
    end: mpsc::Receiver<Closed>,
}

impl Subject {
    /// What the handler shall do in one of its next calls.
    fn then(&self, step: impl FnOnce(&mut Cx<'_>) -> io::Result<Next> + Send + 'static) {
        self.script.lock().unwrap().push_back(Box::new(step));
    }

    /// The next call stays inside until it is let out; the receiver tells when it is there.
    fn then_stay(&self) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (tell, inside) = mpsc::channel();
        let (permission, gate) = mpsc::channel();
        self.then(move |cx| {
            tell.send(()).unwrap();
            let told = cx.blocking(|| gate.recv_timeout(LONG));
            told.expect("permission comes");
            Ok(Next::Continue)
        });
        (inside, permission)
    }

    /// The calls since the last look.
    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    /// The one word that was told in the end, if any.
    fn end(&self) -> Option<String> {
        let told: Vec<_> = self.end.try_iter().map(|why| why.to_string()).collect();
        assert!(told.len() < 2, "{told:?}");
        told.into_iter().next()
    }
}

/// From where something is asked for.
#[derive(Clone, Copy, Debug)]
enum Whence {
    AnotherThread,
    AnothersHandler,
    OwnHandler,
}

impl Whence {
    /// Asks; all is at rest before and afterwards, if the request makes nothing to do.
    fn ask(self, bench: &Bench, subject: &Subject, request: Request) {
        let handle = subject.handle.clone();
        match self {
            Self::AnotherThread => {
                let asked = thread::spawn(move || request(&handle));
                asked.join().unwrap().unwrap();
            }
            Self::AnothersHandler => {
                let other = bench.subject(Interest::READ);
                other.then(move |_| request(&handle).map(|()| Next::Close));
                other.peer.send(b".");
                while !other.peer.is_closed_by_pool() {
                    drop(turn(bench.pool.enter().unwrap()));
                }
            }
            Self::OwnHandler => {
                subject.then(move |cx| {
                    read_all(cx);
                    request(&cx.handle()).map(|()| Next::Continue)
                });
                subject.peer.send(b".");
                while subject.calls().is_empty() {
                    drop(turn(bench.pool.enter().unwrap()));
                }
            }
        }
    }
}

const EVERYWHERE: [Whence; 3] = [
    Whence::AnotherThread,
    Whence::AnothersHandler,
    Whence::OwnHandler,
];

/// A suspended handle's handler is not called, whatever comes and whoever suspended it. Nothing of it is
/// lost: when it is resumed there is one call for all of it, and no more.
#[test]
fn suspend_remembers_until_resume() {
    in_both_worlds(0, |bench| {
        for whence in EVERYWHERE {
            for back in &EVERYWHERE[..2] {
                let subject = bench.subject(Interest::READ);
                bench.serve();
                whence.ask(bench, &subject, Handle::suspend);
                subject.peer.send(b"a");
                bench.serve();
                subject.handle.notify().unwrap();
                subject.peer.send(b"b");
                subject.handle.notify().unwrap();
                bench.serve();
                assert!(subject.calls().is_empty(), "{whence:?}");
                back.ask(bench, &subject, Handle::resume);
                bench.serve();
                assert_eq!(subject.calls(), ["!ab"], "{whence:?}, {back:?}");
                subject.peer.send(b"c");
                bench.serve();
                assert_eq!(subject.calls(), ["c"]);
            }
        }
    });
}

/// Its event has left the set already: it is in the leader's line behind the one whose handler suspends it,
/// or claimed, when somebody suspends it. It is not called for it; it has not lost it.
#[test]
fn suspend_reaches_those_in_the_line() {
    in_both_worlds(0, |bench| {
        let (first, second) = (bench.subject(Interest::READ), bench.subject(Interest::READ));
        bench.serve();
        let handle = second.handle.clone();
        first.then(move |_| handle.suspend().map(|()| Next::Close));
        first.peer.send(b"x");
        second.peer.send(b"in line");
        bench.serve();
        assert!(second.calls().is_empty());
        second.handle.resume().unwrap();

        let claimed = claim(lead(&bench.pool));
        second.handle.suspend().unwrap();
        drop(claimed.promote().run());
        bench.serve();
        assert!(second.calls().is_empty());
        second.handle.resume().unwrap();
        bench.serve();
        assert_eq!(second.calls(), ["in line"]);
    });
}

/// ACE resumed a handle in the middle of its upcall, and a second thread entered (ACE 4129). Here a handler
/// runs on one thread, with input left, while another thread asks for everything, in every order, and a third
/// has nothing to do and looks: it finds nothing. What was asked last counts when the handler returns.
#[test]
fn requests_for_a_busy_handle_are_recorded() {
    const LAST: [(&[Request], &[&str]); 5] = [
        (&[Handle::suspend], &[]),
        (&[Handle::suspend, Handle::resume], &["rest"]),
        (&[Handle::notify, Handle::notify], &["!rest"]),
        (&[Handle::notify, Handle::suspend], &[]),
        (
            &[Handle::suspend, Handle::notify, Handle::resume],
            &["!rest"],
        ),
    ];
    in_both_worlds(0, |bench| {
        for (last, expected) in LAST {
            let subject = bench.subject(Interest::READ);
            let (inside, permission) = subject.then_stay();
            subject.peer.send(b"rest");
            let server = bench.serve_elsewhere();
            inside.recv_timeout(LONG).expect("it is called");
            for request in last {
                request(&subject.handle).unwrap();
                assert_eq!(bench.serve(), 0, "nobody may come in");
            }
            assert_eq!(subject.calls(), [""]);
            permission.send(()).unwrap();
            server.join().unwrap();
            assert_eq!(subject.calls(), expected);
            subject.handle.resume().unwrap();
            bench.serve();
            assert_eq!(subject.calls().is_empty(), !expected.is_empty());
            subject.handle.close().unwrap();
        }
    });
}

/// Kept output belongs to the peer already: a suspended handle goes on sending it, and its handler is not
/// called, not even when all is sent.
#[test]
fn suspended_handle_sends_kept_output() {
    in_both_worlds(0, |bench| {
        let subject = bench.subject(Interest::READ);
        subject.then(|cx| {
            cx.write_all(&[7; 200])?;
            cx.handle().suspend()?;
            Ok(Next::Continue)
        });
        subject.peer.send(b"x");
        let mut received = 0;
        while received < 200 {
            bench.serve();
            let count = subject.peer.received().len();
            assert_ne!(count, 0, "after {received}");
            received += count;
        }
        bench.serve();
        assert_eq!(subject.calls(), [""]);
        subject.handle.resume().unwrap();
        bench.serve();
        assert_eq!(subject.calls(), ["x"]);
    });
}

/// A handle that is suspended, with input that nobody will read, can be closed; and it does not hold up a
/// shutdown, which sends what it had kept.
#[test]
fn suspended_handle_closes_and_drains() {
    in_both_worlds(2, |bench| {
        let [closed, idle, sending] = [(); 3].map(|()| {
            let subject = bench.subject(Interest::READ);
            subject.handle.suspend().unwrap();
            subject.peer.send(b"x");
            subject
        });
        closed.handle.close_and_wait().unwrap();
        assert_eq!(closed.end().as_deref(), Some("closed on request"));

        sending.then(|cx| {
            cx.write_all(&[7; 200])?;
            cx.handle().suspend()?;
            Ok(Next::Continue)
        });
        sending.handle.resume().unwrap();
        assert_eq!(sending.peer.wait_for(40).len(), 40);
        let pool = bench.pool.clone();
        let shutdown = thread::spawn(move || pool.shutdown(LONG));
        let mut rest = sending.peer.wait_for(160);
        let report = shutdown.join().unwrap();
        assert!(report.is_clean(), "{report}");
        rest.extend(sending.peer.received());
        assert_eq!(rest.len(), 160);
        assert_eq!(idle.end().as_deref(), Some("the pool was shut down"));
        assert_eq!(sending.end().as_deref(), Some("the pool was shut down"));
        assert!(idle.calls().is_empty());
    });
}

/// Nothing is ready, and nobody is even interested: a notification calls the handler all the same, once for
/// several, and not again. It is told apart from input, and one that comes while the handler runs is news.
#[test]
fn notify_calls_once() {
    in_both_worlds(0, |bench| {
        for interest in [Interest::NONE, Interest::READ] {
            for whence in EVERYWHERE {
                if interest == Interest::NONE && matches!(whence, Whence::OwnHandler) {
                    continue;
                }
                let subject = bench.subject(interest);
                bench.serve();
                subject.calls();
                whence.ask(bench, &subject, |handle| {
                    (0..3).try_for_each(|_| handle.notify())
                });
                bench.serve();
                assert_eq!(subject.calls(), ["!"], "{whence:?}");
                assert_eq!(bench.serve(), 0);
                subject.then(|cx| cx.handle().notify().map(|()| Next::Continue));
                subject.handle.notify().unwrap();
                bench.serve();
                assert_eq!(subject.calls(), ["!", "!"], "{whence:?}");
                subject.handle.set_interest(Interest::READ).unwrap();
                subject.peer.send(b"in");
                bench.serve();
                assert_eq!(subject.calls(), ["in"], "{whence:?}");
            }
        }
    });
}

/// While output is kept a notification waits, as input does, so that a handler that answers to it can't make
/// us keep more and more; it comes when all is sent. A handler that reads while it sends has it at once.
#[test]
fn notify_waits_behind_kept_output() {
    in_both_worlds(0, |bench| {
        for meanwhile in [false, true] {
            let subject = bench.subject(Interest::READ);
            subject.then(move |cx| {
                read_all(cx);
                cx.read_while_sending(meanwhile);
                cx.write_all(&[7; 200]).map(|()| Next::Continue)
            });
            subject.peer.send(b"x");
            bench.serve();
            let (tell, unsent) = mpsc::channel();
            subject.then(move |cx| {
                tell.send(cx.unsent()).unwrap();
                Ok(Next::Continue)
            });
            subject.handle.notify().unwrap();
            let mut received = 0;
            while received < 200 {
                bench.serve();
                received += subject.peer.received().len();
            }
            bench.serve();
            let expected = if meanwhile { 200 - 64 } else { 0 };
            assert_eq!(unsent.try_iter().collect::<Vec<_>>(), [expected]);
            assert_eq!(subject.calls(), ["", "!"]);
        }
    });
}

/// Several requests in one TLS record: Ice took the first and never saw the rest, for the descriptor had no
/// more to tell (Ice). Now a handler that takes one request per call from its own buffer says so and serves
/// all of them; also if it stops because its answers are kept, and the peer reads slowly.
#[test]
fn buffered_user_space_data_redelivered() {
    in_both_worlds(0, |bench| {
        for length in [1, 40] {
            let (stream, peer) = bench.world.stream();
            let mut buffer = VecDeque::new();
            let handler = move |cx: &mut Cx<'_>| {
                buffer.extend(read_all(cx));
                assert_eq!(cx.unsent(), 0, "it is called before all is sent");
                if let Some(request) = buffer.pop_front() {
                    cx.write_all(&vec![request; length])?;
                }
                Ok(if buffer.is_empty() {
                    Next::Continue
                } else {
                    Next::Again
                })
            };
            bench
                .pool
                .register(stream, Interest::READ, handler)
                .unwrap();
            peer.send(b"abcdefgh");
            let mut answers = Vec::new();
            while answers.len() < 8 * length {
                bench.serve();
                let some = peer.received();
                assert!(!some.is_empty(), "{} answers", answers.len() / length);
                answers.extend(some);
            }
            answers.dedup();
            assert_eq!(answers, b"abcdefgh");
        }
    });
}

/// ACE called a handler that asks for it again and again, and nobody else (ACE, read). Ours asks for ever, and
/// between two of its calls each of the others has its turn.
#[test]
fn retry_result_yields_to_all() {
    in_both_worlds(0, |bench| {
        let order = Arc::new(Mutex::new(Vec::new()));
        for id in 0..3 {
            let (stream, peer) = bench.world.stream();
            let of_handler = Arc::clone(&order);
            let handler = move |cx: &mut Cx<'_>| {
                read_all(cx);
                of_handler.lock().unwrap().push(id);
                Ok(Next::Again)
            };
            bench
                .pool
                .register(stream, Interest::READ, handler)
                .unwrap();
            peer.send(b"x");
        }
        let mut follower = bench.pool.enter().unwrap();
        while order.lock().unwrap().len() < 300 {
            follower = turn(follower);
        }
        drop(follower);
        let order = order.lock().unwrap();
        assert!(order
            .windows(3)
            .all(|ids| ids[0] != ids[1] && ids[0] != ids[2]));
    });
}

/// A key without a generation goes astray (E5). A stale handle is not found, whatever is asked of it, and the
/// registration that has its slot now notices nothing.
#[test]
fn requests_of_a_stale_handle_are_not_found() {
    in_both_worlds(0, |bench| {
        let stale = bench.subject(Interest::READ);
        stale.handle.close_and_wait().unwrap();
        let next = bench.subject(Interest::READ);
        next.handle.suspend().unwrap();
        next.peer.send(b"x");
        for (name, request) in REQUESTS {
            assert_not_found(name, request(&stale.handle));
            bench.serve();
            assert!(next.calls().is_empty(), "{name} went astray");
        }
        next.handle.resume().unwrap();
        stale.handle.suspend().unwrap_err();
        bench.serve();
        assert_eq!(next.calls(), ["x"]);
        assert!(next.end().is_none());
    });
}

fn assert_not_found(name: &str, told: io::Result<()>) {
    let told = told.unwrap_err();
    assert_eq!(told.kind(), io::ErrorKind::NotFound, "{told}");
    assert!(told.to_string().contains(name), "{told}");
}

/// A shutdown has begun and waits for a handler. Requests still reach its handle: a notification brings one
/// more call before the end, a suspension none. After the end everything is "not found", also after the pool.
#[test]
fn requests_during_and_after_shutdown() {
    in_both_worlds(2, |bench| {
        let [notified, suspended] = [(); 2].map(|()| bench.subject(Interest::READ));
        let stays = [&notified, &suspended].map(|subject| {
            let stay = subject.then_stay();
            subject.peer.send(b"x");
            stay.0.recv_timeout(LONG).expect("it is called");
            stay.1
        });
        let pool = bench.pool.clone();
        let shutdown = thread::spawn(move || pool.shutdown(LONG));
        wait_until(|| {
            let (stream, _) = bench.world.stream();
            let refused = |_: &mut Cx<'_>| Ok(Next::Continue);
            bench
                .pool
                .register(stream, Interest::NONE, refused)
                .is_err()
        });
        notified.handle.notify().unwrap();
        suspended.handle.suspend().unwrap();
        stays.iter().for_each(|stay| stay.send(()).unwrap());
        let report = shutdown.join().unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!(notified.calls(), ["", "!x"]);
        assert_eq!(suspended.calls(), [""]);
        for (name, request) in REQUESTS {
            assert_not_found(name, request(&notified.handle));
        }
    });
}

/// ACE 2820: notifications that were pending when the reactor went leaked. Here a hundred handles have one
/// (some are suspended, too) when the pool is dropped: nobody is called, everyone is told the end once, and
/// everything is dropped.
#[test]
fn pending_notifications_released_on_drop() {
    bounded(|| {
        for world in [Simulation::new(1), Simulation::one_shot(1)] {
            let bench = Bench::new(world, 0);
            let subjects: Vec<_> = (0..100).map(|_| bench.subject(Interest::READ)).collect();
            for (number, subject) in subjects.iter().enumerate() {
                subject.handle.notify().unwrap();
                if number % 3 == 0 {
                    subject.handle.suspend().unwrap();
                }
            }
            drop(bench);
            for subject in &subjects {
                assert_eq!(subject.end().as_deref(), Some("the pool was shut down"));
                let gone = subject.end.try_recv().unwrap_err();
                assert_eq!(gone, mpsc::TryRecvError::Disconnected, "it leaks");
                assert!(subject.calls().is_empty());
                assert!(subject.peer.is_closed_by_pool());
                assert_not_found("notify", subject.handle.notify());
            }
        }
    });
}
