//! Rules that need the end of an operand: division, LIKE, ORDER BY, and named columns of a query.

use std::ops::Range;

use super::{
    super::{infer, lex::Kind, source::Source, types},
    Pass,
};

/// Words that end a list of ORDER BY.
const ENDS: &[&str] = &[
    "limit",
    "offset",
    "fetch",
    "for",
    "rows",
    "range",
    "groups",
    "returning",
    "union",
    "except",
    "intersect",
];

impl Pass<'_, '_> {
    /// `a / b`: NULL in SQLite for a zero, an error in PostgreSQL.
    pub(super) fn division(&mut self, at: usize) -> Option<usize> {
        let is_literal = self.source.kind(at + 1) == Some(Kind::Number)
            && self
                .source
                .text(at + 1)
                .contains(|digit| ('1'..='9').contains(&digit));
        if is_literal {
            return None;
        }
        let end = end_of_operand(self.source, at + 1)?;
        self.closings.push((end, ")".to_owned()));
        let text = format!("{} pg_divisor(", self.source.text(at));
        self.put(at, at + 1, &text)
    }

    /// `a LIKE b`: a backslash escapes in PostgreSQL, and nothing does in SQLite.
    pub(super) fn like(&mut self, at: usize, word: &str) -> Option<usize> {
        let mut end = end_of_operand(self.source, at + 1)?;
        while self.source.is_mark(end, "||") {
            end = end_of_operand(self.source, end + 1)?;
        }
        let is_plain = end == at + 2
            && self.source.kind(at + 1) == Some(Kind::Text)
            && !self.source.text(at + 1).contains('\\');
        if !is_plain && !self.source.is_word(end, "escape") {
            self.closings.push((end, " ESCAPE '\\'".to_owned()));
        }
        self.put(at, at + 1, word)
    }

    /// `ORDER BY a, b DESC`: NULLs are the greatest values of PostgreSQL, and the least of SQLite.
    pub(super) fn order(&mut self, at: usize) {
        for item in items(self.source, at + 2).into_iter().rev() {
            if item.is_empty() || self.has_place_of_nulls(&item) || self.is_never_null(&item) {
                continue;
            }
            let place = if self.source.is_word(item.end - 1, "desc") {
                " NULLS FIRST"
            } else {
                " NULLS LAST"
            };
            self.closings.push((item.end, place.to_owned()));
        }
    }

    fn has_place_of_nulls(&self, item: &Range<usize>) -> bool {
        item.clone().any(|at| {
            self.source.is_word(at, "nulls") && self.source.is_one_of(at + 1, &["first", "last"])
        })
    }

    /// Whether the item is a column without NULLs: then its index still gives the order.
    fn is_never_null(&self, item: &Range<usize>) -> bool {
        let Some(schema) = &self.facts.schema else {
            return false;
        };
        let Some((name, behind)) = self.source.name(item.start) else {
            return false;
        };
        let is_alone = behind == item.end
            || behind + 1 == item.end && self.source.is_one_of(behind, &["asc", "desc"]);
        let tables = infer::tables(self.source);
        is_alone && tables.len() == 1 && schema.is_never_null(&tables[0], &name)
    }

    /// `(VALUES ..) AS x(a, b)`, `(SELECT ..) x(a, b)`: SQLite names columns only behind WITH.
    pub(super) fn named_columns(&mut self, at: usize) -> Option<usize> {
        if !self.source.is_one_of(at + 1, &["values", "select", "with"]) {
            return None;
        }
        let behind = self.source.behind_bracket(at);
        let alias = behind + usize::from(self.source.is_word(behind, "as"));
        let (_, open) = self.source.name(alias)?;
        if !self.source.is_mark(open, "(") || open != alias + 1 {
            return None;
        }
        let end = self.source.behind_bracket(open);
        let name = self.source.text(alias);
        let columns = self.source.range(open).start..self.source.range(end - 1).end;
        let columns = &self.source.sql()[columns];
        self.gap(at);
        self.output.push_str(&format!("(WITH {name}{columns} AS "));
        self.keep(at);
        let mut next = at + 1;
        while next < behind {
            next = self.step(next);
        }
        self.output
            .push_str(&format!(" SELECT * FROM {name}) AS {name}"));
        self.copied = self.source.range(end - 1).end;
        Some(end)
    }
}

/// The items of the list that begins at `at`.
fn items(source: &Source<'_>, mut at: usize) -> Vec<Range<usize>> {
    let (mut items, mut start) = (Vec::new(), at);
    while at < source.len() && !source.is_mark(at, ")") && !source.is_one_of(at, ENDS) {
        if source.is_mark(at, ",") {
            items.push(start..at);
            start = at + 1;
        }
        let opens = source.is_mark(at, "(") || source.is_mark(at, "[");
        at = if opens {
            source.behind_bracket(at)
        } else {
            at + 1
        };
    }
    items.push(start..at);
    items
}

/// The token behind the operand at `at`, with its casts; `None` if none begins there.
fn end_of_operand(source: &Source<'_>, mut at: usize) -> Option<usize> {
    while source.is_mark(at, "-") || source.is_mark(at, "+") {
        at += 1;
    }
    let mut end = match source.kind(at)? {
        Kind::Word if source.is_word(at, "case") => behind_case(source, at),
        Kind::Word | Kind::Quoted => {
            let mut end = at + 1;
            while source.is_mark(end, ".") {
                end += 2;
            }
            if source.is_mark(end, "(") {
                source.behind_bracket(end)
            } else {
                end
            }
        }
        Kind::Mark if source.is_mark(at, "(") => source.behind_bracket(at),
        Kind::Mark | Kind::Operator => return None,
        _ => at + 1,
    };
    while source.is_mark(end, "::") {
        end = types::written(source, end + 1)?.behind;
    }
    Some(end)
}

fn behind_case(source: &Source<'_>, at: usize) -> usize {
    let mut depth = 0_usize;
    for index in at..source.len() {
        if source.is_word(index, "case") {
            depth += 1;
        } else if source.is_word(index, "end") {
            depth -= 1;
            if depth == 0 {
                return index + 1;
            }
        }
    }
    source.len()
}
