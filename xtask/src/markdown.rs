//! Markdown as text: links, anchors of headings, words in backticks, and prose.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Something found in a document, with the number of its line.
pub(crate) type Found = (usize, String);

/// The targets of all links: inline, by reference and in HTML.
pub(crate) fn links(document: &str) -> Vec<Found> {
    let parser = parser(document);
    let definitions = parser.reference_definitions().iter();
    let defined = definitions.map(|(_, it)| (line_of(document, &it.span), it.dest.to_string()));
    let mut found: Vec<_> = defined.collect();
    for (event, range) in parser.into_offset_iter() {
        let targets = match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                vec![dest_url.into_string()]
            }
            Event::Html(html) | Event::InlineHtml(html) => values(&html, &["href", "src"]),
            _ => continue,
        };
        let line = line_of(document, &range);
        found.extend(targets.into_iter().map(|target| (line, target)));
    }
    found.sort();
    found.dedup();
    found
}

/// The words in backticks.
pub(crate) fn code_spans(document: &str) -> Vec<Found> {
    let events = parser(document).into_offset_iter();
    let spans = events.filter_map(|(event, range)| match event {
        Event::Code(code) => Some((line_of(document, &range), code.into_string())),
        _ => None,
    });
    spans.collect()
}

/// The anchors that can be linked to: those of the headings, as GitHub makes them, and explicit ones.
pub(crate) fn anchors(document: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    let mut heading = None;
    for event in parser(document) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let count = counts.entry(slug.clone()).or_default();
                anchors.insert(match *count {
                    0 => slug,
                    count => format!("{slug}-{count}"),
                });
                *count += 1;
            }
            Event::Text(text) | Event::Code(text) => heading.iter_mut().for_each(|it| *it += &text),
            Event::Html(html) | Event::InlineHtml(html) => {
                anchors.extend(values(&html, &["id", "name"]));
            }
            _ => {}
        }
    }
    anchors
}

/// The lines of prose with their numbers: code, in blocks and in backticks, is blank.
pub(crate) fn prose(document: &str) -> Vec<Found> {
    let mut prose = document.as_bytes().to_vec();
    for (event, range) in parser(document).into_offset_iter() {
        if matches!(event, Event::Code(_) | Event::Start(Tag::CodeBlock(_))) {
            let code = prose[range].iter_mut();
            code.filter(|byte| **byte != b'\n')
                .for_each(|byte| *byte = b' ');
        }
    }
    let prose = String::from_utf8_lossy(&prose);
    let lines = prose.lines().enumerate();
    lines
        .map(|(index, line)| (index + 1, line.to_owned()))
        .collect()
}

/// A parser for Markdown with tables.
fn parser(document: &str) -> Parser<'_> {
    Parser::new_ext(document, Options::ENABLE_TABLES)
}

/// The number of the line in which a range begins.
fn line_of(document: &str, range: &Range<usize>) -> usize {
    document[..range.start].matches('\n').count() + 1
}

/// The values of these attributes in HTML.
fn values(html: &str, attributes: &[&str]) -> Vec<String> {
    let of_attribute = |attribute: &&str| {
        let open = format!("{attribute}=\"");
        let ends = html.match_indices(&open).map(|(at, _)| at + open.len());
        let values = ends.filter_map(|at| Some(html[at..].split_once('"')?.0.to_owned()));
        values.collect::<Vec<_>>()
    };
    attributes.iter().flat_map(of_attribute).collect()
}

/// A heading as the anchor that GitHub makes of it.
fn slug(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let text = heading.trim().to_lowercase();
    text.chars()
        .filter(kept)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
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
            "[a](docs/a.md) and [b](<b.md#x> \"title\")\n\n[c]: c.md\n<img src=\"d.svg\">\n";
        assert_eq!(
            targets_of(document),
            ["b.md#x", "docs/a.md", "c.md", "d.svg"]
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
    fn prose_is_what_is_no_code() {
        let document = "a `b` c\n```\nd\n```\n\n    e\n\n| `f` | g |\n";
        let words = prose(document).into_iter().map(|(number, line)| {
            let words: Vec<_> = line.split_whitespace().collect();
            (number, words.join(" "))
        });
        let words: Vec<_> = words.filter(|(_, words)| !words.is_empty()).collect();
        assert_eq!(words, [(1, "a c".to_owned()), (8, "| | g |".to_owned())]);
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
