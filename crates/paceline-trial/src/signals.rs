//! Signals to processes, by their numbers.

use std::{fs, io, path::Path};

use rustix::process::{kill_process, Pid, Signal};

/// Sends a signal to one process.
pub(crate) fn send(signal: Signal, process: u32) -> io::Result<()> {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = number.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, signal)?)
}

/// Sends a signal to a process and to all that it has started. It is stopped first, so that it
/// starts no more of them meanwhile.
pub(crate) fn send_to_tree(signal: Signal, process: u32) -> io::Result<()> {
    send(Signal::STOP, process)?;
    for child in children(process)? {
        // A child that has ended needs no signal.
        let _ = send(signal, child);
    }
    send(signal, process)
}

/// The processes that this one has started.
fn children(parent: u32) -> io::Result<Vec<u32>> {
    let all = fs::read_dir("/proc")?.flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers
        .filter(|child| parent_of(*child) == Some(parent))
        .collect())
}

fn parent_of(process: u32) -> Option<u32> {
    let path = Path::new("/proc").join(process.to_string()).join("stat");
    let stat = fs::read_to_string(path).ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(1)?.parse().ok()
}
