//! What a server serves, judged as a whole before anything begins.

use std::{
    collections::HashSet,
    io::{self, Write},
    net::ToSocketAddrs,
    sync::{atomic::AtomicBool, Arc, Mutex, OnceLock},
    time::Duration,
};

use paceline::Builder;

use super::{
    admin,
    endpoint::{Endpoint, Part, Site},
    pools::Pools,
    run, Server, Shared,
};
use crate::{
    access_log::AccessLog,
    codec::Codec,
    datagram::{UdpEndpoint, UdpPeer},
    dialer::Dialer,
    engine::{Engine, Workers},
    events,
    listen::Listen,
    page::{self, Port, PortSession, Settings},
    peer::PeerAddress,
    session::Session,
};

/// What a server serves: see [`Server::builder`].
///
/// Nothing can fail before [`start`](Self::start), which names everything that can't be.
#[must_use = "it serves when `start` or `run` is called"]
pub struct ServerBuilder {
    pool: Builder,
    levels: Vec<(String, Builder)>,
    engine: Engine,
    parts: Vec<Box<dyn Part>>,
    dialers: Vec<Dialer>,
    admin: Option<Endpoint<admin::AdminCodec, admin::Make>>,
    page: Option<Settings>,
    page_hosts: Vec<String>,
    status: Arc<admin::Status>,
    access_log: Option<Arc<AccessLog>>,
    drain_time: Duration,
    drain_delay: Duration,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            pool: Builder::default(),
            levels: Vec::new(),
            engine: Engine::default(),
            parts: Vec::new(),
            dialers: Vec::new(),
            admin: None,
            page: None,
            page_hosts: Vec::new(),
            status: Arc::default(),
            access_log: None,
            drain_time: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
        }
    }
}

impl ServerBuilder {
    /// Listens at every TCP address that `address` stands for, with default limits: each connection
    /// has a clone of `codec`, and the session that `make` returns for it.
    ///
    /// For other limits, TLS, Unix sockets or a name, see [`listener`](Self::listener).
    pub fn listen<A, C, N, F>(self, address: A, codec: C, make: F) -> Self
    where
        A: ToSocketAddrs + std::fmt::Debug,
        C: Codec + Clone + Sync,
        N: Session<C>,
        F: Fn(&PeerAddress) -> N + Send + Sync + 'static,
    {
        self.listener(Listen::tcp(address), codec, make)
    }

    /// Listens at a place with settings of its own.
    pub fn listener<C, N, F>(mut self, listen: Listen, codec: C, make: F) -> Self
    where
        C: Codec + Clone + Sync,
        N: Session<C>,
        F: Fn(&PeerAddress) -> N + Send + Sync + 'static,
    {
        let endpoint = Endpoint::new(listen, codec, make);
        self.parts.push(Box::new(endpoint));
        self
    }

    /// Receives datagrams at a UDP address. Several threads call `handler` at once.
    ///
    /// ```no_run
    /// use paceline_server::{Server, UdpPeer};
    ///
    /// // The echo service of RFC 862.
    /// Server::builder()
    ///     .udp("0.0.0.0:7", |bytes: &[u8], cx: &mut UdpPeer<'_>| cx.reply(bytes))
    ///     .run()?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn udp<A, F>(mut self, address: A, handler: F) -> Self
    where
        A: ToSocketAddrs + std::fmt::Debug,
        F: Fn(&[u8], &mut UdpPeer<'_>) -> io::Result<()> + Send + Sync + 'static,
    {
        self.parts
            .push(Box::new(UdpEndpoint::new(address, handler)));
        self
    }

    /// A listener of another module, before all others: its address is the first one.
    #[cfg_attr(not(feature = "http"), allow(dead_code))]
    pub(crate) fn first_part(mut self, part: Box<dyn Part>) -> Self {
        self.parts.insert(0, part);
        self
    }

    /// Gives a dialer to the server, which makes and serves its outgoing connections.
    pub fn dialer(mut self, dialer: &Dialer) -> Self {
        self.dialers.push(dialer.clone());
        self
    }

    /// Settings of the pool: threads, orders, wake, handle set, output limit. They replace those
    /// that were made before.
    pub fn pool(mut self, pool: Builder) -> Self {
        self.pool = pool;
        self
    }

    /// How many threads serve: a number, or a range such as `4..=64`. Default: four per core, at
    /// least four.
    pub fn threads(mut self, threads: impl Into<paceline::Threads>) -> Self {
        self.pool = self.pool.threads(threads);
        self
    }

    /// How much output is kept for one connection whose peer does not take it. A write beyond that
    /// fails, also one that is longer by itself. Default: 256 KiB. A level has the limit of its own
    /// pool.
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.pool = self.pool.output_limit(bytes);
        self
    }

