//! The times that `now()` and its kin return.
//!
//! `now()` is the start of the transaction, so all rows of a transaction get the same time.

use std::{
    sync::{
        atomic::{AtomicI64, Ordering},
        Arc,
    },
    time::{SystemTime, UNIX_EPOCH},
};

use rusqlite::{functions::FunctionFlags, Connection, Result};

use crate::types::parameter;

/// The times of a connection, in microseconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Clock {
    transaction: AtomicI64,
    statement: AtomicI64,
}

impl Clock {
    /// A statement begins; outside of a transaction it is one by itself.
    pub(super) fn begin_statement(&self, is_alone: bool) {
        let now = micros();
        self.statement.store(now, Ordering::Relaxed);
        if is_alone {
            self.transaction.store(now, Ordering::Relaxed);
        }
    }

    /// A transaction begins.
    pub(super) fn begin_transaction(&self) {
        self.transaction.store(micros(), Ordering::Relaxed);
    }
}

fn micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as i64)
}

/// Registers the functions on the connection of the clock.
pub(super) fn register(connection: &Connection, clock: &Arc<Clock>) -> Result<()> {
    // Not deterministic: an index must not depend on the time.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
    for name in ["now", "transaction_timestamp"] {
        let clock = Arc::clone(clock);
        connection.create_scalar_function(name, 0, flags, move |_| {
            let micros = clock.transaction.load(Ordering::Relaxed);
            Ok(parameter::timestamp_of_unix(micros))
        })?;
    }
    let clock = Arc::clone(clock);
    connection.create_scalar_function("statement_timestamp", 0, flags, move |_| {
        let micros = clock.statement.load(Ordering::Relaxed);
        Ok(parameter::timestamp_of_unix(micros))
    })?;
    connection.create_scalar_function("clock_timestamp", 0, flags, |_| {
        Ok(parameter::timestamp_of_unix(micros()))
    })
}
