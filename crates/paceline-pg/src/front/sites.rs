//! The hosts of a database with `roles`: which of them a connection is opened to, what happens when
//! one changes its role, and when they are asked. What is known of them, and what follows from that,
//! is in [`hosts`](crate::hosts); the [probes](super::probe) ask.
//!
//! ```text
//!   a login, a failure, a lost connection, a probe ---> observe ---> Change
//!   Change ---> one line of the log
//!          ---> connections to hosts that do not suit any more end: idle ones now, the others when
//!               their client gives them back, those to a replaced primary at once
//!          ---> pools whose clients are parked open connections
//! ```

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use paceline::Group;

use super::{
    opening::Whereabouts,
    probe,
    registers::{Database, PoolEntry},
    server::Server,
    sockets::Stream,
    state::{locked, Front},
};
use crate::{
    config::{self, Host, Roles, Settings},
    hosts::{
        Balance, Change, Choice, HostRow, HostSettings, HostState, Hosts, Observed, Role,
        TargetAttrs,
    },
    log::Level,
    login::ServerReady,
    pools::{PoolId, ServerId},
};

/// When a host is asked again that has refused the probe's login.
const REFUSED_AGAIN: Duration = Duration::from_secs(15);

/// The hosts of one database.
#[derive(Debug)]
pub(crate) struct Site {
    roles: Roles,
    list: Vec<Host>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    hosts: Hosts,
    facts: Vec<Fact>,
    probes: HashMap<usize, Group<Stream>>,
    /// The pool whose user the probes log in as.
    pool: Option<PoolId>,
}

/// When a host has changed, and why.
#[derive(Clone, Debug, Default)]
struct Fact {
    since: Duration,
    reason: Box<str>,
}

/// Which host a new connection goes to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostChoice {
    Host(usize),
    /// None for now: the clients wait.
    Park,
}

/// Whether a connection may serve clients.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Granted,
    Refused,
}

/// What becomes of a connection whose host has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    /// It ends as soon as no client has it.
    Retire,
    /// It ends: another host has taken the place of this one.
    End,
}

/// A row of `SHOW HOSTS`.
pub(crate) struct SiteRow {
    pub(crate) host: Host,
    pub(crate) state: &'static str,
    pub(crate) row: HostRow,
    pub(crate) since: Duration,
    pub(crate) reason: Box<str>,
}

/// The place of a connection at a host, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) site: Arc<Site>,
    pub(crate) host: usize,
}

impl Seat {
    /// A place at this host; `None` without roles.
    pub(crate) fn take(database: &Database, host: usize) -> Option<Arc<Self>> {
        let site = database.site()?;
        if host >= site.list.len() {
            return None;
        }
        site.inner().hosts.opened(host);
        Some(Arc::new(Self { site, host }))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.site.inner().hosts.closed(self.host);
    }
}

/// What the configuration says of the hosts of a database.
fn host_settings(settings: &Settings, database: &config::Database) -> HostSettings {
    let attrs = database
        .target_session_attrs
        .unwrap_or(settings.target_session_attrs);
    let lag = database.max_replica_lag.unwrap_or(settings.max_replica_lag);
    let park = database
        .query_wait_timeout
        .unwrap_or(settings.query_wait_timeout);
    HostSettings {
        attrs: match database.roles {
            Roles::Auto => TargetAttrs::read(attrs.word()).unwrap_or_default(),
            Roles::Equal | Roles::Off => TargetAttrs::Any,
        },
        balance: Balance::LeastOutstanding,
        fall: settings.host_check_failures,
        rise: settings.host_check_successes,
        probe_every: settings.host_check_period,
        most_lag: (!lag.is_zero()).then_some(lag),
        park,
    }
}

