//! Log lines in the form that users of PgBouncer know.
//!
//! ```text
//! 2026-07-10 12:00:00.123 UTC [4711] LOG C-17: p0/bouncer@127.0.0.1:40000 login attempt: db=p0 ...
//! ```
//!
//! [`line()`] is a pure function; [`Log`] writes lines to a file, to the standard error output and
//! to syslog. Each line is one unbuffered write, so that a file may be read while it grows, and
//! lines of several threads do not mix. Times are UTC.

mod calendar;
mod line;
mod sink;

pub use calendar::seconds;
pub use line::{line, Level, Peer, Side};
pub use sink::{Log, LogTo};

#[cfg(test)]
mod tests;
