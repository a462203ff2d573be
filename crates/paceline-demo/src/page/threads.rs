//! What the threads of a process do, as the kernel sees it: which of them leads, and which follow.

use std::{fs, path::Path};

use serde_json::{json, Value};

/// Each thread of a process with its name and what it does.
pub(super) fn of_process(process: u32) -> Vec<Value> {
    let folder = format!("/proc/{process}/task");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut threads: Vec<_> = entries
        .filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((id, of_thread(&entry.path())?))
        })
        .collect();
    threads.sort_by_key(|(id, _)| *id);
    threads
        .into_iter()
        .map(|(id, (name, role))| json!({"id": id, "name": name, "role": role}))
        .collect()
}

fn of_thread(folder: &Path) -> Option<(String, &'static str)> {
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
    let name = read("comm")?.trim_end().to_owned();
    let status = read("stat")?;
    let state = status.rsplit_once(')')?.1.trim_start().chars().next()?;
    let place = read("wchan").unwrap_or_default();
    Some((name, role(state, &place)))
}

/// The role of a thread by its state and by the kernel's function that it sleeps in.
fn role(state: char, place: &str) -> &'static str {
    match (state, place) {
        ('T' | 't', _) => "stopped",
        ('R', _) => "processing",
        ('D', _) => "disk",
        (_, place) if place.contains("poll") => "leader",
        (_, place) if place.contains("futex") => "follower",
        _ => "waiting",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_in_the_poll_leads_and_one_on_a_futex_follows() {
        assert_eq!(role('S', "ep_poll"), "leader");
        assert_eq!(role('S', "futex_wait_queue"), "follower");
        assert_eq!(role('R', "0"), "processing");
        assert_eq!(role('T', "do_signal_stop"), "stopped");
        assert_eq!(role('S', "unix_stream_read_generic"), "waiting");
    }

    #[test]
    fn the_threads_of_this_process_are_seen() {
        let threads = of_process(std::process::id());
        assert!(threads.len() > 1, "{threads:?}");
    }
}