impl Site {
    /// The site of a database; `None` if its hosts are treated as PgBouncer does.
    pub(crate) fn of(
        settings: &Settings,
        database: &config::Database,
        now: Duration,
    ) -> Option<Arc<Self>> {
        if database.roles == Roles::Off {
            return None;
        }
        let list = database.hosts(&settings.unix_socket_dir);
        let fact = Fact {
            since: now,
            reason: "not probed yet".into(),
        };
        let inner = Inner {
            hosts: Hosts::new(list.len(), host_settings(settings, database)),
            facts: vec![fact; list.len()],
            probes: HashMap::new(),
            pool: None,
        };
        Some(Arc::new(Self {
            roles: database.roles,
            list,
            inner: Mutex::new(inner),
        }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        locked(&self.inner)
    }

    /// Whether the configuration still names these hosts.
    pub(crate) fn is_for(&self, settings: &Settings, database: &config::Database) -> bool {
        self.roles == database.roles && self.list == database.hosts(&settings.unix_socket_dir)
    }

    pub(crate) fn configure(&self, settings: &Settings, database: &config::Database) {
        let settings = host_settings(settings, database);
        self.inner().hosts.configure(settings);
    }

    /// What its probes ask.
    pub(crate) fn question(&self) -> &'static str {
        probe::question(self.roles)
    }

    /// Whether a host for a new connection is known.
    pub(crate) fn has_usable(&self) -> bool {
        self.inner().hosts.has_usable()
    }

    /// Its hosts for `SHOW HOSTS`.
    pub(crate) fn rows(&self) -> Vec<SiteRow> {
        let inner = self.inner();
        let hosts = self.list.iter().zip(&inner.facts).enumerate();
        let rows = hosts.map(|(number, (host, fact))| {
            let row = inner.hosts.row(number);
            SiteRow {
                host: host.clone(),
                state: self.word(row.state),
                row,
                since: fact.since,
                reason: fact.reason.clone(),
            }
        });
        rows.collect()
    }

    fn word(&self, state: HostState) -> &'static str {
        match (state, self.roles) {
            (HostState::Primary | HostState::Replica, Roles::Equal) => "equal",
            (HostState::Unknown, _) => "unknown",
            (HostState::Primary, _) => "primary",
            (HostState::Replica, _) => "replica",
            (HostState::Down, _) => "down",
            (HostState::Fenced, _) => "fenced",
        }
    }

    /// The role as the hosts of this site have it: equal hosts have none.
    pub(crate) fn role(&self, is_standby: bool) -> Role {
        if is_standby || self.roles == Roles::Equal {
            Role::Replica
        } else {
            Role::Primary
        }
    }

    fn verdict(&self, host: usize) -> Verdict {
        let inner = self.inner();
        let state = inner.hosts.state(host);
        let is_replaced = state == HostState::Fenced
            || (state == HostState::Down && inner.hosts.primary().is_some_and(|it| it != host));
        if inner.hosts.suits(host) {
            Verdict::Keep
        } else if is_replaced {
            Verdict::End
        } else {
            Verdict::Retire
        }
    }

    fn observe(&self, host: usize, seen: Observed, why: &str, now: Duration) -> Outcome {
        let mut inner = self.inner();
        let before = inner.suiting();
        let mut changes = Vec::new();
        inner.hosts.observe(host, seen, now, &mut changes);
        for change in &changes {
            inner.facts[change.host] = Fact {
                since: now,
                reason: why.into(),
            };
        }
        let differs = inner.suiting() != before;
        Outcome { changes, differs }
    }

    /// The probe of this host has ended.
    pub(crate) fn probe_ended(&self, host: usize) {
        self.inner().probes.remove(&host);
    }

    /// The host is asked again now, whether or not a question is marked as being under way.
    pub(crate) fn ask_anew(&self, host: usize, now: Duration) {
        self.inner().hosts.put_off(host, now);
    }

    /// The host refuses the probe, which says nothing of it: it is asked again later.
    pub(crate) fn skip_probe(&self, host: usize, now: Duration) {
        let mut inner = self.inner();
        let later = now + REFUSED_AGAIN;
        inner.hosts.put_off(host, later);
    }

