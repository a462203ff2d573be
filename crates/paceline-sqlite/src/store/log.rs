//! Group commit: one sync of the log makes many commits durable.
//!
//! ```text
//!   begin(): ticket       before COMMIT, by the session that has the lane of writers
//!   appended(ticket)      after it: the commit is in the log, and visible to readers
//!   wait(ticket)          before the reply leaves:
//!     --> Durable         a sync that began after `appended` has ended
//!     --> MustSync        no sync runs: the caller syncs for all, by `sync`
//!     --> Parked          one runs: the session is notified when it has ended
//!     --> Failed          a sync has failed: the outcome of the commit is unknown
//! ```
//!
//! A process that begins to write calls `sync_inherited()` before it serves: a killed predecessor may
//! have left commits that no ticket counts.
//!
//! A reader takes `seen()` after its read: the last commit that it may have seen.
//!
//! Invariant: `durable <= appended <= begun`, and a reply to a ticket leaves only if
//! `durable >= ticket`.

use std::{
    fmt, io,
    sync::{
        atomic::{AtomicU64, Ordering},
        Mutex, MutexGuard, PoisonError,
    },
};

use paceline::Handle;

use crate::failure::Failure;

/// The durability of the log of a database.
pub(crate) struct Log {
    begun: AtomicU64,
    /// Written under the lock of `state`.
    durable: AtomicU64,
    state: Mutex<State>,
    medium: Medium,
    syncs: AtomicU64,
}

type Sync = Box<dyn Fn() -> io::Result<()> + Send + std::marker::Sync>;

enum Medium {
    /// Makes everything durable that was appended before the call.
    Synced(Sync),
    /// The log never syncs.
    Relaxed,
}

#[derive(Default)]
struct State {
    appended: u64,
    is_syncing: bool,
    waiters: Vec<(u64, Handle)>,
    /// Why a sync has failed. That is final: the kernel may have dropped the dirty pages.
    failed: Option<String>,
}

/// Whether a session may send its reply.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The session may send the reply.
    Durable,
    /// The session calls [`Log::sync`], then asks again.
    MustSync,
    /// The log notifies the session after the running sync.
    Parked,
    /// The outcome is unknown.
    Failed,
}

impl Log {
    pub(crate) fn synced(
        sync: impl Fn() -> io::Result<()> + Send + std::marker::Sync + 'static,
    ) -> Self {
        Self::on(Medium::Synced(Box::new(sync)))
    }

    pub(crate) fn relaxed() -> Self {
        Self::on(Medium::Relaxed)
    }

    fn on(medium: Medium) -> Self {
        Self {
            begun: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            state: Mutex::default(),
            medium,
            syncs: AtomicU64::new(0),
        }
    }

