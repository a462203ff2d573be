//! A client of the admin console.

use super::{relay::Progress, Reading, Session, State};
use crate::{
    console::{self, Access, Command, Refusal},
    front::{admin::Reply, call::Call},
    login::ClientKey,
    pg_wire::TransactionStatus,
    pg_wire::{backend, backend::Authentication, frontend::Request, Header, Message},
    pools::{ClientId, OperationId},
};

/// The longest query of the console.
const LONGEST: usize = 1 << 20;

/// A client of the admin console.
pub(super) struct ConsoleSession {
    id: ClientId,
    access: Access,
    /// Its number in the place of a process, of its key.
    process: i32,
    /// Others had their turn since the command came: what they had done before it shows.
    has_yielded: bool,
    /// The command that is not complete: its tag, and its operation in the book.
    pending: Option<(String, OperationId)>,
}

impl ConsoleSession {
    pub(super) fn new(id: ClientId, access: Access, process: i32) -> Self {
        Self {
            id,
            access,
            process,
            has_yielded: false,
            pending: None,
        }
    }

    /// Whether a command is done at once. It is not at first: a connection that was closed before
    /// the command was sent may still be in the line.
    fn has_its_turn(&mut self) -> bool {
        self.has_yielded = !self.has_yielded;
        !self.has_yielded
    }
}

impl Session {
    pub(super) fn greet_at_console(&mut self, key: ClientKey, call: &mut Call<'_, '_, '_>) {
        let mut out = Vec::new();
        backend::authentication(&mut out, Authentication::Ok);
        console::welcome(&mut out, crate::front::SERVER_VERSION);
        backend::key_data(&mut out, key.process, key.secret());
        backend::ready_for_query(&mut out, TransactionStatus::Idle);
        self.say(&out, call);
    }

    /// Bytes of a client of the console.
    pub(super) fn console_input(&mut self, bytes: &[u8], call: &mut Call<'_, '_, '_>) -> Progress {
        let is_whole = matches!(Message::first(bytes, LONGEST), Ok(Some(_)));
        let State::Console(console) = &mut self.state else {
            return Progress::Stuck;
        };
        if console.pending.is_none() && is_whole && !console.has_its_turn() {
            if let Some(handle) = &self.handle {
                call.again(handle);
            }
            return Progress::Stuck;
        }
        if console.pending.is_some() {
            self.read_client(Reading::Off);
            return Progress::Stuck;
        }
        match Message::first(bytes, LONGEST) {
            Ok(None) => Progress::Stuck,
            Ok(Some((message, length))) => {
                self.console_message(message, call);
                Progress::Took(length)
            }
            Err(malformed) => {
                self.refuse("08P01", &malformed.to_string(), call);
                Progress::Took(bytes.len().max(Header::LENGTH))
            }
        }
    }

    fn console_message(&mut self, message: Message<'_>, call: &mut Call<'_, '_, '_>) {
        match (message.tag, Request::read(message)) {
            (b'X', _) => self.leave("client close request", call),
            (b'Q', Ok(Request::Query(sql))) => {
                let sql = String::from_utf8_lossy(sql).into_owned();
                self.command(&sql, call);
            }
            (b'P' | b'B' | b'D' | b'E' | b'C' | b'S' | b'H', _) => {
                self.console_fails(&Refusal::ExtendedQuery, call);
            }
            (tag, _) => self.console_fails(&Refusal::UnsupportedMessage(tag), call),
        }
    }

    fn console_fails(&mut self, refusal: &Refusal, call: &mut Call<'_, '_, '_>) {
        let mut out = Vec::new();
        console::refuse_fatal(&mut out, refusal);
        self.say(&out, call);
        self.leave(&refusal.to_string(), call);
    }

    fn command(&mut self, sql: &str, call: &mut Call<'_, '_, '_>) {
        let State::Console(console) = &mut self.state else {
            return;
        };
        let access = console.access;
        self.front.console.queries.add(1);
        self.front.console.transactions.add(1);
        let mut out = Vec::new();
        match Command::parse(sql, access) {
            Err(refusal) => console::refuse(&mut out, &refusal),
            Ok(command) => match self
                .front
                .carry_out_command(&command, &self.client, &mut out)
            {
                Reply::Complete => {}
                Reply::Pending(tag, operation) => self.wait_for(tag, operation),
                Reply::Close => return self.leave("shutdown", call),
            },
        }
        if !out.is_empty() {
            self.say(&out, call);
        }
    }

    /// The command is complete when the book says so.
    fn wait_for(&mut self, tag: String, operation: OperationId) {
        if let State::Console(console) = &mut self.state {
            console.pending = Some((tag, operation));
        }
    }

    /// The command that this client waits for is complete.
    pub(super) fn command_completed(&mut self, call: &mut Call<'_, '_, '_>) {
        let State::Console(console) = &mut self.state else {
            return;
        };
        let Some((tag, _)) = console.pending.take() else {
            return;
        };
        let mut out = Vec::new();
        console::done(&mut out, &tag);
        self.say(&out, call);
        self.read_client(Reading::On);
        self.take_input(call);
    }

    /// Another connection cancels the command that this client waits for.
    pub(super) fn cancel_wait(&mut self, call: &mut Call<'_, '_, '_>) {
        let State::Console(console) = &mut self.state else {
            return;
        };
        if let Some((_, operation)) = console.pending.take() {
            self.front.give_up(operation);
            let report = crate::pg_wire::NewReport::new(
                crate::pg_wire::Severity::Error,
                "57014",
                "canceled on request",
            );
            let mut out = Vec::new();
            backend::error(&mut out, &report);
            backend::ready_for_query(&mut out, TransactionStatus::Idle);
            self.say(&out, call);
            self.read_client(Reading::On);
        }
    }

    pub(super) fn end_console(&mut self, console: ConsoleSession) {
        if let Some((_, operation)) = console.pending {
            self.front.give_up(operation);
        }
        self.front.forget_key(console.process);
        let id = console.id;
        let (_, orders) = self
            .front
            .with_book(|book, now, orders| book.leave(id, now, orders));
        self.front.carry_out(orders);
    }
}
