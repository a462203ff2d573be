//! The error of a statement: an SQLSTATE and a text.

use paceline_pg_wire::{NewReport, Severity};
use rusqlite::ffi;

/// A failed statement, or a session that ends.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) severity: Severity,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) detail: Option<String>,
    pub(crate) hint: Option<String>,
    /// SQLite's text for a violated constraint that has no name yet.
    pub(crate) violated: Option<String>,
    pub(crate) place: Option<Box<Place>>,
}

/// The table, the column and the constraint that an error is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    table: String,
    column: Option<String>,
    constraint: Option<String>,
}

impl Place {
    pub(crate) fn of_table(table: &str) -> Self {
        Self {
            table: table.to_owned(),
            ..Self::default()
        }
    }

    pub(crate) fn column(mut self, name: &str) -> Self {
        self.column = Some(name.to_owned());
        self
    }

    pub(crate) fn constraint(mut self, name: &str) -> Self {
        self.constraint = Some(name.to_owned());
        self
    }

    /// Adds the fields that PostgreSQL gives to errors about tables.
    fn add_to(&self, report: NewReport) -> NewReport {
        let fields = [(b'c', &self.column), (b'n', &self.constraint)];
        let report = report.field(b's', "public").field(b't', self.table.clone());
        fields
            .into_iter()
            .fold(report, |report, (letter, name)| match name {
                Some(name) => report.field(letter, name.clone()),
                None => report,
            })
    }
}

impl Failure {
    /// An error of the statement: the session continues.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            message: message.into(),
            detail: None,
            hint: None,
            violated: None,
            place: None,
        }
    }

    /// An error that ends the session.
    pub(crate) fn fatal(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Fatal,
            ..Self::new(code, message)
        }
    }

    /// A feature that this server does not have.
    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::new("0A000", what)
    }

    pub(crate) fn detail(mut self, text: impl Into<String>) -> Self {
        self.detail = Some(text.into());
        self
    }

    pub(crate) fn hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(text.into());
        self
    }

    /// The place that the error is about.
    pub(crate) fn at(mut self, place: Place) -> Self {
        self.place = Some(Box::new(place));
        self
    }

    /// A violated constraint, with SQLite's text until it is named.
    fn violated(code: &'static str, message: &str, text: &str) -> Self {
        Self {
            violated: Some(text.to_owned()),
            ..Self::new(code, message).detail(text)
        }
    }

    pub(crate) fn is_fatal(&self) -> bool {
        self.severity == Severity::Fatal
    }

    pub(crate) fn report(&self) -> NewReport {
        let mut report = NewReport::new(self.severity, self.code, self.message.clone());
        if let Some(detail) = &self.detail {
            report = report.detail(detail.clone());
        }
        if let Some(hint) = &self.hint {
            report = report.hint(hint.clone());
        }
        match &self.place {
            Some(place) => place.add_to(report),
            None => report,
        }
    }

    /// Another transaction has committed since this one read: the client may try again.
    pub(crate) fn stale_snapshot() -> Self {
        Self::new(
            "40001",
            "could not serialize access due to concurrent update",
        )
        .hint("The transaction might succeed if retried.")
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        match error {
            rusqlite::Error::SqliteFailure(cause, message) => of_code(
                cause.extended_code,
                &message.unwrap_or_else(|| cause.to_string()),
            ),
            rusqlite::Error::SqlInputError { error, msg, .. } => of_code(error.extended_code, &msg),
            rusqlite::Error::NulError(_) => {
                Self::new("22021", "invalid byte sequence for encoding \"UTF8\": 0x00")
            }
            rusqlite::Error::Utf8Error(..) => {
                Self::new("22021", "invalid byte sequence for encoding \"UTF8\"")
            }
            other => Self::new("XX000", other.to_string()),
        }
    }
}

/// The SQLSTATE of an extended result code of SQLite, and PostgreSQL's text where there is one.
fn of_code(extended: i32, message: &str) -> Failure {
    match extended {
        ffi::SQLITE_CONSTRAINT_UNIQUE
        | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
        | ffi::SQLITE_CONSTRAINT_ROWID => {
            let text = "duplicate key value violates unique constraint";
            Failure::violated("23505", text, message)
        }
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => {
            Failure::violated("23503", "a foreign key constraint is violated", message)
        }
        ffi::SQLITE_CONSTRAINT_NOTNULL => {
            Failure::violated("23502", "null value violates not-null constraint", message)
        }
        ffi::SQLITE_CONSTRAINT_CHECK => {
            Failure::violated("23514", "new row violates check constraint", message)
        }
        ffi::SQLITE_CONSTRAINT_DATATYPE => Failure::new("22P02", message),
        ffi::SQLITE_BUSY_SNAPSHOT => Failure::stale_snapshot(),
        _ => of_primary(extended & 0xff, message),
    }
}

