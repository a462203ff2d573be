//! The live page: a pool at work, for anyone with a browser.
//!
//! ```text
//!   pool --- Observer ---> Lanes                     while there is a viewer
//!                            | four times a second
//!   Subject: counters ---> frame --- Room ---> viewers (server-sent events)
//! ```
//!
//! The page is served by a pool of its own with one thread. So it shows what happens also when every
//! thread of the pool that it shows is stuck.

mod document;
mod frame;
mod http;
mod hub;
mod json;
mod lanes;
mod port;
mod subject;
mod times;

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    sync::Arc,
};

use paceline::Pool;

use self::{hub::Hub, subject::PoolSubject};
pub(crate) use self::{
    port::{codec, limits, Port, PortSession},
    subject::{ServiceState, States, Subject},
};
use crate::{
    listen::{attempted, Listen},
    server::Server,
};

/// Shows `pool` on a page: [`PageBuilder::start`] begins to serve it.
///
/// The pool is observed while a browser shows the page in front, and only then. The page does not
/// keep the pool alive. A [board](paceline::Builder::board) adds the names of threads and of the
/// handlers that they are stuck in.
///
/// ```
/// let pool = paceline::Pool::new()?;
/// let page = paceline_server::page(&pool).start()?;
/// println!("open {}", page.url());
/// # std::io::Result::Ok(())
/// ```
pub fn page(pool: &Pool) -> PageBuilder {
    PageBuilder {
        subject: Arc::new(PoolSubject {
            name: "pool".to_owned(),
            pool: pool.downgrade(),
            more: None,
        }),
        settings: Settings::default(),
    }
}

/// A page that is about to be served: see [`page()`].
#[must_use = "it is served by `start`"]
pub struct PageBuilder {
    subject: Arc<PoolSubject>,
    settings: Settings,
}

/// Where a page is, and for whom.
#[derive(Default)]
pub(crate) struct Settings {
    /// `None`: at a free port of this computer.
    address: Option<io::Result<Vec<SocketAddr>>>,
    hosts: Vec<String>,
}

impl Settings {
    pub(crate) fn set_address(&mut self, address: impl ToSocketAddrs + fmt::Debug) {
        let resolved = address.to_socket_addrs().map(Iterator::collect);
        let named = resolved.map_err(|error| attempted(format!("page at {address:?}"), &error));
        self.address = Some(named);
    }

    pub(crate) fn add_host(&mut self, name: String) {
        self.hosts.push(name);
    }

    /// Opens the socket.
    pub(crate) fn open(self) -> io::Result<OpenPage> {
        let addresses = match self.address {
            None => vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            Some(addresses) => addresses?,
        };
        let is_local = addresses.iter().all(|it| it.ip().is_loopback());
        if !is_local && self.hosts.is_empty() {
            let text = format!(
                "page at {addresses:?}: other computers reach this address; \
                 name the hosts by which they may, with `page_host` or `host`"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let socket = TcpListener::bind(&*addresses);
        let socket = socket.map_err(|error| attempted(format!("page at {addresses:?}"), &error))?;
        Ok(OpenPage {
            socket,
            hosts: self.hosts,
        })
    }
}

/// A page whose socket is open.
pub(crate) struct OpenPage {
    socket: TcpListener,
    hosts: Vec<String>,
}

impl OpenPage {
    /// Begins to serve.
    pub(crate) fn begin(self, subject: Arc<dyn Subject>) -> io::Result<Page> {
        let address = self.socket.local_addr()?;
        let hub = Hub::new(Arc::clone(&subject));
        let port = Arc::new(Port::of_page(subject, Arc::clone(&hub), self.hosts));
        let listen = Listen::tcp_socket(self.socket)
            .name("page")
            .limits(limits());
        let server = Server::builder()
            .pool(Pool::builder().name("paceline-page").threads(1))
            .listener(listen, codec(), move |_| {
                PortSession::new(Arc::clone(&port))
            })
            .start()?;
        hub.set_pool(server.pool());
        Ok(Page {
            address,
            server,
            hub,
        })
    }
}

impl PageBuilder {
    /// Where the page is. Default: a free port of this computer. An address that other computers
    /// reach needs a [`host`](Self::host).
    pub fn at(mut self, address: impl ToSocketAddrs + fmt::Debug) -> Self {
        self.settings.set_address(address);
        self
    }

    /// A name by which browsers may find the page, beside those of this computer.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.settings.add_host(name.into());
        self
    }

    /// The name of the pool on the page and in the metrics. Default: `pool`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.subject = Arc::new(PoolSubject {
            name: name.into(),
            pool: self.subject.pool.clone(),
            more: self.subject.more.clone(),
        });
        self
    }

    /// What the program counts itself: `families` gives complete families of OpenMetrics, without
    /// the mark of the end. They are part of the page's `/metrics`.
    pub fn metrics(mut self, families: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.subject = Arc::new(PoolSubject {
            name: self.subject.name.clone(),
            pool: self.subject.pool.clone(),
            more: Some(Arc::new(families)),
        });
        self
    }

    /// Begins to serve the page.
    ///
    /// # Errors
    /// If the address can't be had, or no thread; `InvalidInput` for an address that other computers
    /// reach, without a [`host`](Self::host).
    pub fn start(self) -> io::Result<Page> {
        self.settings.open()?.begin(self.subject)
    }
}

impl fmt::Debug for PageBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageBuilder")
            .field("name", &self.subject.name)
            .field("hosts", &self.settings.hosts)
            .finish_non_exhaustive()
    }
}

/// A page that is served, until this is dropped.
#[must_use = "dropping it ends the page"]
pub struct Page {
    address: SocketAddr,
    server: Server,
    hub: Arc<Hub>,
}

impl Page {
    /// Where it is.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where it is, for a browser on this computer.
    #[must_use]
    pub fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip([127, 0, 0, 1].into());
        }
        format!("http://{address}/")
    }

    /// Whether a browser shows the page, so that the pool is observed.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.hub.is_watching()
    }

    /// Ends the page, after what it sends now.
    pub(crate) fn end(&self) {
        // The report of a page is of no interest.
        let _ = self.server.drain(std::time::Duration::from_millis(200));
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page")
            .field("address", &self.address)
            .field("is_watched", &self.is_watched())
            .finish_non_exhaustive()
    }
}
