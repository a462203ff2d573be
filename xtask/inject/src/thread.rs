//! One thread of the server is stopped, chosen by its role, which shows in the system call that it is in.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::server::Server;
use super::Trouble;

/// The numbers of the system calls that tell a role.
#[cfg(target_arch = "x86_64")]
mod number {
    /// `epoll_wait`, `epoll_pwait`, `poll` and `ppoll`.
    pub(super) const WAITS: [u64; 4] = [232, 281, 7, 271];
    /// `futex`.
    pub(super) const FUTEX: u64 = 202;
    /// `restart_syscall`.
    pub(super) const RESTART: u64 = 219;
}

/// The same in the table that the younger architectures share.
#[cfg(not(target_arch = "x86_64"))]
mod number {
    /// `epoll_pwait` and `ppoll`.
    pub(super) const WAITS: [u64; 2] = [22, 73];
    /// `futex`.
    pub(super) const FUTEX: u64 = 98;
    /// `restart_syscall`.
    pub(super) const RESTART: u64 = 128;
}

/// What a thread of the pool does, as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It waits in the handle set.
    Leader,
    /// It sleeps without a timer while another one is the standby.
    Follower,
    /// It sleeps with a timer.
    Standby,
}

/// A thread that is stopped until this is dropped.
pub(super) struct Stopped {
    /// The program that holds it.
    holder: Child,
}

impl Stopped {
    /// Looks once for a thread in this role, and stops it. `None`: there is none at the moment. In a pool
    /// with a standby, a follower is one that is not the standby.
    pub(super) fn find(
        server: &Server,
        role: Role,
        standby: bool,
        program: &Path,
    ) -> Result<Option<Stopped>, Trouble> {
        let threads = threads(server);
        // A thread that sleeps without a timer may be the standby of an idle pool, unless another one is.
        let known = || !standby || threads.iter().any(|other| is(other, Role::Standby));
        let fits = |thread: &Path| is(thread, role) && (role != Role::Follower || known());
        let Some(thread) = threads.iter().find(|thread| fits(thread)) else {
            return Ok(None);
        };
        let stopped = Stopped::stop(thread, program)?;
        // It may have been on its way out.
        Ok(fits(thread).then_some(stopped))
    }

    /// Stops a thread, and waits until it is stopped.
    fn stop(thread: &Path, program: &Path) -> Result<Stopped, Trouble> {
        let number = thread.file_name().unwrap_or_default();
        let holder = Command::new(program)
            .arg(number)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Trouble::Failed(format!("no thread can be stopped: {error}")))?;
        let mut stopped = Stopped { holder };
        let said = first_line(stopped.holder.stdout.take());
        if said == "stopped" {
            Ok(stopped)
        } else {
            Err(stopped.excuse())
        }
    }

    /// Why it was not stopped.
    fn excuse(&mut self) -> Trouble {
        let said = first_line(self.holder.stderr.take());
        Trouble::of_tool("a thread can't be stopped", &said)
    }
}

impl Drop for Stopped {
    /// The holder ends when its input does, and lets the thread go on first.
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ended = self.holder.wait();
    }
}

/// How many threads the pool has.
pub(super) fn count(server: &Server) -> usize {
    threads(server).len()
}

/// The first line of an output.
fn first_line(output: Option<impl std::io::Read>) -> String {
    let mut text = String::new();
    if let Some(output) = output {
        let _read = BufReader::new(output).read_line(&mut text);
    }
    text.trim_end().to_owned()
}

/// The folders of the pool's threads.
fn threads(server: &Server) -> Vec<PathBuf> {
    let Ok(tasks) = fs::read_dir(server.folder().join("task")) else {
        return Vec::new();
    };
    let prefix = server.thread_prefix();
    let is_ours = |task: &PathBuf| {
        let name = fs::read_to_string(task.join("comm"));
        name.is_ok_and(|name| name.starts_with(prefix))
    };
    // The first thread has the number of the process, and is not one of the pool's.
    let first = server.id.to_string();
    let folders = tasks.filter_map(|task| Some(task.ok()?.path()));
    let others = folders.filter(|task| !task.ends_with(&first));
    others.filter(is_ours).collect()
}

/// Whether a thread is in this role, as far as its system call shows.
fn is(thread: &Path, role: Role) -> bool {
    let call = fs::read_to_string(thread.join("syscall"));
    call.is_ok_and(|call| doing(&call) == Some(role))
}

/// The role that a system call shows, in the kernel's words: its number and its arguments.
fn doing(call: &str) -> Option<Role> {
    let mut words = call.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let fourth = words.nth(3)?;
    match number {
        number::FUTEX if fourth == "0x0" => Some(Role::Follower),
        // A sleep with a timer that was interrupted continues as a restart.
        number::FUTEX | number::RESTART => Some(Role::Standby),
        number if number::WAITS.contains(&number) => Some(Role::Leader),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_shows_in_the_call() {
        let futex = number::FUTEX;
        let told =
            |fourth: &str| doing(&format!("{futex} 0x7f 0x80 0x2 {fourth} 0x0 0x0 0x7f 0x55"));
        assert_eq!(told("0x0"), Some(Role::Follower));
        assert_eq!(told("0x7ffd"), Some(Role::Standby));
        let wait = number::WAITS[0];
        assert_eq!(
            doing(&format!(
                "{wait} 0x5 0x7f 0x100 0xffffffff 0x0 0x0 0x7f 0x55"
            )),
            Some(Role::Leader)
        );
        assert_eq!(doing("running\n"), None);
    }
}
