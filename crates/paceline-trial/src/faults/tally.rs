//! What a row of the table counts.

use std::{collections::BTreeMap, time::Duration};

use paceline_check::{ledger::Audit, Finding, Outcome, Verdict};

/// How many texts of findings are kept.
const MOST_TEXTS: usize = 5;

/// What a row of the table counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// How often the fault struck.
    pub(super) strikes: u64,
    /// Transactions that were acknowledged.
    pub(super) acknowledged: u64,
    /// Acknowledged ones that are not there.
    pub(super) lost: u64,
    /// Those that are there twice.
    pub(super) doubled: u64,
    /// Replies and rows that belong to another client or request.
    pub(super) misrouted: u64,
    /// Other broken promises: a torn transaction, one that was rolled back and is there, a circle.
    pub(super) wrong: u64,
    /// Transactions of unknown outcome.
    pub(super) unknown: u64,
    /// Clients that waited without end, and connections that no client has and that are not free.
    pub(super) hung: u64,
    /// The longest time from a fault to the next answer.
    pub(super) recovery: Duration,
    /// Errors by SQLSTATE.
    pub(super) reasons: BTreeMap<String, u64>,
    /// What was found.
    pub(super) texts: Vec<String>,
}

impl Tally {
    /// Whether every promise was kept.
    pub(super) fn is_good(&self) -> bool {
        [
            self.lost,
            self.doubled,
            self.misrouted,
            self.wrong,
            self.hung,
        ] == [0; 5]
    }

    pub(super) fn note(&mut self, text: String) {
        if self.texts.len() < MOST_TEXTS {
            self.texts.push(text);
        }
    }

    /// Something that must not be, if there is any.
    pub(super) fn fail_if(&mut self, text: Option<String>) {
        if let Some(text) = text {
            self.wrong += 1;
            self.note(text);
        }
    }

    pub(super) fn count_reason(&mut self, label: &str) {
        *self.reasons.entry(label.to_owned()).or_default() += 1;
    }

    /// Adds what another part of the row has counted.
    pub(super) fn add(&mut self, other: Self) {
        self.strikes += other.strikes;
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.misrouted += other.misrouted;
        self.wrong += other.wrong;
        self.unknown += other.unknown;
        self.hung += other.hung;
        self.recovery = self.recovery.max(other.recovery);
        for (label, count) in other.reasons {
            *self.reasons.entry(label).or_default() += count;
        }
        other.texts.into_iter().for_each(|text| self.note(text));
    }

    /// Adds the audit of the clients that the faults have met.
    pub(super) fn add_audit(&mut self, audit: &Audit) {
        self.acknowledged += audit.acknowledged;
        self.unknown += audit.unknown;
        self.add_findings(&audit.findings);
    }

    /// Adds the result of a workload.
    pub(super) fn add_verdict(&mut self, verdict: &Verdict) {
        self.acknowledged += verdict.committed;
        self.unknown += verdict.unknown;
        self.add_findings(verdict.findings());
        if let Outcome::Unjudged(why) = &verdict.outcome {
            self.fail_if(Some(format!("{}: {why}", verdict.workload)));
        }
        let labels = verdict.reasons.iter().chain(&verdict.connections_refused);
        for (label, count) in labels {
            *self.reasons.entry(label.clone()).or_default() += count;
            if label.contains("time-out") {
                self.hung += count;
            }
        }
    }

    fn add_findings(&mut self, findings: &[Finding]) {
        for finding in findings {
            *match finding.rule {
                "lost" => &mut self.lost,
                "doubled" => &mut self.doubled,
                "foreign" | "own entries" => &mut self.misrouted,
                _ => &mut self.wrong,
            } += 1;
            self.note(finding.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use paceline_check::ledger::{audit, Entry, Fate, Parts};

    use super::*;

    /// A row must fail for each kind of broken promise.
    #[test]
    fn each_broken_promise_has_its_column() {
        let entry = |parts, fate| Entry { parts, fate };
        let attempted = [
            ((1, 1), entry(1, Fate::Acknowledged)),
            ((1, 2), entry(1, Fate::Acknowledged)),
            ((1, 3), entry(2, Fate::Unknown)),
            ((1, 4), entry(1, Fate::Undone)),
        ];
        let parts = |counts: &[(u32, u64)]| counts.iter().copied().collect::<Parts>();
        let present = [
            ((1, 2), parts(&[(0, 2)])),
            ((1, 3), parts(&[(1, 1)])),
            ((1, 4), parts(&[(0, 1)])),
            ((9, 9), parts(&[(0, 1)])),
        ];
        let audit = audit(&attempted.into(), &present.into());
        let mut tally = Tally::default();
        assert!(tally.is_good());
        tally.add_audit(&audit);
        let counts = [tally.lost, tally.doubled, tally.misrouted, tally.wrong];
        assert_eq!(counts, [1, 1, 1, 2], "{:?}", tally.texts);
        assert_eq!((tally.acknowledged, tally.unknown), (2, 1));
        assert!(!tally.is_good());
    }
}
