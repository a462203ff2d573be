//! The program, started with a configuration of the test.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use paceline_pg::front::{self, Start};

use crate::{
    client::{Client, Connect},
    support::postgres::{Postgres, PORT, USER},
    wait_until,
};

/// Names the configuration to the process that is the pooler.
const INI: &str = "PACELINE_TEST_INI";

/// The pooler itself: the test program starts itself with this name. Without a configuration it is
/// an empty test.
#[test]
fn program() {
    if let Some(file) = env::var_os(INI) {
        let start = Start {
            file: file.into(),
            is_quiet: true,
            verbosity: 0,
            user: None,
        };
        front::run(start).expect("it serves");
    }
}

/// The program. It ends with this value.
pub(crate) struct Pooler {
    process: Child,
    folder: PathBuf,
    address: SocketAddr,
}

/// The command that starts the program.
fn this_program() -> Command {
    let mut program = Command::new(env::current_exe().expect("this program"));
    program.args(["--exact", "pooler::program", "--nocapture"]);
    program
}

/// The start of every configuration.
fn head(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = 0\nunix_socket_dir = {folder}\n\
         logfile = {folder}/log\nauth_type = trust\nauth_file = {folder}/users\n\
         admin_users = admin\n"
    )
}

impl Pooler {
    /// Starts the program. `databases` and `settings` are lines of the configuration.
    pub(crate) fn start(databases: &str, settings: &str) -> Self {
        Self::start_after(databases, settings, |_| ())
    }

    /// As [`start`](Self::start), after something was done to the folder.
    pub(crate) fn start_after(databases: &str, settings: &str, prepare: fn(&Path)) -> Self {
        Self::launch(databases, settings, this_program(), prepare)
    }

    /// The same, with so many descriptors.
    pub(crate) fn limited(descriptors: usize, databases: &str, settings: &str) -> Self {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {descriptors} && exec \"$@\"");
        shell.args(["-c", &script, "sh"]);
        let program = this_program();
        shell.arg(program.get_program()).args(program.get_args());
        Self::launch(databases, settings, shell, |_| ())
    }

    fn launch(databases: &str, settings: &str, mut program: Command, prepare: fn(&Path)) -> Self {
        let folder = new_folder();
        let users = format!("\"{USER}\" \"\"\n\"admin\" \"\"\n\"alice\" \"alice's\"\n");
        fs::write(folder.join("users"), users).expect("a file");
        let ini = folder.join("pgbouncer.ini");
        let head = head(&folder);
        fs::write(
            &ini,
            format!("{head}{settings}\n[databases]\n{databases}\n"),
        )
        .expect("a file");
        prepare(&folder);
        let process = program
            .env(INI, &ini)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the program starts");
        let mut pooler = Self {
            process,
            folder,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        pooler.wait_until_ready();
        pooler
    }

    /// As [`start`](Self::start), with the database `db` of this server.
    pub(crate) fn of(postgres: &Postgres, settings: &str) -> Self {
        Self::start(&entry("db", postgres, ""), settings)
    }

    fn wait_until_ready(&mut self) {
        let marker = "listening on 127.0.0.1:";
        wait_until("the program listens", || {
            assert!(
                self.ended().is_none(),
                "the program has ended: {}",
                self.log()
            );
            self.log().contains("process up")
        });
        let log = self.log();
        let line = log.lines().find_map(|line| line.split_once(marker));
        let port = line.and_then(|(_, port)| port.trim().parse().ok());
        self.address.set_port(port.expect("the log names the port"));
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// The Unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        let log = self.log();
        let line = log
            .lines()
            .find_map(|line| line.split_once("listening on unix:"));
        line.expect("the log names the socket").1.trim().into()
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The folder of its files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Writes the configuration again, for a reload.
    pub(crate) fn rewrite(&self, databases: &str, settings: &str) {
        let head = head(&self.folder);
        let text = format!("{head}{settings}\n[databases]\n{databases}\n");
        fs::write(self.folder.join("pgbouncer.ini"), text).expect("a file");
    }

    /// A client of the database `db`.
    pub(crate) fn client(&self) -> Client {
        Client::to(self.address, &Connect::new("db", USER)).expect("a login")
    }

    /// Gives a command of the console, and returns the first column of its answer.
    pub(crate) fn admin(&self, command: &str) -> Vec<Vec<String>> {
        let connect = Connect::new("pgbouncer", "admin");
        let mut console = Client::to(self.address, &connect).expect("the console");
        console.query(command).expect("a command of the console")
    }

    /// The row of `SHOW POOLS` of this database, as names and values.
    pub(crate) fn pool(&self, database: &str, column: usize) -> u32 {
        let rows = self.admin("SHOW POOLS");
        let row = rows.iter().find(|row| row[0] == database);
        row.map_or(0, |row| row[column].parse().expect("a number"))
    }

    pub(crate) fn signal(&self, name: &str) {
        let signal = format!("-{name}");
        let sent = Command::new("kill")
            .args([&signal, &self.id().to_string()])
            .status();
        assert!(sent.expect("kill runs").success());
    }

    /// Whether the program has ended by itself.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().expect("it is a child")
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // It has ended already, if that fails.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An entry of `[databases]`: the server's database of the superuser, by this name.
pub(crate) fn entry(name: &str, postgres: &Postgres, more: &str) -> String {
    let host = postgres.socket_folder().display();
    format!("{name} = host={host} port={PORT} dbname={USER} {more}\n")
}

fn new_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("paceline-front-{}-{number}", std::process::id());
    let folder = env::temp_dir().join(name);
    // Left over from a process of the same number.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}
