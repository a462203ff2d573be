//! The names of handlers' types and of kinds, as numbers that fit into a word. A name stays for the
//! life of the process: there are as many as types of handlers and kinds in the program.

use std::sync::{Mutex, PoisonError};

/// Every name so far, by its number. (Std's lock in all forms: nothing waits inside, and no
/// protocol rests on it.)
static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// The number of a name.
pub(crate) fn number_of(name: &str) -> u32 {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = names.iter().position(|other| *other == name);
    let number = known.unwrap_or_else(|| {
        names.push(String::from(name).leak());
        names.len() - 1
    });
    number as u32
}

/// The name with this number.
pub(crate) fn name_of(number: u32) -> &'static str {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.get(number as usize).copied().unwrap_or("unknown")
}
