//! An echo server for lines: over TCP, over a Unix socket, with TLS.
//!
//! ```text
//! cargo run --release -p paceline-server --example line_echo -- --listen 127.0.0.1:7000
//! ```
//!
//! Then, from another terminal: `nc 127.0.0.1 7000`. Ctrl-C ends it gracefully, with a report.
//!
//! ```text
//!   line(8192)   cuts the bytes of a client into lines          one codec and
//!   Echo         answers each line                              one session for all listeners
//!   Limits       idle, silent, slow, too long, too many: on by default
//! ```

mod support;

use std::{io, path::PathBuf, process::ExitCode, time::Duration};

use lexopt::{Arg::Long, Parser, ValueExt};
use paceline_server::{
    codec::{line, Malformed, Message},
    tls::Tls,
    Limit, Limits, Listen, Next, Peer, Server, Session,
};
use support::certificate::{Certificate, Pair};

const HELP: &str = "\
An echo server for lines.

usage: line_echo [options]

  --listen ADDR       where to listen (default 127.0.0.1:7000; port 0 lets the system choose)
  --unix PATH         listen at this Unix socket too
  --tls CERT KEY      TLS at ADDR, with the certificate chain and key in these PEM files;
                      SIGHUP reads them anew
  --tls-named NAME CERT KEY
                      with --tls, another certificate for clients that ask for NAME; may be given
                      several times
  --tls-self-signed   TLS at ADDR, with a certificate made at the start: for trials
  --threads N         how many threads serve (default: four per core)
  --connections N     how many connections each listener has at most (default 10000)
  --idle SECONDS      how long a connection may do nothing (default 75)
  --metrics ADDR      serve /metrics, /healthz and /readyz there
  --access-log        print a line to standard error for each connection that ends
  --help              this text

It prints `listening on ADDR` when it is ready. Ctrl-C or SIGTERM ends it gracefully, and it prints a
report. Try it:

  nc 127.0.0.1 7000                                     plain
  socat - UNIX-CONNECT:PATH                             with --unix PATH
  openssl s_client -quiet -connect 127.0.0.1:7000       with --tls-self-signed";

const LONGEST_LINE: usize = 8192;

fn main() -> ExitCode {
    support::main("line_echo", HELP, Options::parse, serve)
}

fn serve(options: Options) -> io::Result<()> {
    let mut tcp = Listen::tcp(options.listen).limits(options.limits.clone());
    if let Some(certificate) = &options.certificate {
        tcp = tcp.tls(&tls(certificate, &options.named)?);
    }
    let mut server = Server::builder().listener(tcp, line(LONGEST_LINE), |_peer| Echo);
    if let Some(path) = options.unix {
        let unix = Listen::unix(path).mode(0o660).limits(options.limits);
        server = server.listener(unix, line(LONGEST_LINE), |_peer| Echo);
    }
    if let Some(threads) = options.threads {
        server = server.threads(threads);
    }
    if let Some(address) = options.metrics {
        server = server.metrics(address);
    }
    if options.has_access_log {
        server = server.access_log(io::stderr());
    }
    server.run_with(support::announce)
}

/// The certificate for all clients, and those for clients that ask for a name.
fn tls(certificate: &Certificate, named: &[(String, Pair)]) -> io::Result<Tls> {
    let Certificate::Files(first) = certificate else {
        return certificate.tls();
    };
    let mut tls = Tls::builder(&first.chain, &first.key);
    for (name, pair) in named {
        tls = tls.named(name, &pair.chain, &pair.key);
    }
    tls.build()
}

/// Answers each line with itself.
struct Echo;

impl Session for Echo {
    fn handle(&mut self, line: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        cx.reply(line)?;
        Ok(Next::Continue)
    }

    /// A last word; the connection closes in any case.
    fn malformed(&mut self, why: Malformed, cx: &mut Peer<'_>) {
        let _ = cx.reply(format!("error: {why}"));
    }

    fn overdue(&mut self, limit: Limit, cx: &mut Peer<'_>) -> Next {
        let _ = cx.reply(format!("error: limit {limit}"));
        Next::CloseGently
    }
}

struct Options {
    listen: String,
    unix: Option<PathBuf>,
    certificate: Option<Certificate>,
    named: Vec<(String, Pair)>,
    threads: Option<usize>,
    limits: Limits,
    metrics: Option<String>,
    has_access_log: bool,
}

impl Options {
    fn parse(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        let (mut connections, mut idle) = (10_000, Duration::from_secs(75));
        let mut options = Self {
            listen: "127.0.0.1:7000".to_owned(),
            unix: None,
            certificate: None,
            named: Vec::new(),
            threads: None,
            limits: Limits::default(),
            metrics: None,
            has_access_log: false,
        };
        while let Some(arg) = parser.next()? {
            match arg {
                Long("listen") => options.listen = parser.value()?.string()?,
                Long("unix") => options.unix = Some(parser.value()?.into()),
                Long("tls") => options.certificate = Some(Certificate::files(parser)?),
                Long("tls-named") => {
                    let name = parser.value()?.string()?;
                    options.named.push((name, Pair::parse(parser)?));
                }
                Long("tls-self-signed") => {
                    options.certificate = Some(Certificate::SelfSigned(None))
                }
                Long("threads") => options.threads = Some(support::count(parser, "--threads")?),
                Long("connections") => connections = support::count(parser, "--connections")?,
                Long("idle") => idle = support::seconds(parser, "--idle")?,
                Long("metrics") => options.metrics = Some(parser.value()?.string()?),
                Long("access-log") => options.has_access_log = true,
                other => return Err(other.unexpected()),
            }
        }
        if !options.named.is_empty() && !matches!(options.certificate, Some(Certificate::Files(_)))
        {
            return Err(support::mistake("--tls-named needs --tls CERT KEY"));
        }
        options.limits = options.limits.connections(connections).idle(idle);
        Ok(options)
    }
}
