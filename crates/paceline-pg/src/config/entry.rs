//! The keys of entries: what `[databases]` and `[users]` say about one database or user.

use super::{conn_string, error::Reason};

/// A key of an entry of `[databases]` or `[users]`.
pub struct EntryKey<T: 'static> {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    pub(super) read: fn(&mut T, &str) -> Result<(), String>,
}

impl<T> std::fmt::Debug for EntryKey<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryKey")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Declares the keys of an entry: a name, the field that it sets, and what it is for.
macro_rules! entry_keys {
    ($type:ty: $($name:literal => $field:ident, $about:literal;)+) => {
        pub(super) static KEYS: &[$crate::config::entry::EntryKey<$type>] = &[$(
            $crate::config::entry::EntryKey {
                name: $name,
                about: $about,
                read: |entry, text| {
                    entry.$field = $crate::config::value::Value::read(text)?;
                    Ok(())
                },
            },
        )+];
    };
}
pub(super) use entry_keys;

/// A key of an entry, and an error or a warning about it.
pub(super) type Remark = (Box<str>, Reason);

/// Reads a connection string into an entry. An error names its key.
pub(super) fn read<T>(entry: &mut T, keys: &[EntryKey<T>], text: &str) -> Result<(), Remark> {
    for pair in conn_string::pairs(text) {
        let (name, value) = pair.map_err(|what| ("".into(), Reason::Syntax(what)))?;
        let key = keys.iter().find(|key| key.name == name);
        let key = key.ok_or_else(|| (name.into(), Reason::UnknownKey))?;
        let bad = |rule: String| Reason::BadValue(value.as_ref().into(), rule.into());
        (key.read)(entry, &value).map_err(|rule| (name.into(), bad(rule)))?;
    }
    Ok(())
}
