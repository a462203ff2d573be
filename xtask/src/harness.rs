//! The test programs of the crates: build one, list its tests, run it. Building is separate from running, so
//! that a time limit measures the tests alone and a failed build is not taken for a failed test.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use xtask_common::verb::Verdict;
use xtask_common::workspace::{without_inherited, Form, Workspace};
use xtask_common::{builds, run};

/// One test program, and how it is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Suite {
    /// The package whose test program it is.
    pub(crate) package: String,
    /// The form in which it is built.
    pub(crate) form: Form,
    /// How far it is optimized.
    pub(crate) profile: Profile,
    /// Which of its test programs it is.
    pub(crate) program: Program,
    /// Only tests whose path contains this are run.
    pub(crate) filter: String,
    /// Variables for the run.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// Whether a test's own output is held back.
    pub(crate) talk: Talk,
}

/// How far a test program is optimized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Quick to build, with debug assertions.
    Dev,
    /// Quick to run: the profile `checks`.
    Checks,
}

/// A test program of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// The tests inside the library.
    Lib,
    /// The file of this name under `tests`.
    Test(String),
}

/// What happens to the output of a test that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Talk {
    /// It is dropped.
    HeldBack,
    /// It is shown at once.
    Shown,
}

/// Where the compiler's messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Messages {
    /// To the terminal.
    Shown,
    /// Into a log, of which the end is shown if the build fails.
    Logged,
}

/// A test program that was built.
pub(crate) struct Binary {
    /// The executable.
    path: PathBuf,
    /// The folder in which `cargo test` would run it.
    package: PathBuf,
}

impl Suite {
    /// Builds it and runs it with its output shown; no tests at all is a failure.
    pub(crate) fn check(&self, workspace: &Workspace, limit: Duration) -> Verdict {
        match self.prepare(workspace, Messages::Shown) {
            Ok((binary, tests)) => {
                let verdict = run::run_shown(&mut self.command(&binary), limit).verdict();
                let summary = format!("{} (tests: {})", verdict.summary, tests.len());
                Verdict { summary, ..verdict }
            }
            Err(why) => Verdict::failed(why),
        }
    }

    /// Builds it and lists its tests; an error if it does not build or holds no test.
    pub(crate) fn prepare(
        &self,
        workspace: &Workspace,
        messages: Messages,
    ) -> Result<(Binary, Vec<String>), String> {
        let binary = self.build(workspace, messages)?;
        let tests = at_least_one(binary.tests(&self.filter)?, &self.filter)?;
        Ok((binary, tests))
    }

    /// The command that runs it.
    pub(crate) fn command(&self, binary: &Binary) -> Command {
        let mut command = binary.command();
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        if !self.filter.is_empty() {
            command.arg(&self.filter);
        }
        if self.talk == Talk::Shown {
            command.arg("--nocapture");
        }
        command
    }

    /// Builds it, and finds the executable in cargo's messages.
    fn build(&self, workspace: &Workspace, messages: Messages) -> Result<Binary, String> {
        let told = workspace.log("artifacts");
        let list = run::create(&told).map_err(|error| format!("could not be logged: {error}"))?;
        let mut cargo = workspace.cargo(self.form);
        cargo
            .args([
                "test",
                "--no-run",
                "--message-format=json-render-diagnostics",
            ])
            .args(["--package", &self.package])
            .args(self.features(workspace))
            .args(self.form.cargo_options())
            .args(self.selection())
            .stdout(list);
        match messages {
            Messages::Shown => builds::shown(&mut cargo)?,
            Messages::Logged => builds::logged(&mut cargo, workspace)?,
        }
        let path =
            builds::executable(&run::read_log(&told)).ok_or("cargo named no test program")?;
        let package = workspace.package(&self.package);
        Ok(Binary { path, package })
    }

    /// The option that turns on what the program requires: its `required-features` in the manifest
    /// of its package, which `cargo test` does not turn on by itself.
    fn features(&self, workspace: &Workspace) -> Option<String> {
        let Program::Test(name) = &self.program else {
            return None;
        };
        let manifest = workspace.package(&self.package).join("Cargo.toml");
        let manifest: toml::Table = fs::read_to_string(manifest).ok()?.parse().ok()?;
        let features = required_features(&manifest, name);
        (!features.is_empty()).then(|| format!("--features={}", features.join(",")))
    }

