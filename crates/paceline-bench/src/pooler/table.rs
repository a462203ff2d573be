//! What was found, as a table: each pooler, and ours beside it.

use crate::statistics::{ratio, Ratios, Spread};

use super::{program::Pooler, works::Work};

/// One pooler in one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) per_second: f64,
    /// In seconds, the mean.
    pub(super) latency: f64,
    /// In seconds of the pooler for a transaction.
    pub(super) cpu: f64,
    pub(super) switches: f64,
}

/// All rounds of a work.
pub(super) struct Results {
    work: &'static Work,
    names: Vec<String>,
    rounds: Vec<Vec<Option<Measured>>>,
    calls: Vec<Option<f64>>,
}

impl Results {
    pub(super) fn new(work: &'static Work, poolers: &[Pooler]) -> Self {
        Self {
            work,
            names: poolers
                .iter()
                .map(|pooler| pooler.name().to_owned())
                .collect(),
            rounds: Vec::new(),
            calls: vec![None; poolers.len()],
        }
    }

    pub(super) fn add(&mut self, round: Vec<Option<Measured>>) {
        self.rounds.push(round);
    }

    pub(super) fn count_calls(&mut self, at: usize, calls: Option<f64>) {
        self.calls[at] = calls;
    }

    /// Prints the table in Markdown.
    pub(super) fn print(&self) {
        println!("\n#### {}: {}\n", self.work.name, self.work.about());
        println!("| pooler | transactions/s | us of CPU each | calls | switches | mean latency, ms | ours / it: rate | ours / it: CPU |");
        println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
        for (at, name) in self.names.iter().enumerate() {
            let of = |value: fn(&Measured) -> f64| self.spread(at, value);
            let calls =
                self.calls[at].map_or_else(|| "-".to_owned(), |calls| format!("{calls:.1}"));
            println!(
                "| {name} | {} | {} | {calls} | {} | {} | {} | {} |",
                shown(of(|it| it.per_second), 1.0, 0),
                shown(of(|it| it.cpu), 1e6, 2),
                shown(of(|it| it.switches), 1.0, 2),
                shown(of(|it| it.latency), 1e3, 2),
                self.beside(at, |it| it.per_second),
                self.beside(at, |it| it.cpu),
            );
        }
        if let Some(goal) = self.work.cpu_goal {
            println!("\nGoal: ours / PgBouncer, CPU, at most {goal}.");
        }
    }

    fn spread(&self, at: usize, value: fn(&Measured) -> f64) -> Option<Spread> {
        Spread::of(
            self.rounds
                .iter()
                .filter_map(|round| round[at].as_ref().map(value)),
        )
    }

    /// The ratio of ours, the first, to the one at `at`, over the rounds.
    fn beside(&self, at: usize, value: fn(&Measured) -> f64) -> String {
        if at == 0 {
            return String::new();
        }
        let of = |round: &[Option<Measured>], at: usize| round[at].as_ref().map(value);
        let ratios = Ratios::of(
            self.rounds
                .iter()
                .map(|round| ratio(of(round, 0), of(round, at))),
        );
        match (ratios.spread(), ratios.interval()) {
            (Some(spread), Some(interval)) => {
                format!(
                    "{:.2} [{:.2}-{:.2}]",
                    spread.median, interval.low, interval.high
                )
            }
            (Some(spread), None) => format!("{:.2}", spread.median),
            _ => "-".to_owned(),
        }
    }
}

/// A median with its range.
fn shown(spread: Option<Spread>, factor: f64, digits: usize) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| {
            format!(
                "{:.digits$} ({:.digits$}-{:.digits$})",
                spread.median * factor,
                spread.min * factor,
                spread.max * factor
            )
        },
    )
}
