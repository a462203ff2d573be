//! Names the constraint that a statement has violated, as PostgreSQL does.
//!
//! SQLite names the columns of a key, the column of a NULL and the text of a check, and nothing of a
//! foreign key. The rest is in the definitions of the tables.

use rusqlite::types::Value;

use super::link::Link;
use crate::{
    dialect::{
        definition::{constraints, Constraint, Kind},
        target::{self, Shown, Target},
        Source,
    },
    failure::{Failure, Place},
};

/// The failure with the names of its table, column and constraint, as far as they are known.
pub(crate) fn describe(link: &Link, sql: &str, values: &[Value], failure: Failure) -> Failure {
    let Some(text) = failure.violated.clone() else {
        return failure;
    };
    let source = Source::split(sql).ok().and_then(|mut all| all.pop());
    let target = source.as_ref().and_then(target::of);
    let scene = Scene {
        link,
        target,
        values,
    };
    let described = match failure.code {
        "23505" => scene.unique(&text),
        "23502" => scene.not_null(&text),
        "23514" => scene.check(&text),
        "23503" => scene.foreign(),
        _ => None,
    };
    described.unwrap_or(failure)
}

/// What is known of the statement that has failed.
struct Scene<'v> {
    link: &'v Link,
    target: Option<Target>,
    values: &'v [Value],
}

