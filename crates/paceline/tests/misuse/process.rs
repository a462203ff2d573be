//! What the process holds: descriptors and threads, as they were before the round; and panics that
//! no plan has.

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    panic,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use crate::misuse::{ledger::Ledger, rest::settle};

/// Who is to connect to a listener. Each of these has a loopback address that no other process has.
///
/// A client of a round may connect when its listener has ended. Its port may be another listener's
/// by then: with one address for all, a program beside the test answered bytes that no client had
/// sent, and a client took the place of the connection that a listener was made for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peers {
    /// Clients that dial, as long as the round goes on.
    Dialling = 0x00,
    /// The one connection that the listener is made for.
    One = 0x80,
    /// None: it ends before the pool connects.
    Refused = 0x40,
}

/// The address for a listener with such peers; the system chooses the port.
pub(crate) fn address_for(peers: Peers) -> SocketAddr {
    // A number of a process has 22 bits.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    (Ipv4Addr::new(127, high | peers as u8, middle, low), 0).into()
}

/// The descriptors and threads of the process at one moment.
#[derive(Debug)]
pub(crate) struct Baseline {
    descriptors: BTreeMap<String, String>,
    threads: usize,
}

impl Baseline {
    pub(crate) fn now() -> Self {
        Self {
            descriptors: descriptors(),
            threads: threads(),
        }
    }

    /// What is there and was not before, once that has settled (S2).
    pub(crate) fn compare(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if !settle(|| threads() <= self.threads) {
            let (now, before) = (threads(), self.threads);
            wrong.push(format!("S2: {now} threads, {before} before: {:?}", names()));
        }
        if !settle(|| descriptors().len() <= self.descriptors.len()) {
            let now = descriptors();
            let new = now
                .iter()
                .filter(|(number, _)| !self.descriptors.contains_key(*number));
            wrong.push(format!(
                "S2: new descriptors: {:?}",
                new.collect::<Vec<_>>()
            ));
        }
        wrong
    }
}

fn descriptors() -> BTreeMap<String, String> {
    let all = fs::read_dir("/proc/self/fd").unwrap();
    all.filter_map(|entry| {
        let entry = entry.ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        let kind = target.to_string_lossy().into_owned();
        Some((entry.file_name().to_string_lossy().into_owned(), kind))
    })
    .filter(|(_, kind)| !kind.ends_with("/fd"))
    .collect()
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

fn names() -> Vec<String> {
    let all = fs::read_dir("/proc/self/task").unwrap();
    let names = all.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).collect()
}

/// The time that all threads have run.
pub(crate) fn time_used() -> Duration {
    let all = fs::read_dir("/proc/self/task").unwrap();
    let used = all.filter_map(|entry| {
        let text = fs::read_to_string(entry.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum())
}

/// The memory that the process has, in pages.
pub(crate) fn pages() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

static LEDGER: Mutex<Weak<Ledger>> = Mutex::new(Weak::new());

/// From now on a panic that is not of the plan is a complaint.
pub(crate) fn listen_to_panics(ledger: &Arc<Ledger>) {
    *LEDGER.lock().unwrap() = Arc::downgrade(ledger);
    panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        if text.contains("misuse: ") {
            return;
        }
        let ledger = LEDGER.lock().map(|ledger| ledger.upgrade());
        eprintln!("a panic that is not of the plan: {text}");
        if let Ok(Some(ledger)) = ledger {
            ledger.complain(format!("panic: {text}"));
        }
    }));
}
