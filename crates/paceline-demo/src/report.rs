//! What the demo prints when it ends.

use crate::{
    load::{Load, Measured},
    system::System,
    tiers::front,
};

impl System {
    /// The last reading, and the report: whether all checks agree.
    pub(crate) fn conclude(&self) -> bool {
        match &self.load {
            Some(load) => self.conclude_load(load),
            None => self.conclude_without_load(),
        }
    }

    fn conclude_without_load(&self) -> bool {
        let seconds = self.journal.age().as_secs();
        say!("\nThe system has served for {seconds} s.");
        match front::transactions(&self.console()) {
            Some(counts) => report_counts(&counts),
            None => say!("  the front-end's console does not answer"),
        }
        self.report_servers();
        say!("the demo had no clients of its own, so it has checked nothing");
        true
    }

    fn conclude_load(&self, load: &Load) -> bool {
        let last = load.read_all(&self.journal);
        let (measured, seen) = (load.totals(), load.seen());
        let done = seen.counts.unknown_done;
        report_measured(&measured, done);
        self.report_servers();
        for wrong in &seen.wrong {
            say!("  WRONG: {wrong}");
        }
        let agrees = match last {
            Ok(()) => seen.agrees() && measured.committed > 0,
            Err(error) => {
                say!("  the last reading has failed: {error}");
                false
            }
        };
        let (sum, sold) = (seen.total, seen.seats_sold);
        say!("  {}; balances {sum}, seats sold {sold}", verdict(load));
        let result = if agrees {
            "all checks agree"
        } else {
            "CHECKS DO NOT AGREE"
        };
        say!("{result}");
        agrees
    }

    fn report_servers(&self) {
        for server in &self.tiers.servers {
            let view = server.view();
            if view.restarts > 0 {
                let longest = view.longest_recovery.as_millis();
                let (name, restarts) = (view.name, view.restarts);
                say!("  {name} was started again {restarts} times, {longest} ms at most");
            }
        }
    }
}

/// How many transactions the front-end has passed on, by database.
fn report_counts(counts: &[(String, i64)]) {
    let total: i64 = counts.iter().map(|(_, count)| count).sum();
    say!("The front-end has passed on {total} transactions:");
    for (database, count) in counts {
        say!("  {database:<15} {count:>8}");
    }
}

fn report_measured(measured: &Measured, unknown_done: u64) {
    let (committed, undone, unknown) = (measured.committed, measured.undone, measured.unknown);
    say!(
        "\n{committed} transactions committed, {undone} rolled back, {unknown} unknown \
         ({unknown_done} of them done)"
    );
    for (kind, count) in &measured.of_kind {
        say!("  {kind:<15} {count:>8}");
    }
    let reasons = measured.reasons.iter();
    let reasons: Vec<_> = reasons.map(|(why, n)| format!("{why} ({n})")).collect();
    if !reasons.is_empty() {
        say!("  not committed: {}", reasons.join(", "));
    }
    say!("  longest transaction {} ms", measured.longest.as_millis());
}

/// What the readings have shown, in a few words.
pub(crate) fn verdict(load: &Load) -> String {
    let seen = load.seen();
    let counts = &seen.counts;
    let totals = if seen.wrong.is_empty() {
        "totals agree"
    } else {
        "TOTALS DIFFER"
    };
    if let Some(failure) = &seen.unread {
        return format!("no reading: {failure}");
    }
    format!(
        "{totals}, {} lost, {} doubled, {} unknown ({} done)",
        counts.lost, counts.doubled, counts.unknown, counts.unknown_done
    )
}
