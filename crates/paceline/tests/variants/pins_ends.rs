//! What becomes of events that wait for their thread when that one leaves, or the pool ends; and
//! what can't belong to a thread.

use std::{
    io::ErrorKind,
    net::TcpStream,
    sync::{mpsc, Arc, Mutex},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use crate::support::{
    bounded,
    by_hand::{self, asleep, claim, find_nothing, take_lead},
    gate::Gate,
    pinned::{keep_busy, Guest},
    tcp_pair, wait_until, LONG,
};
use paceline::{
    simulated::{SimStream, Simulation},
    turn::Waited,
    Closed, ConcurrentContext, Context, Group, GroupHandler, Handle, Interest, Leaders, Members,
    Next, Order, Pool, SetKind, Sets, Wake,
};

/// A pool without threads of its own.
fn empty() -> (Pool, Simulation) {
    let world = Simulation::new(1);
    (asleep(&world, 0), world)
}

/// A thread that enters a pool, and does nothing there but what it is told.
struct Idler {
    id: ThreadId,
    steps: mpsc::Sender<Step>,
    done: mpsc::Receiver<()>,
    thread: thread::JoinHandle<()>,
}

enum Step {
    /// Leaves, and enters again.
    EnterAgain,
    /// Serves what was handed to it, and then finds nothing else.
    Serve,
}

impl Idler {
    fn new(pool: &Pool) -> Self {
        let (tell, done) = mpsc::channel();
        let (steps, told) = mpsc::channel();
        let pool = pool.clone();
        let thread = thread::spawn(move || {
            let mut follower = pool.enter().unwrap();
            tell.send(()).unwrap();
            while let Ok(step) = told.recv_timeout(LONG) {
                follower = match step {
                    Step::EnterAgain => {
                        drop(follower);
                        pool.enter().unwrap()
                    }
                    Step::Serve => find_nothing(take_lead(follower)),
                };
                tell.send(()).unwrap();
            }
        });
        let id = thread.thread().id();
        let idler = Self {
            id,
            steps,
            done,
            thread,
        };
        idler.wait();
        idler
    }

    fn wait(&self) {
        self.done.recv_timeout(LONG).unwrap();
    }

    fn step(&self, step: Step) {
        self.steps.send(step).unwrap();
        self.wait();
    }

    fn leave(self) {
        drop(self.steps);
        self.thread.join().unwrap();
    }
}

/// An event waits for a thread, which leaves: whoever leads has it.
#[test]
fn leaver_gives_back() {
    bounded(|| {
        let (pool, world) = empty();
        let idler = Idler::new(&pool);
        let guests = [0, 1, 2].map(|_| Guest::new(&pool, &world, &[idler.id]));
        // Not in the order of their slots.
        guests.iter().rev().for_each(|guest| guest.peer.send(b"x"));
        let mut follower = find_nothing(by_hand::lead(&pool));
        assert_eq!(pool.snapshot().handed, 3);
        idler.leave();
        let me = thread::current().id();
        for guest in guests.iter().rev() {
            follower = claim(take_lead(follower)).promote().run();
            assert_eq!(guest.called(), me, "in the order in which they came");
        }
        assert_eq!(pool.snapshot().strayed, 3);
    });
}

/// It waits for two threads, both busy. One leaves: the other has it. That one leaves too: anyone.
#[test]
fn last_of_a_subset_gives_back() {
    bounded(|| {
        let (pool, world) = empty();
        let (one, other) = (Idler::new(&pool), Idler::new(&pool));
        let guest = Guest::new(&pool, &world, &[one.id, other.id]);
        guest.send();
        let follower = find_nothing(by_hand::lead(&pool));
        one.leave();
        let follower = find_nothing(take_lead(follower));
        assert_eq!(pool.snapshot().handed, 2, "it is handed anew");
        other.leave();
        drop(claim(take_lead(follower)).promote().run());
        assert_eq!(guest.called(), thread::current().id());
        assert_eq!(pool.snapshot().strayed, 1);
    });
}

/// It waits for two threads, both busy. One leaves and comes back, which is not told; then the
/// other leaves. It is told.
#[test]
fn who_came_back_is_told() {
    bounded(|| {
        let (pool, world) = empty();
        let (one, other) = (Idler::new(&pool), Idler::new(&pool));
        let guest = Guest::new(&pool, &world, &[one.id, other.id]);
        guest.send();
        let follower = find_nothing(by_hand::lead(&pool));
        one.step(Step::EnterAgain);
        other.leave();
        let follower = find_nothing(take_lead(follower));
        one.step(Step::Serve);
        let served = pool.snapshot();
        assert_eq!((served.handed, served.strayed), (2, 0));
        assert_eq!(guest.called(), one.id);
        drop(follower);
        one.leave();
    });
}

/// F1: what waits for one of two threads is not behind what waits for one of them and came later.
#[test]
fn first_come_first_served() {
    bounded(|| {
        let (pool, world) = empty();
        let me = thread::current().id();
        let mut follower = pool.enter().unwrap();
        let idler = Idler::new(&pool);
        let (told, tells) = mpsc::channel();
        let homes = [vec![me], vec![me, idler.id], vec![me]];
        let mut peers = Vec::new();
        for (number, home) in homes.iter().enumerate() {
            let (stream, peer) = world.stream();
            let told = told.clone();
            let handler = move |cx: &mut Context<'_, SimStream>| {
                cx.read(&mut [0; 1])?;
                told.send(number).unwrap();
                // It runs dry: this is its only call.
                assert!(cx.read(&mut [0; 1]).is_err());
                Ok(Next::Continue)
            };
            let handle = pool.register(stream, Interest::NONE, handler).unwrap();
            handle.pin_to(home).unwrap();
            handle.set_interest(Interest::READ).unwrap();
            peer.send(b"x");
            peers.push(peer);
            let other = pool.clone();
            let hands = move || drop(find_nothing(by_hand::lead(&other)));
            thread::spawn(hands).join().unwrap();
            assert_eq!(pool.snapshot().handed, number as u64 + 1);
        }
        for _ in 0..3 {
            follower = find_nothing(take_lead(follower));
        }
        drop(follower);
        let order: Vec<_> = tells.try_iter().collect();
        assert_eq!(order, [0, 1, 2], "in the order in which they came");
        idler.leave();
    });
}

