//! The web servers: each gives the service that [`works`](super::works) names, by its own means.

#[cfg(feature = "http-peers")]
mod asynchronous;
mod ours;
#[cfg(feature = "http-peers")]
mod threads;

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process, thread,
};

use super::{
    programs,
    works::{FILE, SLEEP},
};
use crate::serve::{bind, raise_descriptors};
#[cfg(feature = "http-peers")]
use crate::servers::Setting;

/// How a web server is started.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// The server's name (`http --list` shows them)
    name: String,
    /// Where to listen; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDR")]
    listen: SocketAddr,
    /// How many threads serve, where that can be chosen
    #[arg(long, default_value_t = 8, value_name = "N")]
    threads: usize,
    /// With TLS, where the server has it
    #[arg(long)]
    tls: bool,
}

/// What a server needs to know.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) threads: usize,
    pub(super) tls: bool,
    /// The file that it serves.
    pub(super) file: PathBuf,
}

impl Site {
    /// The settings of servers that are written with tokio.
    #[cfg(feature = "http-peers")]
    fn setting(&self) -> Setting {
        Setting {
            threads: self.threads,
            announced: false,
            steps: 1,
        }
    }
}

/// Serves until the process ends; returns only an error.
#[derive(Clone, Copy)]
enum Serve {
    Over(fn(TcpListener, &Site) -> io::Result<()>),
    /// It binds the address itself.
    #[cfg(feature = "http-peers")]
    At(fn(SocketAddr, &Site) -> io::Result<()>),
}

/// A server in this program.
struct Server {
    name: &'static str,
    about: &'static str,
    serve: Serve,
}

/// Ours, with which all others are compared.
pub(super) const OURS: &str = "paceline";

const HERE: &[Server] = &[
    Server {
        name: OURS,
        about: "paceline-server, default limits",
        serve: Serve::Over(ours::default),
    },
    Server {
        name: "paceline-half-sync",
        about: "the same on the half-sync/half-async engine, as many workers",
        serve: Serve::Over(ours::half_sync),
    },
    #[cfg(feature = "http-peers")]
    Server {
        name: "hyper",
        about: "hyper with pipeline_flush on tokio, a worker per core; sleeps block their worker",
        serve: Serve::Over(asynchronous::hyper_inline),
    },
    #[cfg(feature = "http-peers")]
    Server {
        name: "hyper-blocking",
        about: "the same, each handler by spawn_blocking",
        serve: Serve::Over(asynchronous::hyper_blocking),
    },
    #[cfg(feature = "http-peers")]
    Server {
        name: "axum",
        about: "axum on hyper; sleeps block their worker",
        serve: Serve::Over(asynchronous::axum),
    },
    #[cfg(feature = "http-peers")]
    Server {
        name: "actix-web",
        about: "actix-web, a worker per core; sleeps block their worker",
        serve: Serve::Over(asynchronous::actix),
    },
    #[cfg(feature = "http-peers")]
    Server {
        name: "may_minihttp",
        about: "may_minihttp, a coroutine per connection, a worker per core",
        serve: Serve::At(threads::may),
    },
    #[cfg(feature = "http-peers")]
    Server {
        name: "tiny_http",
        about:
            "tiny_http: a thread per connection that reads, and as many that answer as are given",
        serve: Serve::Over(threads::tiny),
    },
    #[cfg(feature = "http-peers")]
    Server {
        name: "rouille",
        about: "rouille on tiny_http, with a pool of as many threads as are given",
        serve: Serve::At(threads::rouille),
    },
    #[cfg(feature = "http-peers")]
    Server {
        name: "khttp",
        about: "khttp with its epoll loop, and as many threads as are given",
        serve: Serve::At(threads::khttp),
    },
];

/// Every server: its name, what it is, and whether it is here.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str, bool)> {
    let here = HERE.iter().map(|it| (it.name, it.about, true));
    let outside = programs::ALL.iter();
    here.chain(outside.map(|it| (it.name, it.about, it.is_there())))
}

