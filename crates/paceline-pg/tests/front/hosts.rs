//! Several hosts with roles: reads reach replicas, writes the primary, and a failover loses nothing
//! that was acknowledged.

use std::{
    collections::HashSet,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Mutex,
    },
    thread,
};

use paceline_pg_wire::{backend::Reply, frontend, Message};

use crate::{
    client::{Client, Connect, Failure},
    cluster::Cluster,
    pooler::{entry, Pooler},
    support::postgres::{self, USER},
    wait_until,
};

/// Only a change of roles, and no back-off that is over, lets parked clients go on.
const SETTINGS: &str = "pool_mode = transaction\ndefault_pool_size = 8\n\
     host_check_period = 0.2\nserver_login_retry = 600";

/// The columns of `SHOW HOSTS`.
const HOST: usize = 1;
const STATE: usize = 3;

fn client(pooler: &Pooler, database: &str) -> Client {
    Client::to(pooler.address(), &Connect::new(database, USER)).expect("a login")
}

/// The state of the host in the folder of this name, as the console shows it.
fn state(pooler: &Pooler, database: &str, name: &str) -> String {
    let rows = pooler.admin("SHOW HOSTS");
    let folder = format!("/{name}");
    let row = rows
        .iter()
        .find(|row| row[0] == database && row[HOST].ends_with(&folder));
    row.map_or_else(String::new, |row| row[STATE].clone())
}

/// The name of the server that a client reaches, and whether it is a standby.
const WHERE: &str = "SELECT current_setting('cluster_name'), pg_is_in_recovery()";

/// What the writers know of their rows.
#[derive(Default)]
struct Ledger {
    numbers: AtomicU64,
    done: Mutex<HashSet<u64>>,
    unknown: Mutex<HashSet<u64>>,
    rolled_back: Mutex<HashSet<u64>>,
}

impl Ledger {
    fn done(&self) -> usize {
        self.done.lock().expect("a ledger").len()
    }

    fn note(&self, number: u64, outcome: Result<(), Failure>) {
        let list = match &outcome {
            Ok(()) => &self.done,
            Err(failure) if failure.code == "08007" => &self.unknown,
            Err(failure) if failure.code == "08006" => &self.rolled_back,
            Err(other) => panic!("an outcome that is neither known nor unknown: {other:?}"),
        };
        list.lock().expect("a ledger").insert(number);
    }

    /// Writes row after row on one session, which a failover does not end.
    fn write(&self, pooler: &Pooler, is_over: &AtomicBool) {
        let mut client = client(pooler, "rw");
        while !is_over.load(Ordering::Relaxed) {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let insert = format!("INSERT INTO ledger VALUES ({number})");
            let outcome = match number % 2 {
                0 => client.query(&insert).map(drop),
                _ => in_block(&mut client, &insert),
            };
            self.note(number, outcome);
        }
    }

    /// Compares with what is there.
    fn check(&self, found: &str) {
        let rows: Vec<u64> = found.lines().map(|it| it.parse().expect("a row")).collect();
        let found: HashSet<u64> = rows.iter().copied().collect();
        assert_eq!(rows.len(), found.len(), "a row is there twice");
        let done = self.done.lock().expect("a ledger");
        let lost: Vec<_> = done.difference(&found).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        let rolled_back = self.rolled_back.lock().expect("a ledger");
        let there: Vec<_> = rolled_back.intersection(&found).collect();
        assert!(there.is_empty(), "rolled back and there: {there:?}");
        let unknown = self.unknown.lock().expect("a ledger");
        let strange = found.iter();
        let strange: Vec<_> = strange
            .filter(|it| !done.contains(it) && !unknown.contains(it))
            .collect();
        assert!(
            strange.is_empty(),
            "there, and not acknowledged: {strange:?}"
        );
        println!(
            "acknowledged {}, rolled back {}, unknown {}, of them done {}",
            done.len(),
            rolled_back.len(),
            unknown.len(),
            unknown.intersection(&found).count()
        );
    }
}

/// A block that has failed is left by a rollback, also if its server was lost.
fn in_block(client: &mut Client, insert: &str) -> Result<(), Failure> {
    client.query("BEGIN")?;
    if let Err(failure) = client.query(insert) {
        client.query("ROLLBACK")?;
        return Err(failure);
    }
    client.query("COMMIT").map(drop)
}

