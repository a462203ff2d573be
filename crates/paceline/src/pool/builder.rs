//! The settings of a pool, and how it is built from them.

mod limits;

use std::{fmt, io, sync::Arc, time::Duration};

use super::{
    set_kind::{open, SetKind},
    threads::{work, Threads, MOST},
    Pool,
};
use crate::{
    dispatch::{
        Arrangement, ClosedHandle, HandleId, Hooks, Limits, Line, Panics, QueueOrder, Registry,
    },
    errors::judged,
    hub::{spawn, ErrorHook, Hub, Membership, Monitor, StuckHook, ThreadSettings, Watch},
    idle::{IdlePolicy, LEADER_YIELDS},
    observe::{Board, Counters, Observer, Observers, Stuck},
    promotion::{ElasticPolicy, Lead, Order, Policy, Wake, MOST_THREADS},
    sync::{cores, Mutex},
    unwind::Contained,
};

/// Settings of a pool. [`build`](Self::build) judges them all at once. Most need none of them but
/// [`threads`](Self::threads), and [`board`](Self::board) to see what the pool does.
pub struct Builder {
    threads: Option<Threads>,
    keep_alive: Option<Duration>,
    thread_settings: ThreadSettings,
    order: Order,
    wake: Wake,
    parallelism: Option<usize>,
    tick: Duration,
    leader_spin: Option<Duration>,
    watcher: bool,
    set: SetKind,
    limits: Limits,
    queue_order: QueueOrder,
    age_limit: Option<Duration>,
    hooks: Hooks,
    observers: Vec<Box<dyn Observer>>,
    board: bool,
    stuck: Option<(Duration, StuckHook)>,
    on_error: Option<ErrorHook>,
    roams: bool,
}

const DEFAULT_READ_BUDGET: usize = 64 * 1024;
const DEFAULT_OUTPUT_LIMIT: usize = 256 * 1024;
const DEFAULT_POST_LIMIT: usize = 1024;
const DEFAULT_NESTING: usize = 16;
const DEFAULT_LINGER_TIME: Duration = Duration::from_secs(5);
const DEFAULT_LINGER_LIMIT: usize = 1024 * 1024;
const DEFAULT_UNREAD_LIMIT: u32 = 1000;
/// The shortest time between two of the standby's looks.
const DEFAULT_TICK: Duration = Duration::from_micros(500);
/// How long a thread of an elastic pool may be idle before it goes, if it is not needed.
const DEFAULT_KEEP_ALIVE: Duration = Duration::from_secs(10);

impl Default for Builder {
    fn default() -> Self {
        Self {
            threads: None,
            keep_alive: None,
            thread_settings: ThreadSettings {
                name: "paceline".to_owned(),
                ..ThreadSettings::default()
            },
            order: Order::default(),
            wake: Wake::default(),
            parallelism: None,
            tick: DEFAULT_TICK,
            leader_spin: None,
            watcher: true,
            set: SetKind::default(),
            limits: Limits {
                read_budget: DEFAULT_READ_BUDGET,
                output_limit: DEFAULT_OUTPUT_LIMIT,
                unread_calls: DEFAULT_UNREAD_LIMIT,
                nesting: DEFAULT_NESTING,
                post_limit: DEFAULT_POST_LIMIT,
                idle_timeout: None,
                linger_time: DEFAULT_LINGER_TIME,
                linger_limit: DEFAULT_LINGER_LIMIT,
            },
            queue_order: QueueOrder::default(),
            age_limit: None,
            hooks: Hooks::default(),
            observers: Vec::new(),
            board: false,
            stuck: None,
            on_error: None,
            roams: false,
        }
    }
}

