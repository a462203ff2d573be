//! `setup`: brings what the other verbs need, and says what could not be had.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fmt, io};

use crate::sanitizer;
use xtask_common::run::{self, Ending};
use xtask_common::verb::{Verb, Verdict};

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "setup",
    summary: "install what the other verbs need",
    help: "\
usage: cargo xtask setup

Installs, where missing: the components rustfmt, clippy and rust-src (with rustup), and, with apt-get, on
Debian and as root only: strace, gcc, valgrind, clients for the tests of the server (swaks, socat,
netcat-openbsd, openssl, sslscan, python3, curl, nodejs, npm, golang-go, wrk, slowhttptest, chromium), for the
pooler and the embedded back-end postgresql-15, its client, python3-venv and python3-psycopg, with pip or apt-get the
Python modules requests, websockets and h11, and with npm the module undici. A test whose client is missing says so
and passes. Says of each whether it was present, was installed or could not be had. What could not be had is no failure here: the verb that needs it says so. Run it as often as
you like. `cargo xtask ci` begins with it.",
    run: |args| {
        args.nothing()?;
        Ok(install_all())
    },
};

/// Longest time for one installation.
const LIMIT: Duration = Duration::from_secs(300);

/// Something that other verbs need.
struct Need {
    /// Its name, for rustup or for apt-get.
    name: &'static str,
    /// What it is needed for.
    purpose: &'static str,
    /// Whether it is installed.
    is_there: fn() -> bool,
    /// Tries to bring it.
    install: fn(&str) -> Result<(), String>,
}

/// Everything that other verbs need and a machine may lack.
const NEEDS: &[Need] = &[
    Need {
        name: "rustfmt",
        purpose: "ci: fmt",
        is_there: || run::answers("cargo", &["fmt", "--version"]),
        install: with_rustup,
    },
    Need {
        name: "clippy",
        purpose: "ci: clippy",
        is_there: || run::answers("cargo", &["clippy", "--version"]),
        install: with_rustup,
    },
    Need {
        name: "rust-src",
        purpose: "tsan; ci --full: asan",
        is_there: sanitizer::rust_src_is_installed,
        install: with_rustup,
    },
    Need {
        name: "strace",
        purpose: "inject: faults at system calls",
        is_there: || run::answers("strace", &["-V"]),
        install: with_apt_get,
    },
    Need {
        name: "gcc",
        purpose: "inject: a library before libc, stopped threads",
        is_there: || run::answers("cc", &["--version"]),
        install: with_apt_get,
    },
    Need {
        name: "valgrind",
        purpose: "ci --full: instructions",
        is_there: || run::answers("valgrind", &["--version"]),
        install: with_apt_get,
    },
    Need {
        name: "swaks",
        purpose: "tests of the server's examples: a client of the example smtp",
        is_there: || run::answers("swaks", &["--version"]),
        install: with_apt_get,
    },
    Need {
        name: "socat",
        purpose: "tests of the server's examples: a client of Unix sockets",
        is_there: || run::answers("socat", &["-V"]),
        install: with_apt_get,
    },
    Need {
        name: "netcat-openbsd",
        purpose: "tests of the server's examples: a client that ends its output",
        is_there: || run::answers("nc", &["-h"]),
        install: with_apt_get,
    },
    Need {
        name: "openssl",
        purpose: "tests of the server's examples: a TLS client",
        is_there: || run::answers("openssl", &["version"]),
        install: with_apt_get,
    },
    Need {
        name: "sslscan",
        purpose: "tests of the server's examples: which TLS versions are offered",
        is_there: || run::answers("sslscan", &["--version"]),
        install: with_apt_get,
    },
    Need {
        name: "python3",
        purpose: "tests of the server's examples: the clients smtplib and ssl",
        is_there: || run::answers("python3", &["--version"]),
        install: with_apt_get,
    },
    Need {
        name: "curl",
        purpose: "tests of the HTTP server: a client with odd options",
        is_there: || run::answers("curl", &["--version"]),
        install: with_apt_get,
    },
    Need {
        name: "nodejs",
        purpose: "tests of the HTTP server: fetch",
        is_there: || run::answers("node", &["--version"]),
        install: with_apt_get,
    },
    Need {
        name: "npm",
        purpose: "tests of the HTTP server: brings undici",
        is_there: || run::answers("npm", &["--version"]),
        install: with_apt_get,
    },
    Need {
        name: "undici",
        purpose: "tests of the HTTP server: a client that pipelines",
        is_there: has_undici,
        install: with_npm,
    },
    Need {
        name: "golang-go",
        purpose: "tests of the HTTP server: Go's net/http",
        is_there: || run::answers("go", &["version"]),
        install: with_apt_get,
    },
    Need {
        name: "wrk",
        purpose: "tests of the HTTP server: many connections",
        is_there: || run::answers("which", &["wrk"]),
        install: with_apt_get,
    },
    Need {
        name: "slowhttptest",
        purpose: "tests of the HTTP server: slow clients",
        is_there: || run::answers("which", &["slowhttptest"]),
        install: with_apt_get,
    },
    Need {
        name: "chromium",
        purpose: "tests of the live page: a browser",
        is_there: || run::answers("chromium", &["--version"]),
        install: with_apt_get,
    },
    Need {
        name: "requests",
        purpose: "tests of the HTTP server: a client in Python",
        is_there: || has_module("requests"),
        install: with_pip,
    },
    Need {
        name: "websockets",
        purpose: "tests of the server's examples: a WebSocket client in Python",
        is_there: || has_module("websockets"),
        install: with_pip,
    },
    Need {
        name: "h11",
        purpose: "tests of the HTTP server: another parser, to compare",
        is_there: || has_module("h11"),
        install: with_pip,
    },
    Need {
        name: "python3-venv",
        purpose: "pg-suite: Python's packages",
        is_there: || run::answers("/usr/bin/python3", &["-c", "import ensurepip"]),
        install: with_apt_get,
    },
    Need {
        name: "python3-psycopg",
        purpose: "tests of paceline-sqlite: a driver of another language",
        is_there: || run::answers("/usr/bin/python3", &["-c", "import psycopg"]),
        install: with_apt_get,
    },
    Need {
        name: "postgresql-client-15",
        purpose: "tests of the pooler and of the embedded back-end: psql",
        is_there: || run::answers("psql", &["--version"]),
        install: with_apt_get,
    },
    Need {
        name: "postgresql-15",
        purpose: "tests of the pooler and of the embedded back-end: real servers, pgbench",
        is_there: || Path::new("/usr/lib/postgresql/15/bin/initdb").exists(),
        install: with_apt_get,
    },
];

