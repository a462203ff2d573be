//! Shows the progress of a run.

use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

use super::{Run, LONGEST_PAUSE};
use crate::options::Progress;

/// Writes the progress to the error output until the clients have ended.
pub(super) fn show(run: &Run<'_>, name: &str, start: Instant) {
    let (every, ending) = match run.options.progress {
        Progress::Silent => return,
        Progress::Terminal => (Duration::from_millis(500), "\r"),
        Progress::Lines => (Duration::from_secs(5), "\n"),
    };
    let mut next = start + every;
    while !run.has_ended() {
        thread::sleep(LONGEST_PAUSE);
        if Instant::now() >= next {
            next += every;
            write(&line(run, name, start), ending);
        }
    }
    if run.options.progress == Progress::Terminal {
        write(&line(run, name, start), "\n");
    }
}

fn line(run: &Run<'_>, name: &str, start: Instant) -> String {
    let statistics = run.statistics();
    format!(
        "{name:<7}{:>4} s {:>9} committed {:>7} rolled back {:>5} unknown",
        start.elapsed().as_secs(),
        statistics.committed,
        statistics.undone,
        statistics.unknown
    )
}

/// Progress that can't be written is no reason to end.
fn write(line: &str, ending: &str) {
    let _ = write!(std::io::stderr().lock(), "{line}{ending}");
}
