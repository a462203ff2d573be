//! Infers the types of parameters from the tokens of a statement.

use super::{lex::Kind, source::Source, types};
use crate::types::Type;

/// The type that the context of a parameter suggests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Guess {
    Type(Type),
    /// The type of a column of this name, in one of the statement's tables.
    Column(String),
    /// The type of this column of the table that rows are inserted into.
    Inserted(usize),
    /// An array of the type of a column of this name.
    ArrayOf(String),
    Unknown,
}

/// The guess for each parameter, from `$1` on.
pub(crate) fn parameters(source: &Source<'_>) -> Vec<Guess> {
    let mut guesses = Vec::new();
    for at in 0..source.len() {
        let Some(number) = number_of(source, at) else {
            continue;
        };
        if guesses.len() < number {
            guesses.resize(number, Guess::Unknown);
        }
        if guesses[number - 1] == Guess::Unknown {
            guesses[number - 1] = guess(source, at);
        }
    }
    guesses
}

/// The most parameters that the protocol can pass.
const MOST: usize = 65_535;

fn number_of(source: &Source<'_>, at: usize) -> Option<usize> {
    let is_parameter = source.kind(at) == Some(Kind::Parameter);
    let number = is_parameter.then(|| source.text(at)[1..].parse().ok())??;
    (1..=MOST).contains(&number).then_some(number)
}

/// The tables that the statement names.
pub(crate) fn tables(source: &Source<'_>) -> Vec<String> {
    let mut tables = Vec::new();
    for at in 0..source.len() {
        if !source.is_one_of(at, &["from", "join", "update", "into"]) {
            continue;
        }
        let mut next = at + 1 + usize::from(source.is_word(at + 1, "only"));
        while let Some((name, behind)) = source.name(next) {
            tables.push(name);
            // `FROM a x, b AS y`
            let mut end = behind + usize::from(source.is_word(behind, "as"));
            if !source.is_mark(end, ",") {
                end += 1;
            }
            if !(source.is_word(at, "from") && source.is_mark(end, ",")) {
                break;
            }
            next = end + 1;
        }
    }
    tables
}

/// The guess for the token at `at`: a parameter, or a literal.
pub(super) fn guess(source: &Source<'_>, at: usize) -> Guess {
    if source.is_mark(at + 1, "::") {
        return written(source, at + 2);
    }
    if source.is_word(at + 1, "as") && at >= 2 && source.is_word(at - 2, "cast") {
        return written(source, at + 2);
    }
    let Some(before) = at.checked_sub(1) else {
        return Guess::Unknown;
    };
    if source.is_mark(before, "(") && source.is_mark(at + 1, ")") && before >= 2 {
        if let Some(name) = compared_with_array(source, before - 1) {
            return Guess::ArrayOf(name);
        }
    }
    if source.is_one_of(before, &["limit", "offset"]) {
        return Guess::Type(Type::INT8);
    }
    if is_comparison(source, before) {
        return before
            .checked_sub(1)
            .map_or(Guess::Unknown, |name| column(source, name));
    }
    if is_comparison(source, at + 1) {
        let end = source.name(at + 2).map_or(at + 2, |(_, behind)| behind - 1);
        return column(source, end);
    }
    if source.is_word(before, "between") {
        return before
            .checked_sub(1)
            .map_or(Guess::Unknown, |name| column(source, name));
    }
    if source.is_word(before, "and") && before >= 3 && source.is_word(before - 2, "between") {
        return column(source, before - 3);
    }
    in_list(source, at)
}

/// The column before `= ANY`, whose token `any` or `all` is at `word`.
fn compared_with_array(source: &Source<'_>, word: usize) -> Option<String> {
    let is_word = source.is_one_of(word, &["any", "some", "all"]);
    let operator = word.checked_sub(1).filter(|at| is_comparison(source, *at));
    let at = operator.filter(|_| is_word)?.checked_sub(1)?;
    match column(source, at) {
        Guess::Column(name) => Some(name),
        _ => None,
    }
}

fn written(source: &Source<'_>, at: usize) -> Guess {
    let kind = types::written(source, at).and_then(|written| written.kind());
    kind.map_or(Guess::Unknown, Guess::Type)
}

