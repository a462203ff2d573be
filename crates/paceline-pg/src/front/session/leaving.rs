//! How a session ends, and what becomes of its server.

use std::{io, io::IoSlice, sync::Arc};

use paceline::{Closed, Handle, HandleId};

use super::{Arrival, Bound, Member, Session, State};
use crate::{
    front::{
        call::Call,
        client::{Phase, RequestStage, Way},
        server::Server,
    },
    pg_wire::{backend, NewReport, Severity},
    pools::{ClientId, Left},
    protocol::{AfterLoss, Broken, Loss, Mode, Relay, Release, Violation},
};

impl Session {
    /// The client leaves, for this reason. Nothing more is sent to it.
    pub(super) fn leave(&mut self, reason: &str, call: &mut Call<'_, '_, '_>) {
        if let State::Leaving(_) = self.state {
            return;
        }
        self.log_closing(reason);
        self.leave_quietly(call);
    }

    /// The same, when the log has the reason already.
    fn leave_quietly(&mut self, call: &mut Call<'_, '_, '_>) {
        if let Some(handle) = self.handle.clone() {
            let wire = &mut self.wire;
            let _ = call.with(&handle, |cx| {
                wire.close(cx);
                Ok(())
            });
            call.finish(&handle);
        }
        self.end(call);
    }

    /// The client gets this fatal error, and leaves.
    pub(super) fn refuse(&mut self, code: &str, text: &str, call: &mut Call<'_, '_, '_>) {
        let report = NewReport::new(Severity::Fatal, code, text);
        self.log_refusal(text);
        self.fail(&report, text, call);
    }

    /// The client gets this report, and leaves for this reason.
    pub(super) fn fail(&mut self, report: &NewReport, reason: &str, call: &mut Call<'_, '_, '_>) {
        let mut bytes = Vec::new();
        backend::error(&mut bytes, report);
        self.leave_with(&bytes, reason, call);
    }

    /// The client gets these last words, and leaves for this reason. The log has the line before
    /// the client has the words.
    pub(super) fn leave_with(&mut self, words: &[u8], reason: &str, call: &mut Call<'_, '_, '_>) {
        if let State::Leaving(_) = self.state {
            return;
        }
        self.log_closing(reason);
        self.say(words, call);
        self.leave_quietly(call);
    }

    /// Last words: a failure to send them changes nothing.
    pub(super) fn say(&mut self, bytes: &[u8], call: &mut Call<'_, '_, '_>) {
        if let Some(handle) = self.handle.clone() {
            let wire = &mut self.wire;
            let _ = call.with(&handle, |cx| wire.send(cx, &[IoSlice::new(bytes)]));
        }
    }

    pub(super) fn violation(&mut self, violation: &Violation, call: &mut Call<'_, '_, '_>) {
        let text = violation.to_string();
        self.log_refusal(&text);
        self.fail(&violation.report(), &text, call);
    }

    pub(super) fn client_failed(&mut self, error: &io::Error, call: &mut Call<'_, '_, '_>) {
        let tls = matches!(self.wire, crate::front::wire::Wire::Tls(_));
        if tls && error.kind() == io::ErrorKind::InvalidData {
            let text = crate::front::tls::explained(error);
            return self.leave(&text, call);
        }
        self.leave("client unexpected eof", call);
    }

    /// The session is over: its server is given back or closed, and the book forgets the client.
    fn end(&mut self, call: &mut Call<'_, '_, '_>) {
        let state = self.take_state();
        let on_its_way = self.close_mail();
        self.client.watch.enter(Phase::Login, self.front.now());
        match state {
            State::Bound(member, bound) => self.end_bound(member, bound, call),
            State::Idle(member) | State::Waiting(member) => self.forget(&member),
            State::Login(login) => self.end_login(*login, call),
            State::Shared(away) => {
                if self.client.withdraw_request() == RequestStage::Withdrawn {
                    away.pool.lanes.remove(self.client.number);
                }
                self.forget_client(away.id, away.process);
            }
            State::Console(console) => self.end_console(*console),
            State::Leaving(_) => {}
        }
        self.state = State::Leaving(on_its_way);
        let id = self.client.facts().id;
        self.front.clients().remove(self.client.number, id);
    }

    /// No server is taken any more. The one that comes here by itself; one that the client had to fetch
    /// stays where it is, and goes back to the book.
    pub(super) fn close_mail(&self) -> Option<Arc<Server>> {
        let given = self.client.close_mail()?;
        match given.way {
            Way::Sent => Some(given.server),
            Way::Fetch => {
                self.front.abandon(&given.server);
                None
            }
        }
    }

