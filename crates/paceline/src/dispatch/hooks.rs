//! What an application wants to be told about handles, whatever their handlers do.

use std::{fmt, sync::Arc};

use super::{
    handle::HandleId,
    handler::{Closed, Panics},
};
use crate::observe::Observers;

/// Is told the message of a panic.
pub(crate) type PanicHook = Box<dyn Fn(HandleId, &str) + Send + Sync>;

/// Is told the end of a registration.
pub(crate) type ClosedHook = Box<dyn Fn(HandleId, &Closed) + Send + Sync>;

/// The hooks of a pool, and what becomes of handles whose handlers panic.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) panics: Panics,
    pub(crate) on_panic: Option<PanicHook>,
    pub(crate) on_closed: Option<ClosedHook>,
    pub(crate) observers: Arc<Observers>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("panics", &self.panics)
            .field("on_panic", &self.on_panic.is_some())
            .field("on_closed", &self.on_closed.is_some())
            .finish()
    }
}
