//! A PostgreSQL primary with replicas, each in a folder of its own, reached by the Unix socket there.
//! Every server ends with the test program, by its own number.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    support::postgres::{programs, temporary_folder, Owner, PORT, USER},
    wait_until,
};

/// Runs a server, and ends it by its number when the input ends.
pub(crate) const KEEPER: &str = r#"
program=$1; data=$2; folder=$3; shift 3
"$program" -D "$data" -k "$folder" "$@" >> "$folder/log" 2>&1 < /dev/null &
server=$!
read line
kill -QUIT $server
wait $server
[ -e "$folder/keep" ] || { cd / && rm -rf "$folder"; }
"#;

/// What all servers are started with. A commit waits for one of the others.
const OPTIONS: [&str; 5] = [
    "listen_addresses=",
    "fsync=off",
    "max_wal_senders=10",
    "wal_keep_size=64MB",
    "synchronous_standby_names=ANY 1 (a, b, c)",
];

/// One server.
pub(crate) struct Node {
    name: &'static str,
    folder: PathBuf,
    keeper: Option<Child>,
}

/// The servers. The first is the primary at the start.
pub(crate) struct Cluster {
    programs: PathBuf,
    folder: PathBuf,
    owner: Owner,
    nodes: Vec<Node>,
}

/// A server that does what it is asked for.
type Done = io::Result<()>;

impl Cluster {
    /// Starts so many servers, of which one is the primary. `None`, and a line that says so, if
    /// no PostgreSQL is installed.
    pub(crate) fn start(servers: usize) -> Option<Self> {
        let Some(programs) = programs() else {
            use io::Write;
            // Not captured by the test harness: a skipped test must be seen.
            let _ = writeln!(io::stderr(), "SKIPPED: no PostgreSQL is installed");
            return None;
        };
        // The other programs are beside the real one, not beside a link to it.
        let real = fs::canonicalize(programs.join("initdb")).expect("a program");
        let programs = real.parent().expect("a folder").to_owned();
        let folder = temporary_folder().expect("a folder");
        let owner = Owner::of(&folder).expect("a user for the servers");
        let mut cluster = Self {
            programs,
            folder,
            owner,
            nodes: Vec::new(),
        };
        cluster.build(servers).expect("the servers start");
        Some(cluster)
    }

    fn build(&mut self, servers: usize) -> Done {
        for name in ["a", "b", "c"].into_iter().take(servers) {
            let folder = self.folder.join(name);
            self.owner
                .runs(Command::new("mkdir").arg(&folder))
                .current_dir("/")
                .status()?;
            self.nodes.push(Node {
                name,
                folder,
                keeper: None,
            });
            if self.nodes.len() == 1 {
                self.initdb()?;
            } else {
                self.copy(name)?;
            }
            self.run(name);
        }
        Ok(())
    }

    fn initdb(&self) -> Done {
        let mut initdb = Command::new(self.programs.join("initdb"));
        initdb
            .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"])
            .args(["--username", USER, "--pgdata"])
            .arg(self.data("a"));
        self.complete(initdb)
    }

    /// A replica begins as a copy of the primary.
    fn copy(&self, name: &str) -> Done {
        let mut copy = Command::new(self.programs.join("pg_basebackup"));
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"])
            .arg("--dbname")
            .arg(self.conninfo("a"))
            .arg("--pgdata")
            .arg(self.data(name));
        self.complete(copy)
    }

    fn complete(&self, mut command: Command) -> Done {
        let output = self.owner.runs(&mut command).current_dir("/").output()?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(io::Error::other(format!("{command:?}: {text}")))
    }

    fn conninfo(&self, name: &str) -> String {
        let folder = self.node(name).folder.display();
        format!("host={folder} port={PORT} user={USER}")
    }

    fn data(&self, name: &str) -> PathBuf {
        self.node(name).folder.join("data")
    }

    fn node(&self, name: &str) -> &Node {
        let node = self.nodes.iter().find(|node| node.name == name);
        node.expect("a server of this name")
    }

    /// Starts a server, and waits until it answers.
    pub(crate) fn run(&mut self, name: &str) {
        let (program, data) = (self.programs.join("postgres"), self.data(name));
        let folder = self.node(name).folder.clone();
        let mut shell = Command::new("sh");
        shell.args(["-c", KEEPER, "keeper"]);
        shell.arg(program).arg(data).arg(&folder);
        for option in OPTIONS {
            shell.args(["-c", option]);
        }
        shell.args(["-c", &format!("cluster_name={name}")]);
        shell.stdin(Stdio::piped());
        shell.stdout(Stdio::null()).stderr(Stdio::null());
        // A signal to the group of the test program must not end the keeper before its work.
        shell.process_group(0);
        let shell = self.owner.runs(&mut shell).current_dir(&folder);
        let keeper = shell.spawn().expect("a shell");
        let node = self.nodes.iter_mut().find(|node| node.name == name);
        node.expect("a server of this name").keeper = Some(keeper);
        wait_until("the server answers", || {
            self.try_ask(name, "SELECT 1").is_ok()
        });
    }

