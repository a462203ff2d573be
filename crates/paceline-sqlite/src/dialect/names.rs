//! The names that PostgreSQL gives to results without an alias.
//!
//! A column or a function names the result. A cast or CASE names it only if what is within does not.

use std::ops::Range;

use super::{lex::Kind, results, source::Source, types};

/// How a name was found: a weak one gives way to that of a cast around it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Strong(String),
    Weak(String),
    None,
}

/// The name of an expression.
pub(super) fn of(source: &Source<'_>, item: Range<usize>) -> String {
    match name(source, item) {
        Name::Strong(name) | Name::Weak(name) => name,
        Name::None => "?column?".to_owned(),
    }
}

fn name(source: &Source<'_>, item: Range<usize>) -> Name {
    if item.is_empty() {
        return Name::None;
    }
    if let Some(cast) = trailing_cast(source, &item) {
        return weak(name(source, item.start..cast), || {
            type_name(source, cast + 1)
        });
    }
    if source.is_mark(item.start, "(") {
        if source.behind_bracket(item.start) != item.end {
            return Name::None;
        }
        return inside(source, item.start + 1..item.end - 1);
    }
    if source.is_word(item.start, "case") && source.is_word(item.end - 1, "end") {
        return case(source, &item);
    }
    if source.are_words(item.start, &["not"]) {
        return Name::None;
    }
    word(source, &item)
}

/// The name, or the weak one if it is not a strong one.
fn weak(name: Name, otherwise: impl FnOnce() -> Option<String>) -> Name {
    match name {
        Name::Strong(_) => name,
        other => otherwise().map_or(other, Name::Weak),
    }
}

/// The `::` that casts the whole item: what is before it is one operand.
fn trailing_cast(source: &Source<'_>, item: &Range<usize>) -> Option<usize> {
    let at = item.clone().rev().find(|at| source.is_mark(*at, "::"))?;
    let written = types::written(source, at + 1)?;
    let is_whole = written.behind == item.end;
    (is_whole && is_operand(source, item.start..at)).then_some(at)
}

/// Whether the tokens are one operand, with casts.
fn is_operand(source: &Source<'_>, tokens: Range<usize>) -> bool {
    let mut at = tokens.start;
    while at < tokens.end {
        if source.is_mark(at, "(") || source.is_mark(at, "[") {
            at = source.behind_bracket(at);
            continue;
        }
        let is_operator = source.kind(at) == Some(Kind::Operator) && !source.is_mark(at, "::");
        if is_operator || source.is_one_of(at, &["and", "or", "is", "in", "like", "between"]) {
            return false;
        }
        at += 1;
    }
    true
}

/// PostgreSQL's own name of a type: `int4` for `integer`.
fn type_name(source: &Source<'_>, at: usize) -> Option<String> {
    let written = types::written(source, at)?;
    let kind = crate::types::Type::named(&written.name)?.kind;
    kind.short_name().map(str::to_owned)
}

/// Brackets do not count. A query within them has the name of its only result.
fn inside(source: &Source<'_>, tokens: Range<usize>) -> Name {
    if !source.is_word(tokens.start, "select") {
        return name(source, tokens);
    }
    match results::items_within(source, tokens).as_slice() {
        [only] => {
            let bare = results::without_alias(source, only.clone());
            if bare == *only {
                name(source, bare)
            } else {
                source
                    .name(only.end - 1)
                    .map_or(Name::None, |(name, _)| Name::Strong(name))
            }
        }
        _ => Name::None,
    }
}

/// CASE has the name of what is behind its ELSE.
fn case(source: &Source<'_>, item: &Range<usize>) -> Name {
    let (mut depth, mut found, mut at) = (0_usize, None, item.start);
    while at < item.end {
        if source.is_mark(at, "(") {
            at = source.behind_bracket(at);
            continue;
        }
        if source.is_word(at, "case") {
            depth += 1;
        } else if source.is_word(at, "end") {
            depth = depth.saturating_sub(1);
            if depth == 0 && at + 1 != item.end {
                return Name::None;
            }
        } else if depth == 1 && source.is_word(at, "else") {
            found = Some(at + 1);
        }
        at += 1;
    }
    let otherwise = || Some("case".to_owned());
    match found {
        Some(start) => weak(name(source, start..item.end - 1), otherwise),
        None => Name::Weak("case".to_owned()),
    }
}

fn word(source: &Source<'_>, item: &Range<usize>) -> Name {
    let Some((name, behind)) = source.name(item.start) else {
        return Name::None;
    };
    let is_literal = source.is_one_of(item.start, &["true", "false", "null"]);
    if behind == item.end {
        return if is_literal {
            Name::None
        } else {
            Name::Strong(name)
        };
    }
    if !source.is_mark(behind, "(") {
        return Name::None;
    }
    let close = source.behind_bracket(behind);
    if name == "cast" && close == item.end {
        let found = (behind..close).rev().find(|at| source.is_word(*at, "as"));
        return found.map_or(Name::None, |at| {
            let inner = self::name(source, behind + 1..at);
            weak(inner, || type_name(source, at + 1))
        });
    }
    let is_call = close == item.end || ends_with_window(source, close, item.end);
    if !is_call {
        return Name::None;
    }
    Name::Strong(match name.as_str() {
        "trim" => "btrim".to_owned(),
        _ => name,
    })
}

/// Whether only `FILTER (..)` and `OVER ..` follow the call.
fn ends_with_window(source: &Source<'_>, mut at: usize, end: usize) -> bool {
    while at < end && source.is_one_of(at, &["filter", "over"]) {
        at = if source.is_mark(at + 1, "(") {
            source.behind_bracket(at + 1)
        } else {
            at + 2
        };
    }
    at == end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_postgresqls_names() {
        for (sql, expected) in [
            ("a", "a"),
            ("t.a", "a"),
            ("a + 1", "?column?"),
            ("1", "?column?"),
            ("true", "?column?"),
            ("(a)", "a"),
            ("a::text", "a"),
            ("(a + 1)::text", "text"),
            ("'1'::integer::int8", "int8"),
            ("$1::int[]", "int4"),
            ("a::text || 'x'::text", "?column?"),
            ("cast(a + 1 as numeric(8, 2))", "numeric"),
            ("count(*) filter (where b)", "count"),
            ("sum(a) over (order by b)", "sum"),
            ("sum(a) over w", "sum"),
            ("trim(a)", "btrim"),
            ("case when a then 1 end", "case"),
            ("case when a then 1 else b end", "b"),
            ("case when a then 1 else b + 1 end", "case"),
            ("(select max(n) from u where a = 1)", "max"),
            ("(select n as x from u)", "x"),
            ("coalesce(a, 1)::float8", "coalesce"),
            ("not a", "?column?"),
            ("a is null", "?column?"),
            ("current_user", "current_user"),
            ("\"A b\"", "A b"),
        ] {
            let source = Source::split(sql).expect("tokens").remove(0);
            assert_eq!(of(&source, 0..source.len()), expected, "{sql}");
        }
    }
}
