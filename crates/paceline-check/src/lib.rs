//! Checks whether a system that speaks PostgreSQL's protocol keeps what transactions promise.
//!
//! ```text
//!   command --> run --> bank, append, ledger   what clients do, and what must hold
//!                         |        |
//!                         |        +--> transaction --> client   one session, one request at a time
//!                         +--> findings --> report
//! ```
//!
//! Each workload lets clients act at once, and remembers what each of them was promised. At the
//! end it reads everything once more and judges. A transaction whose outcome a client can't know
//! counts as done or as not done, never as a fault.
//!
//! ```no_run
//! use paceline_check::{run, Kind, Options};
//!
//! let mut options = Options { workloads: vec![Kind::Bank], ..Options::default() };
//! options.target = "postgres://demo@127.0.0.1:6432/bank".parse()?;
//! let report = run(&options)?;
//! println!("{report}");
//! assert!(report.has_passed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod append;
mod bank;
pub mod client;
pub mod command;
mod finding;
pub mod ledger;
mod options;
mod random;
mod report;
mod run;
pub mod transaction;
mod workload;

pub use finding::{Finding, Judgement};
pub use options::{Isolation, Kind, Options, Progress};
pub use random::Random;
pub use report::{Outcome, Report, Verdict};
pub use run::{run, run_under, run_until, NotReady};