    /// The hosts of all servers as a configuration lists them.
    pub(crate) fn hosts(&self) -> String {
        let folders = self.nodes.iter();
        let folders: Vec<_> = folders
            .map(|node| node.folder.display().to_string())
            .collect();
        folders.join(",")
    }

    /// An entry of `[databases]` with all servers.
    pub(crate) fn entry(&self, name: &str, more: &str) -> String {
        let hosts = self.hosts();
        format!("{name} = host={hosts} port={PORT} dbname={USER} {more}\n")
    }

    /// Asks a server directly.
    pub(crate) fn ask(&self, name: &str, sql: &str) -> String {
        let answer = self.try_ask(name, sql);
        answer.unwrap_or_else(|why| panic!("{name}: {sql}: {why}"))
    }

    fn try_ask(&self, name: &str, sql: &str) -> io::Result<String> {
        let output = Command::new(self.programs.join("psql"))
            .args(["-XAtq", "-d", &self.conninfo(name), "-c", sql])
            .output()?;
        if output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout);
            return Ok(text.trim().to_owned());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(text.into_owned()))
    }

    /// Sends a signal to all processes of a server.
    pub(crate) fn signal(&self, name: &str, signal: &str) {
        let pidfile = fs::read_to_string(self.data(name).join("postmaster.pid"));
        let pidfile = pidfile.expect("the server runs");
        let server: u32 = pidfile.lines().next().and_then(number).expect("its number");
        // It starts no more processes from now on.
        assert!(send("-STOP", server), "the server runs");
        for child in children(server) {
            // It has ended meanwhile, if that fails.
            let _ = send(signal, child);
        }
        assert!(send(signal, server), "the server runs");
    }

    /// Kills all processes of a server at once: its sessions get no time to commit.
    pub(crate) fn kill(&mut self, name: &str) {
        let folder = self.node(name).folder.clone();
        self.signal(name, "-KILL");
        // The keeper ends too, and leaves the data.
        fs::write(folder.join("keep"), "").expect("a file");
        let node = self.nodes.iter_mut().find(|node| node.name == name);
        let keeper = node.and_then(|node| node.keeper.take());
        let mut keeper = keeper.expect("it runs");
        drop(keeper.stdin.take());
        keeper.wait().expect("the keeper ends");
        fs::remove_file(folder.join("keep")).expect("a file");
    }

    /// Makes the replica the primary that has received most, and has the other one follow it.
    /// Its name.
    pub(crate) fn promote_best(&self) -> &'static str {
        let received = |name: &str| {
            let lsn = self.ask(name, "SELECT pg_last_wal_receive_lsn() - '0/0'");
            lsn.parse::<u64>().expect("a number")
        };
        let (best, other) = if received("b") >= received("c") {
            ("b", "c")
        } else {
            ("c", "b")
        };
        self.ask(best, "SELECT pg_promote()");
        let conninfo = self.conninfo(best);
        self.ask(
            other,
            &format!("ALTER SYSTEM SET primary_conninfo = '{conninfo}'"),
        );
        self.ask(other, "SELECT pg_reload_conf()");
        best
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if std::thread::panicking() {
                let log = fs::read_to_string(node.folder.join("log")).unwrap_or_default();
                let last: Vec<_> = log.lines().rev().take(15).collect();
                eprintln!("server {}, newest first: {last:#?}", node.name);
            }
            if let Some(mut keeper) = node.keeper.take() {
                // A stopped server does not end. One that has ended needs no signal.
                let pidfile = fs::read_to_string(node.folder.join("data/postmaster.pid"));
                if let Some(server) = pidfile.ok().and_then(|it| number(it.lines().next()?)) {
                    let _ = send("-CONT", server);
                }
                drop(keeper.stdin.take());
                // It has ended already, if that fails.
                let _ = keeper.wait();
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Sends a signal to one process. Whether there was one.
fn send(signal: &str, process: u32) -> bool {
    let mut kill = Command::new("kill");
    let sent = kill.args([signal, &process.to_string()]).status();
    sent.expect("kill runs").success()
}

fn number(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

/// The processes that this one has started.
fn children(parent: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let all = all.filter_map(|entry| number(entry.file_name().to_str()?));
    all.filter(|child| parent_of(*child) == Some(parent))
        .collect()
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    let stat = stat.ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?;
    number(behind_name.split_whitespace().nth(1)?)
}
