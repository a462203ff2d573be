//! A real PostgreSQL in a folder of its own, reached by the Unix socket there.

use std::{
    env, fs, io,
    os::unix::{
        fs::{chown, MetadataExt},
        net::UnixStream,
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;

use crate::{folder::Folder, signals, wait_until};

/// The superuser. It logs in without a password. Its database has the same name.
pub const USER: &str = "postgres";

/// The number in the name of the socket.
pub const PORT: u16 = 5432;

/// Where Debian has the programs of each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// What the server is started with. A commit is written to the log's file: that survives the end of
/// the processes, and a loss of power is no part of these trials.
const OPTIONS: [&str; 4] = [
    "listen_addresses=",
    "fsync=off",
    "max_connections=100",
    "max_prepared_transactions=10",
];

/// Runs the server, and ends it by its number when the input ends.
const KEEPER: &str = r#"
program=$1; data=$2; folder=$3; shift 3
"$program" -D "$data" -k "$folder" "$@" >> "$folder/log" 2>&1 < /dev/null &
server=$!
read line
kill -QUIT $server 2> /dev/null
wait $server
"#;

/// A server.
#[derive(Debug)]
pub struct Postgres {
    program: PathBuf,
    owner: Owner,
    keeper: Option<Child>,
    folder: Folder,
}

impl Postgres {
    /// Makes a server and starts it. `None` if no PostgreSQL is installed.
    ///
    /// # Errors
    /// If an installed PostgreSQL does not start.
    pub fn start() -> io::Result<Option<Self>> {
        let Some(programs) = programs() else {
            return Ok(None);
        };
        let folder = Folder::new()?;
        let owner = Owner::of(folder.path())?;
        let mut server = Self {
            program: programs.join("postgres"),
            owner,
            keeper: None,
            folder,
        };
        server.make(&programs.join("initdb"))?;
        server.run()?;
        Ok(Some(server))
    }

    /// The folder of the socket: what a client gives as its host.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder().join(format!(".s.PGSQL.{PORT}"))
    }

    /// Starts the server, which has ended, and waits until it accepts connections.
    ///
    /// # Errors
    /// If it does not start.
    pub fn run(&mut self) -> io::Result<()> {
        let mut shell = Command::new("sh");
        shell.args(["-c", KEEPER, "keeper"]);
        shell.arg(&self.program).arg(self.data()).arg(self.folder());
        OPTIONS.iter().for_each(|option| {
            shell.args(["-c", option]);
        });
        shell.stdin(Stdio::piped());
        shell.stdout(Stdio::null()).stderr(Stdio::null());
        // A signal to the group of this program must not end the keeper before its work.
        shell.process_group(0);
        let shell = self.owner.runs(&mut shell).current_dir(self.folder());
        self.keeper = Some(shell.spawn()?);
        wait_until("PostgreSQL accepts connections", || self.accepts()).map_err(|error| {
            let log = fs::read_to_string(self.folder().join("log")).unwrap_or_default();
            io::Error::other(format!("{error}: {log}"))
        })
    }

    /// Kills all processes of the server at once: no session gets the time to commit. They have
    /// ended when this returns: a new server would find their memory in use.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill(&mut self) -> io::Result<()> {
        let processes = self.signal_all(Signal::KILL)?;
        self.end_keeper();
        wait_until("PostgreSQL's processes end", || {
            processes.iter().all(|process| signals::has_ended(*process))
        })
    }

    /// Sends a signal to all processes of the server.
    ///
    /// # Errors
    /// If it does not run.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.signal_all(signal).map(drop)
    }

    /// The same; the numbers of the processes that the server has started.
    fn signal_all(&self, signal: Signal) -> io::Result<Vec<u32>> {
        let text = fs::read_to_string(self.data().join("postmaster.pid"))?;
        let number = text
            .lines()
            .next()
            .and_then(|line| line.trim().parse().ok());
        let number = number.ok_or_else(|| io::Error::other("no number in postmaster.pid"))?;
        signals::send_to_tree(signal, number)
    }

    fn make(&self, initdb: &Path) -> io::Result<()> {
        let mut initdb = Command::new(initdb);
        initdb
            .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"])
            .args(["--username", USER, "--pgdata"])
            .arg(self.data());
        let initdb = self.owner.runs(&mut initdb).current_dir(self.folder());
        let output = initdb.output()?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("initdb: {text}")))
    }

    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    /// Whether a session begins: a server that starts accepts connections and refuses sessions.
    fn accepts(&self) -> bool {
        let answers = || {
            let mut stream = UnixStream::connect(self.socket())?;
            crate::faults::client::answers_login(&mut stream, USER, USER)
        };
        answers().unwrap_or(false)
    }

    fn end_keeper(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            // It has ended already, if that fails.
            let _ = keeper.wait();
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A stopped server does not end. One that has ended needs no signal.
        let _ = self.signal(Signal::CONT);
        self.end_keeper();
    }
}

/// The folder of PostgreSQL's programs, of the newest version.
#[must_use]
pub fn programs() -> Option<PathBuf> {
    let has_them =
        |folder: &PathBuf| folder.join("initdb").exists() && folder.join("postgres").exists();
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).find(has_them);
    in_path.or_else(|| newest(Path::new(DEBIAN)).filter(has_them))
}

/// The programs of the newest version that Debian has here.
fn newest(versions: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(versions).ok()?.flatten();
    let number = |folder: &fs::DirEntry| folder.file_name().to_str()?.parse::<u32>().ok();
    let newest = folders
        .filter_map(|folder| Some((number(&folder)?, folder.path())))
        .max()?;
    Some(newest.1.join("bin"))
}

/// The user that runs the server, which refuses to run as root.
#[derive(Debug)]
struct Owner(Option<(u32, u32)>);

impl Owner {
    /// The present user, or, if that is root, another one, which gets the folder.
    fn of(folder: &Path) -> io::Result<Self> {
        if fs::metadata(folder)?.uid() != 0 {
            return Ok(Self(None));
        }
        let users = fs::read_to_string("/etc/passwd")?;
        let other = ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| ids(&users, name));
        let (user, group) = other.ok_or_else(|| io::Error::other("no user for PostgreSQL"))?;
        chown(folder, Some(user), Some(group))?;
        Ok(Self(Some((user, group))))
    }

    fn runs<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        match self.0 {
            None => command,
            Some((user, group)) => command.uid(user).gid(group),
        }
    }
}

/// The numbers of a user and of its group.
fn ids(users: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields = users
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?
        .skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}
