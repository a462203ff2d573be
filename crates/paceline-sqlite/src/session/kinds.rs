//! The types of results: the hints of tokens, with the columns of the schema.

use super::run::resolve;
use crate::{
    dialect::expression::Hint,
    store::link::Link,
    types::{Declared, Type},
};

/// The type of a result that is no column; `None` if only its rows show it.
pub(super) fn of_result(link: &Link, tables: &[String], hint: &Hint) -> Option<Declared> {
    match of(link, tables, hint) {
        Found::Known(declared) => Some(declared),
        Found::Literal => Some(Declared::TEXT),
        Found::Parameter | Found::Unknown => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Known(Declared),
    /// A string or NULL.
    Literal,
    Parameter,
    Unknown,
}

impl Found {
    fn plain(kind: Type) -> Self {
        Self::Known(Declared::plain(kind))
    }

    fn kind(self) -> Option<Type> {
        match self {
            Self::Known(declared) => Some(declared.kind),
            _ => None,
        }
    }
}

fn of(link: &Link, tables: &[String], hint: &Hint) -> Found {
    let all = |hints: &[Hint]| -> Vec<Found> {
        hints.iter().map(|hint| of(link, tables, hint)).collect()
    };
    match hint {
        Hint::Declared(declared) => Found::Known(*declared),
        Hint::Literal => Found::Literal,
        Hint::Parameter => Found::Parameter,
        Hint::Guess(guess) => resolve(link, tables, guess).map_or(Found::Unknown, Found::Known),
        Hint::Widest(hints) => widest(&all(hints)),
        Hint::Common(hints) => common(&all(hints)),
        Hint::Operand(hint) => match of(link, tables, hint) {
            Found::Known(declared) if declared.kind == Type::VARCHAR => Found::plain(Type::TEXT),
            found => found,
        },
        Hint::Sum(hint) => of(link, tables, hint)
            .kind()
            .map_or(Found::Unknown, |kind| Found::plain(sum(kind))),
        Hint::Average(hint) => match of(link, tables, hint).kind() {
            Some(Type::FLOAT4 | Type::FLOAT8) => Found::plain(Type::FLOAT8),
            _ => Found::plain(Type::NUMERIC),
        },
        Hint::Array(hint) => {
            let kind = of(link, tables, hint).kind().and_then(Type::array);
            kind.map_or(Found::Unknown, Found::plain)
        }
    }
}

fn sum(kind: Type) -> Type {
    match kind {
        Type::INT2 | Type::INT4 => Type::INT8,
        Type::INT8 => Type::NUMERIC,
        kind => kind,
    }
}

/// The order of PostgreSQL's numbers: an operation has the type of its later operand.
const NUMBERS: [Type; 6] = [
    Type::INT2,
    Type::INT4,
    Type::INT8,
    Type::NUMERIC,
    Type::FLOAT4,
    Type::FLOAT8,
];

fn widest(all: &[Found]) -> Found {
    let mut best = None;
    for found in all {
        let Some(kind) = found.kind() else {
            match found {
                Found::Unknown => return Found::Unknown,
                _ => continue,
            }
        };
        let Some(rank) = NUMBERS.iter().position(|number| *number == kind) else {
            return Found::Unknown;
        };
        best = best.max(Some(rank));
    }
    best.map_or(Found::Unknown, |rank| Found::plain(NUMBERS[rank]))
}

fn common(all: &[Found]) -> Found {
    if all.contains(&Found::Unknown) {
        return Found::Unknown;
    }
    let known = || all.iter().filter_map(|found| found.kind());
    let Some(first) = known().next() else {
        let is_text = all.contains(&Found::Literal);
        return if is_text {
            Found::Literal
        } else {
            Found::Unknown
        };
    };
    if known().all(|kind| kind == first) {
        // The restriction stays if all alternatives share it.
        let mut declared = all.iter().filter(|found| found.kind().is_some());
        let one = declared.next().copied().unwrap_or(Found::Unknown);
        return if declared.all(|other| *other == one) {
            one
        } else {
            Found::plain(first)
        };
    }
    match widest(all) {
        Found::Unknown => Found::plain(first),
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_widen() {
        let plain = Found::plain;
        assert_eq!(
            widest(&[plain(Type::INT4), plain(Type::INT8)]),
            plain(Type::INT8)
        );
        assert_eq!(
            widest(&[plain(Type::INT2), Found::Parameter]),
            plain(Type::INT2)
        );
        assert_eq!(
            widest(&[plain(Type::INT4), plain(Type::DATE)]),
            Found::Unknown
        );
        assert_eq!(widest(&[plain(Type::INT4), Found::Unknown]), Found::Unknown);
        assert_eq!(
            common(&[Found::Literal, plain(Type::DATE)]),
            plain(Type::DATE)
        );
        assert_eq!(common(&[Found::Literal, Found::Literal]), Found::Literal);
        assert_eq!(
            common(&[plain(Type::INT4), plain(Type::NUMERIC)]),
            plain(Type::NUMERIC)
        );
    }
}
