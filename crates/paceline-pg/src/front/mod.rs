//! Sockets, threads and the clock: joins the other modules on one pool.
//!
//! ```text
//!   listeners ---> session    the handler of a client's group        . letters from others: client
//!                     |       login, relay, console
//!                     v
//!                  state      the book, all clients and servers, the configuration in force
//!                     ^
//!                     |
//!   opening -----> home       the handler of a server's group while no client has it
//!   names          openings   addresses of hosts; which connections are being opened
//!   lanes -------> trunk      the handler of a server that several clients share
//!   sites          probe      the hosts of a database and their roles; what asks them
//!
//!   orders       what the book wants          maintenance  three times a second
//!   cancel       cancels on their way         lifecycle    signals, and the end
//!   admin        commands of the console      reload       a new configuration
//! ```
//!
//! Every client connection is a member of a group of its own, whose handler is the session. A server
//! connection is a member of the group of the client that has it, or else of its home. So the two
//! connections of a session are never used by two threads at once, and no handler waits for another.

mod admin;
mod buffers;
mod call;
mod cancel;
mod client;
mod common;
mod home;
mod journal;
mod lanes;
mod lifecycle;
mod listeners;
mod live;
mod maintenance;
mod metrics;
mod names;
mod opening;
mod openings;
mod orders;
mod probe;
mod random;
mod registers;
mod reload;
mod server;
mod server_login;
mod session;
mod sites;
mod snapshot;
mod sockets;
mod state;
mod system_users;
mod tls;
mod trunk;
mod wire;

#[cfg(test)]
mod tests;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use paceline::{Pool, Signal, TaskContext};
use paceline_server::Page;

use self::{live::Live, state::Front};
use crate::log::{Level, Log, LogTo};

/// The version of the server that the console claims to be.
pub(crate) const SERVER_VERSION: &str = "1.25.2";

/// How a pooler is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// The configuration: a `pgbouncer.ini`.
    pub file: PathBuf,
    /// Nothing is logged to the standard error output.
    pub is_quiet: bool,
    /// How much more is logged than the configuration says.
    pub verbosity: u32,
    /// The user that the process becomes, instead of the one in the configuration.
    pub user: Option<String>,
}

/// Why a pooler does not start.
#[derive(Debug)]
pub struct StartError(Box<dyn std::error::Error + Send + Sync>);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self(error.into())
    }
}

/// The version as the console and `--version` show it.
#[must_use]
pub fn version() -> String {
    format!("Paceline {}", env!("CARGO_PKG_VERSION"))
}

/// How much output may be kept for one connection: a message that was rewritten is sent whole.
const OUTPUT_LIMIT: usize = 80 << 20;

/// How long connections have to take their last words when the process ends.
const FAREWELL: Duration = Duration::from_millis(500);

/// Serves until a signal or the console ends it.
///
/// # Errors
/// The configuration can't be used, or an address is taken.
pub fn run(start: Start) -> Result<(), StartError> {
    let mut config = live::read_config(&start.file).map_err(|why| StartError(why.into()))?;
    config.settings.verbose = config.settings.verbose.max(start.verbosity);
    if let Some(user) = start.user {
        config.settings.user = user;
    }
    let user = config.settings.user.clone();
    let log_to = LogTo::of(&config.settings, start.is_quiet);
    // Only the user that starts the program may be able to read private keys.
    let live = Live::new(config);
    if !user.is_empty() {
        system_users::become_user(&user)?;
    }
    let log = Log::open(&log_to)?;
    let live = match live {
        Ok(live) => live,
        Err(why) => {
            for text in &why.errors {
                log.write(Level::Error, format_args!("{text}"));
            }
            return Err(StartError(why.into()));
        }
    };
    let front = Front::new(live, start.file, start.is_quiet, log);
    let served = serve(&front);
    if let Err(why) = &served {
        front.note(Level::Fatal, format_args!("{why}"));
    }
    Ok(served?)
}

