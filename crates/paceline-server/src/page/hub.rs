//! The viewers of a page, and the observation that lasts while there are any.
//!
//! ```text
//!   no viewer  -- the first one enters --> observed: four reports a second to all viewers
//!   no viewer <-- the last one leaves  --  observed
//! ```

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use paceline::{
    observe::{Observer, Role},
    Observation, Pool, TimerGuard, WeakPool,
};

use super::{
    frame::{self, Observed},
    lanes::Lanes,
    subject::Subject,
};
use crate::{codec::Codec, encoding::Encoding, peer::Peer, room::Room, sync::lock};

/// The time from one report to the next.
const PERIOD: Duration = Duration::from_millis(250);

/// The viewers of a page.
pub(crate) struct Hub {
    subject: Arc<dyn Subject>,
    room: Room,
    /// The pool that serves the page, and makes the reports.
    own: OnceLock<WeakPool>,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    viewers: usize,
    watch: Option<Watch>,
}

/// The observation of all pools of the subject.
struct Watch {
    pools: Vec<Watched>,
    _timer: TimerGuard,
}

struct Watched {
    name: String,
    pool: WeakPool,
    lanes: Arc<Lanes>,
    _observation: Observation,
}

/// An observer that several have.
struct SharedLanes(Arc<Lanes>);

impl Observer for SharedLanes {
    fn role_changed(&self, thread: usize, role: Role) {
        self.0.role_changed(thread, role);
    }

    fn away_changed(&self, thread: usize, is_away: bool) {
        self.0.away_changed(thread, is_away);
    }
}

/// A viewer, until this is dropped.
pub(crate) struct Viewer(Arc<Hub>);

impl Hub {
    pub(super) fn new(subject: Arc<dyn Subject>) -> Arc<Self> {
        Arc::new(Self {
            subject,
            room: Room::new(),
            own: OnceLock::new(),
            inside: Mutex::default(),
        })
    }

    /// The pool that serves the page runs.
    pub(super) fn set_pool(self: &Arc<Self>, pool: &Pool) {
        // A page has one pool.
        let _ = self.own.set(pool.downgrade());
        self.settle(&mut lock(&self.inside));
    }

    /// The connection of `cx` gets all reports from now on, as server-sent events.
    pub(crate) fn enter<C: Codec>(self: &Arc<Self>, cx: &mut Peer<'_, C>) -> Viewer {
        cx.set_encoding(Encoding::Event);
        self.room.join(cx);
        let mut inside = lock(&self.inside);
        inside.viewers += 1;
        self.settle(&mut inside);
        Viewer(Arc::clone(self))
    }

    /// Whether the subject is observed.
    pub(super) fn is_watching(&self) -> bool {
        lock(&self.inside).watch.is_some()
    }

    /// Observes if there are viewers, and only then.
    fn settle(self: &Arc<Self>, inside: &mut Inside) {
        if inside.viewers == 0 {
            inside.watch = None;
            self.subject.set_watched(false);
        } else if inside.watch.is_none() {
            inside.watch = self.watch();
            self.subject.set_watched(inside.watch.is_some());
        }
    }

    fn watch(self: &Arc<Self>) -> Option<Watch> {
        let own = self.own.get()?.upgrade()?;
        let hub = Arc::downgrade(self);
        let report = move |_: &mut paceline::TickContext<'_>| {
            if let Some(hub) = hub.upgrade() {
                hub.report();
            }
        };
        // A pool that ends takes no timer.
        let timer = own.every(PERIOD, report).ok()?.cancel_on_drop();
        let pools = self.subject.pools().into_iter();
        Some(Watch {
            pools: pools
                .map(|(name, pool)| Watched::new(name, &pool))
                .collect(),
            _timer: timer,
        })
    }

    /// Makes a report, and sends it to all viewers.
    fn report(&self) {
        let inside = lock(&self.inside);
        let (Some(watch), Some(own)) = (&inside.watch, self.own.get().and_then(WeakPool::upgrade))
        else {
            return;
        };
        let observed = watch.pools.iter().filter_map(Watched::report).collect();
        let text = frame::encode(&*self.subject, observed, own.clock().now());
        drop(inside);
        self.room.send(text.into_bytes());
    }
}

impl Watched {
    fn new(name: String, pool: &Pool) -> Self {
        let lanes = Arc::new(Lanes::new(pool.clock()));
        let observation = pool.observe(SharedLanes(Arc::clone(&lanes)));
        lanes.begin_with(&pool.inspect().threads());
        Self {
            name,
            pool: pool.downgrade(),
            lanes,
            _observation: observation,
        }
    }

    fn report(&self) -> Option<Observed<'_>> {
        Some(Observed {
            name: &self.name,
            pool: self.pool.upgrade()?,
            report: self.lanes.report(),
        })
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let mut inside = lock(&self.0.inside);
        inside.viewers -= 1;
        self.0.settle(&mut inside);
    }
}
