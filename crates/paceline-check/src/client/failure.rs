//! How a request of a client fails.

use std::{fmt, io};

use paceline_pg_wire::{Malformed, Report};

/// An error that a server has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// ERROR, FATAL or PANIC.
    pub severity: String,
    /// The five characters of its SQLSTATE.
    pub code: String,
    /// Its text.
    pub message: String,
}

/// How a request fails.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The server has refused the request. The session continues.
    Refused(ServerError),
    /// The server has ended the session, and has sent the reason.
    Ended(ServerError),
    /// The connection broke, or no byte arrived in time.
    Lost {
        /// What the client attempted.
        attempt: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// The peer breaks the protocol, or wants what this client can't do.
    Protocol(String),
}

impl ServerError {
    pub(super) fn new(report: &Report<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            severity: text(report.severity()),
            code: text(report.code()),
            message: text(report.message()),
        }
    }

    /// Whether a commit that fails like this has rolled back for sure.
    ///
    /// SQLSTATE 40003 and 08007 say that the outcome is unknown. The rest of class 08, class 58
    /// (a failure outside of the server) and class XX (an internal error) do not say that the
    /// commit was undone. Neither does the end of a session.
    #[must_use]
    pub fn has_rolled_back(&self) -> bool {
        let class = self.code.get(..2).unwrap_or_default();
        self.severity == "ERROR"
            && self.code != "40003"
            && !matches!(class, "08" | "58" | "XX")
            && !self.code.starts_with("57P")
    }
}

impl Failure {
    pub(super) fn of_server(error: ServerError) -> Self {
        if error.severity == "ERROR" {
            Self::Refused(error)
        } else {
            Self::Ended(error)
        }
    }

    pub(super) fn lost(attempt: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Lost { attempt, source }
    }

    /// The SQLSTATE, or what took the place of a reply.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Refused(error) | Self::Ended(error) => error.code.clone(),
            Self::Lost { source, .. } if is_timeout(source) => "time-out".to_owned(),
            Self::Lost { .. } => "connection lost".to_owned(),
            Self::Protocol(_) => "protocol".to_owned(),
        }
    }

    /// Whether the session can't be used any more.
    #[must_use]
    pub fn ends_session(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity, self.code, self.message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) | Self::Ended(error) => error.fmt(f),
            Self::Lost { attempt, source } if is_timeout(source) => {
                write!(f, "{attempt}: no byte arrived before the time-out")
            }
            Self::Lost { attempt, source } => write!(f, "{attempt}: {source}"),
            Self::Protocol(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lost { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::Protocol(format!("the server has sent a bad message: {malformed}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(severity: &str, code: &str) -> ServerError {
        ServerError {
            severity: severity.to_owned(),
            code: code.to_owned(),
            message: String::new(),
        }
    }

    /// A commit that is taken for undone, and is not, would let a retry double it.
    #[test]
    fn only_certain_errors_say_that_a_commit_is_undone() {
        for code in ["40001", "40P01", "23505", "25P02", "57014", "53100"] {
            assert!(error("ERROR", code).has_rolled_back(), "{code}");
        }
        for code in ["08007", "08006", "40003", "58030", "XX000", "57P01"] {
            assert!(!error("ERROR", code).has_rolled_back(), "{code}");
        }
        assert!(!error("FATAL", "40001").has_rolled_back());
    }
}
