//! The constraints in the definition of a table, with the names that PostgreSQL gives them.
//!
//! SQLite keeps the text of the definition, and names neither keys nor unnamed checks.

use std::ops::Range;

use super::{lex::Kind as Token, source::Source};

/// What a constraint demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Key,
    Unique,
    /// With the text between its brackets.
    Check(String),
    /// With the table that it refers to.
    Foreign(String),
}

/// A constraint of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Constraint {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    /// Its columns; for a check those that the name shows.
    pub(crate) columns: Vec<String>,
}

/// The constraints of the table with this name and this definition.
pub(crate) fn constraints(table: &str, sql: &str) -> Vec<Constraint> {
    let source = Source::split(sql).ok().and_then(|mut all| all.pop());
    let Some(source) = source else {
        return Vec::new();
    };
    let mut reader = Reader {
        source: &source,
        table,
        columns: Vec::new(),
        found: Vec::new(),
    };
    let items = items(&source);
    reader.columns = items
        .iter()
        .filter(|item| !begins_constraint(&source, item.start))
        .filter_map(|item| source.name(item.start).map(|(name, _)| name))
        .collect();
    for item in items {
        reader.item(item);
    }
    reader.found
}

/// The columns and constraints between the outermost brackets.
pub(super) fn items(source: &Source<'_>) -> Vec<Range<usize>> {
    let open = (0..source.len()).find(|at| source.is_mark(*at, "("));
    let Some(open) = open else {
        return Vec::new();
    };
    let close = source.behind_bracket(open) - 1;
    let (mut items, mut start, mut at) = (Vec::new(), open + 1, open + 1);
    while at < close {
        if source.is_mark(at, "(") {
            at = source.behind_bracket(at);
            continue;
        }
        if source.is_mark(at, ",") {
            items.push(start..at);
            start = at + 1;
        }
        at += 1;
    }
    items.push(start..close);
    items.retain(|item| !item.is_empty());
    items
}

fn begins_constraint(source: &Source<'_>, at: usize) -> bool {
    source.is_one_of(at, &["constraint", "primary", "unique", "check", "foreign"])
}

struct Reader<'r, 's> {
    source: &'r Source<'s>,
    table: &'r str,
    columns: Vec<String>,
    found: Vec<Constraint>,
}

impl Reader<'_, '_> {
    fn item(&mut self, item: Range<usize>) {
        let column = if begins_constraint(self.source, item.start) {
            None
        } else {
            self.source.name(item.start).map(|(name, _)| name)
        };
        let (mut at, mut name) = (item.start, None);
        while at < item.end {
            if self.source.is_word(at, "constraint") {
                name = self.source.name(at + 1).map(|(name, _)| name);
                at += 2;
            } else if let Some((constraint, behind)) = self.constraint(at, column.as_deref()) {
                self.add(constraint, name.take());
                at = behind;
            } else if self.source.is_mark(at, "(") {
                at = self.source.behind_bracket(at);
            } else {
                at += 1;
            }
        }
    }

    /// The constraint that begins at `at`, still without a name, and the token behind it.
    fn constraint(&self, at: usize, column: Option<&str>) -> Option<(Constraint, usize)> {
        let own = || column.map(|name| vec![name.to_owned()]);
        let (kind, columns, behind) = if self.source.are_words(at, &["primary", "key"]) {
            let (columns, behind) = self.list(at + 2).or_else(|| Some((own()?, at + 2)))?;
            (Kind::Key, columns, behind)
        } else if self.source.is_word(at, "unique") {
            let (columns, behind) = self.list(at + 1).or_else(|| Some((own()?, at + 1)))?;
            (Kind::Unique, columns, behind)
        } else if self.source.is_word(at, "check") && self.source.is_mark(at + 1, "(") {
            let behind = self.source.behind_bracket(at + 1);
            let inside = at + 2..behind - 1;
            let columns = own().unwrap_or_else(|| self.only_column(inside.clone()));
            (Kind::Check(self.text(inside)), columns, behind)
        } else if self.source.are_words(at, &["foreign", "key"]) {
            let (columns, behind) = self.list(at + 2)?;
            let (other, behind) = self.source.name(behind + 1)?;
            (Kind::Foreign(other), columns, behind)
        } else if self.source.is_word(at, "references") {
            let (other, behind) = self.source.name(at + 1)?;
            (Kind::Foreign(other), own()?, behind)
        } else {
            return None;
        };
        let name = String::new();
        Some((
            Constraint {
                kind,
                name,
                columns,
            },
            behind,
        ))
    }

