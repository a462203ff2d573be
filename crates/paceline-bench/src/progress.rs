//! How far it is, and how long it will take.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for so many measurements, with the time left, which is known well: every one takes the same time.
pub(crate) fn bar(count: u64, seconds: f64, overhead: Duration) -> ProgressBar {
    let each = Duration::from_secs_f64(seconds) + overhead;
    bar_of(count, count, seconds, each.mul_f64(count as f64))
}

/// A bar of so many steps, for so many measurements, which take so long in all.
pub(crate) fn bar_of(steps: u64, count: u64, seconds: f64, all: Duration) -> ProgressBar {
    let bar = plain_bar(steps);
    let minutes = all.as_secs_f64() / 60.0;
    let line = format!("{count} measurements of {seconds} s: about {minutes:.1} minutes");
    say(&bar, &line);
    bar
}

/// A bar of so many steps, of which it is not known beforehand how long they take.
pub(crate) fn plain_bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left: {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

/// A line above the bar; without a terminal there is no bar, and the line is printed alone.
pub(crate) fn say(bar: &ProgressBar, line: &str) {
    if bar.is_hidden() {
        eprintln!("{line}")
    } else {
        bar.println(line)
    }
}
