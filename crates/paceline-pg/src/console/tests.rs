//! Commands in many spellings, and every table as a client reads it.

use std::time::Duration;

use paceline_pg_wire::{backend::Reply, Message};

use super::*;
use crate::config::Settings;

fn name(text: &str) -> Option<Box<str>> {
    Some(text.into())
}

/// PgBouncer accepts these spellings, and scripts of its users must keep working.
#[test]
fn commands_are_read_in_all_their_spellings() {
    let rows: Vec<(&str, Command)> = vec![
        ("", Command::Empty),
        (" \n", Command::Empty),
        ("show pools", Command::Show(Show::Pools)),
        ("\tSHOW  \"pools\" ; ", Command::Show(Show::Pools)),
        ("Show\nStats_Averages;", Command::Show(Show::StatsAverages)),
        ("select version", Command::Show(Show::Version)),
        ("SHOW HELP", Command::Help),
        ("show timezone", Command::ShowParameter("timezone", "GMT")),
        ("PAUSE", Command::Pause(None)),
        ("PAUSE p0;", Command::Pause(name("p0"))),
        (
            "PAUSE \"a \"\"b\"\" ; c\"",
            Command::Pause(name("a \"b\" ; c")),
        ),
        ("pause \"\"", Command::Pause(None)),
        ("RESUME P0", Command::Resume(name("P0"))),
        ("KILL", Command::Kill(None)),
        ("KILL_CLIENT 17", Command::KillClient(17)),
        ("DISABLE p", Command::Disable("p".into())),
        ("ENABLE p", Command::Enable("p".into())),
        ("RECONNECT p", Command::Reconnect(name("p"))),
        ("WAIT_CLOSE", Command::WaitClose(None)),
        ("RELOAD;", Command::Reload),
        ("SUSPEND", Command::Suspend),
        ("SHUTDOWN", Command::Shutdown(Shutdown::Now)),
        (
            "shutdown wait_for_servers",
            Command::Shutdown(Shutdown::WaitForServers),
        ),
        (
            "SHUTDOWN WAIT_FOR_CLIENTS",
            Command::Shutdown(Shutdown::WaitForClients),
        ),
        (
            "SHUTDOWN WAIT_FOR_TRANSACTIONS",
            Command::Shutdown(Shutdown::WaitForTransactions(None)),
        ),
        (
            "SHUTDOWN WAIT_FOR_TRANSACTIONS 30",
            Command::Shutdown(Shutdown::WaitForTransactions(Some(Duration::from_secs(30)))),
        ),
        (
            "SET pool_mode=session",
            Command::Set("pool_mode".into(), "session".into()),
        ),
        (
            "set verbose TO 2;",
            Command::Set("verbose".into(), "2".into()),
        ),
        (
            "SET a = 'it''s; x'",
            Command::Set("a".into(), "it's; x".into()),
        ),
        ("SET a =''", Command::Set("a".into(), "".into())),
        ("SET DateStyle = 'ISO'", Command::SetIgnored),
    ];
    for (text, expected) in rows {
        assert_eq!(
            Command::parse(text, Access::Admin),
            Ok(expected),
            "{text:?}"
        );
    }
}

