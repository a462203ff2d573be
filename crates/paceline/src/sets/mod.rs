//! Several handle sets instead of one: the paper's relaxed serialisation.
//!
//! ```text
//!    Assigned: each set has its own threads        Roaming: one population
//!
//!    set 0   leader T, followers T T T             set 0   processing T  <-------   idle list
//!    set 1   leader T, followers T T T             set 1   leader T                 T T T T T T
//!                                                  set 2      '' (the same)
//!
//!    Roaming: one thread waits in all sets that no other serves; idle ones go to the idle list,
//!    and from there to a set without a leader
//! ```
//!
//! One leader at a time waits in one set: with very many handles, or on many cores, that may be too
//! few. With several sets as many threads can wait at once. Each set is a [`Pool`] of its own, with
//! all that is promised of one; [`Leaders`] says which threads serve which set. `turn/led_sets.rs`
//! has how a thread serves several sets, and `promotion/roaming_idle.rs` where it is while it
//! serves none.
//!
//! A handle stays in the set that it was given to, by the rule of [`Spread`]; to move it, see
//! [`Handle::move_to`](crate::Handle::move_to).

mod builder;
mod roamers;

use std::{
    fmt, io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc,
    },
    time::Duration,
};

pub use self::builder::SetsBuilder;
use self::roamers::Roamers;
use crate::{
    dispatch::{EventHandler, Handle, Interest, Rejected},
    handle_set::Source,
    observe::{Snapshot, ThreadReport},
    pool::{Listener, ListenerBuilder, Pool, ShutdownReport, TakenOnBy},
};

/// Which threads serve which set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leaders {
    /// Each set has threads of its own.
    #[default]
    Assigned,
    /// One population serves all sets. A thread leads any set that has no leader; one that finds
    /// nothing to do waits in all of them at once, if they are sets of epoll (of another kind: in
    /// one of them). So under [`Wake::Adaptive`](crate::Wake) short requests need one thread,
    /// however many sets of epoll there are.
    ///
    /// While a thread is free, no set waits for a leader longer than five and a quarter ticks and a
    /// wake, or two and a quarter where something has happened lately. In idle sets no thread
    /// wakes; but while a thread that [joined](Pool::join) one of them follows there, another goes
    /// on checking, in the end every fourth tick. A handler that usually blocks, or says that it
    /// will, sends for the next leader at once. There must be more threads than sets: one may lead
    /// each, and one is free.
    Roaming,
}

/// Which set a new handle is given to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spread {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the fewest handles now.
    Fewest,
}

/// Several handle sets that share their work. Built by [`Sets::builder`].
///
/// ```
/// use std::{io::{self, Read, Write}, net::TcpStream};
/// use paceline::{Context, Leaders, Next, Sets};
///
/// let sets = Sets::builder().sets(2).threads(4).leaders(Leaders::Roaming).build()?;
/// let listener = sets.listen("127.0.0.1:0", |_, _| {
///     Some(|cx: &mut Context<'_, TcpStream>| {
///         let mut buffer = [0; 64];
///         let count = cx.read(&mut buffer)?;
///         cx.write_all(&buffer[..count])?;
///         Ok(if count == 0 { Next::Close } else { Next::Continue })
///     })
/// })?;
/// for _ in 0..4 {
///     let mut client = TcpStream::connect(listener.local_addr())?;
///     client.write_all(b"hello")?;
///     client.read_exact(&mut [0; 5])?;
/// }
/// # io::Result::Ok(())
/// ```
///
/// Dropping it ends each set that has no other owner ([`pool`](Self::pool) can be cloned), without
/// waiting. With roaming leaders a set that has one still loses its threads then, after one more
/// event at most; those that [join](Pool::join) it stay.
pub struct Sets {
    shared: Arc<Shared>,
    /// Of roaming leaders. After the pools, so that these are closed when the threads are sent
    /// home.
    roamers: Option<Roamers>,
}

