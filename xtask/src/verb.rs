//! What every verb is: a name, a page of help, and a run that ends in a verdict.

use crate::args::{Args, Usage};

/// One verb of the command line.
pub(crate) struct Verb {
    /// What is typed after `cargo xtask`.
    pub(crate) name: &'static str,
    /// One line for the overview.
    pub(crate) summary: &'static str,
    /// The usage line and the options, as the verb's own help shows them.
    pub(crate) help: &'static str,
    /// Runs it with the words after its name.
    pub(crate) run: fn(Args) -> Result<Verdict, Usage>,
}

impl Verb {
    /// The text of `cargo xtask VERB --help`.
    pub(crate) fn page(&self) -> String {
        format!("{}: {}\n\n{}", self.name, self.summary, self.help)
    }
}

/// How a verb, or a step of `ci`, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It ran and found nothing wrong.
    Passed,
    /// It found something wrong, or could not do its work.
    Failed,
    /// It did not run, for a reason that is no fault of the code.
    Skipped,
}

/// An outcome and the line that explains it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Verdict {
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// The closing line, without the verb's name.
    pub(crate) summary: String,
}

impl Verdict {
    /// A verdict for what passed.
    pub(crate) fn passed(summary: impl Into<String>) -> Verdict {
        Verdict {
            outcome: Outcome::Passed,
            summary: summary.into(),
        }
    }

    /// A verdict for what failed.
    pub(crate) fn failed(summary: impl Into<String>) -> Verdict {
        Verdict {
            outcome: Outcome::Failed,
            summary: summary.into(),
        }
    }

    /// A verdict for what was skipped; the summary is the reason.
    pub(crate) fn skipped(reason: impl Into<String>) -> Verdict {
        Verdict {
            outcome: Outcome::Skipped,
            summary: format!("skipped: {}", reason.into()),
        }
    }

    /// Passed if `failures` is zero, else failed.
    pub(crate) fn from_failures(failures: usize, summary: impl Into<String>) -> Verdict {
        match failures {
            0 => Verdict::passed(summary),
            _ => Verdict::failed(summary),
        }
    }
}
