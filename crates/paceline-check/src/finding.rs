//! What a checker finds.

use std::fmt;

/// A broken promise that a checker has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of what is wrong, such as `lost` or `G-single`.
    pub rule: &'static str,
    /// What was seen.
    pub text: String,
}

impl Finding {
    pub(crate) fn new(rule: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { rule, text }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.text)
    }
}

/// What a workload has concluded at its end.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What was counted on the way, by name.
    pub facts: Vec<(&'static str, u64)>,
}
