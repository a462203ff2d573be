//! Paceline measured side by side with what people would pick instead.
//!
//! One program, several processes: `run` starts a server (`serve`) and a client (`load`) for each
//! measurement, so that nothing is shared but the sockets.
//!
//! ```text
//!  run --- every work in rounds, all servers of a round in turns             [run, round, works]
//!   |
//!   +-- serve NAME   the service, by one of many servers                     [serve, servers]
//!   +-- load ADDR    one thread that asks and takes the time                 [load]
//!   |
//!   v
//!  records (JSON) --- report: ratios of paired rounds, tables, plots         [record, report]
//! ```
//!
//! `bound`, `urgent`, `idle`, `http` and `pooler` are programs of their own inside: clients that share one connection,
//! service levels, the memory of idle connections, web servers, and poolers before PostgreSQL.

mod allocations;
mod answering;
mod bound;
mod cli;
mod count;
mod distance;
mod goals;
mod heats;
mod homes;
mod http;
mod idle;
mod load;
mod machine;
mod peers;
mod pooler;
mod progress;
mod random;
mod record;
mod report;
mod round;
mod run;
mod serve;
mod servers;
mod service;
mod session;
mod statistics;
mod tls;
mod turns;
mod urgent;
mod usage;
mod works;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("paceline-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
