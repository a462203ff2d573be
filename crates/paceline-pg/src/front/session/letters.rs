//! What others have put before a session.

use super::{login::Stage, Arrival, Session, State};
use crate::{
    front::{
        call::Call,
        client::{Letter, Overdue, RequestStage},
    },
    pg_wire::{backend, NewReport, Severity},
    pools::{CloseReason, Refusal},
    protocol::{Mode, Release},
};

/// The text of the notice that a waiting client gets.
const WAITS: &str = "No server connection available in postgres backend, client being queued";

impl Session {
    /// Opens all letters, and takes the server that is to be fetched.
    pub(super) fn open_letters(&mut self, call: &mut Call<'_, '_, '_>) {
        if let Some(given) = self.client.take_to_fetch() {
            self.server_given(given, Arrival::Coming, call);
        }
        self.shared_replies(call);
        for letter in self.client.take_letters() {
            self.open(letter, call);
        }
    }

    fn open(&mut self, letter: Letter, call: &mut Call<'_, '_, '_>) {
        match letter {
            Letter::Welcome => self.welcomed(call),
            Letter::Refuse(refusal) => self.refused(&refusal, call),
            Letter::WaitsLong => self.notify_of_wait(call),
            Letter::Dismiss(refusal) => self.dismiss(&refusal, call),
            Letter::Overdue(overdue) => self.overdue(overdue, call),
            Letter::Recall(reason) => self.recall(reason, call),
            Letter::Lost(number) => self.forget_lost(number, call),
            Letter::CancelWait => self.cancel_wait(call),
            Letter::CancelDone => self.cancel_done(call),
            Letter::Completed => self.command_completed(call),
        }
    }

    fn notify_of_wait(&mut self, call: &mut Call<'_, '_, '_>) {
        let is_waiting = match &self.state {
            State::Waiting(_) => true,
            State::Login(login) => matches!(login.stage, Stage::Welcome(_)),
            _ => false,
        };
        if is_waiting {
            let mut bytes = Vec::new();
            let report = NewReport::new(Severity::Notice, "00000", WAITS);
            backend::notice(&mut bytes, &report);
            self.say(&bytes, call);
        }
    }

    fn dismiss(&mut self, refusal: &Refusal, call: &mut Call<'_, '_, '_>) {
        match &mut self.state {
            State::Leaving(_) => return,
            State::Shared(away) if self.client.withdraw_request() == RequestStage::Begun => {
                // Its statement runs, and others share the connection.
                away.dismissed = Some(refusal.clone());
                return;
            }
            _ => {}
        }
        self.refuse(refusal.code(), &refusal.to_string(), call);
    }

    /// One of the client's times may be over: it counts only if it still is.
    fn overdue(&mut self, overdue: Overdue, call: &mut Call<'_, '_, '_>) {
        let limits = self.client.facts().limits.clone().unwrap_or_default();
        let now = self.front.now();
        let is_over = match overdue {
            Overdue::Login => matches!(&self.state, State::Login(_)),
            Overdue::Behind => self.client.is_behind(),
            other => self.client.watch.overdue(&limits, now) == Some(other),
        };
        if !is_over {
            return;
        }
        match overdue {
            Overdue::Login => self.refuse("08P01", "client_login_timeout", call),
            Overdue::Idle => self.refuse("08P01", "client_idle_timeout", call),
            Overdue::QueryWaits => self.refuse("08P01", "query_timeout", call),
            // A trunk may have sent it since: then it is executed, and its replies follow.
            Overdue::Queued if self.client.withdraw_request() == RequestStage::Begun => {}
            Overdue::Queued => self.refused(&Refusal::QueryWaitTimeout, call),
            Overdue::Behind => {
                let text = "the replies on a shared connection are not taken";
                self.refuse("08P01", text, call);
            }
            Overdue::IdleInTransaction => self.end_with_server("idle transaction timeout", call),
            Overdue::Transaction => self.end_with_server("transaction timeout", call),
            Overdue::Query => self.end_with_server("query timeout", call),
        }
    }

    /// The client is closed for its time-out, and its server with it.
    fn end_with_server(&mut self, reason: &str, call: &mut Call<'_, '_, '_>) {
        if let State::Bound(..) = &self.state {
            let State::Bound(member, bound) = self.take_state() else {
                return;
            };
            self.front.close_server(&bound.server, reason, call);
            self.state = State::Idle(member);
        }
        self.refuse("08P01", reason, call);
    }

    /// The server is to be closed, if no transaction is open.
    fn recall(&mut self, reason: CloseReason, call: &mut Call<'_, '_, '_>) {
        let (is_free, in_session) = match &self.state {
            State::Bound(member, bound) => {
                let core = bound.server.core();
                let is_free = core.half.may_release() == Release::Allowed;
                (is_free, member.pool.terms().relay.mode == Mode::Session)
            }
            _ => (false, false),
        };
        if !is_free {
            return;
        }
        if in_session {
            // What it has set on the server is lost with it.
            return self.end_with_server(&reason.to_string(), call);
        }
        let State::Bound(member, bound) = self.take_state() else {
            return;
        };
        self.front
            .close_server(&bound.server, &reason.to_string(), call);
        self.state = State::Idle(member);
        self.go_on_without_server(call);
    }

    fn cancel_done(&mut self, call: &mut Call<'_, '_, '_>) {
        if let State::Login(login) = &self.state {
            if matches!(login.stage, Stage::Cancelling(_)) {
                self.leave("cancel request done", call);
            }
        }
    }
}
