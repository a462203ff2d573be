//! What the project's verbs share: command lines, programs with time limits, verdicts, builds.

#![forbid(unsafe_code)]

pub mod args;
pub mod verb;

pub mod run;
pub mod table;

pub mod builds;
pub mod workspace;
