//! The type of an expression, as its tokens suggest it.
//!
//! ```text
//!   condition     a = b, a AND b, a LIKE b ..    boolean
//!   text          a || b, a ->> b                text
//!   arithmetic    a + b, a * b                   the widest of the operands
//!   primary       (..), CASE, f(..), a::t, a     by its own rule
//! ```
//!
//! The loosest operator outside of brackets decides. Columns are looked up later.

use std::ops::Range;

use super::{infer::Guess, lex::Kind, results, source::Source, types};
use crate::types::{Declared, Type};

/// What the tokens say of a type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Hint {
    Declared(Declared),
    Guess(Guess),
    /// A string or NULL: it takes the type of what it is combined with, else text.
    Literal,
    /// A parameter: it takes the type of what it is combined with.
    Parameter,
    /// The widest of several numbers.
    Widest(Vec<Hint>),
    /// The type that several alternatives have in common.
    Common(Vec<Hint>),
    /// A value of this type, but text for every type of texts.
    Operand(Box<Hint>),
    /// The sum or the average of values of this type.
    Sum(Box<Hint>),
    Average(Box<Hint>),
    /// An array of this type.
    Array(Box<Hint>),
}

impl Hint {
    pub(super) const UNKNOWN: Self = Self::Guess(Guess::Unknown);

    pub(super) const fn plain(kind: Type) -> Self {
        Self::Declared(Declared::plain(kind))
    }
}

/// The hint of these tokens.
pub(super) fn hint(source: &Source<'_>, tokens: Range<usize>) -> Hint {
    if tokens.is_empty() {
        return Hint::UNKNOWN;
    }
    Expression { source, tokens }.hint()
}

struct Expression<'e, 's> {
    source: &'e Source<'s>,
    tokens: Range<usize>,
}

const CONDITIONS: &[&str] = &[
    "and", "or", "is", "in", "like", "ilike", "between", "isnull", "notnull", "glob", "match",
];

impl Expression<'_, '_> {
    fn hint(&self) -> Hint {
        let (source, tokens) = (self.source, &self.tokens);
        if source.is_one_of(tokens.start, &["not", "exists"]) {
            return Hint::plain(Type::BOOL);
        }
        let outside = self.outside();
        if outside.iter().any(|at| is_condition(source, *at)) {
            return Hint::plain(Type::BOOL);
        }
        let operators = || {
            outside
                .iter()
                .rev()
                .copied()
                .filter(|at| self.is_binary(*at))
        };
        if let Some(at) = operators().find(|at| is_other(source.text(*at))) {
            return self.other(at);
        }
        for level in [&["+", "-"][..], &["*", "/", "%", "^"]] {
            let is_level = |at: &usize| level.contains(&source.text(*at));
            if let Some(at) = operators().find(is_level) {
                let left = hint(source, tokens.start..at);
                let right = hint(source, at + 1..tokens.end);
                return Hint::Widest(vec![left, right]);
            }
        }
        if source.is_mark(tokens.start, "-") || source.is_mark(tokens.start, "+") {
            return hint(source, tokens.start + 1..tokens.end);
        }
        match outside.iter().rev().find(|at| source.is_mark(**at, "::")) {
            Some(at) => self.cast(at + 1, tokens.end),
            None => self.primary(),
        }
    }

    /// The tokens outside of brackets and of CASE.
    fn outside(&self) -> Vec<usize> {
        let (mut outside, mut at, mut cases) = (Vec::new(), self.tokens.start, 0_usize);
        while at < self.tokens.end {
            if self.source.is_mark(at, "(") || self.source.is_mark(at, "[") {
                at = self.source.behind_bracket(at);
                continue;
            }
            if self.source.is_word(at, "case") {
                cases += 1;
            }
            if cases == 0 {
                outside.push(at);
            }
            if self.source.is_word(at, "end") {
                cases = cases.saturating_sub(1);
            }
            at += 1;
        }
        outside
    }

    /// Whether an operator has an operand before it.
    fn is_binary(&self, at: usize) -> bool {
        let is_operator = self.source.kind(at) == Some(Kind::Operator);
        is_operator
            && at > self.tokens.start
            && self.source.kind(at - 1) != Some(Kind::Operator)
            && !self.source.is_mark(at, "::")
    }

    fn other(&self, at: usize) -> Hint {
        let left = || hint(self.source, self.tokens.start..at);
        match self.source.text(at) {
            "||" => match left() {
                Hint::Declared(declared) if declared.kind.element().is_some() => left(),
                _ => Hint::plain(Type::TEXT),
            },
            "->>" | "#>>" => Hint::plain(Type::TEXT),
            "->" | "#>" => left(),
            "&" | "|" | "<<" | ">>" | "#" => {
                let right = hint(self.source, at + 1..self.tokens.end);
                Hint::Widest(vec![left(), right])
            }
            _ => Hint::plain(Type::BOOL),
        }
    }

