//! Parameters that follow a client from server to server.
//!
//! A client and a server connection each hold the values of all tracked parameters. Where they
//! differ at the assignment, a query of `SET`s makes them equal. Equal values are usually the same
//! allocation: then the comparison is that of two pointers.

mod encoding;

use std::sync::Arc;

pub use encoding::canonical_encoding;

/// The parameters that are always tracked.
const ALWAYS: [&str; 6] = [
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
    "application_name",
    "default_transaction_read_only",
];

/// A list, each part of which a server quotes by itself.
const SEARCH_PATH: &[u8] = b"search_path";

/// The names of the tracked parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracked(Box<[Box<[u8]>]>);

impl Tracked {
    /// The parameters that are always tracked, and these others.
    pub fn new<'n>(extra: impl IntoIterator<Item = &'n str>) -> Self {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        for name in ALWAYS.into_iter().chain(extra) {
            let is_new = !names
                .iter()
                .any(|each| each.eq_ignore_ascii_case(name.as_bytes()));
            if is_new && is_name(name) {
                names.push(name.as_bytes().into());
            }
        }
        Self(names.into())
    }

    /// The place of a parameter among the tracked ones. The case of names does not matter.
    #[must_use]
    pub fn place(&self, name: &[u8]) -> Option<usize> {
        self.0
            .iter()
            .position(|each| each.eq_ignore_ascii_case(name))
    }

    /// The names, in the order of their places.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(AsRef::as_ref)
    }
}

impl Default for Tracked {
    fn default() -> Self {
        Self::new(["IntervalStyle"])
    }
}

/// Whether a text is the name of a parameter, and nothing else in a query.
fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    !name.is_empty() && name.bytes().all(is_part)
}

/// The values of the tracked parameters, by their places. Cheap to clone, and small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(Arc<Vec<Option<Box<[u8]>>>>);

impl Values {
    /// No value is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value at a place; `None` if the server has not reported it.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&[u8]> {
        self.0.get(place)?.as_deref()
    }

    /// Sets the value at a place.
    pub fn set(&mut self, place: usize, value: &[u8]) {
        if self.get(place) == Some(value) {
            return;
        }
        let values = Arc::make_mut(&mut self.0);
        if values.len() <= place {
            values.resize(place + 1, None);
        }
        values[place] = Some(value.into());
    }

    /// Whether both are the same allocation.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The places at which the server has reported another value than the one that is wanted.
    fn differing<'v>(&'v self, server: &'v Self) -> impl Iterator<Item = usize> + 'v {
        let differs = move |place: &usize| match (self.get(*place), server.get(*place)) {
            (Some(wanted), Some(present)) => wanted != present,
            _ => false,
        };
        (0..self.0.len()).filter(differs)
    }
}

/// The outcome of [`compare`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// The server has the wanted values.
    Equal,
    /// The server must run this query first.
    Set(Vec<u8>),
}

/// Compares the wanted values with the server's.
pub(super) fn compare(tracked: &Tracked, wanted: &mut Values, server: &Values) -> Comparison {
    if wanted.is_same(server) {
        return Comparison::Equal;
    }
    let mut query = Vec::new();
    for place in wanted.differing(server) {
        let name = &tracked.0[place];
        append_setting(&mut query, name, wanted.get(place).unwrap_or_default());
    }
    if !query.is_empty() {
        return Comparison::Set(query);
    }
    if wanted == server {
        // The next comparison is that of two pointers.
        *wanted = server.clone();
    }
    Comparison::Equal
}

/// Appends the statement that sets one parameter.
fn append_setting(query: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let is_path = name.eq_ignore_ascii_case(SEARCH_PATH);
    if is_path {
        // `SET` would take the whole literal for one name.
        query.extend_from_slice(b"SELECT pg_catalog.set_config('search_path',");
        append_literal(query, value);
        query.extend_from_slice(b",false);");
    } else {
        query.extend_from_slice(b"SET ");
        query.extend_from_slice(name);
        query.push(b'=');
        append_literal(query, value);
        query.push(b';');
    }
}

/// The query that sets parameters which are not tracked, as a start-up packet would. `SET` would
/// take a list for one name.
pub(super) fn setting(others: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut query = Vec::new();
    for (name, value) in others {
        query.extend_from_slice(b"SELECT pg_catalog.set_config(");
        append_literal(&mut query, name.as_bytes());
        query.push(b',');
        append_literal(&mut query, value);
        query.extend_from_slice(b",false);");
    }
    query
}

