//! The settings of a round, and the pools that are built of them.

use std::{io, sync::Arc, time::Duration};

use paceline::{
    observe::{Observer, Role, Stuck, Unread},
    Builder, HandleId, Leaders, Levels, Order, Panics, Pool, QueueOrder, SetKind, Sets, Spread,
    Wake,
};

use crate::misuse::ledger::{Kind, Ledger, Life};
use crate::support::Random;

/// How many pools there are, and how they belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    Sets {
        sets: usize,
        roaming: bool,
        fewest: bool,
    },
    Levels(usize),
}

/// Where the threads of a pool wait.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(crate) kind: SetKind,
    pub(crate) is_for_many: bool,
}

impl From<SetKind> for Set {
    fn from(kind: SetKind) -> Self {
        Self {
            is_for_many: matches!(kind, SetKind::Concurrent),
            kind,
        }
    }
}

/// The settings of every pool of a round.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) shape: Shape,
    pub(crate) set: SetKind,
    /// All threads wait in the set at once.
    pub(crate) is_for_many: bool,
    pub(crate) threads: (usize, usize),
    pub(crate) order: Order,
    pub(crate) wake: Wake,
    pub(crate) queue_order: QueueOrder,
    pub(crate) keeps_panicked: bool,
    pub(crate) tick: Duration,
    pub(crate) spin: Option<Duration>,
    pub(crate) watcher: bool,
    pub(crate) parallelism: Option<usize>,
    pub(crate) output_limit: usize,
    pub(crate) read_budget: usize,
    pub(crate) post_limit: usize,
    pub(crate) nesting: usize,
    pub(crate) keep_alive: Duration,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) age_limit: Option<Duration>,
    pub(crate) linger_time: Duration,
    pub(crate) linger_limit: usize,
    pub(crate) unread_limit: u32,
    pub(crate) board: bool,
    pub(crate) stuck_after: Option<Duration>,
    pub(crate) hooks_panic: bool,
}

impl Settings {
    /// Settings by chance, on this set.
    pub(crate) fn random(random: &mut Random, shape: Shape, set: Set) -> Self {
        let order = [Order::Newest, Order::Oldest, Order::Priority, Order::System];
        let lines = [QueueOrder::Oldest, QueueOrder::Newest, QueueOrder::Priority];
        let least = pick(random, &[1, 1, 2, 2, 3, 4]);
        let roams = matches!(shape, Shape::Sets { roaming: true, .. });
        let drawn = Self {
            shape,
            set: set.kind,
            is_for_many: set.is_for_many,
            threads: match random.below(6) {
                0 if shape == Shape::One => (0, 0),
                1 | 2 => (least, least + 3),
                _ => (least, least),
            },
            order: if roams {
                Order::Newest
            } else {
                pick(random, &order)
            },
            wake: pick(random, &[Wake::Adaptive, Wake::Adaptive, Wake::Eager]),
            queue_order: pick(random, &lines),
            keeps_panicked: random.once_in(2),
            tick: Duration::from_micros(pick(random, &[100, 500, 500, 5000])),
            spin: pick(random, &[None, None, Some(0), Some(50)]).map(Duration::from_micros),
            watcher: !random.once_in(3),
            parallelism: pick(random, &[None, None, Some(1), Some(8)]),
            output_limit: pick(random, &[256 << 10, 4096, 600, 4096]),
            read_budget: pick(random, &[64 << 10, 64 << 10, 512, 100]),
            post_limit: pick(random, &[1024, 1024, 2, 1]),
            nesting: pick(random, &[16, 16, 1, 2]),
            keep_alive: Duration::from_millis(pick(random, &[10_000, 1, 3])),
            idle_timeout: pick(random, &[None, None, None, Some(2)]).map(Duration::from_millis),
            age_limit: pick(random, &[None, None, None, Some(500)]).map(Duration::from_micros),
            linger_time: Duration::from_millis(pick(random, &[1, 5, 50])),
            linger_limit: pick(random, &[1 << 20, 1000, 1]),
            unread_limit: pick(random, &[1000, 3, 1]),
            board: random.once_in(3),
            stuck_after: random.once_in(4).then_some(Duration::from_millis(1)),
            hooks_panic: random.once_in(3),
        };
        drawn.legal()
    }

    /// Without what no builder takes: the pool says so, and other tests show that.
    fn legal(mut self) -> Self {
        if self.is_for_many {
            (self.queue_order, self.age_limit) = (QueueOrder::Oldest, None);
            self.threads.1 = self.threads.0;
        }
        if matches!(self.shape, Shape::Sets { .. }) {
            self.threads.1 = self.threads.0;
        }
        self
    }

    fn is_elastic(&self) -> bool {
        self.threads.0 < self.threads.1
    }