    /// The type that is written from `at` to `end`, and nothing else with it.
    fn cast(&self, at: usize, end: usize) -> Hint {
        let written = types::written(self.source, at).filter(|written| written.behind == end);
        let declared = written.and_then(|written| {
            if written.is_array {
                return written.kind().map(Declared::plain);
            }
            Type::named(&written.name)
        });
        declared.map_or(Hint::UNKNOWN, Hint::Declared)
    }

    fn primary(&self) -> Hint {
        let (source, Range { start, end }) = (self.source, self.tokens.clone());
        if source.is_mark(start, "(") && source.behind_bracket(start) == end {
            return self.brackets();
        }
        if source.is_word(start, "case") {
            return self.case();
        }
        match source.kind(start) {
            Some(Kind::Number) if end == start + 1 => number(source.text(start)),
            Some(Kind::Parameter) if end == start + 1 => Hint::Parameter,
            Some(Kind::Text | Kind::Escaped | Kind::Dollar) if end == start + 1 => Hint::Literal,
            Some(Kind::Word | Kind::Quoted) => self.word(),
            _ => Hint::UNKNOWN,
        }
    }

    /// `(expression)`, or `(SELECT expression ..)`
    fn brackets(&self) -> Hint {
        let inside = self.tokens.start + 1..self.tokens.end - 1;
        if !self.source.is_word(inside.start, "select") {
            return hint(self.source, inside);
        }
        match results::items_within(self.source, inside).as_slice() {
            [only] => hint(
                self.source,
                results::without_alias(self.source, only.clone()),
            ),
            _ => Hint::UNKNOWN,
        }
    }

    /// The results behind THEN and ELSE.
    fn case(&self) -> Hint {
        let (mut all, mut begin, mut depth) = (Vec::new(), None, 0_usize);
        let mut at = self.tokens.start;
        while at < self.tokens.end {
            if self.source.is_mark(at, "(") {
                at = self.source.behind_bracket(at);
                continue;
            }
            let is_own = depth == 1;
            let ends = self.source.is_one_of(at, &["when", "else", "end"]);
            if let Some(begin) = begin.take_if(|_| is_own && ends) {
                all.push(hint(self.source, begin..at));
            }
            if self.source.is_word(at, "case") {
                depth += 1;
            } else if self.source.is_word(at, "end") {
                depth = depth.saturating_sub(1);
            } else if is_own && self.source.is_one_of(at, &["then", "else"]) {
                begin = Some(at + 1);
            }
            at += 1;
        }
        Hint::Common(all)
    }

    fn word(&self) -> Hint {
        let (source, Range { start, end }) = (self.source, self.tokens.clone());
        let Some((name, behind)) = source.name(start) else {
            return Hint::UNKNOWN;
        };
        if behind == end {
            return match source.text(start).to_ascii_lowercase().as_str() {
                "true" | "false" => Hint::plain(Type::BOOL),
                "null" => Hint::Literal,
                "current_timestamp" => Hint::plain(Type::TIMESTAMPTZ),
                "localtimestamp" => Hint::plain(Type::TIMESTAMP),
                "current_date" => Hint::plain(Type::DATE),
                "current_time" => Hint::plain(Type::TIME),
                "current_user" | "session_user" | "current_role" | "current_catalog"
                | "current_schema" => Hint::plain(Type::NAME),
                _ => Hint::Guess(Guess::Column(name)),
            };
        }
        if !source.is_mark(behind, "(") {
            return Hint::UNKNOWN;
        }
        let close = source.behind_bracket(behind);
        if name == "cast" && close == end {
            let is_as = |at: &usize| source.is_word(*at, "as");
            let found = (behind..close).rev().find(is_as);
            return found.map_or(Hint::UNKNOWN, |at| self.cast(at + 1, close - 1));
        }
        // `f(..) OVER (..)` and `f(..) FILTER (..)` have the type of `f(..)`.
        if close == end || source.is_one_of(close, &["over", "filter"]) {
            return call(source, &name, behind + 1..close - 1);
        }
        Hint::UNKNOWN
    }
}

fn is_condition(source: &Source<'_>, at: usize) -> bool {
    const COMPARISONS: [&str; 16] = [
        "=", "<>", "!=", "<", ">", "<=", ">=", "~", "!~", "~*", "!~*", "~~", "!~~", "~~*", "!~~*",
        "@>",
    ];
    let is_operator =
        source.kind(at) == Some(Kind::Operator) && COMPARISONS.contains(&source.text(at));
    is_operator || source.is_one_of(at, CONDITIONS)
}

/// Operators that bind looser than arithmetic and tighter than comparisons.
fn is_other(operator: &str) -> bool {
    !matches!(operator, "+" | "-" | "*" | "/" | "%" | "^" | "::" | ":=")
}

fn number(text: &str) -> Hint {
    Hint::plain(
        if text.contains(['.', 'e', 'E']) && !text.starts_with("0x") {
            Type::NUMERIC
        } else if text.parse::<i32>().is_ok() {
            Type::INT4
        } else if text.parse::<i64>().is_ok() {
            Type::INT8
        } else {
            Type::NUMERIC
        },
    )
}

