//! Where the suite runs: a copy that an unprivileged user owns, Python's packages, PostgreSQL's programs.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{text, Options};
use xtask_common::run::{self, Ending};

/// The system's Python: an unprivileged user must be able to run it.
const PYTHON: &str = "/usr/bin/python3";

/// The user that runs the suite, if this program runs as root. PostgreSQL's package makes it.
const USER: &str = "postgres";

/// What the suite needs. A newer psycopg forgets its statements itself, which two tests count as an error.
const PACKAGES: [&str; 6] = [
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pytest-xdist",
    "psycopg==3.2.13",
    "filelock",
];

/// Limit for each step of the preparation.
const LIMIT: Duration = Duration::from_secs(600);

/// What is missing on this machine, if anything is.
pub(super) fn missing_tool() -> Option<&'static str> {
    if postgres().is_none() {
        return Some(
            "PostgreSQL's programs are missing; `cargo xtask setup` installs postgresql-15",
        );
    }
    if !run::answers(PYTHON, &["-c", "import ensurepip"]) {
        return Some("Python's venv is missing; `cargo xtask setup` installs python3-venv");
    }
    let tools = [("socat", "-V"), ("openssl", "version")];
    let is_missing = tools
        .iter()
        .any(|(tool, question)| !run::answers(tool, &[question]));
    is_missing.then_some("socat or openssl is missing; `cargo xtask setup` installs them")
}

/// The folder of PostgreSQL's programs: the newest version.
fn postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let versions = versions.map(|entry| entry.path());
    let newest = versions
        .filter(|path| path.join("bin/initdb").exists())
        .max_by_key(number)?;
    Some(newest.join("bin"))
}

/// The copy of the suite, removed when this is dropped.
pub(super) struct Stage {
    /// A short path: a Unix socket's name has at most 107 bytes.
    folder: PathBuf,
    /// Kept from run to run.
    python: PathBuf,
    is_root: bool,
}

impl Stage {
    /// Copies the suite and the program, and installs Python's packages.
    pub(super) fn build(suite: &Path, program: &Path) -> Result<Stage, String> {
        let id = run::output(Command::new("id").arg("-u"));
        let is_root = id.map_err(|error| format!("id: {error}"))?.trim() == "0";
        let temporary = std::env::temp_dir();
        let stage = Stage {
            folder: temporary.join(format!("pgs-{}", std::process::id())),
            python: temporary.join(format!(
                "paceline-pg-suite-{}",
                PACKAGES[4].replace('=', "-")
            )),
            is_root,
        };
        remove_stale(&temporary, is_root);
        stage.install_packages()?;
        stage.copy(suite, program)?;
        Ok(stage)
    }

    fn install_packages(&self) -> Result<(), String> {
        let done = self.python.join("installed");
        if done.exists() {
            return Ok(());
        }
        let mut venv = Command::new(PYTHON);
        step(venv.args(["-m", "venv", "--clear"]).arg(&self.python))?;
        let mut pip = Command::new(self.python.join("bin/pip"));
        step(
            pip.args(["install", "--quiet", "--no-cache-dir"])
                .args(PACKAGES),
        )?;
        fs::write(&done, "").map_err(|error| format!("{}: {error}", done.display()))
    }

    fn copy(&self, suite: &Path, program: &Path) -> Result<(), String> {
        let wrong = |error| format!("{}: {error}", self.folder.display());
        for folder in ["bin", "tmp"] {
            fs::create_dir_all(self.folder.join(folder)).map_err(wrong)?;
        }
        let mut copy = Command::new("cp");
        step(copy.args(["-r", "--"]).arg(suite).arg(self.suite()))?;
        // The suite runs its scripts, and a tree from an archive may have lost their rights.
        let mut rights = Command::new("chmod");
        step(rights.args(["-R", "u+rwx"]).arg(self.suite()))?;
        self.write_openssl().map_err(wrong)?;
        let copied = fs::copy(program, self.program());
        copied.map_err(|error| format!("{}: {error}", program.display()))?;
        fs::set_permissions(self.program(), fs::Permissions::from_mode(0o755)).map_err(wrong)?;
        if self.is_root {
            step(Command::new("chown").args(["-R", USER]).arg(&self.folder))?;
        }
        Ok(())
    }

    /// The suite's certificates get version 3, which `openssl ca` gives them by itself from OpenSSL 3.2 on.
    /// A TLS library may refuse version 1, of 1988, as rustls does.
    fn write_openssl(&self) -> io::Result<()> {
        let [script, extensions] =
            ["openssl", "extensions"].map(|name| self.folder.join("bin").join(name));
        fs::write(
            &extensions,
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n",
        )?;
        let text = format!(
            "#!/bin/sh\nif [ \"$1\" = ca ]; then\n  exec /usr/bin/openssl \"$@\" -extfile {}\nfi\n\
             exec /usr/bin/openssl \"$@\"\n",
            text(&extensions)
        );
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
    }

