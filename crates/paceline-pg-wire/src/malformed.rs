//! Why bytes are no message.

use std::{error, fmt, io};

/// The bytes are no message of the protocol. The text names the rule that they break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(&'static str);

impl Malformed {
    pub(crate) const fn new(rule: &'static str) -> Self {
        Self(rule)
    }

    /// The rule that the bytes break.
    #[must_use]
    pub fn rule(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid message: {}", self.0)
    }
}

impl error::Error for Malformed {}

impl From<Malformed> for io::Error {
    fn from(malformed: Malformed) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, malformed)
    }
}
