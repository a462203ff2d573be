//! Documents and comments are in plain technical English: no subject without a name, none of the words that stand for
//! too many things. The words are in [`BANNED`]; what is not clean yet is in [`NOT_YET`], which only shrinks.

use crate::markdown;
use crate::rust_text::{comments_only, contains_word};
use crate::tree::Tree;

use super::Offence;

/// What is not said, and what to say instead.
const BANNED: [(&str, &str); 13] = [
    ("who", NAME_THE_ACTOR),
    ("whoever", NAME_THE_ACTOR),
    ("somebody", NAME_THE_ACTOR),
    ("nobody", NAME_THE_ACTOR),
    ("told", NAME_THE_ACT),
    ("untold", NAME_THE_ACT),
    ("tells", NAME_THE_ACT),
    ("stands", "`is`, `waits` or `means`"),
    ("goes", "name the step: `leaves`, `ends`, `moves to`"),
    ("comes", "name the step: `arrives`, `follows`, `returns`"),
    ("in vain", "say what it found instead: `without an event`"),
    ("a word to", "name the message"),
    ("by surprise", "`without an announcement`"),
];

/// Instead of a subject without a name.
const NAME_THE_ACTOR: &str =
    "name the actor: the caller, the leader, the pool, the kernel, the peer";

/// Instead of a verb for everything.
const NAME_THE_ACT: &str = "`returns`, `reports`, `notifies` or `is given`";

/// Rust files that are not clean yet, and folders with such files. Documents are clean everywhere. Entries are taken out,
/// never added; one that is clean is an offence.
const NOT_YET: [&str; 5] = [
    "crates/paceline/src",
    "crates/paceline/tests",
    "crates/paceline-pg",
    "crates/paceline-server/src",
    "crates/paceline-server/tests",
];

/// Finds banned words in documents and comments, and entries of [`NOT_YET`] that are clean.
pub(super) fn find(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    let mut unclean = [false; NOT_YET.len()];
    for (path, text) in tree.texts() {
        let found = in_file(path, text);
        match NOT_YET.iter().position(|entry| covers(entry, path)) {
            Some(entry) => unclean[entry] |= !found.is_empty(),
            None => offences.extend(found),
        }
    }
    let entries = NOT_YET.into_iter().zip(unclean);
    let clean = entries.filter(|(entry, unclean)| !unclean && tree.exists(entry));
    offences.extend(clean.map(|(entry, _)| {
        Offence::new(
            entry,
            1,
            "is clean: take it off the list in `tidy/phrasing.rs`",
        )
    }));
    offences
}

/// Whether an entry is this Rust file, or a folder above it.
fn covers(entry: &str, path: &str) -> bool {
    let rest = path.strip_prefix(entry);
    path.ends_with(".rs") && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The banned words in one file.
fn in_file(path: &str, text: &str) -> Vec<Offence> {
    if path.ends_with(".md") {
        in_lines(path, markdown::prose(text))
    } else if path.ends_with(".rs") {
        let comments = comments_only(text);
        let lines = comments.lines().map(without_code).enumerate();
        in_lines(path, lines.map(|(index, line)| (index + 1, line)))
    } else {
        Vec::new()
    }
}

/// A line of a comment with its words in backticks taken out.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// The banned words in lines with their numbers.
fn in_lines(path: &str, lines: impl IntoIterator<Item = (usize, String)>) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (number, line) in lines {
        let line = line.to_lowercase();
        let found = BANNED.iter().filter(|(word, _)| contains_word(&line, word));
        offences.extend(
            found.map(|(word, instead)| {
                Offence::new(path, number, format!("not `{word}`: {instead}"))
            }),
        );
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    /// The offending lines of a file.
    fn lines(path: &str, text: &str) -> Vec<usize> {
        find(&tree(&[(path, text)]))
            .iter()
            .map(|offence| offence.line)
            .collect()
    }

    #[test]
    fn prose_is_searched_and_code_is_not() {
        let document = "Nobody leads.\n`who` and\n```\nwho\n```\nWhole; it is told.\n";
        assert_eq!(lines("a.md", document), [1, 6]);
        let source = "//! Who asks.\nlet who = \"told\"; // `told`\nfn f() {} // in vain\n";
        assert_eq!(lines("a.rs", source), [1, 3]);
        assert!(lines("a.toml", "# nobody\n").is_empty());
    }

    #[test]
    fn a_message_says_what_to_write_instead() {
        let found = find(&tree(&[("a.md", "It tells.\n")]));
        assert!(
            found[0].message.starts_with("not `tells`: `returns`"),
            "{:?}",
            found[0]
        );
    }

    #[test]
    fn an_entry_is_a_rust_file_or_a_folder_of_them() {
        assert!(covers("src/a.rs", "src/a.rs") && covers("src", "src/a.rs"));
        assert!(!covers("src/a", "src/a.rs") && !covers("sr", "src/a.rs"));
        assert!(!covers("src", "src/a.md"));
    }

    #[test]
    fn an_entry_is_exempt_until_it_is_clean() {
        for entry in NOT_YET {
            let file = format!("{entry}/a.rs");
            assert!(lines(&file, "// Nobody leads.\n").is_empty(), "{entry}");
            assert_eq!(lines(&file, "// No thread leads.\n"), [1], "{entry}");
        }
    }
}
