//! Drivers of other languages, and PostgreSQL's own programs.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use paceline_drivers::{program, skipped, System, Systems};

/// Debian's Python, which has Debian's packages.
const DEBIAN_PYTHON: &str = "/usr/bin/python3";

/// Where Debian has node's packages, and Java's.
const DEBIAN_NODE: &str = "/usr/share/nodejs";
const DEBIAN_JDBC: &str = "/usr/share/java/postgresql.jar";

/// The longest time of one statement that is cancelled.
const LIMIT: Duration = Duration::from_secs(60);

/// What `cargo xtask setup` has brought of newer packages.
fn brought() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/drivers")
}

fn succeeds(command: &mut Command) -> bool {
    let output = command.stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

/// The first Python with this module; `None`, and a visible line, if there is none.
fn python_with(module: &str) -> Option<PathBuf> {
    let brought = brought().join("python/bin/python3");
    let pythons = [brought, PathBuf::from(DEBIAN_PYTHON)];
    let import = format!("import {module}");
    let found = pythons
        .into_iter()
        .find(|python| succeeds(Command::new(python).args(["-c", &import])));
    if found.is_none() {
        skipped(&format!("Python's {module} is not installed"));
    }
    found
}

fn run_python(module: &str, file: &str) {
    let Some(python) = python_with(module) else {
        return;
    };
    for system in Systems::shared().iter() {
        system.run(module, Command::new(&python).arg(program(file)));
    }
}

#[test]
fn psycopg() {
    run_python("psycopg", "psycopg3.py");
}

#[test]
fn asyncpg() {
    run_python("asyncpg", "asyncpg_driver.py");
}

#[test]
fn node_postgres() {
    let brought = brought().join("node/node_modules");
    let paths = format!("{}:{DEBIAN_NODE}", brought.display());
    let node = || {
        let mut node = Command::new("node");
        node.env("NODE_PATH", &paths);
        node
    };
    if !succeeds(node().args(["-e", "require('pg')"])) {
        return skipped("node-postgres is not installed");
    }
    for system in Systems::shared().iter() {
        let text = system.run("node", node().arg(program("node_postgres.js")));
        text.lines()
            .filter_map(|line| line.strip_prefix("SKIPPED: "))
            .for_each(skipped);
    }
}

#[test]
fn jdbc() {
    if !Path::new(DEBIAN_JDBC).exists() || !succeeds(Command::new("javac").arg("-version")) {
        return skipped("Java's compiler or pgjdbc is not installed");
    }
    let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("jdbc");
    let compiled = Command::new("javac")
        .args(["-encoding", "UTF-8", "-cp", DEBIAN_JDBC, "-d"])
        .args([&classes, &program("Jdbc.java")])
        .status();
    assert!(compiled.expect("javac runs").success());
    let path = format!("{}:{DEBIAN_JDBC}", classes.display());
    for system in Systems::shared().iter() {
        let mut java = Command::new("java");
        java.args(["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", &path]);
        system.run("jdbc", java.arg("Jdbc"));
    }
}

/// A program of PostgreSQL; `None`, and a visible line, if it is not installed.
fn client(name: &str) -> Option<PathBuf> {
    let debian = Path::new("/usr/bin").join(name);
    let found = [debian].into_iter().find(|path| path.exists());
    if found.is_none() {
        skipped(&format!("{name} is not installed"));
    }
    found
}

/// All protocols of pgbench, and a script that sends a transaction without waiting for its parts.
#[test]
fn pgbench() {
    let Some(pgbench) = client("pgbench") else {
        return;
    };
    for system in Systems::shared().iter() {
        let bench = |words: &[&str]| system.run("pgbench", Command::new(&pgbench).args(words));
        bench(&["-i", "-q"]);
        for protocol in ["simple", "extended", "prepared"] {
            let text = bench(&["-n", "-M", protocol, "-c", "3", "-j", "3", "-t", "30"]);
            assert_all(90, &text, system);
            let words = ["-n", "-S", "-M", protocol, "-c", "3", "-j", "3", "-t", "50"];
            assert_all(150, &bench(&words), system);
        }
        let script = program("pipeline.pgbench");
        let script = script.to_str().expect("a name");
        for protocol in ["extended", "prepared"] {
            let words = [
                "-n", "-f", script, "-M", protocol, "-c", "3", "-j", "3", "-t", "30",
            ];
            assert_all(90, &bench(&words), system);
        }
    }
}

/// So many transactions have succeeded.
fn assert_all(count: u32, text: &str, system: &System) {
    let expected = format!("actually processed: {count}/{count}");
    assert!(text.contains(&expected), "{system}: {text}");
    assert!(text.contains("failed transactions: 0 "), "{system}: {text}");
}

fn psql(program: &Path) -> Command {
    let mut psql = Command::new(program);
    psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"]);
    psql
}

#[test]
fn psql_works_with_data() {
    let Some(program) = client("psql") else {
        return;
    };
    for system in Systems::shared().iter() {
        let table = system.table("psql");
        let ask = |sql: &str| system.run("psql", psql(&program).args(["-c", sql]));
        ask(&format!("DROP TABLE IF EXISTS {table}"));
        ask(&format!("CREATE TABLE {table}(id int, name text)"));
        // Each is a transaction that is rolled back, in one session.
        let script = format!(
            "\\set ON_ERROR_STOP 0\nBEGIN;\nINSERT INTO {table} VALUES (1, 'one');\nSELECT nosuch;\n\
             SELECT 'not seen';\nROLLBACK;\nBEGIN;\nINSERT INTO {table} VALUES (2, NULL);\n\
             ROLLBACK;\n\\set ON_ERROR_ROLLBACK on\nBEGIN;\nINSERT INTO {table} VALUES (3, NULL);\n\
             SELECT nosuch;\nCOMMIT;\n\
             SELECT id, name IS NULL FROM {table};\n"
        );
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{table}.sql"));
        std::fs::write(&file, script).expect("a file");
        let text = system.run("psql", psql(&program).arg("-f").arg(&file));
        assert!(
            text.contains("\n3|t\n") || text.starts_with("3|t\n"),
            "{system}: {text}"
        );
        assert!(!text.contains("not seen"), "{system}: {text}");
        copies(system, &program, &table);
    }
}

/// `\copy` in both directions, of more than fits into the buffers on the way.
fn copies(system: &System, program: &Path, table: &str) {
    let rows: String = (0..40_000)
        .map(|n| format!("{n},\"line {n}, quoted\"\n"))
        .collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (from, to) = (
        folder.join(format!("{table}.csv")),
        folder.join(format!("{table}.copy")),
    );
    std::fs::write(&from, &rows).expect("a file");
    let copy_in = format!("\\copy {table} FROM '{}' CSV", from.display());
    let query =
        format!("SELECT id, name FROM {table} WHERE id < 40000 AND name IS NOT NULL ORDER BY id");
    let copy_out = format!("\\copy ({query}) TO '{}' CSV", to.display());
    system.run(
        "psql",
        psql(program).args(["-c", &copy_in, "-c", &copy_out]),
    );
    let seen = std::fs::read_to_string(&to).expect("a file");
    assert_eq!(seen, rows, "{system}");
}

/// Between two signals are so many polls for the end of psql.
const SIGNAL_EVERY: u32 = 40;

/// Ctrl-C in psql: it asks for a cancel on a connection of its own.
#[test]
fn psql_cancels_with_ctrl_c() {
    let Some(program) = client("psql") else {
        return;
    };
    for system in Systems::shared().iter() {
        let end = Instant::now() + LIMIT;
        loop {
            let text = errors_of_interrupted(system, &program, end);
            if text.contains("57014") || text.contains("canceling") {
                break;
            }
            // The signal was early, for the first statement: psql ends without the second one.
            let is_early = text.trim_end().ends_with("Cancel request sent");
            assert!(is_early && Instant::now() < end, "{system}: {text}");
        }
    }
}

/// What psql reports when a signal interrupts its second statement, or its first one.
fn errors_of_interrupted(system: &System, program: &Path, end: Instant) -> String {
    let mut command = psql(program);
    command.args(["-c", "SELECT 'connected'", "-c", system.slow()]);
    let command = system.describe_to("psql", &mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = command.stderr(Stdio::piped()).spawn().expect("psql starts");
    // Before that, psql does not handle the signal.
    let mut line = String::new();
    let output = process.stdout.as_mut().expect("its output");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "connected\n", "{system}");
    let mut polls = 0_u32;
    while process.try_wait().expect("its status").is_none() {
        assert!(Instant::now() < end, "{system}: psql is not cancelled");
        // One that psql gets while it ends kills it before it prints the error.
        if polls.is_multiple_of(SIGNAL_EVERY) {
            let id = process.id().to_string();
            // It has ended meanwhile, if that fails.
            let _ = Command::new("kill")
                .args(["-INT", &id])
                .stderr(Stdio::null())
                .status();
        }
        polls += 1;
        thread::sleep(Duration::from_millis(50));
    }
    let output = process.wait_with_output().expect("its output");
    String::from_utf8_lossy(&output.stderr).into_owned()
}
