//! A PostgreSQL for tests: made in a temporary folder once for each test program, reached by a Unix
//! socket in that folder, and ended with the program.
//!
//! A test asks for it with [`server`], and passes if there is none:
//!
//! ```text
//! let Some(postgres) = postgres::server() else { return };
//! ```

use std::{
    env, fs, io,
    io::{Read, Write},
    os::unix::{
        fs::{chown, MetadataExt},
        net::UnixStream,
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

/// The superuser of the server, who logs in without a password.
pub(crate) const USER: &str = "postgres";

/// The number in the name of its socket.
pub(crate) const PORT: u16 = 5432;

/// How long the server may take to start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Where Debian has the programs of each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Postgres {
    /// The folder of the program, of the data, and of the socket.
    folder: PathBuf,
    /// The shell that ends the server when its input ends, which is when this program ends.
    _keeper: Child,
}

/// The server of this test program. `None`, and a line that says so, if none is installed.
pub(crate) fn server() -> Option<&'static Postgres> {
    static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let programs = programs()?;
        Some(Postgres::start(&programs).expect("a PostgreSQL is installed: it must start"))
    });
    if server.is_none() {
        // Not captured by the test harness: a skipped test must be seen.
        let _ = writeln!(io::stderr(), "SKIPPED: no PostgreSQL is installed");
    }
    server.as_ref()
}

/// The folder with `initdb` and `postgres` of the newest version.
pub(crate) fn programs() -> Option<PathBuf> {
    let has_them =
        |folder: &PathBuf| folder.join("initdb").exists() && folder.join("postgres").exists();
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).find(has_them);
    in_path.or_else(|| newest(Path::new(DEBIAN)).filter(has_them))
}

/// The programs of the newest version that Debian has here.
fn newest(versions: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(versions).ok()?.filter_map(Result::ok);
    let number = |folder: &fs::DirEntry| folder.file_name().to_str()?.parse::<u32>().ok();
    let newest = folders
        .filter_map(|folder| Some((number(&folder)?, folder.path())))
        .max()?;
    Some(newest.1.join("bin"))
}

impl Postgres {
    /// The folder of the socket: what a client gives as its host.
    pub(crate) fn socket_folder(&self) -> &Path {
        &self.folder
    }

    /// The socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(format!(".s.PGSQL.{PORT}"))
    }

    /// Connects, without a login.
    pub(crate) fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).expect("the server accepts connections")
    }

    fn start(programs: &Path) -> io::Result<Self> {
        let folder = temporary_folder()?;
        let owner = Owner::of(&folder)?;
        let data = folder.join("data");
        let options = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];
        let mut initdb = Command::new(programs.join("initdb"));
        initdb
            .args(options)
            .arg("--username")
            .arg(USER)
            .arg("--pgdata")
            .arg(&data);
        let output = owner.runs(&mut initdb).current_dir(&folder).output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(format!("initdb failed: {text}")));
        }
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(KEEPER).arg("keeper");
        shell.arg(programs.join("postgres")).arg(&data).arg(&folder);
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // A signal that ends the test program and its group must not end the keeper before its work.
        shell.process_group(0);
        let keeper = owner.runs(&mut shell).current_dir(&folder).spawn()?;
        let server = Self {
            folder,
            _keeper: keeper,
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Waits until a login gets its answer.
    fn wait_until_ready(&self) -> io::Result<()> {
        let end = Instant::now() + START_LIMIT;
        loop {
            match self.answers() {
                Ok(true) => return Ok(()),
                _ if Instant::now() > end => {
                    let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                    return Err(io::Error::other(format!(
                        "the server does not start: {log}"
                    )));
                }
                _ => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn answers(&self) -> io::Result<bool> {
        let mut stream = UnixStream::connect(self.socket())?;
        let parameters = format!("user\0{USER}\0database\0postgres\0\0");
        let length = u32::try_from(8 + parameters.len()).expect("a short packet");
        let head = [length.to_be_bytes(), 196_608_u32.to_be_bytes()].concat();
        stream.write_all(&[&head, parameters.as_bytes()].concat())?;
        let mut tag = [0];
        stream.read_exact(&mut tag)?;
        Ok(tag == *b"R")
    }
}

/// Runs the server, and ends it by its id when the input ends. The folder goes too.
const KEEPER: &str = r#"
"$1" -D "$2" -k "$3" -h '' -c fsync=off -c max_connections=100 -c logging_collector=off \
    -c max_prepared_transactions=10 > "$3/log" 2>&1 < /dev/null &
server=$!
read line
kill -QUIT $server
wait $server
cd / && rm -rf "$3"
"#;

/// The user that the server runs as: it refuses to run as root.
pub(crate) struct Owner(Option<(u32, u32)>);

impl Owner {
    /// The present user, or, if that is root, another one, who gets the folder.
    pub(crate) fn of(folder: &Path) -> io::Result<Self> {
        if fs::metadata(folder)?.uid() != 0 {
            return Ok(Self(None));
        }
        let users = fs::read_to_string("/etc/passwd")?;
        let other = ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| ids(&users, name));
        let (user, group) = other.ok_or(io::Error::other("no user for the server"))?;
        chown(folder, Some(user), Some(group))?;
        Ok(Self(Some((user, group))))
    }

    /// Gives it this folder, with the files in it.
    pub(crate) fn takes(&self, folder: &Path) -> io::Result<()> {
        let Some((user, group)) = self.0 else {
            return Ok(());
        };
        for entry in fs::read_dir(folder)? {
            chown(entry?.path(), Some(user), Some(group))?;
        }
        chown(folder, Some(user), Some(group))
    }

    pub(crate) fn runs<'c>(&self, command: &'c mut Command) -> &'c mut Command {
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

/// A new folder with a short name: the path of a socket has at most 107 bytes.
pub(crate) fn temporary_folder() -> io::Result<PathBuf> {
    let id = std::process::id();
    let names = (0..).map(|number| env::temp_dir().join(format!("paceline-pg-{id}-{number}")));
    for name in names {
        match fs::create_dir(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => return result.map(|()| name),
        }
    }
    unreachable!("the names do not end")
}
