//! Takes a server out of service gracefully: no transaction is broken off, and no outcome is unknown.
//!
//! ```text
//!   back-end    PAUSE its databases --> their transactions have ended --> SIGTERM --> RESUME
//!   front-end   SIGINT: it ends when its clients' transactions have ended
//! ```
//!
//! Like a server that was killed, it is started again. The standby of a pair writes from then on.

use std::time::Instant;

use paceline_check::client::Target;
use rustix::process::Signal;

use crate::{
    journal::Journal,
    tiers::{front, Server, Tier},
};

/// Takes a server out of service; it is started again like one that was killed. `console` is the
/// front-end's.
pub(crate) fn drain(server: &Server, console: &Target, journal: &Journal) -> Result<(), String> {
    let name = &server.plan.name;
    journal.add(format!("drain: {name}"));
    let drained = match server.plan.tier {
        Tier::FrontEnd => ended(server, Signal::INT),
        Tier::BackEnd => drain_back_end(server, console, journal),
    };
    if let Err(why) = &drained {
        journal.add(format!("{name} was not drained: {why}"));
    }
    drained
}

fn drain_back_end(server: &Server, console: &Target, journal: &Journal) -> Result<(), String> {
    let start = Instant::now();
    let databases = &server.plan.databases;
    let paused = command_all(console, "PAUSE", databases);
    if paused.is_ok() {
        let millis = start.elapsed().as_millis();
        let text = "all transactions have ended, and clients wait at the front-end";
        journal.add(format!("{text}, after {millis} ms"));
    }
    let ended = paused.and_then(|()| ended(server, Signal::TERM));
    // Whatever has happened, the clients go on.
    let resumed = command_all(console, "RESUME", databases);
    let drained = ended.and(resumed);
    if drained.is_ok() {
        let (name, millis) = (&server.plan.name, start.elapsed().as_millis());
        journal.add(format!(
            "{name} is drained: its clients have waited {millis} ms"
        ));
    }
    drained
}

fn ended(server: &Server, signal: Signal) -> Result<(), String> {
    server
        .end_process(signal)
        .map_err(|error| error.to_string())
}

/// Gives a command for each of these databases; the first failure.
fn command_all(console: &Target, command: &str, databases: &[String]) -> Result<(), String> {
    let results = databases.iter().map(|database| {
        let done = front::command(console, &format!("{command} {database}"));
        done.map_err(|error| format!("{command} {database}: {error}"))
    });
    results.collect::<Vec<_>>().into_iter().collect()
}
