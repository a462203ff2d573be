//! Statements that need more than the token pass: each is recognised and rewritten as a whole.

use super::{
    control, copy, counter,
    source::{quote_name, Source},
    translate, Facts, Kind, Statement, Tag,
};
use crate::failure::Failure;

/// Intervals have no form in SQLite: arithmetic with their texts would give wrong numbers.
fn refuse_intervals(source: &Source<'_>) -> Result<(), Failure> {
    let is_interval = |at: usize| {
        source.is_word(at, "interval")
            && (at > 0 && source.is_mark(at - 1, "::") || source.string(at + 1).is_some())
    };
    if (0..source.len()).any(is_interval) {
        return Err(Failure::unsupported("intervals are not supported"));
    }
    Ok(())
}

/// The statement, if the token pass alone can't translate it.
pub(super) fn recognise(source: &Source<'_>, facts: &Facts) -> Result<Option<Statement>, Failure> {
    if source.is_word(0, "copy") {
        let copy = copy::Copy::read(source, facts)?;
        return Ok(Some(Statement {
            kind: Kind::Copy(copy),
            tag: Tag::Changes("COPY"),
        }));
    }
    if let Some((control, tag)) = control::recognise(source)? {
        return Ok(Some(Statement::control(control, &tag)));
    }
    refuse_intervals(source)?;
    match source.text(0).to_ascii_lowercase().as_str() {
        "truncate" => truncate(source).map(Some),
        "drop" => Ok(drop_several(source)),
        "alter" => {
            refuse_counter(source)?;
            Ok(add_constraint(source))
        }
        "explain" => Ok(Some(explain(source, facts))),
        "create" => create(source, facts),
        "table" => Ok(source.name(1).map(|(name, _)| {
            let sql = format!("SELECT * FROM {}", quote_name(&name));
            Statement {
                kind: Kind::Rows(sql),
                tag: Tag::Rows("SELECT"),
            }
        })),
        _ => Ok(None),
    }
}

/// The words that `CommandComplete` names a definition with, such as `CREATE TABLE`.
pub(super) fn tag_of_definition(source: &Source<'_>) -> Tag {
    let verb = source.text(0).to_uppercase();
    let objects = ["table", "index", "view", "trigger"];
    let object = (1..4).find(|at| source.is_one_of(*at, &objects));
    let words = match object {
        Some(at) => format!("{verb} {}", source.text(at).to_uppercase()),
        None => verb,
    };
    Tag::Plain(words)
}

/// `TRUNCATE [TABLE] [ONLY] a, b [..]`
fn truncate(source: &Source<'_>) -> Result<Statement, Failure> {
    let mut at = 1 + usize::from(source.is_word(1, "table"));
    at += usize::from(source.is_word(at, "only"));
    let (names, _) = source.names(at).ok_or_else(|| source.syntax_error(at))?;
    let delete = |name: &String| format!("DELETE FROM {}", quote_name(name));
    Ok(Statement {
        kind: Kind::Several(names.iter().map(delete).collect()),
        tag: Tag::plain("TRUNCATE TABLE"),
    })
}

/// `DROP TABLE [IF EXISTS] a, b [CASCADE]`
fn drop_several(source: &Source<'_>) -> Option<Statement> {
    if !source.is_one_of(1, &["table", "view", "index"]) {
        return None;
    }
    let object = source.text(1).to_uppercase();
    let mut at = 2;
    at += usize::from(source.is_word(at, "concurrently"));
    let if_exists = source.are_words(at, &["if", "exists"]);
    at += if if_exists { 2 } else { 0 };
    let (names, _) = source.names(at)?;
    let condition = if if_exists { "IF EXISTS " } else { "" };
    let drop = |name: &String| format!("DROP {object} {condition}{}", quote_name(name));
    Some(Statement {
        kind: Kind::Several(names.iter().map(drop).collect()),
        tag: Tag::Plain(format!("DROP {object}")),
    })
}

