//! What the server reports, as events of the crate `tracing`. The guide lists them.
//!
//! The rest of the crate calls these functions wherever something happens; without the feature
//! `tracing` the functions of `events_none.rs` take their place, and do nothing.

use std::{fmt, io, time::Duration};

use paceline::{observe::Traces, Builder};

use crate::{
    access_log::{Entry, Escaped},
    link::Link,
    peer::PeerAddress,
    server::DrainReport,
    session::Ended,
};

/// What every event of the server has as its target. Those of its pools have `paceline`.
macro_rules! event {
    ($level:ident, $($rest:tt)+) => {
        tracing::$level!(target: "paceline_server", $($rest)+)
    };
}

/// The pool reports too, under this name.
pub(crate) fn observe(pool: Builder, name: &str) -> Builder {
    pool.observer(Traces::new(name))
}

/// The server accepts connections.
pub(crate) fn listening(service: &str, place: &str) {
    event!(info, service, place, "the server listens");
}

/// A connection stands.
pub(crate) fn opened(link: &Link) {
    let (service, connection) = (link.service().name.as_str(), link.id());
    event!(debug, service, %connection, peer = %link.address(), "a connection is open");
}

/// A connection that stood has ended.
pub(crate) fn ended(entry: &Entry<'_>) {
    let Entry {
        service,
        id,
        address,
        items,
        bytes_in,
        lasted,
        why,
    } = *entry;
    let (reason, detail) = (why.name(), why.to_string());
    let detail = Escaped(&detail);
    macro_rules! with_fields {
        ($level:ident, $text:literal) => {
            event!($level, service, connection = %id, peer = %address, items, bytes_in, ?lasted, reason, %detail, $text)
        };
    }
    match why {
        Ended::Panicked(_) => with_fields!(error, "the session of a connection panicked"),
        Ended::Limit(_) | Ended::Malformed(_) | Ended::Failed(_) => {
            with_fields!(info, "a connection ended early");
        }
        _ => with_fields!(debug, "a connection ended"),
    }
}

/// A connection could not be made.
pub(crate) fn not_made(service: &str, address: &PeerAddress, why: &Ended) {
    let detail = why.to_string();
    let detail = Escaped(&detail);
    event!(info, service, peer = %address, %detail, "a connection could not be made");
}

/// A message of a room, or of another connection, missed this one.
pub(crate) fn missed(link: &Link) {
    let (service, connection) = (link.service().name.as_str(), link.id());
    event!(debug, service, %connection, "a message missed a connection");
}

/// The end begins.
pub(crate) fn draining(within: Duration) {
    event!(info, ?within, "the server drains");
}

/// The end is over.
pub(crate) fn drained(report: &DrainReport) {
    let cut: usize = report.services.iter().map(|service| service.cut).sum();
    let (is_clean, took) = (report.is_clean(), report.took);
    event!(info, cut, is_clean, ?took, "the server has ended");
}

/// Certificates were to be read anew.
#[cfg_attr(not(feature = "_tls"), allow(dead_code))]
pub(crate) fn reloaded(files: &dyn fmt::Debug, result: &io::Result<()>) {
    match result {
        Ok(()) => event!(info, ?files, "certificates were read anew"),
        Err(error) => event!(error, ?files, %error, "certificates could not be read anew"),
    }
}
