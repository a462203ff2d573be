//! Why a connection ended, and what the access log and the events say of it.

use std::io;

use paceline::{Closed, OutputLimit};

use super::Connection;
use crate::{
    access_log::Entry,
    codec::Codec,
    events,
    limits::Limit,
    link::Link,
    session::{Ended, Session},
};

impl<C: Codec, N: Session<C>> Connection<C, N> {
    pub(super) fn log(&self, link: &Link, why: &Ended) {
        let entry = Entry {
            service: &self.service.name,
            id: link.id(),
            address: link.address(),
            items: self.items,
            bytes_in: self.bytes_in,
            lasted: self.service.now().saturating_sub(self.since),
            why,
        };
        events::ended(&entry);
        if let Some(log) = &self.service.log {
            log.write(&entry);
        }
    }

    /// Why the connection ended.
    pub(super) fn ending(&mut self, why: Closed) -> Ended {
        let own = self.why.take().map(|ended| *ended);
        match (own, why) {
            (None, Closed::TimedOut) if self.link.is_none() => self.not_connected(),
            (_, Closed::Panicked(message)) => Ended::Panicked(message),
            (Some(ended), _) => ended,
            (None, Closed::Finished) => Ended::Finished,
            (None, Closed::Requested) => Ended::Requested,
            (None, Closed::Shutdown) => Ended::Shutdown,
            (None, Closed::TimedOut) => {
                self.service.counters().met(Limit::WriteRate);
                Ended::Limit(Limit::WriteRate)
            }
            (None, Closed::Failed(error)) if is_output_limit(&error) => {
                self.service.counters().met(Limit::Output);
                Ended::Limit(Limit::Output)
            }
            (None, Closed::Failed(error)) => Ended::Failed(error),
            (None, other) => Ended::Failed(io::Error::other(other.to_string())),
        }
    }

    fn not_connected(&self) -> Ended {
        let address = self.address().map(ToString::to_string);
        let text = format!(
            "connect to {}: it took too long",
            address.unwrap_or_default()
        );
        Ended::Failed(io::Error::new(io::ErrorKind::TimedOut, text))
    }
}

fn is_output_limit(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|error| error.is::<OutputLimit>())
}
