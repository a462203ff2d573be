//! What is written down: one record per measurement, and the file of a whole run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A whole run, as `run --json` writes it and `report` reads it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The machine it ran on.
    pub(crate) machine: Machine,
    /// What was measured, and when.
    #[serde(default)]
    pub(crate) source: String,
    /// The command that made it.
    pub(crate) command: String,
    /// The measurements, in the order in which they were made.
    pub(crate) records: Vec<Record>,
    /// What was counted in passes of their own.
    #[serde(default)]
    pub(crate) counted: Vec<Counted>,
    /// The peers that were asked for and could not be started, each with its reason.
    pub(crate) absent: Vec<String>,
}

/// The machine of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The processor's name.
    pub(crate) processor: String,
    /// How many cores it has.
    pub(crate) cores: usize,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The compiler that built this program.
    pub(crate) compiler: String,
}

/// Where server and client run.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    /// The server on one core, the client on another: the cost per request decides.
    Apart,
    /// Nothing is confined: what a user sees on a small machine.
    Together,
}

impl Place {
    /// Its name, as it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::Apart => "apart",
            Place::Together => "together",
        }
    }
}

/// One measurement: one server under one work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The name of the work.
    pub(crate) work: String,
    /// The name of the server.
    pub(crate) server: String,
    /// How many threads it was given.
    pub(crate) threads: usize,
    /// Where the two ran.
    pub(crate) place: Place,
    /// The round, from 0: records of one round are compared with each other.
    pub(crate) round: usize,
    /// What the client saw.
    pub(crate) load: Load,
    /// How far the cores were from each other, in nanoseconds, in the mean; see `distance.rs`.
    #[serde(default)]
    pub(crate) distance: Option<f64>,
    /// Whether it counts: the machine was quiet (see [`Load::foreign`]), or that was not wanted.
    pub(crate) clean: bool,
    /// Of what it is the sum. (Older records are of one piece, and a disturbed one is followed by its repetition.)
    #[serde(default)]
    pub(crate) slices: Option<Slices>,
}

/// The slices of a measurement; see `heats.rs`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Slices {
    /// Those that were kept.
    pub(crate) kept: Vec<Slice>,
    /// How many were disturbed, and made again.
    pub(crate) made_again: usize,
    /// What they were measured beside, if that is what they are compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beside: Option<Beside>,
}

/// What a measurement was made beside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Beside {
    /// Its work, place and server.
    pub(crate) of: String,
    /// Those slices of the measurement that were, each with the other's in the same heat.
    pub(crate) pairs: Vec<(Slice, Slice)>,
}

/// What a client saw in one slice, as far as slices are compared.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Slice {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    /// Seconds of processor time that the server used.
    pub(crate) server_cpu: f64,
    /// Latencies in microseconds, if there were enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p50: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p99: Option<f64>,
}

/// So many latencies a slice needs to tell something of them.
const ENOUGH: u64 = 1000;

impl Slice {
    /// Of what a client saw.
    pub(crate) fn of(load: &Load) -> Self {
        let latency = &load.latency;
        let if_enough = |value| (latency.count >= ENOUGH).then_some(value);
        Self {
            requests: load.requests,
            seconds: load.seconds,
            server_cpu: load.server_cpu,
            p50: if_enough(latency.p50),
            p99: if_enough(latency.p99),
        }
    }
}

impl Record {
    /// As a [`Beside`] names it.
    pub(crate) fn name(&self) -> String {
        name(&self.work, self.place, &self.server)
    }
}

/// A server under a work, at a place.
pub(crate) fn name(work: &str, place: Place, server: &str) -> String {
    format!("{work} {} {server}", place.name())
}

/// What the client saw, over the measured time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    /// How many replies came.
    pub(crate) requests: u64,
    /// How long it measured.
    pub(crate) seconds: f64,
    /// Of the requests that are in focus: where some sleep, of the others; of pairs, of the second.
    pub(crate) latency: Latency,
    /// Of all requests.
    pub(crate) latency_of_all: Latency,
    /// Connections that failed or gave a wrong reply.
    pub(crate) errors: u64,
    /// Seconds of processor time that the server used.
    pub(crate) server_cpu: f64,
    /// The server's voluntary switches: a thread gave its core up.
    pub(crate) voluntary: u64,
    /// The server's involuntary switches: a thread's core was taken.
    pub(crate) involuntary: u64,
    /// Seconds of processor time that the client used.
    pub(crate) client_cpu: f64,
    /// Cores, in the mean, that neither of the two used, and that were not idle: others' work, and time stolen
    /// by the host.
    pub(crate) foreign: f64,
    /// The server's resident memory at the end, in bytes.
    pub(crate) memory: u64,
}

/// What was counted of one server under one work, server and client together; per request unless said otherwise.
/// What is not known is `None`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// The name of the work.
    pub(crate) work: String,
    /// The name of the server.
    pub(crate) server: String,
    /// System calls by name.
    pub(crate) calls: BTreeMap<String, f64>,
    /// How often memory was asked for.
    pub(crate) allocations: Option<f64>,
    /// The share of events that were handled by the thread that had handled the one before of their connection.
    pub(crate) same_thread: Option<f64>,
    /// How often a thread was moved to another core.
    pub(crate) migrations: Option<f64>,
    /// Voluntary switches.
    pub(crate) switches: f64,
    /// The share of the time without a leader.
    pub(crate) leaderless: Option<f64>,
    /// The longest time without a leader.
    pub(crate) longest_leaderless_us: Option<f64>,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// How many were measured.
    pub(crate) count: u64,
    /// The median.
    pub(crate) p50: f64,
    /// 99 of 100 were at most this.
    pub(crate) p99: f64,
    /// 999 of 1000 were at most this.
    pub(crate) p999: f64,
    /// The longest.
    pub(crate) max: f64,
}

impl Load {
    /// Replies per second.
    pub(crate) fn throughput(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Microseconds of the server's processor time per reply.
    pub(crate) fn cpu_per_request(&self) -> f64 {
        self.server_cpu * 1e6 / self.requests as f64
    }
}
