//! The part of PostgreSQL's SQL that this server knows: tokens, no grammar.
//!
//! ```text
//!   text --> Source::split --> Statement::of --> Kind::Rows, Write, Define   one text for SQLite
//!                                            --> Kind::Several               several of them
//!                                            --> Kind::Control, Copy         done by the session
//! ```
//!
//! SQLite checks the grammar. Tokens that no rule names reach it unchanged.

pub(crate) mod control;
pub(crate) mod copy;
pub(crate) mod counter;
pub(crate) mod definition;
pub(crate) mod expression;
pub(crate) mod infer;
mod lex;
mod names;
mod prepare;
pub(crate) mod results;
pub(crate) mod source;
pub(crate) mod target;
mod translate;
mod types;
mod whole;

use crate::failure::Failure;
use control::Control;
use copy::Copy;
pub(crate) use source::Source;
pub(crate) use translate::{Facts, Schema};

/// A statement that is ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) kind: Kind,
    /// What `CommandComplete` begins with.
    pub(crate) tag: Tag,
}

/// How the session runs a statement.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// It returns rows. SQLite decides whether it only reads.
    Rows(String),
    /// As `Rows`, and it counts as a write: `SELECT .. FOR UPDATE`.
    Locks(String),
    /// It changes rows.
    Write(String),
    /// It changes the schema.
    Define(String),
    /// One statement of PostgreSQL that is several of SQLite, all of them writes.
    Several(Vec<String>),
    /// It asks for the catalogue.
    Catalogue(String),
    /// It concerns the session, not the database.
    Control(Control),
    /// It copies rows in or out.
    Copy(Copy),
}

/// What `CommandComplete` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// The word, and the number of rows returned.
    Rows(&'static str),
    /// The word, and the number of rows changed.
    Changes(&'static str),
    /// The words alone.
    Plain(String),
}

impl Tag {
    fn plain(words: &str) -> Self {
        Self::Plain(words.to_owned())
    }

    pub(crate) fn text(&self, rows: u64, changes: u64) -> String {
        match self {
            Self::Rows(word) => format!("{word} {rows}"),
            Self::Changes(word) => format!("{word} {changes}"),
            Self::Plain(words) => words.clone(),
        }
    }
}

impl Statement {
    /// Classifies the statement, and translates its text.
    pub(crate) fn of(source: &Source<'_>, facts: &Facts) -> Result<Self, Failure> {
        if let Some(statement) = whole::recognise(source, facts)? {
            return Ok(statement);
        }
        let sql = || translate::translate(source, facts);
        let (kind, tag) = match verb(source) {
            Verb::Select if locks(source) => (Kind::Locks(sql()), Tag::Rows("SELECT")),
            Verb::Select if has_no_answer(source) => (
                Kind::Rows("SELECT NULL WHERE 0".to_owned()),
                Tag::Rows("SELECT"),
            ),
            Verb::Select if asks_catalogue(source) => (Kind::Catalogue(sql()), Tag::Rows("SELECT")),
            Verb::Select => (Kind::Rows(sql()), Tag::Rows("SELECT")),
            Verb::Explain => (Kind::Rows(sql()), Tag::plain("EXPLAIN")),
            Verb::Insert => (Kind::Write(sql()), Tag::Changes("INSERT 0")),
            Verb::Update => (Kind::Write(sql()), Tag::Changes("UPDATE")),
            Verb::Delete => (Kind::Write(sql()), Tag::Changes("DELETE")),
            Verb::Define => (Kind::Define(sql()), whole::tag_of_definition(source)),
            Verb::Other => return Err(source.syntax_error(0)),
        };
        Ok(Self { kind, tag })
    }

    /// Whether its rows are the client's. SQLite returns some for `ALTER TABLE`; those of a pragma
    /// are what it is for.
    pub(crate) fn has_results(&self) -> bool {
        let is_alter = matches!(&self.tag, Tag::Plain(words) if words.starts_with("ALTER"));
        !(is_alter && matches!(self.kind, Kind::Define(_)))
    }

    /// A statement of the session.
    pub(crate) fn control(control: Control, tag: &str) -> Self {
        Self {
            kind: Kind::Control(control),
            tag: Tag::plain(tag),
        }
    }
}

enum Verb {
    Select,
    Explain,
    Insert,
    Update,
    Delete,
    Define,
    Other,
}

fn verb(source: &Source<'_>) -> Verb {
    let first = source.text(0).to_ascii_lowercase();
    match first.as_str() {
        "select" | "values" | "(" => Verb::Select,
        "with" => verb_behind_with(source),
        "explain" => Verb::Explain,
        "insert" | "replace" => Verb::Insert,
        "update" => Verb::Update,
        "delete" => Verb::Delete,
        "create" | "drop" | "alter" | "reindex" | "analyze" => Verb::Define,
        // Refused by SQLite's authorizer, with a better text than ours.
        "pragma" | "attach" | "detach" => Verb::Define,
        _ => Verb::Other,
    }
}

/// The verb behind `WITH name AS (..), ..`.
fn verb_behind_with(source: &Source<'_>) -> Verb {
    let mut at = 1;
    while at < source.len() {
        if source.is_mark(at, "(") {
            at = source.behind_bracket(at);
            continue;
        }
        match source.text(at).to_ascii_lowercase().as_str() {
            "insert" | "replace" => return Verb::Insert,
            "update" => return Verb::Update,
            "delete" => return Verb::Delete,
            _ => at += 1,
        }
    }
    Verb::Select
}

fn locks(source: &Source<'_>) -> bool {
    (0..source.len()).any(|at| translate::end_of_locking(source, at).is_some())
}

/// Whether this is a query of psql's `\d` about objects that SQLite does not have, in a grammar
/// that SQLite can't parse.
fn has_no_answer(source: &Source<'_>) -> bool {
    const UNKNOWN: [&str; 5] = [
        "pg_publication",
        "pg_partition_ancestors",
        "pg_statistic_ext",
        "pg_policy",
        "pg_options_to_table",
    ];
    (0..source.len()).any(|at| source.is_one_of(at, &UNKNOWN))
}

/// Whether the statement reads PostgreSQL's catalogue, or calls a function that does.
fn asks_catalogue(source: &Source<'_>) -> bool {
    (0..source.len()).any(|at| is_catalogue(source, at))
}

fn is_catalogue(source: &Source<'_>, at: usize) -> bool {
    if source.kind(at) != Some(lex::Kind::Word) {
        return false;
    }
    let word = source.text(at).to_ascii_lowercase();
    let is_call = source.is_mark(at + 1, "(");
    if is_call {
        return word.starts_with("pg_get_")
            || word.starts_with("has_")
            || word.ends_with("_is_visible")
            || word.ends_with("obj_description")
            || matches!(
                word.as_str(),
                "col_description"
                    | "format_type"
                    | "current_schemas"
                    | "pg_encoding_to_char"
                    | "pg_size_pretty"
                    | "pg_database_size"
                    | "pg_table_size"
                    | "pg_relation_size"
                    | "pg_total_relation_size"
            );
    }
    let is_relation = at > 0
        && (source.is_one_of(at - 1, &["from", "join"])
            || source.is_mark(at - 1, ",")
            || source.is_mark(at - 1, "."));
    let is_schema = source.is_mark(at + 1, ".");
    matches!(word.as_str(), "information_schema" | "regclass" | "regtype")
        || word.starts_with("pg_") && is_relation && !is_schema
}
