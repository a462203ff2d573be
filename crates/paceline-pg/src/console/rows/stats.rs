//! The rows of `SHOW STATS` and of the tables like it.

use super::super::table::{Cell, Head, Kind, Numeric, Row};

/// The counters of a database; times are microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the counter of its name")]
pub struct Counters {
    pub server_assignment_count: u64,
    pub xact_count: u64,
    pub query_count: u64,
    pub received: u64,
    pub sent: u64,
    pub xact_time: u64,
    pub query_time: u64,
    pub wait_time: u64,
    pub client_parse_count: u64,
    pub server_parse_count: u64,
    pub bind_count: u64,
    pub client_login_count: u64,
}

impl Counters {
    /// In the order of the columns.
    pub(in super::super) fn all(&self) -> [u64; 12] {
        [
            self.server_assignment_count,
            self.xact_count,
            self.query_count,
            self.received,
            self.sent,
            self.xact_time,
            self.query_time,
            self.wait_time,
            self.client_parse_count,
            self.server_parse_count,
            self.bind_count,
            self.client_login_count,
        ]
    }

    fn of([a, x, q, r, s, xt, qt, w, cp, sp, b, l]: [u64; 12]) -> Self {
        Self {
            server_assignment_count: a,
            xact_count: x,
            query_count: q,
            received: r,
            sent: s,
            xact_time: xt,
            query_time: qt,
            wait_time: w,
            client_parse_count: cp,
            server_parse_count: sp,
            bind_count: b,
            client_login_count: l,
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let (one, other) = (self.all(), other.all());
        Self::of(std::array::from_fn(|at| one[at].saturating_add(other[at])))
    }

    /// The averages since `before`, which was `micros` ago: counts in a second, times for one
    /// transaction, query or assignment.
    #[must_use]
    pub fn average(&self, before: &Self, micros: u64) -> Self {
        if micros == 0 {
            return Self::default();
        }
        let (now, before) = (self.all(), before.all());
        let grown: [u64; 12] = std::array::from_fn(|at| now[at].saturating_sub(before[at]));
        let delta = Self::of(grown);
        let rate = |grown: u64| {
            let rate = u128::from(grown) * 1_000_000 / u128::from(micros);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        Self {
            xact_time: delta.xact_time.checked_div(delta.xact_count).unwrap_or(0),
            query_time: delta.query_time.checked_div(delta.query_count).unwrap_or(0),
            wait_time: delta
                .wait_time
                .checked_div(delta.server_assignment_count)
                .unwrap_or(0),
            ..Self::of(grown.map(rate))
        }
    }
}

/// The counters of a database since the start, and their averages over the last period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsRow {
    /// The database.
    pub database: String,
    /// Since the start.
    pub total: Counters,
    /// Over the last period.
    pub average: Counters,
}

/// The columns of `SHOW STATS`.
const TOTAL: [&str; 12] = [
    "total_server_assignment_count",
    "total_xact_count",
    "total_query_count",
    "total_received",
    "total_sent",
    "total_xact_time",
    "total_query_time",
    "total_wait_time",
    "total_client_parse_count",
    "total_server_parse_count",
    "total_bind_count",
    "total_client_login_count",
];

/// The further columns of `SHOW STATS`.
const AVERAGE: [&str; 12] = [
    "avg_server_assignment_count",
    "avg_xact_count",
    "avg_query_count",
    "avg_recv",
    "avg_sent",
    "avg_xact_time",
    "avg_query_time",
    "avg_wait_time",
    "avg_client_parse_count",
    "avg_server_parse_count",
    "avg_bind_count",
    "avg_client_login_count",
];

/// The columns of `SHOW STATS_TOTALS` and, but for the last four, `STATS_AVERAGES`.
const PLAIN: [&str; 12] = [
    "server_assignment_count",
    "xact_count",
    "query_count",
    "bytes_received",
    "bytes_sent",
    "xact_time",
    "query_time",
    "wait_time",
    "client_parse_count",
    "server_parse_count",
    "bind_count",
    "client_login_count",
];

/// The rows of `SHOW TOTALS` behind `total_` and `avg_`.
pub(in super::super) const TOTALS: [&str; 12] = [
    "server_assignment_count",
    "xact_count",
    "query_count",
    "client_bytes",
    "server_bytes",
    "xact_time",
    "query_time",
    "wait_time",
    "ps_client_parse_count",
    "ps_server_parse_count",
    "ps_bind_count",
    "client_login_count",
];

fn heads_of(names: impl IntoIterator<Item = &'static str>) -> Vec<Head> {
    let database = Head {
        name: "database",
        kind: Kind::Text,
    };
    let counter = |name| Head {
        name,
        kind: Numeric::KIND,
    };
    std::iter::once(database)
        .chain(names.into_iter().map(counter))
        .collect()
}

fn cells_of(database: &str, counters: &[&Counters]) -> Vec<Option<String>> {
    let numbers = counters.iter().flat_map(|counters| counters.all());
    let numbers = numbers.map(|number| Some(number.to_string()));
    std::iter::once(Some(database.to_owned()))
        .chain(numbers)
        .collect()
}

/// A row of `SHOW STATS`.
impl Row for StatsRow {
    fn heads() -> Vec<Head> {
        heads_of(TOTAL.into_iter().chain(AVERAGE))
    }

    fn cells(&self) -> Vec<Option<String>> {
        cells_of(&self.database, &[&self.total, &self.average])
    }
}

/// A row of `SHOW STATS_TOTALS`.
pub(in super::super) struct TotalsRow(pub(in super::super) StatsRow);

impl Row for TotalsRow {
    fn heads() -> Vec<Head> {
        heads_of(PLAIN)
    }

    fn cells(&self) -> Vec<Option<String>> {
        cells_of(&self.0.database, &[&self.0.total])
    }
}

/// A row of `SHOW STATS_AVERAGES`.
pub(in super::super) struct AveragesRow(pub(in super::super) StatsRow);

impl Row for AveragesRow {
    fn heads() -> Vec<Head> {
        heads_of(PLAIN[..8].iter().chain(&AVERAGE[8..]).copied())
    }

    fn cells(&self) -> Vec<Option<String>> {
        cells_of(&self.0.database, &[&self.0.average])
    }
}
