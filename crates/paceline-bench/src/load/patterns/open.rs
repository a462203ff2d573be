//! Requests arrive at a rate of their own, whether or not the server keeps up.
//!
//! ```text
//!  meant for    |    |  |      |          a latency runs from here,
//!               |    |  +------|------+
//!  connections  ==A==|==B====  ==C=== |   also when all are busy: then the request waits its turn
//!                    ====D==========  =E==
//! ```
//!
//! Arrivals are those of many independent clients (a Poisson process): the gaps between them are
//! random, from a fixed seed, and the rate is their mean. They wait in order. No queue is kept: what was not asked
//! yet is reported by the next arrival.

use std::collections::VecDeque;

use crate::load::{
    asker::{Asker, Lines, NEVER},
    clock::Nanos,
    mix::{Chance, Choice},
    request::Asked,
};

/// When requests arrive, one after the other, for ever.
#[derive(Debug)]
pub(in crate::load) struct Arrivals {
    /// The next one, in nanoseconds; with fractions, so that the rate is kept.
    next: f64,
    /// The mean of the gaps, in nanoseconds.
    gap: f64,
    /// The source of randomness.
    chance: Chance,
}

impl Arrivals {
    /// `rate` arrivals a second, from `from` on.
    fn new(rate: f64, from: Nanos) -> Self {
        let mut arrivals = Self {
            next: from as f64,
            gap: 1e9 / rate,
            chance: Chance::new(),
        };
        arrivals.advance();
        arrivals
    }

    /// When the next one arrives.
    fn next(&self) -> Nanos {
        self.next as Nanos
    }

    /// Takes the next one, if it arrived by `now`.
    fn take(&mut self, now: Nanos) -> Option<Nanos> {
        let next = self.next();
        (next <= now).then(|| {
            self.advance();
            next
        })
    }

    /// Advances to the one after the next.
    fn advance(&mut self) {
        self.next -= self.gap * self.chance.fraction().ln();
    }
}

/// The open loop.
#[derive(Debug)]
pub(in crate::load) struct Open {
    /// Arrivals a second.
    rate: f64,
    /// Those not asked yet. They begin with the first look.
    arrivals: Option<Arrivals>,
    /// Connections with room, longest unused first; each as often as it has room.
    free: VecDeque<usize>,
    /// What is asked.
    choice: Choice,
}

impl Open {
    /// On these connections, `rate` requests a second.
    pub(in crate::load) fn new(
        connections: Vec<usize>,
        pipeline: usize,
        rate: f64,
        choice: Choice,
    ) -> Self {
        let all = connections.len() * pipeline;
        Self {
            rate,
            arrivals: None,
            free: connections.into_iter().cycle().take(all).collect(),
            choice,
        }
    }

    /// Asks what arrived by `now`, as far as connections are free.
    fn serve(&mut self, lines: &mut impl Lines, now: Nanos) -> Nanos {
        let rate = self.rate;
        let arrivals = self
            .arrivals
            .get_or_insert_with(|| Arrivals::new(rate, now));
        while let Some(&connection) = self.free.front() {
            if lines.stands(connection) {
                let Some(start) = arrivals.take(now) else {
                    return arrivals.next();
                };
                lines.ask(connection, self.choice.next(), start);
                lines.send(connection);
            }
            self.free.pop_front();
        }
        NEVER
    }
}

impl Asker for Open {
    fn due(&mut self, lines: &mut impl Lines, now: Nanos) -> Nanos {
        self.serve(lines, now)
    }

    fn answered(&mut self, lines: &mut impl Lines, connection: usize, replies: usize, now: Nanos) {
        for _ in 0..replies {
            self.free.push_back(connection);
        }
        self.serve(lines, now);
    }

    fn focuses_on(&mut self, _connection: usize, asked: Asked) -> bool {
        self.choice.focuses_on(asked.task)
    }

    fn turned_away(&mut self, now: Nanos) -> Option<(Asked, bool)> {
        let start = self.arrivals.as_mut()?.take(now)?;
        let task = self.choice.next();
        Some((Asked { start, task }, self.choice.focuses_on(task)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        load::{asker::list::List, mix::Mix},
        service::Task,
    };

    /// Asks for nothing, on these connections.
    fn open(connections: Vec<usize>, rate: f64) -> Open {
        Open::new(connections, 1, rate, Choice::new(&Mix::only(Task::Nothing)))
    }

    #[test]
    fn arrivals_are_in_order_and_keep_their_rate() {
        let second = 1_000_000_000;
        let mut arrivals = Arrivals::new(50_000.0, 7 * second);
        let starts: Vec<_> = std::iter::from_fn(|| arrivals.take(17 * second)).collect();
        assert!(starts.is_sorted() && starts[0] >= 7 * second);
        assert!(starts.len().abs_diff(500_000) < 5_000, "{}", starts.len());
    }

    #[test]
    fn gaps_vary_as_those_of_strangers_do() {
        let mut arrivals = Arrivals::new(1e6, 0);
        let starts: Vec<_> = std::iter::from_fn(|| arrivals.take(100_000_000)).collect();
        let short = starts
            .windows(2)
            .filter(|pair| pair[1] - pair[0] < 1000)
            .count();
        // Of exponential gaps, 1 - 1/e are shorter than their mean.
        let part = short as f64 / starts.len() as f64;
        assert!((part - 0.632).abs() < 0.02, "{part}");
    }

    #[test]
    fn what_is_not_due_is_not_asked() {
        let (mut lines, mut open) = (List::default(), open(vec![0, 1, 2], 1000.0));
        let first = open.due(&mut lines, 0);
        assert!(first > 0 && first != NEVER);
        assert_eq!(open.due(&mut lines, first - 1), first);
        assert_eq!(lines.take(), []);
        assert!(open.due(&mut lines, first) > first);
        assert_eq!(lines.take(), [(0, Task::Nothing, first)]);
    }

    #[test]
    fn when_all_are_busy_requests_wait_and_keep_their_start() {
        let (mut lines, mut open) = (List::default(), open(vec![0], 1e6));
        open.due(&mut lines, 0);
        // A stall of the server, of 100 mean gaps.
        assert_eq!(open.due(&mut lines, 100_000), NEVER);
        let mut starts: Vec<_> = lines.take().iter().map(|sent| sent.2).collect();
        while let Some(last) = starts.last().copied().filter(|start| *start < 50_000) {
            open.answered(&mut lines, 0, 1, 100_000);
            let sent = lines.take();
            assert!(matches!(sent[..], [(0, _, start)] if start > last && start <= 100_000));
            starts.push(sent[0].2);
        }
        assert!(starts.len().abs_diff(50) < 25, "{starts:?}");
    }

    #[test]
    fn requests_without_a_connection_are_counted_at_the_end() {
        let (mut lines, mut open) = (List::default(), open(vec![0], 1e6));
        open.due(&mut lines, 0);
        open.due(&mut lines, 100_000);
        let away = std::iter::from_fn(|| open.turned_away(100_000)).count();
        assert!(away.abs_diff(99) < 40, "{away}");
    }

    #[test]
    fn a_lost_connection_is_left_out() {
        let (mut lines, mut open) = (List::default(), open(vec![0, 1], 1e6));
        lines.lost.push(0);
        open.due(&mut lines, 0);
        open.due(&mut lines, 100_000);
        assert!(matches!(lines.take()[..], [(1, ..)]));
    }
}