    /// A commit is about to be appended.
    pub(crate) fn begin(&self) -> u64 {
        // Before the commit becomes visible: pairs with the load in `seen`.
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The commit is in the log, or has failed.
    pub(crate) fn appended(&self, ticket: u64) {
        let mut state = self.lock();
        state.appended = state.appended.max(ticket);
        if state.is_syncing || state.waiters.is_empty() {
            return;
        }
        // Readers of this commit wait, and no sync runs that would notify them.
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        notify(waiters);
    }

    /// The last commit that a read which has ended may have seen.
    pub(crate) fn seen(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Whether a reply to this ticket may leave.
    pub(crate) fn wait(&self, ticket: u64, handle: impl FnOnce() -> Handle) -> Durability {
        if self.is_durable(ticket) {
            return Durability::Durable;
        }
        let mut state = self.lock();
        if self.is_durable(ticket) {
            return Durability::Durable;
        }
        if state.failed.is_some() {
            return Durability::Failed;
        }
        if state.is_syncing || state.appended <= self.durable.load(Ordering::Acquire) {
            state.waiters.push((ticket, handle()));
            return Durability::Parked;
        }
        state.is_syncing = true;
        Durability::MustSync
    }

    /// Whether everything up to this ticket is durable.
    pub(crate) fn is_durable(&self, ticket: u64) -> bool {
        // Acquire: pairs with the store in `finish`.
        ticket <= self.durable.load(Ordering::Acquire) || matches!(self.medium, Medium::Relaxed)
    }

    /// Syncs for all sessions that wait. Only after [`Durability::MustSync`].
    pub(crate) fn sync(&self) {
        let target = self.lock().appended;
        let result = self.sync_medium();
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.finish(target, result);
    }

    /// Makes durable what another process has appended and may not have synced. The tickets of this
    /// log do not count it, so the caller shows it to no session before this has returned.
    pub(crate) fn sync_inherited(&self) -> io::Result<()> {
        if let Some(why) = &self.lock().failed {
            return Err(io::Error::other(why.clone()));
        }
        match self.sync_medium() {
            // A new file has no log, nor has one whose last process ended gracefully.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => {
                self.lock().failed = Some(error.to_string());
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    fn sync_medium(&self) -> io::Result<()> {
        match &self.medium {
            Medium::Synced(sync) => sync(),
            Medium::Relaxed => Ok(()),
        }
    }

    fn finish(&self, target: u64, result: io::Result<()>) {
        let mut state = self.lock();
        state.is_syncing = false;
        match result {
            Ok(()) => self.durable.store(target, Ordering::Release),
            Err(error) => state.failed = Some(error.to_string()),
        }
        // The first of those whose commits came later syncs for the others.
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        notify(waiters);
    }

    /// Why a sync has failed, as the error of the sessions that wait.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let state = self.lock();
        let why = state.failed.as_ref()?;
        let failure = Failure::fatal("08007", "transaction resolution unknown");
        Some(failure.detail(format!("The log could not be made durable: {why}")))
    }

    /// Syncs so far, and commits so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let syncs = self.syncs.load(Ordering::Relaxed);
        (syncs, self.begun.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn notify(waiters: Vec<(u64, Handle)>) {
    for (_, handle) in waiters {
        // A session that is closed waits no longer.
        let _ = handle.notify();
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicBool, AtomicUsize},
        Arc,
    };

    use paceline::{simulated::Simulation, Context, Interest, Next, Pool, SetKind};

    use super::*;

    /// A handle to wait with; its notifications are counted.
    struct World {
        _pool: Pool,
        handle: Handle,
        calls: Arc<AtomicUsize>,
    }

    fn world() -> World {
        let simulation = Simulation::new(1);
        let set = SetKind::Simulated(simulation.clone());
        let pool = Pool::builder()
            .threads(1)
            .handle_set(set)
            .build()
            .expect("a pool");
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let (stream, _peer) = simulation.stream();
        let handler = move |_: &mut Context<'_, _>| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(Next::Continue)
        };
        let handle = pool
            .register(stream, Interest::NONE, handler)
            .expect("a handle");
        World {
            _pool: pool,
            handle,
            calls,
        }
    }

    impl World {
        fn is_notified(&self, times: usize) {
            while self.calls.load(Ordering::SeqCst) < times {
                std::thread::yield_now();
            }
        }
    }

    /// The commit that is appended while a sync runs is not covered by it: the system may have
    /// begun to write before.
    #[test]
    fn a_sync_covers_only_what_was_appended_before_it() {
        let world = world();
        let log: Arc<Log> = Arc::new_cyclic(|weak: &std::sync::Weak<Log>| {
            let weak = weak.clone();
            let is_first = AtomicBool::new(true);
            Log::synced(move || {
                if is_first.swap(false, Ordering::SeqCst) {
                    let log = weak.upgrade().expect("it syncs");
                    let during = log.begin();
                    log.appended(during);
                }
                Ok(())
            })
        });
        let first = log.begin();
        log.appended(first);
        assert_eq!(
            log.wait(first, || world.handle.clone()),
            Durability::MustSync
        );
        // A second session meanwhile waits for the sync that runs.
        assert_eq!(log.wait(first, || world.handle.clone()), Durability::Parked);
        log.sync();
        world.is_notified(1);
        assert_eq!(
            log.wait(first, || world.handle.clone()),
            Durability::Durable
        );
        assert_eq!(
            log.wait(first + 1, || world.handle.clone()),
            Durability::MustSync
        );
        log.sync();
        assert_eq!(
            log.wait(first + 1, || world.handle.clone()),
            Durability::Durable
        );
    }

    /// A reader that has seen a commit waits for it, also if the commit has not returned yet.
    #[test]
    fn a_reader_waits_for_what_it_has_seen() {
        let world = world();
        let log = Log::synced(|| Ok(()));
        let ticket = log.begin();
        let seen = log.seen();
        assert_eq!(seen, ticket);
        assert_eq!(log.wait(seen, || world.handle.clone()), Durability::Parked);
        log.appended(ticket);
        world.is_notified(1);
        assert_eq!(
            log.wait(seen, || world.handle.clone()),
            Durability::MustSync
        );
        log.sync();
        assert_eq!(log.wait(seen, || world.handle.clone()), Durability::Durable);
    }

    /// The kernel may drop dirty pages after a failed sync, so a second sync may return success
    /// without writing them.
    #[test]
    fn a_failed_sync_is_final() {
        let world = world();
        let fails = Arc::new(AtomicBool::new(true));
        let may_fail = Arc::clone(&fails);
        let log = Log::synced(move || {
            if may_fail.load(Ordering::SeqCst) {
                Err(io::Error::other("the disk is gone"))
            } else {
                Ok(())
            }
        });
        let ticket = log.begin();
        log.appended(ticket);
        assert_eq!(
            log.wait(ticket, || world.handle.clone()),
            Durability::MustSync
        );
        log.sync();
        fails.store(false, Ordering::SeqCst);
        assert_eq!(
            log.wait(ticket, || world.handle.clone()),
            Durability::Failed
        );
        assert_eq!(log.failure().map(|failure| failure.code), Some("08007"));
    }

    /// Commits of a killed process that can't be made durable are not followed by others. A missing
    /// log holds no commits.
    #[test]
    fn a_failed_sync_of_an_inherited_log_is_final() {
        let world = world();
        let log = Log::synced(|| Err(io::ErrorKind::NotFound.into()));
        log.sync_inherited().expect("there is no log");
        assert!(log.failure().is_none());
        let fails = AtomicBool::new(true);
        let log = Log::synced(move || {
            if fails.swap(false, Ordering::SeqCst) {
                Err(io::Error::other("the disk is gone"))
            } else {
                Ok(())
            }
        });
        let failure = log.sync_inherited().expect_err("the disk is gone");
        assert_eq!(failure.to_string(), "the disk is gone");
        let again = log.sync_inherited().expect_err("it was final");
        assert_eq!(again.to_string(), "the disk is gone");
        let ticket = log.begin();
        log.appended(ticket);
        assert_eq!(
            log.wait(ticket, || world.handle.clone()),
            Durability::Failed
        );
    }
}
