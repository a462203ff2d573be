//! Which tasks are asked for, and how often: `nothing=99,sleep-long=1`.
//!
//! The choice is made for each request, by a generator with a fixed seed: two runs ask for the same tasks in the
//! same order.

use std::{fmt, str::FromStr};

use crate::service::Task;

/// Every task with the name it has on the command line.
const NAMES: [(Task, &str); Task::ALL.len()] = [
    (Task::Nothing, "nothing"),
    (Task::Compute, "compute"),
    (Task::SleepLong, "sleep-long"),
    (Task::SleepShort, "sleep-short"),
];

/// The name of a task on the command line.
pub(crate) fn name_of(task: Task) -> &'static str {
    let found = NAMES.iter().find(|(named, _)| *named == task);
    found.map_or("nothing", |(_, name)| name)
}

/// The task of that name.
///
/// # Errors
/// A sentence with the names there are.
pub(crate) fn task_named(name: &str) -> Result<Task, String> {
    let found = NAMES.iter().find(|(_, known)| *known == name);
    found.map(|(task, _)| *task).ok_or_else(|| {
        let known: Vec<_> = NAMES.iter().map(|(_, name)| *name).collect();
        format!(
            "no task is called `{name}`; there are: {}",
            known.join(", ")
        )
    })
}

/// The weights of the tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    /// Tasks and their weights, as they were named. At least one, and none with weight 0.
    weights: Vec<(Task, u32)>,
}

impl Mix {
    /// Always the same task.
    pub(crate) fn only(task: Task) -> Self {
        Self {
            weights: vec![(task, 1)],
        }
    }

    /// Whether some requests ask for nothing.
    fn has_plain(&self) -> bool {
        self.weights.iter().any(|(task, _)| *task == Task::Nothing)
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let weights: Vec<_> = text.split(',').map(weight).collect::<Result<_, _>>()?;
        let mut seen = Vec::new();
        for (task, _) in &weights {
            if seen.contains(task) {
                return Err(format!("`{}` is named twice", name_of(*task)));
            }
            seen.push(*task);
        }
        Ok(Self { weights })
    }
}

/// One `task=weight`; `task` alone weighs 1.
fn weight(text: &str) -> Result<(Task, u32), String> {
    let (name, weight) = text.split_once('=').unwrap_or((text, "1"));
    let task = task_named(name.trim())?;
    match weight.trim().parse() {
        Ok(weight @ 1..=1_000_000) => Ok((task, weight)),
        _ => Err(format!(
            "the weight of `{name}` is a number from 1 to 1000000, not `{weight}`"
        )),
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (task, weight)) in self.weights.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{}={weight}", name_of(*task))?;
        }
        Ok(())
    }
}

/// Draws tasks from a mix.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Each task with the sum of the weights up to and with its own.
    bounds: Vec<(u64, Task)>,
    /// The sum of all weights.
    total: u64,
    /// Whether some requests ask for nothing.
    has_plain: bool,
    /// The source of randomness.
    chance: Chance,
}

impl Choice {
    /// Draws from `mix`, from the beginning.
    pub(crate) fn new(mix: &Mix) -> Self {
        let mut total = 0;
        let bound = |&(task, weight): &(Task, u32)| {
            total += u64::from(weight);
            (total, task)
        };
        let bounds = mix.weights.iter().map(bound).collect();
        Self {
            bounds,
            total,
            has_plain: mix.has_plain(),
            chance: Chance::new(),
        }
    }

    /// The next task. A mix of one task costs no draw.
    pub(crate) fn next(&mut self) -> Task {
        if let [(_, only)] = self.bounds[..] {
            return only;
        }
        let drawn = self.chance.below(self.total);
        let found = self.bounds.iter().find(|(bound, _)| drawn < *bound);
        found.map_or(Task::Nothing, |(_, task)| *task)
    }

    /// Whether latencies of `task` are in focus: those of `nothing`, and of all if there are none.
    pub(crate) fn focuses_on(&self, task: Task) -> bool {
        task == Task::Nothing || !self.has_plain
    }
}

/// A generator with a fixed seed (xorshift64*): the same numbers in every run.
#[derive(Debug)]
pub(crate) struct Chance {
    /// Never 0.
    state: u64,
}

impl Chance {
    /// From the beginning.
    pub(crate) fn new() -> Self {
        Self {
            state: 0x9E37_79B9_7F4A_7C15,
        }
    }

    /// 32 random bits.
    fn bits(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
    }

    /// A number from 0 to `bound - 1`. `bound` is far below 2^32.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.bits() * bound) >> 32
    }

    /// A number above 0 and at most 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.bits() + 1) as f64 / (1_u64 << 32) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_drawn_by_its_weights() {
        let mix: Mix = "nothing=90,sleep-long=9,compute=1".parse().unwrap();
        let mut choice = Choice::new(&mix);
        let mut counts = [0_u32; Task::ALL.len()];
        for _ in 0..100_000 {
            counts[usize::from(choice.next().byte())] += 1;
        }
        let expected = [90_000, 1_000, 9_000, 0];
        for (count, expected) in counts.into_iter().zip(expected) {
            assert!(count.abs_diff(expected) <= expected / 10, "{counts:?}");
        }
    }

    #[test]
    fn two_runs_draw_the_same() {
        let mix: Mix = "nothing=1,compute=1".parse().unwrap();
        let (mut one, mut other) = (Choice::new(&mix), Choice::new(&mix));
        assert!((0..1000).all(|_| one.next() == other.next()));
    }

    #[test]
    fn a_mix_reads_back_as_it_was_written() {
        for text in [
            "nothing=1",
            "nothing=99,sleep-long=1",
            "sleep-short=3,compute=2",
        ] {
            assert_eq!(text.parse::<Mix>().unwrap().to_string(), text);
        }
        assert_eq!("compute".parse(), Ok(Mix::only(Task::Compute)));
    }

    #[test]
    fn what_is_no_mix_is_refused() {
        for text in [
            "",
            "sleep",
            "nothing=",
            "nothing=0",
            "nothing=-1",
            "nothing=1,nothing=2",
        ] {
            assert!(text.parse::<Mix>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_focus_is_on_nothing_unless_nobody_asks_for_it() {
        let focus = |mix: &str, task| Choice::new(&mix.parse().unwrap()).focuses_on(task);
        assert!(focus("nothing=99,sleep-long=1", Task::Nothing));
        assert!(!focus("nothing=99,sleep-long=1", Task::SleepLong));
        assert!(focus("sleep-short=1,compute=1", Task::SleepShort));
        assert!(focus("sleep-short=1,compute=1", Task::Compute));
    }
}
