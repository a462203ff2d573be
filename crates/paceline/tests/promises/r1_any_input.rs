//! R1: no input makes it panic or hang: whatever several threads do in whatever order, each
//! registration is told its end exactly once, and everything is dropped.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    panic,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc, Mutex,
    },
    thread,
    time::Duration,
};

use crate::support::{bounded, tcp_pair, wait_until, Random};
use paceline::Source;
use paceline::{
    simulated::{Faults, SimPeer, SimStream, Simulation},
    Closed, Context, EventHandler, Handle, Interest, Next, Pool, SetKind, WeakPool,
};
use socket2::SockRef;

const THREADS: u64 = 4;
const STEPS: usize = 300;

/// Output beyond this is refused, which happens often.
const OUTPUT_LIMIT: usize = 2000;

/// In a world with every fault.
#[test]
fn any_order_of_calls_in_a_world_of_faults() {
    let registered = (0..40).map(|seed| {
        eprintln!("seed {seed}");
        bounded(move || {
            let world = Simulation::new(seed);
            world.set_faults(Faults::ALL);
            let set = SetKind::Simulated(world.clone());
            let open = {
                let world = world.clone();
                move || world.stream()
            };
            let play = Play::<SimStream, SimPeer>::new(set, open);
            let clock = || world.clock().advance(Duration::from_millis(1));
            (play.run(seed, clock), world.faults_injected())
        })
    });
    // A play may end the pool in its first steps, so only the sum must be large.
    let (registered, injected) = registered.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert!(
        registered > 2000 && injected > 2000,
        "{registered}, {injected}"
    );
}

/// On real connections.
#[test]
fn any_order_of_calls_on_tcp() {
    let registered = (100..108).map(|seed| {
        eprintln!("seed {seed}");
        bounded(move || {
            let open = || {
                let (near, far) = tcp_pair();
                far.set_nonblocking(true).unwrap();
                // Thousands of connections shall not linger in the system after us.
                far.reset();
                (near, far)
            };
            let play = Play::<TcpStream, TcpStream>::new(SetKind::Epoll, open);
            play.run(seed, || {})
        })
    });
    assert!(registered.sum::<usize>() > 300);
}

/// The far end of a connection. Nothing here waits.
trait Far: Send + Sync + 'static {
    fn send(&self, bytes: &[u8]);
    fn receive(&self);
    fn finish(&self);
    fn reset(&self);
}

impl Far for SimPeer {
    fn send(&self, bytes: &[u8]) {
        self.send(bytes);
    }

    fn receive(&self) {
        let _ = self.received();
    }

    fn finish(&self) {
        self.finish();
    }

    fn reset(&self) {
        self.reset();
    }
}

impl Far for TcpStream {
    fn send(&self, bytes: &[u8]) {
        let mut stream = self;
        let _ = stream.write(bytes);
    }

    fn receive(&self) {
        let mut stream = self;
        let _ = stream.read(&mut [0; 4096]);
    }

    fn finish(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }

    fn reset(&self) {
        // It takes effect when the stream is dropped.
        let _ = SockRef::from(self).set_linger(Some(Duration::ZERO));
    }
}

/// What all threads and handlers of one run share.
struct Play<S, F> {
    pool: Pool,
    stage: Arc<Stage<S, F>>,
}

struct Stage<S, F> {
    open: Box<dyn Fn() -> (S, F) + Send + Sync>,
    /// Connections that may still be open.
    connections: Mutex<Vec<(Handle, Arc<F>)>>,
    /// For each registration, how often its end was told.
    ends: Mutex<Vec<Arc<AtomicUsize>>>,
    /// Held by every handler.
    token: Arc<()>,
    finished: AtomicUsize,
}

impl<S, F> Play<S, F>
where
    S: Source,
    for<'s> &'s S: Read + Write,
    F: Far,
{
    fn new(set: SetKind, open: impl Fn() -> (S, F) + Send + Sync + 'static) -> Self {
        let pool = Pool::builder()
            .threads(3)
            .handle_set(set)
            .output_limit(OUTPUT_LIMIT)
            .read_budget(500)
            .build()
            .unwrap();
        let stage = Arc::new(Stage {
            open: Box::new(open),
            connections: Mutex::default(),
            ends: Mutex::default(),
            token: Arc::new(()),
            finished: AtomicUsize::new(0),
        });
        Self { pool, stage }
    }

    /// Some threads do something; then the pool is shut down, if they have not done that too.
    /// Tells how many registrations there were.
    fn run(self, seed: u64, pass_time: impl Fn()) -> usize {
        let mut threads: Vec<_> = (0..THREADS)
            .map(|number| self.actor(seed * 1000 + number))
            .collect();
        self.wait_for(THREADS as usize, &pass_time);
        threads.push(self.ending());
        self.wait_for(THREADS as usize + 1, &pass_time);
        for thread in threads {
            thread.join().unwrap();
        }
        let stage = &self.stage;
        let ends = std::mem::take(&mut *stage.ends.lock().unwrap());
        wait_until(|| ends.iter().all(|end| end.load(Ordering::SeqCst) > 0));
        wait_until(|| Arc::strong_count(&stage.token) == 1);
        let twice = ends.iter().filter(|end| end.load(Ordering::SeqCst) > 1);
        assert_eq!(twice.count(), 0, "told twice");
        ends.len()
    }

    fn wait_for(&self, finished: usize, pass_time: impl Fn()) {
        wait_until(|| {
            pass_time();
            self.stage.finished.load(Ordering::SeqCst) == finished
        });
    }

    fn actor(&self, seed: u64) -> thread::JoinHandle<()> {
        let (pool, stage) = (self.pool.clone(), Arc::clone(&self.stage));
        thread::spawn(move || {
            let mut random = Random::new(seed);
            for _ in 0..STEPS {
                stage.step(&pool, &mut random);
            }
            stage.finished.fetch_add(1, Ordering::SeqCst);
        })
    }

    fn ending(&self) -> thread::JoinHandle<()> {
        let (pool, stage) = (self.pool.clone(), Arc::clone(&self.stage));
        thread::spawn(move || {
            let _ = pool.shutdown(Duration::from_millis(20));
            stage.finished.fetch_add(1, Ordering::SeqCst);
        })
    }
}

