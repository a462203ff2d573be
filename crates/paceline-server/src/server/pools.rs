//! The pool of a server, or its levels.

use std::{io, time::Duration};

use paceline::{observe::Snapshot, Builder, Level, Levels, Pool, ShutdownReport};

use crate::events;

/// The name of the level that serves connections whose listener names none.
const MAIN: &str = "main";

/// The pool of a server, or its levels.
#[derive(Debug)]
pub(super) enum Pools {
    One(Pool),
    Several { levels: Levels, main: Pool },
}

impl Pools {
    /// Builds the pools, and starts their threads.
    pub(super) fn build(main: Builder, others: Vec<(String, Builder)>) -> io::Result<Self> {
        let main = events::observe(main, MAIN);
        if others.is_empty() {
            return main.build().map(Self::One);
        }
        let mut levels = Levels::builder().level(MAIN, main);
        for (name, settings) in others {
            let settings = events::observe(settings, &name);
            levels = levels.level(name, settings);
        }
        let levels = levels.build()?;
        let main = levels.level(MAIN).and_then(|key| levels.pool(key)).cloned();
        let main = main.ok_or_else(|| io::Error::other("build levels: there is no main level"))?;
        Ok(Self::Several { levels, main })
    }

    pub(super) fn main(&self) -> &Pool {
        match self {
            Self::One(pool) => pool,
            Self::Several { main, .. } => main,
        }
    }

    pub(super) fn level(&self, name: &str) -> Option<&Level> {
        match self {
            Self::One(_) => None,
            Self::Several { levels, .. } => levels.level(name),
        }
    }

    /// The pool of the level with this name; that of the main level if no name is given.
    pub(super) fn pool_of(&self, level: Option<&str>) -> Option<&Pool> {
        match (self, level) {
            (_, None) => Some(self.main()),
            (Self::One(_), Some(_)) => None,
            (Self::Several { levels, .. }, Some(name)) => levels.pool(levels.level(name)?),
        }
    }

    /// Each pool, with its name.
    pub(super) fn all(&self) -> Vec<(String, Pool)> {
        match self {
            Self::One(pool) => vec![(MAIN.to_owned(), pool.clone())],
            Self::Several { levels, .. } => {
                let keys = levels.snapshot().into_iter();
                let named = keys.filter_map(|(key, _)| {
                    Some((key.name().to_owned(), levels.pool(&key)?.clone()))
                });
                named.collect()
            }
        }
    }

    /// The counters of each pool, with its name.
    pub(super) fn snapshots(&self) -> Vec<(String, Snapshot)> {
        match self {
            Self::One(pool) => vec![(MAIN.to_owned(), pool.snapshot())],
            Self::Several { levels, .. } => {
                let all = levels.snapshot().into_iter();
                all.map(|(level, snapshot)| (level.name().to_owned(), snapshot))
                    .collect()
            }
        }
    }

    /// Ends all of them. The report of each, with its name.
    pub(super) fn shutdown(&self, within: Duration) -> Vec<(String, ShutdownReport)> {
        match self {
            Self::One(pool) => vec![(MAIN.to_owned(), pool.shutdown(within))],
            Self::Several { levels, .. } => {
                let reports = levels.shutdown(within).levels.into_iter();
                reports
                    .map(|(level, report)| (level.name().to_owned(), report))
                    .collect()
            }
        }
    }
}
