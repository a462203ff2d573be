//! The hub: what the threads of a pool share, below the turn and the pool.
//!
//! It joins promotion, handle set and dispatch. The turn (`turn.rs`) works on it, and the pool
//! (`pool/`) is built around it: the hub knows neither, and the turn does not know the pool.
//! `membership.rs` has the threads that are in the pool, `threads.rs` the pool's own ones,
//! `visitor.rs` those of several pools, `mailbox.rs` how one of them is reached, `reports.rs` what
//! they report.

mod mailbox;
mod membership;
#[cfg(all(test, loom))]
mod models;
mod monitor;
mod reports;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod threads;
mod visitor;
mod watch;

use std::{fmt, io, sync::Arc};

pub(crate) use self::{
    mailbox::open_mailbox,
    membership::{MemberGuard, Membership},
    monitor::{Monitor, StuckHook},
    threads::{spawn, Life, ThreadSettings},
    visitor::{PoolRef, Visitor},
    watch::Watch,
};
use crate::{
    dispatch::{Line, Registry},
    idle::{Ended, Idle, IdlePolicy},
    observe::{Counters, Observers},
    promotion::Lead,
    sync::{thread, Clock, Mutex, Timestamp},
};

/// Gets errors of the wait on the pool's own threads, and of threads that could not be had.
pub(crate) type ErrorHook = Box<dyn Fn(&io::Error) + Send + Sync>;

/// What the threads of a pool share.
pub(crate) struct Hub {
    /// The right to wait; and the line of handles that belongs to its holder.
    pub(crate) lead: Arc<Lead<Line>>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    pub(crate) membership: Membership,
    /// The thread that watches for surprises.
    pub(crate) watch: Watch,
    /// What a leader without an event does before it sleeps.
    pub(crate) idle: IdlePolicy,
    pub(crate) observers: Arc<Observers>,
    /// The thread that finds stuck handlers, if there is one.
    pub(crate) monitor: Option<Arc<Monitor>>,
    /// The threads that the pool spawned, by their index in the membership.
    pub(crate) threads: Mutex<Vec<(usize, thread::JoinHandle<()>)>>,
    /// What the pool's own threads begin with.
    pub(crate) thread_settings: ThreadSettings,
    /// What these threads do.
    pub(crate) life: Life,
    /// Errors of the wait on the pool's own threads, and of spawning them.
    pub(crate) errors: Mutex<Vec<io::Error>>,
    pub(crate) on_error: Option<ErrorHook>,
}

impl Hub {
    /// Whether no thread shall wait any more. The leader that finds everything drained closes the
    /// lead.
    pub(crate) fn is_over(&self) -> bool {
        if self.registry.is_drained() {
            self.lead.close();
        }
        self.lead.is_closed()
    }

    /// The same, or whether the pool is observed, as one question.
    pub(crate) fn wants_attention(&self) -> bool {
        if self.registry.is_drained() {
            self.lead.close();
        }
        self.lead.wants_attention()
    }
}

impl Hub {
    /// A leader begins a wait until `until`. `nothing_waits`: its line is empty.
    #[inline]
    pub(crate) fn begin_idle(&self, nothing_waits: bool, until: Option<Timestamp>) -> Idle<'_> {
        let may_pay = nothing_waits && self.registry.is_cheap_to_poll();
        self.idle.begin(may_pay, &self.clock, until)
    }

    /// It has an event.
    #[inline]
    pub(crate) fn note_found(&self, idle: &Idle<'_>) {
        if idle.note_found(&self.idle) == Ended::Spin {
            self.counters.spins.one_more();
        }
    }

    /// It has none: it yields before the next poll, or that one may sleep.
    pub(crate) fn note_nothing<'h>(&'h self, idle: &mut Idle<'h>) {
        if idle.note_nothing(&self.idle, &self.clock) == Ended::Spin {
            self.counters.spins.one_more();
            self.counters.spins_in_vain.one_more();
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("lead", &self.lead)
            .finish_non_exhaustive()
    }
}
