//! An HTTP server, as an application makes it.

use std::{fmt, io, net::ToSocketAddrs, sync::Arc, thread, time::Duration};

use paceline::Builder;

use super::{
    app::{App, Settings},
    protocol::{HeadLimits, HttpCodec},
    session::HttpSession,
    Router,
};
use crate::{
    engine::Engine,
    limits::Limits,
    listen::{AtLimit, Listen},
    peer::PeerAddress,
    server::{Endpoint, Part, Server, ServerBuilder, Site},
};

/// How long the head of a request may take.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// How long a request may wait for a thread.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How long a connection whose last answer was sent waits for the peer to close its side.
///
/// It is well under the time that users give to a drain: a client that keeps its side open is not
/// cut, and does not make the drain report unfinished work.
const LONGEST_LINGER: Duration = Duration::from_secs(2);

/// How much memory long bodies share.
const BODY_MEMORY: usize = 64 << 20;

/// What a request gets that finds no thread in time.
const OVERLOAD: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\n\
    content-length: 16\r\nretry-after: 1\r\nconnection: close\r\n\r\ntry again later\n";

/// An HTTP server that is not started yet: see [`Server::http`].
///
/// | limit | default |
/// | --- | --- |
/// | a head: its time; target, all of it, fields | 30 s; 8 KiB (414), 16 KiB (431), 100 (431) |
/// | a body; in memory | 2 MiB (413); 64 KiB each, and 64 MiB for all that are longer; then a temporary file |
/// | least rate, both ways | 240 bytes/s after 5 s (408) |
/// | idle between requests; age of a connection | 75 s; 1 h, then `connection: close` |
/// | wait for a thread | 5 s (503) |
/// | connections | 10,000; more wait in the backlog of the system |
#[must_use = "it serves when `start` or `run` is called"]
pub struct HttpServer<A> {
    router: Router<A>,
    listen: Listen,
    limits: Limits,
    server: ServerBuilder,
    pool: Builder,
    head: HeadLimits,
    settings: Settings,
}

impl Server {
    /// An HTTP server at this address.
    ///
    /// ```
    /// use std::{io::{Read, Write}, net::TcpStream, time::Duration};
    /// use paceline_server::{http::Router, Server};
    ///
    /// let app = Router::new(()).get("/", |_, _| "hello\n");
    /// let server = Server::http("127.0.0.1:0", app).start()?;
    ///
    /// let mut client = TcpStream::connect(server.local_addr().expect("it listens"))?;
    /// client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")?;
    /// let mut answer = String::new();
    /// client.read_to_string(&mut answer)?;
    /// assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello\n"));
    /// drop(client);
    /// assert!(server.drain(Duration::from_secs(5)).is_clean());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn http<A: Send + Sync + 'static>(
        address: impl ToSocketAddrs + fmt::Debug,
        router: Router<A>,
    ) -> HttpServer<A> {
        HttpServer::new(Listen::tcp(address), router)
    }
}