    fn end_bound(&mut self, member: Box<Member>, bound: Bound, call: &mut Call<'_, '_, '_>) {
        let Bound {
            server, arrival, ..
        } = bound;
        let terms = member.pool.terms();
        let mode = terms.relay.mode;
        let resets = terms.reset.is_some() && (mode == Mode::Session || self.resets_always());
        let (release, is_spoilt) = {
            let core = server.core();
            let is_reset = resets && terms.reset.as_deref().is_some_and(resets_parameters);
            (core.half.may_release(), core.half.is_altered() && !is_reset)
        };
        drop(terms);
        let is_clean = self.input_is_clean(&member);
        self.forget(&member);
        if arrival == Arrival::Coming {
            // Nothing was sent: the home gives it back when it finds no client there.
            return self.front.abandon(&server);
        }
        if release != Release::Allowed || !is_clean {
            return self.front.close_server(
                &server,
                "client disconnected while query was not done",
                call,
            );
        }
        if is_spoilt {
            let reason = "its parameters can't be reset";
            self.front.close_server(&server, reason, call);
        } else if resets {
            self.front.reset_server(&server, call);
        } else {
            self.front.give_back(&server, call);
        }
    }

    /// Whether no message of the client was passed on in part.
    fn input_is_clean(&self, member: &Member) -> bool {
        member.half.is_between_messages()
    }

    fn resets_always(&self) -> bool {
        self.front.live().settings().server_reset_query_always
    }

    fn forget(&self, member: &Member) {
        self.forget_client(member.id, member.process);
    }

    fn forget_client(&self, id: ClientId, process: i32) {
        let (_left, orders): (Left, _) = self
            .front
            .with_book(|book, now, orders| book.leave(id, now, orders));
        self.front.forget_key(process);
        self.front.carry_out(orders);
    }

    /// The client's connection has ended.
    pub(super) fn client_closed(&mut self, why: &Closed, call: &mut Call<'_, '_, '_>) {
        if let State::Leaving(_) = self.state {
            return;
        }
        let reason = match why {
            Closed::Shutdown => "pooler shut down",
            _ => "client unexpected eof",
        };
        self.log_closing(reason);
        self.end(call);
    }

    /// A server's connection has ended while it was a member here.
    pub(super) fn server_closed(
        &mut self,
        member: &Handle,
        _why: &Closed,
        call: &mut Call<'_, '_, '_>,
    ) {
        if let State::Bound(_, bound) = &self.state {
            if bound.server.is_at(member.id()) {
                return self.server_lost("server conn crashed?", call);
            }
        }
        if let Some(server) = self.front.server_at(member.id()) {
            self.front.server_gone(&server, "server conn crashed?");
            // It may have been on its way to this client, which is not noted at the server before it
            // has arrived.
            self.forget_lost(server.number, call);
        }
    }

    /// The connection of the client's server has ended. What was sent is never sent again.
    pub(super) fn server_lost(&mut self, reason: &str, call: &mut Call<'_, '_, '_>) {
        let State::Bound(mut member, bound) = self.take_state() else {
            return;
        };
        let server = bound.server;
        let mut words = Vec::new();
        let (after, farewell, mode) = {
            let mut core = server.core();
            let terms = member.pool.terms();
            let mut relay = Relay {
                client: &mut member.half,
                server: &mut core.half,
                settings: &terms.relay,
            };
            let after = relay.server_lost(&mut words);
            let farewell = core.half.farewell().map(<[u8]>::to_vec);
            (after, farewell, terms.relay.mode)
        };
        self.front.close_server(&server, reason, call);
        self.state = State::Idle(member);
        match (after, mode) {
            (AfterLoss::Kept(_), Mode::Transaction | Mode::Statement) => {
                self.say(&words, call);
                self.go_on_without_server(call);
            }
            // What the session has set on the server is lost.
            _ => {
                let words = farewell.unwrap_or_else(|| crash_report(after));
                self.leave_with(&words, reason, call);
            }
        }
    }

    /// The client has no server any more, and asks for another when it sends something.
    pub(super) fn go_on_without_server(&mut self, call: &mut Call<'_, '_, '_>) {
        self.client.watch.end_transaction();
        self.client.watch.enter(Phase::Idle, self.front.now());
        self.reading = super::Reading::On;
        self.listen_to_client();
        self.take_input(call);
    }

    /// The server has said that it ends.
    pub(super) fn server_said_goodbye(&mut self, call: &mut Call<'_, '_, '_>) {
        self.server_lost("server conn crashed?", call);
    }

    /// The server did what the model of it has not foreseen.
    pub(super) fn server_broken(&mut self, broken: &Broken, call: &mut Call<'_, '_, '_>) {
        let State::Bound(member, bound) = self.take_state() else {
            return;
        };
        let text = broken.to_string();
        let loss = bound.server.core().half.loss();
        self.front.close_server(&bound.server, &text, call);
        self.state = State::Idle(member);
        self.log_refusal(&text);
        self.fail(&broken.report(loss), &text, call);
    }

