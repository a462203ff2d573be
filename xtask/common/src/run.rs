//! Running other programs: each in a process group of its own, with a time limit, and with a guard that ends
//! the group when the limit passes or when this program dies (Ctrl-C does not reach another group).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::verb::Verdict;

/// How often a running child is looked at.
const POLL: Duration = Duration::from_millis(10);

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// With exit code zero.
    Passed,
    /// With another code or by a signal; the text says which.
    Failed(String),
    /// It was killed because its time was over.
    TimedOut,
    /// It did not even start, which proves nothing about it; the text says why.
    NotStarted(String),
}

/// A child that has ended.
#[derive(Debug)]
#[must_use]
pub struct Finished {
    /// How.
    pub ending: Ending,
    /// How long it ran.
    pub time: Duration,
}

impl Finished {
    /// The verdict that follows if the child's end is all there is to say.
    pub fn verdict(&self) -> Verdict {
        let time = self.time.as_secs_f64();
        match &self.ending {
            Ending::Passed => Verdict::passed(format!("passed in {time:.1} s")),
            Ending::Failed(how) => Verdict::failed(format!("failed ({how}) after {time:.1} s")),
            Ending::TimedOut => Verdict::failed(format!("killed after its limit of {time:.0} s")),
            Ending::NotStarted(why) => Verdict::failed(why),
        }
    }
}

/// Runs a command to its end, or to the limit.
pub fn run(command: &mut Command, limit: Duration) -> Finished {
    let started = Instant::now();
    let ending = match start(command) {
        Ok((child, guard)) => watch(child, guard, started + limit),
        Err(error) => Ending::NotStarted(format!("could not start: {error}")),
    };
    let time = started.elapsed();
    Finished { ending, time }
}

/// Prints the command as one could type it, then runs it.
pub fn run_shown(command: &mut Command, limit: Duration) -> Finished {
    println!("$ {}", typed(command));
    run(command, limit)
}

/// Runs a command with both its outputs in one file.
pub fn run_logged(command: &mut Command, log: &Path, limit: Duration) -> Finished {
    match log_to(command, log) {
        Ok(()) => run(command, limit),
        Err(error) => Finished {
            ending: Ending::NotStarted(format!("could not be logged: {error}")),
            time: Duration::ZERO,
        },
    }
}

/// Makes a file, and the folders above it.
pub fn create(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create(path)
}

/// What a command prints on its standard output; an error if it fails.
pub fn output(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{}: {}",
        output.status,
        complaint.trim()
    )))
}

/// Whether a program is there and answers.
pub fn answers(program: &str, question: &[&str]) -> bool {
    output(Command::new(program).args(question)).is_ok()
}

/// A child that runs beside this program, until it ends or this is dropped: then its group is killed.
#[derive(Debug)]
pub struct Background {
    /// `None` once it has ended.
    running: Option<(Child, Guard)>,
}

impl Background {
    /// Starts it. Its outputs are the command's; its input is empty.
    pub fn start(command: &mut Command) -> io::Result<Background> {
        let running = Some(start(command)?);
        Ok(Background { running })
    }

    /// Its process; gone once it has ended.
    pub fn child(&mut self) -> Option<&mut Child> {
        self.running.as_mut().map(|(child, _)| child)
    }

    /// Sends it a signal, and waits until it has ended, or kills it at the limit.
    pub fn end(mut self, signal: &str, limit: Duration) -> Ending {
        let Some((child, guard)) = self.running.take() else {
            return Ending::NotStarted("it has ended already".to_owned());
        };
        let id = child.id().to_string();
        let script = ["-c", "kill -s \"$1\" \"$2\"", "signal", signal, &id];
        // If the signal can't be sent, the child has ended, or is killed at the limit.
        let _sent = output(Command::new("sh").args(script));
        watch(child, guard, Instant::now() + limit)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some((child, guard)) = self.running.take() {
            let _killed = watch(child, guard, Instant::now());
        }
    }
}

/// What a log holds, whatever bytes a test may have printed; nothing if there is none.
pub fn read_log(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Prints the last lines of a log in one piece, because other threads print too.
pub fn print_tail(log: &Path, lines: usize) {
    let text = read_log(log);
    let skipped = text.lines().count().saturating_sub(lines);
    let tail = text
        .lines()
        .skip(skipped)
        .map(|line| format!("    {line}\n"));
    println!(
        "{}    (whole log: {})",
        tail.collect::<String>(),
        log.display()
    );
}

/// Sends both outputs of a command into one file.
fn log_to(command: &mut Command, log: &Path) -> io::Result<()> {
    let file = create(log)?;
    command.stderr(file.try_clone()?).stdout(file);
    Ok(())
}

/// Starts the child as leader of its own group, and its guard.
fn start(command: &mut Command) -> io::Result<(Child, Guard)> {
    let mut child = command.stdin(Stdio::null()).process_group(0).spawn()?;
    match Guard::over(child.id()) {
        Ok(guard) => Ok((child, guard)),
        Err(error) => {
            child.kill()?;
            child.wait()?;
            Err(error)
        }
    }
}

/// Waits for the end of the child or of its time, whichever is first.
fn watch(mut child: Child, guard: Guard, deadline: Instant) -> Ending {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                guard.dismiss();
                return ending(status);
            }
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
            Ok(None) => {
                guard.kill();
                let _surely = child.kill();
                let _collected = child.wait();
                return Ending::TimedOut;
            }
            Err(error) => return Ending::Failed(format!("could not be watched: {error}")),
        }
    }
}

