//! PostgreSQL from Debian's packages, in a scratch folder, for the time of a run.

use std::{
    fs, io,
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Where Debian puts the programs.
const PROGRAMS: [&str; 3] = [
    "/usr/lib/postgresql/17/bin",
    "/usr/lib/postgresql/16/bin",
    "/usr/lib/postgresql/15/bin",
];
/// Rows of pgbench's table: what one core reads from memory.
const SCALE: &str = "10";

/// The account under which servers run that refuse to run as root.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    user: u32,
    group: u32,
}

impl Account {
    /// The account of PostgreSQL's package if this process is root, else none: its own will do.
    pub(super) fn unprivileged() -> io::Result<Option<Self>> {
        if !rustix::process::getuid().is_root() {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd")?;
        let ids = users.lines().find_map(|line| {
            let mut fields = line.strip_prefix("postgres:")?.split(':').skip(1);
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        });
        let (user, group) = ids.ok_or_else(|| {
            io::Error::other(
                "this process is root, and there is no account `postgres` to use instead",
            )
        })?;
        Ok(Some(Self { user, group }))
    }

    /// Has `command` run under an unprivileged account.
    pub(super) fn apply(command: &mut Command) -> io::Result<()> {
        if let Some(account) = Self::unprivileged()? {
            command.uid(account.user).gid(account.group);
        }
        Ok(())
    }
}

/// A folder that belongs to the unprivileged account, and is removed at the end.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new(name: &str) -> io::Result<Self> {
        let folder =
            std::env::temp_dir().join(format!("paceline-bench-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder)?;
        if let Some(account) = Account::unprivileged()? {
            std::os::unix::fs::chown(&folder, Some(account.user), Some(account.group))?;
        }
        Ok(Self(folder))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A port of this machine that was free a moment ago.
pub(super) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A PostgreSQL that is running. Dropped, it ends.
pub(super) struct Cluster {
    programs: &'static Path,
    port: u16,
    scratch: Scratch,
}

impl Cluster {
    /// Makes a cluster, starts it, and fills pgbench's tables.
    pub(super) fn start() -> io::Result<Self> {
        let programs = PROGRAMS
            .iter()
            .map(Path::new)
            .find(|folder| folder.join("initdb").exists());
        let programs = programs.ok_or_else(|| {
            io::Error::other("PostgreSQL is not installed: apt-get install postgresql")
        })?;
        let cluster = Self {
            programs,
            port: free_port()?,
            scratch: Scratch::new("cluster")?,
        };
        let data = cluster.scratch.path().join("data");
        let data = data.to_string_lossy();
        cluster.run(
            "initdb",
            &["-D", &data, "-U", "bench", "-A", "trust", "--no-sync"],
        )?;
        let folder = cluster.scratch.path().to_string_lossy();
        let options = format!(
            "-p {} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=300 \
             -c shared_buffers=256MB -c log_min_messages=fatal",
            cluster.port
        );
        let log = format!("{folder}/log");
        cluster.run(
            "pg_ctl",
            &["-D", &data, "-w", "-l", &log, "-o", &options, "start"],
        )?;
        let port = cluster.port.to_string();
        let at = ["-h", "127.0.0.1", "-p", &port, "-U", "bench"];
        cluster.run("createdb", &[&at[..], &["bench"]].concat())?;
        cluster.run(
            "pgbench",
            &[&at[..], &["-i", "-q", "-s", SCALE, "bench"]].concat(),
        )?;
        Ok(cluster)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn version(&self) -> io::Result<String> {
        let output = self.run("postgres", &["--version"])?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn run(&self, program: &str, words: &[&str]) -> io::Result<Output> {
        let mut command = Command::new(self.programs.join(program));
        command.args(words).current_dir(self.scratch.path());
        Account::apply(&mut command)?;
        let output = command.output()?;
        if output.status.success() {
            return Ok(output);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!(
            "{program} {}: {said}",
            words.join(" ")
        )))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let data = self.scratch.path().join("data");
        let _ = self.run(
            "pg_ctl",
            &["-D", &data.to_string_lossy(), "-m", "immediate", "stop"],
        );
    }
}
