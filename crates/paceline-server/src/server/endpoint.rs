//! A listener of a server: its sockets, its codec, and the sessions of its connections.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    sync::{Arc, Mutex},
};

use paceline::{ListenerBuilder, Pool};

use super::{pools::Pools, Accepting, Listening};
use crate::{
    access_log::AccessLog,
    codec::Codec,
    connection::{Connection, Opening},
    engine::Workers,
    limits::Limits,
    listen::{attempted, Bound, Listen},
    peer::PeerAddress,
    service::{Gate, Service},
    session::Session,
};

/// A part of a server that begins with it.
pub(crate) trait Part: Send {
    /// What can't be among its settings, in words.
    fn faults(&self) -> Vec<String>;

    /// The level whose threads shall serve it.
    fn level(&self) -> Option<&str> {
        None
    }

    /// The name that it was given.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Opens its sockets.
    fn open(&mut self) -> io::Result<()>;

    /// Begins to serve.
    fn begin(self: Box<Self>, site: &mut Site<'_>) -> io::Result<()>;
}

/// Where the parts of a server begin: what they share, and what they have begun.
pub(crate) struct Site<'p> {
    pools: &'p Pools,
    workers: Option<Arc<Workers>>,
    log: Option<Arc<AccessLog>>,
    gate: Arc<Gate>,
    services: Vec<Arc<Service>>,
    listening: Vec<Listening>,
}

impl<'p> Site<'p> {
    pub(super) fn new(
        pools: &'p Pools,
        workers: Option<Arc<Workers>>,
        log: Option<Arc<AccessLog>>,
    ) -> Self {
        Self {
            pools,
            workers,
            log,
            gate: Arc::default(),
            services: Vec::new(),
            listening: Vec::new(),
        }
    }

    /// The main pool.
    pub(crate) fn pool(&self) -> &Pool {
        self.pools.main()
    }

    /// The level with this name; of a server with levels, `main` is that of listeners that name none.
    #[cfg_attr(not(feature = "http"), allow(dead_code))]
    pub(crate) fn level(&self, name: &str) -> Option<&paceline::Level> {
        self.pools.level(name)
    }

    /// A service whose sessions run where the server says.
    pub(crate) fn service(&self, name: String, limits: Limits) -> Service {
        let mut service = Service::new(name, limits, self.pool().clock(), Arc::clone(&self.gate));
        service.workers.clone_from(&self.workers);
        service.log.clone_from(&self.log);
        service
    }

    /// The server has this service.
    pub(crate) fn add_service(&mut self, service: &Arc<Service>) {
        self.services.push(Arc::clone(service));
    }

    pub(super) fn take_listening(&mut self) -> Vec<Listening> {
        std::mem::take(&mut self.listening)
    }

    /// The server can't start.
    pub(super) fn abandon(&self) {
        if let Some(workers) = &self.workers {
            workers.close();
        }
        self.listening.iter().for_each(Listening::close);
    }

    pub(super) fn finish(self) -> (Vec<Arc<Service>>, Option<Arc<Workers>>, Arc<Gate>) {
        (self.services, self.workers, self.gate)
    }
}

/// A listener of a server.
pub(crate) struct Endpoint<C, F> {
    listen: Listen,
    sockets: Vec<Bound>,
    accept: Accept<C, F>,
}

/// Makes the handlers of connections.
struct Accept<C, F> {
    codec: C,
    make: F,
}

impl<C, F> Endpoint<C, F> {
    pub(crate) fn new(listen: Listen, codec: C, make: F) -> Self {
        Self {
            listen,
            sockets: Vec::new(),
            accept: Accept { codec, make },
        }
    }
}