    /// The builder of one pool. The ledger learns when the pool's own memory is freed.
    pub(crate) fn builder(&self, ledger: &Arc<Ledger>, name: &str) -> Builder {
        let memory = ledger.begin(Kind::Value, "the memory of a pool");
        let panics = if self.keeps_panicked {
            Panics::Keep
        } else {
            Panics::Close
        };
        let hooks_panic = self.hooks_panic;
        let mut builder = Pool::builder()
            .threads(self.threads.0..=self.threads.1)
            .name(name)
            .handle_set(self.set.clone())
            .order(self.order)
            .wake(self.wake)
            .queue_order(self.queue_order)
            .panics(panics)
            .tick(self.tick)
            .watcher(self.watcher)
            .output_limit(self.output_limit)
            .read_budget(self.read_budget)
            .post_limit(self.post_limit)
            .nesting(self.nesting)
            .linger_time(self.linger_time)
            .linger_limit(self.linger_limit)
            .unread_limit(self.unread_limit)
            .board(self.board)
            .observer(Leading::new(Arc::clone(ledger), memory, hooks_panic))
            .on_panic(move |_, _| complain(hooks_panic))
            .on_closed(move |_| complain(hooks_panic));
        if self.is_elastic() {
            builder = builder.keep_alive(self.keep_alive);
        }
        if self.order == Order::Priority {
            builder = builder.thread_priority(|index| (index % 2) as u8);
        }
        if let Some(span) = self.spin {
            builder = builder.leader_spin(span);
        }
        if let Some(threads) = self.parallelism {
            builder = builder.parallelism(threads);
        }
        if let Some(idle) = self.idle_timeout {
            builder = builder.idle_timeout(idle);
        }
        if let Some(limit) = self.age_limit {
            builder = builder.age_limit(limit);
        }
        if let Some(limit) = self.stuck_after {
            builder = builder.stuck_after(limit, move |_| complain(hooks_panic));
        }
        builder
    }

    /// Builds all pools of the round.
    pub(crate) fn build(&self, ledger: &Arc<Ledger>) -> io::Result<(Owner, Vec<Pool>)> {
        match self.shape {
            Shape::One => {
                let pool = self.builder(ledger, "misuse").build()?;
                Ok((Owner::One, vec![pool]))
            }
            Shape::Sets {
                sets,
                roaming,
                fewest,
            } => self.build_sets(ledger, sets, roaming, fewest),
            Shape::Levels(count) => {
                let names = (0..count).map(|level| format!("misuse{level}"));
                let levels = names.fold(Levels::builder(), |levels, name| {
                    levels.level(name.clone(), self.builder(ledger, &name))
                });
                let levels = levels.build()?;
                let pools = (0..count).filter_map(|level| {
                    levels
                        .pool(levels.level(&format!("misuse{level}"))?)
                        .cloned()
                });
                let pools = pools.collect();
                Ok((Owner::Levels(levels), pools))
            }
        }
    }

    fn build_sets(
        &self,
        ledger: &Arc<Ledger>,
        sets: usize,
        roaming: bool,
        fewest: bool,
    ) -> io::Result<(Owner, Vec<Pool>)> {
        let (settings, ledger) = (self.clone(), Arc::clone(ledger));
        let leaders = if roaming {
            Leaders::Roaming
        } else {
            Leaders::Assigned
        };
        let spread = if fewest {
            Spread::Fewest
        } else {
            Spread::RoundRobin
        };
        let built = Sets::builder()
            .sets(sets)
            .threads(sets + self.threads.0)
            .leaders(leaders)
            .spread(spread)
            .each(move |_, _| settings.builder(&ledger, "misuse"))
            .build()?;
        let pools = (0..sets).map(|set| built.pool(set).clone()).collect();
        Ok((Owner::Sets(built), pools))
    }
}

/// What the pools of a round belong to.
#[derive(Debug)]
pub(crate) enum Owner {
    One,
    Sets(Sets),
    Levels(Levels),
}

/// One of these.
pub(crate) fn pick<T: Clone>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize].clone()
}

fn complain(panics: bool) {
    if panics {
        panic!("misuse: in a hook");
    }
}

/// An observer that counts the leaders of its set (L1). Its panics are in calls of which the pool
/// says that they may panic.
struct Leading {
    ledger: Arc<Ledger>,
    roles: std::sync::Mutex<Vec<Option<Role>>>,
    panics: bool,
    _memory: Life,
}

impl Leading {
    fn new(ledger: Arc<Ledger>, memory: Life, panics: bool) -> Self {
        memory.accept();
        Self {
            ledger,
            roles: std::sync::Mutex::default(),
            panics,
            _memory: memory,
        }
    }
}

impl Observer for Leading {
    fn role_changed(&self, thread: usize, role: Role) {
        let mut roles = self.roles.lock().unwrap();
        if roles.len() <= thread {
            roles.resize(thread + 1, None);
        }
        roles[thread] = Some(role);
        let leaders = roles.iter().filter(|role| **role == Some(Role::Leader));
        if leaders.count() > 1 {
            self.ledger.complain(format!("L1: two leaders: {roles:?}"));
        }
    }

    fn panicked(&self, _: HandleId, _: &str) {
        complain(self.panics);
    }

    fn failed(&self, _: HandleId, _: &io::Error) {
        complain(self.panics);
    }

    fn stuck(&self, _: &Stuck) {
        complain(self.panics);
    }

    fn unread(&self, _: &Unread) {
        complain(self.panics);
    }
}
