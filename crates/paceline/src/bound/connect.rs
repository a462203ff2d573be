//! Making connections: the first one, and others after a loss.
//!
//! Several threads may find the connection lost at the same time. One of them makes the new one, and the others wait for
//! that: they share what came of it, a connection or an error.

use std::{
    io,
    sync::{Arc, PoisonError},
};

use super::{line::Line, link::Link, protocol::Protocol};
use crate::sync::{lock, Condvar, Mutex};

/// Makes a connection.
pub(super) type Connector = Box<dyn Fn() -> io::Result<Arc<dyn Line>> + Send + Sync>;

/// Who makes a connection, if anybody does.
#[derive(Default)]
pub(super) struct Connecting {
    /// How to make one, if that is known.
    pub(super) connector: Option<Connector>,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// How many attempts have ended.
    ended: u64,
    is_busy: bool,
    /// Why the last one failed, if it did.
    failure: Option<(io::ErrorKind, String)>,
}

impl<P: Protocol> Link<P> {
    /// Makes sure that there is a connection, if one can be made.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn ensure_connected(&self) -> io::Result<()> {
        if !self.is_lost() {
            return Ok(());
        }
        let Some(connector) = &self.connecting.connector else {
            return Err(self.loss());
        };
        if self.is_closed() {
            return Err(self.loss());
        }
        let mut attempt = match self.connecting.begin_or_wait() {
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
    /// What whoever makes it said.
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
    /// Begins an attempt; or waits for the one that goes on, and tells what came of it.
    fn begin_or_wait(&self) -> Result<Attempt<'_>, io::Result<()>> {
        let mut state = lock(&self.state);
        if !state.is_busy {
            state.is_busy = true;
            return Ok(Attempt { connecting: self });
        }
        let before = state.ended;
        while state.ended == before {
            let woken = self.ended.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        Err(state.outcome())
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

/// One thread makes a connection. If it panics on the way, the others are told that it failed.
struct Attempt<'c> {
    connecting: &'c Connecting,
}

impl Attempt<'_> {
    /// What came of it, for all who wait.
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
        self.connecting.ended.notify_all();
    }
}