impl Builder {
    /// How many threads the pool spawns. Default: four per core, at least four. Zero is legal: then
    /// it lives on threads that [`join`](Pool::join).
    ///
    /// A range such as `4..=64` makes the pool elastic. It begins with the lower bound. A thread
    /// that goes to handle an event and leaves no thread behind that could lead calls one more
    /// thread, up to the upper bound and one at a time: so the pool does not go blind while all are
    /// in handlers. A thread that was idle for [`keep_alive`](Self::keep_alive) goes, down to the
    /// lower bound; but a leader and one in reserve stay once they are there. Threads that join
    /// count neither way.
    ///
    /// If the system has no thread to give, the pool goes on with those it has, calls
    /// [`on_error`](Self::on_error), and asks again after a tenth of a second, when there is need.
    #[must_use]
    pub fn threads(mut self, threads: impl Into<Threads>) -> Self {
        self.threads = Some(threads.into());
        self
    }

    /// How long a thread of an elastic pool may be idle before it goes, if more are there than must
    /// stay. Default: ten seconds. With oldest first each thread has its turn, so that none is idle
    /// for long while there is work.
    #[must_use]
    pub fn keep_alive(mut self, time: Duration) -> Self {
        self.keep_alive = Some(time);
        self
    }

    /// What its threads are called, each with its index. Default: `paceline`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.thread_settings.name = name.into();
        self
    }

    /// The size of the stacks of the pool's own threads, in bytes. Default: that of std's threads.
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.thread_settings.stack_size = Some(bytes);
        self
    }

    /// The cores that each of the pool's own threads is confined to, by its index; cores are
    /// counted from zero. No core at all: it runs where the system likes, as without this. It is
    /// asked on the thread itself, before that is of use to the pool, so it must be quick. Linux
    /// only. If it can't be, [`on_error`](Self::on_error) is called, and the thread does without.
    #[must_use]
    pub fn thread_affinity(
        mut self,
        of: impl Fn(usize) -> Vec<usize> + Send + Sync + 'static,
    ) -> Self {
        self.thread_settings.cores = Some(by_index(of));
        self
    }

    /// The nice value of each of the pool's own threads, by its index; as
    /// [`thread_affinity`](Self::thread_affinity). A lower value than the process has needs a
    /// privilege.
    #[must_use]
    pub fn thread_nice(mut self, of: impl Fn(usize) -> i32 + Send + Sync + 'static) -> Self {
        self.thread_settings.nice = Some(by_index(of));
        self
    }

    /// Which follower is elected, by [`Order`]. Default: the newest.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// When a follower is woken: see [`Wake`]. Default: where it pays.
    #[must_use]
    pub fn wake(mut self, wake: Wake) -> Self {
        self.wake = wake;
        self
    }

    /// How many cores the pool counts on. While fewer threads run and work waits, another one is
    /// woken. Behind handlers that compute, and if more waits, one thread more may run, if there
    /// are several cores: a woken thread may have to wait for its core while another is idle.
    /// Default: the cores that this process may use when the pool is built.
    #[must_use]
    pub fn parallelism(mut self, threads: usize) -> Self {
        self.parallelism = Some(threads);
        self
    }

    /// The period of the standby's checks, under [`Wake::Adaptive`]. No event waits for a leader
    /// longer than **a tick and a quarter and a wake**, even behind a handler that blocks by
    /// surprise. Once 32 checks found nothing to do, or while the watcher checks too, only every
    /// fourth tick is a check, and it is four and a quarter. (A quarter more, if the handler was
    /// ready to run at the check, and waited for that very core.) Default: 500 microseconds. An
    /// idle pool does not tick.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// How long a leader that finds no event keeps looking for one before it sleeps: *spins*. An
    /// answer comes sooner where requests follow each other closely, and the time is burnt where
    /// they do not. Set it if you have a core for that.
    ///
    /// Default: the pool finds out. It spins for up to 30 microseconds while nearly every such spin
    /// finds an event, and otherwise tries that again now and then; others that want the core may
    /// run between two polls. With zero it never spins. Where it does not spin it may still yield
    /// and poll once more, if that paid lately; nothing turns that off. In sets that are dear to
    /// poll ([`SetKind::Poll`] and completions) it does neither, unless this sets how long to spin.
    /// An idle pool sleeps, and costs nothing.
    #[must_use]
    pub fn leader_spin(mut self, span: Duration) -> Self {
        self.leader_spin = Some(span);
        self
    }

    /// Whether a pool whose handlers often block by surprise may have a watcher, under
    /// [`Wake::Adaptive`]: one more thread, of the lowest scheduling class, which finds out as soon
    /// as a core is idle, long before the next tick. It is started when it is first needed, and
    /// sleeps when it is not; while it watches a busy pool it may use up to a quarter of a core
    /// that no other thread wants. Default: it may (on Linux).
    #[must_use]
    pub fn watcher(mut self, may: bool) -> Self {
        self.watcher = may;
        self
    }

    /// The priorities of the pool's own threads, by their index, for [`Order::Priority`]. Default:
    /// all zero. Threads that join choose their own: see [`Pool::entrance`].
    #[must_use]
    pub fn thread_priority(mut self, of: impl Fn(usize) -> u8 + Send + Sync + 'static) -> Self {
        self.thread_settings.priority = Some(by_index(of));
        self
    }

    /// Where the leader waits. Default: edge-triggered epoll.
    #[must_use]
    pub fn handle_set(mut self, set: SetKind) -> Self {
        self.set = set;
        self
    }

    /// The observer of changes of role, and of what goes wrong. There may be several. See
    /// [`Pool::observe`] for one that comes later, and goes.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Box::new(Contained::new(observer)));
        self
    }

    /// Whether each thread shows what it does: for [`Inspect`](crate::Inspect), but for its
    /// `thread_ids`. It costs some stores per event, and five kilobytes per thread. Default: no.
    #[must_use]
    pub fn board(mut self, on: bool) -> Self {
        self.board = on;
        self
    }

    /// The hook is called with every call of a handler that has lasted for `limit`, once; and once
    /// more when its thread was seen to have come back, at most `limit` later. Posts, timers and a
    /// handler's work for afterwards are calls too, and one that has said that it blocks is one
    /// like any other. Observers get the same ([`Observer::stuck`]).
    ///
    /// It runs on a thread of its own, so it is called even if all the pool's threads are stuck.
    /// That thread reads the [`board`](Self::board), which is on then, once in `limit`, and when a
    /// call gets that old; it ends with the pool, and keeps nothing of it alive. On a virtual clock
    /// it sleeps like a thread of the pool, and is counted by
    /// [`asleep`](crate::simulated::VirtualClock::asleep). A panic of the hook is dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use paceline::Pool;
    ///
    /// let pool = Pool::builder()
    ///     .stuck_after(Duration::from_secs(5), |stuck| eprintln!("{stuck}"))
    ///     .build()?;
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use]
    pub fn stuck_after(
        mut self,
        limit: Duration,
        hook: impl Fn(&Stuck) + Send + Sync + 'static,
    ) -> Self {
        let hook = Contained::new(hook);
        self.stuck = Some((limit, Box::new(move |stuck| hook(stuck))));
        self
    }

    /// Is called with an error of the wait itself on one of the pool's own threads; and with that
    /// of a thread that could not be spawned, or not be set up as it should be, in a pool that is
    /// built. The error also stands in the shutdown report.
    #[must_use]
    pub fn on_error(mut self, hook: impl Fn(&io::Error) + Send + Sync + 'static) -> Self {
        let hook = Contained::new(hook);
        self.on_error = Some(Box::new(move |error| hook(error)));
        self
    }

    /// What becomes of a handle whose handler panicked, and of a periodic timer. Default: it is
    /// closed.
    #[must_use]
    pub fn panics(mut self, panics: Panics) -> Self {
        self.hooks.panics = panics;
        self
    }

    /// Is called with the message of every panic of user code: of a handler, whatever becomes of
    /// its handle, of a source, in `closed`, in drops, in work for afterwards, in posts and timers,
    /// in `on_closed`, and in a listener's maker of handlers. A panic of this hook itself is
    /// dropped.
    #[must_use]
    pub fn on_panic(mut self, hook: impl Fn(HandleId, &str) + Send + Sync + 'static) -> Self {
        let hook = Contained::new(hook);
        self.hooks.on_panic = Some(Box::new(move |handle, panic| hook(handle, panic)));
        self
    }

    /// The hook is called at the end of every handle, listeners too, before its handler's `closed`:
    /// the one place to log errors of handlers, with the address of the peer. (Posts and timers
    /// have no end that is reported.)
    ///
    /// ```
    /// use paceline::{Closed, Pool};
    ///
    /// let pool = Pool::builder()
    ///     .on_closed(|closed| {
    ///         if let Closed::Failed(error) = closed.reason() {
    ///             eprintln!("{}: peer {:?}: {error}", closed.id(), closed.peer());
    ///         }
    ///     })
    ///     .build()?;
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use]
    pub fn on_closed(mut self, hook: impl Fn(&ClosedHandle<'_>) + Send + Sync + 'static) -> Self {
        let hook = Contained::new(hook);
        self.hooks.on_closed = Some(Box::new(move |closed| hook(closed)));
        self
    }

    /// Builds the pool and spawns its threads.
    ///
    /// # Errors
    /// `InvalidInput` if a setting can't be; the text names every one. `Unsupported` if the system
    /// does not have this handle set. Otherwise the error of the system for the handle set or a
    /// thread.
    pub fn build(mut self) -> io::Result<Pool> {
        self.judge()?;
        let threads = *self.threads.get_or_insert_with(default_threads);
        let hub = Arc::new(self.into_shared()?);
        let _ = hub.thread_settings.pool.set(Arc::downgrade(&hub));
        let pool = Pool::of(hub);
        // If a spawn fails, dropping the pool sends those home that were spawned already.
        for _ in 0..threads.least {
            spawn(pool.hub())?;
        }
        let Hub {
            thread_settings,
            monitor,
            ..
        } = &**pool.hub();
        monitor
            .iter()
            .try_for_each(|monitor| monitor.start(&thread_settings.name))?;
        Ok(pool)
    }

    /// Without threads of its own: those of several pools come and go.
    pub(crate) fn roaming(mut self) -> io::Result<Self> {
        let wrong = match self.order {
            _ if self.set.is_for_many() => "nobody leads in a concurrent set, so nobody need roam",
            _ if self.order != Order::Newest => "those who roam have no order but the newest first",
            _ => {
                (self.threads, self.roams, self.watcher) = (Some(0.into()), true, false);
                return Ok(self);
            }
        };
        judged("build a pool for roaming leaders", &[wrong.to_owned()]).map(|()| self)
    }

    fn into_shared(self) -> io::Result<Hub> {
        let counters = Arc::new(Counters::default());
        let (policy, elastic) = (self.policy(), self.elastic());
        let (set, clock) = open(&self.set)?;
        let leads = !self.set.is_for_many();
        let watched =
            self.watcher && leads && policy.is_adaptive() && clock.is_real() && Watch::can_be_had();
        let line = Line::arranged(Arrangement::new(self.queue_order, self.age_limit));
        let lead = Lead::vacant(line, policy, Arc::clone(&counters));
        let has_board = self.board || self.stuck.is_some();
        let observers = Observers::new(self.observers, has_board);
        let board = has_board.then(|| Board::new(clock.clone()));
        let lead = lead
            .watched(watched)
            .with_elastic(elastic)
            .shown_on(board.clone());
        let lead = lead
            .roaming(self.roams)
            .asking(policy.is_adaptive() && clock.is_real());
        lead.set_observed(has_board || observers.has_first());
        let lead = Arc::new(lead);
        let monitor = board
            .as_ref()
            .zip(self.stuck)
            .map(|(board, (limit, hook))| {
                Monitor::new(Arc::clone(board), limit, hook, Arc::clone(&observers))
            });
        let hooks = Hooks {
            observers: Arc::clone(&observers),
            ..self.hooks
        };
        let registry = Registry::new(
            set,
            clock.clone(),
            self.limits,
            hooks,
            Arc::clone(&counters),
        );
        if let Some(why) = lead.hands_nothing() {
            registry.refuse_affinity(why);
        }
        Ok(Hub {
            watch: Watch::new(&lead, &clock, &self.thread_settings.name),
            lead,
            registry,
            clock,
            counters,
            membership: Membership::new(board),
            idle: IdlePolicy::new(LEADER_YIELDS, self.leader_spin),
            observers,
            monitor,
            threads: Mutex::new(Vec::new()),
            thread_settings: self.thread_settings,
            life: work,
            errors: Mutex::new(Vec::new()),
            on_error: self.on_error,
        })
    }

    /// Of an elastic pool.
    fn elastic(&self) -> Option<ElasticPolicy> {
        let keep_alive = self.keep_alive.unwrap_or(DEFAULT_KEEP_ALIVE);
        self.threads?.elastic(keep_alive)
    }

    fn policy(&self) -> Policy {
        Policy {
            wake: self.wake,
            order: self.order,
            cores: self.parallelism.unwrap_or_else(cores),
            tick: self.tick,
        }
    }

    /// Names everything that is wrong, not only the first.
    fn judge(&self) -> io::Result<()> {
        let mut wrong = Vec::new();
        let threads = self.threads.unwrap_or_else(default_threads);
        wrong.extend(threads.fault());
        if self.keep_alive.is_some() && !threads.is_elastic() {
            wrong.push(format!("keep_alive: threads({threads}) is no range"));
        }
        if self.set.is_for_many() && threads.is_elastic() {
            wrong.push(format!(
                "threads({threads}): nobody leads in a concurrent set, so none can be missing"
            ));
        }
        let name = &self.thread_settings.name;
        if name.contains('\0') {
            wrong.push(format!("name({name:?}): it contains a NUL"));
        }
        if self.parallelism == Some(0) {
            wrong.push("parallelism(0): no thread could run".to_owned());
        }
        if self.tick.is_zero() {
            wrong.push("tick(0): the standby would never sleep".to_owned());
        }
        if self.thread_settings.priority.is_some() && self.order != Order::Priority {
            let order = self.order;
            wrong.push(format!(
                "thread_priority: order({order:?}) ignores priorities"
            ));
        }
        if self
            .stuck
            .as_ref()
            .is_some_and(|(limit, _)| limit.is_zero())
        {
            wrong.push("stuck_after(0): every handler would be stuck".to_owned());
        }
        let arranged = Arrangement::new(self.queue_order, self.age_limit).is_some();
        if self.set.is_for_many() && arranged {
            let text = "queue_order, age_limit: in a concurrent set the system says who is next";
            wrong.push(text.to_owned());
        }
        if self.limits.read_budget == 0 {
            wrong.push("read_budget(0): no handler could read anything".to_owned());
        }
        if self.limits.unread_calls == 0 {
            wrong.push("unread_limit(0): every handler would be reported".to_owned());
        }
        if self.limits.idle_timeout.is_some_and(|idle| idle.is_zero()) {
            wrong.push("idle_timeout(0): every connection would be closed at once".to_owned());
        }
        judged("build a pool", &wrong)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("threads", &self.threads)
            .field("keep_alive", &self.keep_alive)
            .field("name", &self.thread_settings.name)
            .field("stack_size", &self.thread_settings.stack_size)
            .field("order", &self.order)
            .field("wake", &self.wake)
            .field("parallelism", &self.parallelism)
            .field("tick", &self.tick)
            .field("leader_spin", &self.leader_spin)
            .field("watcher", &self.watcher)
            .field("set", &self.set)
            .field("limits", &self.limits)
            .field("queue_order", &self.queue_order)
            .field("age_limit", &self.age_limit)
            .field("hooks", &self.hooks)
            .field("observers", &self.observers.len())
            .field("board", &self.board)
            .field("stuck_after", &self.stuck.as_ref().map(|(limit, _)| limit))
            .finish_non_exhaustive()
    }
}

/// A setting that the pool keeps until its last thread has gone.
fn by_index<T: 'static>(
    of: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Box<dyn Fn(usize) -> T + Send + Sync> {
    let of = Contained::new(of);
    #[allow(clippy::redundant_closure, reason = "the closure owns what it calls")]
    Box::new(move |index| of(index))
}

const _: () = assert!(MOST < MOST_THREADS);

fn default_threads() -> Threads {
    (4 * cores()).clamp(4, MOST).into()
}
