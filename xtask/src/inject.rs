//! `inject`: the fault matrix, a package of its own. This verb builds and runs it.

use std::process::Command;
use std::time::Duration;

use xtask_common::run;
use xtask_common::verb::{Verb, Verdict};
use xtask_common::workspace::{Form, Workspace};

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "inject",
    summary: "put a running server under one fault after the other and check every answer",
    help: include_str!("../inject/help.txt"),
    run: |args| Ok(check(args.all())),
};

/// Longest time for a full run of all services. The program has limits of its own for each of them.
const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

/// Runs the matrix with these words of its command line.
pub(crate) fn check(words: &[impl AsRef<std::ffi::OsStr>]) -> Verdict {
    let mut cargo: Command = Workspace::this().cargo(Form::Std);
    cargo
        .args(["run", "--quiet", "--package", "xtask-inject", "--"])
        .args(words);
    run::run_shown(&mut cargo, LIMIT).verdict()
}
