//! What a page shows: a pool, or a server with its pools and listeners.

use std::sync::Arc;

use paceline::{HandleId, Pool, WeakPool};

/// What a page shows.
pub(crate) trait Subject: Send + Sync + 'static {
    /// Its name, for the title.
    fn name(&self) -> String;

    /// All numbers as OpenMetrics text.
    fn metrics(&self) -> String;

    /// Whether it accepts connections.
    fn is_ready(&self) -> bool;

    /// Its pools, each with its name. Empty: it is over.
    fn pools(&self) -> Vec<(String, Pool)>;

    /// The name of the listener or dialer whose connection has this handle.
    fn service_of(&self, handle: HandleId) -> Option<String> {
        let _ = handle;
        None
    }

    /// Its listeners and dialers.
    fn services(&self) -> Vec<ServiceState> {
        Vec::new()
    }
}

/// One listener or dialer at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceState {
    pub(crate) name: String,
    pub(crate) opened: u64,
    pub(crate) items: u64,
    pub(crate) bytes_in: u64,
    pub(crate) refused: u64,
    pub(crate) states: States,
    /// How often each limit was met, without those that were not.
    pub(crate) limits: Vec<(&'static str, u64)>,
    /// How many connections ended for each reason, likewise.
    pub(crate) endings: Vec<(&'static str, u64)>,
    /// The median of the time of an item and its 99th percentile in nanoseconds, if they are known.
    pub(crate) percentiles: Option<(u64, u64)>,
}

/// The open connections of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct States {
    pub(crate) open: usize,
    pub(crate) handshaking: usize,
    /// They read nothing for now.
    pub(crate) paused: usize,
    /// Messages of rooms wait for them.
    pub(crate) with_mail: usize,
}

/// A pool without a server.
pub(super) struct PoolSubject {
    pub(super) name: String,
    pub(super) pool: WeakPool,
    /// What the program counts itself, as families of OpenMetrics.
    pub(super) more: Option<Arc<Families>>,
}

/// Gives families of OpenMetrics, without the mark of the end.
pub(super) type Families = dyn Fn() -> String + Send + Sync;

impl Subject for PoolSubject {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn metrics(&self) -> String {
        let pools = self.pools();
        let named: Vec<_> = pools.iter().map(|(name, pool)| (&**name, pool)).collect();
        let mut text = self.more.as_ref().map_or_else(String::new, |more| more());
        // It ends with the mark of the end.
        text.push_str(&paceline::observe::open_metrics(&named));
        text
    }

    fn is_ready(&self) -> bool {
        self.pool.upgrade().is_some()
    }

    fn pools(&self) -> Vec<(String, Pool)> {
        let pool = self.pool.upgrade();
        pool.map(|pool| (self.name.clone(), pool))
            .into_iter()
            .collect()
    }
}
