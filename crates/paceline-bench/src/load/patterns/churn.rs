//! Connections of one request each: connect, ask, take the reply, close, and again.
//!
//! The latency runs from the beginning of the connecting to the reply.

use crate::load::{
    asker::{Asker, Lines, NEVER},
    clock::Nanos,
    mix::Choice,
    request::Asked,
};

/// The lanes, each with one connection after the other.
#[derive(Debug)]
pub(in crate::load) struct Churn {
    /// Lanes that have not begun.
    fresh: Vec<usize>,
    /// What is asked.
    choice: Choice,
}

impl Churn {
    /// On these lanes.
    pub(in crate::load) fn new(lanes: Vec<usize>, choice: Choice) -> Self {
        Self {
            fresh: lanes,
            choice,
        }
    }

    /// A new connection on this lane, and its request.
    fn ask(&mut self, lines: &mut impl Lines, lane: usize, now: Nanos) {
        lines.reopen(lane);
        if lines.stands(lane) {
            lines.ask(lane, self.choice.next(), now);
            lines.send(lane);
        }
    }
}

impl Asker for Churn {
    fn due(&mut self, lines: &mut impl Lines, now: Nanos) -> Nanos {
        while let Some(lane) = self.fresh.pop() {
            self.ask(lines, lane, now);
        }
        NEVER
    }

    fn answered(&mut self, lines: &mut impl Lines, lane: usize, _replies: usize, now: Nanos) {
        self.ask(lines, lane, now);
    }

    fn focuses_on(&mut self, _lane: usize, asked: Asked) -> bool {
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
    fn every_request_has_a_connection_of_its_own() {
        let mut lines = List::default();
        let mut churn = Churn::new(vec![0], Choice::new(&Mix::only(Task::Nothing)));
        churn.due(&mut lines, 10);
        churn.answered(&mut lines, 0, 1, 20);
        assert_eq!(
            lines.take(),
            [(0, Task::Nothing, 10), (0, Task::Nothing, 20)]
        );
        assert_eq!(lines.reopened, [0, 0]);
    }
}
