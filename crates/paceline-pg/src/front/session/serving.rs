//! How a client gets a server, and how it gives the server back.
//!
//! # The order of a reply and the next request
//!
//! At the end of a transaction the book names the next client before the reply is sent, and the server
//! moves to that client's group when the call is over. So the reply is sent first. The other order
//! would need the session of the next client, which another thread may have; or the reply would need
//! a call of its own, which costs a visit and waits behind every handle in the line, while the request
//! waits for no more than one send.

use std::sync::Arc;

use super::{relay::Progress, Arrival, Bound, Member, Reading, Session, State};
use crate::{
    front::{
        buffers,
        call::Call,
        client::{Delivery, Given, Letter, Phase, Way},
        server::{Errand, Server, Taken},
    },
    pools::{Ask, ClientId, GiveBack},
    protocol::Relay,
};

impl Session {
    /// The client needs a server.
    pub(super) fn ask_for_server(&mut self, call: &mut Call<'_, '_, '_>) -> Progress {
        let State::Idle(member) = self.take_state() else {
            return Progress::Stuck;
        };
        let (id, pool) = (member.id, member.pool.id);
        let (asked, orders) = self
            .front
            .with_book(|book, now, orders| book.ask(id, pool, now, orders));
        let progress = match asked {
            Ask::Server { connection, .. } => {
                self.bind(member, connection, call);
                Progress::Took(0)
            }
            Ask::Waiting => {
                self.client.watch.enter(Phase::Waiting, self.front.now());
                self.state = State::Waiting(member);
                Progress::Stuck
            }
            Ask::Refused(refusal) => {
                self.state = State::Idle(member);
                self.refuse(refusal.code(), &refusal.to_string(), call);
                Progress::Stuck
            }
        };
        self.front.carry_out(orders);
        progress
    }

    /// The book has given this server to the client, which fetches it.
    pub(super) fn bind(
        &mut self,
        member: Box<Member>,
        server: Arc<Server>,
        call: &mut Call<'_, '_, '_>,
    ) {
        self.front.note_assigned(&server, &self.client);
        let arrival = match server.take(call) {
            Taken::Here => Arrival::Here,
            Taken::Coming => Arrival::Coming,
            Taken::Gone => {
                self.state = State::Idle(member);
                // Its end is reported to the book by the group that it was in.
                return self.go_on_without_server(call);
            }
        };
        self.bound(member, server, arrival, call);
    }

    fn bound(
        &mut self,
        member: Box<Member>,
        server: Arc<Server>,
        arrival: Arrival,
        call: &mut Call<'_, '_, '_>,
    ) {
        member.pool.database.counters.server_assignments.add(1);
        let bound = Bound {
            server,
            arrival,
            reading: Reading::On,
            query_since: None,
            is_quiet: false,
        };
        self.state = State::Bound(member, bound);
        if arrival == Arrival::Here {
            self.begin_relay(call);
        }
    }

    /// The server is here: it gets the client's parameters first.
    fn begin_relay(&mut self, call: &mut Call<'_, '_, '_>) {
        let State::Bound(member, bound) = &mut self.state else {
            return;
        };
        let mut pair = buffers::pair();
        let mut core = bound.server.core();
        let terms = member.pool.terms();
        let mut relay = Relay {
            client: &mut member.half,
            server: &mut core.half,
            settings: &terms.relay,
        };
        relay.begin(&mut pair.to_server);
        if pair.to_server.is_empty() {
            return;
        }
        bound.is_quiet = true;
        self.front.book().set_quiet(bound.server.id, true);
        let wire = &mut core.wire;
        let slices = [std::io::IoSlice::new(&pair.to_server)];
        // If that fails, the server's own end follows.
        let _ = call.with(bound.server.handle(), |cx| wire.send(cx, &slices));
        drop(core);
    }

    /// A server is a member of this group now.
    pub(super) fn server_joined(&mut self, call: &mut Call<'_, '_, '_>) {
        let Some(id) = call.subject() else { return };
        if let State::Bound(_, bound) = &mut self.state {
            if bound.server.is_at(id) {
                if bound.arrival == Arrival::Coming {
                    bound.arrival = Arrival::Here;
                    self.begin_relay(call);
                    self.resume_reading(call);
                }
                return;
            }
        }
        if self.auth_server().is_some_and(|server| server.is_at(id)) {
            return self.auth_server_joined(call);
        }
        match self.take_arrived(id) {
            Some(given) => self.server_given(given, Arrival::Here, call),
            None => self.stranger(call),
        }
    }

    /// The server that was put before the session, if it is this one.
    fn take_arrived(&self, id: paceline::HandleId) -> Option<Given> {
        let given = self.client.take_given()?;
        if given.server.is_at(id) {
            return Some(given);
        }
        // It is still on its way.
        let _ = self.client.give(given);
        None
    }

