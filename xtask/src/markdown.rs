//! Markdown as text: links, anchors of headings, and words in backticks. Fenced blocks are no prose.

use std::collections::{BTreeMap, BTreeSet};

/// Something found in a document, with the number of its line.
pub(crate) type Found = (usize, String);

/// What stands before and after a link's target.
const LINK_MARKS: [(&str, char); 3] = [("](", ')'), ("href=\"", '"'), ("src=\"", '"')];

/// The targets of all links: inline, by reference and in HTML.
pub(crate) fn links(document: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for (number, line) in prose(document) {
        let line = without_code(line);
        let inline = LINK_MARKS.iter().flat_map(|marks| targets(&line, marks));
        let targets = inline.chain(reference(&line));
        found.extend(targets.map(|target| (number, target)));
    }
    found
}

/// The words in backticks.
pub(crate) fn code_spans(document: &str) -> Vec<Found> {
    let spans = |(number, line): (usize, &str)| {
        let spans = line.split('`').skip(1).step_by(2);
        spans
            .map(|span| (number, span.to_owned()))
            .collect::<Vec<_>>()
    };
    prose(document).into_iter().flat_map(spans).collect()
}

/// The anchors that can be linked to: those of the headings, as GitHub makes them, and explicit ones.
pub(crate) fn anchors(document: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(document) {
        if let Some(heading) = heading(line) {
            let slug = slug(heading);
            let count: &mut usize = seen.entry(slug.clone()).or_default();
            anchors.insert(if *count == 0 {
                slug
            } else {
                format!("{slug}-{count}")
            });
            *count += 1;
        }
        let explicit = [("id=\"", '"'), ("name=\"", '"')];
        anchors.extend(explicit.iter().flat_map(|marks| targets(line, marks)));
    }
    anchors
}

/// The lines outside fenced blocks, with their numbers.
fn prose(document: &str) -> Vec<(usize, &str)> {
    let mut fence = None;
    let mut lines = Vec::new();
    for (index, line) in document.lines().enumerate() {
        let mark = fence_mark(line);
        match fence {
            None if mark.is_some() => fence = mark,
            None => lines.push((index + 1, line)),
            Some(open) if mark == Some(open) => fence = None,
            Some(_) => {}
        }
    }
    lines
}

/// The mark with which a line opens or closes a fenced block.
fn fence_mark(line: &str) -> Option<&'static str> {
    ["```", "~~~"]
        .into_iter()
        .find(|mark| line.trim_start().starts_with(mark))
}

/// A line with its words in backticks taken out.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// Everything that stands between the marks; a title behind a target is left out.
fn targets(line: &str, (open, close): &(&str, char)) -> Vec<String> {
    let starts = line
        .match_indices(open)
        .map(|(at, _)| &line[at + open.len()..]);
    let inside = starts.filter_map(|after| after.split_once(*close));
    inside.map(|(target, _)| bare(target)).collect()
}

/// The target of a line like `[name]: target`.
fn reference(line: &str) -> Option<String> {
    let (name, target) = line.trim_start().strip_prefix('[')?.split_once("]: ")?;
    (!name.contains(']')).then(|| bare(target))
}

/// A target without its title and its angle brackets.
fn bare(target: &str) -> String {
    let target = target.split_whitespace().next().unwrap_or_default();
    target
        .trim_start_matches('<')
        .trim_end_matches('>')
        .to_owned()
}

/// The text of a heading.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then(|| text.trim())
}

/// A heading as the anchor that GitHub makes of it.
fn slug(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let text = without_targets(heading).to_lowercase();
    text.chars()
        .filter(kept)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// A line in which each link is only its text.
fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once(')').map_or("", |(_, after)| after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The targets alone.
    fn targets_of(document: &str) -> Vec<String> {
        links(document)
            .into_iter()
            .map(|(_, target)| target)
            .collect()
    }

    #[test]
    fn links_of_every_form_are_found() {
        let document =
            "[a](docs/a.md) and [b](<b.md#x> \"title\")\n[c]: c.md\n<img src=\"d.svg\">\n";
        assert_eq!(
            targets_of(document),
            ["docs/a.md", "b.md#x", "c.md", "d.svg"]
        );
        assert_eq!(links("x\n\n[a](b)"), [(3, "b".to_owned())]);
    }

    #[test]
    fn code_holds_no_links() {
        assert!(targets_of("`[a](b)` and\n```\n[c](d)\n```\n~~~\n``` [e](f)\n~~~\n").is_empty());
        assert_eq!(targets_of("[`a`](b.md)"), ["b.md"]);
    }

    #[test]
    fn words_in_backticks_are_found_outside_blocks() {
        let document = "see `src/a.rs` or `b`\n```\n`c`\n```\n";
        assert_eq!(
            code_spans(document),
            [(1, "src/a.rs".to_owned()), (1, "b".to_owned())]
        );
    }

    #[test]
    fn anchors_are_made_as_github_makes_them() {
        let document = "# The turn: `join`, then\n## What's [new](x.md)?\n## Again\n## Again\n#no\n```\n# not\n```\n<a id=\"own\"></a>\n";
        let anchors: Vec<_> = anchors(document).into_iter().collect();
        assert_eq!(
            anchors,
            ["again", "again-1", "own", "the-turn-join-then", "whats-new"]
        );
    }
}
