//! A PostgreSQL that is reached by TCP and speaks TLS. It refuses TCP without TLS.

use std::{
    io::{self, Write},
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use crate::{
    certificates::Authority,
    cluster::KEEPER,
    support::postgres::{programs, temporary_folder, Owner, USER},
    wait_until,
};

/// The users that may log in, and their methods.
const RULES: &str = "local all all trust
hostssl all by_password all scram-sha-256
hostssl all by_certificate all cert
hostssl all all all trust
";

/// A server that runs.
pub(crate) struct TlsPostgres {
    folder: PathBuf,
    port: u16,
    /// It vouches for the server's certificate, whose name is `localhost`, and for users.
    pub(crate) authority: Authority,
    /// It vouches for no one whom the server knows.
    pub(crate) stranger: Authority,
    /// The shell that ends the server when its input ends, which is when this program ends.
    _keeper: Child,
}

/// The server of this test program. `None`, and a line that says so, if none is installed.
pub(crate) fn server() -> Option<&'static TlsPostgres> {
    static SERVER: OnceLock<Option<TlsPostgres>> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let programs = programs()?;
        Some(TlsPostgres::start(&programs).expect("a PostgreSQL is installed: it must start"))
    });
    if server.is_none() {
        // Not captured by the test harness: a skipped test must be seen.
        let _ = writeln!(io::stderr(), "SKIPPED: no PostgreSQL is installed");
    }
    server.as_ref()
}

impl TlsPostgres {
    /// An entry of `[databases]` that names the server by this host.
    pub(crate) fn entry(&self, name: &str, host: &str, more: &str) -> String {
        let port = self.port;
        format!("{name} = host={host} port={port} dbname={USER} {more}\n")
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn start(programs: &Path) -> io::Result<Self> {
        // The other programs are beside the real one, not beside a link to it.
        let programs = programs.join("initdb").canonicalize()?;
        let programs = programs.parent().expect("a folder").to_owned();
        let folder = temporary_folder()?;
        let owner = Owner::of(&folder)?;
        let authority = Authority::new(&folder.join("authority"), "the authority of the tests");
        authority.sign("localhost", &["localhost"]);
        authority.sign("by_certificate", &[]);
        let stranger = Authority::new(&folder.join("stranger"), "another authority");
        stranger.sign("localhost", &["localhost"]);
        stranger.sign("by_certificate", &[]);
        for name in ["authority", "stranger"] {
            // Its user removes the folder at the end.
            owner.takes(&folder.join(name))?;
        }
        let mut initdb = Command::new(programs.join("initdb"));
        initdb
            .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"])
            .args(["--username", USER, "--pgdata"])
            .arg(folder.join("data"));
        let output = owner.runs(&mut initdb).current_dir("/").output()?;
        assert!(output.status.success(), "initdb: {output:?}");
        let files = [
            ("root.pem", std::fs::read_to_string(authority.root())?),
            (
                "server.pem",
                std::fs::read_to_string(authority.chain("localhost"))?,
            ),
            (
                "server.key",
                std::fs::read_to_string(authority.key("localhost"))?,
            ),
            ("rules", RULES.to_owned()),
        ];
        for (name, text) in files {
            put(&owner, &folder.join(name), &text)?;
        }
        let port = free_port()?;
        let keeper = run(&owner, &programs, &folder, port)?;
        let server = Self {
            folder,
            port,
            authority,
            stranger,
            _keeper: keeper,
        };
        server.add_users(&programs);
        Ok(server)
    }

    fn add_users(&self, programs: &Path) {
        let sql = "CREATE ROLE by_password LOGIN PASSWORD 'a secret'; \
                   CREATE ROLE by_certificate LOGIN";
        let connect = format!(
            "host={} port={} user={USER}",
            self.folder.display(),
            self.port
        );
        wait_until("the server answers", || {
            let mut psql = Command::new(programs.join("psql"));
            psql.args(["-Xq", "-d", &connect, "-c", sql]);
            psql.output().is_ok_and(|output| output.status.success())
        });
    }
}

/// Writes a file of the server's user, which no other user can read.
fn put(owner: &Owner, path: &Path, text: &str) -> io::Result<()> {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "umask 077; cat > \"$1\"", "sh"])
        .arg(path);
    shell.stdin(Stdio::piped());
    let mut shell = owner.runs(&mut shell).current_dir("/").spawn()?;
    let mut input = shell.stdin.take().expect("it is piped");
    input.write_all(text.as_bytes())?;
    drop(input);
    assert!(shell.wait()?.success(), "write {}", path.display());
    Ok(())
}

/// A port that was free a moment ago: the server has no way to choose one.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn run(owner: &Owner, programs: &Path, folder: &Path, port: u16) -> io::Result<Child> {
    let file = |name: &str| folder.join(name).display().to_string();
    let options = [
        "listen_addresses=localhost".to_owned(),
        format!("port={port}"),
        "fsync=off".to_owned(),
        "ssl=on".to_owned(),
        format!("ssl_ca_file={}", file("root.pem")),
        format!("ssl_cert_file={}", file("server.pem")),
        format!("ssl_key_file={}", file("server.key")),
        format!("hba_file={}", file("rules")),
    ];
    let mut shell = Command::new("sh");
    shell.args(["-c", KEEPER, "keeper"]);
    shell.arg(programs.join("postgres"));
    shell.arg(folder.join("data")).arg(folder);
    for option in &options {
        shell.args(["-c", option]);
    }
    shell.stdin(Stdio::piped());
    shell.stdout(Stdio::null()).stderr(Stdio::null());
    // A signal to the group of the test program must not end the keeper before its work.
    shell.process_group(0);
    owner.runs(&mut shell).current_dir(folder).spawn()
}
