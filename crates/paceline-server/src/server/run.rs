//! A server as a program: from the first line to the report, with signals.

use std::{
    io,
    sync::mpsc::{self, Sender},
};

use paceline::{Signal, TaskContext};

use super::Server;

/// Serves until SIGINT or SIGTERM, drains, and prints a report.
pub(super) fn run(
    server: &Server,
    begun: impl FnOnce(&Server) -> io::Result<()>,
) -> io::Result<()> {
    let (ends, ended) = mpsc::channel();
    catch_signals(server, ends)?;
    begun(server)?;
    notify_systemd("READY=1");
    // The sender lives as long as the pool.
    let _ = ended.recv();
    notify_systemd("STOPPING=1");
    eprintln!("draining; a second signal ends the server at once");
    eprintln!("{}", server.drain(server.shared.drain_time));
    Ok(())
}

/// The first signal ends the wait of `run`, the second one the drain.
fn catch_signals(server: &Server, ends: Sender<Signal>) -> io::Result<()> {
    let gate = std::sync::Arc::clone(&server.shared.gate);
    let mut is_first = true;
    let end = move |signal: Signal, _: &mut TaskContext<'_>| {
        if is_first {
            is_first = false;
            // `run` waits for the first one.
            let _ = ends.send(signal);
        } else {
            gate.open(|passed| passed.is_forced = true);
        }
    };
    let sources = server.pool().sources();
    sources.signals([Signal::INT, Signal::TERM], end)?;
    #[cfg(feature = "_tls")]
    reload_on_hangup(server)?;
    Ok(())
}

#[cfg(feature = "_tls")]
fn reload_on_hangup(server: &Server) -> io::Result<()> {
    let certificates = server.shared.certificates.clone();
    if certificates.is_empty() {
        return Ok(());
    }
    let reload = move |_: Signal, _: &mut TaskContext<'_>| {
        for tls in &certificates {
            match tls.reload() {
                Ok(()) => eprintln!("certificates read anew"),
                Err(error) => eprintln!("the old certificates stay: {error}"),
            }
        }
    };
    server.pool().sources().signals([Signal::HUP], reload)?;
    Ok(())
}

impl Server {
    /// Prints where it listens.
    pub(super) fn announce(&self) {
        for listening in &self.shared.listening {
            match listening.place() {
                place if place == listening.service.name => eprintln!("listening on {place}"),
                place => eprintln!("listening on {place} ({})", listening.service.name),
            }
        }
        if let Some(address) = self.metrics_addr() {
            eprintln!("metrics on http://{address}/metrics");
        }
    }
}

/// Says something to systemd, if it has started this process as a service that notifies.
#[cfg(feature = "systemd")]
fn notify_systemd(state: &str) {
    use std::os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    };
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        eprintln!("notify systemd ({state}): {error}");
    }
}

#[cfg(not(feature = "systemd"))]
fn notify_systemd(_: &str) {}
