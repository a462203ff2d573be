//! A PostgreSQL server of a test's own, in a scratch folder.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use paceline_check::client::{Protocol, Session, Target};

/// How long anything in a test may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A running server. It ends, and its folder is removed, when this is dropped.
pub(crate) struct Postgres {
    folder: PathBuf,
    server: Child,
    port: u16,
}

impl Postgres {
    /// Starts a server; `None`, with a line that says so, where PostgreSQL is not installed.
    pub(crate) fn start(name: &str) -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("SKIPPED: {name} needs PostgreSQL (Debian: postgresql)");
            return None;
        };
        let folder = std::env::temp_dir().join(format!("paceline-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a scratch folder");
        give_away(&folder);
        let data = folder.join("data");
        let mut initdb = unprivileged(&programs.join("initdb"));
        initdb
            .args(["-U", "postgres", "-A", "trust", "--no-sync", "-D"])
            .arg(&data);
        let made = initdb
            .stdout(Stdio::null())
            .status()
            .expect("initdb starts");
        assert!(made.success(), "initdb: {made}");
        configure(&data);
        let port = free_port();
        let mut server = unprivileged(&programs.join("postgres"));
        server
            .arg("-D")
            .arg(&data)
            .args(["-p", &port.to_string(), "-k", ""]);
        let log = fs::File::create(folder.join("log")).expect("a log");
        let server = server
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("postgres starts");
        let postgres = Self {
            folder,
            server,
            port,
        };
        wait_until("PostgreSQL answers", || postgres.try_session().is_some());
        Some(postgres)
    }

    /// Where it listens.
    pub(crate) fn target(&self) -> Target {
        Target {
            port: self.port,
            ..Target::default()
        }
    }

    /// A session of its own.
    pub(crate) fn session(&self) -> Session {
        self.try_session().expect("a session")
    }

    fn try_session(&self) -> Option<Session> {
        Session::open(&self.target(), Protocol::Simple, LIMIT).ok()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // QUIT also ends the server's children.
        let id = self.server.id().to_string();
        let _ = Command::new("kill").args(["-QUIT", &id]).status();
        let _ = self.server.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits for a condition, with a generous limit.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "it did not happen: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The folder of PostgreSQL's programs: the newest of Debian's, or the one of the search path.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut folders: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    folders.splice(0..0, std::env::split_paths(&paths));
    folders
        .into_iter()
        .rev()
        .find(|folder| folder.join("initdb").exists())
}

/// A command that is not run as root, which PostgreSQL refuses.
fn unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=nobody", "--clear-groups"])
        .arg(program);
    command
}

fn give_away(folder: &Path) {
    if is_root() {
        let given = Command::new("chown").arg("nobody").arg(folder).status();
        assert!(given.expect("chown starts").success());
    }
}

fn is_root() -> bool {
    let user = Command::new("id").arg("-u").output().expect("id starts");
    user.stdout == b"0\n"
}

/// Speed instead of durability, and logins by password for the users that have one.
fn configure(data: &Path) {
    let mut settings = fs::OpenOptions::new();
    let settings = settings.append(true).open(data.join("postgresql.conf"));
    let text = "fsync = off\nlisten_addresses = '127.0.0.1'\n";
    settings
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .expect("settings");
    let logins = "host all by_scram 127.0.0.1/32 scram-sha-256\n\
                  host all by_md5 127.0.0.1/32 md5\n\
                  host all by_text 127.0.0.1/32 password\n\
                  host all all 127.0.0.1/32 trust\n";
    fs::write(data.join("pg_hba.conf"), logins).expect("logins");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}