/// Those that are named, or all that are there; ours first.
///
/// # Errors
/// A name is unknown, or its program is not installed.
pub(super) fn chosen(names: &[String]) -> io::Result<Vec<&'static str>> {
    let invalid = |text| io::Error::new(io::ErrorKind::InvalidInput, text);
    for name in names {
        match all().find(|(known, ..)| known == name) {
            None => {
                let all: Vec<_> = all().map(|(name, ..)| name).collect();
                let note = if cfg!(feature = "http-peers") {
                    ""
                } else {
                    " (others with the feature `http-peers`)"
                };
                let text = format!("there is no {name:?}, but {}{note}", all.join(", "));
                return Err(invalid(text));
            }
            Some((.., false)) => return Err(invalid(format!("{name} is not installed"))),
            Some(_) => {}
        }
    }
    for (name, .., is_there) in all() {
        if !is_there && names.is_empty() {
            eprintln!("skipped: {name} is not installed");
        }
    }
    let is_chosen = |name: &str, is_there: bool| match names {
        [] => is_there,
        names => names.iter().any(|it| it == name),
    };
    Ok(all()
        .filter(|(name, _, is_there)| is_chosen(name, *is_there))
        .map(|(name, ..)| name)
        .collect())
}

/// Serves until the standard input ends.
pub(super) fn serve(args: &ServeArgs) -> io::Result<()> {
    raise_descriptors();
    let site = Site {
        threads: args.threads,
        tls: args.tls,
        file: file()?,
    };
    if let Some(program) = programs::ALL.iter().find(|it| it.name == args.name) {
        return program.become_it(&site);
    }
    let address = start(&args.name, args.listen, site)?;
    println!("listening on {address}");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

/// Starts a server of this program, on threads of its own.
pub(super) fn start(name: &str, listen: SocketAddr, site: Site) -> io::Result<SocketAddr> {
    let server = HERE.iter().find(|it| it.name == name);
    let server = server.ok_or_else(|| {
        let text = format!("there is no web server {name:?}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    let listener = bind(listen)?;
    let address = listener.local_addr()?;
    let serve: Box<dyn FnOnce() -> io::Result<()> + Send> = match server.serve {
        Serve::Over(serve) => Box::new(move || serve(listener, &site)),
        #[cfg(feature = "http-peers")]
        Serve::At(serve) => {
            // No other process takes the address meanwhile: it was just free.
            drop(listener);
            Box::new(move || serve(address, &site))
        }
    };
    thread::spawn(move || {
        if let Err(error) = serve() {
            eprintln!("the server ended: {error}");
            process::exit(1);
        }
    });
    wait_for(address)?;
    Ok(address)
}

/// Waits until something listens: some servers bind the address anew.
pub(super) fn wait_for(address: SocketAddr) -> io::Result<()> {
    let mut last = None;
    for _ in 0..400 {
        match std::net::TcpStream::connect(address) {
            Ok(_) => return Ok(()),
            Err(error) => last = Some(error),
        }
        thread::sleep(std::time::Duration::from_millis(25));
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::TimedOut.into()))
}

/// The file of the work `file-1m`, which all servers of one user share.
pub(super) fn file() -> io::Result<PathBuf> {
    let folder = std::env::temp_dir().join("paceline-bench-http");
    fs::create_dir_all(&folder)?;
    let file = folder.join("file");
    if fs::metadata(&file).is_ok_and(|it| it.len() == FILE as u64) {
        return Ok(file);
    }
    // Of this process, and then renamed: others may write the same.
    let mine = folder.join(process::id().to_string());
    fs::write(&mine, vec![b'f'; FILE])?;
    fs::rename(mine, &file)?;
    Ok(file)
}

/// What the handler of `/sleep` does.
fn sleep() {
    thread::sleep(SLEEP);
}

/// The answer to `/post`.
fn length_text(length: usize) -> String {
    format!("{length} bytes\n")
}

/// The answer to `/user/{id}/orders/{number}`.
fn order_text(id: u64, number: u64) -> String {
    format!("order {number} of user {id}\n")
}
