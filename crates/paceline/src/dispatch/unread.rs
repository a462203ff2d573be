//! Handlers that leave their input unread: how many calls in a row did, and when that is worth a
//! report.
//!
//! A handler that returns without reading is called again, for its input still waits. One that
//! never reads keeps a thread busy and does nothing. Only reading through the context counts: the
//! pool does not see what a handler reads from the source itself.

use super::readiness_guard::Settled;

/// The calls of one handle's handler that left input unread, up to the last one.
#[derive(Debug, Default)]
pub(super) struct Row {
    calls: u32,
    is_reported: bool,
}

/// What the pool must do about such a call.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Nothing,
    /// Count it.
    Counts,
    /// Count it, and report the handle.
    Reports {
        calls: u32,
    },
}

impl Row {
    /// A call is over.
    pub(super) fn note(&mut self, settled: Settled) {
        self.calls = match settled {
            Settled::Plainly | Settled::Parted => 0,
            Settled::Unread => 1,
            Settled::UnreadAgain => self.calls.saturating_add(1),
        };
    }

    /// What is to be done about the last call, where `limit` calls in a row are too many. A handle
    /// is reported once.
    pub(super) fn judge(&mut self, limit: u32) -> Finding {
        if self.calls < limit {
            Finding::Nothing
        } else if self.is_reported {
            Finding::Counts
        } else {
            self.is_reported = true;
            Finding::Reports { calls: self.calls }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Calls count from the limit on, in a row, and only the first of all is reported.
    #[test]
    fn a_row_counts_from_the_limit_on() {
        let mut row = Row::default();
        let mut judged = |settled| {
            row.note(settled);
            row.judge(3)
        };
        assert_eq!(judged(Settled::Unread), Finding::Nothing);
        assert_eq!(judged(Settled::UnreadAgain), Finding::Nothing);
        assert_eq!(judged(Settled::UnreadAgain), Finding::Reports { calls: 3 });
        assert_eq!(judged(Settled::UnreadAgain), Finding::Counts);
        assert_eq!(judged(Settled::Unread), Finding::Nothing);
        assert_eq!(judged(Settled::UnreadAgain), Finding::Nothing);
        assert_eq!(judged(Settled::UnreadAgain), Finding::Counts);
        assert_eq!(judged(Settled::Plainly), Finding::Nothing);
    }
}
