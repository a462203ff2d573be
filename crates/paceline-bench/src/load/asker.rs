//! The two sides of the load: the one that decides what is requested when, and the one that sends it.
//!
//! ```text
//!            due, answered, lost                  ask, send, reopen
//!  driver -----------------------> an Asker -----------------------> Lines: the wire,
//!          <---------------------  (patterns)                        or a list in a test
//!            when it is due next
//! ```
//!
//! An asker opens no socket and reads no clock: times come in as arguments, so that the patterns are tested without
//! either.

use super::{clock::Nanos, request::Asked};
use crate::service::Task;

/// Never, as a time.
pub(super) const NEVER: Nanos = Nanos::MAX;

/// The connections, as an [`Asker`] sees them: numbers from 0.
pub(super) trait Lines {
    /// The time, exactly.
    fn now(&self) -> Nanos;

    /// Writes one more request down for this connection, that was meant for `start`. It has room for it, and nothing
    /// is written down for another connection.
    fn ask(&mut self, connection: usize, task: Task, start: Nanos);

    /// Sends what is written down, with one write.
    fn send(&mut self, connection: usize);

    /// Whether this connection is still open.
    fn stands(&self, connection: usize) -> bool;

    /// Closes this connection, on which no reply is due, and puts a new one in its place.
    fn reopen(&mut self, connection: usize);

    /// Something went wrong that only the asker sees.
    fn fault(&mut self);
}

/// Decides what is asked when.
pub(super) trait Asker {
    /// All connections were accepted, and nothing runs yet: the time for what takes its time.
    fn prepare(&mut self) {}

    /// Sends what is due by `now`, and returns when the next request is due, unless a reply arrives before.
    fn due(&mut self, lines: &mut impl Lines, now: Nanos) -> Nanos;

    /// Replies came on `connection`: there is room for as many requests.
    fn answered(&mut self, lines: &mut impl Lines, connection: usize, replies: usize, now: Nanos);

    /// Whether the latency of this request, of which the reply came just now, is in focus.
    fn focuses_on(&mut self, connection: usize, asked: Asked) -> bool;

    /// A connection was lost, and with it this many replies.
    fn lost(&mut self, _connection: usize, _replies: usize) {}

    /// After the end, at `now`: one more that was meant to be asked before and found no connection free.
    /// Says what it would have been, and whether it is in focus.
    fn turned_away(&mut self, _now: Nanos) -> Option<(Asked, bool)> {
        None
    }
}

/// Connections in turn.
#[derive(Debug)]
pub(super) struct Rotation {
    /// Those that take turns.
    connections: Vec<usize>,
    /// The place of the next one.
    place: usize,
}

impl Rotation {
    /// These connections in turn.
    pub(super) fn new(connections: Vec<usize>) -> Self {
        Self {
            connections,
            place: 0,
        }
    }

    /// The next open connection.
    pub(super) fn next(&mut self, lines: &impl Lines) -> Option<usize> {
        for _ in 0..self.connections.len() {
            let connection = self.connections[self.place];
            self.place = (self.place + 1) % self.connections.len();
            if lines.stands(connection) {
                return Some(connection);
            }
        }
        None
    }
}

/// Lines that are a list, for the tests of the patterns.
#[cfg(test)]
pub(super) mod list {
    use super::*;

    /// What was asked, in order.
    #[derive(Debug, Default)]
    pub(crate) struct List {
        /// The time it is.
        pub(crate) now: Nanos,
        /// Connection, task and start of each request that was sent.
        pub(crate) sent: Vec<(usize, Task, Nanos)>,
        /// Written down, and not yet sent.
        pub(crate) written: Vec<(usize, Task, Nanos)>,
        /// Connections that were lost.
        pub(crate) lost: Vec<usize>,
        /// Connections that were opened anew.
        pub(crate) reopened: Vec<usize>,
    }

    impl List {
        /// What was sent since the last call.
        pub(crate) fn take(&mut self) -> Vec<(usize, Task, Nanos)> {
            assert!(
                self.written.is_empty(),
                "written down and not sent: {self:?}"
            );
            std::mem::take(&mut self.sent)
        }
    }

    impl Lines for List {
        fn now(&self) -> Nanos {
            self.now
        }

        fn ask(&mut self, connection: usize, task: Task, start: Nanos) {
            assert!(self.stands(connection));
            assert!(self.written.iter().all(|(other, ..)| *other == connection));
            self.written.push((connection, task, start));
        }

        fn send(&mut self, _connection: usize) {
            self.sent.append(&mut self.written);
        }

        fn stands(&self, connection: usize) -> bool {
            !self.lost.contains(&connection)
        }

        fn reopen(&mut self, connection: usize) {
            self.reopened.push(connection);
        }

        fn fault(&mut self) {}
    }
}
