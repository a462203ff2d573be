//! `COPY`: its options, and its table or query.

use super::{
    source::{quote_name, Source},
    translate, Facts,
};
use crate::failure::Failure;

/// A copy in or out.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) direction: Direction,
    pub(crate) format: Format,
}

#[derive(Clone, Debug)]
pub(crate) enum Direction {
    /// Into these columns of a table; none: into all of them.
    In { table: String, columns: Vec<String> },
    /// What a query returns.
    Out { query: String },
}

/// How rows are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) is_csv: bool,
    pub(crate) delimiter: u8,
    pub(crate) null: String,
    pub(crate) header: bool,
    pub(crate) quote: u8,
    pub(crate) escape: u8,
}

impl Format {
    const TEXT: Self = Self {
        is_csv: false,
        delimiter: b'\t',
        null: String::new(),
        header: false,
        quote: b'"',
        escape: b'"',
    };
}

impl Copy {
    pub(super) fn read(source: &Source<'_>, facts: &Facts) -> Result<Self, Failure> {
        let (direction, at) = if source.is_mark(1, "(") {
            query(source, facts)?
        } else {
            table(source)?
        };
        let is_stream = source.is_one_of(at, &["stdin", "stdout"]);
        if !is_stream {
            return Err(Failure::unsupported(
                "COPY with files and programs is not supported",
            ));
        }
        let format = options(source, at + 1)?;
        Ok(Self { direction, format })
    }
}

fn query(source: &Source<'_>, facts: &Facts) -> Result<(Direction, usize), Failure> {
    let behind = source.behind_bracket(1);
    if !source.is_word(behind, "to") || behind < 4 {
        return Err(source.syntax_error(behind));
    }
    let text = &source.sql()[source.range(2).start..source.range(behind - 2).end];
    let inner = Source::split(text)?.remove(0);
    let query = translate::translate(&inner, facts);
    Ok((Direction::Out { query }, behind + 1))
}

fn table(source: &Source<'_>) -> Result<(Direction, usize), Failure> {
    let (table, mut at) = source.name(1).ok_or_else(|| source.syntax_error(1))?;
    let mut columns = Vec::new();
    if source.is_mark(at, "(") {
        let found = source
            .names(at + 1)
            .ok_or_else(|| source.syntax_error(at + 1))?;
        columns = found.0;
        at = found.1 + 1;
    }
    if source.is_word(at, "from") {
        return Ok((Direction::In { table, columns }, at + 1));
    }
    if !source.is_word(at, "to") {
        return Err(source.syntax_error(at));
    }
    let list: Vec<_> = columns.iter().map(|column| quote_name(column)).collect();
    let list = if list.is_empty() {
        "*".to_owned()
    } else {
        list.join(", ")
    };
    let query = format!("SELECT {list} FROM {}", quote_name(&table));
    Ok((Direction::Out { query }, at + 1))
}

/// Options in either of PostgreSQL's forms: in brackets, or bare words.
fn options(source: &Source<'_>, at: usize) -> Result<Format, Failure> {
    let mut format = Format::TEXT;
    let (mut delimiter, mut null, mut escape) = (None, None, None);
    let mut at = at + usize::from(source.is_word(at, "with"));
    at += usize::from(source.is_mark(at, "("));
    while at < source.len() {
        let word = source.text(at).to_ascii_lowercase();
        at += 1;
        at += usize::from(source.is_word(at, "as"));
        let mut value = || {
            let value = source
                .string(at)
                .unwrap_or_else(|| source.text(at).to_ascii_lowercase());
            at += 1;
            value
        };
        match word.as_str() {
            "," | ")" => {}
            "csv" => format.is_csv = true,
            "format" => match value().as_str() {
                "csv" => format.is_csv = true,
                "text" => format.is_csv = false,
                _ => return Err(Failure::unsupported("COPY in binary is not supported")),
            },
            "binary" => return Err(Failure::unsupported("COPY in binary is not supported")),
            "delimiter" => delimiter = Some(one_byte("delimiter", &value())?),
            "null" => null = Some(value()),
            "quote" => format.quote = one_byte("quote", &value())?,
            "escape" => escape = Some(one_byte("escape", &value())?),
            "header" | "freeze" => {
                let is_switch =
                    source.is_one_of(at, &["on", "true", "match"]) || source.text(at) == "1";
                let is_off = source.is_one_of(at, &["off", "false"]) || source.text(at) == "0";
                at += usize::from(is_switch || is_off);
                if word == "header" {
                    format.header = !is_off;
                }
            }
            "encoding" => drop(value()),
            _ => return Err(source.syntax_error(at - 1)),
        }
    }
    format.delimiter = delimiter.unwrap_or(if format.is_csv { b',' } else { b'\t' });
    let null_text = if format.is_csv { "" } else { "\\N" };
    format.null = null.unwrap_or_else(|| null_text.to_owned());
    format.escape = escape.unwrap_or(format.quote);
    Ok(format)
}

fn one_byte(name: &str, value: &str) -> Result<u8, Failure> {
    match value.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err(Failure::unsupported(format!(
            "COPY {name} must be a single one-byte character"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(sql: &str) -> Result<Copy, &'static str> {
        let source = Source::split(sql).expect("tokens").remove(0);
        Copy::read(&source, &Facts::default()).map_err(|failure| failure.code)
    }

    #[test]
    fn options_have_two_forms() {
        let new = copy("copy t from stdin with (format csv, header on, delimiter ';', null 'x')");
        let old = copy("copy t from stdin csv header delimiter as ';' null as 'x'");
        let format = new.expect("good").format;
        assert_eq!(Ok(&format), old.as_ref().map(|copy| &copy.format));
        assert_eq!(
            (format.is_csv, format.header, format.delimiter),
            (true, true, b';')
        );
        assert_eq!(copy("copy t from '/etc/passwd'").err(), Some("0A000"));
        assert_eq!(copy("copy t from stdin binary").err(), Some("0A000"));
        assert!(copy("copy pgbench_accounts from stdin with (freeze on)").is_ok());
    }

    #[test]
    fn a_query_is_copied_out() {
        let copy = copy("copy (select a::int from t where b in (1)) to stdout").expect("good");
        let Direction::Out { query } = copy.direction else {
            unreachable!("it goes out");
        };
        assert_eq!(
            query,
            "select CAST(pg_int4(a) AS INTEGER) from t where b in (1)"
        );
    }
}