/// A column that counts can't be added: it would be a second key of rows that exist.
fn refuse_counter(source: &Source<'_>) -> Result<(), Failure> {
    const COUNTERS: [&str; 6] = [
        "serial",
        "serial4",
        "bigserial",
        "serial8",
        "smallserial",
        "serial2",
    ];
    let is_type = |at: usize| {
        source.is_one_of(at, &COUNTERS)
            && source.is_one_of(at - 2, &["add", "column", "exists"])
            && !source.is_one_of(at - 1, &["column", "exists"])
    };
    let is_identity = |at: usize| source.are_words(at, &["as", "identity"]);
    let counts = (2..source.len()).any(|at| is_type(at) || is_identity(at));
    if counts {
        return Err(Failure::unsupported(
            "a serial or identity column can only be part of CREATE TABLE",
        ));
    }
    Ok(())
}

/// `ALTER TABLE [ONLY] t ADD [CONSTRAINT c] PRIMARY KEY | UNIQUE (columns)`: a unique index.
fn add_constraint(source: &Source<'_>) -> Option<Statement> {
    if !source.is_word(1, "table") {
        return None;
    }
    let mut at = 2;
    at += if source.are_words(at, &["if", "exists"]) {
        2
    } else {
        0
    };
    at += usize::from(source.is_word(at, "only"));
    let (table, behind) = source.name(at)?;
    at = behind;
    if !source.is_word(at, "add") {
        return None;
    }
    at += 1;
    let mut constraint = None;
    if source.is_word(at, "constraint") {
        let (name, behind) = source.name(at + 1)?;
        constraint = Some(name);
        at = behind;
    }
    let is_key = source.are_words(at, &["primary", "key"]);
    if !is_key && !source.is_word(at, "unique") {
        return None;
    }
    at += 1 + usize::from(is_key);
    let (columns, _) = source.is_mark(at, "(").then(|| source.names(at + 1))??;
    let suffix = if is_key {
        "pkey".to_owned()
    } else {
        format!("{}_key", columns.join("_"))
    };
    let index = constraint.unwrap_or_else(|| format!("{table}_{suffix}"));
    let columns: Vec<_> = columns.iter().map(|column| quote_name(column)).collect();
    let (index, table) = (quote_name(&index), quote_name(&table));
    let sql = format!(
        "CREATE UNIQUE INDEX {index} ON {table} ({})",
        columns.join(", ")
    );
    Some(Statement {
        kind: Kind::Define(sql),
        tag: Tag::plain("ALTER TABLE"),
    })
}

/// SQLite's plan, in its own words.
fn explain(source: &Source<'_>, facts: &Facts) -> Statement {
    let mut at = 1;
    while source.is_one_of(at, &["analyze", "verbose", "query", "plan"]) {
        at += 1;
    }
    if source.is_mark(at, "(") {
        at = source.behind_bracket(at);
    }
    let rest = if at < source.len() {
        &source.sql()[source.range(at).start..]
    } else {
        ""
    };
    let inner = Source::split(rest)
        .ok()
        .and_then(|all| all.into_iter().next());
    let sql = inner.map_or_else(String::new, |inner| translate::translate(&inner, facts));
    Statement {
        kind: Kind::Rows(format!("EXPLAIN QUERY PLAN {sql}")),
        tag: Tag::plain("EXPLAIN"),
    }
}

