//! A front without listeners, for the tests of its rooms, and a server that lets every user in.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use paceline::Pool;

use super::{
    live::Live,
    registers::{Database, Lookup, PoolEntry},
    server::Server,
    state::{locked, Front},
};
use crate::{
    config,
    log::{Log, LogTo},
    pg_wire::{
        backend::{self, Authentication},
        Message, TransactionStatus,
    },
    pools::{Ask, ClientId, Orders, Privilege},
};

/// Longest time to wait for anything.
const LIMIT: Duration = Duration::from_secs(30);

/// The front, and its threads. The database `db` has one user, `ada`.
pub(super) struct World {
    pub(super) front: Arc<Front>,
    pub(super) threads: Pool,
}

impl World {
    /// `of_database` is the connection string of `db`.
    pub(super) fn new(of_database: &str) -> Self {
        let text = format!(
            "[pgbouncer]\nlisten_addr = 127.0.0.1\nauth_type = any\nserver_tls_sslmode = disable\n\
             default_pool_size = 1\nserver_login_retry = 0\n[databases]\ndb = {of_database}\n"
        );
        let mut read = |_: &str| Ok(text.clone().into_bytes());
        let config = config::load("tests.ini", &mut read).expect("a configuration");
        let live = Live::new(config).expect("it can be used");
        let log = Log::open(&LogTo::of(live.settings(), true)).expect("a log to nowhere");
        let front = Front::new(live, "tests.ini".into(), true, log);
        let threads = Pool::builder().name("tests").threads(2).build();
        let threads = threads.expect("a pool");
        front.set_pool(&threads);
        Self { front, threads }
    }

    pub(super) fn database(&self) -> Arc<Database> {
        match self.front.database("db") {
            Lookup::Known(database) | Lookup::Registered(database) => database,
            Lookup::Unknown => unreachable!("it is configured"),
        }
    }

    pub(super) fn pool(&self) -> Arc<PoolEntry> {
        let pool = self.front.pool_of(&self.database(), "ada");
        pool.expect("its database is there")
    }

    /// A client asks for a server: what it gets, and the orders that follow.
    pub(super) fn ask(&self) -> (ClientId, Ask<Arc<Server>>, Orders<Arc<Server>>) {
        let (database, pool) = (self.database().id, self.pool().id);
        let now = self.front.now();
        let entered = (self.front.book()).enter(Some(database), None, Privilege::Ordinary, now);
        let client = entered.expect("there is room");
        let (asked, orders) =
            (self.front).with_book(|book, now, orders| book.ask(client, pool, now, orders));
        (client, asked, orders)
    }

    /// Opens a server connection, which is idle then.
    pub(super) fn open_idle(&self) {
        let (_client, asked, orders) = self.ask();
        assert!(matches!(asked, Ask::Waiting), "{asked:?}");
        self.front.carry_out(orders);
        self.wait_until("the server is idle", |idle, _| idle == 1);
    }

    /// Waits until `condition` holds of how many servers are idle and how many log in.
    pub(super) fn wait_until(&self, what: &str, condition: impl Fn(usize, usize) -> bool) {
        wait_until(what, || {
            let (idle, opening) = self.counts();
            condition(idle, opening)
        });
    }

    /// How many servers are idle, and how many log in.
    pub(super) fn counts(&self) -> (usize, usize) {
        let rows = self.front.book().pool_rows(self.front.now());
        let sum = |of: fn(&crate::pools::PoolRow) -> usize| rows.iter().map(of).sum();
        (
            sum(|row| row.servers_idle + row.servers_used),
            sum(|row| row.servers_login),
        )
    }
}

/// Waits until `condition` holds.
pub(super) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A server that lets every user in, and answers each query with the role of a primary.
pub(super) struct Host {
    pub(super) address: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Host {
    pub(super) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let kept = Arc::clone(&streams);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let ours = stream.try_clone().expect("a descriptor");
                locked(&kept).push(ours);
                // The front has closed it, if that fails.
                thread::spawn(move || drop(serve(stream)));
            }
        });
        Self { address, streams }
    }

    /// How many connections were made.
    pub(super) fn connections(&self) -> usize {
        locked(&self.streams).len()
    }

    /// Ends the connection of this number.
    pub(super) fn cut(&self, number: usize) {
        let streams = locked(&self.streams);
        // It has ended already, if that fails.
        let _ = streams[number].shutdown(Shutdown::Both);
    }
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut rest)?;
    let mut out = Vec::new();
    backend::authentication(&mut out, Authentication::Ok);
    backend::parameter(&mut out, b"client_encoding", b"UTF8");
    backend::key_data(&mut out, 7, b"abcd");
    backend::ready_for_query(&mut out, TransactionStatus::Idle);
    stream.write_all(&out)?;
    let mut input = Vec::new();
    loop {
        let mut piece = [0; 1024];
        match stream.read(&mut piece)? {
            0 => return Ok(()),
            count => input.extend_from_slice(&piece[..count]),
        }
        while let Ok(Some((message, length))) = Message::first(&input, 1 << 16) {
            if message.tag == b'Q' {
                stream.write_all(&primary())?;
            }
            input.drain(..length);
        }
    }
}

/// The answer to the question for the role.
fn primary() -> Vec<u8> {
    let mut out = Vec::new();
    let values: [Option<&[u8]>; 3] = [Some(b"f"), Some(b"1"), Some(b"0")];
    backend::row(&mut out, values);
    backend::command_complete(&mut out, b"SELECT 1");
    backend::ready_for_query(&mut out, TransactionStatus::Idle);
    out
}

/// The book has removed a pool, and another thread has not carried that out yet. A client that logged
/// in then got "database removed", and, if the register kept the old pool, so did every other.
#[test]
fn a_removed_pool_has_an_heir() {
    let world = World::new("host=127.0.0.1");
    let old = world.pool();
    let later = world.front.now() + Duration::from_secs(2);
    let ((), removal) = world.front.with_book(|book, _, orders| {
        book.close_idle_pools(Duration::from_secs(1), later, orders);
    });
    let new = world.pool();
    assert_ne!(new.id, old.id, "the book has removed that one");
    world.front.carry_out(removal);
    assert_eq!(world.pool().id, new.id);
    assert!(Arc::ptr_eq(&world.pool(), &new));
    assert!(world.front.registers.pool(old.id).is_none());
}

/// The heir of a pool has what its clients have proved themselves with.
#[test]
fn an_heir_has_the_credentials() {
    use crate::login::ServerCredentials;
    let world = World::new("host=127.0.0.1");
    let old = world.pool();
    assert!(world.front.pool_after(&old).is_none(), "it is still there");
    let none = Arc::new(ServerCredentials::None);
    old.credentials.store(Some(none));
    let later = world.front.now() + Duration::from_secs(2);
    let ((), removal) = world.front.with_book(|book, _, orders| {
        book.close_idle_pools(Duration::from_secs(1), later, orders);
    });
    let heir = world.front.pool_after(&old).expect("it is made");
    assert!(heir.credentials.load().is_some());
    world.front.carry_out(removal);
}
