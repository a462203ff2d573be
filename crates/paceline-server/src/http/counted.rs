//! The counters of routes: each request counts once when its handler is called, and once when it is
//! answered or its client is gone.

use std::sync::Arc;

use paceline::Pace;

use super::{app::App, response::Push, router::Route, Response, Result};
use crate::routes::{RouteReport, Routes};

/// A request that is counted as answered when this is dropped.
pub(super) struct Running {
    route: Arc<Route>,
    /// `None`: its client is gone.
    status: Option<u16>,
}

impl Running {
    /// One whose beginning is counted.
    pub(super) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            status: None,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.route.counters.end(self.status);
    }
}

/// A `Push` that is counted.
pub(super) struct Counted {
    pub(super) push: Box<dyn Push>,
    pub(super) running: Running,
}

impl Push for Counted {
    fn piece(&mut self, bytes: &[u8]) -> Result<()> {
        // A panic leaves it as it is.
        self.running.status = Some(500);
        let taken = self.push.piece(bytes);
        self.running.status = taken.as_ref().err().map(super::Error::status);
        taken
    }

    fn end(self: Box<Self>) -> Result<Response> {
        let Self { push, mut running } = *self;
        running.status = Some(500);
        let ended = push.end();
        let status = ended
            .as_ref()
            .map_or_else(super::Error::status, Response::code);
        running.status = Some(status);
        ended
    }
}

impl Routes for App {
    fn reports(&self) -> Vec<RouteReport> {
        let all = self.table.all().map(|route| report(route));
        all.filter(|report| report.requests > 0).collect()
    }

    fn name(&self, number: u32) -> Option<String> {
        let mut all = self.table.all();
        let route = all.find(|route| route.number == number)?;
        Some(route.name.clone())
    }

    fn set_timed(&self, is_timed: bool) {
        let all = self.table.all();
        all.for_each(|route| route.counters.set_timed(is_timed));
    }
}

fn report(route: &Route) -> RouteReport {
    let pace = match route.kind().map(|kind| kind.pace()) {
        Some(Pace::Computing) => "computing",
        Some(Pace::Blocking) => "blocking",
        _ => "short",
    };
    route.counters.report(&route.name, pace)
}