    /// Ends its probes: the database has other hosts now.
    pub(crate) fn end_probes(&self) {
        let probes = std::mem::take(&mut self.inner().probes);
        for group in probes.into_values() {
            // It has ended already, if that fails.
            let _ = group.close();
        }
    }
}

impl Inner {
    fn suiting(&self) -> Vec<bool> {
        let all = 0..self.hosts.len();
        all.map(|host| self.hosts.suits(host)).collect()
    }
}

/// What an observation has changed.
struct Outcome {
    changes: Vec<Change>,
    /// Whether other hosts than before may be used.
    differs: bool,
}

impl Front {
    /// The host for the next connection of this pool.
    pub(crate) fn choose_host(self: &Arc<Self>, pool: &PoolEntry, hosts: usize) -> HostChoice {
        let Some(site) = pool.database.site() else {
            return HostChoice::Host(pool.database.first_host(hosts));
        };
        let is_first = site.inner().pool.replace(pool.id).is_none();
        if is_first {
            self.probe_hosts(&pool.database);
        }
        self.count_clients(&site);
        let choice = site.inner().hosts.choose(self.now());
        match choice {
            Choice::Host(host) | Choice::Ask(host) => HostChoice::Host(host),
            Choice::Park | Choice::Overdue => HostChoice::Park,
        }
    }

    /// How many clients are at work on each host.
    fn count_clients(&self, site: &Arc<Site>) {
        let mut counts = vec![0; site.list.len()];
        for (server, host) in self.servers_at(site) {
            counts[host] += usize::from(server.core().client.is_some());
        }
        let mut inner = site.inner();
        for (host, clients) in counts.into_iter().enumerate() {
            inner.hosts.set_outstanding(host, clients);
        }
    }

    fn servers_at(&self, site: &Arc<Site>) -> Vec<(Arc<Server>, usize)> {
        let servers = self.servers();
        let at = |server: &Arc<Server>| {
            let seat = server.seat.as_ref()?;
            Arc::ptr_eq(&seat.site, site).then(|| (Arc::clone(server), seat.host))
        };
        servers.values().filter_map(at).collect()
    }

    /// No host may be used: the clients wait until one can.
    pub(crate) fn park(self: &Arc<Self>, id: ServerId, pool: &PoolEntry) {
        self.refuse_opening(id, "no host has the role that the database asks for");
        // One may have got it before the book knew that this attempt is over.
        self.try_other_hosts(&pool.database);
    }

    /// A connection failed, and the pools need not wait, if another host is there.
    pub(crate) fn try_other_hosts(&self, database: &Database) {
        let site = database.site();
        if site.is_some_and(|site| site.has_usable()) {
            let id = database.id;
            let ((), orders) = self.with_book(|book, now, orders| book.retry(id, now, orders));
            self.carry_out(orders);
        }
    }

    /// A host could not be reached, or serves nobody.
    pub(crate) fn host_failed(&self, database: &Database, host: usize, why: &str) {
        match database.site() {
            None => database.host_failed(host),
            Some(site) => self.observe(database, &site, host, Observed::NoAnswer, why),
        }
    }

    /// A server has logged in: whether it may serve the database's clients.
    pub(crate) fn admit(&self, database: &Database, seat: &Seat, ready: &ServerReady) -> Admission {
        let mut parameters = ready.parameters.iter();
        let reported = parameters.find(|(name, _)| name == b"in_hot_standby");
        // Before version 14 only a probe knows.
        if let Some((_, value)) = reported {
            let seen = Observed::Answer {
                role: seat.site.role(value == b"on"),
                timeline: None,
                lag: seat.site.inner().hosts.row(seat.host).lag,
            };
            self.observe(database, &seat.site, seat.host, seen, "a login");
        }
        let inner = seat.site.inner();
        if inner.hosts.admits(inner.hosts.state(seat.host)) {
            Admission::Granted
        } else {
            Admission::Refused
        }
    }

