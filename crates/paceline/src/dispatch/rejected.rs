//! An error that gives back what was passed in.

use std::{error, fmt, io};

/// The call failed; `value` is what it was given, untouched.
///
/// It converts into [`io::Error`], so `?` works where the value does not matter.
pub struct Rejected<T> {
    /// What was passed in.
    pub value: T,
    /// Why it was not accepted.
    pub error: io::Error,
}

impl<T> Rejected<T> {
    /// For calls of your own that give back what they were given.
    #[must_use]
    pub fn new(value: T, error: io::Error) -> Self {
        Self { value, error }
    }
}

impl<T> From<Rejected<T>> for io::Error {
    fn from(rejected: Rejected<T>) -> Self {
        rejected.error
    }
}

impl<T> fmt::Debug for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> error::Error for Rejected<T> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.error.source()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::{error::Error, ffi::CString};

    use super::*;

    /// The cause of the error is that of the inner error.
    #[test]
    fn its_source_is_that_of_its_error() {
        let no_text = CString::new([0xFF]).unwrap().into_string().unwrap_err();
        let rejected = Rejected::new((), io::Error::other(no_text));
        assert!(rejected.source().is_some());
        let rejected = Rejected::new((), io::Error::other("no cause"));
        assert!(rejected.source().is_none());
    }
}