/// The roles by hand: who was handed an event handles it before it leads, wherever it was
/// meanwhile.
#[test]
fn handed_before_it_leads() {
    bounded(|| {
        let (pool, world) = empty();
        let me = thread::current().id();
        let hand = || {
            let other = pool.clone();
            let hands = move || drop(find_nothing(by_hand::lead(&other)));
            thread::spawn(hands).join().unwrap();
        };
        let follower = pool.enter().unwrap();
        let guest = Guest::new(&pool, &world, &[me]);
        // It has not asked for the lead yet.
        guest.send();
        hand();
        let follower = find_nothing(take_lead(follower));
        assert_eq!(guest.called(), me);
        // It handles an event, and takes the lead back after it: it does not wait then.
        let free = Guest::new(&pool, &world, &[]);
        free.send();
        let processing = claim(take_lead(follower)).promote();
        guest.send();
        hand();
        let follower = processing.run();
        assert_eq!(free.called(), me);
        let follower = match take_lead(follower).wait(None).unwrap() {
            Waited::Nothing(follower) => follower,
            Waited::Claimed(_) => panic!("nothing else came"),
        };
        drop(find_nothing(take_lead(follower)));
        assert_eq!(guest.called(), me);
        assert_eq!(pool.snapshot().handed, 2);
    });
}

/// Nothing is left of it in the slot that it had.
#[test]
fn next_one_belongs_to_anyone() {
    bounded(|| {
        let (pool, world) = empty();
        let idler = Idler::new(&pool);
        let first = Guest::new(&pool, &world, &[idler.id]);
        first.handle.close_and_wait().unwrap();
        let second = Guest::new(&pool, &world, &[]);
        second.send();
        assert_eq!(by_hand::serve_all(&pool), 1);
        assert_eq!(second.called(), thread::current().id());
        for refused in [
            first.handle.pin_to(&[idler.id]),
            first.handle.prefer_last_thread(LONG),
            first.handle.unpin(),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
        }
        idler.leave();
    });
}