    fn suite(&self) -> PathBuf {
        self.folder.join("suite")
    }

    /// The name is in no log that the suite searches.
    fn program(&self) -> PathBuf {
        self.folder.join("bin/program")
    }

    /// Runs these tests, and puts the report to `report`.
    pub(super) fn run(
        &self,
        tests: &[&str],
        options: &Options,
        report: &Path,
    ) -> Result<(), String> {
        let own_report = self.folder.join("report.xml");
        let log = report.with_extension("log");
        let mut pytest = self.pytest(tests, options, &own_report);
        println!(
            "{} tests, {} at a time; their log: {}",
            tests.len(),
            options.workers,
            log.display()
        );
        let finished = run::run_logged(&mut pytest, &log, options.limit);
        stop_servers(&self.folder, self.is_root);
        match finished.ending {
            // pytest's exit code 1: some tests failed, as the report says.
            Ending::Passed | Ending::Failed(_) => {}
            Ending::TimedOut => println!("the suite was killed at its limit"),
            Ending::NotStarted(why) => return Err(format!("pytest: {why}")),
        }
        if !own_report.exists() {
            run::print_tail(&log, 40);
            return Err("the suite left no report".to_owned());
        }
        let copied = fs::copy(&own_report, report);
        copied
            .map(|_| ())
            .map_err(|error| format!("{}: {error}", report.display()))
    }

    fn pytest(&self, tests: &[&str], options: &Options, report: &Path) -> Command {
        let mut pytest = unprivileged(&self.python.join("bin/pytest"), self.is_root);
        let own = postgres().unwrap_or_default();
        let folders = [self.folder.join("bin"), self.python.join("bin"), own];
        let folders = folders.map(|folder| text(&folder)).join(":");
        let path = format!("{folders}:/usr/bin:/bin");
        pytest
            .current_dir(self.suite())
            .env("PATH", path)
            .env("HOME", &self.folder)
            .env("TMPDIR", self.folder.join("tmp"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("BOUNCER_EXE", self.program());
        if has_ipv6() {
            pytest.env("HAVE_IPV6_LOCALHOST", "1");
        }
        // With workers, relative paths find nothing, because the suite changes its folder.
        let folder = self.suite().join("test");
        let paths = tests.iter().map(|test| format!("{}/{test}", text(&folder)));
        pytest
            .args(["-v", "-n", &options.workers.to_string()])
            .args(["-p", "no:cacheprovider"])
            .args(["-o", "asyncio_default_fixture_loop_scope=function"])
            .arg(format!("--basetemp={}", text(&self.folder.join("t"))))
            .arg(format!("--junitxml={}", text(report)));
        if let Some(filter) = &options.filter {
            pytest.args(["-k", filter]);
        }
        pytest.args(paths);
        pytest
    }
}

/// A command as the user that owns the stage. It stays in its process group.
fn unprivileged(program: &Path, is_root: bool) -> Command {
    if !is_root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={USER}"), format!("--regid={USER}")]);
    command.arg("--init-groups").arg("--").arg(program);
    command
}

/// Stops the servers of PostgreSQL on a stage. They leave the process group, so those of a suite that
/// was killed still run.
fn stop_servers(stage: &Path, is_root: bool) {
    let workers = fs::read_dir(stage.join("t"))
        .into_iter()
        .flatten()
        .flatten();
    for folder in workers.map(|entry| entry.path().join("pgdata")) {
        if folder.join("postmaster.pid").exists() {
            let mut stop = unprivileged(&postgres().unwrap_or_default().join("pg_ctl"), is_root);
            stop.args(["-m", "immediate", "-D"])
                .arg(&folder)
                .arg("stop");
            let _stopped = run::output(&mut stop);
        }
    }
}

/// Removes the stages of runs that were killed: their names end with the number of the process.
fn remove_stale(temporary: &Path, is_root: bool) {
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let id = name
            .strip_prefix("pgs-")
            .filter(|id| id.parse::<u32>().is_ok());
        if id.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            stop_servers(&entry.path(), is_root);
            let _removed = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            println!("{}: could not be removed: {error}", self.folder.display());
        }
    }
}

/// Runs one step of the preparation.
fn step(command: &mut Command) -> Result<(), String> {
    match run::run_shown(command, LIMIT).ending {
        Ending::Passed => Ok(()),
        Ending::Failed(how) | Ending::NotStarted(how) => Err(format!("preparation: {how}")),
        Ending::TimedOut => Err("preparation: over its limit".to_owned()),
    }
}

/// Whether the loopback interface has IPv6.
fn has_ipv6() -> bool {
    let addresses = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    addresses.lines().any(|line| line.ends_with(" lo"))
}
