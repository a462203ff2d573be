//! Builds by cargo, with a time limit and their messages shown or in a log.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::run::{self, Ending, Finished};
use crate::workspace::Workspace;

/// Longest time for one build, from nothing.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Runs a build with the compiler's messages shown.
pub fn shown(cargo: &mut Command) -> Result<(), String> {
    judge(run::run_shown(cargo, LIMIT))
}

/// Runs a build with the compiler's messages in a log, of which the end is shown if it fails.
pub fn logged(cargo: &mut Command, workspace: &Workspace) -> Result<(), String> {
    let log = workspace.log("build");
    let messages = run::create(&log).map_err(|error| format!("could not be logged: {error}"))?;
    let built = judge(run::run(cargo.stderr(messages), LIMIT));
    if built.is_err() {
        run::print_tail(&log, 40);
    }
    built
}

/// The last executable that cargo names in its JSON messages.
pub fn executable(messages: &str) -> Option<PathBuf> {
    let (_, after) = messages.rsplit_once("\"executable\":\"")?;
    let (path, _) = after.split_once('"')?;
    Some(PathBuf::from(path))
}

/// What the end of a build means.
fn judge(finished: Finished) -> Result<(), String> {
    match finished.ending {
        Ending::Passed => Ok(()),
        Ending::Failed(_) => Err("does not build".to_owned()),
        Ending::TimedOut => Err("does not build in time".to_owned()),
        Ending::NotStarted(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_found_among_the_artifacts() {
        let messages = r#"{"reason":"compiler-artifact","executable":null,"fresh":true}
{"reason":"compiler-artifact","executable":"target/debug/deps/stress-1f","fresh":false}
{"reason":"build-finished","success":true}"#;
        assert_eq!(
            executable(messages),
            Some(PathBuf::from("target/debug/deps/stress-1f"))
        );
        assert_eq!(executable(r#"{"executable":null}"#), None);
    }
}
