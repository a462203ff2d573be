//! What is counted beside what is timed: system calls, allocations, changes of thread. In passes of their own,
//! because counting takes time.

use std::{
    collections::BTreeMap,
    fs, io,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{kill_process, Pid, Signal};

use crate::{
    record::{Counted, Place},
    servers::{counts::Counts, Server},
    session::{Running, Terms},
    works::Work,
};

/// How long each pass lasts.
const SECONDS: f64 = 1.0;
/// How long perf needs to find all threads.
const ATTACHING: Duration = Duration::from_millis(300);
/// The kernel's names for the entries of system calls begin with this.
const TRACEPOINT: &str = "syscalls:sys_enter_";
/// The system calls that any of the servers makes while it serves.
const CALLS: [&str; 18] = [
    "accept4",
    "clock_nanosleep",
    "close",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_wait",
    "futex",
    "nanosleep",
    "poll",
    "ppoll",
    "pselect6",
    "read",
    "recvfrom",
    "recvmsg",
    "sched_yield",
    "sendmsg",
    "sendto",
    "write",
];

/// Counts one server under one work, server and client together.
pub(crate) fn count(server: &Server, work: &Work, steps: u32) -> io::Result<Counted> {
    let terms = Terms {
        place: Place::Together,
        steps,
        rate: None,
    };
    let mut counted = count_inside(server, work, terms)?;
    counted.calls = count_calls(server, work, terms)?;
    Ok(counted)
}

/// What the server counts of itself, and what the kernel counts of it.
fn count_inside(server: &Server, work: &Work, terms: Terms) -> io::Result<Counted> {
    let mut running = Running::start(server, work, terms, true)?;
    // Once without looking: what is allocated per connection or per thread is there then.
    running.load(work, terms, SECONDS)?;
    let (before, moved) = (running.counts()?, migrations(running.id()));
    let load = running.load(work, terms, SECONDS)?;
    let (after, moves) = (running.counts()?, migrations(running.id()));
    let per_request = |count: u64| count as f64 / load.requests.max(1) as f64;
    let grown = |of: fn(&Counts) -> Option<u64>| Some(of(&after)?.saturating_sub(of(&before)?));
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    Ok(Counted {
        work: work.name.to_owned(),
        server: server.name.to_owned(),
        calls: BTreeMap::new(),
        allocations: grown(|counts| counts.allocations).map(per_request),
        same_thread: grown(|counts| counts.same_thread)
            .zip(grown(|counts| counts.events))
            .map(|(same, all)| share(same, all)),
        migrations: moves
            .zip(moved)
            .map(|(after, before)| per_request(after.saturating_sub(before))),
        switches: per_request(load.voluntary),
        leaderless: after
            .leaderless_us
            .zip(before.leaderless_us)
            .map(|(after, before)| (after - before) / (load.seconds * 1e6)),
        longest_leaderless_us: after.longest_leaderless_us,
    })
}

/// System calls per request, by name: counted by the kernel's tracepoints, which hardly take time. (strace takes so
/// much that short handlers look long.)
fn count_calls(server: &Server, work: &Work, terms: Terms) -> io::Result<BTreeMap<String, f64>> {
    let running = Running::start(server, work, terms, false)?;
    // The first load has every thread at work, so that all are seen.
    running.load(work, terms, SECONDS)?;
    let events: Vec<_> = CALLS
        .iter()
        .map(|name| format!("{TRACEPOINT}{name}"))
        .collect();
    let perf = Command::new("perf")
        .args([
            "stat",
            "-x,",
            "-e",
            &events.join(","),
            "-p",
            &running.id().to_string(),
        ])
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| unavailable(&error.to_string()))?;
    thread::sleep(ATTACHING);
    let load = running.load(work, terms, SECONDS);
    let table = interrupted(perf)?;
    let requests = load?.requests.max(1) as f64;
    let calls: BTreeMap<_, _> = table.lines().filter_map(call_of).collect();
    if calls.is_empty() {
        return Err(unavailable(table.trim()));
    }
    let per_request = |(name, count): (String, u64)| (name, count as f64 / requests);
    Ok(calls.into_iter().map(per_request).collect())
}

fn unavailable(why: &str) -> io::Error {
    io::Error::other(format!(
        "count system calls with `perf stat` (Debian's package linux-perf): {why}"
    ))
}

/// Ends perf, and returns its table.
fn interrupted(perf: Child) -> io::Result<String> {
    let id = i32::try_from(perf.id()).ok().and_then(Pid::from_raw);
    id.map_or(Ok(()), |id| kill_process(id, Signal::INT))?;
    Ok(String::from_utf8_lossy(&perf.wait_with_output()?.stderr).into_owned())
}

/// A row of perf's table: what, and how often.
fn call_of(line: &str) -> Option<(String, u64)> {
    let mut cells = line.split(',');
    let count = cells.next()?.parse().ok()?;
    let name = cells.find_map(|cell| cell.strip_prefix(TRACEPOINT))?;
    (count > 0).then(|| (name.to_owned(), count))
}

/// How often a thread of a process was moved to another core, if the kernel reports it.
fn migrations(process: u32) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let of_task = |task: io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(task.ok()?.path().join("sched")).ok()?;
        let line = text
            .lines()
            .find(|line| line.starts_with("se.nr_migrations"))?;
        line.split_whitespace().last()?.parse::<u64>().ok()
    };
    tasks.map(of_task).sum()
}

#[cfg(test)]
mod tests {
    use super::call_of;

    /// What did not happen is left out; what perf says beside its rows is no row.
    #[test]
    fn only_rows_are_calls() {
        let table = "1234,,syscalls:sys_enter_recvfrom,1,100.00,,\n0,,syscalls:sys_enter_poll,1,100.00,,\n<not supported>,,cycles,0,0\n";
        let calls: Vec<_> = table.lines().filter_map(call_of).collect();
        assert_eq!(calls, [("recvfrom".to_owned(), 1234)]);
    }
}