    /// The options of `cargo test` that choose the program.
    fn selection(&self) -> Vec<&str> {
        let mut options = match &self.program {
            Program::Lib => vec!["--lib"],
            Program::Test(file) => vec!["--test", file],
        };
        if self.profile == Profile::Checks {
            options.push("--profile=checks");
        }
        options
    }
}

impl Binary {
    /// A command that runs the program as `cargo test` would.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        without_inherited(&mut command);
        command
            .current_dir(&self.package)
            .env("CARGO_MANIFEST_DIR", &self.package);
        command
    }

    /// The paths of its tests that contain the filter.
    fn tests(&self, filter: &str) -> Result<Vec<String>, String> {
        let list = run::output(self.command().args(["--list", "--format=terse"]))
            .map_err(|error| format!("its tests cannot be listed: {error}"))?;
        let tests = listed_tests(&list).into_iter();
        Ok(tests.filter(|test| test.contains(filter)).collect())
    }
}

/// What a test program of a package requires.
fn required_features(manifest: &toml::Table, name: &str) -> Vec<String> {
    let tests = manifest.get("test").and_then(|tests| tests.as_array());
    let is_it = |test: &&toml::Value| test.get("name").and_then(|it| it.as_str()) == Some(name);
    let test = tests.and_then(|tests| tests.iter().find(is_it));
    let features = test.and_then(|test| test.get("required-features")?.as_array());
    let names = features.into_iter().flatten().filter_map(|it| it.as_str());
    names.map(str::to_owned).collect()
}

/// The tests, if there are any: a run of none would pass and prove nothing.
pub(crate) fn at_least_one(tests: Vec<String>, filter: &str) -> Result<Vec<String>, String> {
    if tests.is_empty() {
        Err(format!(
            "no test matches `{filter}`: a run of none proves nothing"
        ))
    } else {
        Ok(tests)
    }
}

/// The names in what a test program prints for `--list`.
pub(crate) fn listed_tests(list: &str) -> Vec<String> {
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_owned).collect()
}

/// The first test that failed, or that was begun and never ended, in what a test program printed.
pub(crate) fn first_failure(tests: &[String], printed: &str) -> String {
    failures(printed)
        .into_iter()
        .next()
        .or_else(|| unfinished(tests, printed))
        .unwrap_or_else(|| "(no test named)".to_owned())
}

/// The list under the last line `failures:`.
fn failures(printed: &str) -> Vec<String> {
    let Some((_, after)) = printed.rsplit_once("\nfailures:\n") else {
        return Vec::new();
    };
    let names = after.lines().map_while(|line| line.strip_prefix("    "));
    names.map(str::to_owned).collect()
}

/// The first test that is not reported as ok.
fn unfinished(tests: &[String], printed: &str) -> Option<String> {
    let ended = |test: &&String| printed.contains(&format!("test {test} ... ok"));
    tests.iter().find(|test| !ended(test)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_tests_is_read() {
        let list = "promotion::lead::tests::loom_two_promote: test\nspeed: benchmark\nsecond: test\n\n2 tests, 1 benchmark\n";
        assert_eq!(
            listed_tests(list),
            ["promotion::lead::tests::loom_two_promote", "second"]
        );
        assert!(listed_tests("0 tests, 0 benchmarks\n").is_empty());
    }

    /// Without its features cargo builds no such program, and a fault would never be caught.
    #[test]
    fn a_program_is_built_with_what_it_requires() {
        let manifest = "[[test]]\nname = \"plain\"\n\n[[test]]\nname = \"traces\"\n\
                        required-features = [\"a\", \"b\"]\n";
        let manifest: toml::Table = manifest.parse().unwrap();
        assert_eq!(required_features(&manifest, "traces"), ["a", "b"]);
        assert!(required_features(&manifest, "plain").is_empty());
        assert!(required_features(&manifest, "other").is_empty());
    }

    #[test]
    fn the_failing_test_is_found_in_the_last_list() {
        let printed = "\nfailures:\n\n---- b stdout ----\nboom\n\nfailures:\n    b\n    c\n\ntest result: FAILED.\n";
        assert_eq!(first_failure(&[], printed), "b");
    }

    /// A program that aborts or hangs prints no list of failures.
    #[test]
    fn without_a_list_the_first_unfinished_test_is_named() {
        let tests = ["a".to_owned(), "b".to_owned()];
        assert_eq!(
            first_failure(&tests, "running 2 tests\ntest a ... ok\n"),
            "b"
        );
        assert_eq!(first_failure(&[], "Segmentation fault"), "(no test named)");
    }
}
