//! The roles stepped by hand, on the simulated set: what the test itself does, no scheduler can
//! reorder.

use std::{
    fs, io,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use paceline::{
    observe::{Observer, Role},
    simulated::{SimPeer, SimStream, Simulation},
    turn::{Claimed, Follower, Leader, Led, Waited},
    Context, EventHandler, Interest, Left, Next, Pool, SetKind, Wake,
};

/// Looks, and does not wait.
pub const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// Only a hang reaches it.
const BOUND: Duration = Duration::from_secs(20);

/// A pool in a world of its own, with the textbook's wake: what follows from an event needs no
/// tick. Time stands still there until it is moved.
pub struct Scene {
    pub world: Simulation,
    pub pool: Pool,
}

impl Scene {
    /// A pool without threads of its own: the test's threads play all the roles.
    pub fn new(observer: impl Observer) -> Self {
        Self::with_threads(0, observer)
    }

    pub fn with_threads(threads: usize, observer: impl Observer) -> Self {
        let world = Simulation::new(1);
        let pool = Pool::builder()
            .threads(threads)
            .wake(Wake::Eager)
            .handle_set(SetKind::Simulated(world.clone()))
            .observer(observer)
            .build()
            .unwrap();
        Self { world, pool }
    }

    /// As [`new`](Self::new), and nobody watches.
    pub fn unobserved() -> Self {
        Self::new(Unobserved)
    }

    /// A connection whose bytes are sent back, by one call of its handler per event. The peer's
    /// end.
    pub fn echo(&self) -> SimPeer {
        self.serve(echo)
    }

    /// A connection with this handler, which is interested in input. The peer's end.
    pub fn serve(&self, handler: impl EventHandler<SimStream>) -> SimPeer {
        let (stream, peer) = self.world.stream();
        self.pool.register(stream, Interest::READ, handler).unwrap();
        peer
    }

    /// A thread that joins until the pool is shut down.
    pub fn joined(&self) -> JoinHandle<io::Result<()>> {
        let pool = self.pool.clone();
        thread::spawn(move || pool.join())
    }

    /// A thread that joins for some seconds of the virtual clock.
    pub fn joined_for(&self, seconds: u64) -> JoinHandle<io::Result<Left>> {
        let pool = self.pool.clone();
        thread::spawn(move || pool.join_timeout(Duration::from_secs(seconds)))
    }

    /// Waits until `count` followers sleep.
    pub fn wait_asleep(&self, count: usize) {
        wait_asleep(&self.pool, count);
    }

    /// Moves the clock.
    pub fn advance(&self, seconds: u64) {
        self.world.clock().advance(Duration::from_secs(seconds));
    }

    /// The time on the clock.
    pub fn seconds(&self) -> u64 {
        self.world.clock().elapsed().as_secs()
    }
}

impl Drop for Scene {
    /// Sends the joined threads home, and waits for nothing.
    fn drop(&mut self) {
        let _ = self.pool.shutdown(Duration::ZERO);
    }
}

struct Unobserved;

impl Observer for Unobserved {
    fn role_changed(&self, _thread: usize, _role: Role) {}
}

/// A handler that sends everything back until its source runs dry: one call per event.
pub fn echo(cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
    let mut buffer = [0; 64];
    loop {
        match cx.read(&mut buffer)? {
            0 => return Ok(Next::Close),
            count => cx.write_all(&buffer[..count])?,
        }
    }
}

/// Enters, and leads at once: the lead must be vacant.
pub fn lead(pool: &Pool) -> Leader<'_> {
    take_lead(pool.enter().unwrap())
}

pub fn take_lead(follower: Follower<'_>) -> Leader<'_> {
    match follower.lead() {
        Led::Leader(leader) => leader,
        Led::TimedOut => panic!("its time was over"),
        Led::Closing => panic!("the pool is closed"),
    }
}

/// Claims the next event, which must be there.
pub fn claim(leader: Leader<'_>) -> Claimed<'_> {
    match leader.wait(AT_ONCE).unwrap() {
        Waited::Claimed(claimed) => claimed,
        Waited::Nothing(_) => panic!("there is no event"),
    }
}

/// Finds no event, and gives the lead away.
pub fn find_nothing(leader: Leader<'_>) -> Follower<'_> {
    match leader.wait(AT_ONCE).unwrap() {
        Waited::Claimed(_) => panic!("there is an event"),
        Waited::Nothing(follower) => follower,
    }
}

/// One whole turn: leads, claims the event that must be there, promotes, processes.
pub fn turn(follower: Follower<'_>) -> Follower<'_> {
    claim(take_lead(follower)).promote().run()
}

/// Enters, handles every event that is there, and leaves. Returns how many there were.
pub fn serve_all(pool: &Pool) -> usize {
    let mut follower = pool.enter().unwrap();
    for served in 0..1000 {
        follower = match take_lead(follower).wait(AT_ONCE).unwrap() {
            Waited::Claimed(claimed) => claimed.promote().run(),
            Waited::Nothing(_) => return served,
        };
    }
    panic!("the events never end");
}

/// Waits until `count` followers of the pool sleep, and no lead is on its way to anyone.
pub fn wait_asleep(pool: &Pool, count: usize) {
    let start = Instant::now();
    while !says(pool, &format!("followers: {count}")) || says(pool, "elect: true") {
        assert!(start.elapsed() < BOUND, "{count} do not sleep: {pool:?}");
        thread::yield_now();
    }
}

/// A pool whose threads sleep in a world of its own.
pub fn asleep(world: &Simulation, threads: usize) -> Pool {
    let set = SetKind::Simulated(world.clone());
    let pool = Pool::builder().threads(threads).handle_set(set);
    let pool = pool.build().unwrap();
    let start = Instant::now();
    while world.clock().asleep() != threads {
        assert!(start.elapsed() < BOUND, "{threads} do not sleep: {pool:?}");
        pause(Duration::from_micros(10));
    }
    pool
}

/// Moves the clock.
pub fn advance(scene: &Scene, span: Duration) {
    scene.world.clock().advance(span);
}

/// Whether the pool's `Debug` form says so.
fn says(pool: &Pool, what: &str) -> bool {
    format!("{pool:?}").contains(what)
}

/// Lets some real time pass in which something might happen that must not.
pub fn pause(time: Duration) {
    let (_never, nothing) = mpsc::channel::<()>();
    let _ = nothing.recv_timeout(time);
}

/// The kernel's number of the calling thread.
pub fn own_task() -> u32 {
    let link = fs::read_link("/proc/thread-self").unwrap();
    let number = link.file_name().unwrap().to_str().unwrap();
    number.parse().unwrap()
}

/// Whether a thread of this process sleeps, for whatever reason.
pub fn sleeps(task: u32) -> bool {
    status(task, "State:") == "S"
}

/// For how long a thread of this process has run so far, in hundredths of a second.
pub fn time_run(task: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/task/{task}/stat")).unwrap();
    // Behind the name, which may be anything: the times as user and as system are the 12th and the
    // 13th.
    let fields = text.rsplit(')').next().unwrap().split_whitespace();
    let times = fields.skip(11).take(2);
    times.map(|time| time.parse::<u64>().unwrap()).sum()
}

/// The first word of a field of a thread's status.
pub fn status(task: u32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/self/task/{task}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let word = line.and_then(|rest| rest.split_whitespace().next());
    word.expect("the kernel tells it").to_owned()
}