fn serve(front: &Arc<Front>) -> io::Result<()> {
    let descriptors = sockets::raise_descriptor_limit();
    for remark in &front.live().remarks {
        front.note(Level::Warning, format_args!("{remark}"));
    }
    let pool = build_pool(front)?;
    front.set_pool(&pool);
    let pidfile = write_pidfile(front)?;
    let of_signals = Arc::clone(front);
    let signals = [
        Signal::HUP,
        Signal::TERM,
        Signal::INT,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
    ];
    pool.sources()
        .signals(signals, move |signal: Signal, _cx: &mut TaskContext<'_>| {
            of_signals.on_signal(signal);
        })?;
    register_databases(front);
    front.listen(&pool)?;
    let of_ticks = Arc::clone(front);
    pool.every(maintenance::PERIOD, move |_cx| of_ticks.maintain())
        .map_err(io::Error::from)?;
    let page = show_page(front, &pool)?;
    front.note(
        Level::Log,
        format_args!(
            "process up: {}, libc, descriptors {}, {} threads",
            version(),
            descriptors.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string()),
            pool.inspect().thread_ids().len(),
        ),
    );
    front.lifecycle.wait();
    front.lifecycle.close_all();
    drop((page, pidfile));
    let _report = pool.shutdown(FAREWELL);
    Ok(())
}

/// Serves the live page and the metrics, where the configuration says.
fn show_page(front: &Arc<Front>, pool: &Pool) -> io::Result<Option<Page>> {
    let address = front.live().settings().http_listen.clone();
    if address.is_empty() {
        return Ok(None);
    }
    let of_metrics = Arc::downgrade(front);
    let families = move || {
        let front = of_metrics.upgrade();
        front.map_or_else(String::new, |front| front.open_metrics())
    };
    let page = paceline_server::page(pool)
        .at(address.as_str())
        .name("front")
        .metrics(families)
        .start()?;
    front.note(
        Level::Log,
        format_args!("the live page and metrics are at {}", page.url()),
    );
    Ok(Some(page))
}

fn build_pool(front: &Arc<Front>) -> io::Result<Pool> {
    let threads = front.live().settings().threads as usize;
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from) + 1,
        threads => threads,
    };
    let log = Arc::downgrade(front);
    Pool::builder()
        .name("front")
        .threads(threads)
        .output_limit(OUTPUT_LIMIT)
        .on_panic(move |handle, message| {
            if let Some(front) = log.upgrade() {
                let text = format_args!("handler of {handle} panicked: {message}");
                front.note(Level::Error, text);
            }
        })
        .build()
}

/// The databases of the configuration are in the book from the start: some have a least size.
fn register_databases(front: &Front) {
    let live = front.live();
    front.register_users(&live);
    for config in live.config.databases.values() {
        let database = front.add_database(Arc::clone(config));
        if let Some(user) = &config.user {
            // Its pool exists without clients, because its user is known.
            let _ = front.pool_of(&database, user);
        }
    }
}

/// Reads the configuration in this file, and all that it names.
///
/// # Errors
/// Every error and every warning, one for each line of the text.
pub fn check(file: &Path) -> Result<(), StartError> {
    let live = live::read_config(file).and_then(Live::new);
    live.map(drop).map_err(|why| StartError(why.into()))
}

/// The file that holds the number of the process, for as long as this lives.
struct PidFile(Option<PathBuf>);

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // It is gone already, if that fails.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn write_pidfile(front: &Front) -> io::Result<PidFile> {
    let path = front.live().settings().pidfile.clone();
    if path.is_empty() {
        return Ok(PidFile(None));
    }
    let written = std::fs::write(&path, format!("{}\n", std::process::id()));
    written.map_err(|why| sockets::attempted(format_args!("write the pidfile {path}"), why))?;
    Ok(PidFile(Some(PathBuf::from(path))))
}
