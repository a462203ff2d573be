//! The settings of a session: those of PostgreSQL that drivers set and ask for.

use std::{collections::HashMap, time::Duration};

use crate::failure::Failure;

/// Settings that the server reports to its client, with their values at first.
const REPORTED: [(&str, &str); 11] = [
    ("server_encoding", "UTF8"),
    ("client_encoding", "UTF8"),
    ("application_name", ""),
    ("default_transaction_read_only", "off"),
    ("is_superuser", "on"),
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("integer_datetimes", "on"),
    ("standard_conforming_strings", "on"),
    ("session_authorization", ""),
];

/// Further settings, with their values at first.
const OTHERS: [(&str, &str); 21] = [
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("search_path", "public"),
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
    ("client_min_messages", "notice"),
    ("transaction_isolation", "serializable"),
    ("default_transaction_isolation", "serializable"),
    ("transaction_read_only", "off"),
    ("synchronous_commit", "on"),
    ("row_security", "on"),
    ("check_function_bodies", "on"),
    ("default_table_access_method", "heap"),
    ("default_tablespace", ""),
    ("xmloption", "content"),
    ("max_identifier_length", "63"),
    ("server_version_num", "150000"),
    ("jit", "off"),
    ("work_mem", "4MB"),
];

/// Settings that only the server changes.
const FIXED: [&str; 8] = [
    "server_encoding",
    "server_version",
    "server_version_num",
    "is_superuser",
    "integer_datetimes",
    "in_hot_standby",
    "max_identifier_length",
    "transaction_isolation",
];

/// The settings of one session.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// By name in lower case.
    values: HashMap<String, String>,
    /// The values that the client has begun with.
    initial: HashMap<String, String>,
    /// All values at the start of the transaction, once it has changed one.
    before: Option<HashMap<String, String>>,
    /// Settings of this transaction alone.
    locals: Vec<String>,
    /// The values that the client was sent last.
    sent: HashMap<&'static str, String>,
    /// Whether values may have changed since.
    is_stale: bool,
}

impl Settings {
    pub(crate) fn new(user: &str, version: &str) -> Self {
        let known = REPORTED.iter().chain(&OTHERS);
        let mut values: HashMap<_, _> = known
            .map(|(name, value)| (name.to_ascii_lowercase(), (*value).to_owned()))
            .collect();
        values.insert("session_authorization".to_owned(), user.to_owned());
        values.insert("server_version".to_owned(), version.to_owned());
        values.insert("in_hot_standby".to_owned(), "off".to_owned());
        Self {
            initial: values.clone(),
            values,
            before: None,
            locals: Vec::new(),
            sent: HashMap::new(),
            is_stale: true,
        }
    }

    /// The reported settings with a value that the client has not received yet.
    pub(crate) fn take_unreported(&mut self) -> Vec<(&'static str, String)> {
        if !std::mem::take(&mut self.is_stale) {
            return Vec::new();
        }
        let mut news = Vec::new();
        for (name, value) in self.reported() {
            if self.sent.get(name).map(String::as_str) != Some(value) {
                news.push((name, value.to_owned()));
            }
        }
        self.sent.extend(news.iter().cloned());
        news
    }

    /// The settings that the server reports, with their values.
    fn reported(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let names = REPORTED.iter().map(|(name, _)| *name);
        let names = names.chain(["server_version", "in_hot_standby"]);
        names.map(|name| (name, self.get(name).unwrap_or_default()))
    }

    /// All settings, by name in lower case.
    pub(crate) fn all(&self) -> &HashMap<String, String> {
        &self.values
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values
            .get(&name.to_ascii_lowercase())
            .map(String::as_str)
    }

    /// A value that the client begins with: RESET returns to it.
    pub(crate) fn begin_with(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        self.change(name, value)?;
        self.initial = self.values.clone();
        Ok(())
    }

    /// Sets or resets a value, within a transaction or not.
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        is_local: bool,
        in_block: bool,
    ) -> Result<(), Failure> {
        let name = name.to_ascii_lowercase();
        self.is_stale = true;
        if in_block && self.before.is_none() {
            self.before = Some(self.values.clone());
        }
        let initial = self.initial.get(&name).cloned();
        match value.or(initial.as_deref()) {
            Some(value) => self.change(&name, value)?,
            None if name.contains('.') => drop(self.values.remove(&name)),
            None => return Err(unknown(&name)),
        }
        if is_local && in_block {
            self.locals.push(name);
        }
        Ok(())
    }

    /// Sets `in_hot_standby`.
    pub(crate) fn set_standby(&mut self, is_standby: bool) {
        let value = if is_standby { "on" } else { "off" };
        if self.get("in_hot_standby") != Some(value) {
            self.values
                .insert("in_hot_standby".to_owned(), value.to_owned());
            self.is_stale = true;
        }
    }

    fn change(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let name = name.to_ascii_lowercase();
        if FIXED.contains(&name.as_str()) {
            return Err(Failure::new(
                "55P02",
                format!("parameter \"{name}\" cannot be changed"),
            ));
        }
        if !self.values.contains_key(&name) && !name.contains('.') {
            return Err(unknown(&name));
        }
        let value = checked(&name, value)?;
        self.values.insert(name, value);
        Ok(())
    }

    pub(crate) fn reset_all(&mut self) {
        self.is_stale = true;
        let standby = self.values.remove("in_hot_standby");
        self.values = self.initial.clone();
        self.values
            .extend(standby.map(|value| ("in_hot_standby".to_owned(), value)));
    }

    /// The transaction has ended: local values go back, and after a rollback all of them.
    pub(crate) fn transaction_ended(&mut self, is_committed: bool) {
        let Some(mut before) = self.before.take() else {
            return;
        };
        self.is_stale = true;
        if !is_committed {
            self.values = before;
            self.locals.clear();
            return;
        }
        for name in self.locals.drain(..) {
            match before.remove(&name) {
                Some(value) => self.values.insert(name, value),
                None => self.values.remove(&name),
            };
        }
    }

    /// A time limit that the client has set; `None`: no limit.
    pub(crate) fn time(&self, name: &str) -> Option<Duration> {
        let millis = milliseconds(self.values.get(name)?)?;
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|value| value == "on")
    }
}

