//! What a run has shown: for people, and for programs.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde_json::{json, Value};

use crate::{
    client::Failure,
    finding::{Finding, Judgement},
    options::Options,
};

/// What a run has shown.
#[derive(Clone, Debug)]
#[must_use]
pub struct Report {
    /// The system, as it was named.
    pub target: String,
    /// The level that was checked.
    pub expected: &'static str,
    /// The seed of the clients' choices.
    pub seed: u64,
    /// The result of each workload.
    pub verdicts: Vec<Verdict>,
}

/// The result of one workload.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Its name.
    pub workload: &'static str,
    /// How many transactions were acknowledged.
    pub committed: u64,
    /// How many were rolled back.
    pub undone: u64,
    /// How many have an outcome that their client does not know.
    pub unknown: u64,
    /// Why transactions were rolled back or became unknown: SQLSTATE, and how often.
    pub reasons: BTreeMap<String, u64>,
    /// Why sessions did not begin.
    pub connections_refused: BTreeMap<String, u64>,
    /// How often the fault command has run, and how often it has failed.
    pub faults: (u64, u64),
    /// The longest time without any acknowledgement.
    pub longest_gap: Duration,
    /// The time that half of the committed transactions took at most.
    pub median: Duration,
    /// The time that 99 of 100 of them took at most.
    pub p99: Duration,
    /// How long the clients were at work.
    pub elapsed: Duration,
    /// What was concluded.
    pub outcome: Outcome,
}

/// What was concluded.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The final read was judged: this is wrong, and this was counted.
    Judged(Judgement),
    /// There was no final read, so nothing is known, for this reason.
    Unjudged(String),
}

/// How many findings of one rule are written out.
const MOST_OF_A_RULE: usize = 3;

impl Outcome {
    pub(crate) fn judged(judgement: Judgement) -> Self {
        Self::Judged(judgement)
    }

    pub(crate) fn unjudged(failure: &Failure, limit: Duration) -> Self {
        let seconds = limit.as_secs();
        Self::Unjudged(format!("no final read within {seconds} s: {failure}"))
    }

    fn findings(&self) -> &[Finding] {
        match self {
            Self::Judged(judgement) => &judgement.findings,
            Self::Unjudged(_) => &[],
        }
    }
}

impl Verdict {
    /// Whether the final read was judged, and nothing is wrong.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        matches!(&self.outcome, Outcome::Judged(judgement) if judgement.findings.is_empty())
    }

    /// What is wrong.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        self.outcome.findings()
    }

    /// A count of this name, such as `of_them_done`.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<u64> {
        let Outcome::Judged(judgement) = &self.outcome else {
            return None;
        };
        let mut facts = judgement.facts.iter();
        facts.find_map(|(given, count)| (*given == name).then_some(*count))
    }

    fn json(&self) -> Value {
        let (facts, findings, error) = match &self.outcome {
            Outcome::Judged(judgement) => (&judgement.facts[..], &judgement.findings[..], None),
            Outcome::Unjudged(why) => (&[][..], &[][..], Some(why)),
        };
        let facts: BTreeMap<_, _> = facts.iter().copied().collect();
        let findings: Vec<_> = findings
            .iter()
            .map(|finding| json!({"rule": finding.rule, "text": finding.text}))
            .collect();
        json!({
            "workload": self.workload,
            "passed": self.has_passed(),
            "committed": self.committed,
            "rolled_back": self.undone,
            "unknown": self.unknown,
            "reasons": self.reasons,
            "connections_refused": self.connections_refused,
            "faults": self.faults.0,
            "faults_failed": self.faults.1,
            "longest_gap_ms": millis(self.longest_gap),
            "median_ms": millis(self.median),
            "p99_ms": millis(self.p99),
            "seconds": self.elapsed.as_secs_f64(),
            "facts": facts,
            "findings": findings,
            "error": error,
        })
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

impl Report {
    pub(crate) fn new(options: &Options, verdicts: Vec<Verdict>) -> Self {
        Self {
            target: options.target.to_string(),
            expected: options.expected().name(),
            seed: options.seed,
            verdicts,
        }
    }

    /// Whether each workload was judged, and nothing is wrong.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        self.verdicts.iter().all(Verdict::has_passed)
    }

    /// The report for programs.
    #[must_use]
    pub fn json(&self) -> String {
        let verdicts: Vec<_> = self.verdicts.iter().map(Verdict::json).collect();
        let report = json!({
            "target": self.target,
            "expected": self.expected,
            "seed": self.seed,
            "passed": self.has_passed(),
            "workloads": verdicts,
        });
        format!("{report:#}")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, expected: {}, seed {}",
            self.target, self.expected, self.seed
        )?;
        self.verdicts
            .iter()
            .try_for_each(|verdict| write!(f, "\n{verdict}"))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = match &self.outcome {
            Outcome::Judged(judgement) if judgement.findings.is_empty() => "passed",
            Outcome::Judged(_) => "FAILED",
            Outcome::Unjudged(_) => "NOT JUDGED",
        };
        writeln!(f, "{}: {result}", self.workload)?;
        writeln!(
            f,
            "  {} committed, {} rolled back, {} unknown in {:.1} s ({:.0} per second)",
            self.committed,
            self.undone,
            self.unknown,
            self.elapsed.as_secs_f64(),
            per_second(self.committed, self.elapsed),
        )?;
        writeln!(
            f,
            "  median {:.1} ms, 99 % {:.1} ms, longest time without a commit {:.0} ms",
            millis(self.median),
            millis(self.p99),
            millis(self.longest_gap)
        )?;
        write_counts(f, "not committed", &self.reasons)?;
        write_counts(f, "connections refused", &self.connections_refused)?;
        if self.faults.0 > 0 {
            let (made, failed) = self.faults;
            writeln!(
                f,
                "  fault command run {made} times, {failed} of them failed"
            )?;
        }
        self.outcome.fmt(f)
    }
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    // No run commits 2^53 transactions.
    #[allow(clippy::cast_precision_loss)]
    let count = count as f64;
    count / elapsed.as_secs_f64().max(0.001)
}

