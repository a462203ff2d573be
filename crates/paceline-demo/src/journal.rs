//! What has happened, with its time: for the terminal and for the page.

use std::{
    collections::VecDeque,
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
}

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: Duration,
    pub(crate) text: String,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            entries: Mutex::new(VecDeque::new()),
        }
    }

    pub(crate) fn age(&self) -> Duration {
        self.start.elapsed()
    }

    /// Keeps an event, and prints it.
    pub(crate) fn add(&self, text: impl Into<String>) {
        let entry = Entry {
            at: self.age(),
            text: text.into(),
        };
        say!("{:>5.1} s  {}", entry.at.as_secs_f64(), entry.text);
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
