//! What an administrator does.

use paceline_pg_wire::frontend;

use crate::{
    client::{Client, Connect},
    pooler::{entry, Pooler},
    support::postgres::{self, USER},
    wait_until,
};

/// A client that asks during a pause is served after it.
#[test]
fn a_pause_holds_clients_and_loses_none() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "pool_mode = transaction");
    let mut client = pooler.client();
    client.query("SELECT 1").expect("a row");
    pooler.admin("PAUSE");
    client.begin("SELECT 'later'");
    wait_until("it waits", || pooler.pool("db", 3) == 1);
    pooler.admin("RESUME");
    assert_eq!(client.finish(), Ok(vec![vec!["later".to_owned()]]));
}

/// SIGTERM lets clients finish; SIGINT only transactions.
#[test]
fn signals_end_the_program_gracefully() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let mut pooler = Pooler::of(postgres, "pool_mode = transaction");
    let mut client = pooler.client();
    client.query("BEGIN").expect("a transaction");
    pooler.signal("TERM");
    wait_until("the signal", || pooler.log().contains("got SIGTERM"));
    assert_eq!(client.query("SELECT 1"), Ok(vec![vec!["1".to_owned()]]));
    client.query("COMMIT").expect("the end of a transaction");
    assert!(pooler.ended().is_none());
    drop(client);
    wait_until("the end", || pooler.ended().is_some());

    let mut pooler = Pooler::of(postgres, "pool_mode = transaction");
    let mut client = pooler.client();
    client.query("BEGIN").expect("a transaction");
    pooler.signal("INT");
    wait_until("the signal", || pooler.log().contains("got SIGINT"));
    client.query("SELECT 1").expect("the transaction goes on");
    client.query("COMMIT").expect("the end of a transaction");
    wait_until("the end", || pooler.ended().is_some());
}

/// A reload changes a database for new transactions, and drops no client.
#[test]
fn a_reload_drops_no_client() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "pool_mode = transaction");
    let mut client = pooler.client();
    client.query("SELECT 1").expect("a row");
    pooler.rewrite(
        &entry("db", postgres, "connect_query='SET work_mem = 12345'"),
        "pool_mode = transaction",
    );
    pooler.admin("RELOAD");
    wait_until("the new configuration", || {
        client.query("SHOW work_mem") == Ok(vec![vec!["12345kB".to_owned()]])
    });
    pooler.rewrite("db = nonsense", "pool_mode = transaction");
    let connect = Connect::new("pgbouncer", "admin");
    let mut console = Client::to(pooler.address(), &connect).expect("the console");
    let failure = console.query("RELOAD").expect_err("it is refused");
    assert_eq!(failure.code, "F0000");
    assert!(client.query("SELECT 1").is_ok());
}

/// Secrets that `auth_file` lacks are asked for on a server connection, also when all threads and
/// all servers are busy with logins.
#[test]
fn auth_query_logs_many_in_at_once() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let direct = Pooler::of(postgres, "");
    let mut admin = direct.client();
    for number in 0..8 {
        let name = format!("asked{number}");
        // It may be there from another run on the same server.
        let _ = admin.query(&format!(
            "CREATE ROLE {name} LOGIN PASSWORD 'secret {number}'"
        ));
    }
    let settings = format!(
        "pool_mode = transaction\nauth_type = plain\nauth_user = {USER}\nthreads = 2\n\
         default_pool_size = 2\nmax_client_conn = 200"
    );
    let pooler = Pooler::of(postgres, &settings);
    std::thread::scope(|scope| {
        for number in 0..40 {
            let pooler = &pooler;
            scope.spawn(move || {
                let number = number % 8;
                let connect = |password: String| Connect {
                    password: Some(password),
                    ..Connect::new("db", &format!("asked{number}"))
                };
                let right = connect(format!("secret {number}"));
                let mut client = Client::to(pooler.address(), &right).expect("a login");
                let rows = client.query("SELECT current_user").expect("a row");
                assert_eq!(rows, [[format!("asked{number}")]]);
                let wrong = connect("wrong".to_owned());
                let refused = Client::to(pooler.address(), &wrong)
                    .err()
                    .expect("it is refused");
                assert_eq!(refused.message, "password authentication failed");
            });
        }
    });
}

/// A session whose server is killed while a commit is on its way learns that the outcome is unknown;
/// one that is killed in an open block, that the block is rolled back.
#[test]
fn a_commit_on_its_way_is_unknown() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    for (mode, survives) in [("session", false), ("transaction", true)] {
        let pooler = Pooler::of(postgres, &format!("pool_mode = {mode}"));
        let other = Pooler::of(postgres, "");
        let mut admin = other.client();
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                    WHERE query LIKE '%pg_sleep(30)%' AND pid <> pg_backend_pid()";
        let mut client = pooler.client();
        client.begin("SELECT pg_sleep(30)");
        wait_until("it is killed", || {
            admin.query(kill).is_ok_and(|rows| !rows.is_empty())
        });
        let failure = client.finish().expect_err("its server is gone");
        // PostgreSQL's own last words, if it had time for them.
        assert!(
            ["08007", "57P01"].contains(&failure.code.as_str()),
            "{failure:?}"
        );
        assert_eq!(client.try_query("SELECT 1"), survives);
    }
}

/// `SHOW CLIENTS` said 0, however many prepared statements a client had.
#[test]
fn prepared_statements_are_counted() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(
        postgres,
        "pool_mode = transaction\nmax_prepared_statements = 10",
    );
    let mut client = pooler.client();
    let shown = || {
        let rows = pooler.admin("SHOW CLIENTS");
        let row = rows.iter().find(|row| row[2] == "db");
        // The number of the client is behind it.
        row.map(|row| row[row.len() - 2].clone())
    };
    assert_eq!(shown().as_deref(), Some("0"));
    let mut bytes = Vec::new();
    frontend::parse(&mut bytes, b"one", b"SELECT 1", &[]);
    frontend::parse(&mut bytes, b"two", b"SELECT 2", &[]);
    frontend::sync(&mut bytes);
    client.send(&bytes);
    client.finish().expect("both are parsed");
    assert_eq!(shown().as_deref(), Some("2"));
}