    /// A service level: a pool with threads of its own, for listeners that name it
    /// ([`Listen::level`]) and connections that move there ([`Peer::move_to`](crate::Peer::move_to)).
    pub fn level(mut self, name: impl Into<String>, pool: Builder) -> Self {
        self.levels.push((name.into(), pool));
        self
    }

    /// Which threads run the sessions. Default: [`Engine::LeaderFollowers`].
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Serves `/metrics` (OpenMetrics), `/healthz` and `/readyz` at this address.
    pub fn metrics<A: ToSocketAddrs + std::fmt::Debug>(mut self, address: A) -> Self {
        let listen = Listen::tcp(address).name("metrics").limits(page::limits());
        let port = Arc::new(Port::of_metrics(Arc::clone(&self.status) as _));
        let make: admin::Make = Box::new(move |_| PortSession::new(Arc::clone(&port)));
        self.admin = Some(Endpoint::new(listen, page::codec(), make));
        self
    }

    /// Serves a page at this address that shows the server at work, and what
    /// [`metrics`](Self::metrics) serves. The page has a thread of its own, and the pools are
    /// observed while a browser shows it in front, and only then.
    ///
    /// An address that other computers reach needs a [`page_host`](Self::page_host).
    pub fn page<A: ToSocketAddrs + std::fmt::Debug>(mut self, address: A) -> Self {
        let mut settings = Settings::default();
        settings.set_address(address);
        self.page = Some(settings);
        self
    }

    /// A name by which browsers may find the [page](Self::page), beside those of this computer. A
    /// request by another name gets 403: its page may belong to an attacker, whose name points here.
    pub fn page_host(mut self, name: impl Into<String>) -> Self {
        self.page_hosts.push(name.into());
        self
    }

    /// Writes a line for each connection that ends.
    pub fn access_log(mut self, to: impl Write + Send + 'static) -> Self {
        self.access_log = Some(Arc::new(AccessLog::new(to)));
        self
    }

    /// How long [`run`](Self::run) lets connections finish after the first signal. Default: 30 s.
    pub fn drain_time(mut self, time: Duration) -> Self {
        self.drain_time = time;
        self
    }

    /// How long the server still accepts connections after its readiness says no, so that load
    /// balancers can find out. Default: none.
    pub fn drain_delay(mut self, delay: Duration) -> Self {
        self.drain_delay = delay;
        self
    }

    /// Starts the server, prints where it listens, serves until SIGINT or SIGTERM, drains, and
    /// prints a report. A second signal ends it at once. SIGHUP reads the certificates anew.
    /// Everything is printed to standard error.
    ///
    /// # Errors
    /// As [`start`](Self::start); and if the signals can't be caught.
    pub fn run(self) -> io::Result<()> {
        self.run_with(|server| {
            server.announce();
            Ok(())
        })
    }

    /// As [`run`](Self::run), with a call of `begun` instead of the text at the start: to print where the
    /// server listens, to begin timers, to connect. The signals are caught already.
    ///
    /// ```no_run
    /// use paceline_server::{codec::{line, Message}, Next, Peer, Server};
    ///
    /// let echo = |line: Message<'_>, cx: &mut Peer<'_>| {
    ///     cx.reply(line)?;
    ///     Ok(Next::Continue)
    /// };
    /// Server::builder().listen("127.0.0.1:0", line(80), move |_peer| echo).run_with(|server| {
    ///     println!("listening on {:?}", server.addresses());
    ///     Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run). An error of `begun` ends the server at once, and is returned.
    pub fn run_with(self, begun: impl FnOnce(&Server) -> io::Result<()>) -> io::Result<()> {
        run::run(&self.start()?, begun)
    }

