//! A TLS tunnel: it ends TLS for a back-end that speaks plain TCP, or begins it for plain clients.
//!
//! ```text
//! cargo run --release -p paceline-server --example line_echo -- --listen 127.0.0.1:7000
//! cargo run --release -p paceline-server --example tls_tunnel -- --to 127.0.0.1:7000 --tls-self-signed
//! ```
//!
//! Then, from another terminal: `openssl s_client -quiet -connect 127.0.0.1:7443`.
//!
//! ```text
//!   client ==TLS==> Front --send_then--> Back -----> back-end     bytes: the reader pauses its input
//!          <======= Front <--send_then-- Back <-----              until the other side has taken them
//!                   Front --end_output-> Back                     the end of one direction: the other
//!                   Front <-end_output-- Back                     one continues
//!                   Front <----close---- Back                     a failure: both are cut
//! ```
//!
//! So a slow client slows its back-end down, and the other way round, and a pair of connections never
//! keeps more than one piece of each direction.

mod support;

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};

use lexopt::{Arg::Long, Parser, ValueExt};
use paceline::Handle;
use paceline_server::{
    codec::{raw, Message},
    tls::TlsClient,
    Dialer, Ended, Limits, Listen, Next, Peer, Remote, Server, Session,
};
use support::certificate::Certificate;

const HELP: &str = "\
A TLS tunnel: it ends TLS for a back-end that speaks plain TCP, or begins TLS for plain clients.

usage: tls_tunnel --to ADDR (--tls CERT KEY | --tls-self-signed) [options]
       tls_tunnel --to ADDR --client [--trust CERT] [--server-name NAME] [options]

  --to ADDR          the back-end
  --tls CERT KEY     the certificate chain and key in these PEM files; SIGHUP reads them anew
  --tls-self-signed  a certificate made at the start: for trials
  --save-cert FILE   writes that certificate to FILE, for clients that are to trust it
  --client           clients speak plain TCP, and the back-end speaks TLS
  --trust CERT       trusts the certificates in this PEM file (default: those that the system trusts)
  --server-name NAME the name in the back-end's certificate (default: the host of --to)
  --listen ADDR      where to listen (default 127.0.0.1:7443; port 0 lets the system choose)
  --threads N        how many threads serve (default: four per core)
  --connections N    how many clients at once (default 10000)
  --idle SECONDS     how long a connection may do nothing (default 300)
  --within SECONDS   how long a connection to the back-end may take to be made (default 10)
  --metrics ADDR     serve /metrics, /healthz and /readyz there
  --help             this text

It prints `listening on ADDR` when it is ready. A client whose back-end can't be reached is closed, and
standard error says why. Ctrl-C or SIGTERM ends it gracefully, and it prints a report.";

/// One piece of either direction: what one read gets, at most.
const MAILBOX: usize = 256 * 1024;

fn main() -> ExitCode {
    support::main("tls_tunnel", HELP, Options::parse, serve)
}

fn serve(options: Options) -> io::Result<()> {
    // A client may wait for the back-end to speak first.
    let limits = Limits::default()
        .connections(options.connections)
        .idle(options.idle)
        .silent(options.idle)
        .mailbox(MAILBOX);
    let mut dialer = Dialer::new("back-end")
        .limits(limits.clone())
        .within(options.within);
    let mut listen = Listen::tcp(options.listen).limits(limits);
    match options.side {
        Side::Ends(certificate) => listen = listen.tls(&certificate.tls()?),
        Side::Begins { trust, name } => {
            let client = match trust {
                Some(file) => TlsClient::pem(file)?,
                None => TlsClient::system()?,
            };
            dialer = dialer.tls(&client, name);
        }
    }
    let (to, dials) = (options.to, dialer.clone());
    let mut server = Server::builder()
        .dialer(&dialer)
        .listener(listen, raw(), move |_peer| Front::new(to, dials.clone()));
    if let Some(threads) = options.threads {
        server = server.threads(threads);
    }
    if let Some(address) = options.metrics {
        server = server.metrics(address);
    }
    server.run_with(support::announce)
}

/// The connection of a client.
struct Front {
    to: SocketAddr,
    dialer: Dialer,
    /// The back-end, from the moment in which it is connected.
    back: Arc<OnceLock<Remote>>,
    /// The same connection, from the moment in which it is begun.
    dialled: Option<Handle>,
}

impl Front {
    fn new(to: SocketAddr, dialer: Dialer) -> Self {
        Self {
            to,
            dialer,
            back: Arc::default(),
            dialled: None,
        }
    }
}

impl Session for Front {
    /// Reads nothing of the client before the back-end is there.
    fn start(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        let front = cx.remote();
        front.pause_input();
        let back = Back {
            to: self.to,
            front,
            own: Arc::clone(&self.back),
        };
        let dialled = self.dialer.connect(self.to, raw(), back);
        self.dialled = Some(dialled.map_err(|rejected| rejected.error)?);
        Ok(Next::Continue)
    }

    fn handle(&mut self, bytes: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        match self.back.get() {
            Some(back) => pass(&bytes, &cx.remote(), back),
            None => Err(io::Error::other("its back-end is not there yet")),
        }
    }

    /// The client sends nothing more: neither does this side of the back-end.
    fn ended(&mut self, _cx: &mut Peer<'_>) -> io::Result<Next> {
        if let Some(back) = self.back.get() {
            back.end_output();
        }
        Ok(Next::Continue)
    }

