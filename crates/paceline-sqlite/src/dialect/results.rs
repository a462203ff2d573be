//! Infers the types of results from the tokens of a statement.
//!
//! SQLite gives the declared type only of a result that is a column.

use std::ops::Range;

use super::{infer::Guess, lex::Kind, source::Source, types};
use crate::types::{Declared, Type};

/// The type that the tokens suggest for a result that is no column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Hint {
    Declared(Declared),
    Guess(Guess),
    /// The sum of a column: wider than the column.
    Sum(String),
}

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
            hint: hint(source, bare),
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

fn without_alias(source: &Source<'_>, item: Range<usize>) -> Range<usize> {
    if item.len() > 2 && source.is_word(item.end - 2, "as") {
        return item.start..item.end - 2;
    }
    item
}

fn hint(source: &Source<'_>, item: Range<usize>) -> Hint {
    let plain = |kind| Hint::Declared(Declared::plain(kind));
    if let Some(declared) = cast(source, &item) {
        return Hint::Declared(declared);
    }
    if is_condition(source, &item) {
        return plain(Type::BOOL);
    }
    let first = source.text(item.start).to_ascii_lowercase();
    match source.kind(item.start) {
        Some(Kind::Number) if item.len() == 1 => plain(number(&first)),
        Some(Kind::Text | Kind::Escaped | Kind::Dollar) if item.len() == 1 => plain(Type::TEXT),
        Some(Kind::Word | Kind::Quoted) => word(source, &item, &first),
        _ => Hint::Guess(Guess::Unknown),
    }
}

fn number(text: &str) -> Type {
    if text.contains(['.', 'e']) {
        Type::NUMERIC
    } else if text.parse::<i32>().is_ok() {
        Type::INT4
    } else {
        Type::INT8
    }
}

fn word(source: &Source<'_>, item: &Range<usize>, first: &str) -> Hint {
    let plain = |kind| Hint::Declared(Declared::plain(kind));
    if let Some((name, behind)) = source.name(item.start) {
        if behind == item.end {
            return match first {
                "true" | "false" => plain(Type::BOOL),
                "null" => plain(Type::TEXT),
                "current_timestamp" => plain(Type::TIMESTAMPTZ),
                "localtimestamp" => plain(Type::TIMESTAMP),
                "current_date" => plain(Type::DATE),
                "current_time" => plain(Type::TIME),
                _ => Hint::Guess(Guess::Column(name)),
            };
        }
        if source.is_mark(behind, "(") && source.behind_bracket(behind) == item.end {
            return call(source, &name, behind + 1);
        }
    }
    Hint::Guess(Guess::Unknown)
}

/// The type of a function's result. Its first argument is at `argument`.
fn call(source: &Source<'_>, function: &str, argument: usize) -> Hint {
    let plain = |kind| Hint::Declared(Declared::plain(kind));
    let column = || match source.name(argument) {
        Some((name, behind)) if source.is_mark(behind, ")") || source.is_mark(behind, ",") => {
            Some(name)
        }
        _ => None,
    };
    match function {
        "count" | "row_number" | "rank" | "dense_rank" => plain(Type::INT8),
        "length" | "char_length" | "strpos" | "pg_backend_pid" => plain(Type::INT4),
        "now" | "statement_timestamp" | "transaction_timestamp" | "clock_timestamp" => {
            plain(Type::TIMESTAMPTZ)
        }
        "upper" | "lower" | "concat" | "trim" | "substr" | "replace" | "md5" | "string_agg"
        | "version" | "current_database" | "repeat" | "left" | "right" => plain(Type::TEXT),
        "exists" | "pg_is_in_recovery" => plain(Type::BOOL),
        "avg" => plain(Type::NUMERIC),
        "date" => plain(Type::DATE),
        "gen_random_uuid" => plain(Type::UUID),
        "sum" => column().map_or(Hint::Guess(Guess::Unknown), Hint::Sum),
        "min" | "max" | "coalesce" | "nullif" | "abs" | "greatest" | "least" => column()
            .map_or(Hint::Guess(Guess::Unknown), |name| {
                Hint::Guess(Guess::Column(name))
            }),
        _ => Hint::Guess(Guess::Unknown),
    }
}

/// The type that the item is cast to as a whole.
fn cast(source: &Source<'_>, item: &Range<usize>) -> Option<Declared> {
    let is_call = source.is_word(item.start, "cast") && source.is_mark(item.start + 1, "(");
    if is_call && source.behind_bracket(item.start + 1) == item.end {
        let found = (item.start..item.end)
            .rev()
            .find(|at| source.is_word(*at, "as"))?;
        return declared(source, found + 1, item.end - 1);
    }
    let found = item.clone().rev().find(|at| source.is_mark(*at, "::"))?;
    declared(source, found + 1, item.end)
}

/// The type that is written from `at` to `end`, and nothing else with it.
fn declared(source: &Source<'_>, at: usize, end: usize) -> Option<Declared> {
    let written = types::written(source, at)?;
    let is_whole = written.behind == end && !written.is_array;
    is_whole.then(|| Type::named(&written.name))?
}

/// Whether the item is true or false: a comparison outside of brackets.
fn is_condition(source: &Source<'_>, item: &Range<usize>) -> bool {
    if source.is_word(item.start, "case") {
        return false;
    }
    if source.is_word(item.start, "not") || source.is_word(item.start, "exists") {
        return true;
    }
    let mut at = item.start;
    while at < item.end {
        if source.is_mark(at, "(") {
            at = source.behind_bracket(at);
            continue;
        }
        let is_operator = source.kind(at) == Some(Kind::Operator)
            && matches!(
                source.text(at),
                "=" | "<>" | "!=" | "<" | ">" | "<=" | ">=" | "~" | "!~"
            );
        if is_operator
            || source.is_one_of(at, &["and", "or", "is", "in", "like", "ilike", "between"])
        {
            return true;
        }
        at += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(sql: &str) -> Vec<Option<Type>> {
        let all = items(&Source::split(sql).expect("tokens")[0]);
        let kind = |item: Item| match item.hint {
            Hint::Declared(declared) => Some(declared.kind),
            Hint::Guess(_) | Hint::Sum(_) => None,
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
        assert_eq!(all, [column("id"), column("b"), Hint::Sum("c".to_owned())]);
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
