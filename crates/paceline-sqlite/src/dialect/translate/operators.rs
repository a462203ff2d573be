//! Operators and casts.

use std::ops::Range;

use super::{
    super::{
        expression::{self, Hint},
        infer::{self, Guess},
        lex::Kind,
        types,
    },
    Pass,
};
use crate::types::Type;

impl Pass<'_, '_> {
    pub(super) fn operator(&mut self, at: usize) -> Option<usize> {
        match self.source.text(at) {
            "::" => self.cast(at),
            "=" if self.source.is_one_of(at + 1, &["any", "some"]) => self.any(at, "IN"),
            "<>" | "!=" if self.source.is_word(at + 1, "all") => self.any(at, "NOT IN"),
            "/" | "%" => self.division(at),
            "~~" => self.like(at, "LIKE"),
            "!~~" => self.like(at, "NOT LIKE"),
            other => self.put(at, at + 1, pattern_operator(other)?),
        }
    }

    /// `operand::type`
    fn cast(&mut self, at: usize) -> Option<usize> {
        let written = types::written(self.source, at + 1)?;
        let first = self.primaries[at.checked_sub(1)?];
        let (before, behind) = match written.name.as_str() {
            // The name of a table becomes its number, and its number becomes its name.
            "regclass" if self.source.kind(first) == Some(Kind::Text) => {
                if types::is_quoted_number(self.source.text(first)) {
                    ("CAST(", " AS INTEGER)")
                } else {
                    ("(SELECT p.oid FROM pg_class p WHERE p.relname = ", ")")
                }
            }
            "regclass" => ("(SELECT p.relname FROM pg_class p WHERE p.oid = ", ")"),
            // The number of a type becomes its name only as a text.
            "regtype" if self.source.is_mark(written.behind, "::") => ("format_type(", ", -1)"),
            _ if self.spells_boolean(&written, first..at) => TEXT_OF_BOOLEAN,
            _ => types::cast(&written),
        };
        let start = self.starts[first];
        self.output.insert_str(start, before);
        for index in first + 1..at {
            self.starts[index] += before.len();
        }
        self.output.push_str(behind);
        for index in at..written.behind {
            self.primaries[index] = first;
        }
        self.copied = self.source.range(written.behind - 1).end;
        Some(written.behind)
    }

    /// Whether a boolean is cast to a text.
    fn spells_boolean(&self, written: &types::Written, operand: Range<usize>) -> bool {
        if !written.is_text() {
            return false;
        }
        match expression::hint(self.source, operand) {
            Hint::Declared(declared) => declared.kind == Type::BOOL,
            Hint::Guess(Guess::Column(name)) => {
                let is_boolean = |table: &String| {
                    let found = self.facts.schema.as_ref();
                    found.and_then(|schema| schema.column_type(table, &name)) == Some(Type::BOOL)
                };
                infer::tables(self.source).iter().any(is_boolean)
            }
            _ => false,
        }
    }

    /// `= ANY (ARRAY[..])`, `= ANY ($1)`, `<> ALL (..)`
    fn any(&mut self, at: usize, operator: &str) -> Option<usize> {
        let open = at + 2;
        if !self.source.is_mark(open, "(") || self.source.is_one_of(open + 1, &["select", "with"]) {
            return None;
        }
        let close = self.source.behind_bracket(open) - 1;
        if self.source.is_word(open + 1, "array") && self.source.is_mark(open + 2, "[") {
            let end = self.source.behind_bracket(open + 2);
            self.put(at, open + 3, &format!("{operator} ("));
            let mut next = open + 3;
            while next < end - 1 {
                next = self.step(next);
            }
            // Leaves out a cast of the whole array.
            return self.put(end - 1, close + 1, ")");
        }
        self.closings.push((close + 1, "))".to_owned()));
        self.put(
            at,
            open + 1,
            &format!("{operator} (SELECT value FROM json_each(pg_array("),
        )
    }

    /// `OPERATOR(pg_catalog.~)`
    pub(super) fn spelled_operator(&mut self, at: usize) -> Option<usize> {
        let behind = self.source.behind_bracket(at + 1);
        let operator = self.source.text(behind.checked_sub(2)?);
        self.put(at, behind, pattern_operator(operator).unwrap_or(operator))
    }

    /// `CAST(operand AS type)`
    pub(super) fn long_cast(&mut self, at: usize) -> Option<usize> {
        let behind = self.source.behind_bracket(at + 1);
        let mut depth = 0_usize;
        let found = (at + 1..behind).rev().find(|index| {
            if self.source.is_mark(*index, ")") {
                depth += 1;
            } else if self.source.is_mark(*index, "(") {
                depth = depth.saturating_sub(1);
            }
            depth == 1 && self.source.is_word(*index, "as")
        })?;
        let written = types::written(self.source, found + 1)?;
        let (before, after) = if self.spells_boolean(&written, at + 2..found) {
            TEXT_OF_BOOLEAN
        } else {
            types::cast(&written)
        };
        let first = at;
        self.put(at, at + 2, before);
        let mut next = at + 2;
        while next < found {
            next = self.step(next);
        }
        self.output.push_str(after);
        for index in found..behind {
            self.primaries[index] = first;
        }
        self.copied = self.source.range(behind - 1).end;
        Some(behind)
    }
}

/// SQLite's booleans are numbers: as a text, 1 must be `true`.
const TEXT_OF_BOOLEAN: (&str, &str) = ("pg_bool_text(", ")");

/// SQLite's words for an operator that compares with a pattern.
fn pattern_operator(operator: &str) -> Option<&'static str> {
    Some(match operator {
        "~" => "REGEXP",
        "!~" => "NOT REGEXP",
        "~*" => "REGEXP '(?i)' ||",
        "!~*" => "NOT REGEXP '(?i)' ||",
        "~~" => "LIKE",
        "!~~" => "NOT LIKE",
        "~~*" => "MATCH",
        _ => return None,
    })
}
