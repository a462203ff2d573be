//! `docs/front-end.md` lists every key of the tables, and no other.
//!
//! With `PACELINE_WRITE_DOCS=1` the test writes the lists into the document.

use std::{env, fs, path::PathBuf};

use paceline_pg::config::{Database, Effect, EntryKey, Key, Standing, User};

fn document() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/front-end.md")
}

/// An administrator decides by this list whether a file can be moved over: a key that is missing
/// there, or is described as it was a version ago, costs an evening.
#[test]
fn the_document_lists_every_key() {
    let path = document();
    let old = fs::read_to_string(&path).expect("docs/front-end.md");
    let lists = [
        ("keys", honoured()),
        (
            "warned",
            others(|standing| matches!(standing, Standing::Warned(_))),
        ),
        (
            "refused",
            others(|standing| matches!(standing, Standing::Refused(_))),
        ),
        ("databases", entries(Database::keys())),
        ("users", entries(User::keys())),
    ];
    let new = lists
        .iter()
        .fold(old.clone(), |text, (name, list)| with(&text, name, list));
    if env::var_os("PACELINE_WRITE_DOCS").is_some() {
        fs::write(&path, &new).expect("docs/front-end.md");
        return;
    }
    let different = new.lines().zip(old.lines()).find(|(new, old)| new != old);
    assert_eq!(
        new, old,
        "first difference: {different:?}; run with PACELINE_WRITE_DOCS=1"
    );
}

/// The document with a list between its marks.
fn with(text: &str, name: &str, list: &str) -> String {
    let mark = format!("<!-- {name} -->\n");
    let (before, rest) = text
        .split_once(&mark)
        .unwrap_or_else(|| panic!("no mark {name}"));
    let (_, behind) = rest.split_once("<!-- end -->").expect("the end of a list");
    format!("{before}{mark}{list}<!-- end -->{behind}")
}

fn honoured() -> String {
    let mut list =
        "| key | default | changes | what it is for |\n| --- | --- | --- | --- |\n".to_owned();
    for key in Key::all().filter(|key| key.standing == Standing::Honoured) {
        let changes = match key.effect {
            Effect::AtOnce => "at once",
            Effect::Restart => "restart",
        };
        let own = if key.is_own() { " *Ours.*" } else { "" };
        let (default, about) = (code(key.default), key.about.trim());
        list += &format!(
            "| `{}` | {default} | {changes} | {about}{own} |\n",
            key.name
        );
    }
    list
}

fn others(is_it: fn(Standing) -> bool) -> String {
    let mut list = "| key | why |\n| --- | --- |\n".to_owned();
    for key in Key::all().filter(|key| is_it(key.standing)) {
        list += &format!("| `{}` | {} |\n", key.name, key.about);
    }
    list
}

fn entries<T>(keys: &[EntryKey<T>]) -> String {
    let mut list = "| key | what it is for |\n| --- | --- |\n".to_owned();
    for key in keys {
        list += &format!("| `{}` | {} |\n", key.name, key.about);
    }
    list
}

fn code(text: &str) -> String {
    if text.is_empty() {
        "unset".to_owned()
    } else {
        format!("`{text}`")
    }
}
