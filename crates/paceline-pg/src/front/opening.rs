//! How a server connection is opened: its host is chosen, its name resolved, and the connection
//! begun. The rest is up to its [home](super::home).

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use paceline::{Group, Interest};

use super::{
    home::{login_failure, Home},
    names::Lookup,
    openings::Wanted,
    random,
    registers::PoolEntry,
    server::Server,
    sites::HostChoice,
    sockets::{self, Address, Stream},
    state::Front,
};
use crate::{
    config::{Host, HostAddress, SslMode},
    log::Level,
    login::{
        ServerCredentials, ServerFailure, ServerLogin, ServerStart, ServerTls, StoredPassword,
    },
    pools::{CloseReason, OpenReason, ServerId},
};

/// A host, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// As the configuration names it.
    name: Box<str>,
    port: u16,
    place: Place,
    /// Its place in the database's list.
    index: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Ip(SocketAddr),
    Unix(PathBuf),
}

impl Target {
    pub(crate) fn address(&self) -> Address {
        match &self.place {
            Place::Ip(address) => Address::Ip(*address),
            Place::Unix(_) => Address::Unix {
                port: self.port,
                process: None,
            },
        }
    }

    pub(crate) fn local_address(&self, stream: &Stream) -> Option<Address> {
        match &self.place {
            Place::Ip(_) => stream.local_addr().ok().map(Address::Ip),
            Place::Unix(_) => None,
        }
    }

    /// The name that a certificate must have.
    pub(crate) fn tls_name(&self) -> &str {
        &self.name
    }

