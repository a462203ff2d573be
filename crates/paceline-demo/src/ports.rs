//! Ports of this computer.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
};

/// A port that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Found {
    pub(crate) port: u16,
    /// The wished port, if another program has it.
    pub(crate) taken: Option<u16>,
}

impl Found {
    /// Prints a line if this is not the wished port: there another program answers.
    pub(crate) fn announce(self, purpose: &str) -> u16 {
        if let Some(taken) = self.taken {
            let port = self.port;
            say!("port {taken} is in use by another program: {purpose} has port {port} instead");
        }
        self.port
    }
}

/// A port that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// This one, or an error.
    Exactly(u16),
    /// This one, or the next that is free.
    From(u16),
    /// Any.
    Any,
}

impl Wish {
    /// The first port of several that will do.
    fn first(self) -> Option<u16> {
        match self {
            Self::From(first) => Some(first),
            Self::Exactly(_) | Self::Any => None,
        }
    }
}

/// How many ports behind the wished one are tried.
const TRIED: u16 = 100;

/// A free port, announced if it is not the wished one. Another program may take it before its user
/// listens there; then that one fails.
pub(crate) fn find(wish: Wish, purpose: &str) -> io::Result<u16> {
    search(wish, purpose).map(|found| found.announce(purpose))
}

fn search(wish: Wish, purpose: &str) -> io::Result<Found> {
    let result = match wish {
        Wish::Any => free(0),
        Wish::Exactly(port) => free(port),
        Wish::From(first) => {
            let ports = first..=first.saturating_add(TRIED);
            let found = ports.map(free).find(Result::is_ok);
            found.unwrap_or_else(|| free(first))
        }
    };
    let found = |port| Found {
        port,
        taken: wish.first().filter(|first| *first != port),
    };
    result.map(found).map_err(|error| {
        let port = match wish {
            Wish::Exactly(port) | Wish::From(port) => format!("port {port}"),
            Wish::Any => "a port".to_owned(),
        };
        io::Error::new(error.kind(), format!("{port} for {purpose}: {error}"))
    })
}

fn free(port: u16) -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_port_is_an_error_or_is_passed_over() {
        let busy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = busy.local_addr().expect("its number").port();
        let error = find(Wish::Exactly(port), "a test")
            .expect_err("it is busy")
            .to_string();
        assert!(
            error.starts_with(&format!("port {port} for a test: ")),
            "{error}"
        );
        let found = search(Wish::From(port), "a test").expect("another one");
        assert!(
            found.port != port && found.taken == Some(port),
            "{found:?}: the user must hear of it"
        );
        let any = search(Wish::Any, "a test").expect("a port");
        assert_eq!(any.taken, None);
    }
}
