//! The table of what was counted.

use crate::{
    record::{Counted, Run},
    report::{
        figures,
        table::{Side, Table},
    },
};

/// The system calls that have columns of their own: the name of the column, and those that it sums.
const CALLS: [(&str, &[&str]); 5] = [
    ("futex", &["futex"]),
    (
        "wait",
        &["epoll_wait", "epoll_pwait", "poll", "ppoll", "pselect6"],
    ),
    ("epoll_ctl", &["epoll_ctl"]),
    ("receive", &["recvfrom", "recvmsg", "read"]),
    ("send", &["sendto", "sendmsg", "write"]),
];

/// The section; empty if nothing was counted.
pub(super) fn section(run: &Run) -> String {
    if run.counted.is_empty() {
        return String::new();
    }
    let mut head = vec![("work", Side::Left), ("server", Side::Left)];
    head.extend(CALLS.map(|(name, _)| (name, Side::Right)));
    let beside = [
        "switches",
        "allocations",
        "migrations",
        "same thread",
        "no leader",
        "longest us",
    ];
    head.extend(beside.map(|name| (name, Side::Right)));
    let mut table = Table::new(&head);
    run.counted
        .iter()
        .for_each(|counted| table.row(row(counted)));
    format!(
        "## Counts per request\n\n\
         Server and client together, each in a pass of its own. *Same thread*: the share of events that were handled \
         by the thread that had handled the one before of their connection. *No leader*: the share of the time in \
         which no thread led (a leader that processes its own event and then leads again counts), and the longest \
         stretch.\n\n{}",
        table.markdown()
    )
}

fn row(counted: &Counted) -> Vec<String> {
    let calls = CALLS.map(|(_, names)| {
        let calls = names.iter().filter_map(|name| counted.calls.get(*name));
        figures::fixed(calls.fold(0.0, |sum, count| sum + count), 3)
    });
    let known = |value: Option<f64>, decimals| {
        value.map_or("-".to_owned(), |it| figures::fixed(it, decimals))
    };
    let mut row = vec![counted.work.clone(), counted.server.clone()];
    row.extend(calls);
    row.push(figures::fixed(counted.switches, 3));
    row.push(known(counted.allocations, 3));
    row.push(known(counted.migrations, 4));
    row.push(known(counted.same_thread, 2));
    row.push(known(counted.leaderless, 2));
    row.push(known(counted.longest_leaderless_us, 0));
    row
}