impl Scene<'_> {
    /// `UNIQUE constraint failed: t.a, t.b`, or `.. index 'name'`
    fn unique(&self, text: &str) -> Option<Failure> {
        let what = text.split_once(": ")?.1;
        if let Some(index) = what.strip_prefix("index '") {
            let index = index.strip_suffix('\'')?;
            let table = self.table_of_index(index)?;
            return Some(duplicate(&table, index));
        }
        let first = what.split(", ").next()?;
        let table = self.table_before(first)?;
        let prefix = format!("{table}.");
        let columns: Option<Vec<_>> = what
            .split(", ")
            .map(|column| Some(column.strip_prefix(&prefix)?.to_owned()))
            .collect();
        let columns = columns?;
        let failure = duplicate(&table, &self.name_of_key(&table, &columns)?);
        let key = self.key(&columns);
        Some(failure.detail(format!("{key} already exists.")))
    }

    /// `NOT NULL constraint failed: t.a`
    fn not_null(&self, text: &str) -> Option<Failure> {
        let what = text.split_once(": ")?.1;
        let table = self.table_before(what)?;
        let column = what.get(table.len() + 1..)?;
        let text = format!(
            "null value in column \"{column}\" of relation \"{table}\" violates not-null constraint"
        );
        let place = Place::of_table(&table).column(column);
        Some(Failure::new("23502", text).at(place))
    }

    /// `CHECK constraint failed: ` with the name of the check, or with its text
    fn check(&self, text: &str) -> Option<Failure> {
        let what = text.split_once(": ")?.1.trim();
        let table = &self.target.as_ref()?.table;
        let all = self.constraints(table);
        let is_it = |constraint: &&Constraint| match &constraint.kind {
            Kind::Check(text) => constraint.name == what || text.trim() == what,
            _ => false,
        };
        let name = all
            .iter()
            .find(is_it)
            .map_or(what, |constraint| &constraint.name);
        let text = format!("new row for relation \"{table}\" violates check constraint \"{name}\"");
        let place = Place::of_table(table).constraint(name);
        Some(Failure::new("23514", text).at(place))
    }

    /// SQLite does not say which key: it is named if no other one can be meant.
    fn foreign(&self) -> Option<Failure> {
        let target = self.target.as_ref()?;
        let table = &target.table;
        let own = if target.verb.adds() {
            self.foreign_keys(table)
        } else {
            Vec::new()
        };
        let mut referring = Vec::new();
        if target.verb.removes() {
            for other in self.tables() {
                let keys = self.foreign_keys(&other).into_iter();
                let to_this = keys.filter(|key| key.kind == Kind::Foreign(table.clone()));
                referring.extend(to_this.map(|key| (other.clone(), key)));
            }
        }
        match (own.as_slice(), referring.as_slice()) {
            ([key], []) => Some(self.missing(table, key)),
            ([], [(other, key)]) => Some(referred(table, other, key)),
            _ => None,
        }
    }

    fn missing(&self, table: &str, key: &Constraint) -> Failure {
        let Kind::Foreign(other) = &key.kind else {
            unreachable!("only foreign keys are asked for");
        };
        let name = &key.name;
        let text = format!(
            "insert or update on table \"{table}\" violates foreign key constraint \"{name}\""
        );
        let value = self.key(&key.columns);
        Failure::new("23503", text)
            .detail(format!("{value} is not present in table \"{other}\"."))
            .at(Place::of_table(table).constraint(name))
    }

    /// `Key (a, b)=(1, 2)`, or without the values that the statement does not show.
    fn key(&self, columns: &[String]) -> String {
        let names = columns.join(", ");
        let values: Option<Vec<String>> = self.target.as_ref().and_then(|target| {
            let all = self.columns(&target.table);
            let shown = |column: &String| self.text(target.inserted(&all, column)?);
            columns.iter().map(shown).collect()
        });
        match values {
            Some(values) => format!("Key ({names})=({})", values.join(", ")),
            None => format!("Key ({names})"),
        }
    }

    fn text(&self, shown: &Shown) -> Option<String> {
        match shown {
            Shown::Text(text) => Some(text.clone()),
            Shown::Computed => None,
            Shown::Parameter(index) => match self.values.get(*index)? {
                Value::Integer(number) => Some(number.to_string()),
                Value::Text(text) => Some(text.clone()),
                _ => None,
            },
        }
    }

    /// The table of `table.column`; a table's name may have a point too.
    fn table_before(&self, text: &str) -> Option<String> {
        let target = self.target.as_ref().map(|target| &target.table);
        let of_target = target.filter(|table| text.starts_with(&format!("{table}.")));
        of_target
            .cloned()
            .or_else(|| Some(text.split_once('.')?.0.to_owned()))
    }

    fn name_of_key(&self, table: &str, columns: &[String]) -> Option<String> {
        let is_it = |constraint: &Constraint| {
            let is_kind = matches!(constraint.kind, Kind::Key | Kind::Unique);
            is_kind && same_names(&constraint.columns, columns)
        };
        let constraint = self.constraints(table).into_iter().find(is_it);
        constraint
            .map(|constraint| constraint.name)
            .or_else(|| self.unique_index(table, columns))
    }

    fn unique_index(&self, table: &str, columns: &[String]) -> Option<String> {
        let indexes = self.texts(
            "SELECT name FROM pragma_index_list(?1) WHERE \"unique\"",
            table,
        );
        indexes.into_iter().find(|index| {
            let of = self.texts("SELECT name FROM pragma_index_info(?1)", index);
            same_names(&of, columns)
        })
    }

    fn table_of_index(&self, index: &str) -> Option<String> {
        let sql = "SELECT tbl_name FROM main.sqlite_master WHERE type = 'index' AND name = ?1";
        self.texts(sql, index).pop()
    }

    fn foreign_keys(&self, table: &str) -> Vec<Constraint> {
        let mut all = self.constraints(table);
        all.retain(|constraint| matches!(constraint.kind, Kind::Foreign(_)));
        all
    }

    fn constraints(&self, table: &str) -> Vec<Constraint> {
        let sql = "SELECT sql FROM main.sqlite_master
            WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
        let definition = self.texts(sql, table).pop();
        definition.map_or_else(Vec::new, |sql| constraints(table, &sql))
    }

    fn columns(&self, table: &str) -> Vec<String> {
        self.texts("SELECT name FROM pragma_table_info(?1)", table)
    }

    fn tables(&self) -> Vec<String> {
        let sql = "SELECT name FROM main.sqlite_master WHERE type = ?1";
        self.texts(sql, "table")
    }

    /// One column of texts; empty if the question fails, because the answer only adds names.
    fn texts(&self, sql: &str, parameter: &str) -> Vec<String> {
        let texts = || -> rusqlite::Result<Vec<String>> {
            let mut statement = self.link.connection.prepare_cached(sql)?;
            let rows = statement.query_map([parameter], |row| row.get(0))?;
            rows.collect()
        };
        texts().unwrap_or_default()
    }
}

fn same_names(left: &[String], right: &[String]) -> bool {
    let is_in = |name: &String| right.iter().any(|other| other.eq_ignore_ascii_case(name));
    left.len() == right.len() && left.iter().all(is_in)
}

fn duplicate(table: &str, constraint: &str) -> Failure {
    let text = format!("duplicate key value violates unique constraint \"{constraint}\"");
    Failure::new("23505", text).at(Place::of_table(table).constraint(constraint))
}

fn referred(table: &str, other: &str, key: &Constraint) -> Failure {
    let name = &key.name;
    let text = format!(
        "update or delete on table \"{table}\" violates foreign key constraint \"{name}\" \
         on table \"{other}\""
    );
    Failure::new("23503", text)
        .detail(format!(
            "The key is still referenced from table \"{other}\"."
        ))
        .at(Place::of_table(other).constraint(name))
}
