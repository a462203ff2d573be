//! Statements that concern the session: transactions, settings, cursors.

use super::{lex::Kind, prepare, source::Source};
use crate::{failure::Failure, types::Type};

/// A statement that the session carries out itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Begin(Mode),
    Commit,
    Rollback,
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    /// The mode of the present transaction.
    SetTransaction(Mode),
    Set {
        name: String,
        value: Option<String>,
        is_local: bool,
    },
    Show(String),
    ResetAll,
    /// Forgets statements, cursors and settings.
    DiscardAll,
    /// Forgets a statement; `None`: all of them.
    Deallocate(Option<String>),
    /// Prepares a statement with parameters of these types.
    Prepare {
        name: String,
        types: Vec<Type>,
        query: String,
    },
    /// Runs a prepared statement with the values of these expressions.
    Execute {
        name: String,
        values: Vec<String>,
    },
    /// Makes a cursor of a query. A cursor that is held outlives its transaction.
    Declare {
        name: String,
        query: String,
        is_held: bool,
    },
    Fetch {
        name: String,
        count: Count,
        moves: bool,
    },
    /// Closes a cursor; `None`: all of them.
    Close(Option<String>),
    /// Takes the lane of writers.
    Lock,
    /// Writes the log back into the database.
    Checkpoint,
    /// Has no effect.
    Nothing,
}

/// What a transaction may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) read_only: Option<bool>,
}

/// How many rows are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    All,
    Next(u32),
}

/// The control statement and its tag; `None` for any other statement.
pub(crate) fn recognise(source: &Source<'_>) -> Result<Option<(Control, String)>, Failure> {
    let first = source.text(0).to_ascii_lowercase();
    let found = match first.as_str() {
        "begin" => (Control::Begin(mode(source, 1)?), "BEGIN"),
        "start" if source.is_word(1, "transaction") => {
            (Control::Begin(mode(source, 2)?), "START TRANSACTION")
        }
        "commit" | "end" | "rollback" | "abort" => return end(source).map(Some),
        "savepoint" => (Control::Savepoint(name(source, 1)?), "SAVEPOINT"),
        "release" => {
            let at = 1 + usize::from(source.is_word(1, "savepoint"));
            (Control::Release(name(source, at)?), "RELEASE")
        }
        "set" => (set(source)?, "SET"),
        "reset" if source.is_word(1, "all") => (Control::ResetAll, "RESET"),
        "reset" => (reset(setting_name(source, 1).0, false), "RESET"),
        "show" => (Control::Show(setting_name(source, 1).0), "SHOW"),
        "discard" => (Control::DiscardAll, "DISCARD ALL"),
        "deallocate" => return deallocate(source).map(Some),
        "declare" => (declare(source)?, "DECLARE CURSOR"),
        "fetch" => (fetch(source, false)?, "FETCH"),
        "move" => (fetch(source, true)?, "MOVE"),
        "close" if source.is_word(1, "all") => (Control::Close(None), "CLOSE CURSOR ALL"),
        "close" => (Control::Close(Some(name(source, 1)?)), "CLOSE CURSOR"),
        "lock" => (Control::Lock, "LOCK TABLE"),
        "vacuum" => (Control::Nothing, "VACUUM"),
        "checkpoint" => (Control::Checkpoint, "CHECKPOINT"),
        "comment" => (Control::Nothing, "COMMENT"),
        "unlisten" => (Control::Nothing, "UNLISTEN"),
        "prepare" if source.is_word(1, "transaction") => return Err(no_two_phases()),
        "prepare" => (prepare::prepare(source)?, "PREPARE"),
        "execute" => (prepare::execute(source)?, "EXECUTE"),
        "listen" | "notify" | "grant" | "revoke" | "call" | "do" | "cluster" | "refresh"
        | "import" | "security" => {
            let word = first.to_uppercase();
            return Err(Failure::unsupported(format!("{word} is not supported")));
        }
        _ => return Ok(None),
    };
    Ok(Some((found.0, found.1.to_owned())))
}

fn end(source: &Source<'_>) -> Result<(Control, String), Failure> {
    let is_commit = source.is_one_of(0, &["commit", "end"]);
    let at = 1 + usize::from(source.is_one_of(1, &["work", "transaction"]));
    if source.is_word(at, "prepared") || source.is_word(at, "and") && !source.is_word(at + 1, "no")
    {
        return Err(no_two_phases());
    }
    if source.is_word(at, "to") {
        let at = at + 1 + usize::from(source.is_word(at + 1, "savepoint"));
        return Ok((
            Control::RollbackTo(name(source, at)?),
            "ROLLBACK".to_owned(),
        ));
    }
    Ok(if is_commit {
        (Control::Commit, "COMMIT".to_owned())
    } else {
        (Control::Rollback, "ROLLBACK".to_owned())
    })
}

