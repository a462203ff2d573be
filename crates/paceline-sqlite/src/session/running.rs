//! Cancels: the present activity of each session, and the keys of all sessions.

use std::{
    collections::HashMap,
    io,
    sync::{
        atomic::{AtomicI32, Ordering},
        Arc, Mutex, MutexGuard, PoisonError,
    },
};

use paceline::Handle;
use paceline_pg_wire::startup::CancelKey;

use crate::store::{link::Stopper, random};

/// The present activity of a session.
///
/// `cancel` holds the lock while it stops a statement, and the session takes the lock at the start
/// and the end of each statement. So a cancel never hits the next session on the same connection.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    /// A statement runs on a connection.
    Statement(Arc<Stopper>),
    /// The session waits for a connection.
    Parked(Handle),
    /// A cancel has ended the wait.
    Cancelled,
}

impl Running {
    pub(crate) fn start(&self, stopper: &Arc<Stopper>) {
        *self.lock() = State::Statement(Arc::clone(stopper));
    }

    pub(crate) fn park(&self, handle: Handle) {
        *self.lock() = State::Parked(handle);
    }

    /// The statement, or the wait, is over: a later cancel must not find it.
    pub(crate) fn end(&self) {
        *self.lock() = State::Idle;
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(*self.lock(), State::Cancelled)
    }

    fn cancel(&self) {
        let mut state = self.lock();
        match &*state {
            State::Statement(stopper) => stopper.stop(),
            State::Parked(handle) => {
                let handle = handle.clone();
                *state = State::Cancelled;
                drop(state);
                // An error means that the session is closed: there is nothing to cancel.
                let _ = handle.notify();
            }
            State::Idle | State::Cancelled => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The secret and the activity of each session, by its process number.
type Sessions = HashMap<i32, ([u8; 4], Arc<Running>)>;

/// The keys of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    sessions: Mutex<Sessions>,
    last: AtomicI32,
}

/// The key of one session. Dropping it makes the key invalid.
#[derive(Debug)]
pub(crate) struct Key {
    keys: Arc<Keys>,
    pub(crate) process: i32,
    pub(crate) secret: [u8; 4],
}

impl Keys {
    /// A key for a session.
    pub(crate) fn issue(self: &Arc<Self>, running: &Arc<Running>) -> io::Result<Key> {
        let bytes = random()?;
        let secret = [bytes[0], bytes[1], bytes[2], bytes[3]];
        let mut sessions = self.lock();
        let process = loop {
            let number = self.last.fetch_add(1, Ordering::Relaxed) & i32::MAX;
            if number != 0 && !sessions.contains_key(&number) {
                break number;
            }
        };
        sessions.insert(process, (secret, Arc::clone(running)));
        Ok(Key {
            keys: Arc::clone(self),
            process,
            secret,
        })
    }

    /// Cancels the statement or the wait of this key's session. A wrong key does nothing.
    pub(crate) fn cancel(&self, key: CancelKey<'_>) {
        let session = self.lock().get(&key.process).cloned();
        let Some((secret, running)) = session else {
            return;
        };
        // Compares every byte, so that the time does not show where the secrets differ.
        let differs = secret.len() != key.secret.len()
            || secret
                .iter()
                .zip(key.secret)
                .fold(0, |sum, (a, b)| sum | (a ^ b))
                != 0;
        if !differs {
            running.cancel();
        }
    }

    /// How many sessions there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.keys.lock().remove(&self.process);
    }
}