fn unknown(name: &str) -> Failure {
    Failure::new(
        "42704",
        format!("unrecognized configuration parameter \"{name}\""),
    )
}

/// The value in its normal form; an error if the setting does not accept it.
fn checked(name: &str, value: &str) -> Result<String, Failure> {
    let invalid = || {
        Failure::new(
            "22023",
            format!("invalid value for parameter \"{name}\": \"{value}\""),
        )
    };
    match name {
        "client_encoding" => {
            let plain: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
            match plain.to_ascii_uppercase().as_str() {
                "UTF8" | "UNICODE" => Ok("UTF8".to_owned()),
                _ => Err(invalid()),
            }
        }
        "datestyle" if !value.to_ascii_uppercase().contains("ISO") => Err(invalid()),
        "datestyle" => Ok("ISO, MDY".to_owned()),
        "standard_conforming_strings" if value != "on" => Err(invalid()),
        "default_transaction_read_only" | "transaction_read_only" => {
            match crate::types::parameter::boolean(value) {
                Some(on) => Ok(if on { "on" } else { "off" }.to_owned()),
                None => Err(invalid()),
            }
        }
        "statement_timeout" | "lock_timeout" | "idle_in_transaction_session_timeout" => {
            milliseconds(value)
                .map(|_| value.to_owned())
                .ok_or_else(invalid)
        }
        _ => Ok(value.to_owned()),
    }
}

/// `250`, `250ms`, `5s`, `2min`
fn milliseconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rolled_back_setting_is_as_before() {
        let mut settings = Settings::new("ada", "15.0");
        settings
            .set("search_path", Some("a"), false, false)
            .expect("known");
        settings
            .set("search_path", Some("b"), false, true)
            .expect("known");
        settings.transaction_ended(false);
        assert_eq!(settings.get("search_path"), Some("a"));
        settings
            .set("search_path", Some("c"), true, true)
            .expect("known");
        settings
            .set("my.own", Some("x"), false, true)
            .expect("with a point");
        settings.transaction_ended(true);
        assert_eq!(settings.get("search_path"), Some("a"));
        assert_eq!(settings.get("My.Own"), Some("x"));
    }

    /// A pooler that gives the connection to another client relies on these reports.
    #[test]
    fn the_client_hears_of_each_change() {
        let mut settings = Settings::new("ada", "15.0");
        assert_eq!(settings.take_unreported().len(), 13);
        assert_eq!(settings.take_unreported(), []);
        let name = "application_name";
        settings.set(name, Some("a"), false, true).expect("known");
        settings
            .set("search_path", Some("a"), false, true)
            .expect("known");
        assert_eq!(settings.take_unreported(), [(name, "a".to_owned())]);
        settings.transaction_ended(false);
        assert_eq!(settings.take_unreported(), [(name, String::new())]);
        settings.set_standby(true);
        assert_eq!(
            settings.take_unreported(),
            [("in_hot_standby", "on".to_owned())]
        );
        settings.set(name, Some("b"), false, false).expect("known");
        settings.reset_all();
        assert_eq!(settings.take_unreported(), []);
    }

    #[test]
    fn values_are_checked() {
        let mut settings = Settings::new("ada", "15.0");
        let mut set = |name: &str, value: &str| {
            settings
                .set(name, Some(value), false, false)
                .map_err(|failure| failure.code)
        };
        assert_eq!(set("client_encoding", "utf-8"), Ok(()));
        assert_eq!(set("client_encoding", "latin1"), Err("22023"));
        assert_eq!(set("nonsense", "1"), Err("42704"));
        assert_eq!(set("server_version", "1"), Err("55P02"));
        assert_eq!(set("statement_timeout", "5s"), Ok(()));
        assert_eq!(
            settings.time("statement_timeout"),
            Some(Duration::from_secs(5))
        );
        assert_eq!(settings.time("lock_timeout"), None);
    }
}
