//! What a handler fails with: a status, and what is said of it.

use std::{error, fmt};

use http::StatusCode;

use super::Response;

/// The result of a handler.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of a handler: the status of the answer, a text for the client, and the cause.
///
/// Every [`std::error::Error`] becomes one with status 500 by `?`. The client does not get to see
/// the text of a cause.
///
/// ```
/// use paceline_server::http::{Error, Result};
///
/// fn port(text: &str) -> Result<u16> {
///     text.parse().map_err(|_| Error::new(400, "the port is no number"))
/// }
/// assert_eq!(port("x").unwrap_err().status(), 400);
/// ```
pub struct Error {
    status: StatusCode,
    text: String,
    cause: Option<Box<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// With this status, and a text that the client gets. A number that is no status of a failure
    /// is 500.
    pub fn new(status: u16, text: impl Into<String>) -> Self {
        let status = StatusCode::from_u16(status).ok();
        let status = status.filter(|status| status.is_client_error() || status.is_server_error());
        Self {
            status: status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            text: text.into(),
            cause: None,
        }
    }

    /// Says why, for logs. The client does not get it.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// What the client gets.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Why it failed, if there is a cause.
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn error::Error + Send + Sync + 'static)> {
        self.cause.as_deref()
    }

    /// The answer that says so.
    pub(super) fn into_response(self) -> Response {
        let text = if self.text.is_empty() {
            let reason = self.status.canonical_reason().unwrap_or("failed");
            format!("{reason}\n")
        } else {
            format!("{}\n", self.text)
        };
        let mut response = Response::text(text);
        response.set_status(self.status);
        response.set_error(self);
        response
    }
}

impl<E: error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(cause: E) -> Self {
        Self::new(500, "").because(cause)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        match &self.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}
