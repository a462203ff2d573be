//! What must not be left in the tree: unfinished code, ignored tests, paths of one machine, foreign words.
//! Some patterns are written in two parts, so that this file does not offend by naming them.

use crate::rust_text::{code_only, contains_word};
use crate::tree::Tree;

use super::Offence;

/// What may not stand in the code of a Rust file.
const IN_CODE: [&str; 4] = ["todo!", "unimplemented!", "dbg!", "#[ignore"];

/// What no Rust file may contain: marks of unfinished work, and doc tests that do not run.
const ANYWHERE: [&str; 3] = [
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("```", "ignore"),
];

/// Folders that belong to a machine.
const MACHINE_FOLDERS: [&str; 4] = ["work", "root", "home", "tmp"];

/// Words that do not belong into the project's text, in lower case.
const FOREIGN: [&str; 4] = [
    concat!("sub", "agent"),
    concat!("sub-", "agent"),
    concat!("this ", "session"),
    concat!("c", "eo"),
];

/// Finds unfinished code and tests that are not run.
pub(super) fn find_unfinished(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (path, text) in tree.texts_ending(".rs") {
        let in_code = in_lines(path, &code_only(text), &IN_CODE, |line, word| {
            line.contains(word)
        });
        let anywhere = in_lines(path, text, &ANYWHERE, contains_word);
        offences.extend(in_code.into_iter().chain(anywhere));
    }
    offences
}

/// Finds absolute paths of one machine.
pub(super) fn find_machine_paths(tree: &Tree) -> Vec<Offence> {
    let by_file = |(path, text)| in_lines(path, text, &MACHINE_FOLDERS, holds_machine_path);
    tree.texts().flat_map(by_file).collect()
}

/// Finds words that do not belong here.
pub(super) fn find_foreign_words(tree: &Tree) -> Vec<Offence> {
    let by_file = |(path, text): (&str, &str)| {
        in_lines(path, &text.to_lowercase(), &FOREIGN, holds_foreign_word)
    };
    tree.texts().flat_map(by_file).collect()
}

/// An offence for every line and pattern that `holds` finds together.
fn in_lines(
    path: &str,
    text: &str,
    patterns: &[&str],
    holds: fn(&str, &str) -> bool,
) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let found = patterns.iter().filter(|pattern| holds(line, pattern));
        offences.extend(found.map(|pattern| {
            Offence::new(path, index + 1, format!("`{pattern}` may not stand here"))
        }));
    }
    offences
}

/// Whether a line has a path that begins in this folder; one that only passes through such a folder is none.
fn holds_machine_path(line: &str, folder: &str) -> bool {
    let start = format!("/{folder}/");
    let goes_on =
        |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | ')' | '*' | '/' | '~');
    line.match_indices(&start)
        .any(|(at, _)| !line[..at].ends_with(goes_on))
}

/// Whether a line has a foreign word; the shortest of them is often a part of innocent ones.
fn holds_foreign_word(line: &str, word: &str) -> bool {
    match word.len() {
        0..=3 => contains_word(line, word),
        _ => line.contains(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    /// The lines that offend in a Rust file.
    fn unfinished(text: &str) -> Vec<usize> {
        let found = find_unfinished(&tree(&[("src/a.rs", text)]));
        found.into_iter().map(|offence| offence.line).collect()
    }

    #[test]
    fn unfinished_code_is_found_in_code_alone() {
        assert_eq!(
            unfinished("fn a() { todo!() }\n#[ignore = \"slow\"]\nlet b = dbg!(c);\n"),
            [1, 2, 3]
        );
        assert!(unfinished("// unlike todo!()\nlet a = \"#[ignore]\";\n").is_empty());
    }

    #[test]
    fn marks_and_ignored_doc_tests_are_found_in_comments_too() {
        let text = format!("// {} later\n/// {}\n", ANYWHERE[0], ANYWHERE[2]);
        assert_eq!(unfinished(&text), [1, 2]);
    }

    #[test]
    fn a_path_of_a_machine_is_found_and_a_relative_one_is_not() {
        let path = |prefix: &str| format!("{prefix}/{}/x", MACHINE_FOLDERS[0]);
        let offences = |text: String| find_machine_paths(&tree(&[("a.toml", &text)])).len();
        assert_eq!(
            offences(path("see ")) + offences(path("\"")) + offences(path("")),
            3
        );
        assert_eq!(
            offences(path("target"))
                + offences(path("https://example.org"))
                + offences(path("{root}")),
            0
        );
    }

    #[test]
    fn foreign_words_are_found_in_any_case() {
        let offences = |text: &str| find_foreign_words(&tree(&[("a.md", text)])).len();
        assert_eq!(offences(&FOREIGN[0].to_uppercase()), 1);
        assert_eq!(offences(&format!("the {}.", FOREIGN[3])), 1);
        assert_eq!(offences(&format!("o{}n", FOREIGN[3])), 0);
    }
}
