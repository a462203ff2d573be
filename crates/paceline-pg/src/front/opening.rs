//! How a server connection is opened: its host is chosen, its name resolved, and the connection
//! begun. The rest is up to its [home](super::home).

use std::{
    collections::HashMap,
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use paceline::{Group, Interest};

use super::{
    home::{login_failure, Home},
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
            return self.refuse_opening(id, &pool, "no host");
        };
        match place_of(&host) {
            Some(place) => self.connect(id, pool, target(&host, place, index)),
            None => self.resolve(id, pool, host, index),
        }
    }

    /// Finds the address of a host by its name. That may block, so it is work of its own.
    fn resolve(self: &Arc<Self>, id: ServerId, pool: Arc<PoolEntry>, host: Host, index: usize) {
        if let Some(known) = self.next_address(&host) {
            return match known {
                Some(ip) => {
                    let place = Place::Ip(SocketAddr::new(ip, host.port));
                    self.connect(id, pool, target(&host, place, index));
                }
                None => self.lookup_failed(id, &pool, &host, index),
            };
        }
        let (front, asked) = (Arc::clone(self), Arc::clone(&pool));
        let Some(threads) = self.pool() else { return };
        let posted = threads.post(move |cx| {
            let name = host.address.as_str().to_owned();
            let found = cx.blocking(|| (name.as_str(), host.port).to_socket_addrs());
            let found = found.map(|all| all.map(|address| address.ip()).collect());
            front.keep_addresses(&host, found.unwrap_or_default());
            match front.next_address(&host).flatten() {
                Some(ip) => {
                    let place = Place::Ip(SocketAddr::new(ip, host.port));
                    front.connect(id, pool, target(&host, place, index));
                }
                None => front.lookup_failed(id, &pool, &host, index),
            }
        });
        if posted.is_err() {
            // Too many posts wait: the book tries again later.
            self.refuse_opening(id, &asked, "server DNS lookup failed");
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
        self.refuse_opening(id, pool, "server DNS lookup failed");
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
        let Some(threads) = self.pool() else { return };
        let Ok(group) = threads.group(home) else {
            return self.refuse_opening(id, &pool, "no slot for a connection");
        };
        self.openings().insert(id, group.clone());
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

    pub(crate) fn refuse_opening(self: &Arc<Self>, id: ServerId, _pool: &PoolEntry, reason: &str) {
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
        self.openings().remove(&id);
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

    /// A connection that is being opened is given up.
    pub(crate) fn abort(&self, id: ServerId, _reason: CloseReason) {
        let group = self.openings().remove(&id);
        if let Some(group) = group {
            // It has ended already, if that fails.
            let _ = group.close();
        }
    }

    pub(crate) fn add_server(&self, server: &Arc<Server>) {
        self.openings().remove(&server.id);
        self.servers().insert(server.id, Arc::clone(server));
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
                self.look_up(host.clone());
                Whereabouts::Unknown
            }
        }
    }

    /// Resolves a name. If no thread takes that over, the next probe tries again.
    fn look_up(self: &Arc<Self>, host: Host) {
        let (front, threads) = (Arc::clone(self), self.pool());
        let _ = threads.map(|threads| {
            threads.post(move |cx| {
                let name = host.address.as_str().to_owned();
                let found = cx.blocking(|| (name.as_str(), host.port).to_socket_addrs());
                let found = found.map(|all| all.map(|address| address.ip()).collect());
                front.keep_addresses(&host, found.unwrap_or_default());
            })
        });
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

/// The addresses of names, and how long they hold.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashMap<Box<str>, Known>,
}

/// What is known of a name.
#[derive(Debug)]
struct Known {
    until: Duration,
    /// None: there is no such host.
    addresses: Vec<IpAddr>,
    /// Which address is next: each has its turn, so one that does not answer is passed by.
    next: usize,
}

impl Front {
    /// The address for the next connection to this host; `Some(None)`: it has none.
    #[allow(clippy::option_option, reason = "the outer one: it is known")]
    fn next_address(&self, host: &Host) -> Option<Option<IpAddr>> {
        let now = self.now();
        let mut names = self.names();
        let known = names.known.get_mut(host.address.as_str())?;
        if now >= known.until && known.next > 0 {
            return None;
        }
        let at = known.next.checked_rem(known.addresses.len());
        known.next += 1;
        Some(at.map(|at| known.addresses[at]))
    }

    fn keep_addresses(&self, host: &Host, addresses: Vec<IpAddr>) {
        let live = self.live();
        let settings = live.settings();
        let ttl = if addresses.is_empty() {
            settings.dns_nxdomain_ttl
        } else {
            settings.dns_max_ttl
        };
        let known = Known {
            until: self.now() + ttl,
            addresses,
            next: 0,
        };
        let name = Box::from(host.address.as_str());
        self.names().known.insert(name, known);
    }

    /// The names that are known: name, seconds that they hold, address.
    pub(crate) fn known_names(&self) -> Vec<(String, u64, String)> {
        let now = self.now();
        let names = self.names();
        let rows = names.known.iter().map(|(name, known)| {
            let left = known.until.saturating_sub(now).as_secs();
            let addresses: Vec<_> = known.addresses.iter().map(IpAddr::to_string).collect();
            (name.to_string(), left, addresses.join(","))
        });
        rows.collect()
    }

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