impl<A: Send + Sync + 'static> HttpServer<A> {
    /// A server for these connections: of a Unix socket, a simulation, or several addresses.
    pub fn new(listen: Listen, router: Router<A>) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            router,
            listen: listen.at_limit(AtLimit::Wait).overload(OVERLOAD),
            limits: Limits::default().item_time(HEAD_TIME),
            server: Server::builder(),
            pool: Builder::default()
                .age_limit(LONGEST_WAIT)
                .linger_time(LONGEST_LINGER),
            head: HeadLimits::default(),
            settings: Settings {
                body_limit: 2 << 20,
                pulls: cores.max(1),
                body_memory: BODY_MEMORY,
                spill_folder: std::env::temp_dir(),
            },
        }
    }

    /// Its connections begin with a TLS handshake. A client that speaks plain HTTP gets 400.
    #[cfg(feature = "_tls")]
    pub fn tls(mut self, tls: &crate::tls::Tls) -> Self {
        self.listen = self.listen.tls(tls);
        self
    }

    /// Changes the limits of its connections. A head has [`Limits::item_time`]; a body has none,
    /// only the least rate.
    pub fn limits(mut self, change: impl FnOnce(Limits) -> Limits) -> Self {
        self.limits = change(self.limits);
        self
    }

    /// The longest body of a route that says nothing else. Default: 2 MiB.
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.settings.body_limit = bytes;
        self
    }

    /// The longest head, in bytes, at most 65,535; the longest request-target; the most fields, at
    /// most 256. Default: 16 KiB, 8 KiB, 100.
    pub fn head_limits(mut self, head: usize, target: usize, fields: usize) -> Self {
        self.head = HeadLimits::new(head, target, fields);
        self
    }

    /// How many handlers may pull a body at once ([`Body::Pull`](super::Body::Pull)), each on a
    /// thread of its own. Default: one for each core.
    pub fn pulls(mut self, handlers: usize) -> Self {
        self.settings.pulls = handlers;
        self
    }

    /// How much memory all bodies share that are longer than 64 KiB. Those that find none go to files.
    /// Default: 64 MiB.
    pub fn body_memory(mut self, bytes: usize) -> Self {
        self.settings.body_memory = bytes;
        self
    }

    /// Where bodies go that find no memory, in files without a name. Default: the
    /// system's folder for temporary files.
    pub fn spill_folder(mut self, folder: impl Into<std::path::PathBuf>) -> Self {
        self.settings.spill_folder = folder.into();
        self
    }

    /// How many threads serve: a number, or a range such as `4..=64`. Default: four per core, at
    /// least four.
    pub fn threads(mut self, threads: impl Into<paceline::Threads>) -> Self {
        self.pool = self.pool.threads(threads);
        self
    }

    /// Changes the settings of the pool. A request that waits longer than its `age_limit`, which is
    /// 5 s, gets 503.
    pub fn pool(mut self, change: impl FnOnce(Builder) -> Builder) -> Self {
        self.pool = change(self.pool);
        self
    }

    /// Which threads run the handlers. Default: [`Engine::LeaderFollowers`].
    pub fn engine(self, engine: Engine) -> Self {
        self.server(|server| server.engine(engine))
    }

    /// Serves the live page of the server at this address: see [`ServerBuilder::page`].
    pub fn page(self, address: impl ToSocketAddrs + fmt::Debug) -> Self {
        self.server(|server| server.page(address))
    }

    /// Changes everything else: further listeners, metrics, the access log, the times of a drain.
    pub fn server(mut self, change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        self.server = change(self.server);
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    /// As [`ServerBuilder::start`]; routes that can't be are among the settings that it names.
    pub fn start(self) -> io::Result<Server> {
        self.into_builder().start()
    }

    /// Starts the server, prints where it listens, and serves until SIGINT or SIGTERM: see
    /// [`ServerBuilder::run`].
    ///
    /// # Errors
    /// As [`start`](Self::start); and if the signals can't be caught.
    pub fn run(self) -> io::Result<()> {
        self.into_builder().run()
    }

    /// As [`run`](Self::run), with a call of `begun` instead of the text at the start: see
    /// [`ServerBuilder::run_with`].
    ///
    /// # Errors
    /// As [`run`](Self::run). An error of `begun` ends the server at once, and is returned.
    pub fn run_with(self, begun: impl FnOnce(&Server) -> io::Result<()>) -> io::Result<()> {
        self.into_builder().run_with(begun)
    }

    fn into_builder(self) -> ServerBuilder {
        let app = Arc::new(App::new(self.router.into_table(), self.settings));
        let mut listen = self.listen.limits(self.limits);
        listen.routes = Some(Arc::clone(&app) as _);
        let part = HttpPart {
            endpoint: endpoint(listen, self.head, &app),
            app,
        };
        self.server.pool(self.pool).first_part(Box::new(part))
    }
}

impl<A> fmt::Debug for HttpServer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServer")
            .field("router", &self.router)
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}

type Make = Box<dyn Fn(&PeerAddress) -> HttpSession + Send + Sync>;

/// An HTTP listener of a server.
struct HttpPart {
    endpoint: Endpoint<HttpCodec, Make>,
    app: Arc<App>,
}

fn endpoint(listen: Listen, head: HeadLimits, app: &Arc<App>) -> Endpoint<HttpCodec, Make> {
    let app = Arc::clone(app);
    let make: Make = Box::new(move |_| HttpSession::new(Arc::clone(&app)));
    Endpoint::new(listen, HttpCodec::new(head), make)
}

impl Part for HttpPart {
    fn faults(&self) -> Vec<String> {
        let mut faults = Part::faults(&self.endpoint);
        faults.extend_from_slice(self.app.table.faults());
        faults
    }

    fn level(&self) -> Option<&str> {
        self.endpoint.level()
    }

    fn open(&mut self) -> io::Result<()> {
        Part::open(&mut self.endpoint)
    }

    fn begin(self: Box<Self>, site: &mut Site<'_>) -> io::Result<()> {
        self.app.table.learn_in(site.pool());
        let home = self.endpoint.level().unwrap_or("main").to_owned();
        self.app.table.find_levels(&home, |name| site.level(name))?;
        Box::new(self.endpoint).begin(site)
    }
}
