//! The system's page: tiers, threads, waits, faults as they happen.

mod threads;

use std::{io, net::Ipv4Addr, sync::Arc, thread, time::Duration};

use paceline_server::{
    http::{Request, Response, Result, Router},
    Server,
};
use serde_json::{json, Value};

use crate::{
    drain::drain,
    report::verdict,
    system::System,
    tiers::{Fault, Role, State, View},
};

const DOCUMENT: &str = include_str!("page.html");

/// The header without which no fault is made: a page of another origin can't send it.
const HEADER: &str = "x-paceline";

/// How many events the page shows.
const EVENTS: usize = 30;

/// How long open requests may take at the end.
const TIME_TO_END: Duration = Duration::from_secs(1);

/// The page, which is served until it is dropped.
#[derive(Debug)]
pub(crate) struct Page {
    server: Option<Server>,
    address: String,
}

impl Page {
    /// Serves the page of this system on a port of this computer.
    pub(crate) fn start(system: &Arc<System>, port: u16) -> io::Result<Self> {
        let own = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
        let router = Router::new(Arc::clone(system))
            .get("/", |_, _| Response::html(DOCUMENT))
            .get("/state", |system, _| state(system))
            .post("/fault", fault)
            // A name of another computer may be made to lead here.
            .before(move |_, request| {
                let is_own = request
                    .host()
                    .is_some_and(|host| own.iter().any(|own| own == host));
                Ok((!is_own).then(|| Response::text("this host is not served\n").status(421)))
            });
        let server = Server::http((Ipv4Addr::LOCALHOST, port), router)
            .threads(2)
            .start()?;
        Ok(Self {
            server: Some(server),
            address: format!("127.0.0.1:{port}"),
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // Requests that are open are of a browser that asks again.
            let _ = server.drain(TIME_TO_END);
        }
    }
}

/// Makes the fault that the form names.
fn fault(system: &Arc<System>, request: &mut Request<'_>) -> Result<Response> {
    if request.header(HEADER).is_none() {
        return Ok(Response::text("only the page makes faults\n").status(403));
    }
    let form = request.form()?;
    let field = |name: &str| {
        let found = form.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    };
    let fault = field("fault").unwrap_or_default();
    let Some(server) = field("server").and_then(|name| system.tiers.named(name)) else {
        return Ok(Response::text("there is no such server\n").status(404));
    };
    if fault == "drain" {
        // It waits for the ends of transactions, and the page need not.
        let (system, server) = (Arc::clone(system), Arc::clone(server));
        thread::spawn(move || {
            // The journal has the reason of a failure.
            let _ = drain(&server, &system.console(), &system.journal);
        });
        return Ok(Response::empty(204));
    }
    match Fault::named(fault) {
        Some(fault) => {
            server.make(fault, &system.journal);
            Ok(Response::empty(204))
        }
        None => Ok(Response::text("there is no such fault\n").status(400)),
    }
}

fn state(system: &System) -> Result<Response> {
    let latest = system.latest().clone();
    let servers = system
        .tiers
        .servers
        .iter()
        .map(|server| of_server(&server.view()));
    let pools = latest.pools.unwrap_or_default().pools;
    let pools = pools.iter().map(|pool| {
        json!({
            "database": pool.database,
            "clients": pool.clients,
            "waiting": pool.waiting,
            "active": pool.servers_active,
            "idle": pool.servers_idle,
            "longest_wait_ms": pool.longest_wait / 1_000,
        })
    });
    let events = system.journal.newest(EVENTS).into_iter();
    let events = events.map(|event| json!({"at": event.at.as_secs_f64(), "text": event.text}));
    let state = json!({
        "age": system.journal.age().as_secs_f64(),
        "servers": servers.collect::<Vec<_>>(),
        "pools": pools.collect::<Vec<_>>(),
        "per_second": latest.pace.per_second,
        "p99_ms": millis(latest.pace.p99),
        "load": system.load.as_ref().map(|load| {
            let measured = load.totals();
            let seen = load.seen();
            json!({
                "committed": measured.committed,
                "undone": measured.undone,
                "unknown": measured.unknown,
                "unknown_done": seen.counts.unknown_done,
                "lost": seen.counts.lost,
                "doubled": seen.counts.doubled,
                "longest_ms": millis(measured.longest),
                "of_kind": measured.of_kind,
                "agrees": seen.agrees(),
                "verdict": verdict(load),
                "readings": seen.readings,
                "wrong": seen.wrong,
            })
        }),
        "events": events.collect::<Vec<_>>(),
    });
    Ok(Response::json(&state)?.header("cache-control", "no-store"))
}

fn of_server(view: &View) -> Value {
    let state = match view.state {
        State::Starting => "starting",
        State::Serving => "serving",
        State::Stopped => "stopped",
        State::Slow => "slow",
        State::Down => "down",
    };
    let role = view.role.map(|role| match role {
        Role::Writer => "writes",
        Role::Standby => "standby",
    });
    json!({
        "name": view.name,
        "tier": view.tier,
        "address": view.address,
        "page": view.page,
        "process": view.process,
        "state": state,
        "role": role,
        "restarts": view.restarts,
        "longest_recovery_ms": millis(view.longest_recovery),
        "threads": view.process.map(threads::of_process).unwrap_or_default(),
    })
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
