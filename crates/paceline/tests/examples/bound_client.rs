//! The example `bound_client` does what its help says.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::support::{self, bounded_by, example::run};

/// Builds the example, before a test's time begins.
fn client() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| support::example("bound_client"))
}

/// Runs it, and returns what it said.
fn said(arguments: &[&str]) -> String {
    let mut command = Command::new(client());
    command.args(arguments);
    let output = bounded_by(support::LONG * 3, move || run(&mut command));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The number behind `name`.
fn number(said: &str, name: &str) -> u64 {
    let at = said.find(&format!("{name}: ")).expect(name) + name.len() + 2;
    let digits = said[at..].split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

/// All calls have their reply, and none is another's. One thread alone wakes nobody and makes one
/// write for each call.
#[test]
fn every_call_has_its_reply() {
    let several = said(&["--threads", "6", "--calls", "200"]);
    assert_eq!(number(&several, "calls"), 1200);
    assert_eq!(number(&several, "replies"), 1200);
    assert!(number(&several, "writes") <= 1200);
    let alone = said(&["--threads", "1", "--calls", "200"]);
    assert_eq!(number(&alone, "writes"), 200);
    assert_eq!(number(&alone, "wakes"), 0);
    assert_eq!(number(&alone, "handed over"), 0);
}

/// A large reply is read by its own caller, while others call.
#[test]
fn a_large_reply_is_read_by_its_caller() {
    let said = said(&["--threads", "2", "--calls", "50", "--large", "5000000"]);
    assert!(said.contains("fetched 5000000 of 5000000 bytes"), "{said}");
    assert_eq!(number(&said, "calls"), 101);
    assert_eq!(number(&said, "replies"), 101);
}

/// Its help names every option that it takes; a mistake is told together with it.
#[test]
fn it_teaches() {
    let help = said(&["--help"]);
    for option in ["--threads", "--calls", "--large", "--elect", "--in-order"] {
        assert!(help.contains(option), "{option}");
    }
    let output = run(Command::new(client()).args(["--elect", "nobody"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("usage:"));
}
