//! The shape of files: they say what they are, they are short, and they end well.

use crate::tree::Tree;

use super::Offence;

/// The most lines a Rust file may have.
const MOST_LINES: usize = 600;

/// Where every file must open with its header.
const WITH_HEADERS: &[&str] = &[
    "crates/paceline/src/",
    "crates/paceline/tests/",
    "crates/paceline-server/src/",
    "crates/paceline-server/tests/",
    "crates/paceline-server/examples/",
    "crates/paceline-pg-wire/src/",
    "crates/paceline-pg/src/",
    "crates/paceline-pg/tests/",
    "crates/paceline-sqlite/src/",
    "crates/paceline-sqlite/tests/",
    "crates/paceline-check/",
    "crates/paceline-demo/",
    "crates/paceline-cli/",
    "fuzz/",
];

/// What a header begins with: its text, or the document beside the file that is its text.
const HEADERS: [&str; 2] = ["//!", "#![doc = include_str!("];

/// Finds files of the libraries that do not open with a header.
pub(super) fn find_missing_headers(tree: &Tree) -> Vec<Offence> {
    let ours = |path: &str| WITH_HEADERS.iter().any(|folder| path.starts_with(folder));
    let has_header = |text: &str| HEADERS.iter().any(|start| text.starts_with(start));
    let without = tree
        .texts_ending(".rs")
        .filter(|(path, text)| ours(path) && !has_header(text));
    without
        .map(|(path, _)| Offence::new(path, 1, "does not start with `//!`"))
        .collect()
}

/// Finds Rust files that are too long.
pub(super) fn find_long_files(tree: &Tree) -> Vec<Offence> {
    let lines = tree
        .texts_ending(".rs")
        .map(|(path, text)| (path, text.lines().count()));
    let long = lines.filter(|(_, lines)| *lines > MOST_LINES);
    long.map(|(path, lines)| {
        Offence::new(
            path,
            lines,
            format!("{lines} lines, more than {MOST_LINES}"),
        )
    })
    .collect()
}

/// The most characters a line may have, comments and literals included: `rustfmt` breaks neither.
const MOST_COLUMNS: usize = 100;

/// Where no line may be longer.
const WITHIN_COLUMNS: &[&str] = &["crates/paceline/src/"];

/// Finds lines of Rust files that are too long.
pub(super) fn find_long_lines(tree: &Tree) -> Vec<Offence> {
    let ours = |path: &str| WITHIN_COLUMNS.iter().any(|folder| path.starts_with(folder));
    let mut offences = Vec::new();
    for (path, text) in tree.texts_ending(".rs").filter(|(path, _)| ours(path)) {
        let widths = text.lines().map(|line| line.chars().count()).enumerate();
        let long = widths.filter(|(_, width)| *width > MOST_COLUMNS);
        offences.extend(long.map(|(index, width)| {
            let message = format!("{width} columns, more than {MOST_COLUMNS}");
            Offence::new(path, index + 1, message)
        }));
    }
    offences
}

/// Inputs of the fuzzer, which are not texts.
const INPUTS: &str = "fuzz/corpus/";

/// Finds white space at the end of lines, and files that do not end in exactly one newline.
pub(super) fn find_bad_endings(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    let texts = tree.texts().filter(|(path, _)| !path.starts_with(INPUTS));
    for (path, text) in texts {
        offences.extend(bad_lines(path, text));
        offences.extend(bad_end(path, text));
    }
    offences
}

/// White space at the end of lines.
fn bad_lines(path: &str, text: &str) -> Vec<Offence> {
    let lines = text.split('\n').enumerate();
    let bad = lines.filter(|(_, line)| line.ends_with(char::is_whitespace));
    bad.map(|(index, _)| Offence::new(path, index + 1, "white space at the end of the line"))
        .collect()
}

/// A file that ends in no newline, or in more than one. An empty file needs none.
fn bad_end(path: &str, text: &str) -> Option<Offence> {
    let newlines = text.len() - text.trim_end_matches('\n').len();
    let line = text.lines().count();
    match newlines {
        1 => None,
        0 if text.is_empty() => None,
        0 => Some(Offence::new(
            path,
            line,
            "no newline at the end of the file",
        )),
        _ => Some(Offence::new(
            path,
            line,
            "more than one newline at the end of the file",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn the_libraries_and_their_tests_need_headers() {
        let files = [
            ("crates/paceline/src/a.rs", "//! A.\n"),
            (
                "crates/paceline/src/a/mod.rs",
                "#![doc = include_str!(\"README.md\")]\n",
            ),
            ("crates/paceline/src/b.rs", "use c;\n"),
            ("crates/paceline/tests/c.rs", "// C.\n"),
            ("crates/paceline-server/tests/d.rs", "use e;\n"),
            ("crates/paceline/tests/data.txt", "x\n"),
            ("crates/paceline/build.rs", "fn main() {}\n"),
        ];
        let found = find_missing_headers(&tree(&files));
        let paths: Vec<_> = found.iter().map(|offence| offence.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "crates/paceline-server/tests/d.rs",
                "crates/paceline/src/b.rs",
                "crates/paceline/tests/c.rs"
            ]
        );
    }

    #[test]
    fn six_hundred_lines_pass_and_one_more_does_not() {
        let text = |lines| "x\n".repeat(lines);
        let files = [
            ("a.rs", text(600)),
            ("b.rs", text(601)),
            ("c.md", text(700)),
        ];
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| (*path, text.as_str()))
            .collect();
        let found = find_long_files(&tree(&files));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "b.rs");
    }

    #[test]
    fn a_hundred_columns_pass_and_one_more_does_not() {
        let text = format!("{}\n// {}\n", "ü".repeat(100), "x".repeat(98));
        let files = [
            ("crates/paceline/src/a.rs", text.as_str()),
            ("crates/paceline/src/a.md", text.as_str()),
            ("crates/other/src/a.rs", text.as_str()),
        ];
        let found = find_long_lines(&tree(&files));
        let places = found.iter().map(|it| (it.path.as_str(), it.line));
        let places: Vec<_> = places.collect();
        assert_eq!(places, [("crates/paceline/src/a.rs", 2)]);
    }

    #[test]
    fn endings_are_told_with_their_line() {
        let lines = |path: &str, text: &str| {
            let found = find_bad_endings(&tree(&[(path, text)]));
            found
                .into_iter()
                .map(|offence| offence.line)
                .collect::<Vec<_>>()
        };
        assert_eq!(lines("a.md", "one\ntwo \nthree\t\nfour\n"), [2, 3]);
        assert_eq!(lines("a.md", "one\ntwo"), [2]);
        assert_eq!(lines("a.md", "one\n\n"), [2]);
        assert!(lines("a.md", "").is_empty());
    }
}
