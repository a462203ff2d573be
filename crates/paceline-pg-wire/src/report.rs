//! Errors and notices of a server.

use crate::{fields::Fields, write, Malformed};

/// An error or a notice, as a server sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'b>(&'b [u8]);

impl<'b> Report<'b> {
    pub(crate) fn read(fields: &mut Fields<'b>) -> Result<Self, Malformed> {
        let all = *fields;
        while fields.u8()? != 0 {
            fields.text()?;
        }
        Ok(Self(all.clone().rest()))
    }

    /// Each field: its letter, and its text.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &'b [u8])> + 'b {
        let mut fields = Fields::new(self.0);
        // `read` has checked each of them.
        std::iter::from_fn(move || {
            let letter = fields.u8().ok().filter(|letter| *letter != 0)?;
            Some((letter, fields.text().ok()?))
        })
    }

    /// The text of the field with this letter.
    #[must_use]
    pub fn get(&self, letter: u8) -> Option<&'b [u8]> {
        self.iter()
            .find_map(|(given, text)| (given == letter).then_some(text))
    }

    /// The five characters of its SQLSTATE; `XX000` if the server gives none.
    #[must_use]
    pub fn code(&self) -> &'b [u8] {
        self.get(b'C').unwrap_or(b"XX000")
    }

    /// Its text.
    #[must_use]
    pub fn message(&self) -> &'b [u8] {
        self.get(b'M').unwrap_or_default()
    }

    /// Its severity, in the language of the protocol, or else in that of the server.
    #[must_use]
    pub fn severity(&self) -> &'b [u8] {
        let severity = self.get(b'V').or_else(|| self.get(b'S'));
        severity.unwrap_or(b"ERROR")
    }
}

/// How serious a report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Severity {
    /// The transaction has failed, and the session continues.
    Error,
    /// The session ends.
    Fatal,
    /// All sessions end.
    Panic,
    /// A notice that something is doubtful.
    Warning,
    /// A notice.
    Notice,
}

impl Severity {
    /// As the protocol writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
            Self::Panic => "PANIC",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
        }
    }
}

/// A report to be sent.
///
/// ```
/// use paceline_pg_wire::{backend, NewReport, Severity};
///
/// let mut bytes = Vec::new();
/// let report = NewReport::new(Severity::Error, "42P01", "relation \"t\" does not exist");
/// backend::error(&mut bytes, &report.detail("It was dropped.").position(15));
/// assert_eq!(bytes[0], b'E');
/// ```
#[derive(Clone, Debug)]
pub struct NewReport {
    severity: Severity,
    fields: Vec<(u8, String)>,
}

impl NewReport {
    /// A report with its SQLSTATE and its text.
    pub fn new(severity: Severity, code: &str, message: impl Into<String>) -> Self {
        Self {
            severity,
            fields: vec![(b'C', code.to_owned()), (b'M', message.into())],
        }
    }

    /// Adds a detail.
    #[must_use]
    pub fn detail(self, text: impl Into<String>) -> Self {
        self.field(b'D', text)
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(self, text: impl Into<String>) -> Self {
        self.field(b'H', text)
    }

    /// The character of the query at which the error is, counted from one.
    #[must_use]
    pub fn position(self, character: usize) -> Self {
        self.field(b'P', character.to_string())
    }

    /// A field by its letter.
    #[must_use]
    pub fn field(mut self, letter: u8, text: impl Into<String>) -> Self {
        self.fields.push((letter, text.into()));
        self
    }

    pub(crate) fn append(&self, output: &mut Vec<u8>, tag: u8) {
        write::message(output, tag, |body| {
            // `S` may be in the server's language, `V` is not.
            for letter in [b'S', b'V'] {
                body.push(letter);
                write::text(body, self.severity.name().as_bytes());
            }
            for (letter, text) in &self.fields {
                body.push(*letter);
                write::text(body, text.as_bytes());
            }
            body.push(0);
        });
    }
}
