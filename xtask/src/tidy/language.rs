//! Comments in plain technical English: they name the actor. Riddles about persons without a name are found by
//! their words.

use crate::rust_text::contains_word;
use crate::tree::Tree;

use super::Offence;

/// Where comments are held to it.
const PLAIN: &[&str] = &["crates/paceline/src/"];

/// What no comment says.
const BANNED: &[&str] = &[
    "who", "whom", "whoever", "somebody", "nobody", "anybody", "told", "tells", "in vain",
];

/// Finds comments that speak in riddles.
pub(super) fn find(tree: &Tree) -> Vec<Offence> {
    let ours = |path: &str| PLAIN.iter().any(|folder| path.starts_with(folder));
    let mut offences = Vec::new();
    for (path, text) in tree.texts_ending(".rs").filter(|(path, _)| ours(path)) {
        for (index, line) in text.lines().enumerate() {
            let comment = comment_of(line).to_lowercase();
            let found = BANNED.iter().filter(|word| contains_word(&comment, word));
            offences.extend(found.map(|word| {
                let message = format!("name the actor instead of `{word}`");
                Offence::new(path, index + 1, message)
            }));
        }
    }
    offences
}

/// The words of a line that is a comment, without what is quoted as code.
fn comment_of(line: &str) -> String {
    match line.trim_start().strip_prefix("//") {
        Some(comment) => comment.split('`').step_by(2).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    /// The lines of a file of the core that offend.
    fn lines(text: &str) -> Vec<usize> {
        let found = find(&tree(&[("crates/paceline/src/a.rs", text)]));
        found.into_iter().map(|offence| offence.line).collect()
    }

    #[test]
    fn an_actor_without_a_name_is_found() {
        let text = "//! The leader waits.\n/// Whoever waits.\n    // It looks in vain.\n";
        assert_eq!(lines(text), [2, 3]);
    }

    #[test]
    fn code_and_parts_of_words_are_not() {
        let text = "/// The whole of [`Told::Asleep`].\nlet told = nobody();\n";
        assert_eq!(lines(text), [0; 0]);
    }
}
