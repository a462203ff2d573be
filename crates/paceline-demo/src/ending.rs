//! When the system ends, and how long its end may take.
//!
//! ```text
//!   a signal, or the time is over --> an orderly end --> a report, status 0 or 1
//!                                          |--> a second signal: status 130
//!                                          +--> it takes longer than its limit: status 1
//! ```

use std::{
    io,
    path::Path,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::Duration,
};

use paceline::{Pool, Signal, TaskContext};

/// The status after a second signal, as a shell gives it for SIGINT.
const INTERRUPTED: i32 = 130;

/// The status of a demo that has failed.
const FAILED: i32 = 1;

/// When the system ends.
pub(crate) struct Ends {
    /// Keeps the thread that waits for signals.
    _pool: Pool,
    signals: Receiver<Signal>,
}

impl Ends {
    /// Waits for signals. After the second one, the files in `folder` stay.
    pub(crate) fn watch(folder: &Path) -> io::Result<Self> {
        let pool = Pool::builder().name("signals").threads(1).build()?;
        let (sender, signals) = mpsc::channel();
        let mut is_ending = false;
        let folder = folder.display().to_string();
        let on_signal = move |signal: Signal, _: &mut TaskContext<'_>| {
            if is_ending {
                say!("ended at once; the data and the logs are in {folder}");
                // The servers end with this process.
                std::process::exit(INTERRUPTED);
            }
            is_ending = true;
            // The receiver lives as long as the pool.
            let _ = sender.send(signal);
        };
        pool.sources()
            .signals([Signal::INT, Signal::TERM, Signal::HUP], on_signal)?;
        Ok(Self {
            _pool: pool,
            signals,
        })
    }

    /// Whether a signal has arrived within this time.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        !matches!(
            self.signals.recv_timeout(time),
            Err(RecvTimeoutError::Timeout)
        )
    }
}

/// An orderly end that may take so long. Dropping this says that it has ended.
#[must_use]
#[derive(Debug)]
pub(crate) struct Limit {
    _has_ended: Sender<()>,
}

impl Limit {
    /// Begins the end. If it takes longer than `within`, `give_up` is called and the process ends.
    pub(crate) fn begin(
        within: Duration,
        folder: &Path,
        give_up: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (has_ended, end) = mpsc::channel::<()>();
        let folder = folder.display().to_string();
        thread::spawn(move || {
            if end.recv_timeout(within) == Err(RecvTimeoutError::Timeout) {
                give_up();
                let seconds = within.as_secs_f64();
                say!("CHECKS DO NOT AGREE: the end has taken longer than {seconds} s");
                say!("the data and the logs are in {folder}");
                std::process::exit(FAILED);
            }
        });
        Self {
            _has_ended: has_ended,
        }
    }
}
