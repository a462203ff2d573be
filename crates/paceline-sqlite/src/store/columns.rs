//! The types of columns, as they were declared to this server.
//!
//! A key that counts is `INTEGER` to SQLite. Its width is in the text of its table.

use rusqlite::Statement;

use super::link::Link;
use crate::{
    dialect::{counter, infer::Guess},
    types::{Declared, Type},
};

/// The type of a result that is a column; `None` for an expression.
pub(crate) fn of_result(link: &Link, statement: &Statement<'_>, index: usize) -> Option<Declared> {
    let column = statement.columns().nth(index)?;
    let name = column.decl_type()?;
    let declared = Declared::of_column(name);
    if !is_integer(name) {
        return Some(declared);
    }
    let Ok(Some((_, table, .., counts))) = statement.column_metadata(index) else {
        return Some(declared);
    };
    if counts {
        return Some(width(link, table.to_str().ok()?));
    }
    Some(declared)
}

/// The type of a column of a table.
pub(crate) fn of_table(link: &Link, table: &str, column: &str) -> Option<Declared> {
    let sql = "SELECT type, pk FROM pragma_table_info(?1) WHERE name = ?2 COLLATE NOCASE";
    declared(link, sql, table, column)
}

/// The type of the column at a place of a table, counted from zero.
pub(crate) fn at_place(link: &Link, table: &str, place: usize) -> Option<Declared> {
    let sql = "SELECT type, pk FROM pragma_table_info(?1) WHERE cid = CAST(?2 AS INTEGER)";
    declared(link, sql, table, &place.to_string())
}

fn declared(link: &Link, sql: &str, table: &str, column: &str) -> Option<Declared> {
    let mut statement = link.connection.prepare_cached(sql).ok()?;
    let found = statement.query_row([table, column], |row| Ok((row.get(0)?, row.get(1)?)));
    let (name, key): (String, i64) = found.ok()?;
    if key > 0 && is_integer(&name) {
        return Some(width(link, table));
    }
    Some(Declared::of_column(&name))
}

/// Whether the column is declared without NULLs. A key may have them, unless it counts.
pub(crate) fn is_never_null(link: &Link, table: &str, column: &str) -> bool {
    let sql = "SELECT \"notnull\" OR pk > 0 AND type = 'INTEGER' FROM pragma_table_info(?1)
        WHERE name = ?2 COLLATE NOCASE";
    let found = || -> rusqlite::Result<bool> {
        let mut statement = link.connection.prepare_cached(sql)?;
        statement.query_row([table, column], |row| row.get(0))
    };
    found().unwrap_or(false)
}

/// The default of a column, as SQLite writes it.
pub(crate) fn default_of(link: &Link, table: &str, guess: &Guess) -> Option<String> {
    let (condition, value) = match guess {
        Guess::Column(name) => ("name = ?2 COLLATE NOCASE", name.clone()),
        Guess::Inserted(place) => ("cid = CAST(?2 AS INTEGER)", place.to_string()),
        Guess::Type(_) | Guess::ArrayOf(_) | Guess::Unknown => return None,
    };
    let sql = format!("SELECT dflt_value FROM pragma_table_info(?1) WHERE {condition}");
    let mut statement = link.connection.prepare_cached(&sql).ok()?;
    statement
        .query_row([table, &value], |row| row.get(0))
        .ok()?
}

fn is_integer(name: &str) -> bool {
    name.eq_ignore_ascii_case("integer")
}

/// The declared width of the key that counts.
fn width(link: &Link, table: &str) -> Declared {
    let sql =
        "SELECT sql FROM main.sqlite_master WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
    let text = || -> rusqlite::Result<String> {
        let mut statement = link.connection.prepare_cached(sql)?;
        statement.query_row([table], |row| row.get(0))
    };
    let kind = text().ok().and_then(|text| counter::declared(&text));
    Declared::plain(kind.unwrap_or(Type::INT4))
}
