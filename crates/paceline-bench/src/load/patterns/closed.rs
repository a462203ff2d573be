//! Every connection asks again as soon as it has its reply.
//!
//! The time of a reply is taken once per ready connection, after its read, and is the start of what is asked next.

use crate::load::{
    asker::{Asker, Lines, NEVER},
    clock::Nanos,
    mix::Choice,
    request::Asked,
};

/// The closed loop.
#[derive(Debug)]
pub(in crate::load) struct Closed {
    /// Those that have not asked yet: all at the beginning, then none.
    fresh: Vec<usize>,
    /// Requests on the way on each.
    pipeline: usize,
    /// What is asked.
    choice: Choice,
}

impl Closed {
    /// On these connections.
    pub(in crate::load) fn new(connections: Vec<usize>, pipeline: usize, choice: Choice) -> Self {
        Self {
            fresh: connections,
            pipeline,
            choice,
        }
    }

    /// Asks `count` times on `connection`, with one write.
    fn ask(&mut self, lines: &mut impl Lines, connection: usize, count: usize, now: Nanos) {
        for _ in 0..count {
            lines.ask(connection, self.choice.next(), now);
        }
        lines.send(connection);
    }
}

impl Asker for Closed {
    fn due(&mut self, lines: &mut impl Lines, now: Nanos) -> Nanos {
        while let Some(connection) = self.fresh.pop() {
            if lines.stands(connection) {
                self.ask(lines, connection, self.pipeline, now);
            }
        }
        NEVER
    }

    fn answered(&mut self, lines: &mut impl Lines, connection: usize, replies: usize, now: Nanos) {
        self.ask(lines, connection, replies, now);
    }

    fn focuses_on(&mut self, _connection: usize, asked: Asked) -> bool {
        self.choice.focuses_on(asked.task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        load::{asker::list::List, mix::Mix},
        service::Task,
    };

    #[test]
    fn a_connection_asks_as_often_as_it_was_answered() {
        let mut lines = List::default();
        let choice = Choice::new(&Mix::only(Task::Compute));
        let mut closed = Closed::new(vec![3, 5], 2, choice);
        assert_eq!(closed.due(&mut lines, 10), NEVER);
        let asked = |connection, start| (connection, Task::Compute, start);
        assert_eq!(
            lines.take(),
            [asked(5, 10), asked(5, 10), asked(3, 10), asked(3, 10)]
        );
        closed.answered(&mut lines, 3, 1, 20);
        closed.answered(&mut lines, 5, 2, 30);
        assert_eq!(lines.take(), [asked(3, 20), asked(5, 30), asked(5, 30)]);
        assert_eq!(closed.due(&mut lines, 40), NEVER);
        assert_eq!(lines.take(), []);
    }
}
