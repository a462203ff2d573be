//! TLS with clients and with servers, against a real PostgreSQL.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    thread,
};

use crate::{
    client::{Client, Connect},
    pooler::{entry, Pooler},
    support::postgres::{self, Postgres, USER},
    tls_client::{Dribble, Secure, Start},
    tls_postgres::{self, TlsPostgres},
    wait_until,
};

/// Settings of a pooler that offers TLS to its clients.
fn offering(server: &TlsPostgres, mode: &str) -> String {
    let authority = &server.authority;
    let (chain, key) = (authority.chain("localhost"), authority.key("localhost"));
    format!(
        "pool_mode = transaction\nclient_tls_sslmode = {mode}\nclient_tls_cert_file = {}\n\
         client_tls_key_file = {}\nclient_tls_ca_file = {}\n",
        chain.display(),
        key.display(),
        authority.root().display()
    )
}

/// Settings of a pooler that asks its servers for TLS.
fn asking(server: &TlsPostgres, mode: &str) -> String {
    let root = server.authority.root();
    format!(
        "server_tls_sslmode = {mode}\nserver_tls_ca_file = {}\nquery_wait_timeout = 30\n\
         server_login_retry = 0\n",
        root.display()
    )
}

/// Both servers: one by the Unix socket, and one by TLS.
fn servers() -> Option<(&'static Postgres, &'static TlsPostgres)> {
    Some((postgres::server()?, tls_postgres::server()?))
}

fn secure(server: &TlsPostgres) -> Secure {
    Secure::new(&server.authority.root())
}

/// Whether a session works over this connection.
fn works(client: io::Result<Client>) -> bool {
    let connect = Connect::new("db", USER);
    let Ok(mut client) = client else { return false };
    if client.try_send(&connect.packet()).is_err() {
        return false;
    }
    let logged_in = client.log_in(&connect);
    logged_in.is_ok_and(|mut client| client.try_query("SELECT 1"))
}

/// Whether a client without TLS is served.
fn admits_plain(pooler: &Pooler) -> bool {
    Client::to(pooler.address(), &Connect::new("db", USER)).is_ok()
}

/// Each mode for clients: whether it serves them under TLS, and without.
#[test]
fn clients_use_tls_as_the_mode_says() {
    let Some((postgres, server)) = servers() else {
        return;
    };
    for (mode, under_tls, plain) in [
        ("disable", false, true),
        ("allow", true, true),
        ("prefer", true, true),
        ("require", true, false),
        ("verify-ca", false, false),
        ("verify-full", false, false),
    ] {
        let pooler = Pooler::of(postgres, &offering(server, mode));
        let client = secure(server).connect(pooler.address());
        assert_eq!(works(client), under_tls, "{mode} under TLS");
        assert_eq!(admits_plain(&pooler), plain, "{mode} without TLS");
    }
}

/// With `verify-ca` and `verify-full` a client needs a certificate of the authority.
#[test]
fn clients_prove_themselves_by_certificates() {
    let Some((postgres, server)) = servers() else {
        return;
    };
    for mode in ["verify-ca", "verify-full"] {
        let pooler = Pooler::of(postgres, &offering(server, mode));
        let by = |authority: &crate::certificates::Authority| {
            let name = "by_certificate";
            let identity = Some((authority.chain(name), authority.key(name)));
            let client = Secure {
                identity,
                ..secure(server)
            };
            works(client.connect(pooler.address()))
        };
        assert!(by(&server.authority), "{mode}");
        assert!(!by(&server.stranger), "{mode}: a stranger's certificate");
        let log = pooler.log();
        assert!(log.contains("certificate verify failed"), "{log}");
    }
}

/// TLS without a question: the first bytes of the connection are TLS's own. It must name the protocol.
#[test]
fn direct_tls_names_the_protocol() {
    let Some((postgres, server)) = servers() else {
        return;
    };
    let pooler = Pooler::of(postgres, &offering(server, "require"));
    let direct = |protocols: &[&str]| {
        let client = Secure {
            protocols: protocols.iter().map(|it| it.as_bytes().to_vec()).collect(),
            start: Start::Direct,
            ..secure(server)
        };
        works(client.connect(pooler.address()))
    };
    assert!(direct(&["postgresql"]));
    assert!(direct(&["h2", "postgresql"]));
    assert!(!direct(&[]), "without a name");
    assert!(!direct(&["h2"]), "with another name");
    let asked = Secure {
        protocols: Vec::new(),
        ..secure(server)
    };
    assert!(works(asked.connect(pooler.address())), "it has asked");
    let without = Pooler::of(postgres, "");
    let client = Secure {
        start: Start::Direct,
        ..secure(server)
    };
    assert!(!works(client.connect(without.address())), "TLS is off");
}

