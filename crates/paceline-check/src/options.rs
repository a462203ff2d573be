//! What a run is to do.

use std::{fmt, time::Duration};

use crate::client::{Protocol, Target};

/// What a run is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The system under test.
    pub target: Target,
    /// The workloads, one after the other.
    pub workloads: Vec<Kind>,
    /// How many clients are at work at once.
    pub clients: u32,
    /// How long each workload lasts.
    pub duration: Duration,
    /// After how many attempts a workload ends early.
    pub transactions: Option<u64>,
    /// How many transactions all clients attempt each second at most.
    pub rate: Option<u32>,
    /// What transactions ask for.
    pub isolation: Isolation,
    /// What is checked; by default what the isolation promises.
    pub expect: Option<Isolation>,
    /// How statements with values are sent.
    pub protocol: Protocol,
    /// Repeats the choices of the clients.
    pub seed: u64,
    /// How long a client waits for a byte of a reply.
    pub timeout: Duration,
    /// How long the final read is attempted after the run.
    pub recovery: Duration,
    /// A command that makes a fault, and how long after the last one it is run.
    pub fault: Option<(String, Duration)>,
    /// Whether the tables stay after the run.
    pub keep_tables: bool,
    /// Where the progress is shown.
    pub progress: Progress,
}

impl Default for Options {
    /// All workloads for ten seconds each, with eight clients, serializable.
    fn default() -> Self {
        Self {
            target: Target::default(),
            workloads: Kind::ALL.to_vec(),
            clients: 8,
            duration: Duration::from_secs(10),
            transactions: None,
            rate: None,
            isolation: Isolation::Serializable,
            expect: None,
            protocol: Protocol::default(),
            seed: 1,
            timeout: Duration::from_secs(10),
            recovery: Duration::from_secs(60),
            fault: None,
            keep_tables: false,
            progress: Progress::Silent,
        }
    }
}

impl Options {
    /// The level that is checked.
    #[must_use]
    pub fn expected(&self) -> Isolation {
        self.expect.unwrap_or(self.isolation)
    }

    /// The statement that begins a transaction.
    pub(crate) fn begin(&self) -> String {
        format!("BEGIN ISOLATION LEVEL {}", self.isolation.sql())
    }
}

/// A kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Transfers between accounts: their total never changes.
    Bank,
    /// Transactions that read lists and append to them.
    Append,
    /// Entries that each client remembers as acknowledged, refused or unknown.
    Ledger,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bank, Self::Append, Self::Ledger];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bank => "bank",
            Self::Append => "append",
            Self::Ledger => "ledger",
        }
    }
}

/// How far transactions are isolated from each other, from weak to strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// Each statement sees what is committed when it starts.
    ReadCommitted,
    /// Each transaction sees what was committed when it started. PostgreSQL calls this level
    /// REPEATABLE READ.
    Snapshot,
    /// As if the transactions ran one after the other.
    Serializable,
}

impl Isolation {
    /// As SQL names it.
    #[must_use]
    pub fn sql(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::Snapshot => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }

    /// As the options name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read-committed",
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where the progress of a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nowhere.
    Silent,
    /// In one line of the terminal that is written again.
    Terminal,
    /// In a line of the error output every five seconds.
    Lines,
}