/// The ending that an exit status means.
fn ending(status: ExitStatus) -> Ending {
    if status.success() {
        Ending::Passed
    } else {
        Ending::Failed(status.to_string())
    }
}

/// A shell that kills one process group as soon as its standard input ends without a word, be it closed
/// by [`Guard::kill`] or by the death of this program.
#[derive(Debug)]
struct Guard {
    /// The shell, which waits for a line.
    shell: Child,
}

impl Guard {
    /// Sets a guard over a group, which is named by its leader.
    fn over(group: u32) -> io::Result<Guard> {
        let shell = Command::new("sh")
            .args(["-c", "read -r word || kill -9 \"-$1\"", "guard"])
            .arg(group.to_string())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Guard { shell })
    }

    /// Kills the group.
    fn kill(mut self) {
        drop(self.shell.stdin.take());
        let _ended = self.shell.wait();
    }

    /// Sends the guard home: the group has ended by itself.
    fn dismiss(mut self) {
        if let Some(mut stdin) = self.shell.stdin.take() {
            let _sent = stdin.write_all(b"ended\n");
        }
        let _ended = self.shell.wait();
    }
}

/// A command as one would type it into a shell, with the variables that were set for it.
fn typed(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)))
        .map(|(name, value)| {
            format!(
                "{}={}",
                name.to_string_lossy(),
                quoted(&value.to_string_lossy())
            )
        });
    let words = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| quoted(&word.to_string_lossy()));
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

/// A word, in quotes if a shell would otherwise split it.
fn quoted(word: &str) -> String {
    if word.contains([' ', '"', '$', '*']) {
        format!("'{word}'")
    } else {
        word.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell with a script.
    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn an_ending_is_told_apart() {
        let limit = Duration::from_secs(20);
        assert_eq!(run(&mut shell("exit 0"), limit).ending, Ending::Passed);
        assert!(
            matches!(run(&mut shell("exit 3"), limit).ending, Ending::Failed(how) if how.contains('3'))
        );
        let absent = &mut Command::new("no-such-program-anywhere");
        assert!(matches!(run(absent, limit).ending, Ending::NotStarted(_)));
    }

    /// A test that hangs has children of its own; one left behind would keep a core busy for ever.
    #[test]
    fn the_limit_ends_the_whole_group() {
        let log = std::env::temp_dir().join(format!("xtask-group-{}", std::process::id()));
        let mut command = shell("sleep 100 & echo $!; wait");
        let finished = run_logged(&mut command, &log, Duration::from_millis(300));
        let grandchild = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        assert_eq!(finished.ending, Ending::TimedOut);
        assert!(finished.time < Duration::from_secs(60));
        assert!(has_ended(grandchild.trim()), "{grandchild} still runs");
    }

    /// Whether a process is gone, or a zombie that only waits to be collected.
    fn has_ended(process: &str) -> bool {
        let ended = || match fs::read_to_string(format!("/proc/{process}/stat")) {
            Ok(stat) => stat.contains(") Z"),
            Err(_) => true,
        };
        (0..500).any(|_| {
            ended() || {
                thread::sleep(POLL);
                false
            }
        })
    }

    #[test]
    fn a_child_beside_ends_by_a_signal_or_with_its_owner() {
        let limit = Duration::from_secs(20);
        let child = Background::start(&mut shell("sleep 100")).unwrap();
        assert!(matches!(child.end("TERM", limit), Ending::Failed(how) if how.contains("15")));
        let mut child = Background::start(&mut shell("sleep 100")).unwrap();
        let id = child.child().unwrap().id().to_string();
        drop(child);
        assert!(has_ended(&id));
    }

    #[test]
    fn a_command_is_shown_as_one_types_it() {
        let mut command = Command::new("cargo");
        command
            .args(["test", "a b"])
            .env("RUSTFLAGS", "--cfg loom")
            .env_remove("HOME");
        assert_eq!(typed(&command), "RUSTFLAGS='--cfg loom' cargo test 'a b'");
    }
}