    fn closed(&mut self, why: &Ended) {
        if let (Ended::Failed(error), None) = (why, &self.dialled) {
            eprintln!("tls_tunnel: a client is closed: {error}");
        }
        match (self.back.get(), &self.dialled) {
            (Some(back), _) if is_complete(why) => back.close_gently(),
            (Some(back), _) => back.close(),
            // It may be under way.
            (None, Some(dialled)) => drop(dialled.close()),
            (None, None) => {}
        }
    }
}

/// The connection to the back-end.
struct Back {
    to: SocketAddr,
    front: Remote,
    own: Arc<OnceLock<Remote>>,
}

impl Session for Back {
    fn start(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        let _ = self.own.set(cx.remote());
        self.front.resume_input();
        Ok(Next::Continue)
    }

    fn handle(&mut self, bytes: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        pass(&bytes, &cx.remote(), &self.front)
    }

    fn ended(&mut self, _cx: &mut Peer<'_>) -> io::Result<Next> {
        self.front.end_output();
        Ok(Next::Continue)
    }

    fn closed(&mut self, why: &Ended) {
        if self.own.get().is_none() {
            let (client, to) = (self.front.address(), self.to);
            eprintln!("tls_tunnel: {client} is closed: back-end {to}: {why}");
        }
        if is_complete(why) {
            self.front.close_gently();
        } else {
            // A client must not take half a stream for a whole one: TLS does not end properly here.
            self.front.close();
        }
    }
}

/// Sends `bytes` on, and reads more only when the other side has taken them.
fn pass(bytes: &[u8], from: &Remote, to: &Remote) -> io::Result<Next> {
    let reader = from.clone();
    reader.pause_input();
    if to.send_then(bytes.to_vec(), move |_| reader.resume_input()) {
        Ok(Next::Continue)
    } else {
        Err(io::Error::other("the other side is closed"))
    }
}

/// Whether both directions had come to their ends.
fn is_complete(why: &Ended) -> bool {
    matches!(why, Ended::Finished | Ended::ByPeer)
}

/// Where TLS is.
enum Side {
    /// The tunnel ends the TLS of its clients.
    Ends(Certificate),
    /// The tunnel begins TLS with its back-end.
    Begins {
        /// A file with the certificates that it trusts.
        trust: Option<PathBuf>,
        /// The name in the certificate of the back-end.
        name: String,
    },
}

struct Options {
    listen: String,
    to: SocketAddr,
    side: Side,
    threads: Option<usize>,
    connections: usize,
    idle: Duration,
    within: Duration,
    metrics: Option<String>,
}

impl Options {
    fn parse(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        let (mut to, mut threads, mut metrics) = (None, None, None);
        let mut tls = TlsOptions::default();
        let mut listen = "127.0.0.1:7443".to_owned();
        let mut connections = 10_000;
        let (mut idle, mut within) = (Duration::from_secs(300), Duration::from_secs(10));
        while let Some(arg) = parser.next()? {
            match arg {
                Long("to") => to = Some(parser.value()?.string()?),
                Long("listen") => listen = parser.value()?.string()?,
                Long("threads") => threads = Some(support::count(parser, "--threads")?),
                Long("connections") => connections = support::count(parser, "--connections")?,
                Long("idle") => idle = support::seconds(parser, "--idle")?,
                Long("within") => within = support::seconds(parser, "--within")?,
                Long("metrics") => metrics = Some(parser.value()?.string()?),
                Long("tls") => tls.certificate = Some(Certificate::files(parser)?),
                Long("tls-self-signed") => tls.certificate = Some(Certificate::SelfSigned(None)),
                Long("save-cert") => tls.save = Some(parser.value()?.into()),
                Long("client") => tls.is_client = true,
                Long("trust") => tls.trust = Some(parser.value()?.into()),
                Long("server-name") => tls.server_name = Some(parser.value()?.string()?),
                other => return Err(other.unexpected()),
            }
        }
        let to = to.ok_or_else(|| support::mistake("--to ADDR is missing: the back-end"))?;
        Ok(Self {
            listen,
            side: tls.side(&to)?,
            to: address(&to)?,
            threads,
            connections,
            idle,
            within,
            metrics,
        })
    }
}

/// The options that say where TLS is.
#[derive(Default)]
struct TlsOptions {
    certificate: Option<Certificate>,
    save: Option<PathBuf>,
    is_client: bool,
    trust: Option<PathBuf>,
    server_name: Option<String>,
}

impl TlsOptions {
    fn side(self, to: &str) -> Result<Side, lexopt::Error> {
        match (self.is_client, self.certificate, self.save) {
            (true, None, None) => {
                let host = to.rsplit_once(':').map_or(to, |(host, _)| host);
                let name = self.server_name.unwrap_or_else(|| host.to_owned());
                let trust = self.trust;
                Ok(Side::Begins { trust, name })
            }
            (true, _, _) => Err(support::mistake("--client has no certificate of its own")),
            (false, Some(Certificate::SelfSigned(_)), save) => {
                Ok(Side::Ends(Certificate::SelfSigned(save)))
            }
            (false, Some(certificate), None) => Ok(Side::Ends(certificate)),
            (false, Some(_), Some(_)) => {
                Err(support::mistake("--save-cert belongs to --tls-self-signed"))
            }
            (false, None, _) => {
                let text = "--tls CERT KEY, --tls-self-signed or --client is missing";
                Err(support::mistake(text))
            }
        }
    }
}

/// The first address of `text`.
fn address(text: &str) -> Result<SocketAddr, lexopt::Error> {
    let found = text.to_socket_addrs().map(|mut found| found.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(support::mistake(format!(
            "--to {text:?}: there is no such host"
        ))),
        Err(error) => Err(support::mistake(format!("--to {text:?}: {error}"))),
    }
}
