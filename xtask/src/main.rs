//! `cargo xtask`: the project's own verbs. This file parses and dispatches; each verb has a module of its own.

#![forbid(unsafe_code)]
#![warn(clippy::match_bool)]

use std::process::ExitCode;

use xtask_common::args::Usage;
use xtask_common::verb::Verb;

mod ci;
mod faults;
mod fuzz;
mod inject;
mod instructions;
mod loom;
mod pg_suite;
mod setup;
mod shuttle;
mod stress;
mod tidy;
mod tsan;

mod harness;
mod markdown;
mod measure;
mod mutants;
mod rust_text;
mod sanitizer;
mod tree;

/// Every verb, in the order in which the help shows them.
const VERBS: [Verb; 12] = [
    ci::VERB,
    loom::VERB,
    shuttle::VERB,
    stress::VERB,
    tsan::VERB,
    faults::VERB,
    fuzz::VERB,
    inject::VERB,
    instructions::VERB,
    pg_suite::VERB,
    tidy::VERB,
    setup::VERB,
];

/// Runs the verb that the command line names.
fn main() -> ExitCode {
    match dispatch(std::env::args().skip(1).collect()) {
        Ok(code) => code,
        Err(Usage(message)) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

/// Answers a question for help, or runs the verb.
fn dispatch(mut words: Vec<String>) -> Result<ExitCode, Usage> {
    let asked = take_help(&mut words);
    if words.is_empty() {
        print!("{}", overview());
        return Ok(ExitCode::from(if asked == Asked::Help { 0 } else { 2 }));
    }
    let verb = find(&words.remove(0))?;
    if asked == Asked::Help {
        println!("{}", verb.page());
        return Ok(ExitCode::SUCCESS);
    }
    verb.conclude(words)
}

/// What the command line asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// An explanation only.
    Help,
    /// A run.
    Work,
}

/// Takes `help`, `-h` and `--help` out of the words.
fn take_help(words: &mut Vec<String>) -> Asked {
    let before = words.len();
    if words.first().is_some_and(|word| word == "help") {
        words.remove(0);
    }
    words.retain(|word| word != "--help" && word != "-h");
    if words.len() < before {
        Asked::Help
    } else {
        Asked::Work
    }
}

/// The verb with this name.
fn find(name: &str) -> Result<&'static Verb, Usage> {
    VERBS.iter().find(|verb| verb.name == name).ok_or_else(|| {
        let names: Vec<_> = VERBS.iter().map(|verb| verb.name).collect();
        Usage(format!(
            "there is no verb `{name}`; the verbs are {}. `cargo xtask --help` explains them.",
            names.join(", ")
        ))
    })
}

/// The text of `cargo xtask --help`.
fn overview() -> String {
    let mut text = String::from(
        "The project's own verbs: check, model, stress, plant faults.\n\n\
         usage: cargo xtask VERB [OPTIONS]\n\n",
    );
    for verb in &VERBS {
        text.push_str(&format!("  {:<13}{}\n", verb.name, verb.summary));
    }
    text.push_str(
        "\n`cargo xtask VERB --help` explains one verb. A change is ready when `cargo xtask ci` passes;\n\
         it installs what its steps lack.\n\
         Exit codes: 0 passed (or skipped, with the reason printed), 1 failed, 2 a wrong command line.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a command line.
    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn help_is_understood_before_and_after_the_verb() {
        for line in ["help loom", "loom --help", "loom -h --bound 3"] {
            assert!(
                take_help(&mut words(line)) == Asked::Help,
                "help missed in `{line}`"
            );
        }
        assert!(take_help(&mut words("loom help")) == Asked::Work);
    }

    #[test]
    fn an_unknown_verb_is_a_wrong_command_line_that_names_the_verbs() {
        let Err(Usage(message)) = dispatch(words("lom")) else {
            panic!("`lom` was accepted");
        };
        assert!(message.contains("`lom`") && message.contains("loom"));
    }

    #[test]
    fn an_unknown_option_is_a_wrong_command_line() {
        // The package behind `inject` judges its own command line.
        for verb in VERBS.iter().filter(|verb| verb.name != "inject") {
            let line = format!("{} --no-such-option", verb.name);
            assert!(dispatch(words(&line)).is_err(), "`{line}` was accepted");
        }
    }
}
