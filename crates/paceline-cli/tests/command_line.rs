//! The command line: the program can be started where PgBouncer is.

use std::process::{Command, Output};

fn paceline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_paceline"))
        .args(arguments)
        .output()
        .expect("the program runs")
}

#[test]
fn version_and_help_succeed() {
    for option in ["--version", "-V"] {
        let output = paceline(&[option]);
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("Paceline "));
    }
    for arguments in [&["--help"][..], &["-h"], &["front", "--help"]] {
        let output = paceline(arguments);
        assert!(output.status.success(), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("FILE.ini"));
    }
}

/// What the program can't do is refused: it is not ignored.
#[test]
fn mistakes_are_named() {
    let cases = [
        (&["-R", "a.ini"][..], "-R is not supported"),
        (&["-u", "bob", "a.ini"], "-u is not supported"),
        (&["--unknown", "a.ini"], "--unknown"),
        (&["a.ini", "b.ini"], "b.ini"),
        (&["-q"], "name a configuration file"),
        (&["--for", "soon"], "paceline demo: "),
        (&["front"], "name a configuration file"),
    ];
    for (arguments, text) in cases {
        let output = paceline(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(text), "{arguments:?}: {said}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    for arguments in [
        &["--quiet", "/nowhere/a.ini"][..],
        &["front", "/nowhere/a.ini"],
    ] {
        let output = paceline(arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/a.ini"));
    }
}
