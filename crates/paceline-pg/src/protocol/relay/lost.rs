//! The loss of a server connection: the client gets an answer to each of its requests, and then
//! continues with another server. The front-end never resends a statement.
//!
//! A client whose transaction block is lost is in a failed block until it ends that, as after any
//! error in a block. Otherwise a statement that it has sent without waiting for the answer to the
//! one before would become a transaction of its own on the next server.

use paceline_pg_wire::{
    backend::{self, Reply},
    Message, NewReport, Severity, TransactionStatus,
};

use super::{
    super::{
        client::LostBlock,
        keyword::{self, Class},
        server::{
            model::{Entry, Whose},
            Loss,
        },
        Purpose,
    },
    from_client::Request,
    Relay, Stream,
};

/// Brings a server into a failed block. The server's log shows the name.
const ENTER_FAILED_BLOCK: &[u8] = b"BEGIN; SELECT transaction_was_lost_with_its_server_connection";

/// The outcome of [`Relay::server_lost`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// The client continues with another server.
    Kept(Loss),
    /// The client can't continue: it has got a part of a message, or its expected replies are
    /// unknown.
    Closed,
}

impl Relay<'_> {
    /// Answers the outstanding requests after a loss of the server connection: with the error 08006
    /// if the transaction is rolled back, and 08007 if its outcome is unknown.
    ///
    /// What the server has said of its role proves nothing: a standby reports that it was promoted
    /// with the replies to the first statement after it, and that statement may have written.
    pub fn server_lost(&mut self, to_client: &mut Vec<u8>) -> AfterLoss {
        let model = &self.server.model;
        let is_broken = model.is_pinned() || !self.server.walk.is_between_messages();
        if is_broken || !self.client.walk.is_between_messages() {
            return AfterLoss::Closed;
        }
        let loss = match self.client.lost_block {
            // The server was to be in a failed block: only what follows a ROLLBACK can have been done.
            LostBlock::Entered => self.server.model.loss_of_failed_block(),
            LostBlock::None | LostBlock::Due => self.server.loss(),
        };
        if let Some(names) = &mut self.client.names {
            names.undo_all();
        }
        if let Some(before) = self.server.before.take() {
            // A server would have gone back to these values.
            self.client.take_over(&before);
        }
        if loss != Loss::Nothing {
            self.answer_outstanding(loss, to_client);
        }
        AfterLoss::Kept(loss)
    }

    /// Answers one of several clients that shared the server connection, after its loss: its batch
    /// was sent. `is_oldest`: its replies may have begun.
    pub fn shared_lost(&mut self, is_oldest: bool, to_client: &mut Vec<u8>) -> AfterLoss {
        let is_torn = is_oldest && !self.server.walk.is_between_messages();
        if is_torn || self.server.model.is_pinned() {
            return AfterLoss::Closed;
        }
        if let Some(names) = &mut self.client.names {
            names.undo_all();
        }
        if let Some(before) = self.server.before.take().filter(|_| is_oldest) {
            self.client.take_over(&before);
        }
        backend::error(to_client, &self.report_of(Loss::Unknown));
        backend::ready_for_query(to_client, TransactionStatus::Idle);
        AfterLoss::Kept(Loss::Unknown)
    }

    /// One error and one `Z` for each request that has a `Z`.
    fn answer_outstanding(&mut self, loss: Loss, to_client: &mut Vec<u8>) {
        let report = self.report_of(loss);
        let model = &self.server.model;
        if model.is_settled() {
            // No request is outstanding: the next one gets the error.
            self.client.lost = Some(loss);
            return;
        }
        let mut block = self.block_left_by(loss);
        let mut has_error = model.is_skipping() || self.server.is_unreplicated;
        for entry in model.entries() {
            match entry {
                Entry::Query(Whose::Client, _) | Entry::Function | Entry::Sync(Whose::Client) => {
                    if !has_error {
                        backend::error(to_client, &report);
                    }
                    if let Entry::Query(_, Class::RollsBack) = entry {
                        block = TransactionStatus::Idle;
                    }
                    backend::ready_for_query(to_client, block);
                    has_error = false;
                }
                Entry::Execute(Class::RollsBack) => {
                    block = TransactionStatus::Idle;
                    if !has_error {
                        backend::error(to_client, &report);
                    }
                    has_error = true;
                }
                entry if entry.is_own_query() => {}
                _ if has_error => {}
                _ => {
                    backend::error(to_client, &report);
                    has_error = true;
                }
            }
        }
        if model.is_open() && !has_error {
            backend::error(to_client, &report);
        }
        self.client.is_skipping = model.is_open() || model.is_skipping();
        self.leave_block(block);
    }

    /// The state of the client's transaction after this loss, before what is in flight.
    fn block_left_by(&self, loss: Loss) -> TransactionStatus {
        let was_in_block = self.server.model.status() != TransactionStatus::Idle
            || self.client.lost_block == LostBlock::Entered;
        if was_in_block && loss == Loss::RolledBack {
            TransactionStatus::Failed
        } else {
            TransactionStatus::Idle
        }
    }

    /// The client has been sent this state.
    fn leave_block(&mut self, status: TransactionStatus) {
        self.client.lost_block = match status {
            TransactionStatus::Idle => LostBlock::None,
            TransactionStatus::InBlock | TransactionStatus::Failed => LostBlock::Due,
        };
    }

    /// Sends the server into a failed block before a message of this type, if a block of the client
    /// is lost. Messages that a server ignores outside of a copy go before that.
    pub(super) fn enter_lost_block(&mut self, tag: u8, to_server: &mut Vec<u8>) {
        let is_ignored = matches!(tag, b'd' | b'c' | b'f' | b'H');
        if self.client.lost_block == LostBlock::Due && !is_ignored {
            self.client.lost_block = LostBlock::Entered;
            self.server
                .begin_own(Purpose::LostBlock, ENTER_FAILED_BLOCK, to_server);
        }
    }

    /// The first request after a block that was lost.
    pub(super) fn answer_lost(
        &mut self,
        loss: Loss,
        request: Request<'_>,
        stream: &mut Stream<'_, '_>,
        to_client: &mut Vec<u8>,
    ) {
        let tag = request.header.tag;
        self.drop_request(request, stream);
        if matches!(tag, b'd' | b'c' | b'f' | b'H') {
            return;
        }
        self.client.lost = None;
        backend::error(to_client, &report(loss, None));
        let status = if ends_block(request) {
            TransactionStatus::Idle
        } else {
            TransactionStatus::Failed
        };
        self.leave_block(status);
        if matches!(tag, b'Q' | b'F' | b'S') {
            backend::ready_for_query(to_client, status);
        } else {
            self.client.is_skipping = true;
        }
    }

    fn report_of(&self, loss: Loss) -> NewReport {
        let body = self
            .server
            .farewell
            .as_deref()
            .and_then(|bytes| bytes.get(5..));
        let said = body.and_then(|body| match Reply::read(Message { tag: b'E', body }) {
            Ok(Reply::Error(report)) => Some(report.message()),
            _ => None,
        });
        report(loss, said)
    }
}

/// Whether a request is a query that ends a block: it fails, and the block is over all the same.
fn ends_block(request: Request<'_>) -> bool {
    let sql = request.body.strip_suffix(&[0]).unwrap_or(request.body);
    request.header.tag == b'Q' && keyword::ends_block(sql, request.is_whole())
}

/// The error; `said` is the server's last message.
fn report(loss: Loss, said: Option<&[u8]>) -> NewReport {
    let (code, text) = match loss {
        Loss::Unknown => (
            "08007",
            "server connection lost: it is unknown whether the transaction was committed",
        ),
        Loss::Nothing | Loss::RolledBack => (
            "08006",
            "server connection lost: the transaction is rolled back",
        ),
    };
    let report = NewReport::new(Severity::Error, code, text);
    match said {
        Some(said) => {
            let said = String::from_utf8_lossy(said);
            report.detail(format!("The server said: {said}"))
        }
        None => report,
    }
}