fn no_two_phases() -> Failure {
    Failure::unsupported("two-phase commit and chained transactions are not supported")
}

/// Modes of a transaction: every isolation level is served by a snapshot and one writer, which is
/// serializable.
fn mode(source: &Source<'_>, mut at: usize) -> Result<Mode, Failure> {
    let mut mode = Mode::default();
    while at < source.len() {
        if source.is_one_of(at, &["work", "transaction"]) || source.is_mark(at, ",") {
            at += 1;
        } else if source.are_words(at, &["read", "only"]) {
            mode.read_only = Some(true);
            at += 2;
        } else if source.are_words(at, &["read", "write"]) {
            mode.read_only = Some(false);
            at += 2;
        } else if source.are_words(at, &["isolation", "level"]) {
            at += 2;
            at += match source.text(at).to_ascii_lowercase().as_str() {
                "serializable" => 1,
                "repeatable" | "read" => 2,
                _ => return Err(source.syntax_error(at)),
            };
        } else if source.are_words(at, &["not", "deferrable"]) {
            at += 2;
        } else if source.is_one_of(at, &["deferrable", "deferred", "immediate", "exclusive"]) {
            at += 1;
        } else {
            return Err(source.syntax_error(at));
        }
    }
    Ok(mode)
}

fn name(source: &Source<'_>, at: usize) -> Result<String, Failure> {
    let name = source.name(at).map(|(name, _)| name);
    name.ok_or_else(|| source.syntax_error(at))
}

/// The name of a setting; some have several words.
fn setting_name(source: &Source<'_>, at: usize) -> (String, usize) {
    if source.are_words(at, &["time", "zone"]) {
        return ("timezone".to_owned(), at + 2);
    }
    if source.are_words(at, &["session", "authorization"]) {
        return ("session_authorization".to_owned(), at + 2);
    }
    if source.are_words(at, &["transaction", "isolation", "level"]) {
        return ("transaction_isolation".to_owned(), at + 3);
    }
    if source.is_mark(at + 1, ".") {
        let name = format!("{}.{}", source.text(at), source.text(at + 2));
        return (name.to_ascii_lowercase(), at + 3);
    }
    (
        source.name(at).map_or_else(String::new, |(name, _)| name),
        at + 1,
    )
}

fn set(source: &Source<'_>) -> Result<Control, Failure> {
    let is_local = source.is_word(1, "local");
    let has_scope = is_local
        || source.is_word(1, "session")
            && !source.is_one_of(2, &["characteristics", "authorization"]);
    let at = 1 + usize::from(has_scope);
    if source.is_word(at, "transaction") {
        return mode(source, at + 1).map(Control::SetTransaction);
    }
    if source.are_words(at, &["session", "characteristics", "as", "transaction"]) {
        let mode = mode(source, at + 4)?;
        return Ok(Control::Set {
            name: "default_transaction_read_only".to_owned(),
            value: mode
                .read_only
                .map(|on| if on { "on" } else { "off" }.to_owned()),
            is_local: false,
        });
    }
    if source.is_word(at, "names") {
        let value = source.string(at + 1);
        return Ok(Control::Set {
            name: "client_encoding".to_owned(),
            value,
            is_local,
        });
    }
    let (name, mut behind) = setting_name(source, at);
    if source.is_one_of(behind, &["to"]) || source.is_mark(behind, "=") {
        behind += 1;
    } else if name != "timezone" && name != "session_authorization" {
        return Err(source.syntax_error(behind));
    }
    if behind >= source.len() {
        return Err(source.syntax_error(behind));
    }
    if source.is_word(behind, "default") {
        return Ok(reset(name, is_local));
    }
    let value = values(source, behind);
    Ok(Control::Set {
        name,
        value: Some(value),
        is_local,
    })
}

fn reset(name: String, is_local: bool) -> Control {
    Control::Set {
        name,
        value: None,
        is_local,
    }
}

/// The values of a setting, with commas between.
fn values(source: &Source<'_>, at: usize) -> String {
    let mut text = String::new();
    for index in at..source.len() {
        if source.is_mark(index, ",") {
            text += ", ";
            continue;
        }
        text += &source
            .string(index)
            .unwrap_or_else(|| source.text(index).to_owned());
    }
    text
}

fn deallocate(source: &Source<'_>) -> Result<(Control, String), Failure> {
    let at = 1 + usize::from(source.is_word(1, "prepare"));
    Ok(if source.is_word(at, "all") {
        (Control::Deallocate(None), "DEALLOCATE ALL".to_owned())
    } else {
        (
            Control::Deallocate(Some(name(source, at)?)),
            "DEALLOCATE".to_owned(),
        )
    })
}

