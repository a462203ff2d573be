//! How a planted fault changes the code: a text is found exactly once, and replaced.
//!
//! White space does not count in the search, so that code may be moved and formatted anew without a change
//! of the table.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::rust_text::code_only;
use crate::tree::Tree;

/// One replacement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The folder of the table; a file of the same name with `.rs` belongs to it.
    pub(crate) folder: String,
    /// Where in it the text is.
    pub(crate) place: Place,
    /// The text to find.
    pub(crate) find: String,
    /// The text to put in its place.
    pub(crate) put: String,
}

/// Where the text of an edit is sought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Everywhere in the folder.
    Anywhere,
    /// In functions of this name.
    Function(String),
    /// In the file whose path ends like this, in any folder of the same crate.
    File(String),
}

/// Where a text was found.
struct Found<'t> {
    path: &'t str,
    range: Range<usize>,
}

/// The files that these edits change, with their new contents.
///
/// All texts are sought in the code as it is in the tree, and none may overlap another.
pub(crate) fn planted(tree: &Tree, edits: &[Edit]) -> Result<BTreeMap<String, String>, String> {
    let mut changes: BTreeMap<&str, Vec<(Range<usize>, &str)>> = BTreeMap::new();
    for edit in edits {
        let Found { path, range } = edit.only_match(tree)?;
        changes.entry(path).or_default().push((range, &edit.put));
    }
    let files = changes.into_iter();
    files
        .map(|(path, changes)| {
            let text = tree.text(path).unwrap_or_default();
            Ok((path.to_owned(), replaced(path, text, changes)?))
        })
        .collect()
}

/// A text with several parts replaced.
fn replaced(
    path: &str,
    text: &str,
    mut changes: Vec<(Range<usize>, &str)>,
) -> Result<String, String> {
    changes.sort_by_key(|(range, _)| range.start);
    let overlap = changes
        .windows(2)
        .any(|pair| pair[0].0.end > pair[1].0.start);
    if overlap {
        return Err(format!("two of its edits overlap in `{path}`"));
    }
    let mut text = text.to_owned();
    for (range, put) in changes.into_iter().rev() {
        text.replace_range(range, put.trim());
    }
    Ok(text)
}

impl Edit {
    /// The one place where the text is.
    fn only_match<'t>(&self, tree: &'t Tree) -> Result<Found<'t>, String> {
        let files = tree
            .texts_ending(".rs")
            .filter(|(path, _)| self.covers(path));
        let mut all: Vec<_> = files
            .flat_map(|(path, text)| self.matches(path, text))
            .collect();
        match (all.pop(), all.len()) {
            (Some(found), 0) => Ok(found),
            (Some(last), more) => Err(format!(
                "its text is there {} times, last in `{}`; once is asked for: {}",
                more + 1,
                last.path,
                self.excerpt()
            )),
            (None, _) => Err(format!("its text is not there: {}", self.excerpt())),
        }
    }

    /// Whether a file is searched.
    fn covers(&self, path: &str) -> bool {
        match &self.place {
            Place::File(end) => {
                is_in_crate(path, &self.folder) && path.ends_with(&format!("/{end}"))
            }
            _ => {
                let rest = path.strip_prefix(&self.folder);
                rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            }
        }
    }

    /// Every place of a file where the text is.
    fn matches<'t>(&self, path: &'t str, text: &'t str) -> Vec<Found<'t>> {
        let ranges = Squeezed::of(text).ranges_of(&self.find);
        let all = ranges.into_iter().map(|range| Found { path, range });
        match &self.place {
            Place::Function(name) => {
                let bodies = functions(text, name);
                let inside = |found: &Found<'_>| {
                    let within = |body: &Range<usize>| {
                        body.start <= found.range.start && found.range.end <= body.end
                    };
                    bodies.iter().any(within)
                };
                all.filter(inside).collect()
            }
            _ => all.collect(),
        }
    }

    /// The beginning of the text, for messages.
    fn excerpt(&self) -> String {
        let first = self.find.trim().lines().next().unwrap_or_default();
        format!("`{first}`")
    }
}

/// Whether a file belongs to the crate in which a folder is.
fn is_in_crate(path: &str, folder: &str) -> bool {
    let root = folder.split("/src").next().unwrap_or(folder);
    path.strip_prefix(root)
        .is_some_and(|rest| rest.starts_with("/src/"))
}

/// A text without its white space, and where each byte of it was.
struct Squeezed {
    text: String,
    at: Vec<usize>,
}

impl Squeezed {
    /// Leaves the white space out.
    fn of(text: &str) -> Squeezed {
        let mut squeezed = Squeezed {
            text: String::with_capacity(text.len()),
            at: Vec::with_capacity(text.len()),
        };
        for (at, c) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
            squeezed.text.push(c);
            squeezed.at.extend(at..at + c.len_utf8());
        }
        squeezed
    }

    /// Where `words` are in the original text, whatever white space is between them.
    fn ranges_of(&self, words: &str) -> Vec<Range<usize>> {
        let words = Squeezed::of(words).text;
        let starts = self.text.match_indices(&words).map(|(start, _)| start);
        starts
            .map(|start| self.at[start]..self.at[start + words.len() - 1] + 1)
            .collect()
    }
}

