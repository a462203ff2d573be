//! Files and tests that the documents name exist.

use crate::markdown;
use crate::rust_text::{code_only, contains_word, is_word_char};
use crate::tree::Tree;

use super::Offence;

/// The package that short paths like `src/lib.rs` mean.
const LIBRARY: &str = "crates/paceline";

/// Folders of that package.
const IN_LIBRARY: [&str; 3] = ["src/", "tests/", "examples/"];

/// Folders of the workspace.
const IN_WORKSPACE: [&str; 4] = ["crates/", "docs/", "xtask/", "faults/"];

/// The documents whose tests are looked up.
const NAMING_TESTS: [&str; 2] = ["docs/pattern.md", "docs/protocol.md"];

/// Finds paths in backticks that do not exist.
pub(super) fn find_paths(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (path, text) in tree
        .texts_ending(".md")
        .filter(|(path, _)| names_paths(path))
    {
        for (line, span) in markdown::code_spans(text) {
            let missing = named_path(&span).filter(|named| !exists(tree, named));
            offences.extend(
                missing.map(|named| Offence::new(path, line, format!("`{named}` does not exist"))),
            );
        }
    }
    offences
}

/// Whether there is a file, a folder, or a planted fault of this path. A fault is named as `faults/NAME`.
fn exists(tree: &Tree, path: &str) -> bool {
    tree.exists(path)
        || path
            .strip_prefix("faults/")
            .is_some_and(|name| is_fault(tree, name))
}

/// Whether a table has an entry of this name.
fn is_fault(tree: &Tree, name: &str) -> bool {
    let head = format!("[{name}]");
    let mut tables = tree
        .texts_ending(".toml")
        .filter(|(path, _)| path.starts_with("faults/"));
    tables.any(|(_, text)| text.lines().any(|line| line == head))
}

/// Finds tests named as `FILE.rs::NAME` that are not there.
pub(super) fn find_tests(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    let documents = NAMING_TESTS
        .iter()
        .filter_map(|path| Some((path, tree.text(path)?)));
    for (path, text) in documents {
        for (index, line) in text.lines().enumerate() {
            let missing = named_tests(line)
                .into_iter()
                .filter(|(file, name)| !has_function(tree, file, name));
            let offence = |(file, name)| {
                Offence::new(
                    path,
                    index + 1,
                    format!("`{file}` has no function `{name}`"),
                )
            };
            offences.extend(missing.map(offence));
        }
    }
    offences
}

/// Whether a document is one that must name only paths that exist.
fn names_paths(document: &str) -> bool {
    document.starts_with("docs/") || ["README.md", "ARCHITECTURE.md"].contains(&document)
}

/// The path from the root that a word in backticks means; nothing if it does not look like one of ours.
fn named_path(span: &str) -> Option<String> {
    let path = span
        .split("::")
        .next()?
        .split(':')
        .next()?
        .trim_end_matches('/');
    let looks_like_one = !path.is_empty() && path.chars().all(is_path_char) && !path.contains("..");
    from_root(path).filter(|_| looks_like_one)
}

/// A path from the root, with the library's folder in front of a short one.
fn from_root(path: &str) -> Option<String> {
    if IN_LIBRARY.iter().any(|folder| path.starts_with(folder)) {
        return Some(format!("{LIBRARY}/{path}"));
    }
    let is_ours = IN_WORKSPACE.iter().any(|folder| path.starts_with(folder));
    is_ours.then(|| path.to_owned())
}

/// The pairs of file and function in a line.
fn named_tests(line: &str) -> Vec<(String, String)> {
    let pair = |(at, _): (usize, &str)| {
        let file = line[..at].rsplit(|c| !is_path_char(c)).next()?;
        let path = line[at + ".rs::".len()..]
            .split(|c| !is_word_char(c) && c != ':')
            .next()?;
        let name = path.trim_end_matches(':').rsplit("::").next()?;
        Some((from_root(&format!("{file}.rs"))?, name.to_owned()))
    };
    line.match_indices(".rs::").filter_map(pair).collect()
}

/// Whether a file defines a function of this name.
fn has_function(tree: &Tree, file: &str, name: &str) -> bool {
    let code = code_only(tree.text(file).unwrap_or_default());
    !name.is_empty()
        && code
            .lines()
            .any(|line| contains_word(line, &format!("fn {name}")))
}

/// Whether a character can be part of a path.
fn is_path_char(c: char) -> bool {
    is_word_char(c) || matches!(c, '/' | '.' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn a_planted_fault_is_named_like_a_file() {
        let tree = tree(&[("faults/a.toml", "under = 'x'\n\n[kept]\n")]);
        assert!(exists(&tree, "faults/kept") && exists(&tree, "faults/a.toml"));
        assert!(!exists(&tree, "faults/lost"));
    }

    #[test]
    fn short_paths_mean_the_library() {
        assert_eq!(
            named_path("src/turn.rs").as_deref(),
            Some("crates/paceline/src/turn.rs")
        );
        assert_eq!(
            named_path("tests/pool.rs::a_test").as_deref(),
            Some("crates/paceline/tests/pool.rs")
        );
        assert_eq!(named_path("docs/").as_deref(), None);
        assert_eq!(
            named_path("xtask/src/main.rs:12").as_deref(),
            Some("xtask/src/main.rs")
        );
    }

    #[test]
    fn what_is_no_path_of_ours_is_left_alone() {
        for span in [
            "Pool::join",
            "src/*.rs",
            "cargo test --test x",
            "std/io",
            "crates/<name>/src",
        ] {
            assert_eq!(named_path(span), None, "{span}");
        }
    }

    #[test]
    fn a_path_that_is_gone_is_told() {
        let files = [
            ("docs/a.md", "x\n`src/gone.rs` `src/here.rs` `src`\n"),
            ("crates/paceline/src/here.rs", ""),
        ];
        let found = find_paths(&tree(&files));
        assert_eq!(
            found,
            [Offence::new(
                "docs/a.md",
                2,
                "`crates/paceline/src/gone.rs` does not exist"
            )]
        );
    }

    #[test]
    fn tests_are_looked_up_by_name() {
        let document = "| L1 | `tests/pool.rs::one_leader` |\nsee src/lead.rs::tests::loom_two, tests/pool.rs::gone.\n\
                        `crates/paceline-server/tests/pool.rs::one_leader`\n";
        let files = [
            ("docs/pattern.md", document),
            (
                "crates/paceline/tests/pool.rs",
                "// fn gone\nfn one_leader() {}\nfn gone_too() {}\n",
            ),
            ("crates/paceline/src/lead.rs", "    fn loom_two() {}\n"),
        ];
        let found = find_tests(&tree(&files));
        assert_eq!(
            found,
            [
                Offence::new(
                    "docs/pattern.md",
                    2,
                    "`crates/paceline/tests/pool.rs` has no function `gone`"
                ),
                Offence::new(
                    "docs/pattern.md",
                    3,
                    "`crates/paceline-server/tests/pool.rs` has no function `one_leader`"
                ),
            ]
        );
    }
}
