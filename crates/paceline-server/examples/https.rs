//! A web server with TLS. SIGHUP reads the certificate anew, while connections go on.
//!
//! ```text
//! openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
//!     -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem
//! cargo run --release -p paceline-server --example https -- --tls cert.pem key.pem
//! curl --cacert cert.pem https://localhost:8443/
//! ```

mod support;

use std::{io, process::ExitCode};

use lexopt::{Arg, Parser, ValueExt};
use paceline_server::{http::Router, tls::Tls, Server};

const HELP: &str = "\
A web server with TLS.

usage: https --tls CERT KEY [options]

  --tls CERT KEY  the certificate chain and the key, in PEM files; SIGHUP reads them anew
  --listen ADDR   where to listen (default 127.0.0.1:8443; port 0 lets the system choose)
  --threads N     how many threads serve (default: four per core)
  --help          this text

It prints `listening on ADDR` when it is ready. Ctrl-C or SIGTERM ends it gracefully, and it prints a
report.";

fn main() -> ExitCode {
    support::main("https", HELP, Options::parse, serve)
}

fn serve(options: Options) -> io::Result<()> {
    let (certificate, key) = &options.files;
    let tls = Tls::builder(certificate, key).alpn(["http/1.1"]).build()?;
    let app = Router::new(()).get("/", |(), req| {
        let tls = req.tls();
        let version = tls.map_or("no TLS", |tls| tls.version);
        format!("hello over {version}\n")
    });
    let mut server = Server::http(options.listen.as_str(), app).tls(&tls);
    if let Some(threads) = options.threads {
        server = server.threads(threads);
    }
    server.run_with(support::announce)
}

struct Options {
    listen: String,
    files: (String, String),
    threads: Option<usize>,
}

impl Options {
    fn parse(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        let (mut listen, mut files, mut threads) = ("127.0.0.1:8443".to_owned(), None, None);
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("listen") => listen = parser.value()?.string()?,
                Arg::Long("tls") => {
                    files = Some((parser.value()?.string()?, parser.value()?.string()?));
                }
                Arg::Long("threads") => threads = Some(support::count(parser, "--threads")?),
                other => return Err(other.unexpected()),
            }
        }
        let files = files.ok_or_else(|| lexopt::Error::from("--tls CERT KEY is needed"))?;
        Ok(Self {
            listen,
            files,
            threads,
        })
    }
}
