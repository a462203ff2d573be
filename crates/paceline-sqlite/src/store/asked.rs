//! `current_setting` and `set_config`: functions that read and change the settings of a session.
//!
//! A connection serves many sessions, so the session lends its settings to a statement that asks for
//! them, and takes the changes back.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::{functions::FunctionFlags, Connection, Result};

use super::functions::{text, user};

/// A setting that a statement has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) is_local: bool,
}

/// The settings that a session has lent to its statement.
#[derive(Debug, Default)]
pub(super) struct Asked {
    values: HashMap<String, String>,
    changes: Vec<Change>,
}

/// The lent settings of a connection.
pub(super) type Shared = Arc<Mutex<Asked>>;

pub(super) fn lend(shared: &Shared, values: &HashMap<String, String>) {
    let mut asked = shared.lock().unwrap_or_else(PoisonError::into_inner);
    asked.values.clone_from(values);
    asked.changes.clear();
}

pub(super) fn take_changes(shared: &Shared) -> Vec<Change> {
    let mut asked = shared.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut asked.changes)
}

/// Registers the functions on the connection of the settings.
pub(super) fn register(connection: &Connection, shared: &Shared) -> Result<()> {
    // Not deterministic: each statement has its own settings.
    let flags = FunctionFlags::SQLITE_UTF8;
    let of = Arc::clone(shared);
    connection.create_scalar_function("current_setting", -1, flags, move |cx| {
        let Some(name) = text(cx, 0)? else {
            return Ok(None);
        };
        let may_miss = cx.len() > 1 && cx.get::<Option<bool>>(1)?.unwrap_or(false);
        let asked = of.lock().unwrap_or_else(PoisonError::into_inner);
        match asked.values.get(&name.to_ascii_lowercase()) {
            None if !may_miss => Err(unknown(&name)),
            value => Ok(value.cloned()),
        }
    })?;
    let of = Arc::clone(shared);
    connection.create_scalar_function("set_config", 3, flags, move |cx| {
        let (Some(name), Some(value)) = (text(cx, 0)?, text(cx, 1)?) else {
            return Ok(None);
        };
        let is_local = match text(cx, 2)? {
            Some(text) => matches!(text.as_str(), "1" | "t" | "true" | "on" | "yes"),
            None => false,
        };
        let mut asked = of.lock().unwrap_or_else(PoisonError::into_inner);
        let name = name.to_ascii_lowercase();
        if !asked.values.contains_key(&name) && !name.contains('.') {
            return Err(unknown(&name));
        }
        asked.values.insert(name.clone(), value.clone());
        asked.changes.push(Change {
            name,
            value: value.clone(),
            is_local,
        });
        Ok(Some(value))
    })
}

fn unknown(name: &str) -> rusqlite::Error {
    user(format!("unrecognized configuration parameter \"{name}\""))
}
