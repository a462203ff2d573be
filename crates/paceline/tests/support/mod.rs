//! What the tests share: a bound on every wait, connections, and a witness of the roles.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

pub mod bell;
pub mod bound;
pub mod by_hand;
pub mod example;
pub mod gate;
pub mod grenades;
pub mod groups;
pub mod levels;
pub mod listeners;
pub mod pinned;
pub mod stage;
pub mod unowned;

use std::{
    env, io,
    net::{TcpListener, TcpStream},
    panic,
    path::PathBuf,
    process::Command,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Mutex,
    },
    thread,
    time::Duration,
};

use paceline::{
    observe::{Observer, Role},
    Closed, Context, EventHandler, Next, Pool, SetKind,
};

/// Longer than anything here takes on the slowest machine; only a hang reaches it.
pub const LONG: Duration = Duration::from_secs(20);

/// How long a test may take: `PACELINE_PATIENCE` seconds where that is set, for tests that shall
/// hang.
fn patience(usual: Duration) -> Duration {
    let seconds = env::var("PACELINE_PATIENCE").ok();
    let seconds = seconds.map(|text| text.parse().expect("a number of seconds"));
    seconds.map_or(usual, Duration::from_secs)
}

/// Runs a test's body and fails if it hangs.
pub fn bounded<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    bounded_by(LONG, body)
}

/// The same for a test that has much to do.
pub fn bounded_by<R: Send + 'static>(
    limit: Duration,
    body: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (done, wait) = mpsc::channel();
    let thread = thread::spawn(move || {
        let told = body();
        let _ = done.send(());
        told
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = wait.recv_timeout(patience(limit)) {
        panic!("the test hangs");
    }
    thread
        .join()
        .unwrap_or_else(|panic| panic::resume_unwind(panic))
}

/// The kernel's sets that are to be had here.
pub fn kernel_sets() -> Vec<SetKind> {
    let mut sets = vec![
        SetKind::Epoll,
        SetKind::OneShot,
        SetKind::Poll,
        SetKind::Concurrent,
    ];
    sets.extend(is_to_be_had(&SetKind::Completion).then_some(SetKind::Completion));
    sets
}

/// Whether a pool can be built on `set`. A system may refuse io_uring; then that is said.
pub fn is_to_be_had(set: &SetKind) -> bool {
    match (
        set,
        Pool::builder().threads(0).handle_set(set.clone()).build(),
    ) {
        (SetKind::Completion, Err(error)) => {
            eprintln!("skipped: on a completion set: {error}");
            false
        }
        (_, built) => built.map(drop).is_ok(),
    }
}

/// Two ends of a TCP connection on loopback; the first is meant for the pool.
pub fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    far.set_read_timeout(Some(LONG)).unwrap();
    (near, far)
}

/// Remembers every change of role, and that there never were two leaders (L1).
#[derive(Clone, Default)]
pub struct Witness {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    leaders: AtomicUsize,
    most_leaders: AtomicUsize,
    roles: Mutex<Vec<Option<Role>>>,
    log: Mutex<Vec<(usize, Role)>>,
}

impl Witness {
    /// The largest number of leaders at any time.
    pub fn most_leaders(&self) -> usize {
        self.inner.most_leaders.load(Ordering::SeqCst)
    }

    /// Everything that was told, in order.
    pub fn log(&self) -> Vec<(usize, Role)> {
        self.inner.log.lock().unwrap().clone()
    }

    /// How many threads have this role now.
    pub fn count(&self, role: Role) -> usize {
        let roles = self.inner.roles.lock().unwrap();
        roles.iter().filter(|other| **other == Some(role)).count()
    }

    /// The role of a thread now.
    pub fn role(&self, thread: usize) -> Option<Role> {
        let roles = self.inner.roles.lock().unwrap();
        roles.get(thread).copied().flatten()
    }

    /// Waits, within the bound, until `count` threads have `role`.
    pub fn wait_for(&self, role: Role, count: usize) {
        wait_until(|| self.count(role) == count);
    }
}

impl Observer for Witness {
    fn role_changed(&self, thread: usize, role: Role) {
        let mut roles = self.inner.roles.lock().unwrap();
        if roles.len() <= thread {
            roles.resize(thread + 1, None);
        }
        if roles[thread] == Some(Role::Leader) {
            self.inner.leaders.fetch_sub(1, Ordering::SeqCst);
        }
        if role == Role::Leader {
            let leaders = self.inner.leaders.fetch_add(1, Ordering::SeqCst) + 1;
            self.inner.most_leaders.fetch_max(leaders, Ordering::SeqCst);
        }
        roles[thread] = Some(role);
        self.inner.log.lock().unwrap().push((thread, role));
    }
}

/// Waits, within the bound, until `holds`.
pub fn wait_until(mut holds: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "what was waited for never came");
        pause();
    }
}

/// Lets other threads run. A yield could last whole slices of other programs on a busy machine; who
/// sleeps comes back soon.
pub fn pause() {
    thread::sleep(Duration::from_micros(10));
}

/// A handler made of a closure, and a channel on which its end is told.
pub struct Told<F> {
    ready: F,
    closed: mpsc::Sender<Closed>,
}

/// A handler that calls `ready`, and the receiver of what it is told in the end. A second word,
/// which must never come, would be received too.
pub fn told<F>(ready: F) -> (Told<F>, mpsc::Receiver<Closed>) {
    let (closed, end) = mpsc::channel();
    (Told { ready, closed }, end)
}

impl<S, F> EventHandler<S> for Told<F>
where
    F: FnMut(&mut Context<'_, S>) -> io::Result<Next> + Send + 'static,
{
    fn ready(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        (self.ready)(cx)
    }

    fn closed(&mut self, why: Closed) {
        // Nobody may be there to hear it any more.
        let _ = self.closed.send(why);
    }
}

/// Marsaglia's xorshift: the same numbers for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // It must not start at zero, and neighbouring seeds shall not begin alike.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from zero to below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    /// Once in `times` times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// The name of a test as the test program knows it: `module` is the test's `module_path!()`.
pub fn name_of(module: &str, test: &str) -> String {
    let inside = module.split_once("::").map_or("", |(_, inside)| inside);
    format!("{inside}::{test}")
}

/// The path of an example, freshly built as this test was. (`cargo test --test NAME` builds none.)
pub fn example(name: &str) -> PathBuf {
    let tests = env::current_exe().unwrap();
    let profile = tests.ancestors().nth(2).unwrap();
    let release = (!cfg!(debug_assertions)).then_some("--release");
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--package",
            "paceline",
            "--example",
            name,
        ])
        .args(release)
        .env("CARGO_TARGET_DIR", profile.parent().unwrap())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.unwrap().success(), "example {name} does not build");
    profile.join("examples").join(name)
}
