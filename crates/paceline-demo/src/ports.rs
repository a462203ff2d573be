//! Ports of this computer.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
};

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

/// How many ports behind the wished one are tried.
const TRIED: u16 = 100;

/// A free port. Another program may take it before its user listens there; then that one fails.
pub(crate) fn find(wish: Wish, purpose: &str) -> io::Result<u16> {
    let result = match wish {
        Wish::Any => free(0),
        Wish::Exactly(port) => free(port),
        Wish::From(first) => {
            let ports = first..=first.saturating_add(TRIED);
            let found = ports.map(free).find(Result::is_ok);
            found.unwrap_or_else(|| free(first))
        }
    };
    result.map_err(|error| {
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
        assert_ne!(find(Wish::From(port), "a test").expect("another one"), port);
    }
}
