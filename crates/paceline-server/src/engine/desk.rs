//! How a dialog comes back from a worker, whatever its connection does meanwhile.

use std::sync::Mutex;

use super::Turned;
use crate::{
    codec::Codec,
    session::{Ended, Session},
    sync::lock,
};

/// Where a worker puts a dialog, for its connection to take.
pub(crate) struct Desk<C: Codec, N: Session<C>>(Mutex<OnDesk<C, N>>);

enum OnDesk<C: Codec, N: Session<C>> {
    Nothing,
    Turned(Box<Turned<C, N>>),
    /// The connection is over, and this is why.
    Closed(Option<Ended>),
}

impl<C: Codec, N: Session<C>> Desk<C, N> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(OnDesk::Nothing))
    }

    /// What a worker has put there.
    pub(crate) fn take(&self) -> Option<Turned<C, N>> {
        let mut desk = lock(&self.0);
        match std::mem::replace(&mut *desk, OnDesk::Nothing) {
            OnDesk::Turned(turned) => Some(*turned),
            other => {
                *desk = other;
                None
            }
        }
    }

    /// Puts the dialog there, or ends it if the connection is over. Whether the connection has to
    /// be notified.
    pub(super) fn put(&self, mut turned: Turned<C, N>) -> bool {
        let ended = {
            let mut desk = lock(&self.0);
            match &mut *desk {
                OnDesk::Closed(ended) => ended.take(),
                _ => {
                    *desk = OnDesk::Turned(Box::new(turned));
                    return true;
                }
            }
        };
        if let Some(ended) = ended {
            turned.dialog.closed(&ended);
        }
        false
    }

    /// The connection is over: its session ends here, or with the worker that has it.
    pub(crate) fn close(&self, ended: Ended) {
        let turned = {
            let mut desk = lock(&self.0);
            let OnDesk::Turned(turned) = std::mem::replace(&mut *desk, OnDesk::Closed(None)) else {
                *desk = OnDesk::Closed(Some(ended));
                return;
            };
            turned
        };
        let mut dialog = turned.dialog;
        dialog.closed(&ended);
    }
}
