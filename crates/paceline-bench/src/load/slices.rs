//! A client that measures on request, so that several servers can be measured in turns.
//!
//! ```text
//!  conductor             client
//!                        ready
//!  slice 0.05 0.5  --->  0.05 s of load, then 0.5 s that are measured, then drained
//!                        Load, of that slice
//!  forget          --->  that slice does not count
//!  (end of input)  --->  Load, of all that count
//! ```

use std::io::{self, BufRead, Write};

use super::measured::Measured;
use crate::record::Load;

/// What the client says when all connections stand.
pub(crate) const READY: &str = "ready";

/// What a conductor may want.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Order {
    /// So many seconds of load, and then so many that are measured.
    Slice { warm_up: f64, seconds: f64 },
    /// The last slice does not count.
    Forget,
}

impl Order {
    /// As a line.
    pub(crate) fn line(self) -> String {
        match self {
            Self::Slice { warm_up, seconds } => format!("slice {warm_up} {seconds}\n"),
            Self::Forget => "forget\n".to_owned(),
        }
    }

    /// From a line.
    ///
    /// # Errors
    /// `InvalidInput` with the line.
    fn of(line: &str) -> io::Result<Self> {
        let mut words = line.split_whitespace();
        let verb = words.next();
        let spans: Option<Vec<f64>> = words.map(span_of).collect();
        match (verb, spans.as_deref()) {
            (Some("slice"), Some(&[warm_up, seconds])) => Ok(Self::Slice { warm_up, seconds }),
            (Some("forget"), Some([])) => Ok(Self::Forget),
            _ => {
                let text = format!("{line:?} is neither `slice WARM_UP SECONDS` nor `forget`");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }
}

/// The seconds that a word names, if a slice may be that long.
fn span_of(word: &str) -> Option<f64> {
    let seconds = word.parse().ok()?;
    (0.0..=3600.0).contains(&seconds).then_some(seconds)
}

/// Measures the slices that are requested, and returns the sum of those that count.
///
/// # Errors
/// What a slice said; `InvalidInput` if an order is none.
pub(super) fn conducted(
    orders: impl BufRead,
    mut answers: impl Write,
    mut slice: impl FnMut(f64, f64) -> io::Result<Measured>,
) -> io::Result<Load> {
    let (mut sum, mut last) = (Measured::nothing(), None);
    writeln!(answers, "{READY}")?;
    for order in orders.lines() {
        match Order::of(&order?)? {
            Order::Slice { warm_up, seconds } => {
                last.iter().for_each(|slice| sum.add(slice));
                let measured = slice(warm_up, seconds)?;
                writeln!(answers, "{}", serde_json::to_string(&measured.load())?)?;
                last = Some(measured);
            }
            Order::Forget => last = None,
        }
    }
    last.iter().for_each(|slice| sum.add(slice));
    Ok(sum.load())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{load::tally::Tally, usage::Usage};

    /// A slice of which everything follows from its length.
    fn slice(seconds: f64) -> Measured {
        let requests = (seconds * 100.0) as u64;
        let mut tally = Tally::new();
        tally.begin(0);
        (0..requests).for_each(|_| tally.waited(0, (seconds * 1e6) as u64, true));
        Measured {
            requests,
            seconds,
            tally,
            errors: 0,
            usage: Usage {
                server_cpu: seconds / 2.0,
                foreign: seconds,
                memory: requests,
                ..Usage::default()
            },
        }
    }

    /// What a client answers to these orders, and its result.
    fn answers_to(orders: &str) -> (Vec<String>, io::Result<Load>) {
        let mut answers = Vec::new();
        let load = conducted(orders.as_bytes(), &mut answers, |_, seconds| {
            Ok(slice(seconds))
        });
        let text = String::from_utf8(answers).unwrap();
        (text.lines().map(str::to_owned).collect(), load)
    }

    #[test]
    fn slices_are_put_together() {
        let (answers, load) = answers_to("slice 0.5 1\nslice 0 3\n");
        assert_eq!(answers[0], READY);
        let of_second: Load = serde_json::from_str(&answers[2]).unwrap();
        assert_eq!((of_second.requests, of_second.seconds), (300, 3.0));
        let load = load.unwrap();
        assert_eq!((load.requests, load.seconds, load.memory), (400, 4.0, 300));
        assert_eq!((load.server_cpu, load.foreign), (2.0, 2.5));
        assert_eq!(load.latency.count, 400);
        assert!((load.latency.p50 - 3000.0).abs() < 3.0, "{load:?}");
    }

    #[test]
    fn what_is_forgotten_does_not_count() {
        for orders in [
            "slice 0 2\nslice 0 1\nforget\n",
            "slice 0 1\nforget\nslice 0 2\n",
        ] {
            let (answers, load) = answers_to(orders);
            assert_eq!(answers.len(), 3);
            assert_eq!(load.unwrap().requests, 200);
        }
        let nothing = answers_to("slice 0 1\nforget\n").1.unwrap();
        assert_eq!((nothing.requests, nothing.seconds), (0, 0.0));
    }

    #[test]
    fn an_order_is_read_as_it_is_written() {
        let (warm_up, seconds) = (0.05, 0.5);
        for order in [Order::Slice { warm_up, seconds }, Order::Forget] {
            assert_eq!(Order::of(&order.line()).unwrap(), order);
        }
        for wrong in ["", "slice 1", "slice 1 x", "slice -1 1", "forget 1", "more"] {
            let error = Order::of(wrong).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
