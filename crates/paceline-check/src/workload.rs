//! What a workload is: tables, clients that act, and a judgement at the end.

use crate::{
    client::{Failure, Session},
    finding::Judgement,
    options::Options,
    transaction::Ending,
};

/// A kind of work whose result can be judged.
pub(crate) trait Workload: Sync + Sized {
    /// One client.
    type Client: Client;

    /// As the option `--workload` names it.
    const NAME: &'static str;

    /// The table that [`prepare`](Self::prepare) makes.
    const TABLE: &'static str;

    fn new(options: &Options) -> Self;

    /// Makes the table, which does not exist, and fills it.
    fn prepare(&self, session: &mut Session) -> Result<(), Failure>;

    /// The client of this number, with chance of its own.
    fn client(&self, number: u32, seed: u64) -> Self::Client;

    /// Reads everything for the last time, and judges it with what the clients know. It may be
    /// called again if the reading fails.
    fn conclude(
        &self,
        clients: &[Self::Client],
        session: &mut Session,
    ) -> Result<Judgement, Failure>;
}

/// A client of a workload.
pub(crate) trait Client: Send {
    /// Runs one transaction, and remembers what is known of it.
    fn step(&mut self, session: &mut Session) -> Ending;
}