/// A drain waits for what waits for a busy thread, and for nothing else.
#[test]
fn drain_finishes_what_waits() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 3);
        let (ids, gate) = (pool.inspect().thread_ids(), Gate::shut());
        let _busy = keep_busy(&pool, &world, ids[0], &gate);
        let waiting = Guest::new(&pool, &world, &[ids[0]]);
        let idle = ids.iter().map(|id| Guest::new(&pool, &world, &[*id]));
        let idle: Vec<_> = idle.collect();
        let handed = pool.snapshot().handed;
        waiting.send();
        wait_until(|| pool.snapshot().handed > handed);
        let ending = pool.clone();
        let ending = thread::spawn(move || ending.shutdown(Duration::from_secs(3600)));
        for guest in &idle[1..] {
            assert!(matches!(guest.end(), Closed::Shutdown));
        }
        gate.let_through(1);
        assert_eq!(waiting.called(), ids[0], "what had come is handled");
        assert!(matches!(waiting.end(), Closed::Shutdown));
        assert!(matches!(idle[0].end(), Closed::Shutdown));
        let report = ending.join().unwrap();
        assert!(report.is_clean(), "{report}");
    });
}

/// S1: the thread never comes back. What waits for it is closed and listed.
#[test]
fn end_takes_what_waits() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 2);
        let (first, gate) = (pool.inspect().thread_ids()[0], Gate::shut());
        let _busy = keep_busy(&pool, &world, first, &gate);
        let waiting = Guest::new(&pool, &world, &[first]);
        let handed = pool.snapshot().handed;
        waiting.send();
        wait_until(|| pool.snapshot().handed > handed);
        let report = pool.shutdown(Duration::ZERO);
        assert!(matches!(waiting.end(), Closed::Shutdown));
        let listed = report.unfinished.iter().map(|it| it.handle);
        assert!(listed.eq([waiting.handle.id()]), "{report}");
        assert_eq!(report.busy_handles, 1);
        gate.let_through(1);
        assert!(waiting.is_not_called());
    });
}

/// A thread shuts the pool down from its handler: what is pinned to it is drained by the others.
#[test]
fn shutdown_by_their_own_thread() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 2);
        let first = pool.inspect().thread_ids()[0];
        let idle = Guest::new(&pool, &world, &[first]);
        let (stream, peer) = world.stream();
        let (tell, told) = mpsc::channel();
        let weak = pool.downgrade();
        let handler = move |_: &mut Context<'_, SimStream>| {
            let pool = weak.upgrade().unwrap();
            tell.send(pool.shutdown(Duration::from_secs(3600))).unwrap();
            Ok(Next::Close)
        };
        let handle = pool.register(stream, Interest::NONE, handler).unwrap();
        handle.pin_to(&[first]).unwrap();
        handle.set_interest(Interest::READ).unwrap();
        peer.send(b"x");
        let report = told.recv_timeout(LONG).unwrap();
        assert!(report.is_clean(), "{report}");
        assert!(matches!(idle.end(), Closed::Shutdown));
    });
}

