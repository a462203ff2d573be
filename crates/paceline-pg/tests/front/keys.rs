//! Keys of the configuration, each by what it does to clients.

use std::{
    fs,
    io::{self, Write},
    net::{Shutdown, TcpStream},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::{SocketAddr, UnixListener, UnixStream},
        },
    },
    process::Command,
    thread,
};

use paceline_pg_wire::frontend;

use crate::{
    client::{Client, Connect},
    pooler::{entry, Pooler},
    support::postgres::{self, PORT, USER},
    wait_until,
};

/// A statement in messages of the extended protocol.
fn extended(sql: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    frontend::parse(&mut bytes, b"", sql.as_bytes(), &[]);
    frontend::bind(&mut bytes, b"", b"", &[]);
    frontend::execute(&mut bytes, b"", 0);
    frontend::sync(&mut bytes);
    bytes
}

/// Simple queries may hold several statements, which injected text uses.
#[test]
fn disable_pqexec_refuses_simple_queries_alone() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    for mode in ["session", "transaction"] {
        let pooler = Pooler::of(
            postgres,
            &format!("disable_pqexec = 1\npool_mode = {mode}\ndefault_pool_size = 1"),
        );
        let backend = |client: &mut Client| {
            client.send(&extended("SELECT pg_backend_pid()"));
            client.finish().expect("a row").concat()
        };
        let mut first = pooler.client();
        let before = backend(&mut first);
        let failure = first.query("SELECT 1").expect_err("it is refused");
        assert_eq!(
            (failure.code.as_str(), failure.message.as_str()),
            ("08P01", "PQexec disallowed")
        );
        assert!(!first.try_query("SELECT 1"), "it is closed");
        // The server has seen nothing of it.
        assert_eq!(backend(&mut pooler.client()), before, "{mode}");
        let rows = pooler.admin("SHOW VERSION");
        assert_eq!(rows.len(), 1, "the console speaks nothing else");
    }
}

/// A message that is longer than the limit ends its sender, in both directions.
#[test]
fn max_packet_size_holds_in_both_directions() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "max_packet_size = 2000\npool_mode = transaction");
    let row = |length: usize| format!("SELECT repeat('x', {length})");
    let mut client = pooler.client();
    // The type, the length, the count of values, and the length of one value.
    let fits = client.query(&row(2000 - 11)).expect("the longest row");
    assert_eq!(fits.concat().concat().len(), 2000 - 11);
    let many = "SELECT repeat('x', 1000) FROM generate_series(1, 100)";
    assert_eq!(client.query(many).expect("short rows").len(), 100);
    // The statement has run: nothing shows whether it has committed.
    let failure = client.query(&row(2000 - 10)).expect_err("one byte more");
    assert_eq!(failure.code, "08007");
    assert!(failure.message.contains("max_packet_size"), "{failure:?}");
    let mut client = pooler.client();
    let text = |length: usize| format!("SELECT '{}'", "x".repeat(length));
    assert!(client.query(&text(1900)).is_ok());
    for prefix in ["", "BEGIN"] {
        let mut client = pooler.client();
        if !prefix.is_empty() {
            client.query(prefix).expect("a transaction");
        }
        let failure = client.query(&text(2000)).expect_err("too long");
        assert_eq!(failure.code, "54000", "{prefix}");
        assert!(failure.message.contains("max_packet_size"), "{failure:?}");
    }
    pooler.admin("SET max_packet_size = 100000");
    assert!(pooler.client().query(&text(2000)).is_ok());
}

/// A database that was made from `*` is forgotten when nothing uses it, and only then.
#[test]
fn autodb_idle_timeout_forgets_what_is_unused() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let settings = "autodb_idle_timeout = 0.5\nserver_idle_timeout = 0.5\npool_mode = transaction";
    let databases = entry("*", postgres, "") + &entry("db", postgres, "");
    let pooler = Pooler::start(&databases, settings);
    let names = || {
        let rows = pooler.admin("SHOW DATABASES").into_iter();
        rows.map(|row| row[0].clone()).collect::<Vec<_>>()
    };
    let connect = |name| Client::to(pooler.address(), &Connect::new(name, USER));
    let mut stays = connect("stays").expect("a login");
    stays.query("SELECT 1").expect("a row");
    connect("leaves")
        .expect("a login")
        .query("SELECT 1")
        .expect("a row");
    assert!(names().contains(&"leaves".to_owned()));
    wait_until("it is forgotten", || {
        !names().contains(&"leaves".to_owned())
    });
    assert!(pooler.log().contains("dropping database leaves"));
    let names = names();
    for kept in ["stays", "db"] {
        assert!(names.contains(&kept.to_owned()), "{kept}: {names:?}");
    }
    assert!(stays.query("SELECT 1").is_ok());
    let mut again = connect("leaves").expect("it is made anew");
    assert!(again.query("SELECT 1").is_ok());
}

