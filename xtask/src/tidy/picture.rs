//! The functions that a picture in ARCHITECTURE.md names exist: `[Line::next]`, `[turn::join]`.

use crate::rust_text::{code_only, contains_word, is_word_char};
use crate::tree::Tree;

use super::Offence;

/// The document with the pictures.
const DOCUMENT: &str = "ARCHITECTURE.md";

/// Where the functions are: in this folder of each crate.
const SOURCES: &str = "/src/";

/// Finds names in pictures that no function has.
pub(super) fn find(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (line, owner, function) in named(tree.text(DOCUMENT).unwrap_or_default()) {
        if !exists(tree, owner, function) {
            let message = format!("there is no function `{owner}::{function}`");
            offences.push(Offence::new(DOCUMENT, line, message));
        }
    }
    offences
}

/// The pairs in brackets inside of fences, with their lines: type or module, and function.
fn named(document: &str) -> Vec<(usize, &str, &str)> {
    let mut named = Vec::new();
    let mut inside = false;
    for (index, line) in document.lines().enumerate() {
        if line.starts_with("```") {
            inside = !inside;
        }
        let spans = line
            .split('[')
            .skip(1)
            .filter_map(|rest| rest.split(']').next());
        let pairs = spans.filter_map(|span| span.split_once("::"));
        let pairs = pairs.filter(|(owner, name)| is_name(owner) && is_name(name) && inside);
        named.extend(pairs.map(|(owner, name)| (index + 1, owner, name)));
    }
    named
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_word_char)
}

/// Whether a type with an implementation, or a module, has a function of this name.
fn exists(tree: &Tree, owner: &str, function: &str) -> bool {
    let function = format!("fn {function}");
    let is_module = owner.starts_with(char::is_lowercase);
    let files = tree
        .texts_ending(".rs")
        .filter(|(path, _)| path.starts_with("crates/") && path.contains(SOURCES));
    files.into_iter().any(|(path, text)| {
        let code = code_only(text);
        let is_of_owner = if is_module {
            path.contains(&format!("/{owner}.rs")) || path.contains(&format!("/{owner}/"))
        } else {
            let mut heads = code
                .lines()
                .filter(|line| line.trim_start().starts_with("impl"));
            heads.any(|line| contains_word(line, owner))
        };
        is_of_owner && code.lines().any(|line| contains_word(line, &function))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    /// The lines that offend in a picture of these lines.
    fn lines(picture: &str) -> Vec<usize> {
        let document = format!("# Map\n\n[no::picture]\n```text\n{picture}\n```\n");
        let tree = tree(&[
            (DOCUMENT, document.as_str()),
            (
                "crates/paceline/src/line.rs",
                "impl Line<'_> {\n    fn next(&self) {}\n}\n",
            ),
            (
                "crates/paceline/src/turn/open.rs",
                "pub(super) fn wait() {}\n",
            ),
        ]);
        find(&tree)
            .into_iter()
            .map(|offence| offence.line)
            .collect()
    }

    #[test]
    fn functions_that_exist_pass() {
        assert_eq!(
            lines("waits [Line::next]\nopen [turn::wait] [open::wait]"),
            [0; 0]
        );
    }

    #[test]
    fn a_function_that_is_gone_is_found() {
        assert_eq!(
            lines("waits [Line::previous]\nopen [pool::wait]\n[Queue::next]"),
            [5, 6, 7]
        );
    }
}
