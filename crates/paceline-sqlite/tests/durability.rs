//! What was acknowledged survives the end of the process, and a standby takes over.

mod common;

use std::{
    net::SocketAddr,
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

use common::{code, url, wait_until, Folder, Process};
use postgres::{Client, NoTls};

/// A row: its writer, and its number.
type Row = (i32, i32);

/// What writers have seen of a server that was killed among them.
struct Ledger {
    acknowledged: Vec<Row>,
    /// The last row that each writer has sent: whether it was committed, the writer does not know.
    tried: Vec<Row>,
}

impl Ledger {
    /// Writers insert numbers and note what was acknowledged; then the server is killed.
    fn write_until_killed(process: Process) -> Self {
        let mut client = common::connect(process.address);
        client
            .batch_execute("CREATE TABLE t(writer int, n int)")
            .expect("a table");
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let writers: Vec<_> = (0..6)
            .map(|writer| {
                let (address, acknowledged) = (process.address, Arc::clone(&acknowledged));
                thread::spawn(move || write(address, writer, &acknowledged))
            })
            .collect();
        wait_until("there are commits", || {
            acknowledged.lock().expect("no panic").len() > 500
        });
        process.kill();
        let tried = writers
            .into_iter()
            .map(|writer| writer.join().expect("no panic"));
        let tried = tried.collect();
        let acknowledged = acknowledged.lock().expect("no panic").clone();
        Self {
            acknowledged,
            tried,
        }
    }

    /// Compares with what a server has: nothing is lost, doubled or invented.
    fn check(&self, client: &mut Client) {
        let rows = client.query("SELECT writer, n FROM t", &[]).expect("rows");
        let mut found: Vec<Row> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        found.sort_unstable();
        let all = found.len();
        found.dedup();
        assert_eq!(found.len(), all, "a row is doubled");
        let is_lost = |row: &&Row| found.binary_search(row).is_err();
        let lost: Vec<_> = self.acknowledged.iter().filter(is_lost).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        let unknown = found.iter().filter(|row| !self.acknowledged.contains(row));
        assert!(unknown.clone().all(|row| self.tried.contains(row)));
        let (acknowledged, unknown) = (self.acknowledged.len(), unknown.count());
        println!("{acknowledged} acknowledged, {unknown} unknown and done");
    }
}

/// Inserts numbers until the server is gone. Returns the last row that was sent.
fn write(address: SocketAddr, writer: i32, acknowledged: &Mutex<Vec<Row>>) -> Row {
    let mut client = common::connect(address);
    let insert = "INSERT INTO t VALUES ($1, $2)";
    let mut n = 0;
    while client.execute(insert, &[&writer, &n]).is_ok() {
        acknowledged.lock().expect("no panic").push((writer, n));
        n += 1;
    }
    (writer, n)
}

/// The log of a killed process is recovered by the next one.
#[test]
fn acknowledged_commits_survive_a_kill() {
    let folder = Folder::new();
    let ledger = Ledger::write_until_killed(Process::start(folder.path(), &[]));
    let process = Process::start(folder.path(), &[]);
    ledger.check(&mut common::connect(process.address));
}

/// A standby that has the file open takes over from a killed process.
#[test]
fn acknowledged_commits_survive_a_takeover() {
    let folder = Folder::new();
    let writer = Process::start(folder.path(), &[]);
    let standby = Process::start(folder.path(), &[]);
    let mut client = common::connect(standby.address);
    let ledger = Ledger::write_until_killed(writer);
    let last = "INSERT INTO t VALUES (-1, -1)";
    wait_until("the standby writes", || client.batch_execute(last).is_ok());
    client
        .batch_execute("DELETE FROM t WHERE writer = -1")
        .expect("it writes");
    ledger.check(&mut client);
}

/// A second process on the folder is a standby: it reads, says so, and takes over.
#[test]
fn a_standby_takes_over() {
    let folder = Folder::new();
    let writer = Process::start(folder.path(), &[]);
    let mut client = common::connect(writer.address);
    client
        .batch_execute("CREATE TABLE t(n int); INSERT INTO t VALUES (1)")
        .expect("a row");
    let standby = Process::start(folder.path(), &[]);
    let mut reader = common::connect(standby.address);
    let row = reader.query_one("SELECT n FROM t", &[]).expect("a row");
    assert_eq!(row.get::<_, i32>(0), 1);
    assert_eq!(
        code(reader.batch_execute("INSERT INTO t VALUES (2)")),
        "25006"
    );
    let recovers = |client: &mut Client| -> bool {
        client
            .query_one("SELECT pg_is_in_recovery()", &[])
            .expect("a row")
            .get(0)
    };
    assert!(recovers(&mut reader) && !recovers(&mut client));
    client
        .batch_execute("INSERT INTO t VALUES (3)")
        .expect("a row");
    let row = reader
        .query_one("SELECT sum(n) FROM t", &[])
        .expect("it sees the other's commit");
    assert_eq!(row.get::<_, i64>(0), 4);
    drop(client);
    writer.kill();
    wait_until("the standby writes", || {
        reader.batch_execute("INSERT INTO t VALUES (5)").is_ok()
    });
    assert!(!recovers(&mut reader));
    let row = reader
        .query_one("SELECT sum(n) FROM t", &[])
        .expect("a sum");
    assert_eq!(row.get::<_, i64>(0), 9);
}

/// Sends a signal to a process.
fn signal(process: &Process, name: &str) {
    let id = process.id().to_string();
    let sent = Command::new("kill").args([name, &id]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill {name}");
}

/// A writer that is stopped still holds the lock: the standby must not write beside it.
#[test]
fn two_writers_never_share_a_file() {
    let folder = Folder::new();
    let (one, two) = (
        Process::start(folder.path(), &[]),
        Process::start(folder.path(), &[]),
    );
    let mut clients = [&one, &two].map(|process| common::connect(process.address));
    clients[0]
        .batch_execute("CREATE TABLE t(n int)")
        .expect("the first one writes");
    let insert = "INSERT INTO t VALUES (1)";
    assert_eq!(code(clients[1].batch_execute(insert)), "25006");
    signal(&one, "-STOP");
    for _ in 0..50 {
        assert_eq!(code(clients[1].batch_execute(insert)), "25006");
    }
    signal(&one, "-CONT");
    clients[0].batch_execute(insert).expect("it writes again");
    let row = clients[1].query_one("SELECT count(*) FROM t", &[]);
    assert_eq!(row.expect("a count").get::<_, i64>(0), 1);
}

/// An old snapshot keeps the log from beginning anew; when it ends, the log grows no more.
#[test]
fn a_long_reader_grows_the_log() {
    let world = common::World::new();
    let (mut reader, mut writer) = (world.client(), world.client());
    writer
        .batch_execute("CREATE TABLE t(n int, filler text); INSERT INTO t VALUES (0, '')")
        .expect("a table");
    let mut write = || {
        let update = "UPDATE t SET n = n + 1, filler = repeat(chr(65 + n % 26), 40000)";
        for _ in 0..300 {
            writer.batch_execute(update).expect("a commit");
        }
        let log = world.folder.path().join("bank.sqlite-wal");
        std::fs::metadata(log).expect("a log").len()
    };
    let before = write();
    reader
        .batch_execute("BEGIN READ ONLY; SELECT n FROM t")
        .expect("a snapshot");
    let grown = write();
    assert!(grown > before + (4 << 20), "{before} to {grown}");
    let row = reader.query_one("SELECT n FROM t", &[]).expect("a row");
    assert_eq!(row.get::<_, i32>(0), 300);
    reader.batch_execute("COMMIT").expect("the end");
    let after = write();
    // It begins anew after the next commit, or a few later.
    assert!(after < grown + (1 << 20), "{grown} to {after}");
}

/// With users a password is needed, whatever its stored form.
#[test]
fn users_prove_who_they_are() {
    let folder = Folder::new();
    let hash = paceline_pg_wire::auth::md5::stored(b"bob", b"pencil");
    let users = ["--user", "ada:secret", "--user", &format!("bob:{hash}")];
    let process = Process::start(folder.path(), &users);
    let try_as = |user: &str, password: &str| {
        let url = url(process.address).replace("ada", user);
        Client::connect(&format!("{url} password={password}"), NoTls)
    };
    for (user, password) in [("ada", "secret"), ("bob", "pencil")] {
        let mut client = try_as(user, password).expect("a session");
        client.batch_execute("SELECT 1").expect("it works");
    }
    for (user, password) in [("ada", "wrong"), ("bob", "wrong"), ("eve", "secret")] {
        let error = try_as(user, password).err().expect("it is refused");
        assert_eq!(
            error.code().map(|code| code.code()),
            Some("28P01"),
            "{user}"
        );
    }
}

/// A file system of a few megabytes, which is gone when the test ends.
struct Small(Folder);

impl Small {
    /// `None`, and a visible line, where it can't be mounted.
    fn mount(size: &str) -> Option<Self> {
        let folder = Folder::new();
        let is_mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", size, "tmpfs"])
            .arg(folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        if !is_mounted {
            eprintln!("SKIPPED: only root may mount a small file system");
        }
        is_mounted.then_some(Self(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // A failure leaves an empty mount behind, which the next start of the system removes.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// On a full disk a transaction fails as a whole, reads go on, and with room writes go on too.
#[test]
fn a_full_disk_fails_whole_transactions() {
    let Some(small) = Small::mount("size=8m") else {
        return;
    };
    let ballast = small.0.path().join("ballast");
    std::fs::write(&ballast, vec![0; 2 << 20]).expect("room");
    let process = Process::start(small.0.path(), &[]);
    let mut client = common::connect(process.address);
    client
        .batch_execute("CREATE TABLE t(n text)")
        .expect("a table");
    let insert = "INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 100) AS g(i)";
    let mut done = 0;
    let failure = loop {
        match client.batch_execute(insert) {
            Ok(()) => done += 100,
            Err(error) => break error,
        }
    };
    assert_eq!(
        failure.code().map(|code| code.code()),
        Some("53100"),
        "{failure}"
    );
    let mut count = || -> i64 {
        let row = client
            .query_one("SELECT count(*) FROM t", &[])
            .expect("reads go on");
        row.get(0)
    };
    assert_eq!(count(), done);
    std::fs::remove_file(&ballast).expect("it is there");
    client.batch_execute(insert).expect("there is room");
    let row = client
        .query_one("SELECT count(*) FROM t", &[])
        .expect("a count");
    assert_eq!(row.get::<_, i64>(0), done + 100);
    drop(client);
    process.kill();
}
