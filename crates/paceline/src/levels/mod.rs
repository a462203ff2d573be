//! Service levels: several pools, each with threads, priority and patience of its own, and handles
//! that move between them.
//!
//! ```text
//!                 listener                        a request names its class
//!                    |                                       |
//!          +---------v---------+   cx.move_to(&urgent)   +---v---------------+
//!          |  level "bulk"     | ----------------------> |  level "urgent"   |
//!          |  2 threads, nice  | <---------------------- |  4 threads        |
//!          |  10, age limit    |   cx.move_to(&bulk)     |                   |
//!          +-------------------+                         +-------------------+
//!            its own set, lead and line                    its own
//! ```
//!
//! In a plain pool an urgent request waits in the same line as all others, for a thread that they
//! have: there is no queue in which it could be put first. With levels it has a line and threads of
//! its own. A level is made of settings of its pool: how many threads, their [nice
//! value](Builder::thread_nice) and [cores](Builder::thread_affinity), which waiting handle is
//! [next](Builder::queue_order), and [how long](Builder::age_limit) what is ready may wait before
//! it is not worth serving.
//!
//! **A move** takes a handle with all that it has: source, handler, kept output, interest, idle
//! time-out, unread input, a notification. It never blocks, and nothing is lost on the way: what
//! could not be moved stays where it was. `dispatch/registry/moves.rs` has the steps.

mod builder;

use std::{
    fmt, io,
    sync::{Arc, Weak},
    time::Duration,
};

pub use self::builder::LevelsBuilder;
#[cfg(doc)]
use crate::pool::Builder;
use crate::{
    dispatch::{Context, Handle, Move, Next, Registry},
    observe::Snapshot,
    pool::{Pool, ShutdownReport},
};

/// Several pools, as levels of service between which handles move. Built by [`Levels::builder`].
///
/// ```
/// use std::{io::{self, Read, Write}, net::TcpStream};
/// use paceline::{Context, Levels, Next, Pool};
///
/// let levels = Levels::builder()
///     .level("bulk", Pool::builder().threads(1).thread_nice(|_| 10))
///     .level("urgent", Pool::builder().threads(2))
///     .build()?;
/// let [bulk, urgent] = levels.keys().expect("these two");
/// let listener = levels.pool(&bulk).unwrap().listen("127.0.0.1:0", move |_, _| {
///     let (urgent, mut known) = (urgent.clone(), false);
///     Some(move |cx: &mut Context<'_, TcpStream>| {
///         let mut first = [0];
///         let count = cx.read(&mut first)?;
///         if !std::mem::replace(&mut known, true) && first == *b"!" {
///             return cx.move_to(&urgent); // the rest is read there
///         }
///         cx.write_all(&first[..count])?;
///         Ok(if count == 0 { Next::Close } else { Next::Continue })
///     })
/// })?;
/// let mut client = TcpStream::connect(listener.local_addr())?;
/// client.write_all(b"!hello")?;
/// let mut reply = [0; 5];
/// client.read_exact(&mut reply)?;
/// assert_eq!(&reply, b"hello");
/// let levels = levels.snapshot().into_iter();
/// let moved: Vec<_> = levels.map(|(level, it)| (level.to_string(), it.moved)).collect();
/// assert_eq!(moved, [("bulk".to_owned(), 1), ("urgent".to_owned(), 0)]);
/// # io::Result::Ok(())
/// ```
///
/// Dropping it drops its pools, which ends each that has no other owner.
#[derive(Debug)]
pub struct Levels {
    levels: Vec<(Level, Pool)>,
}

impl Levels {
    /// Names the levels, and says what each is made of.
    pub fn builder() -> LevelsBuilder {
        LevelsBuilder::default()
    }

    /// The keys of all levels, in the order in which they were named; `None` if there are not `N`
    /// of them.
    #[must_use]
    pub fn keys<const N: usize>(&self) -> Option<[Level; N]> {
        let keys: Vec<_> = self.levels.iter().map(|(level, _)| level.clone()).collect();
        keys.try_into().ok()
    }

    /// The level with this name.
    #[must_use]
    pub fn level(&self, name: &str) -> Option<&Level> {
        let mut keys = self.levels.iter().map(|(level, _)| level);
        keys.find(|level| level.name() == name)
    }

