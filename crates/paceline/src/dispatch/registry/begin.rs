//! How registrations of descriptors begin.

use std::os::fd::AsRawFd;

use super::{
    super::{
        channel::Channel,
        concurrent::{Concurrent, ConcurrentHandler},
        entry::Registered,
        handle::Handle,
        handler::{EventHandler, Interest},
        mailboxes::Affinity,
        provenance::{Accepted, Provenance},
        Rejected,
    },
    time::until,
    Registry,
};
use crate::{
    handle_set::Source,
    sync::{lock, Timestamp},
    timer::TimeLimits,
};

impl Registry {
    /// Begins a registration. The registry owns `source` and `handler` from here on.
    pub(crate) fn register<S, H>(
        &self,
        source: S,
        interest: Interest,
        handler: H,
    ) -> Result<Handle, Rejected<(S, H)>>
    where
        S: Source,
        H: EventHandler<S>,
    {
        self.register_timed(source, interest, handler, TimeLimits::default(), None)
    }

    /// The same for a connection that was accepted.
    pub(crate) fn register_accepted<S, H>(
        &self,
        source: S,
        handler: H,
        accepted: Accepted,
    ) -> Result<Handle, Rejected<(S, H)>>
    where
        S: Source,
        H: EventHandler<S>,
    {
        let limits = self.limits_of(&accepted);
        let mut provenance = accepted.provenance;
        provenance.count_in(&self.counters);
        self.register_timed(source, Interest::READ, handler, limits, Some(provenance))
    }

    /// The same for a connection that is being made, with a deadline.
    pub(crate) fn register_until<S, H>(
        &self,
        source: S,
        interest: Interest,
        handler: H,
        deadline: Timestamp,
        provenance: Box<Provenance>,
    ) -> Result<Handle, Rejected<(S, H)>>
    where
        S: Source,
        H: EventHandler<S>,
    {
        self.register_timed(source, interest, handler, until(deadline), Some(provenance))
    }

    /// The same, with these limits, and with a provenance or without.
    fn register_timed<S, H>(
        &self,
        source: S,
        interest: Interest,
        handler: H,
        limits: TimeLimits,
        provenance: Option<Box<Provenance>>,
    ) -> Result<Handle, Rejected<(S, H)>>
    where
        S: Source,
        H: EventHandler<S>,
    {
        // The user's code, which may panic, before anything begins.
        let (descriptor, greets) = (source.descriptor().as_raw_fd(), handler.speaks_first());
        let kind = self.kinds.chosen::<H>(handler.kind());
        match self.admit(|| self.begin(descriptor, interest)) {
            Err(error) => Err(Rejected::new((source, handler), error)),
            Ok(owned) => {
                let limit = self.limits.output_limit;
                let channel = Channel::new(source, provenance, descriptor, limit);
                if greets {
                    owned.readiness().greet();
                }
                let entry = Box::new(Registered::new(channel, handler, kind));
                // While this thread owns the slot, so that what comes of them waits until the entry
                // is in place.
                self.limit_times(&owned, limits);
                Ok(self.put_in_place(owned, entry))
            }
        }
    }

    /// Begins the registration of a handle that several threads may use at once.
    pub(crate) fn register_concurrent<S, H>(
        &self,
        source: S,
        interest: Interest,
        handler: H,
    ) -> Result<Handle, Rejected<(S, H)>>
    where
        S: Source + Sync,
        H: ConcurrentHandler<S>,
    {
        let descriptor = source.descriptor().as_raw_fd();
        let kind = self.kinds.chosen::<H>(handler.kind());
        match self.admit(|| self.begin(descriptor, interest)) {
            Err(error) => Err(Rejected::new((source, handler), error)),
            Ok(owned) => {
                *lock(&owned.slot().affinity) = Some(Box::new(Affinity::Everyone));
                let entry = Concurrent::new(source, descriptor, handler, kind);
                Ok(self.put_in_place(owned, Box::new(entry)))
            }
        }
    }
}