/// Every byte of a whole dialogue under TLS arrives apart, from the client and from the server: a
/// record that two reads bring stalled another pooler.
#[test]
fn split_at_every_byte_under_tls() {
    let Some((_, server)) = servers() else { return };
    let slow = dribbling(SocketAddr::from(([127, 0, 0, 1], server.port())));
    let database = format!("db = host=localhost port={} dbname={USER}\n", slow.port());
    let patient = "client_login_timeout = 0\nserver_connect_timeout = 0\n";
    let settings = offering(server, "require") + &asking(server, "verify-full") + patient;
    let pooler = Pooler::start(&database, &settings);
    for start in [Start::Asked, Start::Direct] {
        let client = Secure {
            start,
            ..secure(server)
        };
        let connect = Connect::new("db", USER);
        let mut client = client.dribble(pooler.address()).expect("a handshake");
        client.send(&connect.packet());
        let mut client = client.log_in(&connect).expect("a login");
        for text in ["one", "two"] {
            let rows = client.query(&format!(
                "SELECT '{text}', ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            ));
            assert_eq!(rows, Ok(vec![vec![text.to_owned(), "t".to_owned()]]));
        }
    }
}

/// A proxy that passes the server's bytes on one by one.
fn dribbling(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for pooler in listener.incoming().flatten() {
            let server = TcpStream::connect(server).expect("the server accepts");
            pooler.set_nodelay(true).expect("an option");
            let copies = [&pooler, &server].map(|it| it.try_clone().expect("a descriptor"));
            let [mut from_pooler, mut to_server] = copies;
            // One side has closed, if these fail.
            thread::spawn(move || drop(io::copy(&mut from_pooler, &mut to_server)));
            thread::spawn(move || drop(io::copy(&mut &server, &mut Dribble(pooler))));
        }
    });
    address
}

/// SCRAM under TLS on both sides: the client's with the pooler, and the pooler's with the server.
#[test]
fn scram_works_under_tls() {
    let Some((_, server)) = servers() else { return };
    let more = "user=by_password password='a secret'";
    let databases = server.entry("db", "localhost", more);
    let scram = "auth_type = scram-sha-256\n";
    let settings = offering(server, "require") + &asking(server, "verify-full") + scram;
    let pooler = Pooler::start(&databases, &settings);
    let log_in = |password: &str| {
        let connect = Connect {
            password: Some(password.to_owned()),
            ..Connect::new("db", "alice")
        };
        let client = secure(server).connect(pooler.address());
        let mut client = client.expect("a handshake");
        client.send(&connect.packet());
        client.log_in(&connect)
    };
    let mut client = log_in("alice's").expect("a login");
    let rows = client.query("SELECT current_user").expect("a row");
    assert_eq!(rows, [["by_password"]]);
    let refused = log_in("another").err().expect("a wrong password");
    assert_eq!(refused.message, "SASL authentication failed");
}

/// What a session sees of its server's connection.
fn server_side(pooler: &Pooler) -> String {
    let mut client = pooler.client();
    let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    client.query(sql).expect("a row").concat().concat()
}

/// Each mode for servers, at one that demands TLS and at one that has none.
#[test]
fn servers_are_asked_for_tls_as_the_mode_says() {
    let Some((postgres, server)) = servers() else {
        return;
    };
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        let databases = server.entry("db", "localhost", "");
        let pooler = Pooler::start(&databases, &asking(server, mode));
        assert_eq!(server_side(&pooler), "t", "{mode}");
    }
    let gate = crate::gate::Gate::to(postgres);
    let plain = Pooler::start(&gate.entry("db", ""), &asking(server, "prefer"));
    assert_eq!(server_side(&plain), "f", "a server without TLS");
    for (mode, text) in [
        ("disable", "no encryption"),
        // As PgBouncer: it does not try again with TLS.
        ("allow", "no encryption"),
    ] {
        let databases = server.entry("db", "localhost", "");
        refuses(&databases, &asking(server, mode), text);
    }
    let without = "server does not support TLS";
    refuses(&gate.entry("db", ""), &asking(server, "require"), without);
    // PostgreSQL has no TLS on Unix sockets: there the mode does not matter.
    let local = Pooler::start(&entry("db", postgres, ""), &asking(server, "verify-full"));
    assert_eq!(server_side(&local), "f");
}

