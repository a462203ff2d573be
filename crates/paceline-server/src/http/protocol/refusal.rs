//! Why a request is refused.

use crate::codec::Malformed;

/// Why a request is refused: the status of the answer, and a text for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) why: &'static str,
}

impl Refusal {
    /// The request breaks a rule of the protocol, or may mean two things.
    pub(crate) const fn bad(why: &'static str) -> Self {
        Self { status: 400, why }
    }

    pub(crate) const fn new(status: u16, why: &'static str) -> Self {
        Self { status, why }
    }
}

impl From<Refusal> for Malformed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused {
            code: refusal.status,
            why: refusal.why,
        }
    }
}
