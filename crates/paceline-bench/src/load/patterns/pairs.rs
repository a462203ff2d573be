//! Two events at once: a request on each of two connections, back to back, again and again.
//!
//! ```text
//!  one connection      ask(first) .............. reply |         |
//!  another                ask(nothing) ... reply       |   gap   | the next two connections
//!                         |------------|
//!                          in focus
//! ```
//!
//! The second is what suffers if a server lets the first hold up what came with it. Each has its own start, so that
//! the write of the first is not part of the second's latency.

use crate::{
    load::{
        asker::{Asker, Lines, Rotation, NEVER},
        clock::Nanos,
        request::Asked,
    },
    service::Task,
};

/// From the last reply of a pair to the next pair: the server has gone to sleep by then.
const GAP: Nanos = 200_000;

/// Pairs of requests.
#[derive(Debug)]
pub(in crate::load) struct Pairs {
    /// The connections, in turn.
    rotation: Rotation,
    /// What the first of a pair asks for.
    first: Task,
    /// The connection of the second.
    second: usize,
    /// Replies of the pair that are due.
    waiting: usize,
    /// When the next pair is due.
    next: Nanos,
}

impl Pairs {
    /// On these connections, two at a time; the first asks for `first`.
    pub(in crate::load) fn new(connections: Vec<usize>, first: Task) -> Self {
        Self {
            rotation: Rotation::new(connections),
            first,
            second: usize::MAX,
            waiting: 0,
            next: 0,
        }
    }

    /// Asks a pair.
    fn ask(&mut self, lines: &mut impl Lines) {
        let pair = (self.rotation.next(lines), self.rotation.next(lines));
        let (Some(first), Some(second)) = pair else {
            return;
        };
        if first == second {
            return;
        }
        (self.waiting, self.second) = (2, second);
        for (connection, task) in [(first, self.first), (second, Task::Nothing)] {
            let now = lines.now();
            lines.ask(connection, task, now);
            lines.send(connection);
        }
    }
}

impl Asker for Pairs {
    fn due(&mut self, lines: &mut impl Lines, now: Nanos) -> Nanos {
        if self.waiting == 0 && now >= self.next {
            self.ask(lines);
            return NEVER;
        }
        if self.waiting == 0 {
            self.next
        } else {
            NEVER
        }
    }

    fn answered(
        &mut self,
        _lines: &mut impl Lines,
        _connection: usize,
        replies: usize,
        now: Nanos,
    ) {
        self.waiting -= replies;
        self.next = now + GAP;
    }

    fn focuses_on(&mut self, connection: usize, _asked: Asked) -> bool {
        connection == self.second
    }

    fn lost(&mut self, _connection: usize, replies: usize) {
        self.waiting -= replies;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::asker::list::List;

    /// What is known of a request that was sent.
    fn asked((_, task, start): (usize, Task, Nanos)) -> Asked {
        Asked { start, task }
    }

    #[test]
    fn a_pair_is_one_of_the_named_task_and_one_of_nothing_in_focus() {
        let mut lines = List::default();
        let mut pairs = Pairs::new(vec![0, 1, 2], Task::SleepLong);
        assert_eq!(pairs.due(&mut lines, 0), NEVER);
        let sent = lines.take();
        assert!(matches!(
            sent[..],
            [(0, Task::SleepLong, _), (1, Task::Nothing, _)]
        ));
        assert!(!pairs.focuses_on(0, asked(sent[0])));
        assert!(pairs.focuses_on(1, asked(sent[1])));
    }

    #[test]
    fn the_next_pair_comes_a_gap_after_both_replies_on_other_connections() {
        let mut lines = List::default();
        let mut pairs = Pairs::new(vec![0, 1, 2], Task::Nothing);
        pairs.due(&mut lines, 0);
        lines.take();
        pairs.answered(&mut lines, 1, 1, 10);
        assert_eq!(pairs.due(&mut lines, 2 * GAP), NEVER);
        pairs.answered(&mut lines, 0, 1, 3 * GAP);
        assert_eq!(pairs.due(&mut lines, 3 * GAP), 4 * GAP);
        assert_eq!(lines.take(), []);
        pairs.due(&mut lines, 4 * GAP);
        assert!(matches!(lines.take()[..], [(2, ..), (0, ..)]));
    }

    #[test]
    fn a_lost_connection_does_not_hold_the_next_pair_up() {
        let mut lines = List::default();
        let mut pairs = Pairs::new(vec![0, 1, 2], Task::Nothing);
        pairs.due(&mut lines, 0);
        lines.take();
        lines.lost.push(0);
        pairs.lost(0, 1);
        pairs.answered(&mut lines, 1, 1, 0);
        pairs.due(&mut lines, GAP);
        assert!(matches!(lines.take()[..], [(2, ..), (1, ..)]));
    }
}