/// A client of this pooler is not served, and the log says why.
fn refuses(databases: &str, settings: &str, why: &str) {
    let pooler = Pooler::start(databases, settings);
    let mut client = Client::connected(pooler.address());
    client.send(&Connect::new("db", USER).packet());
    wait_until(why, || pooler.log().contains(why));
    assert_eq!(pooler.pool("db", 9), 0, "a server is idle");
}

/// The authority must have signed the server's certificate, and for `verify-full` it must be for the
/// name that the configuration has.
#[test]
fn servers_prove_themselves() {
    let Some((_, server)) = servers() else { return };
    let by_name = server.entry("db", "localhost", "");
    let by_address = server.entry("db", "127.0.0.1", "");
    let verify = |mode: &str| asking(server, mode);
    let pooler = Pooler::start(&by_address, &verify("verify-ca"));
    assert_eq!(server_side(&pooler), "t", "whatever its name is");
    let failed = "certificate verify failed";
    refuses(&by_address, &verify("verify-full"), failed);
    let root = server.stranger.root();
    for mode in ["verify-ca", "verify-full"] {
        let settings = format!(
            "server_tls_sslmode = {mode}\nserver_tls_ca_file = {}\nserver_login_retry = 0",
            root.display()
        );
        refuses(&by_name, &settings, failed);
    }
}

/// The pooler shows its own certificate to a server that asks for one.
#[test]
fn the_pooler_proves_itself_by_a_certificate() {
    let Some((_, server)) = servers() else { return };
    let databases = server.entry("db", "localhost", "user=by_certificate");
    let with = |authority: &crate::certificates::Authority| {
        let (chain, key) = (
            authority.chain("by_certificate"),
            authority.key("by_certificate"),
        );
        asking(server, "verify-full")
            + &format!(
                "server_tls_cert_file = {}\nserver_tls_key_file = {}\n",
                chain.display(),
                key.display()
            )
    };
    let pooler = Pooler::start(&databases, &with(&server.authority));
    let mut client = pooler.client();
    let rows = client.query("SELECT current_user").expect("a row");
    assert_eq!(rows, [["by_certificate"]]);
    let needs = "requires a valid client certificate";
    refuses(&databases, &asking(server, "verify-full"), needs);
    let unknown = Pooler::start(&databases, &with(&server.stranger));
    let mut client = Client::connected(unknown.address());
    client.send(&Connect::new("db", USER).packet());
    wait_until("the server refuses it", || {
        unknown.log().matches("closing because").count() > 0
    });
    assert_eq!(unknown.pool("db", 9), 0, "a server is idle");
}

/// A client that nobody here wrote checks the pooler's certificate, and the name in it.
#[test]
fn psql_verifies_the_pooler() {
    let Some((postgres, server)) = servers() else {
        return;
    };
    let has_client = Command::new("psql").arg("--version").output().is_ok();
    if !has_client {
        eprintln!("SKIPPED: psql is not installed");
        return;
    }
    let pooler = Pooler::of(postgres, &offering(server, "require"));
    let psql = |host: &str, mode: &str, root: &std::path::Path| {
        let port = pooler.port();
        let connect = format!(
            "host={host} port={port} user={USER} dbname=db sslmode={mode} sslrootcert={}",
            root.display()
        );
        let mut psql = Command::new("psql");
        psql.args(["-XAtq", "-d", &connect, "-c", "SELECT 1"]);
        psql.output().expect("psql runs").status.success()
    };
    let (root, stranger) = (server.authority.root(), server.stranger.root());
    assert!(psql("localhost", "verify-full", &root));
    assert!(psql("127.0.0.1", "verify-ca", &root));
    assert!(!psql("127.0.0.1", "verify-full", &root), "another name");
    assert!(
        !psql("localhost", "verify-ca", &stranger),
        "another authority"
    );
    assert!(!psql("localhost", "disable", &root), "plain text");
}
