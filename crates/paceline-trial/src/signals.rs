//! Signals to processes, by their numbers.

use std::{fs, io, path::Path};

use rustix::process::{kill_process, Pid, Signal};

/// Sends a signal to one process.
pub(crate) fn send(signal: Signal, process: u32) -> io::Result<()> {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = number.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, signal)?)
}

/// Sends a signal to a process and to all that it has started, whose numbers it returns. It is
/// stopped first, so that it starts no more of them meanwhile.
pub(crate) fn send_to_tree(signal: Signal, process: u32) -> io::Result<Vec<u32>> {
    send(Signal::STOP, process)?;
    let children = children(process)?;
    for child in &children {
        // A child that has ended needs no signal.
        let _ = send(signal, *child);
    }
    send(signal, process)?;
    Ok(children)
}

/// Whether a process has ended: what it had mapped is released.
pub(crate) fn has_ended(process: u32) -> bool {
    stat(process).is_none_or(|stat| stat.starts_with('Z'))
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
    stat(process)?.split_whitespace().nth(1)?.parse().ok()
}

/// What the kernel says of a process behind its name: its state, its parent, and so on.
fn stat(process: u32) -> Option<String> {
    let path = Path::new("/proc").join(process.to_string()).join("stat");
    let stat = fs::read_to_string(path).ok()?;
    let (_, behind_name) = stat.rsplit_once(") ")?;
    Some(behind_name.to_owned())
}