fn write_counts(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    counts: &BTreeMap<String, u64>,
) -> fmt::Result {
    if counts.is_empty() {
        return Ok(());
    }
    let counts: Vec<_> = counts
        .iter()
        .map(|(label, count)| format!("{label} ({count})"))
        .collect();
    writeln!(f, "  {name}: {}", counts.join(", "))
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let judgement = match self {
            Self::Judged(judgement) => judgement,
            Self::Unjudged(why) => return writeln!(f, "  {why}"),
        };
        let facts: Vec<_> = judgement
            .facts
            .iter()
            .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
            .collect();
        writeln!(f, "  {}", facts.join(", "))?;
        let mut rules: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for finding in &judgement.findings {
            rules.entry(finding.rule).or_default().push(finding);
        }
        for (rule, findings) in rules {
            writeln!(f, "  {rule}: {} found", findings.len())?;
            for finding in findings.iter().take(MOST_OF_A_RULE) {
                writeln!(f, "    {}", finding.text)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcome: Outcome) -> Report {
        let verdict = Verdict {
            workload: "bank",
            committed: 10,
            undone: 2,
            unknown: 1,
            reasons: BTreeMap::from([("40001".to_owned(), 2)]),
            connections_refused: BTreeMap::new(),
            faults: (0, 0),
            longest_gap: Duration::from_millis(12),
            median: Duration::from_millis(1),
            p99: Duration::from_millis(3),
            elapsed: Duration::from_secs(2),
            outcome,
        };
        Report::new(&Options::default(), vec![verdict])
    }

    fn judged(findings: Vec<Finding>) -> Report {
        let facts = vec![("reads_checked", 4)];
        report(Outcome::Judged(Judgement { findings, facts }))
    }

    #[test]
    fn a_report_says_what_was_counted() {
        let report = judged(vec![]);
        assert!(report.has_passed());
        let text = report.to_string();
        for part in [
            "bank: passed",
            "10 committed",
            "40001 (2)",
            "reads checked 4",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn a_finding_fails_the_report() {
        let findings = (0..9).map(|n| Finding::new("lost", format!("entry {n}")));
        let report = judged(findings.collect());
        assert!(!report.has_passed());
        let text = report.to_string();
        assert!(
            text.contains("FAILED") && text.contains("lost: 9 found"),
            "{text}"
        );
        assert!(
            text.contains("entry 2") && !text.contains("entry 3"),
            "{text}"
        );
    }

    /// A system that does not return from its fault has not passed.
    #[test]
    fn without_a_final_read_the_report_fails() {
        let failure = Failure::Protocol("no server".to_owned());
        let report = report(Outcome::unjudged(&failure, Duration::from_secs(5)));
        assert!(!report.has_passed());
        assert!(report
            .to_string()
            .contains("no final read within 5 s: no server"));
    }

    #[test]
    fn programs_read_the_same() {
        let text = judged(vec![Finding::new("lost", "an \"entry\"")]).json();
        let json: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["passed"], false);
        let bank = &json["workloads"][0];
        assert_eq!(bank["findings"][0]["text"], "an \"entry\"");
        assert_eq!(
            (&bank["facts"]["reads_checked"], &bank["unknown"]),
            (&json!(4), &json!(1))
        );
    }
}
