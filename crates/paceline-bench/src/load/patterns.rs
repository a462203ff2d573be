//! The patterns of load: each decides what is asked when, and knows nothing of sockets.

mod bursts;
mod churn;
mod closed;
mod greeting;
mod open;
mod pairs;
mod slow;
mod slow_client;

pub(super) use bursts::Bursts;
pub(super) use churn::Churn;
pub(super) use closed::Closed;
pub(super) use greeting::Greeting;
pub(super) use open::Open;
pub(super) use pairs::Pairs;
pub(super) use slow::SlowReaders;
pub(super) use slow_client::{SlowClients, Trickle};
