//! What the console shows.

use std::{
    collections::HashMap,
    sync::{atomic::Ordering, Arc},
};

use super::{
    client::{Client, Phase},
    server::Server,
    sites::SiteRow,
    sockets::Address,
    state::{locked, Front},
};
use crate::{
    config::{PoolMode, Settings, CONSOLE},
    console::{
        Big, Counters, DatabaseRow, DnsHostRow, HostRow, Lists, MemoryRow, PoolRow, SocketDetail,
        SocketRow, Source, State, StatsRow, UserRow,
    },
    log,
    pools::{self, ClientId, ClientState, Phase as BookPhase, ServerId, ServerState},
};

/// The tables of the console. Each is a snapshot of its own.
pub(crate) struct Snapshots<'f>(pub(crate) &'f Front);

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Snapshots<'_> {
    fn database_row(&self, row: &pools::DatabaseRow) -> Option<DatabaseRow> {
        let live = self.0.live();
        let settings = live.settings();
        let config = live.config.database(&row.name)?;
        let hosts: Vec<&str> = config.host.iter().collect();
        let lifetime = config.server_lifetime.unwrap_or(settings.server_lifetime);
        Some(DatabaseRow {
            name: row.name.to_string(),
            host: (!hosts.is_empty()).then(|| hosts.join(",")),
            port: config.port.of(0).into(),
            database: config.server_name().to_owned(),
            force_user: config.user.as_deref().map(str::to_owned),
            pool_size: config.pool_size.unwrap_or(settings.default_pool_size),
            min_pool_size: config.min_pool_size.unwrap_or(settings.min_pool_size),
            reserve_pool_size: config
                .reserve_pool_size
                .unwrap_or(settings.reserve_pool_size),
            server_lifetime: u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX),
            pool_mode: config.pool_mode.map(|mode| mode.word().to_owned()),
            load_balance_hosts: (hosts.len() > 1)
                .then(|| config.load_balance_hosts.word().to_owned()),
            max_connections: count(row.max_connections),
            current_connections: count(row.connections),
            max_client_connections: count(row.max_clients),
            current_client_connections: count(row.clients),
            paused: row.is_paused,
            disabled: row.is_disabled,
        })
    }

    fn host_row(&self, database: &str, row: SiteRow) -> HostRow {
        let lag = row.row.lag.map(|lag| lag.as_micros().to_string());
        HostRow {
            database: database.to_owned(),
            host: row.host.address.as_str().to_owned(),
            port: row.host.port.into(),
            state: row.state,
            lag_us: lag,
            connections: count(row.row.connections),
            active: count(row.row.outstanding),
            since: self.time(row.since),
            reason: row.reason.into(),
        }
    }

    fn console_row(&self) -> DatabaseRow {
        let consoles = self.0.clients();
        let consoles = consoles.all().filter(|client| client.facts().is_console);
        DatabaseRow {
            name: CONSOLE.to_owned(),
            host: None,
            port: self.0.live().settings().listen_port.into(),
            database: CONSOLE.to_owned(),
            force_user: Some(CONSOLE.to_owned()),
            pool_size: 2,
            min_pool_size: 0,
            reserve_pool_size: 0,
            server_lifetime: 0,
            pool_mode: Some(PoolMode::Statement.word().to_owned()),
            load_balance_hosts: None,
            max_connections: 0,
            current_connections: 0,
            max_client_connections: self.0.live().settings().max_db_client_connections,
            current_client_connections: count(consoles.count()),
            paused: false,
            disabled: false,
        }
    }

    fn pool_row(&self, row: &pools::PoolRow) -> Option<PoolRow> {
        let entry = self.0.registers.pool(row.id)?;
        let terms = entry.terms();
        let config = entry.database.config();
        let balance =
            (config.host.iter().len() > 1).then(|| config.load_balance_hosts.word().to_owned());
        Some(PoolRow {
            database: row.database.to_string(),
            user: row.user.to_string(),
            cl_active: count(row.clients_active),
            cl_waiting: count(row.clients_waiting),
            cl_active_cancel_req: count(row.cancels_active),
            cl_waiting_cancel_req: count(row.cancels_waiting),
            sv_active: count(row.servers_active),
            sv_active_cancel: count(row.servers_cancelling),
            sv_being_canceled: count(row.servers_being_cancelled),
            sv_idle: count(row.servers_idle),
            sv_used: count(row.servers_used),
            sv_tested: count(row.servers_tested),
            sv_login: count(row.servers_login),
            maxwait: u32::try_from(row.longest_wait.as_secs()).unwrap_or(u32::MAX),
            maxwait_us: row.longest_wait.subsec_micros(),
            pool_mode: terms.effective.pool_mode.word().to_owned(),
            load_balance_hosts: balance,
        })
    }

    fn console_pool(&self) -> PoolRow {
        let consoles = self.console_row().current_client_connections;
        PoolRow {
            database: CONSOLE.to_owned(),
            user: CONSOLE.to_owned(),
            cl_active: consoles,
            cl_waiting: 0,
            cl_active_cancel_req: 0,
            cl_waiting_cancel_req: 0,
            sv_active: 0,
            sv_active_cancel: 0,
            sv_being_canceled: 0,
            sv_idle: 0,
            sv_used: 0,
            sv_tested: 0,
            sv_login: 0,
            maxwait: 0,
            maxwait_us: 0,
            pool_mode: PoolMode::Statement.word().to_owned(),
            load_balance_hosts: None,
        }
    }

    fn client_row(&self, client: &Client, book: &BookView) -> SocketRow {
        let facts = client.facts().clone();
        let now = self.0.now();
        let in_book = facts.id.and_then(|id| book.clients.get(&id));
        let (phase, since) = client.watch.phase();
        let state = match (phase, in_book.map(|row| row.state)) {
            (Phase::Cancel, _) => "waiting_cancel_req",
            (Phase::Console, _) => "active",
            (Phase::Queued, _) => "waiting",
            (Phase::Busy, Some(ClientState::Idle)) => "active",
            (_, Some(ClientState::Waiting | ClientState::Arriving)) => "waiting",
            (_, Some(ClientState::Active)) => "active",
            (Phase::Login, _) => "login",
            (_, Some(ClientState::Idle)) => "idle",
            _ => "active",
        };
        let waits = in_book.and_then(|row| row.waits_since);
        let waited = waits
            .map(|since| now.saturating_sub(since))
            .unwrap_or_default();
        let link = in_book.and_then(|row| row.server);
        let link = link.and_then(|id| book.server_numbers.get(&id));
        let named = |name: &Arc<str>, none: &str| {
            if name.is_empty() {
                none.to_owned()
            } else {
                name.to_string()
            }
        };
        SocketRow {
            r#type: "C",
            user: named(&facts.user, "(nouser)"),
            database: named(&facts.database, "(nodb)"),
            replication: "none",
            state,
            addr: client.address.host(),
            port: client.address.port().into(),
            local_addr: facts
                .local
                .as_ref()
                .map_or_else(|| "unix".to_owned(), |local| local.host()),
            local_port: local_port(facts.local.as_deref().copied(), &client.address),
            connect_time: self.time(facts.connected_at),
            request_time: self.time(since),
            wait: u32::try_from(waited.as_secs()).unwrap_or(u32::MAX),
            wait_us: waited.subsec_micros(),
            close_needed: false,
            ptr: pointer(client.number),
            link: link.map(|number| pointer(*number)).unwrap_or_default(),
            remote_pid: match client.address {
                Address::Unix {
                    process: Some(process),
                    ..
                } => process.unsigned_abs(),
                _ => 0,
            },
            tls: facts.tls.to_string(),
            application_name: facts.application.to_string(),
            prepared_statements: count(client.statements.load(Ordering::Relaxed)),
            id: number(client.number),
        }
    }

    fn server_row(&self, server: &Server, book: &BookView) -> SocketRow {
        let row = book.servers.get(&server.id);
        let core = server.core();
        let state = match row.map(|row| row.state) {
            Some(ServerState::Held) => "active",
            Some(ServerState::Checking | ServerState::Resetting) => "tested",
            Some(ServerState::BeingCancelled) => "being_canceled",
            Some(ServerState::CancelOpening | ServerState::Cancelling) => "active_cancel",
            Some(ServerState::Opening) => "new",
            Some(ServerState::Idle) | None => "idle",
        };
        let client = core.client.as_ref();
        SocketRow {
            r#type: "S",
            user: server.pool.user.to_string(),
            database: server.pool.database.name.to_string(),
            replication: "none",
            state,
            addr: server.address.host(),
            port: server.address.port().into(),
            local_addr: server
                .local
                .map_or_else(|| "unix".to_owned(), |local| local.host()),
            local_port: local_port(server.local, &server.address),
            connect_time: self.time(server.connected_at),
            request_time: self.time(core.requested_at),
            wait: 0,
            wait_us: 0,
            close_needed: row.is_some_and(|row| row.is_marked),
            ptr: pointer(server.number),
            link: client
                .map(|client| pointer(client.number))
                .unwrap_or_default(),
            remote_pid: server.process.unsigned_abs(),
            tls: server.tls.to_string(),
            application_name: client
                .map(|client| client.facts().application.to_string())
                .unwrap_or_default(),
            prepared_statements: count(core.half.prepared_statements()),
            id: number(server.number),
        }
    }

    fn time(&self, since: std::time::Duration) -> String {
        log::seconds(self.0.calendar(since))
    }

    fn all_clients(&self) -> Vec<Arc<Client>> {
        let mut all: Vec<_> = self.0.clients().all().cloned().collect();
        all.sort_by_key(|client| client.number);
        all
    }

    fn all_servers(&self) -> Vec<Arc<Server>> {
        let mut all: Vec<_> = self.0.servers().values().cloned().collect();
        all.sort_by_key(|server| server.number);
        all
    }

    fn view(&self) -> BookView {
        let (clients, servers) = {
            let book = self.0.book();
            (book.client_rows(), book.server_rows())
        };
        let numbers = self.0.servers();
        BookView {
            clients: clients.into_iter().map(|row| (row.id, row)).collect(),
            servers: servers.into_iter().map(|row| (row.id, row)).collect(),
            server_numbers: numbers.values().map(|it| (it.id, it.number)).collect(),
        }
    }
}