/// A connection that sends nothing costs the program nothing, until the key is turned off.
#[test]
fn tcp_defer_accept_leaves_silent_connections_to_the_kernel() {
    let pooler = Pooler::start("db = host=127.0.0.1", "");
    let open = || {
        let folder = format!("/proc/{}/fd", pooler.id());
        fs::read_dir(folder).expect("it runs").count()
    };
    let ask = || pooler.admin("SHOW VERSION");
    ask();
    let before = open();
    let silent = |_| TcpStream::connect(pooler.address()).expect("the kernel accepts");
    // The console's own connection is made later: it would be accepted behind these.
    let early: Vec<TcpStream> = (0..3).map(silent).collect();
    ask();
    wait_until("the console's connection ends", || open() <= before);
    pooler.admin("SET tcp_defer_accept = 0");
    let late: Vec<TcpStream> = (0..3).map(silent).collect();
    wait_until("the program has them", || open() >= before + late.len());
    drop((early, late));
}

/// The process has the rights of the user that it becomes, and of that user's groups alone.
#[test]
fn the_process_becomes_the_user_of_its_configuration() {
    let own = fs::metadata("/proc/self").expect("/proc").uid();
    if own != 0 {
        // Not captured by the test harness: a skipped test must be seen.
        let _ = writeln!(io::stderr(), "SKIPPED: only root may become another user");
        return;
    }
    let settings = "user = nobody\nunix_socket_mode = 0750";
    let pooler = Pooler::start_after("db = host=127.0.0.1", settings, |folder| {
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(folder, all).expect("its rights");
    });
    let status = fs::read_to_string(format!("/proc/{}/status", pooler.id())).expect("it runs");
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let line = line.expect("a line of the status");
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (uids, gids) = (line("Uid:"), line("Gid:"));
    assert!(
        uids.iter().all(|uid| *uid == uids[0] && uid != "0"),
        "{uids:?}"
    );
    assert!(
        gids.iter().all(|gid| *gid == gids[0] && gid != "0"),
        "{gids:?}"
    );
    let id = Command::new("id").args(["-G", "nobody"]).output();
    let id = String::from_utf8(id.expect("id runs").stdout).expect("numbers");
    let sorted = |mut groups: Vec<String>| {
        groups.sort();
        groups
    };
    let expected = id.split_whitespace().map(str::to_owned).collect();
    assert_eq!(sorted(line("Groups:")), sorted(expected));
    // Every thread has changed.
    let tasks = fs::read_dir(format!("/proc/{}/task", pooler.id())).expect("it runs");
    for task in tasks.flatten() {
        let owner = fs::metadata(task.path()).expect("a thread").uid();
        assert_eq!(owner.to_string(), uids[0]);
    }
    let log = fs::metadata(pooler.folder().join("log")).expect("the log");
    assert_eq!(
        log.uid().to_string(),
        uids[0],
        "a reload must be able to open it"
    );
}

/// A group may be given the right to connect.
#[test]
fn the_socket_file_has_the_group_of_the_configuration() {
    let own = fs::metadata("/proc/self").expect("/proc");
    // Only root may give a file to a group that it is not in.
    let group = if own.uid() == 0 { 4711 } else { own.gid() };
    let settings = format!("unix_socket_mode = 0770\nunix_socket_group = {group}");
    let pooler = Pooler::start("db = host=127.0.0.1", &settings);
    let socket = fs::metadata(pooler.folder().join(".s.PGSQL.0")).expect("the socket");
    assert_eq!((socket.gid(), socket.mode() & 0o7777), (group, 0o770));
}

/// Copies what arrives on a socket in the abstract namespace to PostgreSQL, and back.
fn serve_abstract(name: &str, target: std::path::PathBuf) {
    let address = SocketAddr::from_abstract_name(name).expect("a short name");
    let listener = UnixListener::bind_addr(&address).expect("a free name");
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (
                client.expect("a connection"),
                UnixStream::connect(&target).expect("the server accepts"),
            );
            let mut back = (
                server.try_clone().expect("a descriptor"),
                client.try_clone().expect("a descriptor"),
            );
            thread::spawn(move || {
                // Either end may be gone.
                let _ = io::copy(&mut back.0, &mut back.1);
                let _ = back.1.shutdown(Shutdown::Both);
            });
            thread::spawn(move || {
                let _ = io::copy(&mut client, &mut server);
                let _ = server.shutdown(Shutdown::Both);
            });
        }
    });
}