impl<C, N, F> Endpoint<C, F>
where
    C: Codec + Clone + Sync,
    N: Session<C>,
    F: Fn(&PeerAddress) -> N + Send + Sync + 'static,
{
    pub(super) fn open(&mut self) -> io::Result<()> {
        self.sockets = self.listen.open()?;
        Ok(())
    }

    /// Begins with sessions that the threads of the pool run, and that a drain leaves alone.
    pub(super) fn begin_admin(self, site: &mut Site<'_>) -> io::Result<()> {
        let mut service = self.service(site);
        service.workers = None;
        service.log = None;
        self.begin_with(Arc::new(service), site)
    }

    fn name(&self) -> String {
        let name = self.listen.name.clone();
        let first = || self.sockets.first().map(Bound::name);
        name.or_else(first).unwrap_or_else(|| "listener".to_owned())
    }

    fn service(&self, site: &Site<'_>) -> Service {
        let mut service = site.service(self.name(), self.listen.limits.clone().for_this_process());
        service.priority = self.listen.priority;
        service.refusal = self.listen.refusal_text().unwrap_or_default();
        service.overload = self.listen.overload.clone();
        service.routes.clone_from(&self.listen.routes);
        #[cfg(feature = "_tls")]
        service.tls.clone_from(&self.listen.tls);
        service
    }

    fn begin_with(self, service: Arc<Service>, site: &mut Site<'_>) -> io::Result<()> {
        let level = self.listen.level.as_deref();
        let pool = site.pools.pool_of(level);
        let pool = pool.ok_or_else(|| io::Error::other("its level does not exist"))?;
        let accept = Arc::new(self.accept);
        for socket in self.sockets {
            let name = socket.name();
            let settings = settings(pool, &self.listen, &service);
            let begun = begin(socket, settings, pool, &accept, &service);
            let accepting =
                begun.map_err(|error| attempted(format!("listen at {name}"), &error))?;
            site.listening.push(Listening {
                service: Arc::clone(&service),
                accepting,
            });
        }
        Ok(())
    }
}

/// What the pool has to know of a listener.
fn settings<'p>(pool: &'p Pool, listen: &Listen, service: &Service) -> ListenerBuilder<'p> {
    let limits = service.limits();
    let settings = pool
        .listener()
        .max_connections(limits.connections)
        .idle_timeout(limits.idle);
    match listen.refusal_text() {
        Some(text) => settings.refusal(&*text),
        None => settings,
    }
}

/// Begins to accept connections.
fn begin<C, N, F>(
    socket: Bound,
    settings: ListenerBuilder<'_>,
    pool: &Pool,
    accept: &Arc<Accept<C, F>>,
    service: &Arc<Service>,
) -> io::Result<Accepting>
where
    C: Codec + Clone + Sync,
    N: Session<C>,
    F: Fn(&PeerAddress) -> N + Send + Sync + 'static,
{
    let (accept, service) = (Arc::clone(accept), Arc::clone(service));
    match socket {
        Bound::Tcp(listener) => {
            let make = move |stream: &TcpStream, address: SocketAddr| {
                // Answers are written whole: none shall wait for an acknowledgement.
                let _ = stream.set_nodelay(true);
                Some(accept.connection(&service, PeerAddress::Ip(address)))
            };
            Ok(Accepting::Tcp(settings.on(listener, make)?))
        }
        Bound::Unix(path, listener) => {
            let make =
                move |_: &UnixStream, _| Some(accept.connection(&service, PeerAddress::Unix));
            let listener = settings.on(listener, make)?;
            Ok(Accepting::Unix(listener, Mutex::new(path)))
        }
        Bound::Simulated(inlet) => {
            let made = Arc::clone(&service);
            let make = move || accept.connection(&made, PeerAddress::Simulated);
            inlet.open(pool, service, make);
            Ok(Accepting::Simulated(inlet))
        }
    }
}

impl<C, F> Accept<C, F> {
    /// The handler of a new connection.
    fn connection<N>(&self, service: &Arc<Service>, address: PeerAddress) -> Connection<C, N>
    where
        C: Codec + Clone,
        N: Session<C>,
        F: Fn(&PeerAddress) -> N,
    {
        let session = (self.make)(&address);
        let opening = Opening::of_listener(service);
        Connection::new(
            Arc::clone(service),
            address,
            opening,
            self.codec.clone(),
            session,
        )
    }
}

impl<C, N, F> Part for Endpoint<C, F>
where
    C: Codec + Clone + Sync,
    N: Session<C>,
    F: Fn(&PeerAddress) -> N + Send + Sync + 'static,
{
    fn faults(&self) -> Vec<String> {
        self.listen.limits.faults()
    }

    fn level(&self) -> Option<&str> {
        self.listen.level.as_deref()
    }

    fn name(&self) -> Option<&str> {
        self.listen.name.as_deref()
    }

    fn open(&mut self) -> io::Result<()> {
        Endpoint::open(self)
    }

    fn begin(self: Box<Self>, site: &mut Site<'_>) -> io::Result<()> {
        let service = Arc::new(self.service(site));
        site.add_service(&service);
        self.begin_with(service, site)
    }
}
