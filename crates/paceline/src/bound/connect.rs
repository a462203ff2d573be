//! Making connections: the first one, and others after a loss.
//!
//! Several threads may find the connection lost at the same time. One of them makes the new one,
//! and the others wait for that: they share what came of it, a connection or an error.

use std::{io, mem, sync::Arc};

use super::{
    deadline::Patience, line::Line, link::Link, pooled::pool_is_closed, protocol::Protocol,
};
use crate::sync::{lock, Clock, Mutex, Parker};

/// Makes a connection.
pub(super) type Connector = Box<dyn Fn() -> io::Result<Arc<dyn Line>> + Send + Sync>;

/// The thread that makes a connection, if there is one.
#[derive(Default)]
pub(super) struct Connecting {
    /// How to make one, if that is known.
    pub(super) connector: Option<Connector>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many attempts have ended.
    ended: u64,
    is_busy: bool,
    /// Why the last one failed, if it did.
    failure: Option<(io::ErrorKind, String)>,
    /// Where threads sleep until the attempt that goes on has ended.
    waiting: Vec<Arc<Parker>>,
}

/// A thread that may have to wait until another one has made the connection.
#[derive(Clone, Copy)]
pub(super) struct Waiter<'w> {
    /// Where it sleeps. A thread that cancels its wait posts there.
    pub(super) parker: &'w Arc<Parker>,
    pub(super) patience: Patience<'w>,
}

impl<P: Protocol> Link<P> {
    /// Makes sure that there is a connection, if one can be made.
    ///
    /// # Errors
    /// There is none. `TimedOut`: another thread makes one, and this thread's time is over.
    pub(super) fn ensure_connected(&self, patience: Patience<'_>) -> io::Result<()> {
        if !self.is_lost() {
            return Ok(());
        }
        let parker = &Arc::new(Parker::new());
        self.connect_again(Waiter { parker, patience })
    }

    /// The same, after a loss.
    #[cold]
    pub(super) fn connect_again(&self, waiter: Waiter<'_>) -> io::Result<()> {
        let Some(connector) = &self.connecting.connector else {
            return Err(self.loss());
        };
        if self.is_closed() {
            return Err(self.loss());
        }
        let mut attempt = match self.connecting.begin_or_wait(&self.clock, waiter) {
            Ok(attempt) => attempt,
            Err(outcome) => return outcome,
        };
        if !self.is_lost() {
            return attempt.end(Ok(()));
        }
        let outcome = connector().and_then(|line| self.begin(line).map_err(|_| self.loss()));
        if outcome.is_ok() {
            self.calls.counters.reconnects.add(1);
        }
        attempt.end(outcome)
    }

    /// Makes the first connection.
    ///
    /// # Errors
    /// The outcome, from the thread that made the connection.
    pub(super) fn connect_first(&self) -> io::Result<()> {
        match &self.connecting.connector {
            Some(connector) => self.begin(connector()?).map_err(|_| self.loss()),
            None => Err(self.loss()),
        }
    }

    /// Takes this connection, after a loss.
    ///
    /// # Errors
    /// There is one, or one is being made, or it is closed for good.
    pub(super) fn reconnect(&self, line: Arc<dyn Line>) -> Result<(), Arc<dyn Line>> {
        let Ok(mut attempt) = self.connecting.try_begin() else {
            return Err(line);
        };
        let begun = self.begin(line);
        match &begun {
            Ok(()) => drop(attempt.end(Ok(()))),
            Err(_) => drop(attempt.end(Err(self.loss()))),
        }
        begun
    }
}

impl Connecting {
    /// Begins an attempt. `Err`: what came of the attempt that goes on, or why this thread waits no
    /// longer for it.
    fn begin_or_wait(
        &self,
        clock: &Clock,
        waiter: Waiter<'_>,
    ) -> Result<Attempt<'_>, io::Result<()>> {
        let mut state = lock(&self.state);
        if !state.is_busy {
            state.is_busy = true;
            return Ok(Attempt { connecting: self });
        }
        state.waiting.push(Arc::clone(waiter.parker));
        let before = state.ended;
        drop(state);
        let outcome = self.wait(before, clock, waiter);
        let mut state = lock(&self.state);
        state.waiting.retain(|it| !Arc::ptr_eq(it, waiter.parker));
        Err(outcome)
    }

    /// Waits until more than `before` attempts have ended.
    fn wait(&self, before: u64, clock: &Clock, waiter: Waiter<'_>) -> io::Result<()> {
        let Waiter { parker, patience } = waiter;
        loop {
            // First the message, then the state: the thread that ends an attempt posts after it
            // changed the state.
            parker.take();
            let state = lock(&self.state);
            if state.ended != before {
                return state.outcome();
            }
            drop(state);
            if patience.is_called_off() {
                return Err(pool_is_closed());
            }
            if patience.is_over(clock) {
                let text = "connect: time is over, and another thread still tries";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            clock.sleep(parker, patience.deadline());
        }
    }

    fn try_begin(&self) -> Result<Attempt<'_>, ()> {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.is_busy, true) {
            return Err(());
        }
        Ok(Attempt { connecting: self })
    }
}

impl State {
    fn outcome(&self) -> io::Result<()> {
        match &self.failure {
            None => Ok(()),
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
        }
    }
}

/// One thread makes a connection. If it panics on the way, the waiting threads see a failed
/// attempt.
struct Attempt<'c> {
    connecting: &'c Connecting,
}

impl Attempt<'_> {
    /// Publishes the outcome to all waiting threads.
    fn end(&mut self, outcome: io::Result<()>) -> io::Result<()> {
        let failure = outcome.as_ref().err();
        let failure = failure.map(|error| (error.kind(), error.to_string()));
        lock(&self.connecting.state).failure = failure;
        outcome
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.connecting.state);
        state.ended += 1;
        state.is_busy = false;
        if std::thread::panicking() {
            let text = "connect: what makes the connection panicked".to_owned();
            state.failure = Some((io::ErrorKind::Other, text));
        }
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        for parker in waiting {
            parker.post(1);
            parker.wake();
        }
    }
}