impl<S, F> Stage<S, F>
where
    S: Source,
    for<'s> &'s S: Read + Write,
    F: Far,
{
    /// Does one thing, whatever it is.
    fn step(self: &Arc<Self>, pool: &Pool, random: &mut Random) {
        let any = self.any(random);
        match (random.below(100), any) {
            (0..=14, _) | (_, None) => self.register(pool, random),
            (15..=19, Some((handle, _))) => drop(handle.close()),
            (20..=29, Some((handle, _))) => drop(handle.set_interest(interest(random))),
            (30..=64, Some((_, far))) => far.send(&vec![7; random.below(1500) as usize]),
            (65..=79, Some((_, far))) => far.receive(),
            (80..=84, Some((_, far))) => far.finish(),
            (85..=88, Some((handle, far))) => {
                far.reset();
                self.forget(&handle);
            }
            (89..=91, _) => {
                let time = Duration::from_micros(random.below(500));
                drop(pool.join_timeout(time));
            }
            (92..=93, _) => drop(pool.entrance().timeout(Duration::ZERO).enter()),
            (94..=98, _) => drop((pool.snapshot(), format!("{pool:?}"))),
            // Once in a while, the end of all.
            (_, _) if random.once_in(20) => drop(pool.shutdown(Duration::ZERO)),
            (_, _) => thread::yield_now(),
        }
    }

    fn register(self: &Arc<Self>, pool: &Pool, random: &mut Random) {
        let (source, far) = (self.open)();
        let told = Arc::new(AtomicUsize::new(0));
        let actor = Actor {
            random: Random::new(random.next()),
            pool: pool.downgrade(),
            stage: Arc::clone(self),
            told: Arc::clone(&told),
            _token: Arc::clone(&self.token),
        };
        match pool.register(source, interest(random), actor) {
            Ok(handle) => {
                self.ends.lock().unwrap().push(told);
                let mut connections = self.connections.lock().unwrap();
                connections.push((handle, Arc::new(far)));
                // Old ones are forgotten, open or not.
                if connections.len() > 30 {
                    connections.swap_remove(0);
                }
            }
            Err(rejected) => {
                assert_eq!(rejected.error.kind(), ErrorKind::BrokenPipe);
                assert_eq!(told.load(Ordering::SeqCst), 0);
            }
        }
    }

    fn any(&self, random: &mut Random) -> Option<(Handle, Arc<F>)> {
        let connections = self.connections.lock().unwrap();
        let count = connections.len() as u64;
        (count > 0).then(|| connections[random.below(count) as usize].clone())
    }

    fn forget(&self, handle: &Handle) {
        let mut connections = self.connections.lock().unwrap();
        connections.retain(|(other, _)| other.id() != handle.id());
    }
}

fn interest(random: &mut Random) -> Interest {
    let both = Interest::READ | Interest::WRITE;
    let all = [Interest::READ, Interest::READ, both, Interest::NONE];
    all[random.below(4) as usize]
}

/// A handler that does whatever comes to its mind.
struct Actor<S, F> {
    random: Random,
    pool: WeakPool,
    stage: Arc<Stage<S, F>>,
    told: Arc<AtomicUsize>,
    _token: Arc<()>,
}

impl<S, F> Actor<S, F>
where
    S: Source,
    for<'s> &'s S: Read + Write,
    F: Far,
{
    fn echo(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        let mut buffer = [0; 300];
        let room = self.random.below(300) as usize + 1;
        match cx.read(&mut buffer[..room])? {
            0 => Ok(Next::Close),
            count => cx.write_all(&buffer[..count]).map(|()| Next::Continue),
        }
    }

    /// Does one thing to the pool, as anybody else might.
    fn meddle(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            let stage = Arc::clone(&self.stage);
            stage.step(&pool, &mut self.random);
        }
    }
}

impl<S, F> EventHandler<S> for Actor<S, F>
where
    S: Source,
    for<'s> &'s S: Read + Write,
    F: Far,
{
    fn ready(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        match self.random.below(60) {
            0 => return Err(io::Error::other("a handler's own failure")),
            1 => return Err(ErrorKind::WouldBlock.into()),
            // A panic that nobody prints.
            2 => panic::resume_unwind(Box::new("a handler's own panic")),
            3 => return Ok(Next::Close),
            4 => drop(cx.handle().close()),
            5 => drop(cx.handle().set_interest(interest(&mut self.random))),
            6 => drop(cx.write_all(&vec![9; self.random.below(3000) as usize])),
            7 => cx.read_while_sending(self.random.once_in(2)),
            8 => drop(cx.source().read(&mut [0; 10])),
            9 => drop(cx.write_now(&[5; 10])),
            10..=14 => self.meddle(),
            _ => {}
        }
        self.echo(cx)
    }

    fn closed(&mut self, _: Closed) {
        self.told.fetch_add(1, Ordering::SeqCst);
        match self.random.below(30) {
            0 => panic::resume_unwind(Box::new("a panic of closed")),
            1..=5 => self.meddle(),
            _ => {}
        }
    }
}