/// What listeners share with the sets: it keeps no thread alive.
struct Shared {
    pools: Vec<Pool>,
    spread: Spread,
    /// Whose turn it is, where sets take turns. It orders nothing.
    next: AtomicUsize,
}

impl Shared {
    /// The set for one more handle.
    fn choose(&self) -> &Pool {
        let all = self.pools.len();
        let place = match self.spread {
            Spread::RoundRobin => self.next.fetch_add(1, Ordering::Relaxed) % all,
            Spread::Fewest => {
                let handles = |place: &usize| self.pools[*place].registry().live();
                (0..all).min_by_key(handles).unwrap_or(0)
            }
        };
        &self.pools[place]
    }
}

impl Sets {
    /// To choose settings.
    pub fn builder() -> SetsBuilder {
        SetsBuilder::default()
    }

    /// As [`Pool::register`], in the set that the rule chooses.
    ///
    /// # Errors
    /// As [`Pool::register`].
    pub fn register<S, H>(
        &self,
        source: S,
        interest: Interest,
        handler: H,
    ) -> Result<Handle, Rejected<(S, H)>>
    where
        S: Source,
        H: EventHandler<S>,
    {
        self.shared.choose().register(source, interest, handler)
    }

    /// As [`Pool::listen`]. The listener is in one of the sets; each connection is given to the one
    /// that the rule chooses.
    ///
    /// # Errors
    /// As [`Pool::listen`].
    pub fn listen<A, F, H>(&self, address: A, make: F) -> io::Result<Listener>
    where
        A: ToSocketAddrs,
        F: FnMut(&TcpStream, SocketAddr) -> Option<H> + Send + 'static,
        H: EventHandler<TcpStream>,
    {
        self.listener().bind(address, make)
    }

    /// As [`Pool::listener`]. The listener is in one of the sets; each connection is given to the
    /// one that the rule chooses.
    pub fn listener(&self) -> ListenerBuilder<'_> {
        ListenerBuilder::new(self.shared.choose(), self.chooser())
    }

    /// The pool of one set, for what belongs to a certain one: timers, posts, groups, other
    /// sources. It ends with the others. A thread that [joins](Pool::join) it serves that set
    /// alone.
    ///
    /// # Panics
    /// If `set` is not below [`count`](Self::count).
    #[must_use]
    pub fn pool(&self, set: usize) -> &Pool {
        &self.shared.pools[set]
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared.pools.len()
    }

    /// The counters of each set.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Snapshot> {
        self.shared.pools.iter().map(Pool::snapshot).collect()
    }

    /// What each thread of each set does, and since when. Empty, unless the sets have a
    /// [`board`](crate::Builder::board).
    #[must_use]
    pub fn threads(&self) -> Vec<Vec<ThreadReport>> {
        self.shared
            .pools
            .iter()
            .map(|pool| pool.inspect().threads())
            .collect()
    }

    /// Threads that are in no set now: of roaming leaders, those that are free.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.roamers.as_ref().map_or(0, Roamers::idle)
    }

    /// Ends all sets, from anywhere, also from a handler: see [`Pool::shutdown`]. All of them drain
    /// at once, and have the same time. One report for each. With roaming leaders it waits up to a
    /// second more for threads that are stuck in handlers.
    pub fn shutdown(&self, within: Duration) -> Vec<ShutdownReport> {
        let pools = &self.shared.pools;
        let begun: Vec<_> = pools
            .iter()
            .map(|pool| pool.begin_shutdown(within))
            .collect();
        let ends = pools.iter().zip(&begun);
        let reports = ends.map(|(pool, end)| pool.finish_shutdown(end)).collect();
        self.roamers.iter().for_each(Roamers::send_home);
        reports
    }

    /// The choice of the set that takes on the connections of a listener.
    fn chooser(&self) -> TakenOnBy {
        let shared = Arc::downgrade(&self.shared);
        Box::new(move || Some(Arc::clone(shared.upgrade()?.choose().registry())))
    }
}

impl fmt::Debug for Sets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.shared.pools).finish()
    }
}