    /// The client has waited for this server.
    pub(super) fn server_given(
        &mut self,
        given: Given,
        arrival: Arrival,
        call: &mut Call<'_, '_, '_>,
    ) {
        self.note_wait();
        match self.take_state() {
            State::Waiting(member) if arrival == Arrival::Here => {
                self.front.note_assigned(&given.server, &self.client);
                self.bound(member, given.server, Arrival::Here, call);
                self.resume_reading(call);
            }
            State::Waiting(member) => {
                self.bind(member, given.server, call);
                self.resume_reading(call);
            }
            State::Login(login) => {
                self.state = State::Login(login);
                self.auth_server_given(given.server, arrival, call);
            }
            State::Leaving(expected) => {
                let is_expected = expected
                    .as_ref()
                    .is_some_and(|expected| expected.number == given.server.number);
                self.state = State::Leaving(expected.filter(|_| !is_expected));
                self.decline(&given.server, arrival, call);
            }
            other => {
                self.state = other;
                self.decline(&given.server, arrival, call);
            }
        }
    }

    /// The client needs no server any more.
    pub(super) fn decline(
        &mut self,
        server: &Arc<Server>,
        arrival: Arrival,
        call: &mut Call<'_, '_, '_>,
    ) {
        match arrival {
            Arrival::Here => self.return_stray(server, call),
            Arrival::Coming => self.front.abandon(server),
        }
    }

    fn note_wait(&self) {
        if let State::Waiting(member) = &self.state {
            let (_, since) = self.client.watch.phase();
            let waited = self.front.now().saturating_sub(since);
            member.pool.database.counters.wait_time.add_time(waited);
        }
    }

    /// The request that has waited goes to the server.
    fn resume_reading(&mut self, call: &mut Call<'_, '_, '_>) {
        self.read_client(Reading::On);
        self.take_input(call);
    }

    /// The server may serve another client.
    pub(super) fn release(&mut self, call: &mut Call<'_, '_, '_>) {
        let State::Bound(member, bound) = self.take_state() else {
            return;
        };
        let needs_reset = member.pool.terms().reset.is_some()
            && self.front.live().settings().server_reset_query_always;
        self.client.watch.enter(Phase::Idle, self.front.now());
        self.state = State::Idle(member);
        self.reading = Reading::On;
        self.listen_to_client();
        if needs_reset {
            self.front.reset_server(&bound.server, call);
        } else {
            self.front.give_back(&bound.server, call);
        }
    }
}

/// What became of a server that was free.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// Another client has it, or its home, or it is closed.
    On,
    /// The client that the book gave it to has left: it is here, and goes back to the book.
    NotTaken,
}

impl crate::front::state::Front {
    /// A server goes back to the book: to the next client, or home. It is a member of the group
    /// that calls.
    pub(crate) fn give_back(&self, server: &Arc<Server>, call: &mut Call<'_, '_, '_>) {
        {
            let mut core = server.core();
            core.client = None;
            core.errand = Errand::None;
        }
        let _ = server.handle().set_interest(paceline::Interest::READ);
        loop {
            let connection = Arc::clone(server);
            let id = server.id;
            let (given, orders) =
                self.with_book(|book, now, orders| book.give_back(id, connection, now, orders));
            let passed = self.pass_on(server, given, call);
            self.carry_out(orders);
            if passed == Passed::On {
                return;
            }
        }
    }

    /// The server needs its reset query first.
    pub(crate) fn reset_server(&self, server: &Arc<Server>, call: &mut Call<'_, '_, '_>) {
        let id = server.id;
        let ((), orders) = self.with_book(|book, _, orders| book.reset(id, orders));
        {
            let mut core = server.core();
            core.client = None;
            core.errand = Errand::Reset;
        }
        let _ = server.handle().set_interest(paceline::Interest::READ);
        self.send_home(server, call);
        self.carry_out(orders);
    }

    /// Does with a server what the book says.
    pub(crate) fn pass_on(
        &self,
        server: &Arc<Server>,
        given: GiveBack<Arc<Server>>,
        call: &mut Call<'_, '_, '_>,
    ) -> Passed {
        match given {
            GiveBack::ToClient { client, .. } => return self.hand_over(server, client, call),
            GiveBack::Idle | GiveBack::Held => self.send_home(server, call),
            GiveBack::Close { reason, .. } => self.close_server(server, &reason.to_string(), call),
        }
        Passed::On
    }

    fn hand_over(
        &self,
        server: &Arc<Server>,
        client: ClientId,
        call: &mut Call<'_, '_, '_>,
    ) -> Passed {
        let Some(client) = self.clients().find(client).cloned() else {
            return Passed::NotTaken;
        };
        let Some(group) = client.group() else {
            return Passed::NotTaken;
        };
        let given = Given {
            server: Arc::clone(server),
            way: Way::Sent,
        };
        if client.give(given) == Delivery::Closed {
            return Passed::NotTaken;
        }
        // A member that the call is for moves when the call is over. If that group has ended by then,
        // the server stays where it is, and is given back.
        server.core().errand = Errand::GiveBack;
        if call.move_to(server.handle(), group).is_ok() {
            return Passed::On;
        }
        client.send(Letter::Lost(server.number));
        if call.has(server.handle()) {
            return Passed::NotTaken;
        }
        // Its connection has ended.
        self.close_server(server, "server conn crashed?", call);
        Passed::On
    }

    fn send_home(&self, server: &Arc<Server>, call: &mut Call<'_, '_, '_>) {
        let home = server.home();
        if *home == call.group() {
            return;
        }
        if call.move_to(server.handle(), home).is_err() {
            // A home ends after its server.
            call.close(server.handle());
        }
    }
}
