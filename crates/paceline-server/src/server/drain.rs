//! The end of a server: graceful, within a time, with a report.

use std::{
    fmt,
    sync::{atomic::Ordering, Arc},
    time::Duration,
};

use paceline::ShutdownReport;

use super::{Listening, Server, Shared};
use crate::{events, routes::RouteReport, service::Service, sync::lock};

/// How long the pool may take when nothing is left to wait for: only threads that are still in a
/// session use it up.
const LAST_TIME: Duration = Duration::from_millis(200);

/// What a server has done, and what was left undone at its end.
#[must_use]
#[derive(Debug)]
#[non_exhaustive]
pub struct DrainReport {
    /// Each listener and dialer.
    pub services: Vec<ServiceReport>,
    /// What the pools left undone, with their names.
    pub pools: Vec<(String, ShutdownReport)>,
    /// Threads of the half-sync engine that were still in a session.
    pub busy_workers: usize,
    /// How long the end took.
    pub took: Duration,
}

/// What a listener or dialer has done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceReport {
    /// Its name.
    pub name: String,
    /// How many connections it has served.
    pub served: u64,
    /// How many items their sessions have handled.
    pub items: u64,
    /// How many connections it has refused.
    pub refused: u64,
    /// How many were open when the end began.
    pub open_before: usize,
    /// How many of these were closed by force.
    pub cut: usize,
    /// What its routes have done, if it has any: those that got a request.
    pub routes: Vec<RouteReport>,
}

impl DrainReport {
    /// Whether every connection ended by itself, and the pools left nothing undone.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.busy_workers == 0
            && self.services.iter().all(|service| service.cut == 0)
            && self.pools.iter().all(|(_, report)| report.is_clean())
    }
}

impl fmt::Display for DrainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for service in &self.services {
            writeln!(f, "{service}")?;
        }
        for (name, report) in &self.pools {
            writeln!(f, "pool {name}: {report}")?;
        }
        if self.busy_workers > 0 {
            writeln!(f, "{} workers are still in a session", self.busy_workers)?;
        }
        write!(f, "the end took {:.3} s", self.took.as_secs_f64())
    }
}

impl fmt::Display for ServiceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} connections served, {} items, {} refused, {} open at the end, {} cut",
            self.name, self.served, self.items, self.refused, self.open_before, self.cut
        )?;
        let mut routes = self.routes.iter();
        routes.try_for_each(|route| write!(f, "\n  {route}"))
    }
}

impl Server {
    /// Ends the server gracefully, within `within`:
    ///
    /// 1. [`is_ready`](Self::is_ready) and `/readyz` say no.
    /// 2. After [`drain_delay`](super::ServerBuilder::drain_delay), the listeners close.
    /// 3. Connections close when they are between two items. One that has said nothing yet has five
    ///    seconds to begin.
    /// 4. At the deadline the rest are closed, and the report counts them. Sessions that are at work
    ///    then do not hold up the end, even if each thread of the server is in one.
    ///
    /// It may be called from any thread but those of the server. A second call, from another
    /// thread, waits for the first one and reports that nothing was left.
    pub fn drain(&self, within: Duration) -> DrainReport {
        self.shared.drain(within)
    }

    /// Ends a drain that runs in another thread, and those that begin later, at once.
    pub fn end_now(&self) {
        self.shared.gate.force();
    }
}

impl Shared {
    fn drain(&self, within: Duration) -> DrainReport {
        let clock = self.pools.main().clock();
        let since = clock.now();
        let _alone = lock(&self.drains);
        events::draining(within);
        self.is_ready.store(false, Ordering::Relaxed);
        self.wait_for_balancers();
        let open_before: Vec<_> = self.services.iter().map(|service| service.open()).collect();
        self.listening.iter().for_each(Listening::close);
        self.end_connections(within);
        let cut: Vec<_> = self.services.iter().map(|service| service.open()).collect();
        // What is open has had its time. Otherwise threads may take the rest of it to end.
        let is_empty = cut.iter().all(|open| *open == 0);
        let last = || match within.saturating_sub(clock.now().saturating_sub(since)) {
            rest if is_empty => rest.max(LAST_TIME),
            _ => LAST_TIME,
        };
        let busy_workers = self.end_workers(last());
        self.admin.iter().for_each(Listening::close);
        let pools = self.pools.shutdown(last());
        if let Some(page) = self.page.get() {
            page.end();
        }
        let counts = open_before.into_iter().zip(cut);
        let report = DrainReport {
            services: self
                .services
                .iter()
                .zip(counts)
                .map(|(service, (before, cut))| self.report(service, before, cut))
                .collect(),
            pools,
            busy_workers,
            took: clock.now().saturating_sub(since),
        };
        events::drained(&report);
        report
    }

    /// Goes on accepting for a while, so that load balancers can see that the server is not ready.
    fn wait_for_balancers(&self) {
        if !self.drain_delay.is_zero() {
            let clock = self.pools.main().clock();
            let until = clock.now().saturating_add(self.drain_delay);
            let _timer = self.notify_gate_after(self.drain_delay);
            self.gate.wait(&clock, until, || false);
        }
    }

    /// Asks all connections to end, and waits until they have, or the time is over.
    fn end_connections(&self, within: Duration) {
        let clock = self.pools.main().clock();
        let until = clock.now().saturating_add(within);
        let _timer = self.notify_gate_after(within);
        self.services.iter().for_each(|service| service.drain());
        self.gate.wait(&clock, until, || {
            self.services.iter().all(|service| service.open() == 0)
        });
    }

    /// Notifies the gate after `time` on the clock of the pool, for a drain on virtual time. On the
    /// system's clock the gate needs no timer.
    fn notify_gate_after(&self, time: Duration) -> Option<paceline::TimerGuard> {
        let gate = Arc::clone(&self.gate);
        let timer = self.pools.main().after(time, move |_| gate.notify());
        timer.ok().map(paceline::Timer::cancel_on_drop)
    }

    /// How many workers of the half-sync engine have not ended.
    fn end_workers(&self, within: Duration) -> usize {
        self.workers.as_ref().map_or(0, |workers| {
            workers.close();
            workers.wait(within)
        })
    }

    fn report(&self, service: &Arc<Service>, open_before: usize, cut: usize) -> ServiceReport {
        let counters = service.counters();
        ServiceReport {
            name: service.name.clone(),
            served: counters.opened.get(),
            items: counters.items.get(),
            refused: self.refused(service),
            open_before,
            cut,
            routes: service.route_reports(),
        }
    }
}