/// Rows of the book by their keys.
struct BookView {
    clients: HashMap<ClientId, pools::ClientRow>,
    servers: HashMap<ServerId, pools::ServerRow>,
    server_numbers: HashMap<ServerId, u64>,
}

fn pointer(number: u64) -> String {
    format!("0x{number:x}")
}

fn number(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn local_port(local: Option<Address>, peer: &Address) -> u32 {
    local
        .map_or_else(|| peer.port(), |local| local.port())
        .into()
}

impl Source for Snapshots<'_> {
    fn databases(&self) -> Vec<DatabaseRow> {
        let live = self.0.live();
        for config in live.config.databases.values() {
            self.0.add_database(Arc::clone(config));
        }
        let rows = self.0.book().database_rows();
        let mut rows: Vec<_> = rows
            .iter()
            .filter_map(|row| self.database_row(row))
            .collect();
        rows.push(self.console_row());
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        rows
    }

    fn pools(&self) -> Vec<PoolRow> {
        let now = self.0.now();
        let rows = self.0.book().pool_rows(now);
        let mut rows: Vec<_> = rows.iter().filter_map(|row| self.pool_row(row)).collect();
        rows.push(self.console_pool());
        rows.sort_by(|a, b| (&a.database, &a.user).cmp(&(&b.database, &b.user)));
        rows
    }

    fn clients(&self) -> Vec<SocketRow> {
        let view = self.view();
        let clients = self.all_clients();
        let shown = clients.iter().filter(|client| {
            let is_in = client.facts().is_logged_in || client.watch.phase().0 != Phase::Login;
            is_in && !client.is_dismissed()
        });
        shown.map(|client| self.client_row(client, &view)).collect()
    }

    fn servers(&self) -> Vec<SocketRow> {
        let view = self.view();
        let servers = self.all_servers();
        servers
            .iter()
            .map(|server| self.server_row(server, &view))
            .collect()
    }

    fn sockets(&self) -> Vec<(SocketRow, SocketDetail)> {
        let view = self.view();
        let clients = self.all_clients();
        let servers = self.all_servers();
        let clients = clients.iter().map(|client| {
            let detail = SocketDetail {
                recv_pos: 0,
                pkt_pos: 0,
                pkt_remain: 0,
                send_pos: 0,
                send_remain: 0,
                pkt_avail: 0,
                send_avail: 0,
            };
            (self.client_row(client, &view), detail)
        });
        let servers = servers.iter().map(|server| {
            let kept = count(server.core().input.len());
            let detail = SocketDetail {
                recv_pos: kept,
                pkt_pos: 0,
                pkt_remain: 0,
                send_pos: 0,
                send_remain: 0,
                pkt_avail: kept,
                send_avail: 0,
            };
            (self.server_row(server, &view), detail)
        });
        clients.chain(servers).collect()
    }

    fn users(&self) -> Vec<UserRow> {
        let live = self.0.live();
        let rows = self.0.book().user_rows();
        let mut rows: Vec<_> = rows
            .iter()
            .map(|row| {
                let config = live.config.users.get(&*row.name);
                let text = |value: Option<u32>| value.map(|it| it.to_string()).unwrap_or_default();
                UserRow {
                    name: row.name.to_string(),
                    pool_size: text(config.and_then(|user| user.pool_size)),
                    reserve_pool_size: text(config.and_then(|user| user.reserve_pool_size)),
                    pool_mode: config
                        .and_then(|user| user.pool_mode)
                        .map(|mode| mode.word().to_owned()),
                    max_user_connections: count(row.max_connections),
                    current_connections: count(row.connections),
                    max_user_client_connections: count(row.max_clients),
                    current_client_connections: count(row.clients),
                }
            })
            .collect();
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        rows
    }

    fn stats(&self) -> Vec<StatsRow> {
        let databases = self.0.registers.databases();
        let rows = databases.iter().map(|database| StatsRow {
            database: database.name.to_string(),
            total: database.counters.read(),
            average: *locked(&database.averages).last(),
        });
        let console = StatsRow {
            database: CONSOLE.to_owned(),
            total: self.0.console.read(),
            ..StatsRow::default()
        };
        let mut rows: Vec<_> = rows.chain([console]).collect();
        rows.sort_by(|one, other| one.database.cmp(&other.database));
        rows
    }

    fn totals(&self) -> StatsRow {
        let rows = self.stats();
        let sum = |counters: fn(&StatsRow) -> &Counters| {
            rows.iter()
                .fold(Counters::default(), |sum, row| sum.plus(counters(row)))
        };
        StatsRow {
            database: "total".to_owned(),
            total: sum(|row| &row.total),
            average: sum(|row| &row.average),
        }
    }

    fn lists(&self) -> Lists {
        let lists = self.0.book().lists();
        Lists {
            databases: count(lists.databases) + 1,
            users: count(lists.users),
            pools: count(lists.pools) + 1,
            used_clients: count(lists.used_clients),
            login_clients: count(lists.login_clients),
            used_servers: count(lists.free_servers + lists.used_servers),
            dns_names: count(self.0.known_names().len()),
            dns_pending: 0,
        }
    }

    fn memory(&self) -> Vec<MemoryRow> {
        let row = |name: &str, size: usize, used: usize| MemoryRow {
            name: name.to_owned(),
            size: count(size),
            used: count(used),
            free: 0,
            memtotal: count(size * used),
        };
        vec![
            row("client_cache", size_of::<Client>(), self.0.clients().len()),
            row("server_cache", size_of::<Server>(), self.0.servers().len()),
        ]
    }

    fn dns_hosts(&self) -> Vec<DnsHostRow> {
        let names = self.0.known_names().into_iter();
        names
            .map(|(hostname, ttl, addrs)| DnsHostRow {
                hostname,
                ttl: Big(ttl),
                addrs,
            })
            .collect()
    }

    fn hosts(&self) -> Vec<HostRow> {
        let databases = self.0.registers.databases();
        let rows = databases.iter().flat_map(|database| {
            let site = database.site();
            let rows = site.map(|site| site.rows()).unwrap_or_default();
            rows.into_iter()
                .map(|row| self.host_row(&database.name, row))
        });
        rows.collect()
    }

    fn state(&self) -> State {
        match self.0.book().phase() {
            BookPhase::Paused | BookPhase::WaitForServers => State::Paused,
            BookPhase::Suspended => State::Suspended,
            _ => State::Active,
        }
    }

    fn settings(&self) -> Settings {
        self.0.live().settings().clone()
    }

    fn version(&self) -> String {
        super::version()
    }
}
