//! The first lines of docs/pattern.md count its rows, those that are open, and those without a test.

use crate::tree::Tree;

use super::Offence;

/// The document with the rows.
const PATTERN: &str = "docs/pattern.md";

/// Finds a count that is not true, or is missing.
pub(super) fn find(tree: &Tree) -> Vec<Offence> {
    let Some(text) = tree.text(PATTERN) else {
        return Vec::new();
    };
    let expected = sentence(text);
    let is_there = text.lines().any(|line| line == expected);
    let stale = text
        .lines()
        .position(|line| line.starts_with("**") && line.contains(" rows, "));
    let line = stale.map_or(1, |index| index + 1);
    let missing = (!is_there).then(|| Offence::new(PATTERN, line, format!("not `{expected}`")));
    missing.into_iter().collect()
}

/// The line that counts the rows.
fn sentence(text: &str) -> String {
    let rows: Vec<_> = rows(text).collect();
    let with = |mark: &str| rows.iter().filter(|row| row.contains(mark)).count();
    let (open, untested) = (with("**open**"), with("**no test**"));
    let untested = match untested {
        0 => String::new(),
        count => format!(" (and {count} without a test)"),
    };
    format!("**{} rows, {open} open**{untested}.", rows.len())
}

/// The rows of all tables, without the heads and the lines below these.
fn rows(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines();
    let below = text.lines().skip(1).chain([""]);
    let is_rule = |line: &str| line.starts_with("| ---");
    let in_table = lines.zip(below).filter(|(line, _)| line.starts_with('|'));
    let rows = in_table.filter(move |(line, below)| !is_rule(line) && !is_rule(below));
    rows.map(|(line, _)| line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    const TABLE: &str =
        "| what | test |\n| --- | --- |\n| a | **open** |\n| b | **no test** |\n| c | d |\n";

    fn offences(sentence: &str) -> Vec<Offence> {
        let text = format!("# The pattern\n\n{sentence}\n\n{TABLE}");
        find(&tree(&[(PATTERN, text.as_str())]))
    }

    #[test]
    fn a_count_that_is_true_passes() {
        assert_eq!(offences("**3 rows, 1 open** (and 1 without a test)."), []);
    }

    #[test]
    fn a_count_that_is_stale_is_told_with_its_line() {
        let found = offences("**4 rows, 1 open** (and 1 without a test).");
        assert_eq!((found.len(), found[0].line), (1, 3));
        assert_eq!(offences("").len(), 1);
    }
}
