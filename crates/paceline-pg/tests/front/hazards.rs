//! Hazards of the protocol that need sockets, by their names.

use std::thread;

use paceline_pg_wire::{frontend, startup};

use crate::{
    client::{Client, Connect},
    pooler::{entry, Pooler},
    support::postgres::{self, USER},
    wait_until,
};

/// A reply that goes to another client than the one that has asked shows another number.
#[test]
fn crossed_replies_by_sequence_number() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "pool_mode = transaction\ndefault_pool_size = 3");
    thread::scope(|scope| {
        for number in 0..24_u32 {
            let pooler = &pooler;
            scope.spawn(move || {
                let mut client = pooler.client();
                for turn in 0..40 {
                    let expected = format!("{number}.{turn}");
                    let rows = client
                        .query(&format!("SELECT '{expected}'"))
                        .expect("a row");
                    assert_eq!(rows, [[expected]]);
                }
            });
        }
    });
}

/// The bytes of a login and of queries may arrive one by one.
#[test]
fn split_at_every_byte() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "pool_mode = transaction");
    let connect = Connect::new("db", USER);
    let packet = connect.packet();
    let mut query = Vec::new();
    frontend::query(&mut query, b"SELECT 'whole'");
    for step in [1, 2, 3, 7] {
        let mut client = Client::connected(pooler.address());
        packet.chunks(step).for_each(|piece| client.send(piece));
        let mut client = client.log_in(&connect).expect("a login");
        query.chunks(step).for_each(|piece| client.send(piece));
        assert_eq!(client.finish(), Ok(vec![vec!["whole".to_owned()]]));
    }
}

/// Bytes behind an SSLRequest could be those of an attacker: the connection is closed.
#[test]
fn bytes_behind_sslrequest() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "");
    let mut client = Client::connected(pooler.address());
    let mut bytes = Vec::new();
    startup::ask_tls(&mut bytes);
    bytes.extend(Connect::new("db", USER).packet());
    client.send(&bytes);
    assert_eq!(client.rest(), b"");
}

/// What a client has set is set on whichever server it gets, exactly as it has set it.
#[test]
fn parameters_follow_their_client() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "pool_mode = transaction\ndefault_pool_size = 1");
    let connect = |name: &str| Connect::new("db", USER).with("application_name", name);
    let names = ["abc", "ABC", "it's \\ \"x"];
    let mut clients = names.map(|name| {
        let client = Client::to(pooler.address(), &connect(name)).expect("a login");
        assert_eq!(client.parameter("application_name"), Some(name));
        client
    });
    for _ in 0..3 {
        for (client, name) in clients.iter_mut().zip(names) {
            let rows = client.query("SHOW application_name").expect("a row");
            assert_eq!(rows, [[name]]);
        }
    }
}

/// One user's time-out ended the clients of all others in PgBouncer.
#[test]
fn user_timeout_leaves_others() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let settings = format!("pool_mode = transaction\n[users]\n{USER} = client_idle_timeout=1\n");
    let databases = entry("db", postgres, &format!("user={USER}"));
    let pooler = Pooler::start(&databases, &settings);
    let mut other = Client::to(pooler.address(), &Connect::new("db", "alice")).expect("a login");
    let mut limited = pooler.client();
    let failure = limited.finish().expect_err("it is closed");
    assert_eq!(failure.message, "client_idle_timeout");
    assert!(other.query("SELECT 1").is_ok());
}

/// A client whose query waits has its turn before those that come later.
#[test]
fn the_first_that_waits_is_the_first_that_is_served() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "pool_mode = transaction\ndefault_pool_size = 1");
    let mut holder = pooler.client();
    holder
        .query("CREATE TEMP TABLE IF NOT EXISTS turns (who int)")
        .expect("a table");
    holder.query("BEGIN").expect("a transaction");
    let mut waiting: Vec<Client> = Vec::new();
    for number in 0..5 {
        let mut client = pooler.client();
        client.begin(&format!("INSERT INTO turns VALUES ({number})"));
        waiting.push(client);
        wait_until("it waits", || pooler.pool("db", 3) == number + 1);
    }
    holder.query("COMMIT").expect("the end of a transaction");
    for client in &mut waiting {
        client.finish().expect("its turn");
    }
    let rows = holder.query("SELECT who FROM turns").expect("rows");
    assert_eq!(rows.concat(), ["0", "1", "2", "3", "4"]);
}

/// How often in a row PostgreSQL must be found blocked.
const MANY_QUESTIONS: u32 = 30;

/// A client that takes nothing of a large result holds its server, and nothing else; the memory of
/// the pooler does not grow with the result.
#[test]
fn a_slow_reader_is_not_read_ahead() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "pool_mode = transaction\ndefault_pool_size = 2");
    let mut slow = pooler.client();
    slow.begin("SELECT repeat('x', 1000) FROM generate_series(1, 200000)");
    let mut quick = pooler.client();
    // The result has 200 MB. A pooler that reads on keeps PostgreSQL writing; one that does not
    // leaves it blocked, at every one of many questions.
    let mut blocked = 0;
    wait_until("PostgreSQL waits for the slow reader", || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite'";
        let rows = quick.query(sql).expect("a count");
        blocked = if rows.concat() == ["1"] {
            blocked + 1
        } else {
            0
        };
        blocked == MANY_QUESTIONS
    });
    let status = std::fs::read_to_string(format!("/proc/{}/status", pooler.id()));
    let status = status.expect("the program runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|text| text.trim().split(' ').next()?.parse::<u64>().ok());
    assert!(resident.expect("a number") < 100_000, "{resident:?} kB");
    let rows = slow.finish().expect("the whole result");
    assert_eq!(rows.len(), 200_000);
}

/// Statements that one client has prepared exist on whichever server it gets.
#[test]
fn prepared_statements_follow_their_client() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "pool_mode = transaction\ndefault_pool_size = 3");
    let prepare = |client: &mut Client, number: i32| {
        let mut bytes = Vec::new();
        let sql = format!("SELECT {number}");
        frontend::parse(&mut bytes, b"mine", sql.as_bytes(), &[]);
        frontend::sync(&mut bytes);
        client.send(&bytes);
        client.finish().expect("a statement");
    };
    thread::scope(|scope| {
        for number in 0..8 {
            let pooler = &pooler;
            scope.spawn(move || {
                let mut client = pooler.client();
                prepare(&mut client, number);
                for _ in 0..40 {
                    let mut bytes = Vec::new();
                    frontend::bind(&mut bytes, b"", b"mine", &[]);
                    frontend::execute(&mut bytes, b"", 0);
                    frontend::sync(&mut bytes);
                    client.send(&bytes);
                    let rows = client.finish().expect("a row");
                    assert_eq!(rows, [[number.to_string()]]);
                }
            });
        }
    });
}