    /// Starts the server.
    ///
    /// # Errors
    /// `InvalidInput` if settings can't be: the text names all of them. Otherwise the error of the
    /// system, with what was attempted, such as the address that is in use. Nothing is left running
    /// then.
    pub fn start(mut self) -> io::Result<Server> {
        self.judge()?;
        for part in &mut self.parts {
            part.open()?;
        }
        if let Some(admin) = &mut self.admin {
            admin.open()?;
        }
        let page = self.page.take().map(|mut page| {
            let hosts = self.page_hosts.drain(..);
            hosts.for_each(|name| page.add_host(name));
            page.open()
        });
        let page = page.transpose()?;
        let pools = Pools::build(self.pool, self.levels)?;
        let workers = match self.engine {
            Engine::LeaderFollowers => None,
            Engine::HalfSyncHalfAsync(settings) => Some(Workers::start(settings, "server")?),
        };
        let mut site = Site::new(&pools, workers, self.access_log);
        let begun = self
            .parts
            .into_iter()
            .try_for_each(|part| part.begin(&mut site));
        begun.inspect_err(|_| site.abandon())?;
        let listeners = site.take_listening();
        let admin = self.admin.map(|admin| admin.begin_admin(&mut site));
        admin.transpose().inspect_err(|_| site.abandon())?;
        let admin = site.take_listening();
        for dialer in &self.dialers {
            dialer.begin(&mut site).inspect_err(|_| site.abandon())?;
        }
        let (services, workers, gate) = site.finish();
        let shared = Arc::new(Shared {
            #[cfg(feature = "_tls")]
            certificates: services
                .iter()
                .filter_map(|service| service.tls.clone())
                .collect(),
            services,
            listening: listeners,
            admin,
            page: OnceLock::new(),
            workers,
            gate,
            pools,
            drain_time: self.drain_time,
            drain_delay: self.drain_delay,
            is_ready: AtomicBool::new(true),
            drains: Mutex::default(),
        });
        self.status.set(&shared);
        for listening in &shared.listening {
            events::listening(&listening.service.name, &listening.place());
        }
        if let Some(page) = page {
            // If that fails, all that was begun ends with `shared`.
            let _ = shared.page.set(page.begin(self.status)?);
        }
        Ok(Server { shared })
    }

    /// Each name that two listeners or dialers have: metrics of one name can't be told apart.
    fn doubled_names(&self) -> Vec<String> {
        let listeners = self.parts.iter().filter_map(|part| part.name());
        let names = listeners.chain(self.dialers.iter().map(Dialer::name));
        let mut seen = HashSet::new();
        let doubled = names.filter(|name| !seen.insert(*name));
        doubled
            .map(|name| format!("name({name:?}): two listeners or dialers have it"))
            .collect()
    }

    /// Names everything that can't be.
    fn judge(&self) -> io::Result<()> {
        let mut faults: Vec<String> = self.parts.iter().flat_map(|part| part.faults()).collect();
        faults.extend(self.dialers.iter().flat_map(Dialer::faults));
        if let Engine::HalfSyncHalfAsync(settings) = &self.engine {
            faults.extend(settings.faults());
        }
        if self.parts.is_empty() && self.dialers.is_empty() {
            faults.push("it has no listener and no dialer".to_owned());
        }
        faults.extend(self.doubled_names());
        let known: HashSet<_> = self.levels.iter().map(|(name, _)| name.as_str()).collect();
        let asked = self.parts.iter().filter_map(|part| part.level());
        let unknown = asked.filter(|name| !known.contains(name));
        faults.extend(unknown.map(|name| format!("level({name:?}): there is no such level")));
        if faults.is_empty() {
            return Ok(());
        }
        let text = format!("start a server: {}", faults.join("; "));
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

impl std::fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("listeners", &self.parts.len())
            .field("dialers", &self.dialers.len())
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}
