//! How server connections are opened, and what is sent on them before a client has them.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
};

use paceline_pg_wire::{frontend, startup};

use crate::{
    client::{Client, Connect},
    gate::Gate,
    pooler::{entry, Pooler},
    support::postgres::{self, USER},
    wait_until,
};

/// A pause gives up the connections that are being opened. That says nothing of their host: it was
/// passed over, as if it had failed.
#[test]
fn an_aborted_opening_is_no_failure_of_its_host() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let (first, second) = (Gate::to(postgres), Gate::to(postgres));
    first.shut();
    let (one, two) = (first.port(), second.port());
    let database = format!(
        "db = host=127.0.0.1,127.0.0.1 port={one},{two} dbname={USER} load_balance_hosts=disable"
    );
    let pooler = Pooler::start(&database, "");
    let connect = Connect::new("db", USER);
    let mut waits = Client::connected(pooler.address());
    waits.send(&connect.packet());
    wait_until("the connection is being opened", || first.accepted() == 1);
    pooler.admin("PAUSE");
    wait_until("it is given up", || pooler.log().contains("login aborted"));
    first.open();
    pooler.admin("RESUME");
    let mut client = waits.log_in(&connect).expect("a login");
    assert_eq!(client.query("SELECT 1"), Ok(vec![vec!["1".to_owned()]]));
    assert_eq!((first.accepted(), second.accepted()), (2, 0));
}

/// With `load_balance_hosts=disable` new connections stay with the host that works: each of them tried
/// the dead host before it first.
#[test]
fn new_connections_stay_with_the_host_that_works() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let gate = Gate::to(postgres);
    let database = format!(
        "db = host=127.0.0.1,127.0.0.1 port=1,{} dbname={USER} load_balance_hosts=disable",
        gate.port()
    );
    let pooler = Pooler::start(&database, "pool_mode = transaction\nserver_login_retry = 0");
    let mut clients = [(); 3].map(|()| pooler.client());
    for client in &mut clients {
        client.query("BEGIN").expect("a server of its own");
    }
    assert_eq!(gate.accepted(), clients.len());
    let failed = pooler.log().matches("connect failed").count();
    assert_eq!(failed, 1, "{}", pooler.log());
}

/// A pause is complete when no server is there: the search for a name, which goes on, must not end in
/// a new connection. Client and console are heard in one go, so that the pause overtakes the search.
#[test]
fn a_pause_during_a_lookup_opens_nothing() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let gate = Gate::to(postgres);
    let port = gate.port();
    let database = format!("db = host=localhost port={port} dbname={USER}");
    let pooler = Pooler::start(&database, "threads = 1\nserver_login_retry = 0");
    let connect = Connect::new("db", USER);
    let mut console =
        Client::to(pooler.address(), &Connect::new("pgbouncer", "admin")).expect("the console");
    let mut waits = Client::connected(pooler.address());
    pooler.signal("STOP");
    waits.send(&connect.packet());
    console.begin("PAUSE");
    pooler.signal("CONT");
    console.finish().expect("the pause is complete");
    console.query("RESUME").expect("it was paused");
    let mut client = waits.log_in(&connect).expect("a login");
    client.query("SELECT 1").expect("a row");
    // One for the client, and perhaps one that the pause has given up.
    let given_up = pooler.log().matches("login aborted").count();
    assert!(gate.accepted() <= 1 + given_up, "{}", pooler.log());
}

/// Parameters of the client that logs in are none of the query for its secret: another user's
/// connection answers that.
#[test]
fn no_set_on_auth_query() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let direct = Pooler::of(postgres, "");
    // It may be there from another run on the same server.
    let _ = direct
        .client()
        .query("CREATE ROLE unset LOGIN PASSWORD 'secret'");
    let gate = Gate::to(postgres);
    let settings = format!("pool_mode = transaction\nauth_type = plain\nauth_user = {USER}");
    let pooler = Pooler::start(&gate.entry("db", ""), &settings);
    for name in ["first", "second"] {
        let mut connect = Connect::new("db", "unset")
            .with("application_name", name)
            .with("DateStyle", "German");
        connect.password = Some("secret".to_owned());
        let mut client = Client::to(pooler.address(), &connect).expect("a login");
        let rows = client.query("SHOW application_name");
        assert_eq!(rows, Ok(vec![vec![name.to_owned()]]));
    }
    let has = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    let (asking, serving): (Vec<_>, Vec<_>) =
        (gate.sent().into_iter()).partition(|sent| has(sent, format!("user\0{USER}\0").as_bytes()));
    assert_eq!((asking.len(), serving.len()), (1, 1));
    assert!(has(&asking[0], b"pg_authid") && !has(&asking[0], b"SET "));
    assert!(has(&serving[0], b"SET application_name='second'"));
}

/// A client need not wait for the end of its login to send its first query. The server that has
/// answered for its secret serves it then, in the same call that was about to send the server home.
#[test]
fn a_query_behind_the_login_is_answered() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let settings = format!("pool_mode = transaction\ndefault_pool_size = 1\nauth_user = {USER}");
    let pooler = Pooler::start(&entry("db", postgres, &format!("user={USER}")), &settings);
    let direct = Pooler::of(postgres, "");
    let _ = direct.client().query("CREATE ROLE hasty LOGIN");
    // The pool has had a server: the login ends at once.
    pooler.client().query("SELECT 1").expect("a row");
    let connect = Connect::new("db", "hasty");
    let mut client = Client::connected(pooler.address());
    let mut bytes = connect.packet();
    frontend::query(&mut bytes, b"SELECT 'early'");
    client.send(&bytes);
    let mut client = client.log_in(&connect).expect("a login");
    assert_eq!(client.finish(), Ok(vec![vec!["early".to_owned()]]));
    assert_eq!(client.query("SELECT 2"), Ok(vec![vec!["2".to_owned()]]));
}

/// How many descriptors the pooler may have.
const DESCRIPTORS: usize = 64;

fn descriptors(pooler: &Pooler) -> usize {
    let folder = format!("/proc/{}/fd", pooler.id());
    fs::read_dir(folder).map_or(0, Iterator::count)
}

/// More clients than descriptors: those that are there are served, and when some have left, others are
/// accepted, on both kinds of sockets.
#[test]
fn emfile_recovers() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let databases = entry("db", postgres, "");
    // Connections that say nothing take descriptors, too.
    let settings = "pool_mode = transaction\ntcp_defer_accept = 0";
    let pooler = Pooler::limited(DESCRIPTORS, &databases, settings);
    let mut present = pooler.client();
    present.query("SELECT 1").expect("a row");
    let crowd: Vec<_> = (0..2 * DESCRIPTORS)
        .map(|_| TcpStream::connect(pooler.address()).expect("the kernel accepts"))
        .collect();
    let mut local: Vec<_> = (0..8)
        .map(|_| UnixStream::connect(pooler.socket()).expect("the kernel accepts"))
        .collect();
    wait_until("no descriptor is left", || {
        descriptors(&pooler) >= DESCRIPTORS
    });
    for _ in 0..10 {
        let rows = present.query("SELECT 'served'");
        assert_eq!(rows, Ok(vec![vec!["served".to_owned()]]));
    }
    drop(crowd);
    let mut newcomer = pooler.client();
    newcomer.query("SELECT 1").expect("a row");
    for stream in &mut local {
        let mut question = Vec::new();
        startup::ask_tls(&mut question);
        stream.write_all(&question).expect("it takes a packet");
        let mut answer = [0];
        stream.read_exact(&mut answer).expect("it is accepted now");
        assert_eq!(answer, *b"N");
    }
}
