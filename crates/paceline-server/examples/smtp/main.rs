//! An SMTP receiver: it takes mail from other servers, or from users that log in, and files it.
//!
//! ```text
//! cargo run --release -p paceline-server --example smtp -- --listen 127.0.0.1:2525 --tls-self-signed
//! ```
//!
//! Then, from another terminal: `swaks --server 127.0.0.1:2525 --tls --to ann@example.org`.
//!
//! ```text
//!   session.rs    one client: which command may come now, what it is answered, STARTTLS, DATA
//!   command.rs    a line becomes a command, or the reply that refuses it
//!   auth.rs       AUTH PLAIN and LOGIN, step by step
//!   mail.rs       an incoming message: to a maildir, or to a summary
//! ```
//!
//! It implements RFC 5321 with SIZE (1870), 8BITMIME (6152), PIPELINING (2920), STARTTLS (3207) and AUTH
//! (4954). It does not send mail on.

mod auth;
mod command;
mod mail;
mod session;
#[path = "../support/mod.rs"]
mod support;

use std::{io, process::ExitCode, sync::Arc, time::Duration};

use auth::Users;
use lexopt::{Arg::Long, Parser, ValueExt};
use mail::Store;
use paceline_server::{codec::line, Limits, Listen, Server};
use session::{Mail, Settings, LONGEST_COMMAND};
use support::certificate::Certificate;

const HELP: &str = "\
An SMTP receiver: it takes mail, and files it.

usage: smtp [options]

  --listen ADDR       where to listen (default 127.0.0.1:2525; port 0 lets the system choose)
  --dir PATH          file each mail in this maildir (default: print a line for each mail)
  --name NAME         the name of this server (default localhost)
  --domain NAME       take mail for this domain; may be given several times (default: for all)
  --tls CERT KEY      offer STARTTLS, with the certificate chain and key in these PEM files; SIGHUP
                      reads them anew
  --tls-self-signed   offer STARTTLS, with a certificate made at the start: for trials
  --user NAME:PASSWORD
                      a user who may log in; may be given several times
  --require-auth      take mail only from users who have logged in
  --insecure-auth     offer AUTH without TLS too: passwords can be read on the way
  --size BYTES        how long a message may be (default 10485760)
  --recipients N      how many recipients a message may have (default 100)
  --threads N         how many threads serve (default: four per core)
  --connections N     how many clients at once (default 1000)
  --idle SECONDS      how long a client may do nothing (default 300)
  --access-log        print a line to standard error for each connection that ends
  --help              this text

It prints `listening on ADDR` when it is ready. Ctrl-C or SIGTERM ends it gracefully: a message that is
half there is still taken, and it prints a report. Try it:

  swaks --server 127.0.0.1:2525 --to ann@example.org";

fn main() -> ExitCode {
    support::main("smtp", HELP, Options::parse, serve)
}

fn serve(options: Options) -> io::Result<()> {
    let tls = options.certificate.map(|certificate| certificate.tls());
    let settings = Arc::new(Settings {
        tls: tls.transpose()?,
        store: match &options.dir {
            Some(dir) => Store::maildir(dir.as_ref(), &options.name)?,
            None => Store::Summary,
        },
        name: options.name,
        ..options.settings
    });
    let listen = Listen::tcp(options.listen)
        .limits(options.limits)
        .refusal("421 too many clients, try again later\r\n");
    let mut server = Server::builder().listener(listen, line(LONGEST_COMMAND), move |peer| {
        Mail::new(Arc::clone(&settings), peer)
    });
    if let Some(threads) = options.threads {
        server = server.threads(threads);
    }
    if options.has_access_log {
        server = server.access_log(io::stderr());
    }
    server.run_with(support::announce)
}

struct Options {
    listen: String,
    dir: Option<String>,
    name: String,
    certificate: Option<Certificate>,
    threads: Option<usize>,
    limits: Limits,
    has_access_log: bool,
    settings: Settings,
}

impl Options {
    fn parse(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        let mut options = Self {
            listen: "127.0.0.1:2525".to_owned(),
            dir: None,
            name: "localhost".to_owned(),
            certificate: None,
            threads: None,
            // RFC 5321, 4.5.3.2: a server waits five minutes for a command.
            limits: Limits::default()
                .connections(1000)
                .silent(Duration::from_secs(60))
                .idle(Duration::from_secs(300)),
            has_access_log: false,
            settings: Settings::default(),
        };
        while let Some(arg) = parser.next()? {
            match arg {
                Long("listen") => options.listen = parser.value()?.string()?,
                Long("dir") => options.dir = Some(parser.value()?.string()?),
                Long("name") => options.name = host_name(parser, "--name")?,
                Long("tls") => options.certificate = Some(Certificate::files(parser)?),
                Long("tls-self-signed") => {
                    options.certificate = Some(Certificate::SelfSigned(None))
                }
                Long("threads") => options.threads = Some(support::count(parser, "--threads")?),
                Long("access-log") => options.has_access_log = true,
                Long("connections") => {
                    let connections = support::count(parser, "--connections")?;
                    options.limits = options.limits.connections(connections);
                }
                Long("idle") => {
                    options.limits = options.limits.idle(support::seconds(parser, "--idle")?);
                }
                Long(name) => {
                    let name = name.to_owned();
                    options.settings.parse(&name, parser)?;
                }
                other => return Err(other.unexpected()),
            }
        }
        options.check()
    }

    fn check(self) -> Result<Self, lexopt::Error> {
        let settings = &self.settings;
        if settings.requires_auth && settings.users.is_empty() {
            let text = "--require-auth needs a --user: nobody could log in";
            return Err(support::mistake(text));
        }
        if !settings.users.is_empty() && self.certificate.is_none() && !settings.insecure_auth {
            let text = "--user needs --tls, --tls-self-signed or --insecure-auth: AUTH is offered \
                        only under TLS";
            return Err(support::mistake(text));
        }
        Ok(self)
    }
}

impl Settings {
    /// The options that are about mail.
    fn parse(&mut self, name: &str, parser: &mut Parser) -> Result<(), lexopt::Error> {
        match name {
            "domain" => {
                let domain = host_name(parser, "--domain")?;
                self.domains.push(domain.to_ascii_lowercase());
            }
            "user" => {
                let text = parser.value()?.string()?;
                let Some((user, password)) = text.split_once(':') else {
                    return Err(support::mistake("--user: want NAME:PASSWORD"));
                };
                self.users.add(user, password);
            }
            "require-auth" => self.requires_auth = true,
            "insecure-auth" => self.insecure_auth = true,
            "size" => self.most_bytes = support::count(parser, "--size")?,
            "recipients" => self.most_recipients = support::count(parser, "--recipients")?,
            other => return Err(Long(other).unexpected()),
        }
        Ok(())
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: String::new(),
            store: Store::Summary,
            tls: None,
            users: Users::default(),
            requires_auth: false,
            insecure_auth: false,
            domains: Vec::new(),
            most_bytes: 10 << 20,
            most_recipients: 100,
        }
    }
}

/// A name that can be a part of replies and header fields.
fn host_name(parser: &mut Parser, option: &str) -> Result<String, lexopt::Error> {
    let name: String = parser.value()?.string()?;
    if command::is_domain(&name) {
        Ok(name)
    } else {
        Err(support::mistake(format!(
            "{option} {name:?} is not the name of a host"
        )))
    }
}
