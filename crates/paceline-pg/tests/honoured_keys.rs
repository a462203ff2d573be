//! A key that is honoured is used: its field is named somewhere outside of the configuration.

use std::{collections::HashSet, fs, path::Path};

use paceline_pg::config::{Database, Key, Standing};

/// Every word of the sources of this crate and of the program, without the configuration and
/// without tests.
fn words() -> HashSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut words = HashSet::new();
    for folder in ["src", "../paceline-cli/src"] {
        collect(&crates.join(folder), &mut words);
    }
    words
}

fn collect(folder: &Path, words: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry of a folder").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() && name != "config" && name != "tests" {
            collect(&path, words);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).expect("a source");
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            words.extend(text.split(|c| !is_part(c)).map(str::to_owned));
        }
    }
}

/// The worst answer to a key is to accept it and to do nothing: the administrator believes that a
/// limit or a time-out holds.
#[test]
fn every_honoured_key_is_used() {
    let words = words();
    let mut wrong = Vec::new();
    for key in Key::all().filter(|key| key.standing == Standing::Honoured) {
        if !words.contains(key.name) {
            wrong.push(key.name);
        }
    }
    for key in Database::keys() {
        // The server's name is behind a method, and the short name is an alias.
        let field = match key.name {
            "dbname" => "server_name",
            "reserve_pool" => "reserve_pool_size",
            "host" | "port" => "hosts",
            name => name,
        };
        let is_global = Key::find(field).is_some();
        if !is_global && !words.contains(field) {
            wrong.push(key.name);
        }
    }
    assert!(wrong.is_empty(), "keys that nothing uses: {wrong:?}");
}
