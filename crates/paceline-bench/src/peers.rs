//! The peers that are programs of their own: how they are installed, built and started.
//!
//! A peer is built when it is first asked for, into the target directory, and again when its source has
//! changed. Sources in C++ are part of this program; their libraries come from Debian ([`install`]).
//!
//! ```text
//!  target/peers/asio-0123456789abcdef     the program of this source
//!  target/peers/tokio-unstable/           a target directory of its own
//! ```

// `tokio_unstable` is given only to the second build, of the server `tokio-eager`.
#![allow(unexpected_cfgs)]

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{self, Command, Output, Stdio},
};

use crate::servers::Setting;

/// What the C++ peers need, as Debian calls it.
const PACKAGES: [&str; 3] = ["g++", "libboost-dev", "libace-dev"];

/// What all sources in C++ have in common; they include it by this line.
const COMMON: (&str, &str) = (
    "#include \"common.hpp\"",
    include_str!("../peers/common.hpp"),
);

/// What to do when a build fails for want of something.
const HINT: &str = "`paceline-bench install-peers` installs what the C++ peers need (as root)";

/// A peer that is a program of its own.
#[derive(Debug)]
pub(crate) struct Program {
    /// What the program is called in the target directory.
    name: &'static str,
    /// What it is made of.
    made_of: MadeOf,
    /// Its arguments before those that all servers have in common.
    arguments: &'static [&'static str],
}

#[derive(Debug)]
enum MadeOf {
    /// C++, with the linker's arguments.
    Cxx {
        source: &'static str,
        libraries: &'static [&'static str],
    },
    /// This very package, built once more with the unstable part of tokio.
    UnstableTokio,
}

/// Boost.Asio.
pub(crate) const ASIO: Program = Program {
    name: "asio",
    made_of: MadeOf::Cxx {
        source: include_str!("../peers/asio.cpp"),
        libraries: &[],
    },
    arguments: &[],
};

/// ACE with its TP_Reactor.
pub(crate) const ACE_TP: Program = Program {
    name: "ace",
    made_of: ACE,
    arguments: &["--tp"],
};

/// ACE with its Dev_Poll_Reactor.
pub(crate) const ACE_DEV_POLL: Program = Program {
    name: "ace",
    made_of: ACE,
    arguments: &["--dev-poll"],
};

const ACE: MadeOf = MadeOf::Cxx {
    source: include_str!("../peers/ace.cpp"),
    libraries: &["-lACE"],
};

/// Tokio with the eager hand-off of its driver.
#[cfg(not(tokio_unstable))]
pub(crate) const TOKIO_EAGER: Program = Program {
    name: "paceline-bench",
    made_of: MadeOf::UnstableTokio,
    arguments: &["serve", "tokio-eager"],
};

/// Installs what the C++ peers need.
pub(crate) fn install() -> io::Result<()> {
    let mut command = Command::new("apt-get");
    command.args(["install", "--yes", "--no-install-recommends"]);
    command.args(PACKAGES);
    println!("installing {}", PACKAGES.join(", "));
    let done = command.status();
    let done = done.map_err(|error| failed("start apt-get (it is Debian's)", &error))?;
    if done.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "apt-get install {} failed ({done}): it has to be run as root, after `apt-get update`",
            PACKAGES.join(" ")
        )))
    }
}

impl Program {
    /// Builds it unless that is done; returns its path.
    pub(crate) fn build(&self) -> io::Result<PathBuf> {
        let directory = directory()?;
        fs::create_dir_all(&directory)?;
        match &self.made_of {
            MadeOf::Cxx { source, libraries } => self.compile(&directory, source, libraries),
            MadeOf::UnstableTokio => self.build_again(&directory.join("tokio-unstable")),
        }
    }

    /// Becomes this program: returns only an error.
    pub(crate) fn become_it(
        &self,
        listen: SocketAddr,
        setting: &Setting,
        count: bool,
    ) -> io::Error {
        match self.build() {
            Err(error) => error,
            Ok(path) => {
                let error = self.command(&path, listen, setting, count).exec();
                failed(&format!("start {}", path.display()), &error)
            }
        }
    }

    /// How it is started.
    pub(crate) fn command(
        &self,
        path: &Path,
        listen: SocketAddr,
        setting: &Setting,
        count: bool,
    ) -> Command {
        let mut command = Command::new(path);
        command.args(self.arguments);
        command.args(["--listen", &listen.to_string()]);
        command.args(["--threads", &setting.threads.to_string()]);
        command.args(["--steps", &setting.steps.to_string()]);
        command.args(setting.announced.then_some("--announced"));
        command.args(count.then_some("--count"));
        command
    }

    fn compile(&self, directory: &Path, source: &str, libraries: &[&str]) -> io::Result<PathBuf> {
        let source = source.replace(COMMON.0, COMMON.1);
        let program = directory.join(format!("{}-{:016x}", self.name, hash_of(&source)));
        if program.exists() {
            return Ok(program);
        }
        // Of this process, and then renamed: others may be building the same.
        let mine = program.with_extension(process::id().to_string());
        let mut command = Command::new("g++");
        command.args([
            "-std=c++17",
            "-O2",
            "-DNDEBUG",
            "-pthread",
            "-x",
            "c++",
            "-",
        ]);
        command.args(libraries).arg("-o").arg(&mine);
        run(&mut command, &source, self.name)?;
        fs::rename(mine, &program)?;
        Ok(program)
    }

    /// Cargo knows whether anything has changed.
    fn build_again(&self, target: &Path) -> io::Result<PathBuf> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let mut command = Command::new("cargo");
        command.args(["build", "--release", "--quiet", "--manifest-path"]);
        command.arg(manifest).arg("--target-dir").arg(target);
        command.env("RUSTFLAGS", "--cfg tokio_unstable");
        command.env_remove("CARGO_ENCODED_RUSTFLAGS");
        run(&mut command, "", self.name)?;
        Ok(target.join("release").join(self.name))
    }
}

/// Runs a compiler that reads `source`.
fn run(command: &mut Command, source: &str, name: &str) -> io::Result<()> {
    let compiler = command.get_program().to_string_lossy().into_owned();
    let output = output_of(command, source).map_err(|error| {
        let doing = format!("build {name}: run {compiler} ({HINT})");
        failed(&doing, &error)
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().take(4).collect();
    let text = format!(
        "build {name}: {compiler} failed; {HINT}\n{}",
        said.join("\n")
    );
    Err(io::Error::other(text))
}

fn output_of(command: &mut Command, input: &str) -> io::Result<Output> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut compiler = command.stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = compiler.stdin.take() {
        // A compiler that does not read on will say why.
        let _ = stdin.write_all(input.as_bytes());
    }
    compiler.wait_with_output()
}

fn hash_of(source: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    hasher.finish()
}

/// Where peers are built: in the target directory, which cargo marks.
fn directory() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program
        .ancestors()
        .find(|path| path.join("CACHEDIR.TAG").exists());
    let of_source = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    Ok(target.map_or_else(of_source, Path::to_owned).join("peers"))
}

fn failed(doing: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{doing}: {error}"))
}
