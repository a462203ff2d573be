//! The tables of `SHOW`.

use crate::config::{Effect, Key, Settings, Standing};

use super::{
    command::Show,
    reply,
    rows::{AveragesRow, TotalsRow, TOTALS},
    table::{self, pairs, table, Head, Kind, Numeric},
    DatabaseRow, DnsHostRow, HostRow, Lists, MemoryRow, PoolRow, SocketDetail, SocketRow, State,
    StatsRow, UserRow,
};

/// Supplies the rows. Each call takes a snapshot.
pub trait Source {
    /// The rows of `SHOW DATABASES`, the console among them.
    fn databases(&self) -> Vec<DatabaseRow>;
    /// The rows of `SHOW POOLS`.
    fn pools(&self) -> Vec<PoolRow>;
    /// The rows of `SHOW CLIENTS`.
    fn clients(&self) -> Vec<SocketRow>;
    /// The rows of `SHOW SERVERS`.
    fn servers(&self) -> Vec<SocketRow>;
    /// The rows of `SHOW SOCKETS`: clients, also those that log in, and servers.
    fn sockets(&self) -> Vec<(SocketRow, SocketDetail)>;
    /// The rows of `SHOW USERS`.
    fn users(&self) -> Vec<UserRow>;
    /// The counters of each database.
    fn stats(&self) -> Vec<StatsRow>;
    /// The counters of all databases together.
    fn totals(&self) -> StatsRow;
    /// What `SHOW LISTS` counts.
    fn lists(&self) -> Lists;
    /// The rows of `SHOW MEM`.
    fn memory(&self) -> Vec<MemoryRow>;
    /// The rows of `SHOW DNS_HOSTS`.
    fn dns_hosts(&self) -> Vec<DnsHostRow>;
    /// The rows of `SHOW HOSTS`.
    fn hosts(&self) -> Vec<HostRow>;
    /// Whether servers are assigned.
    fn state(&self) -> State;
    /// The present settings.
    fn settings(&self) -> Settings;
    /// The first line of `--version`.
    fn version(&self) -> String;
}

/// Appends a table, and the end of the command.
pub fn show(output: &mut Vec<u8>, what: Show, source: &dyn Source) {
    match what {
        Show::Databases => table(output, &source.databases()),
        Show::Pools => table(output, &source.pools()),
        Show::Clients => table(output, &source.clients()),
        Show::Servers => table(output, &source.servers()),
        Show::Sockets => table(output, &source.sockets()),
        Show::ActiveSockets => table(output, &active(source.sockets())),
        Show::Users => table(output, &source.users()),
        Show::Stats => table(output, &source.stats()),
        Show::StatsTotals => table(output, &wrapped(source, TotalsRow)),
        Show::StatsAverages => table(output, &wrapped(source, AveragesRow)),
        Show::Totals => totals(output, &source.totals()),
        Show::Lists => pairs(output, ["list", "items"], source.lists().rows()),
        Show::Mem => table(output, &source.memory()),
        Show::Hosts => table(output, &source.hosts()),
        Show::DnsHosts => table(output, &source.dns_hosts()),
        Show::State => pairs(output, ["key", "value"], source.state().rows()),
        Show::Config => config(output, &source.settings()),
        Show::Version => version(output, &source.version()),
        Show::Peers => empty(output, PEERS),
        Show::PeerPools => empty(output, PEER_POOLS),
        Show::DnsZones => empty(output, DNS_ZONES),
    }
    reply::done(output, "SHOW");
}

/// The empty tables of features that this program does not have.
const PEERS: &[(&str, Kind)] = &[
    ("peer_id", Kind::Int4),
    ("host", Kind::Text),
    ("port", Kind::Int4),
    ("pool_size", Kind::Int4),
];
const PEER_POOLS: &[(&str, Kind)] = &[
    ("peer_id", Kind::Int4),
    ("cl_active_cancel_req", Kind::Int4),
    ("cl_waiting_cancel_req", Kind::Int4),
    ("sv_active_cancel", Kind::Int4),
    ("sv_login", Kind::Int4),
];
const DNS_ZONES: &[(&str, Kind)] = &[
    ("zonename", Kind::Text),
    ("serial", Kind::Int8),
    ("count", Kind::Int4),
];

fn empty(output: &mut Vec<u8>, columns: &[(&'static str, Kind)]) {
    let heads = columns
        .iter()
        .map(|(name, kind)| Head { name, kind: *kind });
    table::columns(output, &heads.collect::<Vec<_>>());
}

/// The sockets with bytes that are not passed on yet.
fn active(mut sockets: Vec<(SocketRow, SocketDetail)>) -> Vec<(SocketRow, SocketDetail)> {
    sockets.retain(|(_, detail)| {
        detail.pkt_remain > 0 || detail.pkt_avail > 0 || detail.send_avail > 0
    });
    sockets
}

fn wrapped<R>(source: &dyn Source, row: fn(StatsRow) -> R) -> Vec<R> {
    source.stats().into_iter().map(row).collect()
}

fn totals(output: &mut Vec<u8>, all: &StatsRow) {
    let name = |text| Head {
        name: text,
        kind: Kind::Text,
    };
    let value = Head {
        name: "value",
        kind: Kind::Numeric,
    };
    table::columns(output, &[name("name"), value]);
    for (prefix, counters) in [("total", &all.total), ("avg", &all.average)] {
        for (name, number) in TOTALS.into_iter().zip(counters.all()) {
            let number = table::Cell::text(&Numeric(number));
            table::values(output, &[Some(format!("{prefix}_{name}")), number]);
        }
    }
}

fn config(output: &mut Vec<u8>, settings: &Settings) {
    let names = ["key", "value", "default", "changeable"];
    let heads = names.map(|name| Head {
        name,
        kind: Kind::Text,
    });
    table::columns(output, &heads);
    for key in Key::all() {
        let can_change = key.standing == Standing::Honoured && key.effect == Effect::AtOnce;
        let can_change = if can_change { "yes" } else { "no" };
        let texts = [key.name, &key.show(settings), key.default, can_change];
        table::values(output, &texts.map(|text| Some(text.to_owned())));
    }
}

fn version(output: &mut Vec<u8>, version: &str) {
    table::columns(
        output,
        &[Head {
            name: "version",
            kind: Kind::Text,
        }],
    );
    table::values(output, &[Some(version.to_owned())]);
}
