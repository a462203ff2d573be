//! Infers the types of results from the tokens of a statement.
//!
//! SQLite gives the declared type only of a result that is a column.

use std::ops::Range;

use super::{
    expression::{self, Hint},
    lex::Kind,
    names,
    source::Source,
};

/// One item of the list of results.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    pub(crate) hint: Hint,
    /// PostgreSQL's name for an expression; `None`: SQLite's name is the same.
    pub(crate) name: Option<String>,
}

/// The items of the list; empty if the statement returns `*` or has no list.
pub(crate) fn items(source: &Source<'_>) -> Vec<Item> {
    let Some(list) = list(source) else {
        return Vec::new();
    };
    let is_values = source.is_word(0, "values");
    let items = split(source, list);
    let is_star = |item: &Range<usize>| source.is_mark(item.end - 1, "*");
    if items.iter().any(|item| item.is_empty() || is_star(item)) {
        return Vec::new();
    }
    let known = |item: Range<usize>| {
        let bare = without_alias(source, item.clone());
        Item {
            name: (bare == item && !is_values).then(|| names::of(source, item)),
            hint: expression::hint(source, bare),
        }
    };
    items.into_iter().map(known).collect()
}

/// Whether the item ends with a name that follows an operand: an alias without `AS`.
fn has_alias(source: &Source<'_>, item: &Range<usize>) -> bool {
    if item.len() < 2 || source.is_word(item.end - 1, "end") {
        return false;
    }
    let is_name = matches!(source.kind(item.end - 1), Some(Kind::Word | Kind::Quoted));
    let before = item.end - 2;
    let is_token = matches!(
        source.kind(before),
        Some(Kind::Word | Kind::Quoted | Kind::Text | Kind::Number | Kind::Parameter)
    );
    let joins = ["is", "not", "and", "or", "in", "like", "then", "else"];
    let is_operand = source.is_mark(before, ")") || is_token && !source.is_one_of(before, &joins);
    is_name && is_operand
}

/// The tokens of the list of results.
fn list(source: &Source<'_>) -> Option<Range<usize>> {
    // The first row of VALUES.
    if source.is_word(0, "values") && source.is_mark(1, "(") {
        return Some(2..source.behind_bracket(1) - 1);
    }
    let mut start = None;
    let mut at = 0;
    while at < source.len() {
        if source.is_mark(at, "(") {
            at = source.behind_bracket(at);
            continue;
        }
        match start {
            None if source.is_one_of(at, &["select", "returning"]) => start = Some(at + 1),
            Some(start) if source.is_one_of(at, ENDS) => return Some(start..at),
            _ => {}
        }
        at += 1;
    }
    start.map(|start| start..source.len())
}

const ENDS: &[&str] = &[
    "from",
    "where",
    "group",
    "order",
    "limit",
    "union",
    "except",
    "intersect",
    "for",
    "offset",
    "having",
    "window",
];

fn split(source: &Source<'_>, list: Range<usize>) -> Vec<Range<usize>> {
    let mut start = list.start;
    start += usize::from(source.is_one_of(start, &["distinct", "all"]));
    let (mut items, mut at) = (Vec::new(), start);
    while at < list.end {
        if source.is_mark(at, "(") || source.is_mark(at, "[") {
            at = source.behind_bracket(at);
        } else {
            if source.is_mark(at, ",") {
                items.push(start..at);
                start = at + 1;
            }
            at += 1;
        }
    }
    items.push(start..list.end);
    items
}

/// The tokens of a result without `AS name`.
pub(super) fn without_alias(source: &Source<'_>, item: Range<usize>) -> Range<usize> {
    if item.len() > 2 && source.is_word(item.end - 2, "as") {
        return item.start..item.end - 2;
    }
    if has_alias(source, &item) {
        return item.start..item.end - 1;
    }
    item
}

/// The items of the list of a query within brackets.
pub(super) fn items_within(source: &Source<'_>, query: Range<usize>) -> Vec<Range<usize>> {
    let start = query.start + 1;
    let mut end = start;
    while end < query.end && !source.is_one_of(end, ENDS) {
        let opens = source.is_mark(end, "(") || source.is_mark(end, "[");
        end = if opens {
            source.behind_bracket(end)
        } else {
            end + 1
        };
    }
    split(source, start..end)
}

/// The arguments of a call, without `DISTINCT` and `ORDER BY`.
pub(super) fn arguments(source: &Source<'_>, list: Range<usize>) -> Vec<Range<usize>> {
    let order = (list.start..list.end).find(|at| source.are_words(*at, &["order", "by"]));
    let end = order.unwrap_or(list.end);
    let mut items = split(source, list.start..end);
    items.retain(|item| !item.is_empty());
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dialect::infer::Guess, types::Type};

    fn kinds(sql: &str) -> Vec<Option<Type>> {
        let all = items(&Source::split(sql).expect("tokens")[0]);
        let kind = |item: Item| match item.hint {
            Hint::Declared(declared) => Some(declared.kind),
            Hint::Literal => Some(Type::TEXT),
            _ => None,
        };
        all.into_iter().map(kind).collect()
    }

    #[test]
    fn expressions_show_their_types() {
        assert_eq!(
            kinds(
                "select 1, 1.5, 'a', true, count(*), a::date as d, cast(b as int), (1) = 2 from t"
            ),
            [
                Some(Type::INT4),
                Some(Type::NUMERIC),
                Some(Type::TEXT),
                Some(Type::BOOL),
                Some(Type::INT8),
                Some(Type::DATE),
                Some(Type::INT4),
                Some(Type::BOOL)
            ]
        );
        assert_eq!(kinds("select *, 1 from t"), []);
        assert_eq!(kinds("select a + 1, f(1)::int + 2 from t"), [None, None]);
        assert_eq!(
            kinds("insert into t values (1) returning 1"),
            [Some(Type::INT4)]
        );
    }

    #[test]
    fn columns_are_looked_up() {
        let sql = "update t set a = 1 returning t.id, max(b), sum(c)";
        let source = Source::split(sql).expect("tokens");
        let all: Vec<_> = items(&source[0])
            .into_iter()
            .map(|item| item.hint)
            .collect();
        let column = |name: &str| Hint::Guess(Guess::Column(name.to_owned()));
        let sum = Hint::Sum(Box::new(column("c")));
        assert_eq!(all, [column("id"), column("b"), sum]);
    }
}
