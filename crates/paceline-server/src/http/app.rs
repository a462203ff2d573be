//! What all connections of one HTTP listener share, and the call of a handler.

use std::{
    any::Any,
    panic::{catch_unwind, AssertUnwindSafe},
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    sync::Arc,
};

use super::{
    counted::{Counted, Running},
    gather::Store,
    memory::SharedMemory,
    response::Decided,
    router::{Route, Table},
    upgrade::Upgrade,
    Error, Request, Response,
};
use crate::websocket::Frames;

/// What all connections of one HTTP listener share.
pub(super) struct App {
    pub(super) table: Table,
    pub(super) settings: Settings,
    pub(super) store: Store,
    /// How many more handlers may pull their body at once.
    pulls: AtomicUsize,
}

/// Settings of an HTTP listener.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The longest body of a route that says nothing else.
    pub(super) body_limit: u64,
    pub(super) pulls: usize,
    /// How much memory long bodies share.
    pub(super) body_memory: usize,
    /// Where bodies go that find no memory.
    pub(super) spill_folder: PathBuf,
}

impl App {
    pub(super) fn new(table: Table, settings: Settings) -> Self {
        Self {
            table,
            pulls: AtomicUsize::new(settings.pulls),
            store: Store {
                memory: Arc::new(SharedMemory::new(settings.body_memory)),
                folder: settings.spill_folder.clone(),
            },
            settings,
        }
    }

    /// Calls the handler of a route, and the hooks before it. A panic becomes an answer.
    pub(super) fn call(&self, route: &Arc<Route>, request: &mut Request<'_>) -> Decided {
        route.counters.begin();
        let since = route.counters.is_timed().then(|| request.around.clock());
        let called = catch_unwind(AssertUnwindSafe(|| match self.table.call_before(request) {
            Ok(None) => route.call(request).0,
            Ok(Some(response)) => Decided::Now(response),
            Err(error) => Decided::Now(error.into_response()),
        }));
        if let Some(since) = since {
            let took = request.around.clock().saturating_sub(since);
            route.counters.took(took);
        }
        let decided = match called.unwrap_or_else(|panic| Decided::Now(panicked(&*panic))) {
            Decided::Now(response) => Decided::Now(self.finish(request, response)),
            Decided::Upgrade(upgrade) => self.finish_upgrade(request, upgrade, route),
            Decided::Push(push) => {
                let running = Running::new(route);
                return Decided::Push(Box::new(Counted { push, running }));
            }
        };
        route.counters.end(Some(decided.code()));
        decided
    }

    /// Calls the hooks behind a handler.
    pub(super) fn finish(&self, request: &mut Request<'_>, mut response: Response) -> Response {
        response.check();
        if self.table.has_after() {
            let called = catch_unwind(AssertUnwindSafe(|| {
                self.table.call_after(request, &mut response);
            }));
            if let Err(panic) = called {
                return panicked(&*panic);
            }
            response.check();
        }
        response
    }

    /// The same for an answer behind which the connection becomes something else, unless a hook
    /// decides otherwise.
    fn finish_upgrade(
        &self,
        request: &mut Request<'_>,
        mut upgrade: Box<Upgrade>,
        route: &Route,
    ) -> Decided {
        let status = upgrade.response.status;
        upgrade.kind = route.kind().cloned();
        if let Some(limit) = route.limit.and_then(|limit| usize::try_from(limit).ok()) {
            upgrade.frames = Frames::default().message_limit(limit);
        }
        upgrade.response = self.finish(request, upgrade.response);
        if upgrade.response.status == status {
            Decided::Upgrade(upgrade)
        } else {
            Decided::Now(upgrade.response)
        }
    }

    /// One of the permits to pull a body; `None` if all are taken.
    pub(super) fn permit(self: &Arc<Self>) -> Option<Permit> {
        // A count that orders nothing else.
        let taken = self
            .pulls
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        taken.ok().map(|_| Permit(Arc::clone(self)))
    }
}

/// The permit to pull a body.
pub(super) struct Permit(Arc<App>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.pulls.fetch_add(1, Ordering::Relaxed);
    }
}

/// The answer to a request whose handler has panicked: its state may be anything, so the
/// connection ends.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> Response {
    panic_error(panic).into_response().close()
}

fn panic_error(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let why = text.unwrap_or_else(|| "a panic without a text".to_owned());
    Error::new(500, "").because(format!("the handler panicked: {why}"))
}

/// What `call` returns; a panic becomes an error.
pub(super) fn caught<T>(call: impl FnOnce() -> super::Result<T>) -> super::Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(panic_error(&*panic)))
}
