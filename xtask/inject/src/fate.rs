//! What became of the faults, one by one and all together.

use super::row::{self, Row};
use super::service::Service;
use super::Trouble;
use xtask_common::verb::Verdict;

/// What became of one fault.
pub(super) struct Fate {
    /// The service that was put under it.
    pub(super) service: Service,
    /// Its name.
    pub(super) name: &'static str,
    /// What came of it.
    pub(super) outcome: Result<Row, Trouble>,
}

impl Fate {
    /// How it went, in a line.
    pub(super) fn told(&self) -> String {
        let told = match &self.outcome {
            Ok(row) if row.passed() => format!(
                "{} faults, {} requests [{:.1} s]",
                row.injected,
                row.tally.requests,
                row.time.as_secs_f64()
            ),
            Ok(row) => format!("FAILED: {}", row.wrongs().join(", ")),
            Err(trouble) => trouble.told(),
        };
        format!("{}, {}: {told}", self.service.name(), self.name)
    }

    /// A row of the table.
    pub(super) fn cells(&self) -> [String; 12] {
        match &self.outcome {
            Ok(row) => row.cells(),
            Err(trouble) => row::cells_without_figures(self.service, self.name, trouble.told()),
        }
    }

    /// Its figures, if there are any.
    fn row(&self) -> Option<&Row> {
        self.outcome.as_ref().ok()
    }

    /// Whether it could not be made.
    fn is_skipped(&self) -> bool {
        matches!(self.outcome, Err(Trouble::Skipped(_)))
    }
}

/// The closing line. Nothing at all that passed, or a service with fewer faults than there must be, is a failure.
pub(super) fn count(fates: &[Fate], must_inject: u64) -> Verdict {
    let rows = || fates.iter().filter_map(Fate::row);
    let passed = rows().filter(|row| row.passed()).count();
    let skipped = fates.iter().filter(|fate| fate.is_skipped()).count();
    let failed = fates.len() - passed - skipped;
    let injected: u64 = rows().map(|row| row.injected).sum();
    let requests: u64 = rows().map(|row| row.tally.requests).sum();
    let sites = |lasts: usize| -> u64 { rows().map(|row| row.sites[lasts]).sum() };
    let summary = format!(
        "{injected} faults under {requests} requests, at {} sites once and {} lastingly; \
         rows: {passed} passed, {failed} failed, {skipped} skipped",
        sites(0),
        sites(1),
    );
    let with = |service| -> u64 {
        let its = rows().filter(|row| row.service == service);
        its.map(|row| row.injected).sum()
    };
    let spared = Service::ALL.into_iter().find(|service| {
        let is_there = rows().any(|row| row.service == *service);
        is_there && with(*service) < must_inject
    });
    match spared {
        Some(service) if failed == 0 => Verdict::failed(format!(
            "{summary}; at least {must_inject} faults were asked for, with {} there were {}",
            service.name(),
            with(service)
        )),
        _ if skipped == fates.len() => Verdict::skipped(summary),
        _ => Verdict::from_failures(failed, summary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask_common::verb::Outcome;

    /// A fault with `echo` that ended so.
    fn fate(outcome: Result<Row, Trouble>) -> Fate {
        Fate {
            service: Service::Echo,
            name: "fault",
            outcome,
        }
    }

    #[test]
    fn a_failed_row_fails_the_run_and_a_skipped_one_is_counted() {
        let skipped = || fate(Err(Trouble::Skipped("no strace".to_owned())));
        let failed = fate(Err(Trouble::Failed("no server".to_owned())));
        assert_eq!(count(&[skipped()], 0).outcome, Outcome::Skipped);
        let verdict = count(&[skipped(), failed], 0);
        assert_eq!(verdict.outcome, Outcome::Failed);
        assert!(verdict.summary.contains("1 failed, 1 skipped"));
    }

    #[test]
    fn a_service_that_was_spared_fails_a_full_run() {
        let fates = [fate(Ok(row::tests::good()))];
        assert_eq!(count(&fates, 5).outcome, Outcome::Passed);
        let verdict = count(&fates, 6);
        assert_eq!(verdict.outcome, Outcome::Failed);
        assert!(verdict.summary.ends_with("with echo there were 5"));
    }
}
