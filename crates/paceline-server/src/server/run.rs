//! A server as a program: from the first line to the report, with signals.

use std::{
    fmt,
    io::{self, Write},
    sync::{
        mpsc::{self, Sender},
        Arc,
    },
};

use paceline::{Pool, Signal, TaskContext};

use super::Server;

/// Serves until SIGINT or SIGTERM, drains, and prints a report.
pub(super) fn run(
    server: &Server,
    begun: impl FnOnce(&Server) -> io::Result<()>,
) -> io::Result<()> {
    let (ends, ended) = mpsc::channel();
    // Signals have a thread of their own: each thread of the server may be in a session.
    let signals = Pool::builder().threads(1).name("signals").build()?;
    catch_signals(&signals, server, ends)?;
    begun(server)?;
    notify_systemd("READY=1");
    // The sender lives as long as the pool of the signals.
    let _ = ended.recv();
    notify_systemd("STOPPING=1");
    print("draining; a second signal ends the server at once");
    print(server.drain(server.shared.drain_time));
    Ok(())
}

/// Prints a line to standard error. If that fails, for example because the process that read it has
/// ended, the server goes on without.
fn print(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The first signal ends the wait of `run`, the second one the drain.
fn catch_signals(signals: &Pool, server: &Server, ends: Sender<Signal>) -> io::Result<()> {
    let gate = Arc::clone(&server.shared.gate);
    let mut is_first = true;
    let end = move |signal: Signal, _: &mut TaskContext<'_>| {
        if is_first {
            is_first = false;
            // `run` waits for the first one.
            let _ = ends.send(signal);
        } else {
            gate.force();
        }
    };
    signals
        .sources()
        .signals([Signal::INT, Signal::TERM], end)?;
    #[cfg(feature = "_tls")]
    reload_on_hangup(signals, server)?;
    Ok(())
}

#[cfg(feature = "_tls")]
fn reload_on_hangup(signals: &Pool, server: &Server) -> io::Result<()> {
    let certificates = server.shared.certificates.clone();
    if certificates.is_empty() {
        return Ok(());
    }
    let reload = move |_: Signal, _: &mut TaskContext<'_>| {
        for tls in &certificates {
            match tls.reload() {
                Ok(()) => print("certificates read anew"),
                Err(error) => print(format_args!("the old certificates stay: {error}")),
            }
        }
    };
    signals.sources().signals([Signal::HUP], reload)?;
    Ok(())
}

impl Server {
    /// Prints where it listens.
    pub(super) fn announce(&self) {
        for listening in &self.shared.listening {
            match listening.place() {
                place if place == listening.service.name => {
                    print(format_args!("listening on {place}"));
                }
                place => {
                    let name = &listening.service.name;
                    print(format_args!("listening on {place} ({name})"));
                }
            }
        }
        if let Some(address) = self.metrics_addr() {
            print(format_args!("metrics on http://{address}/metrics"));
        }
        if let Some(page) = self.shared.page.get() {
            print(format_args!("page on {}", page.url()));
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
        print(format_args!("notify systemd ({state}): {error}"));
    }
}

#[cfg(not(feature = "systemd"))]
fn notify_systemd(_: &str) {}