    /// A server is here that the client does not have.
    pub(super) fn return_stray(&mut self, server: &Arc<Server>, call: &mut Call<'_, '_, '_>) {
        if let State::Leaving(expected) = &mut self.state {
            *expected = None;
        }
        self.front.give_back(server, call);
    }

    /// The connection of a server that was on its way here has ended.
    pub(super) fn forget_lost(&mut self, number: u64, call: &mut Call<'_, '_, '_>) {
        let is_given = self.client.take_given_server(number).is_some();
        match self.take_state() {
            State::Bound(member, bound) if bound.server.number == number => {
                self.state = State::Idle(member);
                self.go_on_without_server(call);
            }
            State::Waiting(member) if is_given => self.ask_again(member, call),
            State::Login(login) => {
                self.state = State::Login(login);
                self.auth_server_gone(number, is_given, call);
            }
            State::Leaving(Some(server)) if server.number == number => {
                self.state = State::Leaving(None);
                self.close_group(call);
            }
            other => self.state = other,
        }
    }

    fn ask_again(&mut self, member: Box<Member>, call: &mut Call<'_, '_, '_>) {
        self.state = State::Idle(member);
        self.reading = super::Reading::On;
        self.listen_to_client();
        self.take_input(call);
    }

    /// Nothing is awaited any more: the group ends, if its last member has left.
    pub(super) fn close_group(&self, call: &mut Call<'_, '_, '_>) {
        if call.members().is_empty() {
            // It has ended already, if that fails.
            let _ = call.group().close();
        }
    }
}

/// Whether a query is known to give all parameters their values of the server's start.
fn resets_parameters(query: &[u8]) -> bool {
    let query = query.trim_ascii();
    let query = query.strip_suffix(b";").unwrap_or(query).trim_ascii();
    let known: [&[u8]; 2] = [b"DISCARD ALL", b"RESET ALL"];
    known.iter().any(|known| query.eq_ignore_ascii_case(known))
}

/// What a client gets whose session ends with its server.
pub(crate) fn crash_report(after: AfterLoss) -> Vec<u8> {
    let (code, text) = match after {
        AfterLoss::Kept(Loss::Nothing | Loss::RolledBack) => ("08006", "server conn crashed?"),
        AfterLoss::Kept(Loss::Unknown) | AfterLoss::Closed => (
            "08007",
            "server conn crashed? It is unknown whether the transaction was committed",
        ),
    };
    let mut bytes = Vec::new();
    backend::error(&mut bytes, &NewReport::new(Severity::Fatal, code, text));
    bytes
}

impl crate::front::state::Front {
    /// The server with this descriptor.
    pub(crate) fn server_at(&self, handle: HandleId) -> Option<Arc<Server>> {
        let servers = self.servers();
        servers
            .values()
            .find(|server| server.is_at(handle))
            .cloned()
    }

    /// Closes a server that is a member of the group that calls.
    pub(crate) fn close_server(
        &self,
        server: &Arc<Server>,
        reason: &str,
        call: &mut Call<'_, '_, '_>,
    ) {
        let mut core = server.core();
        if core.half.may_release() == Release::Allowed {
            let mut farewell = Vec::new();
            crate::pg_wire::frontend::terminate(&mut farewell);
            let wire = &mut core.wire;
            // It is closed in any case.
            let _ = call.with(server.handle(), |cx| {
                wire.send(cx, &[IoSlice::new(&farewell)])
            });
        }
        drop(core);
        call.close(server.handle());
        self.server_gone(server, reason);
    }

    /// The connection of a server has ended, or is about to: the book forgets it. Only the first
    /// call has an effect.
    pub(crate) fn server_gone(&self, server: &Arc<Server>, reason: &str) {
        if self.servers().remove(&server.id).is_none() {
            return;
        }
        let (client, closing) = {
            let mut core = server.core();
            (core.client.take(), core.closing.take())
        };
        self.log_server_closing(server, closing.as_deref().unwrap_or(reason));
        let id = server.id;
        let (_, orders) = self.with_book(|book, now, orders| book.closed(id, now, orders));
        if closing.is_none() && reason == "server conn crashed?" {
            self.doubt_host(server, "a lost connection");
        }
        if let Some(client) = client {
            client.send(crate::front::client::Letter::Lost(server.number));
        }
        // The home has nothing more to wait for.
        let _ = server.home().notify();
        self.carry_out(orders);
    }

    /// A client does not take a server that is at its home, or on its way from there: the home gives
    /// it back.
    pub(crate) fn abandon(&self, server: &Arc<Server>) {
        let mut core = server.core();
        core.client = None;
        core.errand = crate::front::server::Errand::GiveBack;
        drop(core);
        let _ = server.home().notify();
    }
}
