//! Web servers that are programs of their own: Go's net/http, and nginx.
//!
//! A program ends when its parent's pipe does: Go reads its standard input, and nginx is ended by the
//! process that has started it.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Write},
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    servers::{wait_for, Site},
    works::HELLO,
};

/// A web server that is a program of its own.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// What must be in the path.
    needs: &'static str,
    run: fn(&Site) -> io::Result<()>,
}

/// All of them.
pub(super) const ALL: &[Program] = &[
    Program {
        name: "go",
        about: "Go's net/http, built from peers/http.go",
        needs: "go",
        run: go,
    },
    Program {
        name: "nginx",
        about: "nginx, one worker: answers from its configuration, and files",
        needs: "nginx",
        run: nginx,
    },
];

const GO: &str = include_str!("../../peers/http.go");

impl Program {
    pub(super) fn is_there(&self) -> bool {
        find(self.needs).is_some()
    }

    /// Serves until the standard input ends.
    pub(super) fn become_it(&self, site: &Site) -> io::Result<()> {
        (self.run)(site)
    }
}

/// Where a program is in the path.
fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/local/go/bin"].map(PathBuf::from);
    let mut folders = env::split_paths(&path).chain(system);
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}

/// A folder of this process, for what a program needs.
fn folder(name: &str) -> io::Result<PathBuf> {
    let folder = env::temp_dir().join(format!("paceline-bench-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Builds what has to be built, before anything is measured.
pub(super) fn prepare(name: &str) -> io::Result<()> {
    match name {
        "go" => go_program().map(drop),
        _ => Ok(()),
    }
}

/// Go's server, built unless that is done.
fn go_program() -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    GO.hash(&mut hasher);
    let folder = env::temp_dir().join("paceline-bench-http");
    let program = folder.join(format!("go-{:016x}", hasher.finish()));
    if program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(&folder)?;
    // Of this process, and then renamed: others may build the same.
    let mine = folder.join(format!("go-{}", std::process::id()));
    let source = mine.with_extension("go");
    fs::write(&source, GO)?;
    let mut build = Command::new(find("go").unwrap_or_else(|| "go".into()));
    build.args(["build", "-o"]).arg(&mine).arg(&source);
    run(&mut build, "build peers/http.go")?;
    fs::rename(mine, &program)?;
    fs::remove_file(source)?;
    Ok(program)
}

/// Becomes the program, which says where it listens.
fn go(site: &Site) -> io::Result<()> {
    Err(Command::new(go_program()?).arg(&site.file).exec())
}

fn nginx(site: &Site) -> io::Result<()> {
    let folder = folder("nginx")?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let configuration = configuration(&folder, &address.to_string(), &site.file);
    let file = folder.join("nginx.conf");
    fs::write(&file, configuration)?;
    let mut command = Command::new(find("nginx").unwrap_or_else(|| "nginx".into()));
    command.arg("-c").arg(&file).arg("-p").arg(&folder);
    // One process: the one whose processor time is read must be the one that serves.
    command.args(["-g", "daemon off; master_process off;"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn()?;
    wait_for(address)?;
    println!("pid {}", child.id());
    println!("listening on {address}");
    io::stdout().flush()?;
    // Its end is that of this program's input.
    let ended = io::stdin().read_to_end(&mut Vec::new());
    child.kill()?;
    child.wait()?;
    fs::remove_dir_all(folder)?;
    ended.map(drop)
}

fn configuration(folder: &Path, address: &str, file: &Path) -> String {
    let (folder, file) = (folder.display(), file.display());
    let text = HELLO.replace('\n', "\\n");
    format!(
        "pid {folder}/pid;
error_log {folder}/error.log crit;
worker_rlimit_nofile 40000;
events {{ worker_connections 20000; multi_accept on; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {address} backlog=4096;
        location = /hello {{ default_type text/plain; return 200 \"{text}\"; }}
        location = /file {{ alias {file}; }}
    }}
}}
"
    )
}

fn run(command: &mut Command, what: &str) -> io::Result<()> {
    let done = command.stdin(Stdio::null()).output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    Err(io::Error::other(format!("{what}: {said}")))
}