#[test]
fn what_is_no_command_is_refused_in_pgbouncers_words() {
    let invalid = |text: &str| Refusal::InvalidCommand(text.into());
    let long = format!("PAUSE {}", "x".repeat(300));
    let rows = [
        ("SHOW", invalid("SHOW")),
        ("SHOW pool", invalid("SHOW pool")),
        ("SHOW pools all", invalid("SHOW pools all")),
        ("SHOW 'pools'", invalid("SHOW 'pools'")),
        ("SHOW pools; SHOW pools", invalid("SHOW pools; SHOW pools")),
        (";", invalid(";")),
        ("BEGIN", invalid("BEGIN")),
        ("PAUSE a b", invalid("PAUSE a b")),
        ("PAUSE a\"b\"", invalid("PAUSE a\"b\"")),
        ("PAUSE\"b\"", invalid("PAUSE\"b\"")),
        ("PAUSE \"a", invalid("PAUSE \"a")),
        ("RELOAD x", invalid("RELOAD x")),
        ("SHUTDOWN NOW", invalid("SHUTDOWN NOW")),
        (
            "SHUTDOWN WAIT_FOR_TRANSACTIONS soon",
            invalid("SHUTDOWN WAIT_FOR_TRANSACTIONS soon"),
        ),
        ("SET a", invalid("SET a")),
        ("SET 'a' = 1", invalid("SET 'a' = 1")),
        ("SET a = 1.5", invalid("SET a = 1.5")),
        ("ENABLE", Refusal::DatabaseNeeded),
        ("KILL_CLIENT", Refusal::InvalidClient),
        ("KILL_CLIENT x1", Refusal::InvalidClient),
        ("SHOW fds", Refusal::FdsRefused),
        (&long, Refusal::BadArguments),
    ];
    for (text, expected) in rows {
        assert_eq!(
            Command::parse(text, Access::Admin),
            Err(expected),
            "{text:?}"
        );
    }
    let text = invalid("x").to_string();
    assert_eq!(text, "invalid command 'x', use SHOW HELP;");
    assert_eq!(
        Refusal::ConsoleItself("pause", "p".into()).to_string(),
        "cannot pause admin db: p"
    );
    assert_eq!(
        (invalid("").code(), Refusal::ReloadFailed.code()),
        ("08P01", "F0000")
    );
}

/// A user of `stats_users` watches: it must not be able to stop anything.
#[test]
fn a_user_that_may_only_look_changes_nothing() {
    let parse = |text| Command::parse(text, Access::Stats);
    for text in [
        "SHOW stats",
        "SHOW HELP",
        "SET client_encoding = 'UTF8'",
        "",
    ] {
        assert!(parse(text).is_ok(), "{text}");
    }
    let changes = [
        "PAUSE",
        "RESUME",
        "SUSPEND",
        "DISABLE x",
        "ENABLE x",
        "KILL",
        "KILL_CLIENT 1",
        "RELOAD",
        "RECONNECT",
        "WAIT_CLOSE",
        "SHUTDOWN",
        "SHUTDOWN WAIT_FOR_CLIENTS",
        "SET verbose = 1",
    ];
    for text in changes {
        assert_eq!(parse(text), Err(Refusal::AdminNeeded), "{text}");
    }
}

/// One row of everything.
struct One;

fn socket() -> SocketRow {
    SocketRow {
        r#type: "C",
        user: "u".into(),
        database: "d".into(),
        replication: "none",
        state: "idle",
        addr: "127.0.0.1".into(),
        port: 5,
        close_needed: true,
        id: 9,
        ..SocketRow::default()
    }
}

impl Source for One {
    fn databases(&self) -> Vec<DatabaseRow> {
        vec![DatabaseRow {
            name: "d".into(),
            paused: true,
            ..DatabaseRow::default()
        }]
    }

    fn pools(&self) -> Vec<PoolRow> {
        vec![PoolRow::default()]
    }

    fn clients(&self) -> Vec<SocketRow> {
        vec![socket()]
    }

    fn servers(&self) -> Vec<SocketRow> {
        vec![socket()]
    }

    fn sockets(&self) -> Vec<(SocketRow, SocketDetail)> {
        let busy = SocketDetail {
            pkt_avail: 3,
            ..SocketDetail::default()
        };
        vec![(socket(), SocketDetail::default()), (socket(), busy)]
    }

    fn users(&self) -> Vec<UserRow> {
        vec![UserRow::default()]
    }

    fn stats(&self) -> Vec<StatsRow> {
        vec![self.totals()]
    }

    fn totals(&self) -> StatsRow {
        let total = Counters {
            xact_count: 6,
            sent: u64::MAX,
            ..Counters::default()
        };
        StatsRow {
            database: "d".into(),
            total,
            average: Counters::default(),
        }
    }

    fn lists(&self) -> Lists {
        Lists {
            pools: 3,
            ..Lists::default()
        }
    }

    fn memory(&self) -> Vec<MemoryRow> {
        vec![MemoryRow::default()]
    }

    fn dns_hosts(&self) -> Vec<DnsHostRow> {
        vec![DnsHostRow::default()]
    }

