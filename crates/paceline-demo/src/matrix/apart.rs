//! Rows that need mounts and a network of their own: this program runs once more, under `unshare`, for
//! that row alone. What it mounts and connects is gone when it ends.

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{rows::Row, run::Outcome, Options};
use crate::{
    tiers::{front::PASSWORD, Plan},
    USER,
};

/// The status of a process whose row can't run here.
pub(super) const SKIPPED: u8 = 77;

/// The size of the small file system.
const SIZE: &str = "size=64m";

/// Runs a row in a process with namespaces of its own. That process prints the row's line.
pub(super) fn run(row: &Row, options: &Options) -> Outcome {
    match run_apart(row, options) {
        Ok(outcome) => outcome,
        Err(why) => {
            say!("{:<20}  SKIPPED: {why}", row.name);
            Outcome::Skipped
        }
    }
}

fn run_apart(row: &Row, options: &Options) -> Result<Outcome, String> {
    let probe = unshare().arg("true").stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        return Err(
            "namespaces of its own are not permitted here (unshare --mount --net)".to_owned(),
        );
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = unshare();
    child.arg(program).args(["tier-faults", "--apart"]);
    child.args(["--transactions", &options.transactions.to_string()]);
    child.args(["--every", &options.every.as_secs_f64().to_string()]);
    child.args(["--clients", &options.clients.to_string(), row.name]);
    let status = child.stdin(Stdio::null()).status();
    let status = status.map_err(|error| format!("starting unshare: {error}"))?;
    Ok(match status.code() {
        Some(0) => Outcome::Passed,
        Some(code) if code == i32::from(SKIPPED) => Outcome::Skipped,
        _ => Outcome::Failed,
    })
}

/// Starts a program with mounts and a network of its own; as another user than root, with users of
/// its own too.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net"]);
    if !rustix::process::getuid().is_root() {
        command.arg("--map-root-user");
    }
    command
}

/// Makes the namespaces of this process fit for servers.
pub(super) fn begin() -> io::Result<()> {
    ip(&["link", "set", "lo", "up"])
}

/// A small file system, until this is dropped.
#[derive(Debug)]
pub(super) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one at this place.
    pub(super) fn mount(place: &Path) -> io::Result<Self> {
        fs::create_dir_all(place)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", SIZE, "none"]).arg(place);
        let status = mount.status()?;
        if status.success() {
            Ok(Self(place.to_owned()))
        } else {
            Err(io::Error::other(format!("mount has failed: {status}")))
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The mount ends with this process at the latest.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// The addresses of both ends of the cable.
const NEAR: &str = "10.99.0.1/24";
const FAR: &str = "10.99.0.2/24";
const FAR_HOST: &str = "10.99.0.2";

/// A network beside that of this process, and a cable between them.
#[derive(Debug)]
pub(super) struct Network {
    /// It is in that network, and so keeps it. It ends with its input.
    keeper: Child,
}

impl Network {
    /// Makes the network and the cable. This process must have a network of its own.
    pub(super) fn make() -> io::Result<Self> {
        let mut keeper = Command::new("unshare");
        keeper.args(["--net", "cat"]).stdin(Stdio::piped());
        let keeper = keeper.stdout(Stdio::piped()).spawn()?;
        let mut network = Self { keeper };
        network.await_keeper()?;
        let keeper = network.keeper.id().to_string();
        let peer = ["type", "veth", "peer", "name", "far", "netns", &keeper];
        ip(&[&["link", "add", "near"][..], &peer].concat())?;
        ip(&["addr", "add", NEAR, "dev", "near"])?;
        ip(&["link", "set", "near", "up"])?;
        network.far_ip(&["addr", "add", FAR, "dev", "far"])?;
        network.far_ip(&["link", "set", "lo", "up"])?;
        network.plug_in()?;
        Ok(network)
    }

    /// Waits until the keeper is in its network: then it copies its input.
    fn await_keeper(&mut self) -> io::Result<()> {
        let none = || io::Error::other("the keeper of the network has no pipes");
        let input = self.keeper.stdin.as_mut().ok_or_else(none)?;
        input.write_all(b"1")?;
        let output = self.keeper.stdout.as_mut().ok_or_else(none)?;
        output.read_exact(&mut [0])
    }

    /// Lets a server run in that network, with an address and a password there.
    pub(super) fn take_in(&self, plan: &mut Plan) {
        let launch = &mut plan.launch;
        let mut arguments = vec![self.place().into(), launch.program.clone().into()];
        arguments.append(&mut launch.arguments);
        arguments.extend([
            "--listen".into(),
            format!("{FAR_HOST}:{}", plan.probe.port).into(),
        ]);
        arguments.extend(["--user".into(), format!("{USER}:{PASSWORD}").into()]);
        launch.arguments = arguments;
        launch.program = "nsenter".into();
        plan.probe.host = FAR_HOST.to_owned();
        plan.probe.password = Some(PASSWORD.to_owned());
    }

    /// Takes the carrier from both ends of the cable.
    pub(super) fn unplug(&self) -> io::Result<()> {
        self.far_ip(&["link", "set", "far", "down"])
    }

    /// Gives it back.
    pub(super) fn plug_in(&self) -> io::Result<()> {
        self.far_ip(&["link", "set", "far", "up"])
    }

    fn place(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.keeper.id())
    }

    /// Runs `ip` in that network.
    fn far_ip(&self, words: &[&str]) -> io::Result<()> {
        let mut command = Command::new("nsenter");
        command.arg(self.place()).arg("ip").args(words);
        run_to_end(command)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // It ends with this process at the latest.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

fn ip(words: &[&str]) -> io::Result<()> {
    let mut command = Command::new("ip");
    command.args(words);
    run_to_end(command)
}

fn run_to_end(mut command: Command) -> io::Result<()> {
    let name = format!("{command:?}");
    let status = command.stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(io::Error::other(format!("{name}: {status}"))),
        Err(error) => Err(io::Error::new(error.kind(), format!("{name}: {error}"))),
    }
}
