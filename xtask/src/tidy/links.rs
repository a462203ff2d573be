//! Relative links and anchors in Markdown exist, in the tree and not only on one disk.

use crate::markdown;
use crate::tree::Tree;

use super::Offence;

/// Finds links that lead nowhere.
pub(super) fn find(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (path, text) in tree.texts_ending(".md") {
        for (line, target) in markdown::links(text) {
            let wrong = fault(tree, path, &target);
            offences.extend(wrong.map(|message| Offence::new(path, line, message)));
        }
    }
    offences
}

/// What is wrong with a link from a document; nothing if it leads somewhere or out of the tree.
fn fault(tree: &Tree, from: &str, target: &str) -> Option<String> {
    let is_of_rustdoc = target.contains("::");
    if is_of_rustdoc || target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(file) = resolve(from, file).filter(|file| tree.exists(file)) else {
        return Some(format!("link to `{target}`, which does not exist"));
    };
    let document = tree.text(&file).filter(|_| file.ends_with(".md"));
    let known = |text| anchor.is_empty() || markdown::anchors(text).contains(anchor);
    if document.is_none_or(known) {
        None
    } else {
        Some(format!("link to `{target}`: `{file}` has no such heading"))
    }
}

/// The path from the root of what a document links to; nothing if it leaves the tree.
fn resolve(from: &str, file: &str) -> Option<String> {
    if file.is_empty() {
        return Some(from.to_owned());
    }
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let start = if file.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = Vec::new();
    for part in start.split('/').chain(file.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    /// The offences of a document `docs/a.md` beside a document and a source.
    fn offences(text: &str) -> Vec<Offence> {
        find(&tree(&[
            ("docs/a.md", text),
            ("README.md", "# Top\n## Two words\n"),
            ("src/x.rs", ""),
        ]))
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "# Here\n[a](../README.md#two-words) [b](#here) [c](../src) [d](/src/x.rs#L3) [e](https://example.org/x#y) [f](a.md) [g](Pool::join)\n";
        assert_eq!(offences(text), []);
    }

    #[test]
    fn links_that_lead_nowhere_are_told_with_their_line() {
        for target in [
            "gone.md",
            "#gone",
            "../README.md#gone",
            "../../outside.md",
            "README.md",
        ] {
            let found = offences(&format!("# Here\n\n[x]({target})\n"));
            assert_eq!(found.len(), 1, "{target}");
            assert_eq!(found[0].line, 3);
        }
    }
}
