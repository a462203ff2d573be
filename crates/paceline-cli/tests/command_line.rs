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
    for arguments in [&["--help"][..], &["-h"], &["help"], &["front", "--help"]] {
        let output = paceline(arguments);
        assert!(output.status.success(), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("FILE.ini"));
    }
}

/// `paceline` without a command is the demo: its options must not be a secret.
#[test]
fn the_help_lists_the_commands_and_the_options_of_the_demo() {
    let output = paceline(&["--help"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for text in [
        "--no-load",
        "--for SECONDS",
        "--postgres",
        "demo ",
        "front ",
        "back ",
        "check ",
    ] {
        assert!(said.contains(text), "{text}: {said}");
    }
}

/// A word that is mistyped was taken for a file: "could not read bogus".
#[test]
fn an_unknown_command_is_no_file() {
    for word in ["bogus", "fornt", "config"] {
        let output = paceline(&[word]);
        assert_eq!(output.status.code(), Some(2), "{word}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = format!("unknown command `{word}`: the commands are demo, front, back");
        assert!(said.contains(&expected), "{said}");
    }
    for file in ["bogus.ini", "./bogus", "/nowhere/bogus", "etc/bogus"] {
        let output = paceline(&["-q", file]);
        assert_eq!(output.status.code(), Some(1), "{file}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.contains(&format!("{file}: could not be read")),
            "{said}"
        );
    }
}

/// PgBouncer takes a file of any name.
#[test]
fn a_file_that_exists_needs_no_ending() {
    let folder = std::env::temp_dir().join(format!("paceline-cli-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(
        folder.join("config"),
        "[pgbouncer]\nnone = 1\npool_mode = x\npkt_buf = 1\n",
    )
    .expect("a file");
    for arguments in [&["config"][..], &["-d", "config"], &["front", "config"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_paceline"))
            .args(arguments)
            .current_dir(&folder)
            .output()
            .expect("the program runs");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = [
            "paceline: config:2: none: unknown parameter",
            "paceline: config:3: pool_mode: invalid value \"x\": expected one of session, \
             transaction, statement",
            "paceline: warning: config:4: pkt_buf: has no effect: messages are not copied into a \
             buffer of fixed size",
        ];
        assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{arguments:?}");
    }
    std::fs::remove_dir_all(&folder).expect("it is there");
}

/// What the program can't do is refused: it is not ignored.
#[test]
fn mistakes_are_named() {
    let cases = [
        (&["-R", "a.ini"][..], "-R is not supported"),
        (&["-u"], "-u"),
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
