//! How much memory an idle client takes of the front-end, which is the reason for a pooler. The front-end runs in this
//! program, and the allocator of this program counts: what it keeps in reserve, and the kernel's buffers, do not count.

#[path = "front/client.rs"]
#[allow(dead_code, reason = "each test program uses a part of it")]
mod client;
mod support;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs,
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicIsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use client::{Channel, Client, Connect};
use paceline_pg::front::{self, Start};
use support::postgres::{self, Postgres, PORT, USER};

/// Longest time to wait for anything.
const LIMIT: Duration = Duration::from_secs(60);

/// Bytes that are in use.
static BYTES: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static COUNTED: Counted = Counted;

/// The system's allocator, counted.
struct Counted;

// SAFETY: every call is passed on to the system's allocator, which keeps the promises of the trait.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Starts the front-end in this process, before a server.
fn start(folder: &Path, postgres: &Postgres) -> (thread::JoinHandle<()>, SocketAddr) {
    let socket = postgres.socket_folder().display();
    let shown = folder.display();
    let ini = format!(
        "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = 0\nunix_socket_dir =\nlogfile = {shown}/log\n\
         auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 5000\n\
         log_connections = 0\nlog_disconnections = 0\nclient_idle_timeout = 600\n\
         [databases]\ndb = host={socket} port={PORT} dbname={USER} user={USER}\n"
    );
    let file = folder.join("pgbouncer.ini");
    fs::write(&file, ini).expect("a file");
    let start = Start {
        user: None,
        file,
        is_quiet: true,
        verbosity: 0,
    };
    let serving = thread::spawn(move || front::run(start).expect("it serves"));
    let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
    wait_until("the front-end listens", || log().contains("process up"));
    let log = log();
    let line = log
        .lines()
        .find_map(|line| line.split_once("listening on "));
    let address = line.and_then(|(_, address)| address.trim().parse().ok());
    (serving, address.expect("the log names the address"))
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Clients that are logged in, without what a client of these tests keeps itself.
fn log_in(count: usize, address: SocketAddr, connect: &Connect) -> Vec<Box<dyn Channel>> {
    let clients = (0..count).map(|_| {
        Client::to(address, connect)
            .expect("a login")
            .into_channel()
    });
    clients.collect()
}

/// Bytes of the front-end for each of `count` clients that `begin` makes.
fn bytes_each<T>(what: &str, count: usize, begin: impl FnOnce(usize) -> Vec<T>) -> (isize, Vec<T>) {
    let before = BYTES.load(Ordering::Relaxed);
    let clients = begin(count);
    let own = (clients.capacity() * size_of::<T>()) as isize;
    let each = (BYTES.load(Ordering::Relaxed) - before - own) / count as isize;
    eprintln!("{each} bytes for each of {count} clients {what}");
    (each, clients)
}

/// A client took 2,607 bytes: lists with room for four connections where it has one, a table with vacant places, names and
/// limits that all clients had for themselves.
#[test]
fn an_idle_client_is_small() {
    const COUNT: usize = 1000;
    let Some(postgres) = postgres::server() else {
        return;
    };
    let folder = postgres::temporary_folder().expect("a folder");
    let (serving, address) = start(&folder, postgres);
    let plain = Connect::new("db", "bench");
    let web = Connect::new("db", "bench").with("application_name", "web");
    // What the front-end sets up once.
    let first = log_in(64, address, &plain);
    let (each, idle) = bytes_each("that have logged in", COUNT, |count| {
        log_in(count, address, &plain)
    });
    assert!(each <= 1400, "{each} bytes");
    let (each, named) = bytes_each("of one application", COUNT, |count| {
        log_in(count, address, &web)
    });
    assert!(each <= 1400, "{each} bytes");
    let (each, used) = bytes_each("that have had a server", COUNT, |count| {
        let ask = |_| {
            let mut client = Client::to(address, &plain).expect("a login");
            client.query("SELECT 1").expect("an answer");
            client.into_channel()
        };
        (0..count).map(ask).collect()
    });
    assert!(each <= 1400, "{each} bytes");
    drop((first, idle, named, used));
    let mut console =
        Client::to(address, &Connect::new("pgbouncer", "admin")).expect("the console");
    // The connection may end before the answer.
    let _ = console.query("SHUTDOWN");
    serving.join().expect("it ends");
    let _ = fs::remove_dir_all(folder);
}
