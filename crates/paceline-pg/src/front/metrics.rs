//! The counters of databases and the gauges of pools as OpenMetrics text.

use std::fmt::Write;

use super::state::Front;
use crate::{console::Counters, pools::PoolRow};

/// A number of each database.
struct DatabaseFamily {
    name: &'static str,
    help: &'static str,
    value: fn(&Counters) -> u64,
}

/// A number of each pool.
struct PoolFamily {
    name: &'static str,
    help: &'static str,
    value: fn(&PoolRow) -> u64,
}

const DATABASES: [DatabaseFamily; 8] = [
    DatabaseFamily {
        name: "transactions",
        help: "Transactions that have ended",
        value: |counters| counters.xact_count,
    },
    DatabaseFamily {
        name: "queries",
        help: "Queries that have ended",
        value: |counters| counters.query_count,
    },
    DatabaseFamily {
        name: "received_bytes",
        help: "Bytes that clients have sent",
        value: |counters| counters.received,
    },
    DatabaseFamily {
        name: "sent_bytes",
        help: "Bytes that clients were sent",
        value: |counters| counters.sent,
    },
    DatabaseFamily {
        name: "assignments",
        help: "How often a client got a server",
        value: |counters| counters.server_assignment_count,
    },
    DatabaseFamily {
        name: "query_microseconds",
        help: "How long queries took",
        value: |counters| counters.query_time,
    },
    DatabaseFamily {
        name: "wait_microseconds",
        help: "How long clients waited for a server",
        value: |counters| counters.wait_time,
    },
    DatabaseFamily {
        name: "logins",
        help: "Logins of clients",
        value: |counters| counters.client_login_count,
    },
];

const POOLS: [PoolFamily; 6] = [
    PoolFamily {
        name: "clients_active",
        help: "Clients that do not wait",
        value: |row| row.clients_active as u64,
    },
    PoolFamily {
        name: "clients_waiting",
        help: "Clients that wait for a server",
        value: |row| row.clients_waiting as u64,
    },
    PoolFamily {
        name: "servers_active",
        help: "Server connections that clients have",
        value: |row| row.servers_active as u64,
    },
    PoolFamily {
        name: "servers_idle",
        help: "Server connections that are free",
        value: |row| (row.servers_idle + row.servers_used) as u64,
    },
    PoolFamily {
        name: "servers_login",
        help: "Server connections that log in",
        value: |row| row.servers_login as u64,
    },
    PoolFamily {
        name: "longest_wait_microseconds",
        help: "How long the first client in the queue has waited",
        value: |row| u64::try_from(row.longest_wait.as_micros()).unwrap_or(u64::MAX),
    },
];

impl Front {
    /// All families, without the mark of the end.
    pub(crate) fn open_metrics(&self) -> String {
        let mut text = String::new();
        self.write_databases(&mut text);
        self.write_pools(&mut text);
        text
    }

    fn write_databases(&self, text: &mut String) {
        let databases = self.registers.databases();
        for family in &DATABASES {
            let name = format!("paceline_front_{}", family.name);
            head(text, &name, "counter", family.help);
            for database in &databases {
                let value = (family.value)(&database.counters.read());
                let label = escaped(&database.name);
                // Writing to a string does not fail.
                let _ = writeln!(text, "{name}_total{{database=\"{label}\"}} {value}");
            }
        }
    }

    fn write_pools(&self, text: &mut String) {
        let now = self.now();
        let rows = self.book().pool_rows(now);
        for family in &POOLS {
            let name = format!("paceline_front_{}", family.name);
            head(text, &name, "gauge", family.help);
            for row in &rows {
                let (database, user) = (escaped(&row.database), escaped(&row.user));
                let value = (family.value)(row);
                let labels = format!("database=\"{database}\",user=\"{user}\"");
                let _ = writeln!(text, "{name}{{{labels}}} {value}");
            }
        }
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {help}");
}

/// The value of a label: a name can't end its line.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
