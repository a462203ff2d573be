//! SQL's own `PREPARE` and `EXECUTE`.

use std::ops::Range;

use super::{control::Control, source::Source, types};
use crate::{failure::Failure, types::Type};

/// `PREPARE name [(types)] AS statement`
pub(super) fn prepare(source: &Source<'_>) -> Result<Control, Failure> {
    let (name, mut at) = source.name(1).ok_or_else(|| source.syntax_error(1))?;
    let mut types = Vec::new();
    if source.is_mark(at, "(") {
        let behind = source.behind_bracket(at);
        types = items(source, at + 1..behind - 1)
            .map(|item| declared(source, item))
            .collect::<Result<_, _>>()?;
        at = behind;
    }
    if !source.is_word(at, "as") || at + 1 >= source.len() {
        return Err(source.syntax_error(at));
    }
    const PREPARED: [&str; 7] = [
        "select", "values", "with", "insert", "update", "delete", "table",
    ];
    if !source.is_one_of(at + 1, &PREPARED) && !source.is_mark(at + 1, "(") {
        return Err(source.syntax_error(at + 1));
    }
    let query = source.sql()[source.range(at + 1).start..].to_owned();
    Ok(Control::Prepare { name, types, query })
}

/// `EXECUTE name [(values)]`
pub(super) fn execute(source: &Source<'_>) -> Result<Control, Failure> {
    let (name, at) = source.name(1).ok_or_else(|| source.syntax_error(1))?;
    let mut values = Vec::new();
    let mut end = at;
    if source.is_mark(at, "(") {
        end = source.behind_bracket(at);
        let text = |item: Range<usize>| {
            if item.is_empty() {
                return Err(source.syntax_error(item.start));
            }
            let start = source.range(item.start).start;
            Ok(source.sql()[start..source.range(item.end - 1).end].to_owned())
        };
        values = items(source, at + 1..end - 1)
            .map(text)
            .collect::<Result<_, _>>()?;
    }
    if end < source.len() {
        return Err(source.syntax_error(end));
    }
    Ok(Control::Execute { name, values })
}

/// The tokens between commas. An empty list has no items.
fn items<'s>(
    source: &'s Source<'_>,
    list: Range<usize>,
) -> impl Iterator<Item = Range<usize>> + 's {
    let mut start = list.start;
    let is_empty = list.is_empty();
    std::iter::from_fn(move || {
        if is_empty || start > list.end {
            return None;
        }
        let mut at = start;
        while at < list.end && !source.is_mark(at, ",") {
            let opens = source.is_mark(at, "(") || source.is_mark(at, "[");
            at = if opens {
                source.behind_bracket(at)
            } else {
                at + 1
            };
        }
        let item = start..at;
        start = at + 1;
        Some(item)
    })
}

fn declared(source: &Source<'_>, item: Range<usize>) -> Result<Type, Failure> {
    let written = types::written(source, item.start).filter(|written| written.behind == item.end);
    let written = written.ok_or_else(|| source.syntax_error(item.start))?;
    written.kind().ok_or_else(|| {
        let name = &written.name;
        Failure::new("42704", format!("type \"{name}\" does not exist"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sql: &str) -> Result<Control, &'static str> {
        let source = Source::split(sql).expect("tokens").remove(0);
        let found = if source.is_word(0, "prepare") {
            prepare(&source)
        } else {
            execute(&source)
        };
        found.map_err(|failure| failure.code)
    }

    #[test]
    fn a_statement_is_prepared_with_types() {
        assert_eq!(
            of("prepare p (int, numeric(8, 2), text[]) as select $1, $2, $3"),
            Ok(Control::Prepare {
                name: "p".to_owned(),
                types: vec![Type::INT4, Type::NUMERIC, Type(1009)],
                query: "select $1, $2, $3".to_owned(),
            })
        );
        assert_eq!(of("prepare p(nosuch) as select 1"), Err("42704"));
        assert_eq!(of("prepare p as create table t(a int)"), Err("42601"));
        assert_eq!(of("prepare p select 1"), Err("42601"));
    }

    #[test]
    fn values_are_split() {
        let execute = |values: &[&str]| {
            Ok(Control::Execute {
                name: "p".to_owned(),
                values: values.iter().map(|&value| value.to_owned()).collect(),
            })
        };
        assert_eq!(of("execute p"), execute(&[]));
        assert_eq!(of("execute p ()"), execute(&[]));
        assert_eq!(
            of("execute p(1, f(2, 3), 'a,b')"),
            execute(&["1", "f(2, 3)", "'a,b'"])
        );
        assert_eq!(of("execute p(1,)"), Err("42601"));
        assert_eq!(of("execute p(1) now"), Err("42601"));
    }
}
