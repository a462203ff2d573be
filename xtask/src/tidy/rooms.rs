//! The rooms of the core form a directed acyclic graph: a room is a file or a folder right below `src`, and
//! depends on the rooms that its code names after `crate::`. Tests and models may name any.

use std::collections::{BTreeMap, BTreeSet};

use crate::rust_text::code_only;
use crate::tree::Tree;

use super::absence::first_names;
use super::Offence;

/// Where the rooms are.
const SOURCES: &str = "crates/paceline/src/";

/// A mention of a room: file and line.
type Place<'t> = (&'t str, usize);

/// What each room depends on, with the first mention of each.
type Rooms<'t> = BTreeMap<String, BTreeMap<String, Place<'t>>>;

/// Finds rooms that depend on each other, and names of the crate that hide a room.
pub(super) fn find(tree: &Tree) -> Vec<Offence> {
    let rooms = rooms(tree);
    let mut offences = Vec::new();
    for (room, uses) in &rooms {
        for (used, (path, line)) in uses {
            if !rooms.contains_key(used) {
                let message = format!("`crate::{used}` hides its room: name that");
                offences.push(Offence::new(path, *line, message));
            } else if reaches(&rooms, used, room) {
                let message = format!("the rooms `{room}` and `{used}` depend on each other");
                offences.push(Offence::new(path, *line, message));
            }
        }
    }
    offences
}

/// The rooms from the bottom to the top, each with those that it uses.
pub(super) fn picture(tree: &Tree) -> Vec<String> {
    let rooms = rooms(tree);
    let mut below = BTreeSet::new();
    let mut lines = Vec::new();
    while let Some(next) = next_room(&rooms, &below) {
        let uses: Vec<_> = rooms[next].keys().map(String::as_str).collect();
        lines.push(
            format!("{next:<12} {}", uses.join(" "))
                .trim_end()
                .to_owned(),
        );
        below.insert(next);
    }
    lines
}

/// The first room that uses only those `below`.
fn next_room<'r>(rooms: &'r Rooms<'_>, below: &BTreeSet<&str>) -> Option<&'r str> {
    let is_next = |(room, uses): &(&String, &BTreeMap<String, Place<'_>>)| {
        let stands = uses.keys().all(|used| below.contains(used.as_str()));
        stands && !below.contains(room.as_str())
    };
    let next = rooms.iter().find(is_next);
    next.map(|(room, _)| room.as_str())
}

/// Whether there is a way along the uses.
fn reaches(rooms: &Rooms<'_>, from: &str, to: &str) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(room) = open.pop() {
        if room == to {
            return true;
        }
        if seen.insert(room) {
            open.extend(
                rooms
                    .get(room)
                    .into_iter()
                    .flatten()
                    .map(|(used, _)| used.as_str()),
            );
        }
    }
    false
}

/// All rooms, and what they use.
fn rooms(tree: &Tree) -> Rooms<'_> {
    let mut rooms = Rooms::new();
    for (path, text) in tree.texts_ending(".rs").filter(|(path, _)| ships(path)) {
        let room = room_of(path);
        let code = code_only(text);
        let code = code.split("mod tests {").next().unwrap_or_default();
        let uses = rooms.entry(room.clone()).or_default();
        for (at, root) in code.match_indices("crate::") {
            let line = code[..at].lines().count().max(1);
            let names = first_names(&code[at + root.len()..]);
            for name in names
                .into_iter()
                .filter(|name| !name.is_empty() && *name != room)
            {
                uses.entry(name.to_owned()).or_insert((path, line));
            }
        }
    }
    rooms
}

/// Whether a file is a part of a room that ships.
fn ships(path: &str) -> bool {
    let rest = path.strip_prefix(SOURCES);
    rest.is_some_and(|rest| {
        rest != "lib.rs" && !rest.contains("models") && !rest.ends_with("tests.rs")
    })
}

/// The room that a file belongs to.
fn room_of(path: &str) -> String {
    let rest = path.strip_prefix(SOURCES).unwrap_or(path);
    let room = rest.split('/').next().unwrap_or_default();
    room.trim_end_matches(".rs").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    const LOW: (&str, &str) = ("crates/paceline/src/low.rs", "fn f() {}\n");

    #[test]
    fn rooms_that_stand_on_each_other_are_no_offence() {
        let high = "use crate::{low::{a, b}, mid};\nmod tests {\nuse crate::high2;\n}\n";
        let tree = tree(&[
            LOW,
            ("crates/paceline/src/mid/mod.rs", "crate::low::f();\n"),
            ("crates/paceline/src/high.rs", high),
            (
                "crates/paceline/src/high/models.rs",
                "use crate::unknown;\n",
            ),
        ]);
        assert_eq!(find(&tree), []);
        assert_eq!(
            picture(&tree),
            ["low", "mid          low", "high         low mid"]
        );
    }

    #[test]
    fn a_circle_is_found_however_long() {
        let tree = tree(&[
            ("crates/paceline/src/a.rs", "\nuse crate::b;\n"),
            ("crates/paceline/src/b.rs", "use crate::c::x;\n"),
            ("crates/paceline/src/c.rs", "use crate::{a};\n"),
        ]);
        assert_eq!(find(&tree).len(), 3);
    }

    #[test]
    fn a_name_of_the_crate_that_hides_a_room_is_found() {
        let tree = tree(&[LOW, ("crates/paceline/src/a.rs", "use crate::Thing;\n")]);
        assert_eq!(find(&tree).len(), 1);
    }
}
