//! The tables of planted faults: one TOML file per room, with an entry for each fault.

use std::collections::BTreeMap;
use std::time::Duration;

use toml::{Table, Value};

use crate::tree::Tree;

use super::checker::Checker;
use super::edit::{Edit, Place};

/// The limit of a checker's run, if the entry names none.
const DEFAULT_SECONDS: i64 = 60;

/// A planted fault.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The name of its entry.
    pub(crate) name: String,
    /// What is broken, in one sentence.
    pub(crate) story: String,
    /// The promise, or promises, that it breaks.
    pub(crate) promise: String,
    /// The checker that must find it.
    pub(crate) checker: Checker,
    /// After this time a run of the checker counts as hung.
    pub(crate) limit: Duration,
    /// What it changes in the code.
    pub(crate) edits: Vec<Edit>,
}

/// An entry, or a whole table, that is not understood.
#[derive(Debug)]
pub(crate) struct TableError {
    /// The table, from the root.
    pub(crate) path: String,
    /// The line of the entry; the first line if the whole table is wrong.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) message: String,
}

/// All faults of a tree: table by table, in each in the order of their names.
pub(crate) fn all(tree: &Tree) -> Vec<Result<Fault, TableError>> {
    let tables = tree.texts_ending(".toml");
    let tables = tables.filter(|(path, _)| path.starts_with("faults/"));
    let mut faults: Vec<_> = tables
        .flat_map(|(path, text)| in_table(path, text))
        .collect();
    refuse_doubles(&mut faults);
    faults
}

/// The faults of one table.
fn in_table(path: &str, text: &str) -> Vec<Result<Fault, TableError>> {
    let wrong = |line, message| TableError {
        path: path.to_owned(),
        line,
        message,
    };
    let read = text
        .parse::<Table>()
        .map_err(|error| error.message().to_owned());
    let (folder, entries) = match read.and_then(split) {
        Ok(parts) => parts,
        Err(message) => return vec![Err(wrong(1, message))],
    };
    let fault = |(name, value): (String, Value)| {
        let line = line_of(text, &name);
        Fault::read(&name, value, &folder)
            .map_err(|message| wrong(line, format!("{name}: {message}")))
    };
    entries.into_iter().map(fault).collect()
}

/// The folder that the table is for, and its entries.
fn split(mut table: Table) -> Result<(String, Table), String> {
    let folder = take_text(&mut table, "under")?;
    let shipped = folder.starts_with("crates/") && folder.contains("/src");
    if !shipped {
        return Err(format!(
            "under = \"{folder}\": faults are planted in code that ships, under crates/NAME/src"
        ));
    }
    Ok((folder, table))
}

/// Turns the second fault of a name into an error.
fn refuse_doubles(faults: &mut [Result<Fault, TableError>]) {
    let mut seen = BTreeMap::new();
    for (at, fault) in faults.iter_mut().enumerate() {
        let Ok(known) = fault else { continue };
        let name = known.name.clone();
        if seen.insert(name.clone(), at).is_some() {
            *fault = Err(TableError {
                path: "faults".to_owned(),
                line: 1,
                message: format!("{name}: two entries have this name"),
            });
        }
    }
}

/// The line at which an entry begins.
fn line_of(text: &str, name: &str) -> usize {
    let head = format!("[{name}]");
    let at = text.lines().position(|line| line == head);
    at.map_or(1, |at| at + 1)
}

impl Fault {
    /// Reads an entry; its edits are sought below `folder`.
    pub(crate) fn read(name: &str, entry: Value, folder: &str) -> Result<Fault, String> {
        let mut entry = table(entry)?;
        let fault = Fault {
            name: name.to_owned(),
            story: take_text(&mut entry, "story")?,
            promise: promises(take_text(&mut entry, "promise")?)?,
            checker: Checker::parse(&take_text(&mut entry, "caught-by")?, package(folder))?,
            limit: seconds(entry.remove("seconds"))?,
            edits: edits(&mut entry, folder)?,
        };
        match entry.keys().next() {
            Some(key) => Err(format!("the key `{key}` means nothing here")),
            None => Ok(fault),
        }
    }
}

/// The package that a folder is in: `crates/NAME/src/...`.
fn package(folder: &str) -> &str {
    folder.split('/').nth(1).unwrap_or_default()
}

/// The edits of an entry: a list of them, or one beside the other keys.
fn edits(entry: &mut Table, folder: &str) -> Result<Vec<Edit>, String> {
    let Some(list) = entry.remove("edits") else {
        return Ok(vec![edit(entry, folder)?]);
    };
    let Value::Array(list) = list else {
        return Err("`edits` is not a list".to_owned());
    };
    let read = |value| {
        let mut keys = table(value)?;
        let read = edit(&mut keys, folder)?;
        match keys.keys().next() {
            Some(key) => Err(format!("the key `{key}` means nothing in an edit")),
            None => Ok(read),
        }
    };
    list.into_iter().map(read).collect()
}

/// One edit, out of the keys `in`, `find` and `put`.
fn edit(keys: &mut Table, folder: &str) -> Result<Edit, String> {
    let place = match keys.remove("in") {
        None => Place::Anywhere,
        Some(Value::String(words)) => match words.strip_prefix("fn ") {
            Some(name) => Place::Function(name.trim().to_owned()),
            None => Place::File(words),
        },
        Some(_) => return Err("`in` is not a text".to_owned()),
    };
    let find = take_text(keys, "find")?;
    let put = take_text(keys, "put")?;
    if find.trim().is_empty() {
        return Err("`find` is empty".to_owned());
    }
    Ok(Edit {
        folder: folder.to_owned(),
        place,
        find,
        put,
    })
}

