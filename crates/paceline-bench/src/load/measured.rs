//! What was measured once, and several of them put together.

use super::tally::Tally;
use crate::{record::Load, usage::Usage};

/// All that was written down.
#[derive(Debug)]
pub(super) struct Measured {
    /// The replies of the measured time.
    pub(super) requests: u64,
    /// How long it was.
    pub(super) seconds: f64,
    /// How long replies took.
    pub(super) tally: Tally,
    /// What went wrong in the whole life of the client, until then.
    pub(super) errors: u64,
    /// What was used meanwhile.
    pub(super) usage: Usage,
}

impl Measured {
    /// To be added to.
    pub(super) fn nothing() -> Self {
        Self {
            requests: 0,
            seconds: 0.0,
            tally: Tally::new(),
            errors: 0,
            usage: Usage::default(),
        }
    }

    /// Adds what was measured later by the same client.
    pub(super) fn add(&mut self, later: &Self) {
        let share = later.seconds / (self.seconds + later.seconds);
        self.usage.add(&later.usage, share);
        self.requests += later.requests;
        self.seconds += later.seconds;
        self.tally.add(&later.tally);
        self.errors = later.errors;
    }

    pub(super) fn load(&self) -> Load {
        let (latency, latency_of_all) = self.tally.latencies();
        let usage = self.usage;
        Load {
            requests: self.requests,
            seconds: self.seconds,
            latency,
            latency_of_all,
            errors: self.errors,
            server_cpu: usage.server_cpu,
            voluntary: usage.voluntary,
            involuntary: usage.involuntary,
            client_cpu: usage.client_cpu,
            foreign: usage.foreign,
            memory: usage.memory,
        }
    }
}
