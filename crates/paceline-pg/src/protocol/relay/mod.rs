//! Passes bytes between a client and its server connection.

mod from_client;
mod from_server;
mod lost;
mod shared;
mod statements;
mod unreplicated;

use paceline_pg_wire::{
    backend::{self, Reply},
    frontend, Message, TransactionStatus,
};

pub use lost::AfterLoss;
pub use shared::{batch, Batch};

use super::{
    client::LostBlock,
    output::Stream,
    parameters::{self, Comparison},
    server::{
        model::{Answer, Whose},
        Release,
    },
    Broken, ClientHalf, Mode, Purpose, RelaySettings, ServerHalf,
};

/// A client and its server connection, for one call.
#[derive(Debug)]
pub struct Relay<'r> {
    /// The client.
    pub client: &'r mut ClientHalf,
    /// Its server connection.
    pub server: &'r mut ServerHalf,
    /// What the relays of the pool have in common.
    pub settings: &'r RelaySettings,
}

/// The outcome of [`Relay::from_client`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromClient {
    /// How many bytes of the input are taken. The caller keeps the others, and calls again with
    /// them and more behind them.
    pub consumed: usize,
    /// The first so many bytes of the input go to the server unchanged, before what was appended
    /// to [`Output::to_server`](super::Output::to_server).
    pub direct: usize,
    /// The caller's next step.
    pub next: Next,
    /// Whether the server may serve another client: so it is if the relay has answered everything
    /// by itself.
    pub release: Release,
    /// The counts of this call.
    pub counts: Counts,
}

/// The caller's next step, after it has passed a client's bytes on.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Everything is taken but the incomplete start of a message: more bytes are needed.
    More,
    /// The rest must wait for replies. The caller calls again, with the same bytes, when a result
    /// of [`Relay::from_server`] says so.
    Wait,
    /// The client has sent Terminate.
    Terminate,
}

/// The outcome of [`Relay::from_server`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromServer {
    /// How many bytes of the input are taken. The caller keeps the others, and calls again with
    /// them and more behind them.
    pub consumed: usize,
    /// The first so many bytes of the input go to the client unchanged, before what was appended
    /// to [`Output::to_client`](super::Output::to_client).
    pub direct: usize,
    /// Whether the server may serve another client now.
    pub release: Release,
    /// Whether the relay can take waiting bytes of the client now. Then the server is held: the
    /// caller calls [`Relay::from_client`], and [`Relay::release`] afterwards.
    pub may_resume: bool,
    /// Whether the server has announced its end: [`ServerHalf::farewell`].
    pub has_ended: bool,
    /// What was counted.
    pub counts: Counts,
}

/// The counts of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often the server became ready for the client.
    pub queries: u32,
    /// How often it did so outside of a transaction block.
    pub transactions: u32,
    /// Named statements that the client has parsed.
    pub client_parses: u32,
    /// Named statements that were parsed on the server.
    pub server_parses: u32,
    /// Binds of the client.
    pub binds: u32,
}

/// Messages that may be outstanding before the client has to wait.
const MOST_OUTSTANDING: usize = 1 << 14;

impl Relay<'_> {
    /// Begins an assignment: appends the query that gives the server the parameters of the
    /// client, if any differ or are not tracked. Its replies are swallowed.
    ///
    /// # Panics
    /// If the server is not at a boundary.
    pub fn begin(&mut self, to_server: &mut Vec<u8>) {
        let wanted = self.client.parameters_mut();
        let present = &self.server.parameters;
        let mut query = match parameters::compare(&self.settings.tracked, wanted, present) {
            Comparison::Equal => Vec::new(),
            Comparison::Set(query) => query,
        };
        if let Some(others) = &self.client.others {
            query.extend_from_slice(others);
            self.server.is_altered = true;
        }
        if !query.is_empty() {
            self.server
                .begin_own(Purpose::Parameters, &query, to_server);
        }
    }

    /// Whether the server may serve another client.
    pub fn release(&self) -> Release {
        match self.server.may_release() {
            Release::Allowed if self.settings.mode == Mode::Session => Release::Held,
            // Another client would find the parameters that are not tracked.
            Release::Allowed if self.server.is_altered => Release::Held,
            Release::Allowed if !self.client.walk.is_between_messages() => Release::Held,
            release => release,
        }
    }

    /// Whether all bytes of the client must wait for replies.
    fn must_wait(&self) -> bool {
        let needs_end = !self.client.is_proven() || self.client.lost_block == LostBlock::Due;
        let is_setting = self.server.own.is_running() && needs_end;
        is_setting || self.server.model.outstanding() >= MOST_OUTSTANDING
    }

    /// Whether a message of this type must wait for replies: what it means depends on a batch
    /// that is not answered.
    fn must_wait_with(&self, tag: u8) -> bool {
        let model = &self.server.model;
        let names = self.settings.renames() && model.are_names_in_doubt();
        match tag {
            b'P' | b'C' | b'Q' => names,
            b'B' | b'D' => names || model.is_unnamed_in_doubt(),
            _ => false,
        }
    }

    /// Whether no message has to wait.
    fn may_resume(&self) -> bool {
        !self.must_wait() && !self.must_wait_with(b'B')
    }

    /// Sends the own answers that are due.
    fn send_answers(&mut self, to_client: &mut Vec<u8>) {
        while let Some(answer) = self.server.model.answer_due() {
            match answer {
                Answer::Parsed => {
                    backend::parse_complete(to_client);
                    self.client.commit_name();
                }
                Answer::Closed { is_named } => {
                    backend::close_complete(to_client);
                    if is_named {
                        self.client.commit_name();
                    }
                }
                Answer::Deallocated => self.answer_deallocate(to_client),
            }
        }
    }

    /// Sends a Sync of the client's.
    fn sync(&mut self, to_server: &mut Vec<u8>) {
        frontend::sync(to_server);
        self.server.model.sent_sync(Whose::Client);
    }
}

/// The transaction status in a `Z`.
pub(super) fn status(message: Message<'_>) -> Result<TransactionStatus, Broken> {
    match Reply::read(message)? {
        Reply::Ready(status) => Ok(status),
        _ => Err(Broken::Unexpected(message.tag)),
    }
}

/// Whether a tag says that the server has forgotten all statements.
pub(super) fn forgets_all(tag: &[u8]) -> bool {
    matches!(tag, b"DEALLOCATE ALL\0" | b"DISCARD ALL\0")
}

/// Whether an error is the server's last message. `body` may be the start of it.
pub(super) fn is_final(body: &[u8]) -> bool {
    let severity = field(body, b'V').or_else(|| field(body, b'S'));
    matches!(severity, Some(b"FATAL" | b"PANIC"))
}

/// The field of an error with this letter; `None` if it is not in the start of it.
fn field(body: &[u8], letter: u8) -> Option<&[u8]> {
    let mut fields = body.split(|byte| *byte == 0);
    fields.find_map(|field| field.strip_prefix(&[letter]))
}
