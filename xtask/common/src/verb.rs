//! What every verb is: a name, a page of help, and a run that ends in a verdict.

use std::process::ExitCode;

use crate::args::{Args, Usage};

/// One verb of the command line.
#[derive(Debug)]
pub struct Verb {
    /// What is typed after `cargo xtask`.
    pub name: &'static str,
    /// One line for the overview.
    pub summary: &'static str,
    /// The usage line and the options, as the verb's own help shows them.
    pub help: &'static str,
    /// Runs it with the words after its name.
    pub run: fn(Args) -> Result<Verdict, Usage>,
}

impl Verb {
    /// The text of `cargo xtask VERB --help`.
    pub fn page(&self) -> String {
        format!("{}: {}\n\n{}", self.name, self.summary, self.help)
    }

    /// Runs it with the words after its name, and prints its closing line.
    pub fn conclude(&self, words: Vec<String>) -> Result<ExitCode, Usage> {
        let verdict = (self.run)(Args::new(words)).map_err(|usage| usage.of(self.name))?;
        println!("{}: {}", self.name, verdict.summary);
        Ok(verdict.outcome.code())
    }
}

/// How a verb, or a step of `ci`, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran and found nothing wrong.
    Passed,
    /// It found something wrong, or could not do its work.
    Failed,
    /// It did not run, for a reason that is no fault of the code.
    Skipped,
}

impl Outcome {
    /// 0 for passed and skipped, 1 for failed.
    pub fn code(self) -> ExitCode {
        match self {
            Outcome::Passed | Outcome::Skipped => ExitCode::SUCCESS,
            Outcome::Failed => ExitCode::FAILURE,
        }
    }
}

/// An outcome and the line that explains it.
#[derive(Debug)]
#[must_use]
pub struct Verdict {
    /// How it ended.
    pub outcome: Outcome,
    /// The closing line, without the verb's name.
    pub summary: String,
}

impl Verdict {
    /// A verdict for what passed.
    pub fn passed(summary: impl Into<String>) -> Verdict {
        Verdict {
            outcome: Outcome::Passed,
            summary: summary.into(),
        }
    }

    /// A verdict for what failed.
    pub fn failed(summary: impl Into<String>) -> Verdict {
        Verdict {
            outcome: Outcome::Failed,
            summary: summary.into(),
        }
    }

    /// A verdict for what was skipped; the summary is the reason.
    pub fn skipped(reason: impl Into<String>) -> Verdict {
        Verdict {
            outcome: Outcome::Skipped,
            summary: format!("skipped: {}", reason.into()),
        }
    }

    /// Passed if `failures` is zero, else failed.
    pub fn from_failures(failures: usize, summary: impl Into<String>) -> Verdict {
        match failures {
            0 => Verdict::passed(summary),
            _ => Verdict::failed(summary),
        }
    }
}
