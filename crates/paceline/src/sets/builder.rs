//! The settings of several sets, and how they are built.

use std::{fmt, io, sync::Arc};

use super::{roamers::Roamers, Leaders, Sets, Shared, Spread};
use crate::{
    errors::{attempted, judged},
    pool::{Builder, Pool},
    sync::cores,
};

/// So many threads can roam. (Each has a place in every pool, which has places for guests beside
/// them.)
const MOST_ROAMERS: usize = 4096;

/// What each set is made of, by its number.
type Each = Box<dyn FnMut(usize, Builder) -> Builder>;

/// Settings of several sets. [`build`](Self::build) judges them all at once.
#[must_use]
pub struct SetsBuilder {
    sets: usize,
    threads: Option<usize>,
    leaders: Leaders,
    spread: Spread,
    each: Option<Each>,
}

impl Default for SetsBuilder {
    fn default() -> Self {
        Self {
            sets: 2,
            threads: None,
            leaders: Leaders::default(),
            spread: Spread::default(),
            each: None,
        }
    }
}

impl SetsBuilder {
    /// How many sets. Default: two.
    pub fn sets(mut self, sets: usize) -> Self {
        self.sets = sets;
        self
    }

    /// How many threads, of all sets together. Default: four per core, and at least two per set.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Which threads serve which set. Default: each has its own threads.
    pub fn leaders(mut self, leaders: Leaders) -> Self {
        self.leaders = leaders;
        self
    }

    /// Which set a new handle is given to. Default: one after the other.
    pub fn spread(mut self, spread: Spread) -> Self {
        self.spread = spread;
        self
    }

    /// More settings of each set, by its number. How many threads there are is not one of them.
    /// Roaming threads belong to no set: they have no name, stack size or time to live from here,
    /// no watcher, and the nice value, the cores and the tick of the first set.
    pub fn each(mut self, settings: impl FnMut(usize, Builder) -> Builder + 'static) -> Self {
        self.each = Some(Box::new(settings));
        self
    }

    /// Builds the sets and spawns the threads.
    ///
    /// # Errors
    /// `InvalidInput`, which names the setting that can't be: fewer threads than sets, or for
    /// [`Leaders::Roaming`] not more threads than sets, or more than 4,096; a roaming set with
    /// another order than the newest first, or a concurrent one. Otherwise as [`Builder::build`],
    /// with the number of the set.
    pub fn build(mut self) -> io::Result<Sets> {
        let threads = self.threads.unwrap_or_else(|| default_threads(self.sets));
        self.judge(threads)?;
        let pools = (0..self.sets).map(|set| self.build_one(set, threads));
        let pools: Vec<Pool> = pools.collect::<io::Result<_>>()?;
        let roamers = match self.leaders {
            Leaders::Assigned => None,
            Leaders::Roaming => Some(Roamers::begin(&pools, threads)?),
        };
        let shared = Arc::new(Shared {
            pools,
            spread: self.spread,
            next: 0.into(),
        });
        Ok(Sets { shared, roamers })
    }

    fn build_one(&mut self, set: usize, threads: usize) -> io::Result<Pool> {
        let plain = Pool::builder().name(format!("set-{set}"));
        let settings = match &mut self.each {
            Some(each) => each(set, plain),
            None => plain,
        };
        let built = match self.leaders {
            Leaders::Assigned => {
                let one_more = usize::from(set < threads % self.sets);
                settings.threads(threads / self.sets + one_more).build()
            }
            Leaders::Roaming => settings.roaming().and_then(Builder::build),
        };
        built.map_err(|error| attempted(format_args!("set {set}"), error))
    }

    fn judge(&self, threads: usize) -> io::Result<()> {
        let (sets, leaders) = (self.sets, self.leaders);
        let wrong = match leaders {
            _ if sets == 0 => "sets(0): there is nowhere to wait".to_owned(),
            Leaders::Roaming if threads > MOST_ROAMERS => {
                format!("threads({threads}): at most {MOST_ROAMERS} can roam")
            }
            Leaders::Assigned if threads < sets => {
                format!("threads({threads}): each of {sets} sets needs one")
            }
            Leaders::Roaming if threads <= sets => {
                format!("threads({threads}): one leads each of {sets} sets, and one must be free")
            }
            _ => return Ok(()),
        };
        judged("build sets", &[wrong])
    }
}

impl fmt::Debug for SetsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetsBuilder")
            .field("sets", &self.sets)
            .field("threads", &self.threads)
            .field("leaders", &self.leaders)
            .field("spread", &self.spread)
            .finish_non_exhaustive()
    }
}

fn default_threads(sets: usize) -> usize {
    (4 * cores()).max(4).max(sets.saturating_mul(2))
}
