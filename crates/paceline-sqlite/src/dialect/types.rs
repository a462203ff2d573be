//! The names of types in a statement, and casts to them.

use super::source::Source;
use crate::types::Type;

/// A type as it is written in a statement.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Its name, with its restriction.
    pub(crate) name: String,
    /// The token behind it.
    pub(crate) behind: usize,
    pub(crate) is_array: bool,
}

impl Written {
    /// Its number; `None` if the type is unknown.
    pub(crate) fn kind(&self) -> Option<Type> {
        let kind = Type::named(&self.name)?.kind;
        if self.is_array {
            kind.array()
        } else {
            Some(kind)
        }
    }

    /// Whether it is one of the types of texts.
    pub(crate) fn is_text(&self) -> bool {
        let kind = Type::named(&self.name).map(|declared| declared.kind);
        let texts = [Type::TEXT, Type::VARCHAR, Type::BPCHAR, Type::NAME];
        !self.is_array && kind.is_some_and(|kind| texts.contains(&kind))
    }
}

/// The type that begins at `index`; `None` if none does.
pub(crate) fn written(source: &Source<'_>, index: usize) -> Option<Written> {
    let (mut name, mut behind) = source.name(index)?;
    for words in [
        &["precision"][..],
        &["varying"],
        &["with", "time", "zone"],
        &["without", "time", "zone"],
    ] {
        if source.are_words(behind, words) {
            name = format!("{name} {}", words.join(" "));
            behind += words.len();
        }
    }
    if source.is_mark(behind, "(") {
        let end = source.behind_bracket(behind);
        for at in behind..end {
            name += source.text(at);
        }
        behind = end;
        if source.are_words(behind, &["with", "time", "zone"])
            || source.are_words(behind, &["without", "time", "zone"])
        {
            name = format!(
                "{name} {} time zone",
                source.text(behind).to_ascii_lowercase()
            );
            behind += 3;
        }
    }
    let is_array = source.is_mark(behind, "[");
    while source.is_mark(behind, "[") {
        behind = source.behind_bracket(behind);
    }
    Some(Written {
        name,
        behind,
        is_array,
    })
}

/// A number in quotes, such as psql writes for the number of a table.
pub(crate) fn is_quoted_number(text: &str) -> bool {
    let inner = text.trim_matches('\'');
    !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_digit())
}

/// The texts before and behind an expression that is cast to a type.
pub(crate) fn cast(written: &Written) -> (&'static str, &'static str) {
    let kind = Type::named(&written.name).map(|declared| declared.kind);
    if written.is_array {
        return ("CAST(", " AS TEXT)");
    }
    if written.name == "regtype" {
        return ("pg_regtype(", ")");
    }
    match kind {
        Some(Type::INT2) => ("CAST(pg_int2(", ") AS INTEGER)"),
        Some(Type::INT4) => ("CAST(pg_int4(", ") AS INTEGER)"),
        Some(Type::INT8) => ("CAST(pg_int8(", ") AS INTEGER)"),
        Some(Type::OID) => ("CAST(", " AS INTEGER)"),
        Some(Type::FLOAT4 | Type::FLOAT8) => ("CAST(pg_float8(", ") AS REAL)"),
        Some(Type::NUMERIC) => ("pg_numeric(", ")"),
        Some(Type::BYTEA) => ("pg_bytea(", ")"),
        Some(Type::BOOL) => ("pg_bool(", ")"),
        Some(Type::DATE) => ("pg_date(", ")"),
        Some(Type::TIME) => ("pg_time(", ")"),
        Some(Type::TIMESTAMP) => ("pg_timestamp(", ")"),
        Some(Type::TIMESTAMPTZ) => ("pg_timestamptz(", ")"),
        Some(Type::UUID) => ("pg_uuid(", ")"),
        _ => ("CAST(", " AS TEXT)"),
    }
}