/// A listener has a handle too: its connections are made by one thread, and belong to anyone.
#[test]
fn pinned_listener_accepts_on_its_thread() {
    bounded(|| {
        let pool = Pool::builder().threads(3).build().unwrap();
        let makers = Arc::new(Mutex::new(Vec::new()));
        let makes = Arc::clone(&makers);
        let make = move |_: &TcpStream, _| {
            makes.lock().unwrap().push(thread::current().id());
            Some(|_: &mut Context<'_, TcpStream>| Ok(Next::Close))
        };
        let listener = pool.listen("127.0.0.1:0", make).unwrap();
        let second = pool.inspect().thread_ids()[1];
        listener.handle().pin_to(&[second]).unwrap();
        for number in 1..=10 {
            let _peer = TcpStream::connect(listener.local_addr()).unwrap();
            wait_until(|| makers.lock().unwrap().len() == number);
        }
        assert!(makers.lock().unwrap().iter().all(|it| *it == second));
    });
}

/// Who is told among the threads of the pool can be pinned to at once.
#[test]
fn who_is_known_can_be_pinned_to() {
    const ROUNDS: usize = 3000;
    bounded(|| {
        let (pool, world) = empty();
        let guest = Guest::new(&pool, &world, &[]);
        let (come, comes) = mpsc::channel::<()>();
        let (gone, goes) = mpsc::channel::<()>();
        let other = pool.clone();
        let visitor = thread::spawn(move || {
            while comes.recv().is_ok() {
                let follower = other.enter().unwrap();
                goes.recv().unwrap();
                drop(follower);
            }
        });
        for _ in 0..ROUNDS {
            come.send(()).unwrap();
            // At once: a look between two sleeps would come too late.
            let mut known = pool.inspect().thread_ids();
            while known.is_empty() {
                thread::yield_now();
                known = pool.inspect().thread_ids();
            }
            guest.handle.pin_to(&known).unwrap();
            gone.send(()).unwrap();
            wait_until(|| pool.inspect().thread_ids().is_empty());
        }
        drop(come);
        visitor.join().unwrap();
    });
}

struct Silent;

impl GroupHandler<TcpStream> for Silent {
    fn ready(
        &mut self,
        _: &mut Context<'_, TcpStream>,
        _: &mut Members<'_, TcpStream>,
    ) -> std::io::Result<Next> {
        Ok(Next::Continue)
    }
}

/// What can't belong to a thread says why, and stays as it is.
#[test]
fn refusals() {
    bounded(|| {
        let ready = |_: &mut Context<'_, TcpStream>| Ok(Next::Continue);
        let register = |pool: &Pool| {
            let source = tcp_pair().0;
            pool.register(source, Interest::NONE, ready).unwrap()
        };
        let refused = |handle: &Handle, threads: &[ThreadId], kind: ErrorKind, why: &str| {
            let error = handle.pin_to(threads).unwrap_err();
            assert_eq!(error.kind(), kind);
            let (text, id) = (error.to_string(), handle.id());
            assert!(
                text.starts_with(&format!("pin_to: handle {id}: ")) && text.contains(why),
                "{text}"
            );
        };
        let me = thread::current().id();
        let pool = Pool::builder().threads(2).build().unwrap();
        let (handle, ids) = (register(&pool), pool.inspect().thread_ids());
        refused(&handle, &[], ErrorKind::InvalidInput, "no thread is named");
        let stranger = format!("{me:?} is not in this pool");
        refused(&handle, &[ids[0], me], ErrorKind::InvalidInput, &stranger);
        let group: Group<TcpStream> = pool.group(Silent).unwrap();
        let member = group.register(tcp_pair().0, Interest::READ).unwrap();
        refused(&member, &ids, ErrorKind::Unsupported, "a member of a group");
        let (source, _) = tcp_pair();
        let receive = |_: &mut ConcurrentContext<'_, TcpStream>| Ok(Next::Continue);
        let many = pool.register_concurrent(source, Interest::NONE, receive);
        refused(
            &many.unwrap(),
            &ids,
            ErrorKind::Unsupported,
            "several threads use it",
        );
        for builder in [
            Pool::builder().handle_set(SetKind::Concurrent),
            Pool::builder().order(Order::System).wake(Wake::Eager),
        ] {
            let pool = builder.threads(2).build().unwrap();
            let (handle, ids) = (register(&pool), pool.inspect().thread_ids());
            refused(&handle, &ids, ErrorKind::Unsupported, "");
            let error = handle.prefer_last_thread(LONG).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let text = error.to_string();
            assert!(text.starts_with("prefer_last_thread: handle "), "{text}");
        }
        let sets = Sets::builder().sets(1).threads(3).leaders(Leaders::Roaming);
        let sets = sets.build().unwrap();
        let handle = sets.register(tcp_pair().0, Interest::NONE, ready).unwrap();
        refused(&handle, &[me], ErrorKind::Unsupported, "come and go");
        drop(pool);
        let gone = handle_of_a_gone_pool();
        assert_eq!(gone.pin_to(&[me]).unwrap_err().kind(), ErrorKind::NotFound);
    });
}

fn handle_of_a_gone_pool() -> Handle {
    let pool = Pool::builder().threads(1).build().unwrap();
    let start = Instant::now();
    let ready = |_: &mut Context<'_, TcpStream>| Ok(Next::Continue);
    let handle = pool.register(tcp_pair().0, Interest::NONE, ready).unwrap();
    assert!(pool.shutdown(LONG).is_clean() && start.elapsed() < LONG);
    handle
}
