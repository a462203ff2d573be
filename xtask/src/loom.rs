//! `loom`: every interleaving of the small protocols, up to a bound of preemptions.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{self, Binary, Messages, Profile, Program, Suite, Talk};
use xtask_common::run::{self, Ending, Finished};
use xtask_common::verb::{Verb, Verdict};
use xtask_common::workspace::{Form, Workspace, CORE};

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "loom",
    summary: "explore every interleaving of the small protocols (loom)",
    help: "\
usage: cargo xtask loom [--bound N] [--seconds N] [FILTER]

Builds the library's own modules with `--cfg loom` and runs every test whose path contains `loom_`,
each in a process of its own (a failing model aborts), two at a time.

  --bound N    preemptions per execution, LOOM_MAX_PREEMPTIONS (default 2)
  --seconds N  limit for one model (default 300); passing it is a failure
  FILTER       only models whose path contains this

No model at all is a failure. Logs of the models are kept in target/xtask.",
    run: |mut args| {
        let models = Models {
            bound: args.number("--bound", DEFAULT_BOUND)?,
            limit: args.seconds("--seconds", DEFAULT_LIMIT)?,
            filter: args.filter()?,
        };
        Ok(models.check(&Workspace::this()))
    },
};

/// Preemptions per execution, if nothing else is said.
pub(crate) const DEFAULT_BOUND: u64 = 2;

/// Limit for one model, if nothing else is said.
pub(crate) const DEFAULT_LIMIT: Duration = Duration::from_secs(300);

/// What the path of every model contains.
const MARK: &str = "loom_";

/// How many models run at once.
const AT_ONCE: usize = 2;

/// Which models to run, and how far.
pub(crate) struct Models {
    /// Preemptions per execution.
    pub(crate) bound: u64,
    /// Limit for one model.
    pub(crate) limit: Duration,
    /// Only models whose path contains this.
    pub(crate) filter: String,
}

impl Models {
    /// Builds the models and runs them all.
    fn check(&self, workspace: &Workspace) -> Verdict {
        match self.prepare(workspace, Messages::Shown) {
            Ok((binary, names)) => self.run_all(workspace, &binary, &names),
            Err(why) => Verdict::failed(why),
        }
    }

    /// Builds the models and lists them; an error if there is none.
    pub(crate) fn prepare(
        &self,
        workspace: &Workspace,
        messages: Messages,
    ) -> Result<(Binary, Vec<String>), String> {
        let suite = Suite {
            package: CORE.to_owned(),
            form: Form::Loom,
            profile: Profile::Checks,
            program: Program::Lib,
            filter: self.filter.clone(),
            settings: Vec::new(),
            talk: Talk::HeldBack,
        };
        let (binary, mut tests) = suite.prepare(workspace, messages)?;
        tests.retain(|test| test.contains(MARK));
        let models = harness::at_least_one(tests, &format!("{MARK}, {}", self.filter))?;
        Ok((binary, models))
    }

    /// Runs one model in a process of its own, with its output in a log.
    pub(crate) fn run_one(
        &self,
        binary: &Binary,
        name: &str,
        log: &Path,
        limit: Duration,
    ) -> Finished {
        let mut command = binary.command();
        command
            .env("LOOM_MAX_PREEMPTIONS", self.bound.to_string())
            .args(["--exact", name, "--nocapture"]);
        run::run_logged(&mut command, log, limit)
    }

    /// Runs all models, a few at a time, and counts.
    fn run_all(&self, workspace: &Workspace, binary: &Binary, names: &[String]) -> Verdict {
        println!(
            "models: {}, preemptions: at most {}",
            names.len(),
            self.bound
        );
        let next = AtomicUsize::new(0);
        let failed = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let log = workspace.log(name);
                        let finished = self.run_one(binary, name, &log, self.limit);
                        failed.fetch_add(report(name, &finished, &log), Ordering::Relaxed);
                    }
                });
            }
        });
        let failed = failed.into_inner();
        Verdict::from_failures(failed, format!("{failed} of {} models failed", names.len()))
    }
}

/// Prints how a model ended; gives the number of failures, zero or one.
fn report(name: &str, finished: &Finished, log: &Path) -> usize {
    let time = finished.time.as_secs_f64();
    let how = match &finished.ending {
        Ending::Passed => {
            println!("model {name} ... ok, {time:.1} s");
            return 0;
        }
        Ending::Failed(how) | Ending::NotStarted(how) => how.as_str(),
        Ending::TimedOut => "time limit",
    };
    println!("model {name} ... FAILED ({how}), {time:.1} s");
    run::print_tail(log, 60);
    1
}

/// Runs the models for `ci`.
pub(crate) fn check(bound: u64, limit: Duration) -> Verdict {
    let filter = String::new();
    Models {
        bound,
        limit,
        filter,
    }
    .check(&Workspace::this())
}
