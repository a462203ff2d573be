//! What has happened, with its time: for the terminal and for the page.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How many entries are kept.
const KEPT: usize = 100;

/// What has happened.
#[derive(Debug)]
pub(crate) struct Journal {
    start: Instant,
    entries: Mutex<VecDeque<Entry>>,
    output: Output,
}

/// Whether events are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Printed,
    Silent,
}

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: Duration,
    pub(crate) text: String,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5.1} s  {}", self.at.as_secs_f64(), self.text)
    }
}

impl Journal {
    /// A journal whose events are printed.
    pub(crate) fn new() -> Self {
        Self::with(Output::Printed)
    }

    /// A journal that is read when something has failed.
    pub(crate) fn silent() -> Self {
        Self::with(Output::Silent)
    }

    fn with(output: Output) -> Self {
        Self {
            start: Instant::now(),
            entries: Mutex::new(VecDeque::new()),
            output,
        }
    }

    pub(crate) fn age(&self) -> Duration {
        self.start.elapsed()
    }

    /// Keeps an event.
    pub(crate) fn add(&self, text: impl Into<String>) {
        let entry = Entry {
            at: self.age(),
            text: text.into(),
        };
        if self.output == Output::Printed {
            say!("{entry}");
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// The events, the newest first.
    pub(crate) fn newest(&self, count: usize) -> Vec<Entry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().rev().take(count).cloned().collect()
    }
}