/// The primary is killed with all its sessions while clients write. They wait, a replica is
/// promoted, and they go on; when the old primary returns, it gets none of them.
#[test]
fn a_failover_loses_nothing() {
    let Some(mut cluster) = Cluster::start(3) else {
        return;
    };
    let databases = [
        cluster.entry("rw", "roles=auto target_session_attrs=primary"),
        cluster.entry("ro", "roles=auto target_session_attrs=standby"),
    ];
    let pooler = Pooler::start(&databases.concat(), SETTINGS);
    client(&pooler, "rw")
        .query("CREATE TABLE ledger (number bigint)")
        .expect("a table");
    reads_reach_replicas(&pooler);
    let (ledger, is_over) = (Ledger::default(), AtomicBool::new(false));
    let primary = thread::scope(|scope| {
        let writers = [(); 6].map(|()| scope.spawn(|| ledger.write(&pooler, &is_over)));
        wait_until("rows", || ledger.done() > 200);
        cluster.kill("a");
        wait_until("the primary is down", || {
            state(&pooler, "rw", "a") == "down"
        });
        wait_until("all writers are parked", || pooler.pool("rw", 3) == 6);
        let before = ledger.done();
        let primary = cluster.promote_best();
        wait_until("the writers go on", || {
            ledger.done() > before + 200 || writers.iter().any(|it| it.is_finished())
        });
        cluster.run("a");
        wait_until("the old primary is fenced", || {
            state(&pooler, "rw", "a") == "fenced"
        });
        let before = ledger.done();
        wait_until("the writers go on", || {
            ledger.done() > before + 50 || writers.iter().any(|it| it.is_finished())
        });
        is_over.store(true, Ordering::Relaxed);
        primary
    });
    reads_leave_the_new_primary(&pooler, primary);
    ledger.check(&cluster.ask(primary, "SELECT number FROM ledger"));
    let stays = cluster.ask("a", "SELECT pg_is_in_recovery()");
    assert_eq!(stays, "f", "the old primary takes itself for one");
    check_log(&pooler.log());
}

fn reads_reach_replicas(pooler: &Pooler) {
    let mut writer = client(pooler, "rw");
    assert_eq!(writer.query(WHERE).expect("a row"), [["a", "f"]]);
    // Each holds a server of its own.
    let mut readers: Vec<_> = (0..6).map(|_| client(pooler, "ro")).collect();
    let mut names = Vec::new();
    for reader in &mut readers {
        reader.query("BEGIN").expect("a transaction");
        let row = reader.query(WHERE).expect("a row").concat();
        assert_eq!(row[1], "t", "a read reached the primary");
        names.push(row[0].clone());
    }
    let on_b = names.iter().filter(|name| *name == "b").count();
    assert_eq!(on_b, 3, "the replicas share the readers: {names:?}");
    for reader in &mut readers {
        // Its server stays, idle.
        reader.query("COMMIT").expect("an end");
    }
    for (host, expected) in [("a", "primary"), ("b", "replica"), ("c", "replica")] {
        wait_until("the console shows the roles", || {
            state(pooler, "ro", host) == expected
        });
    }
}

/// Connections to the promoted replica were there, and serve no reader any more.
fn reads_leave_the_new_primary(pooler: &Pooler, primary: &str) {
    wait_until("the change is known", || {
        state(pooler, "ro", primary) == "primary"
    });
    let mut readers: Vec<_> = (0..6).map(|_| client(pooler, "ro")).collect();
    for reader in &mut readers {
        reader.query("BEGIN").expect("a transaction");
        let row = reader.query(WHERE).expect("a row").concat();
        assert!(row[1] == "t" && row[0] != primary, "{row:?}");
    }
}

/// The log names each change.
fn check_log(log: &str) {
    let changes = |what: &str| log.lines().any(|line| line.contains(what));
    for change in ["primary -> down", "replica -> primary", "down -> fenced"] {
        assert!(changes(change), "no {change} in the log");
    }
}

/// A primary that hangs answers nothing, and its connections do not end. When another host has taken
/// its place, clients that wait for it learn that the outcome is unknown.
#[test]
fn a_primary_that_hangs_is_replaced() {
    let Some(mut cluster) = Cluster::start(3) else {
        return;
    };
    let databases = cluster.entry("rw", "roles=auto target_session_attrs=primary");
    let pooler = Pooler::start(&databases, SETTINGS);
    let (mut hangs, mut waits) = (client(&pooler, "rw"), client(&pooler, "rw"));
    let table = "CREATE TABLE ledger (number bigint)";
    waits.query(table).expect("a table");
    hangs.begin("INSERT INTO ledger SELECT 1 FROM pg_sleep(3600)");
    wait_until("the query runs", || {
        let runs = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        cluster.ask("a", runs) == "1"
    });
    cluster.signal("a", "-STOP");
    wait_until("the primary is down", || {
        state(&pooler, "rw", "a") == "down"
    });
    waits.begin("INSERT INTO ledger VALUES (2)");
    wait_until("the client is parked", || pooler.pool("rw", 3) == 1);
    let primary = cluster.promote_best();
    waits.finish().expect("it goes on");
    let failure = hangs.finish().expect_err("its server hangs");
    assert_eq!(failure.code, "08007");
    let again = hangs.query("SELECT number FROM ledger");
    assert_eq!(again.expect("its session goes on"), [["2"]]);
    cluster.kill("a");
    let found = cluster.ask(primary, "SELECT number FROM ledger");
    assert_eq!(found, "2");
}

