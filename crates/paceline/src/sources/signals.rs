//! Signals of the process as a source of events.
//!
//! The system calls this crate's signal handler in the middle of whatever a thread is doing. It
//! does three things there: it notes the signal as a bit, in the **place** of every registration
//! that wants it; rings the bell of that place; and puts `errno` back. The bell is a socket, whose
//! other end is a handle of the pool like any other. A thread that visits it silences the bell
//! first and then reads the bits, so none is left behind; and calls the application's handler, as
//! an ordinary event.
//!
//! Why not `signalfd`? It reports only signals that are **blocked** in every thread of the process:
//! those that exist already, those of other libraries, and, since the mask is inherited, of every
//! child that does not take care. One thread that does not block SIGTERM ends the process instead.
//! A library can't promise that for its host.

mod system;

use std::{
    fmt,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use self::system::Place;
use crate::dispatch::{Closed, Context, EventHandler, ItemHandler, Next};

/// A signal of a Unix system.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(u8);

impl Signal {
    /// The terminal is gone; by custom: read the configuration again.
    pub const HUP: Self = Self(libc::SIGHUP as u8);
    /// Interrupted, from the keyboard.
    pub const INT: Self = Self(libc::SIGINT as u8);
    /// Quit, from the keyboard.
    pub const QUIT: Self = Self(libc::SIGQUIT as u8);
    /// For the application.
    pub const USR1: Self = Self(libc::SIGUSR1 as u8);
    /// For the application.
    pub const USR2: Self = Self(libc::SIGUSR2 as u8);
    /// A write to a pipe without a reader.
    pub const PIPE: Self = Self(libc::SIGPIPE as u8);
    /// A timer of the process.
    pub const ALRM: Self = Self(libc::SIGALRM as u8);
    /// Please end.
    pub const TERM: Self = Self(libc::SIGTERM as u8);
    /// A child has ended.
    pub const CHLD: Self = Self(libc::SIGCHLD as u8);
    /// Goes on after a stop.
    pub const CONT: Self = Self(libc::SIGCONT as u8);
    /// The terminal has another size.
    pub const WINCH: Self = Self(libc::SIGWINCH as u8);

    /// The signal of this number; `None` if there is none.
    #[must_use]
    pub const fn from_number(number: i32) -> Option<Self> {
        match number {
            1..=64 => Some(Self(number as u8)),
            _ => None,
        }
    }

    /// Its number on this system.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0 as i32
    }

    fn bit(self) -> u64 {
        1 << (self.0 - 1)
    }

    /// The signals of a set of bits, from the lowest number to the highest.
    fn of_bits(bits: u64) -> impl Iterator<Item = Self> {
        (1..=64).map(Self).filter(move |it| bits & it.bit() != 0)
    }

    fn name(self) -> Option<&'static str> {
        let names = [
            (libc::SIGHUP, "SIGHUP"),
            (libc::SIGINT, "SIGINT"),
            (libc::SIGQUIT, "SIGQUIT"),
            (libc::SIGILL, "SIGILL"),
            (libc::SIGTRAP, "SIGTRAP"),
            (libc::SIGABRT, "SIGABRT"),
            (libc::SIGBUS, "SIGBUS"),
            (libc::SIGFPE, "SIGFPE"),
            (libc::SIGKILL, "SIGKILL"),
            (libc::SIGUSR1, "SIGUSR1"),
            (libc::SIGSEGV, "SIGSEGV"),
            (libc::SIGUSR2, "SIGUSR2"),
            (libc::SIGPIPE, "SIGPIPE"),
            (libc::SIGALRM, "SIGALRM"),
            (libc::SIGTERM, "SIGTERM"),
            (libc::SIGCHLD, "SIGCHLD"),
            (libc::SIGCONT, "SIGCONT"),
            (libc::SIGSTOP, "SIGSTOP"),
            (libc::SIGWINCH, "SIGWINCH"),
        ];
        let named = names
            .into_iter()
            .find(|(number, _)| *number == self.number());
        named.map(|(_, name)| name)
    }

    /// Why it can't be had, if it can't.
    fn objection(self) -> Option<&'static str> {
        match self.number() {
            libc::SIGKILL | libc::SIGSTOP => Some("the system lets nobody catch it"),
            libc::SIGSEGV
            | libc::SIGBUS
            | libc::SIGFPE
            | libc::SIGILL
            | libc::SIGTRAP
            | libc::SIGABRT
            | libc::SIGSYS => Some("it tells of a fault of the program, which would go on with it"),
            _ => None,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Signals that are noted for one registration, for as long as this lives.
pub(crate) struct SignalSource {
    place: Place,
}

impl SignalSource {
    /// Begins to note these signals.
    pub(crate) fn new(signals: impl IntoIterator<Item = Signal>) -> io::Result<Self> {
        let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let mut bits = 0;
        for signal in signals {
            if let Some(why) = signal.objection() {
                return invalid(format!("signals: {signal} can't be an event: {why}"));
            }
            bits |= signal.bit();
        }
        if bits == 0 {
            return invalid("signals: none is named".to_owned());
        }
        let place = Place::take(bits).map_err(|(signal, error)| {
            let of = signal.map_or_else(String::new, |signal| format!(" {signal}"));
            io::Error::new(error.kind(), format!("signals:{of} {error}"))
        })?;
        Ok(Self { place })
    }
}

impl AsFd for SignalSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.place.bell().as_fd()
    }
}

impl Read for &SignalSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.place.bell().read(buffer)
    }
}

/// Calls a handler for signals that have arrived.
pub(crate) struct Herald<H>(pub(crate) H);

impl<H: ItemHandler<Signal>> EventHandler<SignalSource> for Herald<H> {
    /// The bell is silenced before the look: a signal that comes later rings again. Each bit is
    /// taken before its call, so a panic takes one signal along and no other.
    fn ready(&mut self, cx: &mut Context<'_, SignalSource>) -> io::Result<Next> {
        let silent = loop {
            match cx.read(&mut [0; 64]) {
                // No bell is ever closed.
                Ok(0) => break io::ErrorKind::UnexpectedEof.into(),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        if silent.kind() == io::ErrorKind::WouldBlock {
            for signal in Signal::of_bits(cx.source().place.noted()) {
                cx.source().place.forget(signal);
                self.0.handle(signal, &mut cx.as_task());
            }
        }
        Err(silent)
    }

    /// A signal that has waited long is reported all the same.
    fn expired(&mut self, cx: &mut Context<'_, SignalSource>, _: Duration) -> io::Result<Next> {
        self.ready(cx)
    }

    fn closed(&mut self, why: Closed) {
        self.0.closed(why);
    }
}