/// What became of a need.
#[derive(PartialEq, Eq)]
enum Found {
    /// It was there before.
    Present,
    /// It is there now.
    Installed,
    /// It is not there, for this reason.
    CouldNot(String),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Present => f.write_str("present"),
            Found::Installed => f.write_str("installed"),
            Found::CouldNot(why) => write!(f, "could not be installed: {why}"),
        }
    }
}

/// Installs what is missing, and prints what became of each need.
pub(crate) fn install_all() -> Verdict {
    let mut found = Vec::new();
    for need in NEEDS {
        let result = satisfy(need);
        println!("{:<14} {result} ({})", need.name, need.purpose);
        found.push(result);
    }
    let count = |what: fn(&Found) -> bool| found.iter().filter(|result| what(result)).count();
    Verdict::passed(format!(
        "{} present, {} installed, {} could not be installed",
        count(|result| *result == Found::Present),
        count(|result| *result == Found::Installed),
        count(|result| matches!(result, Found::CouldNot(_))),
    ))
}

/// Brings one need, if it is missing.
fn satisfy(need: &Need) -> Found {
    if (need.is_there)() {
        return Found::Present;
    }
    match (need.install)(need.name) {
        Ok(()) if (need.is_there)() => Found::Installed,
        Ok(()) => Found::CouldNot("its installation passed, and still it is not there".to_owned()),
        Err(why) => Found::CouldNot(why),
    }
}

/// Adds a component to the toolchain in use.
fn with_rustup(component: &str) -> Result<(), String> {
    install(Command::new("rustup").args(["component", "add", component]))
}

/// Installs a Debian package; looks for newer lists only if the lists at hand do not have it.
fn with_apt_get(package: &str) -> Result<(), String> {
    if !Path::new("/etc/debian_version").exists() {
        return Err("only done on Debian; please install it yourself".to_owned());
    }
    if !is_root().unwrap_or(false) {
        return Err("only done as root; please install it yourself".to_owned());
    }
    let again = || install(&mut apt_get(&["install", "--yes", package]));
    again().or_else(|_| install(&mut apt_get(&["update"])).and_then(|()| again()))
}

/// Whether Python has this module.
fn has_module(name: &str) -> bool {
    run::answers("python3", &["-c", &format!("import {name}")])
}

/// Installs a Python module: with pip, or as a Debian package where pip may not.
fn with_pip(module: &str) -> Result<(), String> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", module]);
    install(&mut pip).or_else(|_| with_apt_get(&format!("python3-{module}")))
}

/// Whether Node finds undici among npm's global modules.
fn has_undici() -> bool {
    let script = "NODE_PATH=$(npm root --global) node -e 'require(\"undici\")'";
    run::answers("sh", &["-c", script])
}

/// Installs a module of Node for all programs. The version runs on Debian's Node.
fn with_npm(module: &str) -> Result<(), String> {
    let module = format!("{module}@6");
    install(Command::new("npm").args(["install", "--global", "--silent", &module]))
}

/// An apt-get that asks nothing.
fn apt_get(words: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Whether this user may install packages.
fn is_root() -> io::Result<bool> {
    let user = run::output(Command::new("id").arg("-u"))?;
    Ok(user.trim() == "0")
}

/// Runs an installation, with its output shown.
fn install(command: &mut Command) -> Result<(), String> {
    match run::run_shown(command, LIMIT).ending {
        Ending::Passed => Ok(()),
        Ending::Failed(how) | Ending::NotStarted(how) => Err(how),
        Ending::TimedOut => Err(format!("it took longer than {} s", LIMIT.as_secs())),
    }
}