fn is_comparison(source: &Source<'_>, at: usize) -> bool {
    let is_operator = source.kind(at) == Some(Kind::Operator)
        && matches!(
            source.text(at),
            "=" | "<>" | "!=" | "<" | ">" | "<=" | ">=" | "+" | "-" | "*" | "/" | "%"
        );
    is_operator || source.is_one_of(at, &["like", "ilike"])
}

/// The column with a name that ends at `at`.
fn column(source: &Source<'_>, at: usize) -> Guess {
    let is_number = source.kind(at) == Some(Kind::Number);
    if is_number && !source.text(at).contains(['.', 'e', 'E']) {
        return Guess::Type(Type::INT8);
    }
    match source.kind(at) {
        Some(Kind::Word | Kind::Quoted) => source
            .name(at)
            .map_or(Guess::Unknown, |(name, _)| Guess::Column(name)),
        _ => Guess::Unknown,
    }
}

/// A parameter in brackets with commas: a row that is inserted, or the list of an `IN`.
fn in_list(source: &Source<'_>, at: usize) -> Guess {
    let (mut index, mut depth, mut place) = (at, 0_usize, 0);
    while index > 0 {
        index -= 1;
        if source.is_mark(index, ")") {
            depth += 1;
        } else if source.is_mark(index, "(") && depth > 0 {
            depth -= 1;
        } else if source.is_mark(index, "(") {
            break;
        } else if source.is_mark(index, ",") && depth == 0 {
            place += 1;
        }
    }
    let is_alone = (source.is_mark(at - 1, "(") || source.is_mark(at - 1, ","))
        && (source.is_mark(at + 1, ")") || source.is_mark(at + 1, ","));
    if !is_alone || index < 2 {
        return Guess::Unknown;
    }
    if source.is_word(index - 1, "in") {
        let name = index - 2 - usize::from(source.is_word(index - 2, "not"));
        return column(source, name);
    }
    let is_row = source.is_word(index - 1, "values") || source.is_mark(index - 1, ",");
    if is_row && source.is_word(0, "insert") {
        return inserted(source, place);
    }
    Guess::Unknown
}

/// The column of this place in `INSERT INTO t (columns)`.
fn inserted(source: &Source<'_>, place: usize) -> Guess {
    let list = source.name(2).map(|(_, behind)| behind);
    let Some(list) = list.filter(|list| source.is_mark(*list, "(")) else {
        return Guess::Inserted(place);
    };
    let names = source.names(list + 1).map(|(names, _)| names);
    let name = names.and_then(|names| names.into_iter().nth(place));
    name.map_or(Guess::Unknown, Guess::Column)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guesses(sql: &str) -> Vec<Guess> {
        parameters(&Source::split(sql).expect("tokens")[0])
    }

    fn column(name: &str) -> Guess {
        Guess::Column(name.to_owned())
    }

    #[test]
    fn places_show_types() {
        for (sql, guess) in [
            ("select $1::int", Guess::Type(Type::INT4)),
            ("select cast($1 as bigint)", Guess::Type(Type::INT8)),
            ("select * from t limit $1", Guess::Type(Type::INT8)),
            ("update t set a = a + $1", column("a")),
            ("select * from t where x.a >= $1", column("a")),
            ("select * from t where $1 < x.a", column("a")),
            ("select * from t where a between 1 and $1", column("a")),
            ("select * from t where a not in (1, $1)", column("a")),
            (
                "insert into t(a, b) values (1, f(2, 3)), (2, $1)",
                column("b"),
            ),
            ("insert into t values (1, $1)", Guess::Inserted(1)),
            (
                "select * from t where a = any($1)",
                Guess::ArrayOf("a".to_owned()),
            ),
            ("select $1::int[]", Guess::Type(Type(1007))),
            ("select f($1)", Guess::Unknown),
            ("select $1", Guess::Unknown),
        ] {
            assert_eq!(guesses(sql), [guess], "{sql}");
        }
        assert_eq!(
            guesses("select * from t where b = $2 and a = $1"),
            [column("a"), column("b")]
        );
    }

    #[test]
    fn tables_are_found() {
        let source =
            Source::split("select 1 from a x, public.b as y join c on 1 = 1").expect("tokens");
        assert_eq!(tables(&source[0]), ["a", "b", "c"]);
    }
}
