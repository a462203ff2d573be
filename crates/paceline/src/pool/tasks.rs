//! Work without a descriptor: posts and timers.

use std::{fmt, io, time::Duration};

use super::Pool;
use crate::dispatch::{Handle, HandleId, Rejected, TaskContext, TickContext};

impl Pool {
    /// Has `work` done by one of the pool's threads, as soon as one is free, between its other
    /// events.
    ///
    /// How many posts may wait is bounded ([`Builder::post_limit`](super::Builder::post_limit)). A
    /// drain does what was posted before it; what is left at its deadline is in the shutdown
    /// report. The panic hook gets a panic of `work`.
    ///
    /// # Errors
    /// Gives `work` back: `QuotaExceeded` if as many wait as may, or if every slot is taken;
    /// `BrokenPipe` if the pool is shutting down.
    ///
    /// ```
    /// # use paceline::Pool;
    /// let pool = Pool::builder().threads(2).build()?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// if let Err(rejected) = pool.post(move |_cx| sender.send("done").unwrap()) {
    ///     drop(rejected.value); // too many wait: the work is ours again
    /// }
    /// assert_eq!(receiver.recv().unwrap(), "done");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn post<F>(&self, work: F) -> Result<(), Rejected<F>>
    where
        F: FnOnce(&mut TaskContext<'_>) + Send + 'static,
    {
        self.hub().registry.post(work)
    }

    /// Has `work` done after `span`, by whichever thread leads then. Time is measured in
    /// milliseconds, rounded up; late ones are counted. A timer that was not due when the pool was
    /// shut down is dropped, and counted in the report.
    ///
    /// # Errors
    /// Gives `work` back: `BrokenPipe` if the pool is shutting down, `QuotaExceeded` if every slot
    /// is taken.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use paceline::Pool;
    /// let pool = Pool::builder().threads(2).build()?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// pool.after(Duration::from_millis(5), move |_cx| sender.send("now").unwrap())?;
    /// assert_eq!(receiver.recv().unwrap(), "now");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn after<F>(&self, span: Duration, work: F) -> Result<Timer, Rejected<F>>
    where
        F: FnOnce(&mut TaskContext<'_>) + Send + 'static,
    {
        self.hub().registry.after(span, work).map(Timer)
    }

    /// Has `work` done every `period`, for the first time after one, until it stops itself
    /// ([`TickContext::stop`]) or is cancelled.
    ///
    /// It is called by one thread at a time. Ticks that pass while it runs, or while no thread is
    /// free, are not made up for: they are counted, and the next call gets the count
    /// ([`TickContext::missed`]). The row of ticks does not drift.
    ///
    /// A panic ends it, or not: [`Builder::panics`](super::Builder::panics). The panic hook gets it
    /// either way.
    ///
    /// # Errors
    /// Gives `work` back: `InvalidInput` if `period` is zero, otherwise as [`after`](Self::after).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use paceline::Pool;
    /// let pool = Pool::builder().threads(2).build()?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let mut ticks = 0;
    /// pool.every(Duration::from_millis(2), move |cx| {
    ///     ticks += 1;
    ///     if ticks == 3 {
    ///         cx.stop();
    ///     }
    ///     sender.send(ticks).unwrap();
    /// })?;
    /// assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2, 3]);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn every<F>(&self, period: Duration, work: F) -> Result<Timer, Rejected<F>>
    where
        F: FnMut(&mut TickContext<'_>) + Send + 'static,
    {
        self.hub().registry.every(period, work).map(Timer)
    }
}

/// A timer in a pool. Dropping it changes nothing; see [`cancel_on_drop`](Self::cancel_on_drop).
#[derive(Clone, PartialEq, Eq)]
pub struct Timer(Handle);

impl Timer {
    /// Ends the timer: it is not called after this returns (a call that is being made right now is
    /// made). What it would have called is dropped: here, or by the thread that has it.
    ///
    /// # Errors
    /// `NotFound` if it is over already: it was called for the last time, or cancelled.
    pub fn cancel(&self) -> io::Result<()> {
        self.0.close()
    }

    /// As [`cancel`](Self::cancel), and returns when a call that is being made is over. A timer
    /// whose time has come is ended by a thread that leads: so inside a handler on the only thread
    /// of a pool this may wait for ever, as [`Handle::close_and_wait`] may.
    ///
    /// # Errors
    /// As [`cancel`](Self::cancel); `Deadlock` from the timer's own call.
    pub fn cancel_and_wait(&self) -> io::Result<()> {
        self.0.close_and_wait()
    }

    /// A guard that cancels the timer when it is dropped.
    #[must_use = "dropping it cancels the timer"]
    pub fn cancel_on_drop(self) -> TimerGuard {
        TimerGuard(self)
    }

    /// The name of this timer in reports.
    #[must_use]
    pub fn id(&self) -> HandleId {
        self.0.id()
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timer").field(&self.id()).finish()
    }
}

/// Cancels its timer when it is dropped.
#[derive(Debug)]
pub struct TimerGuard(Timer);

impl Drop for TimerGuard {
    fn drop(&mut self) {
        // If it is over, it need not be cancelled.
        let _ = self.0.cancel();
    }
}