    /// The pool of one of these levels: to listen there, to register, to join.
    #[must_use]
    pub fn pool(&self, level: &Level) -> Option<&Pool> {
        let mut levels = self.levels.iter();
        levels.find(|(key, _)| key == level).map(|(_, pool)| pool)
    }

    /// The counters of each level.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(Level, Snapshot)> {
        let levels = self.levels.iter();
        levels
            .map(|(level, pool)| (level.clone(), pool.snapshot()))
            .collect()
    }

    /// Ends all levels, from anywhere, also from a handler of any: see [`Pool::shutdown`]. All of
    /// them drain at once, and have the same time.
    pub fn shutdown(&self, within: Duration) -> LevelsReport {
        let begun: Vec<_> = self
            .levels
            .iter()
            .map(|(level, pool)| (level, pool, pool.begin_shutdown(within)))
            .collect();
        let reports = begun.into_iter().map(|(level, pool, end)| {
            let report = pool.finish_shutdown(&end);
            (level.clone(), report)
        });
        LevelsReport {
            levels: reports.collect(),
        }
    }
}

/// A level, as a key that says where a handle shall go on. Cheap to clone; it keeps no pool alive,
/// so handlers may have it.
#[derive(Clone)]
pub struct Level {
    name: Arc<str>,
    registry: Weak<Registry>,
}

impl Level {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Pool {
    /// This pool as a level, to which handles of other pools can move. (Those of [`Levels`] have
    /// their names already.)
    #[must_use]
    pub fn as_level(&self, name: impl Into<String>) -> Level {
        Level {
            name: name.into().into(),
            registry: Arc::downgrade(self.registry()),
        }
    }
}

/// The same pool, whatever it is called.
impl PartialEq for Level {
    fn eq(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.registry, &other.registry)
    }
}

impl Eq for Level {}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Level").field(&self.name).finish()
    }
}

impl Handle {
    /// Lets an idle handle go on in another level, with all that it has: source, handler, kept
    /// output, interest, idle time-out (which begins anew) and priority, unread input, a
    /// notification, also whether it is suspended. The handler's
    /// [`moved`](crate::EventHandler::moved) is called by this very call, before any other method
    /// there. What it keeps of output is bounded by the new level's limit from then on.
    ///
    /// It never blocks. If the handle is with its handler, or waits for its turn, it is
    /// [`Move::Busy`], and stays: ask again, or have the handler do it ([`Context::move_to`]). A
    /// handle that is in that level already is moved.
    ///
    /// # Errors
    /// Nothing has changed then. `NotFound` if the registration is over, or its end was asked for.
    /// `InvalidInput` if it is a member of a group or a concurrent handle. `BrokenPipe` if that
    /// level is shut down; otherwise what the handle set there said.
    pub fn move_to(&self, level: &Level) -> io::Result<Move> {
        self.move_into(&level.registry)
    }
}

impl<S> Context<'_, S> {
    /// Lets this handle go on in another level, with all that it has ([`Handle::move_to`]), when
    /// the handler has returned what this gives: `return cx.move_to(&urgent)`. Input that was not
    /// read is read there. The handler's [`moved`](crate::EventHandler::moved) is called before any
    /// other method there; or [`stayed`](crate::EventHandler::stayed), if that level was shut down
    /// meanwhile or its handle set refuses the source: then the handle goes on where it is. If its
    /// end was asked for meanwhile, it ends here.
    ///
    /// # Errors
    /// The handler may go on with something else then; if it returns the error, the handle closes.
    /// `InvalidInput` for a member of a group; `BrokenPipe` if that level is shut down.
    pub fn move_to(&mut self, level: &Level) -> io::Result<Next> {
        self.go_to(&level.registry)
    }
}

/// What a shutdown of all levels left undone.
#[must_use]
#[derive(Debug)]
#[non_exhaustive]
pub struct LevelsReport {
    /// Of each level.
    pub levels: Vec<(Level, ShutdownReport)>,
}

impl LevelsReport {
    /// Whether everything was finished in time and nothing failed, in every level.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.levels.iter().all(|(_, report)| report.is_clean())
    }
}

impl fmt::Display for LevelsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            return f.write_str("everything was finished");
        }
        let left = self.levels.iter().filter(|(_, it)| !it.is_clean());
        let parts: Vec<_> = left
            .map(|(level, report)| format!("{level}: {report}"))
            .collect();
        f.write_str(&parts.join("; "))
    }
}
