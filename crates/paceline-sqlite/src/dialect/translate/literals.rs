//! Literals beside a column get the form in which the column's values are kept.
//!
//! SQLite compares texts with texts: `'2024-01-01'` is less than `'2024-01-01 00:00:00'`.

use super::{
    super::{
        expression::{self, Hint},
        infer,
        lex::Kind,
        results,
        source::quote_text,
    },
    Pass,
};
use crate::types::{parameter, Type};

impl Pass<'_, '_> {
    /// A string beside a column, such as `a = '1'` or in VALUES.
    pub(super) fn string(&mut self, at: usize) -> Option<usize> {
        if let Some(kind) = self.type_before(at) {
            return self.typed(at, kind);
        }
        let kind = self.kind_at(at)?;
        self.typed(at, kind)
    }

    /// The type of the column that a token is compared with or stored in.
    fn kind_at(&self, at: usize) -> Option<Type> {
        let schema = self.facts.schema.as_ref()?;
        let is_operator = |at: usize| self.source.kind(at) == Some(Kind::Operator);
        // `'x' || a`, `a = 'x' || b`: the string is only a part of the value.
        let is_left = is_operator(at + 1) && !(at > 0 && is_operator(at - 1));
        let is_comparison = ["=", "<", ">", "<=", ">=", "<>", "!="];
        if is_operator(at + 1) && !(is_left && is_comparison.contains(&self.source.text(at + 1))) {
            return None;
        }
        let before = at
            .checked_sub(1)
            .map_or("", |before| self.source.text(before));
        if is_operator(at.wrapping_sub(1)) && !is_comparison.contains(&before) {
            return None;
        }
        let guess = infer::guess(self.source, at);
        let tables = infer::tables(self.source);
        let of_column = schema.resolve(&tables, &guess);
        of_column.or_else(|| self.kind_of_partner(at, &tables))
    }

    /// The type of the expression that a string is compared with, or is an alternative to.
    fn kind_of_partner(&self, at: usize, tables: &[String]) -> Option<Type> {
        let before = at.checked_sub(1)?;
        if self.source.kind(before) == Some(Kind::Operator) {
            let last = before.checked_sub(1)?;
            let operand = expression::hint(self.source, self.primaries[last]..before);
            return self.kind_of(&operand, tables);
        }
        let open = self.source.opening_bracket_of(at)?;
        let call = open.checked_sub(1)?;
        if !self
            .source
            .is_one_of(call, &["coalesce", "greatest", "least", "nullif"])
        {
            return None;
        }
        let arguments = open + 1..self.source.behind_bracket(open) - 1;
        let mut items = results::arguments(self.source, arguments).into_iter();
        items.find_map(|item| self.kind_of(&expression::hint(self.source, item), tables))
    }

    fn kind_of(&self, hint: &Hint, tables: &[String]) -> Option<Type> {
        match hint {
            Hint::Declared(declared) => Some(declared.kind),
            Hint::Guess(guess) => self.facts.schema.as_ref()?.resolve(tables, guess),
            Hint::Common(all) => all.iter().find_map(|hint| self.kind_of(hint, tables)),
            Hint::Operand(hint) => self.kind_of(hint, tables),
            _ => None,
        }
    }

    /// `date '2024-02-29'`: the type before the string.
    fn type_before(&self, at: usize) -> Option<Type> {
        let before = at.checked_sub(1)?;
        let is_name =
            at >= 2 && (self.source.is_word(at - 2, "as") || self.source.is_mark(at - 2, "."));
        if is_name || self.source.kind(before) != Some(Kind::Word) {
            return None;
        }
        match self.source.text(before).to_ascii_lowercase().as_str() {
            "date" => Some(Type::DATE),
            "timestamp" => Some(Type::TIMESTAMP),
            "timestamptz" => Some(Type::TIMESTAMPTZ),
            "uuid" => Some(Type::UUID),
            _ => None,
        }
    }

    /// Writes the value of a string in the normal form of a type. A string that is no value of the
    /// type fails when the statement runs.
    fn typed(&mut self, at: usize, kind: Type) -> Option<usize> {
        let text = self.source.string(at)?;
        let function = match kind {
            Type::BOOL => {
                let known = parameter::boolean(text.trim());
                return match known {
                    Some(value) => self.put(at, at + 1, if value { "1" } else { "0" }),
                    None => self.put(at, at + 1, &format!("pg_bool({})", quote_text(&text))),
                };
            }
            Type::DATE => "pg_date",
            Type::TIME => "pg_time",
            Type::TIMESTAMP => "pg_timestamp",
            Type::TIMESTAMPTZ => "pg_timestamptz",
            Type::UUID => "pg_uuid",
            Type::INT2 => "pg_int2",
            Type::INT4 => "pg_int4",
            Type::INT8 => "pg_int8",
            Type::FLOAT4 | Type::FLOAT8 => "pg_float8",
            Type::NUMERIC => "pg_numeric",
            Type::BYTEA => "pg_bytea",
            _ => return None,
        };
        let value = match parameter::normal(kind, &text) {
            Ok(normal) if is_moment(kind) => quote_text(&normal),
            _ => format!("{function}({})", quote_text(&text)),
        };
        self.put(at, at + 1, &value)
    }

    /// `DEFAULT` in VALUES or SET: SQLite has it only for whole rows.
    pub(super) fn default_value(&mut self, at: usize) -> Option<usize> {
        let schema = self.facts.schema.clone()?;
        if self.source.is_word(at + 1, "values") {
            return None;
        }
        let guess = infer::guess(self.source, at);
        let tables = infer::tables(self.source);
        let value = schema.default_of(&tables, &guess);
        let value = value.unwrap_or_else(|| "NULL".to_owned());
        self.put(at, at + 1, &format!("({value})"))
    }

    /// `OFFSET` without or before `LIMIT`.
    pub(super) fn offset(&mut self, at: usize) -> Option<usize> {
        let mut before = at;
        while before > 0 {
            before -= 1;
            if self.source.is_mark(before, ")") {
                before = self.source.opening_bracket(before)?;
            } else if self.source.is_mark(before, "(") {
                break;
            } else if self.source.is_one_of(before, &["limit", "fetch"]) {
                return self.rows_word(at);
            }
        }
        let behind = at + 2 + usize::from(self.source.is_one_of(at + 2, &["row", "rows"]));
        let count = |at: usize| self.source.text(at).replace('$', "?");
        let offset = count(at + 1);
        if self.source.is_word(behind, "limit") && !self.source.is_word(behind + 1, "all") {
            let text = format!("LIMIT {} OFFSET {offset}", count(behind + 1));
            return self.put(at, behind + 2, &text);
        }
        let is_fetch = self.source.is_word(behind, "fetch")
            && self.source.is_one_of(behind + 3, &["row", "rows"]);
        if is_fetch {
            let text = format!("LIMIT {} OFFSET {offset}", count(behind + 2));
            return self.put(at, behind + 5, &text);
        }
        self.put(at, at + 1, "LIMIT -1 OFFSET")
    }

    /// `OFFSET n ROWS`
    fn rows_word(&mut self, at: usize) -> Option<usize> {
        if !self.source.is_one_of(at + 2, &["row", "rows"]) {
            return None;
        }
        let text = format!("OFFSET {}", self.source.text(at + 1).replace('$', "?"));
        self.put(at, at + 3, &text)
    }
}

/// Whether SQLite keeps the values as texts in a normal form.
fn is_moment(kind: Type) -> bool {
    matches!(
        kind,
        Type::DATE | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::UUID
    )
}
