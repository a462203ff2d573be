//! The smallest web server: a greeting, and an echo.
//!
//! ```text
//! cargo run --release -p paceline-server --example hello -- --listen 127.0.0.1:8080
//! curl http://127.0.0.1:8080/
//! curl --data-binary @FILE http://127.0.0.1:8080/echo
//! ```

mod support;

use std::{io, process::ExitCode};

use lexopt::{Arg, Parser, ValueExt};
use paceline_server::{
    http::{Response, Router},
    Server,
};

const HELP: &str = "\
The smallest web server: GET / is a greeting, POST /echo gives the body back.

usage: hello [options]

  --listen ADDR   where to listen (default 127.0.0.1:8080; port 0 lets the system choose)
  --threads N     how many threads serve (default: four per core)
  --body-memory N bytes of memory for bodies over 64 KiB; those that find none go to temporary files (default: 64 MiB)
  --help          this text

It prints `listening on ADDR` when it is ready. Ctrl-C or SIGTERM ends it gracefully, and it prints a
report.";

fn main() -> ExitCode {
    support::main("hello", HELP, Options::parse, serve)
}

fn serve(options: Options) -> io::Result<()> {
    let app = Router::new(())
        .get("/", |(), _| "hello, world\n")
        .post("/echo", |(), req| {
            req.bytes().map(|body| Response::new(body.into_owned()))
        })
        .limit(64 << 20);
    let mut server = Server::http(options.listen.as_str(), app);
    if let Some(threads) = options.threads {
        server = server.threads(threads);
    }
    if let Some(bytes) = options.body_memory {
        server = server.body_memory(bytes);
    }
    server.run_with(support::announce)
}

struct Options {
    listen: String,
    threads: Option<usize>,
    body_memory: Option<usize>,
}

impl Options {
    fn parse(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        let mut options = Self {
            listen: "127.0.0.1:8080".to_owned(),
            threads: None,
            body_memory: None,
        };
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("listen") => options.listen = parser.value()?.string()?,
                Arg::Long("threads") => {
                    options.threads = Some(support::count(parser, "--threads")?)
                }
                Arg::Long("body-memory") => options.body_memory = Some(parser.value()?.parse()?),
                other => return Err(other.unexpected()),
            }
        }
        Ok(options)
    }
}