/// Clients do not wait for ever for a role that no host has.
#[test]
fn clients_without_a_host_get_an_error_in_time() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let databases = entry("db", postgres, "roles=auto target_session_attrs=standby");
    let pooler = Pooler::start(
        &databases,
        "query_wait_timeout = 1\nhost_check_period = 0.2",
    );
    let refused = Client::to(pooler.address(), &Connect::new("db", USER));
    let failure = refused.err().expect("there is no standby");
    assert_eq!(failure.code, "57P03", "{failure:?}");
    let folder = postgres.socket_folder().display().to_string();
    let row = pooler.admin("SHOW HOSTS").remove(0);
    assert_eq!((&row[HOST], row[STATE].as_str()), (&folder, "primary"));
    let settings = "query_wait_timeout = 1";
    let databases = entry("db", postgres, "roles=auto target_session_attrs=any");
    pooler.rewrite(&databases, settings);
    pooler.admin("RELOAD");
    let answer = pooler.client().query("SELECT 1");
    assert_eq!(answer.expect("any role suits now"), [["1"]]);
    let databases = entry("db", postgres, "roles=equal");
    pooler.rewrite(&databases, settings);
    pooler.admin("RELOAD");
    let answer = pooler.client().query("SELECT 1");
    assert_eq!(answer.expect("it answers"), [["1"]]);
    wait_until("the host is asked", || {
        pooler.admin("SHOW HOSTS")[0][STATE] == "equal"
    });
    pooler.rewrite(&entry("db", postgres, ""), settings);
    pooler.admin("RELOAD");
    assert!(pooler.admin("SHOW HOSTS").is_empty(), "as in PgBouncer");
    let answer = pooler.client().query("SELECT 1");
    assert_eq!(answer.expect("it answers"), [["1"]]);
}

/// A commit waits for a standby that is not there, and its wait is cancelled: PostgreSQL reports
/// success. With `strict_commit` the outcome is unknown, in both forms of the protocol.
#[test]
fn a_commit_without_its_standby_is_unknown() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let databases = [
        cluster.entry("strict", "strict_commit=1"),
        cluster.entry("plain", ""),
    ];
    let pooler = Pooler::start(&databases.concat(), "pool_mode = transaction");
    let mut plain = client(&pooler, "plain");
    let table = "SET LOCAL synchronous_commit = local; CREATE TABLE t (n int)";
    plain.query(table).expect("a table");
    plain.begin("INSERT INTO t VALUES (1)");
    cancel_wait(&cluster, &plain);
    plain.finish().expect("PostgreSQL reports success");
    let mut strict = client(&pooler, "strict");
    strict.begin("INSERT INTO t VALUES (2)");
    cancel_wait(&cluster, &strict);
    let failure = strict.finish().expect_err("it is not on the standby");
    assert_eq!(failure.code, "08007");
    strict.begin("BEGIN; INSERT INTO t VALUES (3); COMMIT; SELECT 1");
    cancel_wait(&cluster, &strict);
    assert_eq!(tags(&mut strict), b"CCEZ", "nothing but Z after an error");
    extended(&cluster, &mut strict);
    let count = strict.query("SELECT count(*) FROM t").expect("a row");
    assert_eq!(count, [["4"]], "the session goes on");
}

/// The same by Parse, Bind, Execute, Sync.
fn extended(cluster: &Cluster, client: &mut Client) {
    let mut bytes = Vec::new();
    frontend::parse(&mut bytes, b"", b"INSERT INTO t VALUES (4)", &[]);
    frontend::bind(&mut bytes, b"", b"", &[]);
    frontend::execute(&mut bytes, b"", 0);
    frontend::sync(&mut bytes);
    client.send(&bytes);
    cancel_wait(cluster, client);
    assert_eq!(tags(client), b"12CEZ");
}

/// The types of the replies up to `Z`. An error must be 08007.
fn tags(client: &mut Client) -> Vec<u8> {
    let mut tags = Vec::new();
    while tags.last() != Some(&b'Z') {
        let (tag, body) = client.message().expect("an answer");
        let reply = Reply::read(Message { tag, body: &body });
        if let Reply::Error(report) = reply.expect("a message") {
            assert_eq!(report.code(), b"08007");
        }
        tags.push(tag);
    }
    tags
}

/// Waits until a commit waits for its standby, and cancels that.
fn cancel_wait(cluster: &Cluster, client: &Client) {
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    wait_until("a commit waits", || cluster.ask("a", waits) == "1");
    client.cancel();
}