/// Appends a literal that means the same with `standard_conforming_strings` on and off.
fn append_literal(query: &mut Vec<u8>, value: &[u8]) {
    if value.contains(&b'\\') {
        query.extend_from_slice(b" E");
    }
    query.push(b'\'');
    for byte in value {
        if matches!(byte, b'\'' | b'\\') {
            query.push(*byte);
        }
        query.push(*byte);
    }
    query.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(usize, &str)]) -> Values {
        let mut values = Values::new();
        pairs
            .iter()
            .for_each(|(place, value)| values.set(*place, value.as_bytes()));
        values
    }

    fn query(wanted: &[(usize, &str)], present: &[(usize, &str)]) -> Option<String> {
        let tracked = Tracked::new(["IntervalStyle", "search_path"]);
        match compare(&tracked, &mut values(wanted), &values(present)) {
            Comparison::Equal => None,
            Comparison::Set(query) => Some(String::from_utf8(query).expect("a text")),
        }
    }

    /// A pooler that ignores the case gave client A the `abc` of client B. One that keeps values in
    /// fields of 128 bytes compared nothing behind them.
    #[test]
    fn parameters_case_and_length() {
        let set = query(&[(4, "ABC")], &[(4, "abc")]);
        assert_eq!(set.as_deref(), Some("SET application_name='ABC';"));
        let (long, other) = ("x".repeat(200) + "a", "x".repeat(200) + "b");
        assert!(query(&[(4, &long)], &[(4, &other)]).is_some());
        assert!(query(&[(4, &long)], &[(4, &long)]).is_none());
    }

    #[test]
    fn a_value_can_not_leave_its_literal() {
        let set = query(&[(4, "a'; DROP TABLE t; --")], &[(4, "")]);
        let expected = "SET application_name='a''; DROP TABLE t; --';";
        assert_eq!(set.as_deref(), Some(expected));
        let set = query(&[(4, "\\'")], &[(4, "")]);
        assert_eq!(set.as_deref(), Some("SET application_name= E'\\\\''';"));
    }

    /// Each part of a path is quoted by itself: one literal would name one schema.
    #[test]
    fn a_search_path_is_set_as_it_was_reported() {
        let set = query(&[(7, "\"$user\", public")], &[(7, "public")]);
        let expected = "SELECT pg_catalog.set_config('search_path','\"$user\", public',false);";
        assert_eq!(set.as_deref(), Some(expected));
    }

    #[test]
    fn other_parameters_are_set_as_lists() {
        let others = [("search_path", "a, b"), ("it's", "\\")];
        let others = others.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        let expected = "SELECT pg_catalog.set_config('search_path','a, b',false);\
                        SELECT pg_catalog.set_config('it''s', E'\\\\',false);";
        assert_eq!(String::from_utf8(setting(&others)).as_deref(), Ok(expected));
        assert!(setting(&[]).is_empty());
    }

    /// A server before version 18 does not report the path: setting it could not be seen.
    #[test]
    fn what_the_server_does_not_report_is_not_set() {
        assert_eq!(query(&[(7, "public")], &[(0, "UTF8")]), None);
        assert_eq!(query(&[(0, "UTF8")], &[(0, "UTF8"), (4, "x")]), None);
    }

    /// A value that the client never had belongs to another client.
    #[test]
    fn only_equal_values_are_shared() {
        let tracked = Tracked::default();
        let (mut wanted, server) = (values(&[(0, "UTF8")]), values(&[(0, "UTF8"), (4, "x")]));
        assert_eq!(compare(&tracked, &mut wanted, &server), Comparison::Equal);
        assert_eq!(wanted.get(4), None);
        let server = values(&[(0, "UTF8")]);
        assert_eq!(compare(&tracked, &mut wanted, &server), Comparison::Equal);
        assert!(wanted.is_same(&server));
    }

    #[test]
    fn names_are_compared_without_case_and_kept_once() {
        let tracked = Tracked::new(["intervalstyle", "datestyle", "bad name;"]);
        assert_eq!(tracked.names().count(), 7);
        assert_eq!(tracked.place(b"DATESTYLE"), Some(1));
        assert_eq!(tracked.place(b"work_mem"), None);
    }
}
