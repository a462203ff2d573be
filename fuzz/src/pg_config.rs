//! The files and commands of `paceline-pg`.

use std::{io, time::UNIX_EPOCH};

use paceline_pg::{
    config::{hba, load, Config, Key, Reason, Settings, Userlist},
    console::{Access, Command},
    log,
};

use crate::script::Script;

/// Any bytes are a configuration, or an error that names a line of the file; what was read can be
/// shown and read again.
pub(crate) fn any_bytes_are_files_or_an_error_with_its_line(data: &[u8]) {
    let mut script = Script::new(data);
    match script.byte() % 3 {
        0 => ini(script.rest()),
        1 => userlist(script.rest()),
        _ => rules(script.rest()),
    }
}

fn ini(bytes: &[u8]) {
    let mut reads = 0;
    let read = |name: &str| {
        reads += 1;
        // Each line may include the file again, ten deep.
        let is_known = name == "main" && reads < 100;
        is_known
            .then(|| bytes.to_vec())
            .ok_or(io::ErrorKind::NotFound.into())
    };
    let lines = 1 + bytes.iter().filter(|byte| **byte == b'\n').count();
    match load("main", &mut { read }) {
        Ok(config) => {
            let warnings = config.warnings.iter();
            warnings.for_each(|warning| assert!(is_line(warning.line, lines), "{warning}"));
            shown_settings_are_read_again(&config.settings);
            nothing_differs_from_itself(config);
        }
        Err(faulty) => {
            assert!(!faulty.errors.is_empty());
            for problem in &faulty.errors {
                let is_whole_file = problem.reason == Reason::NoMainSection;
                assert!(is_whole_file || is_line(problem.line, lines), "{problem}");
            }
        }
    }
}

fn is_line(line: u32, lines: usize) -> bool {
    (1..=lines).contains(&(line as usize))
}

/// `SHOW CONFIG` prints what a file may say.
fn shown_settings_are_read_again(settings: &Settings) {
    let mut again = Settings::default();
    for key in Key::all() {
        let shown = key.show(settings);
        let _ = again
            .set(key.name, &shown)
            .unwrap_or_else(|why| panic!("{}: {why}", key.name));
    }
}

fn nothing_differs_from_itself(mut config: Config) {
    for database in config.databases.values() {
        let _ = (database.hosts("/tmp"), config.effective(database, "user"));
    }
    let difference = config.replace(config.clone());
    assert!(difference.settings.is_empty() && difference.needs_restart.is_empty());
    assert!(difference.retargeted.is_empty() && difference.databases.changed.is_empty());
}

/// The users that were read, written in quotes, are read again.
fn userlist(bytes: &[u8]) {
    let list = Userlist::read("users", bytes);
    let mut written = Vec::new();
    for user in &list.users {
        for (text, end) in [(&user.name, b' '), (&user.secret, b'\n')] {
            written.push(b'"');
            text.iter().for_each(|byte| match byte {
                b'"' => written.extend_from_slice(b"\"\""),
                byte => written.push(*byte),
            });
            written.extend_from_slice(&[b'"', end]);
        }
    }
    let again = Userlist::read("users", &written);
    assert_eq!((again.users, again.broken), (list.users, None));
}

fn rules(bytes: &[u8]) {
    let Ok(rules) = hba::Rules::read("hba", bytes) else {
        return;
    };
    for address in ["", "127.0.0.1", "::1", "::ffff:10.0.0.1"] {
        let _ = rules.method(&hba::Attempt {
            database: "d",
            user: "u",
            address: address.parse().ok(),
            is_tls: false,
        });
    }
}

/// Any text is a command or is refused, and a user that may only look never gets a command that
/// changes anything; any text is one entry of the log.
pub(crate) fn any_text_is_a_command_or_refused(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(command) = Command::parse(&text, Access::Stats) {
        let changes_nothing = matches!(
            command,
            Command::Empty
                | Command::Show(_)
                | Command::Help
                | Command::ShowParameter(..)
                | Command::SetIgnored
        );
        assert!(changes_nothing, "{text:?}: {command:?}");
        assert_eq!(
            Command::parse(&text, Access::Admin),
            Ok(command),
            "{text:?}"
        );
    }
    let mut line = String::new();
    log::line(
        &mut line,
        UNIX_EPOCH,
        1,
        log::Level::Log,
        format_args!("{text}"),
    );
    let entry = line.strip_suffix('\n').expect("the end of the line");
    for (number, part) in entry.split('\n').enumerate() {
        assert!(number == 0 || part.starts_with('\t'), "{line:?}");
        assert!(
            !part.contains(|c: char| c.is_control() && c != '\t'),
            "{line:?}"
        );
    }
}