/// `DECLARE name [options] CURSOR [WITH HOLD] FOR query`
fn declare(source: &Source<'_>) -> Result<Control, Failure> {
    let name = name(source, 1)?;
    let cursor = (2..source.len()).find(|at| source.is_word(*at, "cursor"));
    let cursor = cursor.ok_or_else(|| source.syntax_error(2))?;
    let at = (cursor..source.len()).find(|at| source.is_word(*at, "for"));
    let at = at.filter(|at| at + 1 < source.len());
    let at = at.ok_or_else(|| source.syntax_error(source.len()))?;
    if (2..cursor).any(|at| source.is_word(at, "scroll") && !source.is_word(at - 1, "no")) {
        return Err(Failure::unsupported(
            "cursors that scroll are not supported",
        ));
    }
    let is_held = (cursor..at).any(|index| source.are_words(index, &["with", "hold"]));
    let query = source.sql()[source.range(at + 1).start..].to_owned();
    Ok(Control::Declare {
        name,
        query,
        is_held,
    })
}

/// `FETCH [FORWARD] [n | ALL | NEXT] [FROM | IN] name`
fn fetch(source: &Source<'_>, moves: bool) -> Result<Control, Failure> {
    let mut at = 1 + usize::from(source.is_word(1, "forward"));
    let mut count = Count::Next(1);
    if source.kind(at) == Some(Kind::Number) {
        let number = source.text(at).parse();
        count = Count::Next(number.map_err(|_| source.syntax_error(at))?);
        at += 1;
    } else if source.is_word(at, "all") {
        count = Count::All;
        at += 1;
    } else if source.is_word(at, "next") {
        at += 1;
    } else if source.is_one_of(
        at,
        &["backward", "prior", "first", "last", "absolute", "relative"],
    ) || source.is_mark(at, "-")
    {
        return Err(Failure::new("55000", "cursor can only scan forward"));
    }
    at += usize::from(source.is_one_of(at, &["from", "in"]));
    let name = name(source, at)?;
    Ok(Control::Fetch { name, count, moves })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(sql: &str) -> Result<Control, &'static str> {
        let source = Source::split(sql).expect("tokens").remove(0);
        let found = recognise(&source).map_err(|failure| failure.code)?;
        Ok(found.expect("a statement of the session").0)
    }

    fn set(name: &str, value: Option<&str>) -> Control {
        Control::Set {
            name: name.to_owned(),
            value: value.map(str::to_owned),
            is_local: false,
        }
    }

    #[test]
    fn transactions_have_modes() {
        let only = Mode {
            read_only: Some(true),
        };
        assert_eq!(control("begin"), Ok(Control::Begin(Mode::default())));
        assert_eq!(
            control("start transaction isolation level repeatable read, read only"),
            Ok(Control::Begin(only))
        );
        assert_eq!(
            control("set transaction read only"),
            Ok(Control::SetTransaction(only))
        );
        assert_eq!(control("end work"), Ok(Control::Commit));
        assert_eq!(
            control("rollback to savepoint a"),
            Ok(Control::RollbackTo("a".to_owned()))
        );
        assert_eq!(control("begin sideways"), Err("42601"));
        assert_eq!(control("commit prepared 'x'"), Err("0A000"));
    }

    #[test]
    fn settings_have_several_spellings() {
        assert_eq!(control("set a.b = 'x'"), Ok(set("a.b", Some("x"))));
        assert_eq!(
            control("set search_path to a, b"),
            Ok(set("search_path", Some("a, b")))
        );
        assert_eq!(
            control("set time zone 'UTC'"),
            Ok(set("timezone", Some("UTC")))
        );
        assert_eq!(
            control("set session datestyle to default"),
            Ok(set("datestyle", None))
        );
        assert_eq!(control("reset a"), Ok(set("a", None)));
        assert_eq!(control("set a 1"), Err("42601"));
    }

    #[test]
    fn cursors_are_recognised() {
        let query = "select 1 for update".to_owned();
        assert_eq!(
            control("declare \"c\" no scroll cursor without hold for select 1 for update"),
            Ok(Control::Declare {
                name: "c".to_owned(),
                query,
                is_held: false
            })
        );
        assert!(matches!(
            control("declare c cursor with hold for select 1"),
            Ok(Control::Declare { is_held: true, .. })
        ));
        let fetch = |count| Control::Fetch {
            name: "c".to_owned(),
            count,
            moves: false,
        };
        assert_eq!(
            control("fetch forward 10 from c"),
            Ok(fetch(Count::Next(10)))
        );
        assert_eq!(control("fetch all in c"), Ok(fetch(Count::All)));
        assert_eq!(control("fetch c"), Ok(fetch(Count::Next(1))));
    }
}
