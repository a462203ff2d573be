//! What a request returns, and the values that it takes.

use paceline_pg_wire::backend::Reply;

/// What a request returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The names of the columns of the last rows, if the request was a text of SQL.
    pub columns: Vec<String>,
    /// Each row of all statements, as texts; `None` for NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// The tag of each statement, such as `UPDATE 1`.
    pub tags: Vec<String>,
    /// Whether the server has committed without waiting for its replicas, because the wait was
    /// cancelled. PostgreSQL says so in a warning, and reports success.
    pub is_unreplicated: bool,
    /// Whether the server has parsed the statement.
    pub(super) is_parsed: bool,
}

/// A value of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'v> {
    /// A number of 64 bits.
    Number(i64),
    /// A text.
    Text(&'v str),
}

/// The function of PostgreSQL that warns of a commit which its replicas have not confirmed.
const WAIT_FOR_REPLICAS: &[u8] = b"SyncRepWaitForLSN";

impl Answer {
    pub(super) fn add(&mut self, reply: Reply<'_>) {
        match reply {
            Reply::RowDescription(columns) => {
                let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                self.columns = columns.iter().map(|column| name(column.name)).collect();
            }
            Reply::Row(values) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                self.rows
                    .push(values.iter().map(|value| value.map(text)).collect());
            }
            Reply::Complete(tag) => self.tags.push(String::from_utf8_lossy(tag).into_owned()),
            Reply::ParseComplete => self.is_parsed = true,
            Reply::Notice(report) => {
                self.is_unreplicated |= report.get(b'R') == Some(WAIT_FOR_REPLICAS);
            }
            _ => {}
        }
    }

    /// The number in this row and column.
    #[must_use]
    pub fn number(&self, row: usize, column: usize) -> Option<i64> {
        self.text(row, column)?.parse().ok()
    }

    /// The text in this row and column; `None` if it is NULL.
    #[must_use]
    pub fn text(&self, row: usize, column: usize) -> Option<&str> {
        self.rows.get(row)?.get(column)?.as_deref()
    }

    /// The number in the column of this name.
    #[must_use]
    pub fn number_of(&self, row: usize, column: &str) -> Option<i64> {
        let column = self.columns.iter().position(|name| name == column)?;
        self.number(row, column)
    }

    /// How many rows the last statement has changed.
    #[must_use]
    pub fn changed(&self) -> Option<u64> {
        self.tags.last()?.rsplit(' ').next()?.parse().ok()
    }
}

impl Value<'_> {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => (*text).to_owned(),
        }
    }

    /// The type `int8` or `text`.
    pub(super) fn oid(&self) -> u32 {
        match self {
            Self::Number(_) => 20,
            Self::Text(_) => 25,
        }
    }

    fn literal(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => format!("'{}'", text.replace('\'', "''")),
        }
    }
}

/// The statement with its values written into it. The caller's statements have `$` before the
/// number of a value, and nowhere else.
pub(super) fn with_literals(sql: &str, values: &[Value<'_>]) -> String {
    let mut pieces = sql.split('$');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_digit());
        let (number, rest) = piece.split_at(end.unwrap_or(piece.len()));
        let value = number
            .parse()
            .ok()
            .and_then(|n: usize| values.get(n.checked_sub(1)?));
        text += &value.map_or_else(|| format!("${number}"), Value::literal);
        text += rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_into_a_statement() {
        let values = [Value::Number(-5), Value::Text("it's")];
        assert_eq!(
            with_literals("UPDATE t SET a = a || $2 WHERE b = $1 OR c = $2", &values),
            "UPDATE t SET a = a || 'it''s' WHERE b = -5 OR c = 'it''s'"
        );
        assert_eq!(with_literals("SELECT $3", &values), "SELECT $3");
    }

    #[test]
    fn an_answer_gives_its_numbers() {
        let answer = Answer {
            rows: vec![vec![Some("7".to_owned()), None]],
            tags: vec!["SELECT 1".to_owned(), "INSERT 0 3".to_owned()],
            ..Answer::default()
        };
        assert_eq!((answer.number(0, 0), answer.number(0, 1)), (Some(7), None));
        assert_eq!((answer.number(1, 0), answer.changed()), (None, Some(3)));
    }
}