    /// The names in the brackets at `at`, and the token behind them.
    fn list(&self, at: usize) -> Option<(Vec<String>, usize)> {
        if !self.source.is_mark(at, "(") {
            return None;
        }
        let behind = self.source.behind_bracket(at);
        let begins = |index: &usize| {
            self.source.is_mark(index - 1, "(") || self.source.is_mark(index - 1, ",")
        };
        let names = (at + 1..behind - 1)
            .filter(begins)
            .filter_map(|index| self.source.name(index));
        Some((names.map(|(name, _)| name).collect(), behind))
    }

    fn text(&self, tokens: Range<usize>) -> String {
        if tokens.is_empty() {
            return String::new();
        }
        let start = self.source.range(tokens.start).start;
        let end = self.source.range(tokens.end - 1).end;
        self.source.sql()[start..end].to_owned()
    }

    /// The one column that the tokens name; none if they name several.
    fn only_column(&self, tokens: Range<usize>) -> Vec<String> {
        let is_name = |at: &usize| {
            matches!(self.source.kind(*at), Some(Token::Word | Token::Quoted))
                && !self.source.is_mark(at + 1, "(")
        };
        let names = tokens
            .filter(is_name)
            .filter_map(|at| self.source.name(at))
            .map(|(name, _)| name);
        let mut names: Vec<_> = names.filter(|name| self.columns.contains(name)).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() == 1 {
            names
        } else {
            Vec::new()
        }
    }

    /// Adds the constraint with its own name, or with the first free one of PostgreSQL's.
    fn add(&mut self, mut constraint: Constraint, name: Option<String>) {
        constraint.name = name.unwrap_or_else(|| {
            let wanted = default_name(self.table, &constraint);
            let is_free = |name: &String| self.found.iter().all(|other| other.name != *name);
            let numbered = (1..).map(|number| format!("{wanted}{number}"));
            let mut names = std::iter::once(wanted.clone()).chain(numbered);
            names.find(is_free).unwrap_or(wanted)
        });
        self.found.push(constraint);
    }
}

fn default_name(table: &str, constraint: &Constraint) -> String {
    let columns = constraint.columns.join("_");
    match constraint.kind {
        Kind::Key => format!("{table}_pkey"),
        Kind::Unique => format!("{table}_{columns}_key"),
        Kind::Check(_) if columns.is_empty() => format!("{table}_check"),
        Kind::Check(_) => format!("{table}_{columns}_check"),
        Kind::Foreign(_) => format!("{table}_{columns}_fkey"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_have_postgresqls_names() {
        let sql = "CREATE TABLE \"t\" (a int primary key, b int NOT NULL CHECK (b > 0) check(b<9),
            c text CONSTRAINT short CHECK (length(c) < 9) UNIQUE,
            d int REFERENCES p(id) ON DELETE CASCADE, e numeric(8, 2),
            UNIQUE (b, c), CONSTRAINT two FOREIGN KEY (a, b) REFERENCES q (x, y),
            CHECK (a < b), CHECK (e > 1))";
        let all = constraints("t", sql);
        let names: Vec<_> = all
            .iter()
            .map(|constraint| constraint.name.as_str())
            .collect();
        assert_eq!(
            names,
            [
                "t_pkey",
                "t_b_check",
                "t_b_check1",
                "short",
                "t_c_key",
                "t_d_fkey",
                "t_b_c_key",
                "two",
                "t_check",
                "t_e_check"
            ]
        );
        assert_eq!(all[1].kind, Kind::Check("b > 0".to_owned()));
        assert_eq!(all[5].kind, Kind::Foreign("p".to_owned()));
        assert_eq!(all[7].columns, ["a", "b"]);
    }

    #[test]
    fn what_is_no_definition_has_none() {
        assert_eq!(constraints("t", "CREATE TABLE t AS SELECT 1"), []);
        assert_eq!(constraints("t", "'"), []);
    }
}