    fn hosts(&self) -> Vec<HostRow> {
        vec![HostRow::default()]
    }

    fn state(&self) -> State {
        State::Paused
    }

    fn settings(&self) -> Settings {
        Settings {
            listen_port: 7,
            ..Settings::default()
        }
    }

    fn version(&self) -> String {
        "Paceline 1".to_owned()
    }
}

/// A table as a client reads it.
#[derive(Debug, Default)]
struct Table {
    columns: Vec<String>,
    types: Vec<u32>,
    rows: Vec<Vec<Option<String>>>,
    end: Vec<u8>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn read(mut bytes: &[u8]) -> Table {
    let mut table = Table::default();
    while let Some((message, length)) = Message::first(bytes, 1 << 20).expect("a message") {
        bytes = &bytes[length..];
        match Reply::read(message).expect("a reply") {
            Reply::RowDescription(columns) => {
                for column in columns.iter() {
                    table.columns.push(text(column.name));
                    table.types.push(column.oid);
                }
            }
            Reply::Row(values) => {
                table
                    .rows
                    .push(values.iter().map(|value| value.map(text)).collect());
            }
            _ => table.end.push(message.tag),
        }
    }
    assert!(bytes.is_empty());
    table
}

fn table_of(what: Show) -> Table {
    let mut bytes = Vec::new();
    show(&mut bytes, what, &One);
    read(&bytes)
}

const SOCKET: &str = "type user database replication state addr port local_addr local_port \
    connect_time request_time wait wait_us close_needed ptr link remote_pid tls application_name \
    prepared_statements id";
const DETAIL: &str = " recv_pos pkt_pos pkt_remain send_pos send_remain pkt_avail send_avail";

/// Tools of PgBouncer's users find a column by its name, or by its number.
#[test]
fn each_table_has_pgbouncers_columns_in_its_order() {
    let detail = [SOCKET, DETAIL].concat();
    let rows = [
        (Show::Version, "version"),
        (
            Show::Databases,
            "name host port database force_user pool_size min_pool_size reserve_pool_size \
             server_lifetime pool_mode load_balance_hosts max_connections current_connections \
             max_client_connections current_client_connections paused disabled",
        ),
        (
            Show::Pools,
            "database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req \
             sv_active sv_active_cancel sv_being_canceled sv_idle sv_used sv_tested sv_login \
             maxwait maxwait_us pool_mode load_balance_hosts",
        ),
        (Show::Clients, SOCKET),
        (Show::Servers, SOCKET),
        (Show::Sockets, detail.as_str()),
        (Show::ActiveSockets, detail.as_str()),
        (
            Show::Users,
            "name pool_size reserve_pool_size pool_mode max_user_connections current_connections \
             max_user_client_connections current_client_connections",
        ),
        (
            Show::StatsTotals,
            "database server_assignment_count xact_count query_count bytes_received bytes_sent \
             xact_time query_time wait_time client_parse_count server_parse_count bind_count \
             client_login_count",
        ),
        (
            Show::StatsAverages,
            "database server_assignment_count xact_count query_count bytes_received bytes_sent \
             xact_time query_time wait_time avg_client_parse_count avg_server_parse_count \
             avg_bind_count avg_client_login_count",
        ),
        (
            Show::Stats,
            "database total_server_assignment_count total_xact_count total_query_count \
             total_received total_sent total_xact_time total_query_time total_wait_time \
             total_client_parse_count total_server_parse_count total_bind_count \
             total_client_login_count avg_server_assignment_count avg_xact_count avg_query_count \
             avg_recv avg_sent avg_xact_time avg_query_time avg_wait_time avg_client_parse_count \
             avg_server_parse_count avg_bind_count avg_client_login_count",
        ),
        (Show::Totals, "name value"),
        (Show::Lists, "list items"),
        (Show::Config, "key value default changeable"),
        (Show::State, "key value"),
        (Show::Mem, "name size used free memtotal"),
        (Show::Peers, "peer_id host port pool_size"),
        (
            Show::PeerPools,
            "peer_id cl_active_cancel_req cl_waiting_cancel_req sv_active_cancel sv_login",
        ),
        (Show::DnsZones, "zonename serial count"),
        (Show::DnsHosts, "hostname ttl addrs"),
        (
            Show::Hosts,
            "database host port state lag_us connections active since reason",
        ),
    ];
    assert_eq!(rows.len(), command::TABLES.len());
    for (what, names) in rows {
        let table = table_of(what);
        assert_eq!(table.columns.join(" "), names, "{what:?}");
        assert_eq!(table.end, b"CZ", "{what:?}");
        for row in &table.rows {
            assert_eq!(row.len(), table.columns.len(), "{what:?}");
        }
    }
}

#[test]
fn values_and_types_are_those_of_pgbouncer() {
    let clients = table_of(Show::Clients);
    let value = |table: &Table, column: &str| {
        let at = table.columns.iter().position(|name| name == column);
        table.rows[0][at.expect("a column")].clone()
    };
    assert_eq!(value(&clients, "type").as_deref(), Some("C"));
    assert_eq!(value(&clients, "close_needed").as_deref(), Some("1"));
    assert_eq!(value(&clients, "id").as_deref(), Some("9"));
    assert_eq!(
        (clients.types[0], clients.types[6], clients.types[20]),
        (25, 23, 23)
    );

    let databases = table_of(Show::Databases);
    assert_eq!(value(&databases, "paused").as_deref(), Some("1"));
    assert_eq!(value(&databases, "host"), None);

    let stats = table_of(Show::Stats);
    assert_eq!(stats.types[1..], [1700; 24]);
    assert_eq!(value(&stats, "total_xact_count").as_deref(), Some("6"));
    assert_eq!(
        value(&stats, "total_sent").as_deref(),
        Some("18446744073709551615")
    );

    assert_eq!(table_of(Show::ActiveSockets).rows.len(), 1);
    let row = |one: &str, other: &str| vec![Some(one.to_owned()), Some(other.to_owned())];
    assert!(table_of(Show::Totals)
        .rows
        .contains(&row("total_xact_count", "6")));
    assert!(table_of(Show::Lists).rows.contains(&row("pools", "3")));
    assert!(table_of(Show::State).rows.contains(&row("paused", "yes")));
    assert!(table_of(Show::State).rows.contains(&row("active", "no")));
    assert_eq!(table_of(Show::DnsHosts).types, [25, 20, 25]);
    let config = table_of(Show::Config).rows;
    let port = ["listen_port", "7", "6432", "no"].map(|text| Some(text.to_owned()));
    assert!(config.contains(&port.to_vec()));
}

#[test]
fn averages_are_counts_in_a_second_and_times_for_one() {
    let before = Counters {
        xact_count: 10,
        xact_time: 1_000,
        ..Counters::default()
    };
    let now = Counters {
        xact_count: 30,
        xact_time: 5_000,
        received: 4_000,
        ..before
    };
    let average = now.average(&before, 2_000_000);
    assert_eq!(
        (average.xact_count, average.xact_time, average.received),
        (10, 200, 2_000)
    );
    assert_eq!((average.query_count, average.query_time), (0, 0));
    assert_eq!(now.average(&before, 0), Counters::default());
    assert_eq!(
        before.average(&now, 1),
        Counters::default(),
        "a freed pool is no underflow"
    );
    assert_eq!(before.plus(&now).xact_count, 40);
}

#[test]
fn answers_to_commands_end_with_ready() {
    let mut bytes = Vec::new();
    done(&mut bytes, "PAUSE");
    set_done(&mut bytes, "a", "1", Some("needs a restart"));
    set_ignored(&mut bytes);
    refuse(&mut bytes, &Refusal::ReloadFailed);
    help(&mut bytes);
    parameter(&mut bytes, "timezone", "GMT");
    assert_eq!(read(&bytes).end, b"CZNCZNCZEZNCZCZ");
    let mut bytes = Vec::new();
    refuse_fatal(&mut bytes, &Refusal::ExtendedQuery);
    assert_eq!(read(&bytes).end, b"E");
    let mut bytes = Vec::new();
    welcome(&mut bytes, "1.0");
    assert_eq!(read(&bytes).end, b"SSSSSSS");
}
