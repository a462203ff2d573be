//! How the program ends: by signals, by the console, or because nothing is left to wait for.

use std::{
    io,
    net::TcpListener,
    sync::{Condvar, Mutex},
    time::Duration,
};

use super::{
    sockets::UnixPath,
    state::{locked, Front},
};
use crate::{
    console::Counters,
    log::Level,
    pools::{Commanded, OperationId, Phase, Scope, Shutdown},
    stats::Averages,
};
use paceline::{Handle, Signal};

/// What the main thread waits for, and what it closes.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The process ends now.
    has_ended: bool,
    /// The operation of the book after which it ends.
    ends_after: Option<OperationId>,
    /// When a shutdown that waits gives up.
    deadline: Option<Duration>,
    /// When the last period of the averages ended, and the averages of all databases.
    period_end: Duration,
    averages: Averages,
    /// Each with a second descriptor of its socket, to change its options.
    tcp: Vec<(Handle, TcpListener)>,
    unix: Vec<(Handle, UnixPath)>,
}

impl Lifecycle {
    /// The main thread waits here until the program ends.
    pub(crate) fn wait(&self) {
        let mut state = locked(&self.state);
        while !state.has_ended {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// The program ends now.
    pub(crate) fn end(&self) {
        locked(&self.state).has_ended = true;
        self.changed.notify_all();
    }

    pub(crate) fn keep_tcp(&self, listener: Handle, socket: TcpListener) {
        locked(&self.state).tcp.push((listener, socket));
    }

    /// Has the kernel keep connections back until their first bytes, or not.
    ///
    /// # Errors
    /// The system does not know that option.
    pub(crate) fn defer_accept(&self, within: Duration) -> io::Result<()> {
        let state = locked(&self.state);
        let mut sockets = state.tcp.iter();
        sockets.try_for_each(|(_, socket)| paceline::defer_accept(socket, within))
    }

    pub(crate) fn keep_unix(&self, listener: Handle, path: UnixPath) {
        locked(&self.state).unix.push((listener, path));
    }

    /// New clients can't come by TCP any more.
    fn close_tcp(&self) {
        let listeners = std::mem::take(&mut locked(&self.state).tcp);
        for (listener, socket) in listeners {
            // The socket ends with its last descriptor.
            drop(socket);
            // It may have failed before.
            let _ = listener.close();
        }
    }

    /// The paths of Unix sockets are removed.
    pub(crate) fn close_all(&self) {
        self.close_tcp();
        let listeners = std::mem::take(&mut locked(&self.state).unix);
        for (listener, path) in listeners {
            let _ = listener.close();
            drop(path);
        }
    }

    /// Whether the process ends with this operation.
    pub(crate) fn ends_with(&self, operation: OperationId) -> bool {
        locked(&self.state).ends_after == Some(operation)
    }

    /// Whether a period of the averages is over: then its length.
    pub(crate) fn period_over(&self, now: Duration, period: Duration) -> Option<Duration> {
        let mut state = locked(&self.state);
        let length = now.saturating_sub(state.period_end);
        if length < period {
            return None;
        }
        state.period_end = now;
        Some(length)
    }

    /// The averages of everything over the period that has just ended.
    pub(crate) fn average(&self, totals: &Counters, length: Duration) -> Counters {
        let mut state = locked(&self.state);
        state.averages.end_period(totals, length);
        *state.averages.last()
    }

    /// Whether the time of a shutdown is over.
    pub(crate) fn is_overdue(&self, now: Duration) -> bool {
        let deadline = locked(&self.state).deadline;
        deadline.is_some_and(|deadline| now >= deadline)
    }
}

impl Front {
    /// A signal of the process.
    pub(crate) fn on_signal(&self, signal: Signal) {
        match signal {
            Signal::HUP => {
                self.note(Level::Log, format_args!("got SIGHUP, re-reading config"));
                // What is wrong was logged.
                let _ = self.reload();
            }
            Signal::TERM => self.end_politely(
                "SIGTERM",
                "waiting for all clients disconnect",
                Shutdown::WaitForClients,
            ),
            Signal::INT => self.end_politely(
                "SIGINT",
                "waiting for all servers connections to be released",
                Shutdown::WaitForServers,
            ),
            Signal::QUIT => {
                self.note(Level::Log, format_args!("got SIGQUIT, fast exit"));
                self.lifecycle.end();
            }
            Signal::USR1 => self.on_pause(),
            Signal::USR2 => self.on_resume(),
            _ => {}
        }
    }

    fn end_politely(&self, signal: &str, what: &str, form: Shutdown) {
        if self.is_shutting_down() {
            let text = format_args!("got {signal} while shutting down, fast exit");
            self.note(Level::Log, text);
            return self.lifecycle.end();
        }
        let text = format_args!("got {signal}, shutting down, {what}");
        self.note(Level::Log, text);
        self.begin_shutdown(form, None);
    }

    fn on_pause(&self) {
        if self.book().phase() != Phase::Active {
            let text = format_args!("got SIGUSR1, but already paused/suspended");
            return self.note(Level::Log, text);
        }
        self.note(
            Level::Log,
            format_args!("got SIGUSR1, pausing all activity"),
        );
        let (_commanded, orders) = self.with_book(|book, _, orders| book.pause(Scope::All, orders));
        self.carry_out(orders);
    }

    fn on_resume(&self) {
        let phase = self.book().phase();
        let text = match phase {
            Phase::Active => "got SIGUSR2, but not paused/suspended",
            Phase::Paused => "got SIGUSR2, continuing from PAUSE",
            Phase::Suspended => "got SIGUSR2, continuing from SUSPEND",
            _ => "got SIGUSR2 while shutting down, ignoring",
        };
        self.note(Level::Log, format_args!("{text}"));
        if matches!(phase, Phase::Paused | Phase::Suspended) {
            let (_commanded, orders) =
                self.with_book(|book, now, orders| book.resume(Scope::All, now, orders));
            self.carry_out(orders);
        }
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        matches!(
            self.book().phase(),
            Phase::WaitForServers | Phase::WaitForClients | Phase::WaitForTransactions
        )
    }

    /// Begins to end: new clients can't come by TCP, and the Unix socket serves the console alone.
    pub(crate) fn begin_shutdown(&self, form: Shutdown, limit: Option<Duration>) {
        self.lifecycle.close_tcp();
        let (commanded, orders) = self.with_book(|book, _, orders| book.shut_down(form, orders));
        let deadline = limit.map(|limit| self.now() + limit);
        match commanded {
            Commanded::Pending(operation) => {
                let mut state = locked(&self.lifecycle.state);
                state.ends_after = Some(operation);
                state.deadline = deadline;
            }
            _ => self.lifecycle.end(),
        }
        self.carry_out(orders);
    }
}
