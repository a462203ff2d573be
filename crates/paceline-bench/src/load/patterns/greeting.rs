//! Before anything is measured, every connection asks once: then the server has accepted all of them.

use crate::{
    load::{
        asker::{Asker, Lines, NEVER},
        clock::Nanos,
        request::Asked,
    },
    service::Task,
};

/// So many are on the way at the same time.
const AT_ONCE: usize = 64;

/// One request on each connection.
#[derive(Debug)]
pub(in crate::load) struct Greeting {
    /// The next one that asks.
    next: usize,
    /// How many there are.
    count: usize,
    /// Replies that are due.
    waiting: usize,
}

impl Greeting {
    /// On connections 0 to `count - 1`.
    pub(in crate::load) fn new(count: usize) -> Self {
        Self {
            next: 0,
            count,
            waiting: 0,
        }
    }

    /// Whether all were answered.
    pub(in crate::load) fn is_over(&self) -> bool {
        self.next == self.count && self.waiting == 0
    }

    /// How many were not answered.
    pub(in crate::load) fn left(&self) -> usize {
        self.count - self.next + self.waiting
    }
}

impl Asker for Greeting {
    fn due(&mut self, lines: &mut impl Lines, now: Nanos) -> Nanos {
        while self.next < self.count && self.waiting < AT_ONCE {
            let connection = self.next;
            self.next += 1;
            if lines.stands(connection) {
                lines.ask(connection, Task::Nothing, now);
                lines.send(connection);
                self.waiting += 1;
            }
        }
        NEVER
    }

    fn answered(
        &mut self,
        _lines: &mut impl Lines,
        _connection: usize,
        replies: usize,
        _now: Nanos,
    ) {
        self.waiting -= replies;
    }

    fn focuses_on(&mut self, _connection: usize, _asked: Asked) -> bool {
        false
    }

    fn lost(&mut self, _connection: usize, replies: usize) {
        self.waiting -= replies;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::asker::list::List;

    #[test]
    fn every_connection_is_greeted_once() {
        let mut lines = List::default();
        let mut greeting = Greeting::new(100);
        let mut greeted = Vec::new();
        while !greeting.is_over() {
            greeting.due(&mut lines, 0);
            let sent = lines.take();
            assert!(!sent.is_empty() && sent.len() <= AT_ONCE);
            for (connection, ..) in sent {
                greeted.push(connection);
                greeting.answered(&mut lines, connection, 1, 0);
            }
        }
        assert_eq!(greeted, (0..100).collect::<Vec<_>>());
    }
}