/// A name that begins with `@` is no file, for clients and for servers.
#[test]
fn abstract_sockets_serve_clients_and_reach_servers() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let name = format!("paceline-keys-{}", std::process::id());
    serve_abstract(&format!("{name}-server/.s.PGSQL.{PORT}"), postgres.socket());
    let databases = format!("db = host=@{name}-server port={PORT} dbname={USER}");
    let pooler = Pooler::start(&databases, &format!("unix_socket_dir = @{name}"));
    let socket = format!("@{name}/.s.PGSQL.0");
    assert!(pooler
        .log()
        .contains(&format!("listening on unix:{socket}")));
    let address = SocketAddr::from_abstract_name(&socket[1..]).expect("a short name");
    let stream = UnixStream::connect_addr(&address).expect("the pooler accepts");
    let mut client = Client::of_unix(stream);
    let connect = Connect::new("db", USER);
    client.send(&connect.packet());
    let mut client = client.log_in(&connect).expect("a login");
    assert_eq!(client.query("SELECT 7"), Ok(vec![vec!["7".to_owned()]]));
}

/// A session has its server for itself, so it can have any parameter there; the next session has none
/// of them.
#[test]
fn a_session_passes_any_parameter_and_leaves_none() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let connect = || {
        Connect::new("db", USER)
            .with("statement_timeout", "12345")
            .with(
                "options",
                "-c my.own=it\\ is -c search_path=pg_catalog,\\ \"Odd\"",
            )
    };
    let show = |client: &mut Client, name: &str| {
        let rows = client.query(&format!("SHOW {name}"));
        rows.map(|rows| rows.concat().concat())
    };
    for (reset, keeps_server) in [("DISCARD ALL", true), ("SELECT 1", false)] {
        let settings = format!("default_pool_size = 1\nserver_reset_query = {reset}");
        let pooler = Pooler::of(postgres, &settings);
        let mut other = pooler.client();
        let plain = ["statement_timeout", "search_path"].map(|name| show(&mut other, name));
        let backend = other.query("SELECT pg_backend_pid()");
        drop(other);
        let mut client = Client::to(pooler.address(), &connect()).expect("a login");
        assert_eq!(
            show(&mut client, "statement_timeout"),
            Ok("12345ms".to_owned())
        );
        assert_eq!(show(&mut client, "my.own"), Ok("it is".to_owned()));
        let path = show(&mut client, "search_path");
        assert_eq!(path, Ok("pg_catalog, \"Odd\"".to_owned()));
        drop(client);
        let mut other = pooler.client();
        let after = ["statement_timeout", "search_path"].map(|name| show(&mut other, name));
        assert_eq!(after, plain);
        let is_same = other.query("SELECT pg_backend_pid()") == backend;
        assert_eq!(is_same, keeps_server, "{reset}");
    }
}

/// A client that shares servers gets the error that it has always got, and so does one whose
/// parameter the server refuses.
#[test]
fn unknown_parameters_are_refused_where_servers_are_shared() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let connect = Connect::new("db", USER).with("statement_timeout", "12345");
    let pooler = Pooler::of(postgres, "pool_mode = transaction");
    let refused = Client::to(pooler.address(), &connect)
        .err()
        .expect("an error");
    assert_eq!(
        refused.message,
        "unsupported startup parameter: statement_timeout"
    );
    let pooler = Pooler::of(postgres, "default_pool_size = 1");
    let nonsense = Connect::new("db", USER).with("statement_timeout", "soon");
    let mut client = Client::to(pooler.address(), &nonsense).expect("a login");
    let failure = client.query("SELECT 1").expect_err("the server refuses it");
    assert_eq!(failure.message, "invalid server parameter");
    assert!(pooler.client().query("SELECT 1").is_ok());
}

/// After a reload to transaction mode the server of such a client is still its own.
#[test]
fn a_reload_gives_no_altered_server_away() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "default_pool_size = 2");
    let connect = Connect::new("db", USER).with("statement_timeout", "12345");
    let mut altered = Client::to(pooler.address(), &connect).expect("a login");
    let backend = altered.query("SELECT pg_backend_pid()").expect("a row");
    pooler.rewrite(
        &entry("db", postgres, ""),
        "default_pool_size = 2\npool_mode = transaction",
    );
    pooler.admin("RELOAD");
    assert_eq!(
        altered.query("SELECT pg_backend_pid()"),
        Ok(backend.clone())
    );
    let mut other = pooler.client();
    for _ in 0..5 {
        assert_ne!(other.query("SELECT pg_backend_pid()"), Ok(backend.clone()));
        assert_eq!(
            other.query("SHOW statement_timeout"),
            Ok(vec![vec!["0".to_owned()]])
        );
    }
    drop(altered);
    wait_until("its server is closed", || {
        pooler.log().contains("can't be reset")
    });
}
