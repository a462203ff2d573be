//! The column of a table that counts by itself: `serial`, or `GENERATED .. AS IDENTITY`.
//!
//! ```text
//!   id bigserial PRIMARY KEY          --> id INTEGER /* counts: bigint */ PRIMARY KEY AUTOINCREMENT
//!   id serial, .., PRIMARY KEY (id)   --> .., PRIMARY KEY (id AUTOINCREMENT)
//!   id serial                         --> id INTEGER /* .. */ PRIMARY KEY AUTOINCREMENT
//! ```
//!
//! SQLite counts only in a key of the type INTEGER. The comment keeps the width that was declared:
//! SQLite stores the text of a definition with its comments.

use std::ops::Range;

use super::{definition, source::Source};
use crate::{failure::Failure, types::Type};

/// A column that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    /// The token of its type.
    pub(super) type_at: usize,
    pub(super) mark: &'static str,
    pub(super) key: Key,
}

/// Where the definition says that the column is the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// At the column: the token `key`.
    Inline(usize),
    /// In a list of its own: the token of the column's name.
    Listed(usize),
    /// Nowhere, and the table has no other key.
    Missing,
}

const SMALL: &str = "INTEGER /* counts: smallint */";
const PLAIN: &str = "INTEGER /* counts: integer */";
const BIG: &str = "INTEGER /* counts: bigint */";

/// The type of the counter in a stored definition; `None` if the table has none.
pub(crate) fn declared(definition: &str) -> Option<Type> {
    let widths = [(PLAIN, Type::INT4), (BIG, Type::INT8), (SMALL, Type::INT2)];
    let found = widths.iter().find(|(mark, _)| definition.contains(mark));
    found.map(|(_, kind)| *kind)
}

/// The counter of a table that is created; an error if SQLite can't count there.
pub(crate) fn of_table(source: &Source<'_>) -> Result<Option<Counter>, Failure> {
    let items = definition::items(source);
    let mut found = None;
    for item in &items {
        let Some((type_at, mark)) = counts(source, item) else {
            continue;
        };
        if found.is_some() {
            return Err(Failure::unsupported(
                "a table with two serial or identity columns is not supported",
            ));
        }
        let key = key_of(source, &items, item)?;
        found = Some(Counter { type_at, mark, key });
    }
    Ok(found)
}

/// The token of the type, and what replaces it, if the column counts.
fn counts(source: &Source<'_>, item: &Range<usize>) -> Option<(usize, &'static str)> {
    let (_, type_at) = source.name(item.start)?;
    let by_type = match source.text(type_at).to_ascii_lowercase().as_str() {
        "smallserial" | "serial2" => Some(SMALL),
        "serial" | "serial4" => Some(PLAIN),
        "bigserial" | "serial8" => Some(BIG),
        _ => None,
    };
    let is_identity = || {
        item.clone()
            .any(|at| source.are_words(at, &["as", "identity"]))
    };
    let mark = by_type.or_else(|| {
        let by_width = match source.text(type_at).to_ascii_lowercase().as_str() {
            "smallint" | "int2" => SMALL,
            "int" | "integer" | "int4" => PLAIN,
            "bigint" | "int8" => BIG,
            _ => return None,
        };
        is_identity().then_some(by_width)
    })?;
    Some((type_at, mark))
}

fn key_of(source: &Source<'_>, items: &[Range<usize>], own: &Range<usize>) -> Result<Key, Failure> {
    let is_key = |at: &usize| source.are_words(*at, &["primary", "key"]);
    let name = source.name(own.start).map(|(name, _)| name);
    for item in items {
        let Some(at) = item.clone().find(is_key) else {
            continue;
        };
        if item == own {
            return Ok(Key::Inline(at + 1));
        }
        let is_alone = source.is_mark(at + 2, "(") && source.is_mark(at + 4, ")");
        if is_alone && source.name(at + 3).map(|(name, _)| name) == name {
            return Ok(Key::Listed(at + 3));
        }
        return Err(Failure::unsupported(
            "a serial or identity column must be the only column of the primary key",
        ));
    }
    Ok(Key::Missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(sql: &str) -> Result<Option<(&'static str, Key)>, &'static str> {
        let source = Source::split(sql).expect("tokens").remove(0);
        let found = of_table(&source).map_err(|failure| failure.code)?;
        Ok(found.map(|counter| (counter.mark, counter.key)))
    }

    #[test]
    fn a_counter_is_the_key() {
        assert_eq!(
            counter("create table t(id bigserial primary key)"),
            Ok(Some((BIG, Key::Inline(7))))
        );
        assert_eq!(
            counter("create table t(id serial, a int, primary key (id))"),
            Ok(Some((PLAIN, Key::Listed(13))))
        );
        assert_eq!(
            counter("create table t(id smallint generated always as identity)"),
            Ok(Some((SMALL, Key::Missing)))
        );
        assert_eq!(counter("create table t(id bigint primary key)"), Ok(None));
        assert_eq!(
            counter("create table t(a serial, b int primary key)"),
            Err("0A000")
        );
        assert_eq!(counter("create table t(a serial, b serial)"), Err("0A000"));
    }

    #[test]
    fn the_width_is_in_the_text() {
        let big = format!("CREATE TABLE t(a {BIG})");
        assert_eq!(declared(&big), Some(Type::INT8));
        assert_eq!(declared("CREATE TABLE t(a INTEGER /* bigint */)"), None);
    }
}