/// The functions of this name, from `fn` to the closing brace.
fn functions(text: &str, name: &str) -> Vec<Range<usize>> {
    let code = code_only(text);
    let head = format!("fn {name}");
    let starts = code.match_indices(&head).map(|(start, _)| start);
    let named = starts.filter(|start| {
        let after = code[start + head.len()..].chars().next();
        matches!(after, Some('(' | '<'))
    });
    named
        .filter_map(|start| Some(start..start + body_end(&code[start..])?))
        .collect()
}

/// Where the body of a function ends; nothing if it has none.
fn body_end(code: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0, 0);
    for (at, c) in code.char_indices() {
        match c {
            '[' | '(' => brackets += 1,
            ']' | ')' => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' if braces == 1 => return Some(at + 1),
            '}' => braces -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    /// Two files of a folder, and one of another.
    fn rooms() -> Tree {
        tree(&[
            ("crates/x/src/a.rs", "fn one() {\n    let x = f(1);\n    g(x);\n}\n\nfn two(n: [u8; 2]) {\n    g(2);\n}\n"),
            ("crates/x/src/a/deep.rs", "// fn two(\nfn three() {\n    g(3);\n    g(3);\n}\n"),
            ("crates/x/src/b.rs", "fn four() {\n    let x = f(1);\n}\n"),
        ])
    }

    /// An edit of the first folder.
    fn edit(place: Place, find: &str, put: &str) -> Edit {
        let (find, put) = (find.to_owned(), put.to_owned());
        let folder = "crates/x/src/a".to_owned();
        Edit {
            folder,
            place,
            find,
            put,
        }
    }

    /// The only file that an edit changes.
    fn changed(edits: &[Edit]) -> (String, String) {
        planted(&rooms(), edits).unwrap().pop_first().unwrap()
    }

    /// Why an edit is refused.
    fn refusal(edits: &[Edit]) -> String {
        planted(&rooms(), edits).unwrap_err()
    }

    #[test]
    fn white_space_does_not_count() {
        let (path, text) = changed(&[edit(Place::Anywhere, "let x=f( 1 );\ng(x)", "g(0)")]);
        assert_eq!(path, "crates/x/src/a.rs");
        assert!(text.starts_with("fn one() {\n    g(0);\n}\n"), "{text}");
    }

    #[test]
    fn a_text_is_there_exactly_once() {
        assert!(refusal(&[edit(Place::Anywhere, "g(4)", "")]).contains("not there"));
        assert!(refusal(&[edit(Place::Anywhere, "g(3);", "")]).contains("2 times"));
    }

    #[test]
    fn a_function_narrows_the_search() {
        let edits = [edit(Place::Function("two".to_owned()), "g(", "h(")];
        assert!(changed(&edits)
            .1
            .ends_with("fn two(n: [u8; 2]) {\n    h(2);\n}\n"));
        let none = [edit(Place::Function("tw".to_owned()), "g(", "h(")];
        assert!(refusal(&none).contains("not there"));
    }

    #[test]
    fn a_file_may_be_of_another_folder() {
        let edits = [edit(Place::File("b.rs".to_owned()), "f(1)", "f(2)")];
        assert_eq!(changed(&edits).0, "crates/x/src/b.rs");
    }

    /// The name of one crate may begin with the name of another.
    #[test]
    fn a_file_is_sought_in_the_crate_of_the_table() {
        let tree = tree(&[
            ("crates/x/src/b.rs", "f(1)\n"),
            ("crates/x-server/src/b.rs", "f(1)\n"),
        ]);
        let mut edit = edit(Place::File("b.rs".to_owned()), "f(1)", "f(2)");
        for folder in ["crates/x", "crates/x-server"] {
            edit.folder = format!("{folder}/src/a");
            let changed = planted(&tree, std::slice::from_ref(&edit)).unwrap();
            let paths: Vec<_> = changed.into_keys().collect();
            assert_eq!(paths, [format!("{folder}/src/b.rs")]);
        }
    }

    #[test]
    fn several_edits_of_a_file_are_sought_in_the_original() {
        let edits = [
            edit(Place::Anywhere, "g(x)", "f(1)"),
            edit(Place::Anywhere, "f(1)", "g(x)"),
        ];
        assert!(changed(&edits).1.contains("let x = g(x);\n    f(1);"));
        let overlapping = [
            edit(Place::Anywhere, "x = f(1)", ""),
            edit(Place::Anywhere, "f(1);", ""),
        ];
        assert!(refusal(&overlapping).contains("overlap"));
    }
}
