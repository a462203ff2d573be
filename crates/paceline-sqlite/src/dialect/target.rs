//! The table that a statement changes, and the values that it inserts.

use super::{lex::Kind, source::Source};

/// What a statement does to its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Insert,
    Update,
    Delete,
}

impl Verb {
    /// Whether it may add a reference to another table.
    pub(crate) fn adds(self) -> bool {
        matches!(self, Self::Insert | Self::Update)
    }

    /// Whether it may remove a row that another table refers to.
    pub(crate) fn removes(self) -> bool {
        matches!(self, Self::Update | Self::Delete)
    }
}

/// The table that a statement changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) verb: Verb,
    pub(crate) table: String,
    /// The columns that an INSERT names; empty: all of them.
    columns: Vec<String>,
    /// The tokens of the one row of an INSERT with VALUES.
    row: Vec<Shown>,
}

/// A value in the text of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The value of this parameter, counted from zero.
    Parameter(usize),
    Text(String),
    /// An expression.
    Computed,
}

/// The target of a statement; `None` if it changes no rows.
pub(crate) fn of(source: &Source<'_>) -> Option<Target> {
    let mut at = 0;
    let verb = loop {
        if source.is_mark(at, "(") {
            at = source.behind_bracket(at);
            continue;
        }
        match source.text(at).to_ascii_lowercase().as_str() {
            "insert" | "replace" => break Verb::Insert,
            "update" => break Verb::Update,
            "delete" => break Verb::Delete,
            _ if at >= source.len() => return None,
            _ => at += 1,
        }
    };
    at += 1;
    while source.is_one_of(at, &["or", "replace", "into", "from", "only"]) {
        at += 1;
    }
    let (table, mut behind) = source.name(at)?;
    let mut target = Target {
        verb,
        table,
        columns: Vec::new(),
        row: Vec::new(),
    };
    if verb == Verb::Insert {
        if source.is_mark(behind, "(") {
            target.columns = source.names(behind + 1)?.0;
            behind = source.behind_bracket(behind);
        }
        target.row = row(source, behind).unwrap_or_default();
    }
    Some(target)
}

/// The values of `VALUES (..)` with one row.
fn row(source: &Source<'_>, at: usize) -> Option<Vec<Shown>> {
    let is_row = source.is_word(at, "values") && source.is_mark(at + 1, "(");
    let behind = is_row.then(|| source.behind_bracket(at + 1))?;
    if source.is_mark(behind, ",") {
        return None;
    }
    let (mut values, mut start, mut at) = (Vec::new(), at + 2, at + 2);
    while at < behind {
        if at == behind - 1 || source.is_mark(at, ",") {
            values.push(shown(source, start, at));
            start = at + 1;
            at += 1;
        } else if source.is_mark(at, "(") {
            at = source.behind_bracket(at);
        } else {
            at += 1;
        }
    }
    Some(values)
}

fn shown(source: &Source<'_>, start: usize, end: usize) -> Shown {
    let number = || source.text(start)[1..].parse::<usize>().ok();
    match source.kind(start) {
        Some(Kind::Parameter) if end == start + 1 => number()
            .and_then(|number| number.checked_sub(1))
            .map_or(Shown::Computed, Shown::Parameter),
        Some(Kind::Number) if end == start + 1 => Shown::Text(source.text(start).to_owned()),
        Some(Kind::Text | Kind::Escaped | Kind::Dollar) if end == start + 1 => {
            source.string(start).map_or(Shown::Computed, Shown::Text)
        }
        _ => Shown::Computed,
    }
}

impl Target {
    /// The value that an INSERT of one row shows for a column of a table with these columns.
    pub(crate) fn inserted(&self, columns: &[String], column: &str) -> Option<&Shown> {
        let named = if self.columns.is_empty() {
            columns
        } else {
            &self.columns
        };
        let place = named
            .iter()
            .position(|name| name.eq_ignore_ascii_case(column))?;
        self.row.get(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(sql: &str) -> Option<Target> {
        of(&Source::split(sql).expect("tokens")[0])
    }

    #[test]
    fn the_changed_table_is_found() {
        for (sql, verb, table) in [
            ("insert into public.t values (1)", Verb::Insert, "t"),
            (
                "with x as (select 1) update only t set a = 1",
                Verb::Update,
                "t",
            ),
            ("delete from \"T\" where a", Verb::Delete, "T"),
        ] {
            let found = target(sql).expect("a target");
            assert_eq!((found.verb, found.table.as_str()), (verb, table));
        }
        assert_eq!(target("select 1"), None);
    }

    #[test]
    fn inserted_values_are_shown() {
        let columns = ["a", "b", "c"].map(str::to_owned);
        let found = target("insert into t values ($2, f(1, 2), 'it''s')").expect("a target");
        assert_eq!(found.inserted(&columns, "a"), Some(&Shown::Parameter(1)));
        assert_eq!(found.inserted(&columns, "b"), Some(&Shown::Computed));
        let text = Shown::Text("it's".to_owned());
        assert_eq!(found.inserted(&columns, "c"), Some(&text));
        let found = target("insert into t(c, a) values (1, 2)").expect("a target");
        assert_eq!(
            found.inserted(&columns, "c"),
            Some(&Shown::Text("1".to_owned()))
        );
        assert_eq!(found.inserted(&columns, "b"), None);
        let several = target("insert into t values (1), (2)").expect("a target");
        assert_eq!(several.inserted(&columns, "a"), None);
    }
}
