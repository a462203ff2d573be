//! The schema as the open transaction sees it: with the tables that it has made itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{block::Held, Open};
use crate::{
    dialect::{infer::Guess, Facts, Schema},
    store::{columns, link::Link},
    types::Type,
};

/// The connection of a transaction, lent to the translation of a statement.
#[derive(Debug)]
struct Inside(Mutex<Option<Held>>);

impl Inside {
    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<R>(&self, question: impl FnOnce(&Link) -> Option<R>) -> Option<R> {
        let held = self.lock();
        question(held.as_ref()?.link())
    }
}

impl Schema for Inside {
    fn column_type(&self, table: &str, column: &str) -> Option<Type> {
        self.ask(|link| columns::of_table(link, table, column).map(|declared| declared.kind))
    }

    fn is_never_null(&self, table: &str, column: &str) -> bool {
        self.ask(|link| Some(columns::is_never_null(link, table, column)))
            .unwrap_or(false)
    }

    fn resolve(&self, tables: &[String], guess: &Guess) -> Option<Type> {
        self.ask(|link| columns::resolve(link, tables, guess))
    }

    fn default_of(&self, tables: &[String], guess: &Guess) -> Option<String> {
        self.ask(|link| columns::default_of(link, tables.first()?, guess))
    }
}

impl Open {
    /// Calls `translate` with the facts that a statement sees now.
    pub(super) fn with_facts<R>(&mut self, translate: impl FnOnce(&Facts) -> R) -> R {
        let facts = self.facts();
        let held = if self.block.has_defined {
            self.block.held.take()
        } else {
            None
        };
        let Some(held) = held else {
            return translate(&facts);
        };
        let inside = Arc::new(Inside(Mutex::new(Some(held))));
        let own = Facts {
            schema: Some(Arc::clone(&inside) as Arc<dyn Schema>),
            ..(*facts).clone()
        };
        let result = translate(&own);
        self.block.held = inside.lock().take();
        result
    }
}