/// A value that is a table.
fn table(value: Value) -> Result<Table, String> {
    match value {
        Value::Table(table) => Ok(table),
        other => Err(format!("{other:?} is not an entry")),
    }
}

/// Takes a text that must be there.
fn take_text(table: &mut Table, key: &str) -> Result<String, String> {
    match table.remove(key) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("`{key}` is not a text")),
        None => Err(format!("there is no `{key}`")),
    }
}

/// Checks that every promise has the form of a name: a capital, a digit, perhaps a letter.
fn promises(text: String) -> Result<String, String> {
    let is_name = |name: &str| match name.as_bytes() {
        [letter, digit] => letter.is_ascii_uppercase() && digit.is_ascii_digit(),
        [letter, digit, part] => {
            letter.is_ascii_uppercase() && digit.is_ascii_digit() && part.is_ascii_lowercase()
        }
        _ => false,
    };
    if text.split(',').map(str::trim).all(is_name) {
        Ok(text)
    } else {
        Err(format!(
            "`{text}` is not a promise such as `L1`, nor several with commas between"
        ))
    }
}

/// The limit.
fn seconds(value: Option<Value>) -> Result<Duration, String> {
    let seconds = match value {
        None => DEFAULT_SECONDS,
        Some(Value::Integer(seconds)) => seconds,
        Some(other) => return Err(format!("seconds = {other:?} is not a whole number")),
    };
    match u64::try_from(seconds) {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("a limit of {seconds} seconds is none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    /// The beginning of a table with one entry.
    const START: &str = "under = \"crates/x/src/a\"\n\n[kept]\nstory = \"The lead is kept.\"\n";

    /// The rest of it.
    const REST: &str =
        "promise = \"L3a, H2\"\ncaught-by = \"test roles::one\"\nfind = 'x'\nput = 'y'\n";

    /// What is read from one table.
    fn read(text: &str) -> Vec<Result<Fault, TableError>> {
        all(&tree(&[("faults/a.toml", text)]))
    }

    /// Why a table is refused.
    fn refusal(text: &str) -> String {
        read(text).remove(0).unwrap_err().message
    }

    #[test]
    fn a_whole_entry_is_read() {
        let fault = read(&format!("{START}seconds = 7\n{REST}"))
            .remove(0)
            .unwrap();
        assert_eq!(fault.name, "kept");
        assert_eq!(fault.story, "The lead is kept.");
        assert_eq!(fault.promise, "L3a, H2");
        assert_eq!(fault.checker.to_string(), "test roles::one in x");
        assert_eq!(fault.limit, Duration::from_secs(7));
        assert_eq!(fault.edits.len(), 1);
        assert_eq!(fault.edits[0].folder, "crates/x/src/a");
    }

    #[test]
    fn a_checker_runs_in_the_crate_of_its_table() {
        let fault = read(&format!("{START}{REST}")).remove(0).unwrap();
        assert_eq!(fault.checker.to_string(), "test roles::one in x");
        let core = START.replace("crates/x/src/a", "crates/paceline/src");
        let fault = read(&format!("{core}{REST}")).remove(0).unwrap();
        assert_eq!(fault.checker.to_string(), "test roles::one");
    }

    #[test]
    fn the_limit_is_a_minute_if_none_is_named() {
        let fault = read(&format!("{START}{REST}")).remove(0).unwrap();
        assert_eq!(fault.limit, Duration::from_secs(60));
    }

    #[test]
    fn an_entry_may_have_several_edits() {
        let head = REST.split("find").next().unwrap();
        let edits = "\n[[kept.edits]]\nfind = 'a'\nput = 'b'\n\n[[kept.edits]]\nin = \"fn rest\"\nfind = 'c'\nput = ''\n";
        let fault = read(&format!("{START}{head}{edits}")).remove(0).unwrap();
        assert_eq!(fault.edits.len(), 2);
        assert_eq!(fault.edits[1].place, Place::Function("rest".to_owned()));
    }

    #[test]
    fn a_missing_or_unknown_key_is_an_error() {
        assert!(refusal("[kept]\n").contains("under"));
        assert!(refusal(&format!("{START}find = 'x'\nput = 'y'\n")).contains("promise"));
        assert!(refusal(&format!("{START}{REST}speed = 1\n")).contains("speed"));
        assert!(refusal(&format!("{START}seconds = 0\n{REST}")).contains("0 seconds"));
        assert!(refusal(&START.replace("crates/x/src/a", "crates/x/tests")).contains("ships"));
        assert!(
            refusal(&format!("{START}{}", REST.replace("L3a, H2", "no herd"))).contains("promise")
        );
    }

    #[test]
    fn an_error_names_the_line_of_its_entry() {
        let error = read(START).remove(0).unwrap_err();
        assert_eq!((error.path.as_str(), error.line), ("faults/a.toml", 3));
    }

    #[test]
    fn a_name_stands_for_one_fault() {
        let text = format!("{START}{REST}");
        let both = all(&tree(&[("faults/a.toml", &text), ("faults/b.toml", &text)]));
        assert!(both[1].as_ref().unwrap_err().message.contains("two"));
    }
}
