//! The difference between two configurations, for a reload.

use std::{collections::BTreeMap, sync::Arc};

use super::{keys::Effect, Config, Key};

/// The difference between an old configuration and the one that replaced it.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// Entries of `[databases]`, without `*`.
    pub databases: Changes,
    /// The changed databases with server connections that must be replaced.
    pub retargeted: Vec<Box<str>>,
    /// Whether the entry `*` was added, removed or changed.
    pub autodb_changed: bool,
    /// Entries of `[users]`.
    pub users: Changes,
    /// Settings that have a new value.
    pub settings: Vec<&'static Key>,
    /// Settings that keep the old value until a restart.
    pub needs_restart: Vec<&'static Key>,
}

/// Which entries of a section differ, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// New ones.
    pub added: Vec<Box<str>>,
    /// Removed ones.
    pub removed: Vec<Box<str>>,
    /// Ones with other values.
    pub changed: Vec<Box<str>>,
}

/// The entries of a section, by name.
type Entries<T> = BTreeMap<Box<str>, Arc<T>>;

impl Changes {
    fn between<T: PartialEq>(old: &Entries<T>, new: &Entries<T>) -> Self {
        let changed = new.iter().filter(|(name, entry)| {
            let before = old.get(*name);
            before.is_some_and(|before| before != *entry)
        });
        Self {
            added: missing(old, new.keys()),
            removed: missing(new, old.keys()),
            changed: changed.map(|(name, _)| name.clone()).collect(),
        }
    }
}

/// Those of `names` that `entries` lacks.
fn missing<'n, T>(
    entries: &Entries<T>,
    names: impl Iterator<Item = &'n Box<str>>,
) -> Vec<Box<str>> {
    let lacking = names.filter(|name| !entries.contains_key(*name));
    lacking.cloned().collect()
}

impl Difference {
    /// Whether this setting has a new value, which takes effect now.
    #[must_use]
    pub fn changes(&self, name: &str) -> bool {
        self.settings.iter().any(|key| key.name == name)
    }
}

impl Config {
    /// Replaces this configuration with `new`, and returns the difference.
    ///
    /// Settings that need a restart keep their value.
    pub fn replace(&mut self, mut new: Self) -> Difference {
        let databases = Changes::between(&self.databases, &new.databases);
        let (settings, needs_restart) = self.changed_settings(&new);
        for key in &needs_restart {
            (key.copy)(&self.settings, &mut new.settings);
        }
        let difference = Difference {
            retargeted: self.retargeted(&new, &databases.changed),
            databases,
            autodb_changed: self.autodb != new.autodb,
            users: Changes::between(&self.users, &new.users),
            settings,
            needs_restart,
        };
        *self = new;
        difference
    }

    /// The settings that differ: those that act at once, and those that need a restart.
    fn changed_settings(&self, new: &Self) -> (Vec<&'static Key>, Vec<&'static Key>) {
        let differs = |key: &&Key| key.show(&self.settings) != key.show(&new.settings);
        let changed = Key::all().filter(differs);
        changed.partition(|key| key.effect == Effect::AtOnce)
    }

    /// The `changed` databases with another target.
    fn retargeted(&self, new: &Self, changed: &[Box<str>]) -> Vec<Box<str>> {
        let is_other = |name: &str| {
            let (old, new) = (self.databases.get(name), new.databases.get(name));
            let both = old.zip(new);
            both.is_some_and(|(old, new)| old.target() != new.target())
        };
        let others = changed.iter().filter(|name| is_other(name));
        others.cloned().collect()
    }
}
