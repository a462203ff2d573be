//! What a multiplexed connection counts. It orders nothing.

use std::sync::atomic::{AtomicU64, Ordering};

/// One number.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The numbers, as they grow.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(super) $name: Counter,)*
        }

        /// Counters since the [`Mux`](super::Mux) was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Snapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            pub(super) fn snapshot(&self) -> Snapshot {
                Snapshot {
                    $($name: self.$name.get(),)*
                }
            }
        }
    };
}

counters! {
    /// Requests that were accepted for sending. (One that is forgotten before it was written is not
    /// written at all: it has no reply.)
    calls,
    /// Replies that reached the call that waited for them, also if its caller's time was over by
    /// then.
    replies,
    /// Calls whose time was over before their reply came. (A call may be joined again.)
    timed_out,
    /// Replies that the leader read for another thread, into its buffer.
    data_handed_over,
    /// Replies that a thread was called to read by itself.
    events_handed_over,
    /// Threads woken: for a reply, to lead, or because the connection was lost.
    wakes,
    /// Handlers recalled that served their pool meanwhile: for a reply, or because the connection
    /// was lost.
    recalls,
    /// Callers that found their reply, or the lead open, after a yield: no wake-up was needed.
    looks_found,
    /// Callers that let others run, found nothing, and slept then.
    looks_vain,
    /// Of those that were woken, how many were woken to lead.
    elections,
    /// Times a leader had read something for others and led on.
    leads_kept,
    /// Times a leader left while no other caller slept.
    leads_left_open,
    /// Waits of leaders (`poll`).
    waits,
    /// Times a leader was called out of its wait: output was kept, or the connection was to be
    /// closed.
    kicks,
    /// Reads that brought something.
    reads,
    /// Bytes read.
    bytes_read,
    /// Writes that sent something. Fewer than calls, where senders combine.
    writes,
    /// Bytes written.
    bytes_written,
    /// Times the socket did not take all, or one thread had written for others long enough, and the
    /// rest was kept.
    output_kept,
    /// Sends that were refused because too much was kept already.
    refused_sends,
    /// Replies whose caller had gone.
    late_replies,
    /// Replies to calls that had theirs already.
    doubled_replies,
    /// Replies to calls that never were.
    unknown_replies,
    /// Messages of the peer's own.
    peer_messages,
    /// Connections that were lost or closed.
    losses,
    /// Connections that were made after a loss.
    reconnects,
}

/// The present use of a [`Mux`](super::Mux): see [`Mux::callers`](super::Mux::callers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Callers {
    /// Calls that a caller holds, from the registration until the reply is dropped.
    pub under_way: usize,
    /// Calls that were forgotten and keep their place, because their reply may still come.
    pub forgotten: usize,
    /// Threads that sleep until there is something for them.
    pub asleep: usize,
    /// A caller leads, or was elected and is on its way.
    pub led: bool,
    /// The leader is in its wait.
    pub waits: bool,
}
