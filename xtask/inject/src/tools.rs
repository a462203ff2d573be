//! The two small C programs of `xtask/inject`, compiled when they are needed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Trouble;
use xtask_common::run::{self, Ending};
use xtask_common::workspace::Workspace;

/// How long a compilation may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What was compiled, or why not.
pub(super) struct Tools {
    /// The library that is preloaded before libc.
    library: Result<PathBuf, Trouble>,
    /// The program that stops a thread.
    stop: Result<PathBuf, Trouble>,
}

impl Tools {
    /// Compiles both.
    pub(super) fn compile(workspace: &Workspace) -> Tools {
        let library = compile(
            workspace,
            "faults.c",
            "faults.so",
            &["-shared", "-fPIC", "-ldl"],
        );
        let stop = compile(workspace, "stop.c", "stop", &[]);
        Tools { library, stop }
    }

    /// The library that is preloaded before libc.
    pub(super) fn library(&self) -> Result<&Path, Trouble> {
        self.library.as_deref().map_err(Clone::clone)
    }

    /// The program that stops a thread.
    pub(super) fn stop(&self) -> Result<&Path, Trouble> {
        self.stop.as_deref().map_err(Clone::clone)
    }
}

/// Compiles one source.
fn compile(
    workspace: &Workspace,
    source: &str,
    product: &str,
    options: &[&str],
) -> Result<PathBuf, Trouble> {
    if !run::answers("cc", &["--version"]) {
        let why = "cc is not installed (`cargo xtask setup`)";
        return Err(Trouble::Skipped(why.to_owned()));
    }
    let product = workspace.logs.join(product);
    let log = workspace.log(&format!("cc-{source}"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&product)
        .arg(workspace.root.join("xtask/inject").join(source))
        .args(options);
    match run::run_logged(&mut cc, &log, LIMIT).ending {
        Ending::Passed => Ok(product),
        other => {
            run::print_tail(&log, 20);
            Err(Trouble::Failed(format!(
                "{source} does not compile: {other:?}"
            )))
        }
    }
}