    /// A server's connection was lost, or it takes no writes: its host is probed at once.
    pub(crate) fn doubt_host(&self, server: &Server, why: &str) {
        let (Some(seat), Some(front)) = (&server.seat, self.shared()) else {
            return;
        };
        let (database, doubtful) = (&server.pool.database, Observed::Doubtful);
        self.observe(database, &seat.site, seat.host, doubtful, why);
        front.probe_hosts(database);
    }

    /// Takes over what was seen of a host, and does what follows.
    pub(crate) fn observe(
        &self,
        database: &Database,
        site: &Arc<Site>,
        host: usize,
        seen: Observed,
        why: &str,
    ) {
        let outcome = site.observe(host, seen, why, self.now());
        for change in &outcome.changes {
            let (name, host) = (&database.name, &site.list[change.host]);
            let (before, after) = (site.word(change.before), site.word(change.after));
            self.note(
                Level::Log,
                format_args!("host {host} of database {name}: {before} -> {after} ({why})"),
            );
        }
        if outcome.differs {
            self.apply_roles(database, site);
        }
    }

    /// Other hosts may be used than before.
    pub(crate) fn apply_roles(&self, database: &Database, site: &Arc<Site>) {
        for (server, _) in self.servers_at(site) {
            self.judge(&server);
        }
        self.try_other_hosts(database);
    }

    /// Ends a connection whose host does not suit any more. The book must have it as opened: what
    /// changes before is judged then.
    pub(crate) fn judge(&self, server: &Server) {
        let Some(seat) = &server.seat else { return };
        match seat.site.verdict(seat.host) {
            Verdict::Keep => {}
            Verdict::Retire => {
                let id = server.id;
                let ((), orders) = self.with_book(|book, _, orders| book.retire(id, orders));
                self.carry_out(orders);
            }
            Verdict::End => server.close("another host has taken the place of its host"),
        }
    }

    /// Asks the hosts of all databases that are due.
    pub(crate) fn probe_all(self: &Arc<Self>) {
        for database in self.registers.with_roles() {
            self.probe_hosts(&database);
        }
    }

    /// Asks the hosts of this database that are due.
    pub(crate) fn probe_hosts(self: &Arc<Self>, database: &Database) {
        let Some(site) = database.site() else { return };
        let pool = site.inner().pool;
        let Some(pool) = pool.and_then(|pool| self.registers.pool(pool)) else {
            return;
        };
        let mut due = Vec::new();
        site.inner().hosts.due(self.now(), &mut due);
        for host in due {
            let probe = site.inner().probes.get(&host).cloned();
            let is_asked = probe.is_some_and(|probe| probe.notify().is_ok());
            if !is_asked {
                self.begin_probe(&pool, &site, host);
            }
        }
    }

    fn begin_probe(self: &Arc<Self>, pool: &Arc<PoolEntry>, site: &Arc<Site>, host: usize) {
        let begun = match self.whereabouts(&site.list[host], host) {
            Whereabouts::At(target) => probe::begin(self, pool, site, target),
            Whereabouts::Nowhere => Err("its name is unknown".to_owned()),
            // Its name is being resolved.
            Whereabouts::Unknown => return site.inner().hosts.put_off(host, self.now()),
        };
        match begun {
            Ok(group) => drop(site.inner().probes.insert(host, group)),
            Err(why) => {
                let seen = Observed::NoAnswer;
                self.observe(&pool.database, site, host, seen, &why);
            }
        }
    }

    /// The database has another configuration: its hosts, or what holds for them.
    pub(crate) fn renew_site(&self, database: &Database, config: &config::Database) {
        let live = self.live();
        let settings = live.settings();
        match database.site() {
            Some(site) if site.is_for(settings, config) => {
                site.configure(settings, config);
                self.apply_roles(database, &site);
            }
            old => {
                database.set_site(Site::of(settings, config, self.now()));
                if let Some(old) = old {
                    old.end_probes();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
