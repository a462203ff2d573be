//! Errors that say what was attempted.

use std::{error, fmt, io};

/// The error, of the same kind, with what was attempted. Its source is the error itself, which has
/// the system's number.
pub(crate) fn attempted(what: impl fmt::Display, error: io::Error) -> io::Error {
    let what = what.to_string();
    io::Error::new(error.kind(), Attempted { what, error })
}

/// Refuses settings with everything that is wrong, not only the first.
pub(crate) fn judged(what: &str, wrong: &[String]) -> io::Result<()> {
    if wrong.is_empty() {
        return Ok(());
    }
    let text = format!("{what}: {}", wrong.join("; "));
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

#[derive(Debug)]
struct Attempted {
    what: String,
    error: io::Error,
}

impl fmt::Display for Attempted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

impl error::Error for Attempted {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::error::Error;

    use super::*;

    /// What was attempted hid the number of the system's error: a full descriptor table has no kind
    /// of its own, so a caller could not tell it from others. It is the source.
    #[test]
    fn the_number_is_in_the_source() {
        let full = io::Error::from_raw_os_error(libc::EMFILE);
        let error = attempted("connect", attempted("a socket", full));
        let sources = std::iter::successors(error.source(), |error| (*error).source());
        let mut numbers =
            sources.filter_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error());
        assert_eq!(numbers.next(), Some(libc::EMFILE));
        assert!(
            error.to_string().starts_with("connect: a socket: "),
            "{error}"
        );
    }

    /// All that is wrong is named.
    #[test]
    fn everything_wrong_is_named() {
        assert!(judged("build", &[]).is_ok());
        let error = judged("build", &["a(0)".to_owned(), "b(0)".to_owned()]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), "build: a(0); b(0)");
    }
}