/// `CREATE INDEX` without PostgreSQL's own options, and `CREATE TABLE .. AS` with the tag of a
/// SELECT.
fn create(source: &Source<'_>, facts: &Facts) -> Result<Option<Statement>, Failure> {
    if source.is_one_of(1, &["temp", "temporary"]) || source.is_one_of(2, &["temp", "temporary"]) {
        return Err(Failure::unsupported(
            "temporary tables and views are not supported",
        ));
    }
    if source.is_one_of(
        1,
        &[
            "database",
            "schema",
            "extension",
            "function",
            "type",
            "role",
            "user",
            "sequence",
            "domain",
            "materialized",
            "procedure",
            "publication",
        ],
    ) {
        let object = source.text(1).to_uppercase();
        return Err(Failure::unsupported(format!(
            "CREATE {object} is not supported"
        )));
    }
    if (1..4).any(|at| source.is_word(at, "table")) {
        counter::of_table(source)?;
    }
    let unique = usize::from(source.is_word(1, "unique"));
    if source.is_word(1 + unique, "index") {
        return Ok(index(source, facts, unique));
    }
    Ok(None)
}

/// `CREATE [UNIQUE] INDEX [CONCURRENTLY] [IF NOT EXISTS] [name] ON t [USING btree] (..)`
fn index(source: &Source<'_>, facts: &Facts, unique: usize) -> Option<Statement> {
    let mut at = 2 + unique;
    at += usize::from(source.is_word(at, "concurrently"));
    let if_not_exists = source.are_words(at, &["if", "not", "exists"]);
    at += if if_not_exists { 3 } else { 0 };
    let named = if source.is_word(at, "on") {
        None
    } else {
        Some(source.name(at)?)
    };
    at = named.as_ref().map_or(at, |(_, behind)| *behind);
    if !source.is_word(at, "on") {
        return None;
    }
    at += 1 + usize::from(source.is_word(at + 1, "only"));
    let (table, mut behind) = source.name(at)?;
    if source.is_word(behind, "using") {
        behind += 2;
    }
    let end = source.behind_bracket(behind);
    let columns = (behind + 1..end - 1)
        .filter_map(|at| source.name(at))
        .map(|(name, _)| name);
    let columns: Vec<_> = columns.collect();
    let name = named.map_or_else(
        || format!("{table}_{}_idx", columns.join("_")),
        |(name, _)| name,
    );
    let mut tail_end = source.len();
    if let Some(with) =
        (end..source.len()).find(|at| source.is_one_of(*at, &["with", "tablespace"]))
    {
        tail_end = with;
    }
    let text = &source.sql()[source.range(behind).start..source.range(tail_end - 1).end];
    let inner = Source::split(text).ok()?.remove(0);
    let body = translate::translate(&inner, facts);
    let unique = if unique == 1 { "UNIQUE " } else { "" };
    let condition = if if_not_exists { "IF NOT EXISTS " } else { "" };
    let (name, table) = (quote_name(&name), quote_name(&table));
    Some(Statement {
        kind: Kind::Define(format!(
            "CREATE {unique}INDEX {condition}{name} ON {table} {body}"
        )),
        tag: Tag::plain("CREATE INDEX"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn several(sql: &str) -> Vec<String> {
        let source = Source::split(sql).expect("tokens").remove(0);
        match Statement::of(&source, &Facts::default())
            .expect("a statement")
            .kind
        {
            Kind::Several(all) => all,
            Kind::Define(sql) | Kind::Rows(sql) => vec![sql],
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn whole_statements_become_sqlites() {
        for (postgres, sqlite) in [
            (
                "drop table if exists a, public.b cascade",
                &["DROP TABLE IF EXISTS \"a\"", "DROP TABLE IF EXISTS \"b\""][..],
            ),
            (
                "truncate table a, b",
                &["DELETE FROM \"a\"", "DELETE FROM \"b\""],
            ),
            (
                "alter table only t add primary key (a, b)",
                &["CREATE UNIQUE INDEX \"t_pkey\" ON \"t\" (\"a\", \"b\")"],
            ),
            (
                "create index concurrently on t using btree (a desc) with (fillfactor=90)",
                &["CREATE INDEX \"t_a_desc_idx\" ON \"t\" (a desc)"],
            ),
            ("explain select 1", &["EXPLAIN QUERY PLAN select 1"]),
        ] {
            assert_eq!(several(postgres), sqlite);
        }
    }
}
