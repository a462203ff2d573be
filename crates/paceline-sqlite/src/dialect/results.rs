//! Infers the types of results from the tokens of a statement.
//!
//! SQLite gives the declared type only of a result that is a column.

use std::ops::Range;

use super::{
    expression::{self, Hint},
    lex::Kind,
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
    let items = split(source, list);
    let is_star = |item: &Range<usize>| source.is_mark(item.end - 1, "*");
    if items.iter().any(|item| item.is_empty() || is_star(item)) {
        return Vec::new();
    }
    let known = |item: Range<usize>| {
        let bare = without_alias(source, item.clone());
        Item {
            name: (bare == item).then(|| name(source, &item)).flatten(),
            hint: expression::hint(source, bare),
        }
    };
    items.into_iter().map(known).collect()
}

/// A function is named after itself, a cast after its operand or its type, and any other
/// expression is `?column?`.
fn name(source: &Source<'_>, item: &Range<usize>) -> Option<String> {
    if has_alias(source, item) {
        return None;
    }
    if source.is_word(item.start, "case") {
        return Some("case".to_owned());
    }
    let unnamed = Some("?column?".to_owned());
    let Some((name, behind)) = source.name(item.start) else {
        return unnamed;
    };
    let is_call = source.is_mark(behind, "(") && source.behind_bracket(behind) == item.end;
    if behind == item.end && !CONSTANTS.contains(&name.as_str()) {
        None
    } else if name != "cast" && (is_call || behind == item.end || source.is_mark(behind, "::")) {
        Some(name)
    } else {
        unnamed
    }
}

/// Words that the token pass replaces with values: the result keeps the word as its name.
const CONSTANTS: [&str; 7] = [
    "current_user",
    "session_user",
    "current_role",
    "current_catalog",
    "current_schema",
    "current_timestamp",
    "localtimestamp",
];

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

    #[test]
    fn expressions_have_postgresqls_names() {
        let sql = "select a, a + 1, a + 1 as b, a + 1 c, count(*), a::text, version(), \
            current_user from t";
        let items = items(&Source::split(sql).expect("tokens")[0]);
        let names: Vec<_> = items.iter().map(|item| item.name.as_deref()).collect();
        let (call, cast) = (Some("count"), Some("a"));
        let of = [Some("version"), Some("current_user")];
        assert_eq!(
            names,
            [None, Some("?column?"), None, None, call, cast, of[0], of[1]]
        );
    }
}
