//! The hosts of a database: which one is the primary, which are replicas, which are down, and which
//! of them the next connection goes to. It knows no socket and no clock.
//!
//! ```text
//!   Unknown -> Primary, Replica   a probe, or what a server reports at its login
//!   Primary, Replica, Unknown -> Down    `fall` failures in a row
//!   Down -> Primary, Replica      `rise` probes in a row
//!   Replica -> Primary            a probe: it was promoted
//!   Primary -> Fenced             another primary has a higher timeline
//!   Fenced -> Replica             a probe: it has joined the other primary
//! ```
//!
//! At most one host is `Primary`. A fenced host gets no connection until it is a replica, or has
//! the highest timeline itself.

mod choice;
mod health;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use choice::Choice;
pub use health::{Change, Observed, Role};

/// What is known of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HostState {
    /// No probe has ended yet.
    #[default]
    Unknown,
    /// It takes writes.
    Primary,
    /// It follows a primary.
    Replica,
    /// It does not answer.
    Down,
    /// It says that it is a primary, but another one has taken its place.
    Fenced,
}

/// Which hosts the connections of a database may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetAttrs {
    /// Any that answers.
    #[default]
    Any,
    /// The primary (`read-write` and `primary`).
    Primary,
    /// Replicas (`read-only` and `standby`).
    Standby,
    /// Replicas, or the primary if there is none.
    PreferStandby,
}

impl TargetAttrs {
    /// Reads a value of `target_session_attrs`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        Some(match text {
            "any" => Self::Any,
            "read-write" | "primary" => Self::Primary,
            "read-only" | "standby" => Self::Standby,
            "prefer-standby" => Self::PreferStandby,
            _ => return None,
        })
    }
}

/// How a connection chooses among hosts that are equally good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// In turn (`load_balance_hosts=round-robin`).
    #[default]
    RoundRobin,
    /// The first one of the list, and the next one after a failure (`disable`).
    InOrder,
    /// The one with the fewest clients at work.
    LeastOutstanding,
}

/// What holds for the hosts of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSettings {
    /// Which hosts may be used.
    pub attrs: TargetAttrs,
    /// How to choose among them.
    pub balance: Balance,
    /// Failures in a row after which a host is down; at least one.
    pub fall: u32,
    /// Successes in a row after which it is up again; at least one.
    pub rise: u32,
    /// How often hosts are probed.
    pub probe_every: Duration,
    /// Replicas further behind are not used; `None`: any.
    pub most_lag: Option<Duration>,
    /// How long clients are parked while no host can be used; zero: for ever.
    pub park: Duration,
}

impl HostSettings {
    /// As PgBouncer treats a list of hosts: none is ever down, and a failure only moves the next
    /// connection on.
    #[must_use]
    pub fn without_roles(balance: Balance) -> Self {
        Self {
            balance,
            fall: u32::MAX,
            ..Self::default()
        }
    }
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            attrs: TargetAttrs::Any,
            balance: Balance::RoundRobin,
            fall: 2,
            rise: 2,
            probe_every: Duration::from_secs(1),
            most_lag: None,
            park: Duration::from_secs(120),
        }
    }
}

/// One host. Its number is its place in the list of the configuration.
#[derive(Clone, Debug, Default)]
struct Host {
    state: HostState,
    /// Failures in a row.
    failures: u32,
    /// Successes in a row since it was down.
    successes: u32,
    /// The timeline that its last probe has reported.
    timeline: Option<u32>,
    lag: Option<Duration>,
    /// Clients that use a connection to it.
    outstanding: usize,
    /// Connections to it.
    connections: usize,
    /// When the next probe is due.
    probe_at: Duration,
    is_probing: bool,
}

/// The hosts of a database.
#[derive(Clone, Debug)]
pub struct Hosts {
    settings: HostSettings,
    hosts: Vec<Host>,
    /// The host that the next connection tries first.
    next: usize,
    /// The highest timeline that any host has reported.
    highest_timeline: u32,
    /// Since when no host can be used.
    without_since: Option<Duration>,
}

/// A host as the console shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRow {
    /// What is known of it.
    pub state: HostState,
    /// Connections to it.
    pub connections: usize,
    /// Clients that use one of them.
    pub outstanding: usize,
    /// Its timeline, if a probe has reported it.
    pub timeline: Option<u32>,
    /// How far it is behind the primary.
    pub lag: Option<Duration>,
}

impl Hosts {
    /// So many hosts, of which nothing is known.
    #[must_use]
    pub fn new(count: usize, settings: HostSettings) -> Self {
        Self {
            settings,
            hosts: vec![Host::default(); count],
            next: 0,
            highest_timeline: 0,
            without_since: None,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// What is known of a host.
    ///
    /// # Panics
    /// If there is no host of this number.
    #[must_use]
    pub fn state(&self, host: usize) -> HostState {
        self.hosts[host].state
    }

    /// The number of the primary.
    #[must_use]
    pub fn primary(&self) -> Option<usize> {
        let states = self.hosts.iter().map(|host| host.state);
        states.into_iter().position(|it| it == HostState::Primary)
    }

    /// What a host is: its state, its connections, how far it is behind.
    ///
    /// # Panics
    /// If there is no host of this number.
    #[must_use]
    pub fn row(&self, host: usize) -> HostRow {
        let host = &self.hosts[host];
        HostRow {
            state: host.state,
            connections: host.connections,
            outstanding: host.outstanding,
            timeline: host.timeline,
            lag: host.lag,
        }
    }

    /// Changes what holds for the hosts.
    pub fn configure(&mut self, settings: HostSettings) {
        self.settings = settings;
    }

    /// The hosts as the console shows them.
    pub fn rows(&self) -> impl Iterator<Item = HostRow> + '_ {
        (0..self.len()).map(|host| self.row(host))
    }
}