fn of_primary(code: i32, message: &str) -> Failure {
    match code {
        ffi::SQLITE_ERROR => of_text(message),
        ffi::SQLITE_CONSTRAINT => Failure::new("23000", message),
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => {
            Failure::new("55P03", "the database is locked by another process").detail(message)
        }
        ffi::SQLITE_INTERRUPT => Failure::new("57014", "canceling statement due to user request"),
        ffi::SQLITE_FULL => Failure::new("53100", "could not extend the database: no space left"),
        ffi::SQLITE_NOMEM => Failure::new("53200", "out of memory"),
        ffi::SQLITE_IOERR | ffi::SQLITE_CANTOPEN => Failure::new("58030", message),
        ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB => Failure::new("XX001", message),
        ffi::SQLITE_TOOBIG => Failure::new("54000", message),
        ffi::SQLITE_READONLY => Failure::new(
            "25006",
            "cannot execute the statement in a read-only transaction",
        ),
        ffi::SQLITE_AUTH => Failure::unsupported(format!("not supported: {message}")),
        ffi::SQLITE_MISMATCH => Failure::new("22P02", message),
        ffi::SQLITE_RANGE => Failure::new("08P01", message),
        _ => Failure::new("XX000", message),
    }
}

/// SQLite names no code for these: only the text says what is wrong.
fn of_text(message: &str) -> Failure {
    let name = |prefix: &str| {
        message
            .strip_prefix(prefix)
            .map(|rest| bare(rest).to_owned())
    };
    if let Some(table) = name("no such table: ").or_else(|| name("no such view: ")) {
        return Failure::new("42P01", format!("relation \"{table}\" does not exist"));
    }
    if let Some(column) = name("no such column: ") {
        return Failure::new("42703", format!("column \"{column}\" does not exist"));
    }
    if let Some(function) = name("no such function: ") {
        return Failure::new("42883", format!("function {function} does not exist"));
    }
    if let Some(index) = name("no such index: ") {
        return Failure::new("42704", format!("index \"{index}\" does not exist"));
    }
    let has = |part: &str| message.contains(part);
    let code = if has("already exists") {
        "42P07"
    } else if has("syntax error") || has("incomplete input") || has("unrecognized token") {
        "42601"
    } else if has("has no column named") {
        "42703"
    } else if has("wrong number of arguments") {
        "42883"
    } else if has("ambiguous column name") {
        "42702"
    } else if has("division by zero") {
        "22012"
    } else if has("invalid input syntax for type date") || has("invalid input syntax for type time")
    {
        "22007"
    } else if has("invalid input syntax") || has("malformed array literal") {
        "22P02"
    } else if has("unrecognized configuration parameter") {
        "42704"
    } else if has("invalid regular expression") {
        "2201B"
    } else if has("integer overflow") || has("out of range") {
        "22003"
    } else if has("duplicate column name") {
        "42701"
    } else if has("malformed JSON") {
        "22P02"
    } else if has("parser stack overflow") || has("too many") || has("too large") {
        "54000"
    } else if has("not authorized") || has("prohibited") {
        "0A000"
    } else {
        "42000"
    };
    Failure::new(code, message)
}

/// A name without what SQLite writes behind it, such as a hint about quotes.
fn bare(name: &str) -> &str {
    let name = name.split(" - ").next().unwrap_or(name);
    name.strip_prefix("main.").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(setup: &str, sql: &str) -> &'static str {
        let connection = rusqlite::Connection::open_in_memory().expect("memory");
        connection.execute_batch(setup).expect("a good setup");
        let error = connection.execute_batch(sql).expect_err("an error");
        Failure::from(error).code
    }

    #[test]
    fn each_error_has_its_sqlstate() {
        let table = "PRAGMA foreign_keys = ON; CREATE TABLE p(id INTEGER PRIMARY KEY);
            CREATE TABLE t(a int UNIQUE, b int NOT NULL, c int CHECK (c > 0), d REFERENCES p);
            INSERT INTO t VALUES (1, 1, 1, NULL);";
        for (sql, code) in [
            ("INSERT INTO t VALUES (1, 1, 1, NULL)", "23505"),
            ("INSERT INTO t VALUES (2, NULL, 1, NULL)", "23502"),
            ("INSERT INTO t VALUES (2, 1, 0, NULL)", "23514"),
            ("INSERT INTO t VALUES (2, 1, 1, 7)", "23503"),
            ("SELECT * FROM u", "42P01"),
            ("SELECT x FROM t", "42703"),
            ("SELECT f(1)", "42883"),
            ("CREATE TABLE t(a)", "42P07"),
            ("SELEC 1", "42601"),
            ("SELECT (1", "42601"),
            ("SELECT abs(-9223372036854775808)", "22003"),
            ("CREATE UNIQUE INDEX i ON t(nosuch)", "42703"),
        ] {
            assert_eq!(code_of(table, sql), code, "{sql}");
        }
    }
}