/// The type of a function's result.
fn call(source: &Source<'_>, function: &str, arguments: Range<usize>) -> Hint {
    let items = results::arguments(source, arguments);
    let of = |index: usize| {
        let item = items.get(index).cloned();
        item.map_or(Hint::UNKNOWN, |item| hint(source, item))
    };
    let all = || {
        items
            .iter()
            .map(|item| hint(source, item.clone()))
            .collect()
    };
    match function {
        "count"
        | "row_number"
        | "rank"
        | "dense_rank"
        | "pg_relation_size"
        | "pg_total_relation_size"
        | "pg_database_size"
        | "pg_table_size" => Hint::plain(Type::INT8),
        "length" | "char_length" | "character_length" | "octet_length" | "strpos" | "ascii"
        | "position" | "pg_backend_pid" | "json_array_length" | "jsonb_array_length" | "ntile"
        | "array_length" | "cardinality" => Hint::plain(Type::INT4),
        "now" | "statement_timestamp" | "transaction_timestamp" | "clock_timestamp" => {
            Hint::plain(Type::TIMESTAMPTZ)
        }
        "upper"
        | "lower"
        | "concat"
        | "concat_ws"
        | "trim"
        | "ltrim"
        | "rtrim"
        | "btrim"
        | "substr"
        | "substring"
        | "replace"
        | "md5"
        | "string_agg"
        | "group_concat"
        | "version"
        | "repeat"
        | "left"
        | "right"
        | "reverse"
        | "split_part"
        | "lpad"
        | "rpad"
        | "chr"
        | "initcap"
        | "to_char"
        | "pg_sleep"
        | "quote_ident"
        | "quote_literal"
        | "format_type"
        | "pg_get_indexdef"
        | "pg_get_constraintdef"
        | "current_setting"
        | "set_config" => Hint::plain(Type::TEXT),
        "current_database" | "current_schema" => Hint::plain(Type::NAME),
        "exists" | "pg_is_in_recovery" | "bool_and" | "bool_or" | "every" | "starts_with" => {
            Hint::plain(Type::BOOL)
        }
        "sum" => Hint::Sum(Box::new(of(0))),
        "avg" => Hint::Average(Box::new(of(0))),
        "array_agg" => Hint::Array(Box::new(of(0))),
        "date" => Hint::plain(Type::DATE),
        "date_trunc" => of(1),
        "date_part" | "random" | "sqrt" | "exp" | "ln" | "pi" | "power" | "pow" => {
            Hint::plain(Type::FLOAT8)
        }
        "extract" => Hint::plain(Type::NUMERIC),
        "gen_random_uuid" => Hint::plain(Type::UUID),
        "json_agg" | "json_build_object" | "to_json" | "row_to_json" => Hint::plain(Type::JSON),
        "jsonb_agg" | "jsonb_build_object" | "to_jsonb" => Hint::plain(Type::JSONB),
        "min" | "max" | "abs" | "lag" | "lead" | "first_value" | "last_value" | "round"
        | "floor" | "ceil" | "ceiling" | "trunc" | "sign" => of(0),
        "nullif" => Hint::Operand(Box::new(of(0))),
        "mod" => Hint::Widest(all()),
        "coalesce" | "greatest" | "least" => Hint::Common(all()),
        _ => Hint::UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sql: &str) -> Hint {
        let source = Source::split(sql).expect("tokens").remove(0);
        let all = 0..source.len();
        hint(&source, all)
    }

    #[test]
    fn the_loosest_operator_decides() {
        for (sql, kind) in [
            ("a + 1 > b * 2", Type::BOOL),
            ("a || b::text", Type::TEXT),
            ("(a = 1)", Type::BOOL),
            ("j ->> 'a'", Type::TEXT),
            ("'{}'::json -> 'a'", Type::JSON),
            ("a IS NOT NULL AND b", Type::BOOL),
            ("cast(a as numeric)", Type::NUMERIC),
            ("'{1}'::int[]", Type(1007)),
            ("count(*) filter (where a)", Type::INT8),
            ("(select count(*) from t)", Type::INT8),
            ("-5", Type::INT4),
            ("5000000000", Type::INT8),
        ] {
            assert_eq!(of(sql), Hint::plain(kind), "{sql}");
        }
    }

    #[test]
    fn operands_are_combined() {
        let column = |name: &str| Hint::Guess(Guess::Column(name.to_owned()));
        let int = || Hint::plain(Type::INT4);
        assert_eq!(of("a + 1"), Hint::Widest(vec![column("a"), int()]));
        assert_eq!(
            of("a - 1 * b"),
            Hint::Widest(vec![column("a"), Hint::Widest(vec![int(), column("b")])])
        );
        assert_eq!(of("a - -1"), Hint::Widest(vec![column("a"), int()]));
        assert_eq!(
            of("case when a then 1 when b = 2 then (case when c then 3 end) else null end"),
            Hint::Common(vec![int(), Hint::Common(vec![int()]), Hint::Literal])
        );
        assert_eq!(
            of("coalesce(a, $1, 'x')"),
            Hint::Common(vec![column("a"), Hint::Parameter, Hint::Literal])
        );
        assert_eq!(
            of("sum(a) over (order by b)"),
            Hint::Sum(Box::new(column("a")))
        );
    }
}