    /// Its place in the database's list.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    fn is_unix(&self) -> bool {
        matches!(&self.place, Place::Unix(_))
    }

    /// Begins to connect, as a member of `group`.
    pub(crate) fn connect(&self, group: &Group<Stream>, within: Duration) -> io::Result<()> {
        // Without a limit the system's own holds.
        let within = if within.is_zero() { FOREVER } else { within };
        match &self.place {
            Place::Ip(address) => group.connect(*address, within).map(drop),
            Place::Unix(path) => {
                let stream = sockets::connect_unix(path)?;
                group.register(stream, Interest::READ).map(drop)?;
                Ok(())
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

/// Why a connection ends that the book has given up.
pub(crate) const ABORTED: &str = "login aborted";

/// Why a connection ends whose host has not the role that the database asks for.
pub(crate) const UNSUITABLE: &str = "the host has another role";

const FOREVER: Duration = Duration::from_secs(3600);

impl Front {
    /// The book wants a server connection.
    pub(crate) fn open(self: &Arc<Self>, id: ServerId, pool: Arc<PoolEntry>, why: OpenReason) {
        self.openings().begin(id);
        // The book may have given it up before it was in the register.
        if !self.book().is_opening(id) {
            return self.openings().end(id);
        }
        if let OpenReason::Reserve(client) = why {
            let client = self.clients().find(client).cloned();
            if let Some(client) = client {
                let text = format_args!("taking connection from reserve_pool");
                self.note_client(Level::Log, &client, text);
            }
        }
        let socket_dir = self.live().settings().unix_socket_dir.clone();
        let hosts = pool.database.config().hosts(&socket_dir);
        let index = match self.choose_host(&pool, hosts.len()) {
            HostChoice::Host(index) => index,
            HostChoice::Park => return self.park(id, &pool),
        };
        let Some(host) = hosts.get(index).cloned() else {
            return self.refuse_opening(id, "no host");
        };
        match place_of(&host) {
            Some(place) => self.connect(id, pool, target(&host, place, index)),
            None => self.resolve(id, pool, host, index),
        }
    }

    /// Finds the address of a host by its name. That may block, so it is work of its own.
    fn resolve(self: &Arc<Self>, id: ServerId, pool: Arc<PoolEntry>, host: Host, index: usize) {
        if let Some(known) = self.next_address(&host) {
            return self.resolved(known, id, pool, &host, index);
        }
        let begun = self.look_up(host, move |front, host| {
            let found = front.next_address(host).flatten();
            front.resolved(found, id, pool, host, index);
        });
        if begun == Lookup::Refused {
            // The book tries again later.
            self.refuse_opening(id, "server DNS lookup failed");
        }
    }

    fn resolved(
        self: &Arc<Self>,
        found: Option<IpAddr>,
        id: ServerId,
        pool: Arc<PoolEntry>,
        host: &Host,
        index: usize,
    ) {
        match found {
            Some(ip) => {
                let place = Place::Ip(SocketAddr::new(ip, host.port));
                self.connect(id, pool, target(host, place, index));
            }
            None => self.lookup_failed(id, &pool, host, index),
        }
    }

    fn lookup_failed(
        self: &Arc<Self>,
        id: ServerId,
        pool: &Arc<PoolEntry>,
        host: &Host,
        at: usize,
    ) {
        self.host_failed(&pool.database, at, "its name is unknown");
        let address = Address::Ip(SocketAddr::from(([0; 4], host.port)));
        self.note_of_server(
            Level::Log,
            self.next_number(),
            pool,
            &address,
            format_args!("closing because: server DNS lookup failed (age=0s)"),
        );
        self.refuse_opening(id, "server DNS lookup failed");
    }

    fn connect(self: &Arc<Self>, id: ServerId, pool: Arc<PoolEntry>, target: Target) {
        let login = ServerLogin::new(self.server_start(&pool, &target));
        let home = Home::new(
            Arc::clone(self),
            id,
            Arc::clone(&pool),
            target.clone(),
            login,
        );
        let group = self.pool().and_then(|threads| threads.group(home).ok());
        let Some(group) = group else {
            return self.refuse_opening(id, "no slot for a connection");
        };
        if self.openings().connect(id, &group) == Wanted::No {
            // It has no member, and never gets one.
            let _ = group.close();
            return;
        }
        let within = self.live().settings().server_connect_timeout;
        if let Err(error) = target.connect(&group, within) {
            self.note_of_server(
                Level::Log,
                self.next_number(),
                &pool,
                &target.address(),
                format_args!("closing because: connect failed (age=0s): {error}"),
            );
            let _ = group.close();
            self.open_failed(id, &pool, &target, "connect failed", None);
        }
    }

    /// What the front says at a server's login.
    pub(crate) fn server_start(&self, pool: &PoolEntry, target: &Target) -> ServerStart {
        let live = self.live();
        let config = pool.database.config();
        let text = |text: &str| text.as_bytes().to_vec();
        let mut parameters = vec![("database".to_owned(), text(config.server_name()))];
        for (name, value) in config.startup_parameters() {
            parameters.push((name.to_owned(), text(value)));
        }
        let tls = match (&live.server_tls.tls, live.server_tls.mode) {
            _ if target.is_unix() => ServerTls::Disabled,
            (None, _) | (_, SslMode::Disable | SslMode::Allow) => ServerTls::Disabled,
            (Some(_), SslMode::Prefer) => ServerTls::Preferred,
            (Some(_), _) => ServerTls::Required,
        };
        ServerStart {
            tls,
            user: pool.user.to_string(),
            parameters,
            credentials: self.credentials(pool),
            nonce: random::bytes(),
        }
    }

    fn credentials(&self, pool: &PoolEntry) -> ServerCredentials {
        let config = pool.database.config();
        if let Some(password) = &config.password {
            let stored = StoredPassword::read(password.as_bytes());
            return ServerCredentials::Password(stored);
        }
        let stored = self.live().secret(pool.user.as_bytes());
        let stored = stored.map(|secret| StoredPassword::read(&secret));
        let proved = pool.credentials.load_full();
        match (stored, proved) {
            // A SCRAM secret alone proves nothing: the client's keys do.
            (Some(StoredPassword::Scram(_)) | None, Some(proved)) => {
                ServerCredentials::clone(&proved)
            }
            (Some(stored), _) => ServerCredentials::Password(stored),
            (None, None) => ServerCredentials::None,
        }
    }

    /// No connection was begun, for this reason.
    pub(crate) fn refuse_opening(&self, id: ServerId, reason: &str) {
        self.openings().end(id);
        let failure = login_failure(reason, None);
        let ((), orders) =
            self.with_book(|book, now, orders| book.open_failed(id, &failure, now, orders));
        self.carry_out(orders);
    }

    /// A connection could not be opened.
    pub(crate) fn open_failed(
        &self,
        id: ServerId,
        pool: &PoolEntry,
        target: &Target,
        reason: &str,
        failure: Option<&ServerFailure>,
    ) {
        self.openings().end(id);
        let is_down = failure.is_none_or(says_down);
        let blame = if reason == ABORTED || reason == UNSUITABLE || !is_down {
            Blame::Nobody
        } else {
            Blame::Host
        };
        if blame == Blame::Host {
            // Before the book opens the next one.
            self.host_failed(&pool.database, target.index, reason);
        }
        let failure = login_failure(reason, failure);
        let ((), orders) =
            self.with_book(|book, now, orders| book.open_failed(id, &failure, now, orders));
        self.carry_out(orders);
        if blame == Blame::Host || reason == UNSUITABLE {
            self.try_other_hosts(&pool.database);
        }
    }

    /// The book has given up a connection that is being opened.
    pub(crate) fn abort(&self, id: ServerId, reason: CloseReason) {
        let group = self.openings().abort(id);
        if let Some(group) = group {
            // It has ended already, if that fails.
            let _ = group.close();
        }
        // It has logged in, and runs its first query.
        let server = self.servers().get(&id).cloned();
        if let Some(server) = server {
            server.close(&reason.to_string());
        }
    }

    /// A connection has logged in. It is among the servers before it leaves the register, so
    /// [`abort`](Self::abort) finds it in one of the two.
    pub(crate) fn add_server(&self, server: &Arc<Server>) {
        self.servers().insert(server.id, Arc::clone(server));
        self.openings().end(server.id);
    }

    pub(crate) fn has_server(&self, id: ServerId) -> bool {
        self.servers().contains_key(&id)
    }
}

/// Whether a failure to log in counts against the host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blame {
    Host,
    Nobody,
}

/// Whether a refused login says that the host serves nobody for now.
pub(crate) fn says_down(failure: &ServerFailure) -> bool {
    let code = failure.code.as_deref();
    code.is_some_and(|code| matches!(code, "57P01" | "57P02" | "57P03"))
}

/// Where a host is, if it is known.
pub(crate) enum Whereabouts {
    At(Target),
    /// There is no such name.
    Nowhere,
    /// The name is being resolved.
    Unknown,
}

impl Front {
    /// Where a host is. A name that is not known is resolved, for the next call.
    pub(crate) fn whereabouts(self: &Arc<Self>, host: &Host, index: usize) -> Whereabouts {
        if let Some(place) = place_of(host) {
            return Whereabouts::At(target(host, place, index));
        }
        match self.next_address(host) {
            Some(Some(ip)) => {
                let place = Place::Ip(SocketAddr::new(ip, host.port));
                Whereabouts::At(target(host, place, index))
            }
            Some(None) => Whereabouts::Nowhere,
            None => {
                // If no thread takes that over, the next probe tries again.
                let _ = self.look_up(host.clone(), |_, _| {});
                Whereabouts::Unknown
            }
        }
    }
}

/// Where a host is, if no name must be resolved.
fn place_of(host: &Host) -> Option<Place> {
    if let Some(path) = host.socket_path() {
        return Some(Place::Unix(PathBuf::from(path)));
    }
    let ip: Option<IpAddr> = host.address.as_str().parse().ok();
    ip.map(|ip| Place::Ip(SocketAddr::new(ip, host.port)))
}

fn target(host: &Host, place: Place, index: usize) -> Target {
    let name = match &host.address {
        HostAddress::Tcp(name) => name.clone(),
        HostAddress::Unix(folder) => folder.clone(),
    };
    Target {
        name,
        port: host.port,
        place,
        index,
    }
}

impl Front {
    /// The number by which the book knows a host.
    pub(crate) fn host_number(&self, target: &Target) -> usize {
        let mut targets = self.targets();
        let known = targets.iter().position(|known| known.place == target.place);
        known.unwrap_or_else(|| {
            targets.push(target.clone());
            targets.len() - 1
        })
    }
}

#[cfg(test)]
mod tests;
