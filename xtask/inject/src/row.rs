//! A row of the table, and what must be true of it.

use std::time::Duration;

use super::load::{Tally, Terms};
use super::service::Service;

/// What came of one fault.
pub(super) struct Row {
    /// What was put under it.
    pub(super) service: Service,
    /// The fault's name.
    pub(super) name: &'static str,
    /// What a client had to put up with.
    pub(super) terms: Terms,
    /// How often it struck.
    pub(super) injected: u64,
    /// Places that were made to fail once, and lastingly; zero where they are not counted.
    pub(super) sites: [u64; 2],
    /// The longest time after its end until fresh connections were served.
    pub(super) recovery: Duration,
    /// What the clients counted.
    pub(super) tally: Tally,
    /// What else was wrong.
    pub(super) complaints: Vec<String>,
    /// How long it all took.
    pub(super) time: Duration,
}

/// The columns of the table.
pub(super) const HEADING: [&str; 12] = [
    "service",
    "fault",
    "injected",
    "requests",
    "refused",
    "nudges",
    "lost",
    "doubled",
    "misrouted",
    "hung",
    "recovery ms",
    "verdict",
];

impl Row {
    /// Whether nothing is wrong with it.
    pub(super) fn passed(&self) -> bool {
        self.wrongs().is_empty()
    }

    /// Everything that is wrong with it.
    pub(super) fn wrongs(&self) -> Vec<String> {
        let Tally {
            requests,
            lost,
            doubled,
            misrouted,
            hung,
            broken,
            ..
        } = self.tally;
        let counts = [
            (lost, "lost"),
            (doubled, "doubled"),
            (misrouted, "misrouted"),
            (hung, "hung"),
        ];
        let bad = counts.into_iter().filter(|(count, _)| *count > 0);
        let mut wrongs: Vec<_> = bad.map(|(count, what)| format!("{count} {what}")).collect();
        if self.injected == 0 {
            wrongs.push("the fault never struck".to_owned());
        }
        if requests == 0 {
            wrongs.push("nothing was asked".to_owned());
        }
        if self.terms == Terms::MayBeRefused && broken > self.injected {
            wrongs.push(format!(
                "{broken} connections broken by {} faults",
                self.injected
            ));
        }
        wrongs.extend(self.complaints.iter().cloned());
        wrongs
    }

    /// Its cells.
    pub(super) fn cells(&self) -> [String; 12] {
        let tally = &self.tally;
        let verdict = match self.wrongs().join(", ") {
            wrongs if wrongs.is_empty() && self.sites != [0, 0] => {
                format!("passed, {} sites", self.sites.iter().sum::<u64>())
            }
            wrongs if wrongs.is_empty() => "passed".to_owned(),
            wrongs => format!("FAILED: {wrongs}"),
        };
        let figures = [
            self.injected,
            tally.requests,
            tally.refused,
            tally.nudges,
            tally.lost,
            tally.doubled,
            tally.misrouted,
            tally.hung,
        ];
        std::array::from_fn(|column| match column {
            0 => self.service.name().to_owned(),
            1 => self.name.to_owned(),
            10 => to_the_right(column, format!("{:.1}", self.recovery.as_secs_f64() * 1e3)),
            11 => verdict.clone(),
            _ => to_the_right(column, figures[column - 2].to_string()),
        })
    }
}

/// The cells of a fault without figures.
pub(super) fn cells_without_figures(service: Service, name: &str, verdict: String) -> [String; 12] {
    std::array::from_fn(|column| match column {
        0 => service.name().to_owned(),
        1 => name.to_owned(),
        11 => verdict.clone(),
        _ => to_the_right(column, "-".to_owned()),
    })
}

/// A cell at the right side of its column.
fn to_the_right(column: usize, cell: String) -> String {
    let width = HEADING[column].len();
    format!("{cell:>width$}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row with nothing wrong.
    pub(crate) fn good() -> Row {
        Row {
            service: Service::Echo,
            name: "row",
            terms: Terms::MayBeRefused,
            injected: 5,
            sites: [0, 0],
            recovery: Duration::ZERO,
            tally: Tally {
                requests: 10,
                answered: 8,
                refused: 2,
                broken: 1,
                ..Tally::default()
            },
            complaints: Vec::new(),
            time: Duration::ZERO,
        }
    }

    #[test]
    fn a_row_fails_for_every_single_reason() {
        assert!(good().passed());
        let spoil: [fn(&mut Row); 8] = [
            |row| row.tally.lost = 1,
            |row| row.tally.doubled = 1,
            |row| row.tally.misrouted = 1,
            |row| row.tally.hung = 1,
            |row| row.injected = 0,
            |row| row.tally.requests = 0,
            |row| row.tally.broken = 6,
            |row| row.complaints.push("the server ended badly".to_owned()),
        ];
        for (index, spoil) in spoil.iter().enumerate() {
            let mut row = good();
            spoil(&mut row);
            assert!(!row.passed(), "reason {index} is not seen");
        }
    }
}
