//! PostgreSQL's own programs against the server, unmodified.

mod common;

use std::{net::SocketAddr, path::Path, process::Command};

use common::{program, World};

/// The output of a program, which must succeed.
fn run(program: &Path, address: SocketAddr, arguments: &[&str]) -> String {
    let port = address.port().to_string();
    let output = Command::new(program)
        .args(["-h", "127.0.0.1", "-p", &port, "-U", "demo"])
        .args(arguments)
        .output()
        .expect("the program runs");
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{arguments:?}: {text}{errors}");
    format!("{text}{errors}")
}

#[test]
fn pgbench_runs_unmodified() {
    let (Some(pgbench), Some(psql)) = (program("pgbench"), program("psql")) else {
        return;
    };
    let world = World::new();
    run(&pgbench, world.address(), &["-i", "-q", "bank"]);
    for mode in ["simple", "extended", "prepared"] {
        for work in ["select-only", "simple-update", "tpcb-like"] {
            let arguments = [
                "-n", "-M", mode, "-b", work, "-c", "4", "-j", "2", "-t", "25", "bank",
            ];
            let text = run(&pgbench, world.address(), &arguments);
            assert!(
                text.contains("actually processed: 100/100"),
                "{mode} {work}: {text}"
            );
            assert!(
                text.contains("failed transactions: 0 "),
                "{mode} {work}: {text}"
            );
        }
    }
    let sums =
        "SELECT (SELECT sum(delta) FROM pgbench_history) = sum(abalance) FROM pgbench_accounts";
    assert_eq!(
        run(&psql, world.address(), &["-At", "-c", sums, "bank"]).trim(),
        "t"
    );
}

#[test]
fn psql_describes_tables() {
    let Some(psql) = program("psql") else {
        return;
    };
    let world = World::new();
    let tables =
        "CREATE TABLE parent(id serial PRIMARY KEY, name varchar(10) NOT NULL DEFAULT 'x');
        CREATE TABLE child(id int REFERENCES parent(id), at timestamp, amount numeric(8,2) UNIQUE);
        CREATE VIEW names AS SELECT name FROM parent;
        CREATE INDEX by_time ON child USING btree (at)";
    run(&psql, world.address(), &["-q", "-c", tables, "bank"]);
    for (command, parts) in [
        ("\\dt", &["parent", "child", "table"][..]),
        ("\\dv", &["names", "view"]),
        ("\\di", &["by_time", "parent_pkey"]),
        (
            "\\d parent",
            &[
                "integer",
                "character varying(10)",
                "not null",
                "'x'",
                "PRIMARY KEY, btree (id)",
            ],
        ),
        (
            "\\d child",
            &[
                "timestamp without time zone",
                "numeric(8,2)",
                "FOREIGN KEY (id) REFERENCES parent(id)",
                "UNIQUE CONSTRAINT",
                "\"by_time\" btree (at)",
            ],
        ),
        ("\\d+ names", &["View definition", "CREATE VIEW"]),
        ("\\l", &["bank", "UTF8"]),
        ("\\du", &["Superuser", "demo"]),
        ("\\df", &["0 rows"]),
        ("\\d+ child", &["child_amount_key", "child_id_fkey"]),
        ("\\dn", &["public"]),
    ] {
        let text = run(&psql, world.address(), &["-c", command, "bank"]);
        for part in parts {
            assert!(text.contains(part), "{command}: {part} is not in\n{text}");
        }
    }
}

/// What psql's own `\copy`, variables and error handling ask for.
#[test]
fn psql_works_with_data() {
    let Some(psql) = program("psql") else {
        return;
    };
    let world = World::new();
    let file = world.folder.path().join("rows.csv");
    std::fs::write(&file, "1,one\n2,\"two, or more\"\n3,\n").expect("a file");
    let copy = format!("\\copy t FROM '{}' CSV", file.display());
    let select = "SELECT id, name, name IS NULL AS gone FROM t ORDER BY id";
    let arguments = [
        "-At",
        "-c",
        "CREATE TABLE t(id int, name text)",
        "-c",
        &copy,
        "-c",
        select,
        "bank",
    ];
    let text = run(&psql, world.address(), &arguments);
    assert_eq!(
        text,
        "CREATE TABLE\nCOPY 3\n1|one|f\n2|two, or more|f\n3||t\n"
    );
}

/// A driver of another language, which asks for text and for binary.
#[test]
fn psycopg_works_unmodified() {
    let has_psycopg = Command::new("/usr/bin/python3")
        .args(["-c", "import psycopg"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_psycopg {
        eprintln!("SKIPPED: python3-psycopg is not installed (cargo xtask setup)");
        return;
    }
    let world = World::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers/psycopg3.py");
    let port = world.address().port().to_string();
    let output = Command::new("/usr/bin/python3")
        .arg(script)
        .arg(port)
        .output();
    let output = output.expect("python runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

/// A sync that fails: the commit is not acknowledged, its outcome is unknown, the process ends.
#[test]
fn a_failed_sync_ends_the_process() {
    let Some(strace) = program("strace") else {
        return;
    };
    let folder = common::Folder::new();
    let mut process = common::Process::start(folder.path(), &[]);
    let mut client = common::connect(process.address);
    client
        .batch_execute("CREATE TABLE t(n int)")
        .expect("a table");
    let mut tracer = Command::new(strace)
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"])
        .args([
            "-e",
            "inject=fdatasync:error=EIO",
            "-p",
            &process.id().to_string(),
        ])
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("strace runs");
    // Message by message: a client library may report the end of the connection instead.
    let mut raw = common::Raw::open(process.address);
    let insert = common::messages(|out| {
        paceline_pg_wire::frontend::query(out, b"INSERT INTO t VALUES (1)");
    });
    let mut tags = String::new();
    common::wait_until("a sync fails, or no tracer is allowed", || {
        raw.send(&insert);
        tags = raw.tags_to_ready();
        tags != "CZ" || tracer.try_wait().expect("a child").is_some()
    });
    if tags == "CZ" {
        eprintln!("SKIPPED: the system does not let strace attach");
        return;
    }
    assert_eq!(tags, "E08007.");
    assert_eq!(process.wait(), Some(74));
    let _ = tracer.wait();
}
