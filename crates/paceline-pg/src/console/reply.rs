//! The answers of the console.

use paceline_pg_wire::{backend, NewReport, Severity, TransactionStatus};

use super::{
    refusal::Refusal,
    table::{self, Head, Kind},
};

/// Appends the end of a successful command, such as `PAUSE`.
pub fn done(output: &mut Vec<u8>, tag: &str) {
    backend::command_complete(output, tag.as_bytes());
    backend::ready_for_query(output, TransactionStatus::Idle);
}

/// Appends the answer to `SET`, with a notice if the value takes effect only later.
pub fn set_done(output: &mut Vec<u8>, key: &str, value: &str, notice: Option<&str>) {
    if let Some(text) = notice {
        backend::notice(output, &NewReport::new(Severity::Notice, "00000", text));
    }
    done(output, &format!("SET {key}={value}"));
}

/// Appends the answer to a `SET` that drivers send at their start.
pub fn set_ignored(output: &mut Vec<u8>) {
    backend::notice(
        output,
        &NewReport::new(Severity::Notice, "00000", "SET ignored"),
    );
    done(output, "SET");
}

/// Appends that a command is refused.
pub fn refuse(output: &mut Vec<u8>, refusal: &Refusal) {
    let report = NewReport::new(Severity::Error, refusal.code(), refusal.to_string());
    backend::error(output, &report);
    backend::ready_for_query(output, TransactionStatus::Idle);
}

/// Appends that the console ends the session.
pub fn refuse_fatal(output: &mut Vec<u8>, refusal: &Refusal) {
    let report = NewReport::new(Severity::Fatal, refusal.code(), refusal.to_string());
    backend::error(output, &report);
}

/// Appends a parameter of PostgreSQL with its value.
pub fn parameter(output: &mut Vec<u8>, name: &'static str, value: &str) {
    table::columns(
        output,
        &[Head {
            name,
            kind: Kind::Text,
        }],
    );
    table::values(output, &[Some(value.to_owned())]);
    done(output, "SHOW");
}

/// The commands of the console.
const USAGE: &str = "
\tSHOW HELP|CONFIG|DATABASES|POOLS|CLIENTS|SERVERS|USERS|VERSION
\tSHOW HOSTS|PEERS|PEER_POOLS
\tSHOW SOCKETS|ACTIVE_SOCKETS|LISTS|MEM|STATE
\tSHOW DNS_HOSTS|DNS_ZONES
\tSHOW STATS|STATS_TOTALS|STATS_AVERAGES|TOTALS
\tSET key = arg
\tRELOAD
\tPAUSE [<db>]
\tRESUME [<db>]
\tDISABLE <db>
\tENABLE <db>
\tRECONNECT [<db>]
\tKILL [<db>]
\tKILL_CLIENT <client_id>
\tSUSPEND
\tSHUTDOWN
\tSHUTDOWN WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS
\tSHUTDOWN WAIT_FOR_TRANSACTIONS [<seconds>]
\tWAIT_CLOSE [<db>]";

/// Appends the usage.
pub fn help(output: &mut Vec<u8>) {
    let report = NewReport::new(Severity::Notice, "00000", "Console usage");
    backend::notice(output, &report.detail(USAGE));
    done(output, "SHOW");
}

/// Appends the parameters that a client of the console sees at its start.
pub fn welcome(output: &mut Vec<u8>, version: &str) {
    let version = format!("{version}/bouncer");
    let parameters = [
        ("server_version", version.as_str()),
        ("client_encoding", "UTF8"),
        ("server_encoding", "UTF8"),
        ("DateStyle", "ISO"),
        ("TimeZone", "GMT"),
        ("standard_conforming_strings", "on"),
        ("is_superuser", "on"),
    ];
    for (name, value) in parameters {
        backend::parameter(output, name.as_bytes(), value.as_bytes());
    }
}
