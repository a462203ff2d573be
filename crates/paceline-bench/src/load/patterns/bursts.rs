//! Silence, and then many requests at once.
//!
//! ```text
//!  |        idle        | K requests, one after the other | replies ...   |        idle        |
//!                       |-----------------------------------|
//!                         in focus: the first reply
//! ```
//!
//! All latencies of a burst run from its beginning. The client writes the whole burst before it looks for replies:
//! the first is never sooner than the K writes take.

use crate::load::{
    asker::{Asker, Lines, Rotation, NEVER},
    clock::Nanos,
    mix::Choice,
    request::Asked,
};

/// Bursts after idleness.
#[derive(Debug)]
pub(in crate::load) struct Bursts {
    /// The connections, in turn.
    rotation: Rotation,
    /// Requests of a burst.
    size: usize,
    /// Between the last reply of a burst and the next burst.
    idle: Nanos,
    /// What is asked.
    choice: Choice,
    /// Replies of the burst that are due.
    waiting: usize,
    /// Whether a reply of the burst came already.
    answered: bool,
    /// When the next burst is due; with the first look it is set.
    next: Option<Nanos>,
}

impl Bursts {
    /// Of `size` requests on as many of these connections, with silence of `idle` between.
    pub(in crate::load) fn new(
        connections: Vec<usize>,
        size: usize,
        idle: Nanos,
        choice: Choice,
    ) -> Self {
        Self {
            rotation: Rotation::new(connections),
            size,
            idle,
            choice,
            waiting: 0,
            answered: false,
            next: None,
        }
    }

    /// Asks a burst.
    fn ask(&mut self, lines: &mut impl Lines) {
        let start = lines.now();
        self.answered = false;
        let mut first = None;
        while self.waiting < self.size {
            let Some(connection) = self.rotation.next(lines) else {
                return;
            };
            // Fewer stand than a burst has requests: each gets one.
            if first == Some(connection) {
                return;
            }
            first.get_or_insert(connection);
            lines.ask(connection, self.choice.next(), start);
            lines.send(connection);
            self.waiting += 1;
        }
    }
}

impl Asker for Bursts {
    fn due(&mut self, lines: &mut impl Lines, now: Nanos) -> Nanos {
        let next = *self.next.get_or_insert(now + self.idle);
        if self.waiting == 0 && now >= next {
            self.ask(lines);
            return NEVER;
        }
        if self.waiting == 0 {
            next
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
        self.next = Some(now + self.idle);
    }

    fn focuses_on(&mut self, _connection: usize, _asked: Asked) -> bool {
        !std::mem::replace(&mut self.answered, true)
    }

    fn lost(&mut self, _connection: usize, replies: usize) {
        self.waiting -= replies;
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
    fn a_burst_comes_after_silence_and_its_first_reply_is_in_focus() {
        let mut lines = List::default();
        let choice = Choice::new(&Mix::only(Task::Nothing));
        let mut bursts = Bursts::new(vec![0, 1, 2], 2, 100, choice);
        assert_eq!(bursts.due(&mut lines, 0), 100);
        assert_eq!(lines.take(), []);
        lines.now = 101;
        assert_eq!(bursts.due(&mut lines, 100), NEVER);
        let sent = lines.take();
        assert_eq!(sent, [(0, Task::Nothing, 101), (1, Task::Nothing, 101)]);
        assert!(bursts.focuses_on(1, Asked::NEVER));
        bursts.answered(&mut lines, 1, 1, 150);
        assert_eq!(bursts.due(&mut lines, 300), NEVER);
        assert!(!bursts.focuses_on(0, Asked::NEVER));
        bursts.answered(&mut lines, 0, 1, 350);
        assert_eq!(bursts.due(&mut lines, 350), 450);
        bursts.due(&mut lines, 450);
        assert!(matches!(lines.take()[..], [(2, ..), (0, ..)]));
        assert!(bursts.focuses_on(2, Asked::NEVER));
    }
}
