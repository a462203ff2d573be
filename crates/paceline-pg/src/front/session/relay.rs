//! Passes bytes between a client and the server that it has.

use std::{
    io::{self, IoSlice},
    sync::{atomic::Ordering, Arc},
};

use paceline::scratch;

use super::{encrypting::Handshake, Arrival, Bound, Reading, Session, State};
use crate::{
    front::{buffers, call::Call, client::Phase, wire},
    pg_wire::{Header, TransactionStatus},
    protocol::{self, FromClient, FromServer, Output, Relay, Release, Violation},
    stats::Counters,
};

/// How much is received of a client whose request is on a shared connection: so its end is noticed.
const READ_AHEAD: usize = 64 << 10;

/// Whether a caller goes on with the rest of the input.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// So many bytes are done with; there may be more to do.
    Took(usize),
    /// The rest must wait.
    Stuck,
}

impl Session {
    /// The client has sent something, or has taken what was kept for it.
    pub(super) fn client_ready(&mut self, call: &mut Call<'_, '_, '_>) {
        self.resume_server(call);
        self.note_taken(call);
        if self.reading == Reading::Off {
            return;
        }
        if let State::Waiting(_)
        | State::Bound(
            _,
            Bound {
                arrival: Arrival::Coming,
                ..
            },
        ) = &self.state
        {
            // Its request waits already: the socket's buffer holds the rest.
            return self.read_client(Reading::Off);
        }
        if matches!(self.state, State::Shared(_)) && self.input.len() > READ_AHEAD {
            return self.read_client(Reading::Off);
        }
        if let (State::Console(_), false) = (&self.state, self.input.is_empty()) {
            // The command has waited for its turn.
            self.take_input(call);
        }
        self.receive_from_client(call);
    }

    /// The client has taken everything: the server is read again.
    fn resume_server(&mut self, call: &mut Call<'_, '_, '_>) {
        let is_paused =
            matches!(&self.state, State::Bound(_, bound) if bound.reading == Reading::Off);
        if is_paused && self.unsent_to_client(call) == 0 {
            self.read_server(Reading::On);
        }
    }

    pub(super) fn unsent_to_client(&self, call: &mut Call<'_, '_, '_>) -> usize {
        let handle = self.handle.as_ref();
        let unsent = handle.map(|handle| call.with(handle, |cx| Ok(cx.unsent())));
        unsent.and_then(Result::ok).unwrap_or(0)
    }

    fn receive_from_client(&mut self, call: &mut Call<'_, '_, '_>) {
        let Some(handle) = self.handle.clone() else {
            return;
        };
        let mut buffer = scratch();
        let was_handshaking = self.wire.is_handshaking();
        let (wire, input) = (&mut self.wire, &mut self.input);
        let arrived = call.with(&handle, |cx| wire.receive(cx, &mut buffer, input));
        if self.note_handshake(was_handshaking) == Handshake::Nameless {
            return self.leave("direct TLS without the protocol's name (ALPN)", call);
        }
        match arrived {
            Ok(wire::Arrival::InBuffer(count)) => {
                self.count_received(count);
                let taken = self.take(&buffer[..count], call);
                self.input.extend_from_slice(&buffer[taken..count]);
            }
            Ok(wire::Arrival::InInput) => self.take_input(call),
            Ok(wire::Arrival::End) => self.leave("client unexpected eof", call),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.client_failed(&error, call),
        }
    }

    /// Handles what was kept.
    pub(super) fn take_input(&mut self, call: &mut Call<'_, '_, '_>) {
        if self.input.is_empty() {
            return;
        }
        let mut input = std::mem::take(&mut self.input);
        let taken = self.take(&input, call);
        input.drain(..taken);
        // Nothing was put there meanwhile: whatever is received comes through here.
        if !input.is_empty() {
            self.input = input;
        }
    }

    /// Handles bytes of the client. How many are done with.
    fn take(&mut self, bytes: &[u8], call: &mut Call<'_, '_, '_>) -> usize {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            let progress = match &self.state {
                State::Login(_) => self.login_input(rest, call),
                State::Idle(_) => self.idle_input(rest, call),
                State::Bound(..) => self.relay_client(rest, call),
                State::Console(_) => self.console_input(rest, call),
                State::Waiting(_) | State::Shared(_) => Progress::Stuck,
                // What a client sends that is about to be closed is dropped.
                State::Leaving(_) => return bytes.len(),
            };
            match progress {
                Progress::Took(count) => taken += count,
                Progress::Stuck => return taken,
            }
        }
    }

    /// A client without a server sends something: it gets one, or leaves.
    fn idle_input(&mut self, bytes: &[u8], call: &mut Call<'_, '_, '_>) -> Progress {
        match Header::first(bytes) {
            Ok(None) => Progress::Stuck,
            Ok(Some(header)) if header.tag == b'X' => {
                self.leave("client close request", call);
                Progress::Took(bytes.len())
            }
            Ok(Some(header)) => match self.violation_of(header) {
                Some(violation) => {
                    self.violation(&violation, call);
                    Progress::Took(bytes.len())
                }
                None => match self.share_input(bytes) {
                    Some(progress) => progress,
                    None => self.ask_for_server(call),
                },
            },
            Err(malformed) => {
                self.refuse("08P01", &malformed.to_string(), call);
                Progress::Took(bytes.len())
            }
        }
    }

    /// Why an idle client may not send this: then it needs no server.
    fn violation_of(&self, header: Header) -> Option<Violation> {
        match &self.state {
            State::Idle(member) => member.pool.terms().relay.violation(header),
            _ => None,
        }
    }

    /// Passes bytes of the client on.
    fn relay_client(&mut self, bytes: &[u8], call: &mut Call<'_, '_, '_>) -> Progress {
        let State::Bound(member, bound) = &mut self.state else {
            return Progress::Stuck;
        };
        if bound.arrival == Arrival::Coming || bytes.is_empty() {
            return Progress::Stuck;
        }
        let mut pair = buffers::pair();
        let pair = &mut *pair;
        let mut core = bound.server.core();
        let terms = member.pool.terms();
        let mut relay = Relay {
            client: &mut member.half,
            server: &mut core.half,
            settings: &terms.relay,
        };
        let mut out = Output {
            to_server: &mut pair.to_server,
            to_client: &mut pair.to_client,
        };
        let passed = relay.from_client(bytes, &mut out);
        let passed = match passed {
            Ok(passed) => passed,
            Err(violation) => {
                drop(core);
                self.violation(&violation, call);
                return Progress::Took(bytes.len());
            }
        };
        let slices = [
            IoSlice::new(&bytes[..passed.direct]),
            IoSlice::new(&pair.to_server),
        ];
        let wire = &mut core.wire;
        let sent = call.with(bound.server.handle(), |cx| {
            wire.send(cx, used(&slices))?;
            Ok(cx.unsent())
        });
        let is_busy = core.half.is_busy();
        drop(core);
        if terms.relay.renames() {
            count_from_client(&member.pool.database.counters, &passed);
            // The console shows it; nothing depends on it.
            let statements = member.half.prepared_statements();
            self.client.statements.store(statements, Ordering::Relaxed);
        }
        self.note_forwarded(is_busy);
        if !pair.to_client.is_empty() {
            self.send_to_client(&[IoSlice::new(&pair.to_client)], call);
        }
        match sent {
            Ok(0) => {}
            Ok(_) => self.pause_client(),
            // The server's own end follows, and says what was lost.
            Err(_) => return Progress::Took(passed.consumed),
        }
        self.after_client(&passed, call)
    }

    fn after_client(&mut self, passed: &FromClient, call: &mut Call<'_, '_, '_>) -> Progress {
        match passed.next {
            protocol::Next::Terminate => {
                self.leave("client close request", call);
                Progress::Took(passed.consumed)
            }
            protocol::Next::Wait => {
                self.read_client(Reading::Off);
                self.keep_unless_stuck(passed)
            }
            protocol::Next::More => self.keep_unless_stuck(passed),
        }
    }

    /// Everything was taken that can be: what is left needs more bytes.
    fn keep_unless_stuck(&self, passed: &FromClient) -> Progress {
        match passed.consumed {
            0 => Progress::Stuck,
            count => Progress::Took(count),
        }
    }

    /// The server keeps output: the client is not read until that is sent.
    fn pause_client(&mut self) {
        self.reading = Reading::Off;
        if let State::Bound(_, bound) = &self.state {
            let reading = bound.reading;
            self.read_server(reading);
        }
    }

    /// Bytes went to the server: from now on the query runs.
    fn note_forwarded(&mut self, is_busy: bool) {
        let State::Bound(_, bound) = &mut self.state else {
            return;
        };
        if !is_busy || bound.query_since.is_some() {
            return;
        }
        let now = self.front.now();
        bound.query_since = Some(now);
        self.client.watch.enter(Phase::Busy, now);
        if self.client.watch.transaction_since().is_none() {
            self.client.watch.begin_transaction(now);
        }
    }

    /// The server has sent something, or has taken what was kept for it.
    pub(super) fn server_ready(&mut self, call: &mut Call<'_, '_, '_>) {
        self.resume_client(call);
        self.receive_from_server(call);
    }

    /// The server has taken everything: the client is read again.
    fn resume_client(&mut self, call: &mut Call<'_, '_, '_>) {
        let State::Bound(_, bound) = &self.state else {
            return;
        };
        if self.reading == Reading::On {
            return;
        }
        let handle = bound.server.handle();
        let unsent = call.with(handle, |cx| Ok(cx.unsent())).unwrap_or(0);
        if unsent == 0 {
            let reading = bound.reading;
            self.reading = Reading::On;
            self.read_server(reading);
        }
    }

    fn receive_from_server(&mut self, call: &mut Call<'_, '_, '_>) {
        let State::Bound(_, bound) = &self.state else {
            return;
        };
        if bound.reading == Reading::Off {
            return;
        }
        let server = bound.server.clone();
        let mut buffer = scratch();
        let mut core = server.core();
        let core_parts = &mut *core;
        let (wire, input) = (&mut core_parts.wire, &mut core_parts.input);
        let arrived = call.with(server.handle(), |cx| wire.receive(cx, &mut buffer, input));
        drop(core);
        match arrived {
            Ok(wire::Arrival::InBuffer(count)) => {
                let taken = self.relay_server(&buffer[..count], call);
                if taken < count {
                    server.core().input.extend_from_slice(&buffer[taken..count]);
                }
            }
            Ok(wire::Arrival::InInput) => self.relay_server_input(&server, call),
            Ok(wire::Arrival::End) => self.server_lost("server conn crashed?", call),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.server_lost("server conn crashed?", call),
        }
    }

    fn relay_server_input(
        &mut self,
        server: &crate::front::server::Server,
        call: &mut Call<'_, '_, '_>,
    ) {
        let mut input = std::mem::take(&mut server.core().input);
        let taken = self.relay_server(&input, call);
        input.drain(..taken);
        if !input.is_empty() {
            server.core().input = input;
        }
    }

    /// Passes bytes of the server on. How many are done with.
    fn relay_server(&mut self, bytes: &[u8], call: &mut Call<'_, '_, '_>) -> usize {
        let State::Bound(member, bound) = &mut self.state else {
            return bytes.len();
        };
        let mut pair = buffers::pair();
        let pair = &mut *pair;
        let mut core = bound.server.core();
        let terms = member.pool.terms();
        let mut relay = Relay {
            client: &mut member.half,
            server: &mut core.half,
            settings: &terms.relay,
        };
        let mut out = Output {
            to_server: &mut pair.to_server,
            to_client: &mut pair.to_client,
        };
        let passed = relay.from_server(bytes, &mut out);
        let status = core.half.status();
        let is_busy = core.half.is_busy();
        if core.half.take_doubt() {
            let server = Arc::clone(&bound.server);
            drop(core);
            self.front.doubt_host(&server, "25006");
            core = bound.server.core();
        }
        if bound.is_quiet && !core.half.is_own_query_running() {
            bound.is_quiet = false;
            self.front.book().set_quiet(bound.server.id, false);
        }
        drop(core);
        drop(terms);
        if let Some(refusal) = member.half.take_refusal() {
            self.log_refusal(&refusal);
        }
        let State::Bound(member, _) = &self.state else {
            return bytes.len();
        };
        let direct = passed.as_ref().map_or(0, |passed| passed.direct);
        let count = direct + pair.to_client.len();
        member.pool.database.counters.sent.add(count as u64);
        let done = passed
            .as_ref()
            .is_ok_and(|passed| passed.release == Release::Allowed);
        let slices = [
            IoSlice::new(&bytes[..direct]),
            IoSlice::new(&pair.to_client),
        ];
        if done {
            // The book gives the server on now, and it moves when this call is over: see `serving`.
            self.note_answered(&passed, status, is_busy);
            self.release(call);
            self.send_to_client(used(&slices), call);
            self.take_input(call);
            return bytes.len();
        }
        self.send_to_client(used(&slices), call);
        match passed {
            Ok(passed) => {
                self.note_answered(&Ok(passed), status, is_busy);
                self.after_server(&passed, call);
                passed.consumed
            }
            Err(broken) => {
                self.server_broken(&broken, call);
                bytes.len()
            }
        }
    }

    fn after_server(&mut self, passed: &FromServer, call: &mut Call<'_, '_, '_>) {
        if passed.has_ended {
            return self.server_said_goodbye(call);
        }
        if passed.may_resume {
            self.reading = Reading::On;
            self.listen_to_client();
            self.take_input(call);
        }
    }

    /// Replies were passed on: counts what has ended.
    fn note_answered(
        &mut self,
        passed: &Result<FromServer, protocol::Broken>,
        status: TransactionStatus,
        is_busy: bool,
    ) {
        let (Ok(passed), State::Bound(member, bound)) = (passed, &mut self.state) else {
            return;
        };
        let counts = passed.counts;
        if counts.queries == 0 {
            return;
        }
        let now = self.front.now();
        let counters = &member.pool.database.counters;
        counters.queries.add(counts.queries.into());
        counters.transactions.add(counts.transactions.into());
        let query_time = bound.query_since.map(|since| now.saturating_sub(since));
        counters.query_time.add_time(query_time.unwrap_or_default());
        bound.query_since = is_busy.then_some(now);
        let is_open = status != TransactionStatus::Idle;
        let phase = match (is_busy, is_open) {
            (true, _) => Phase::Busy,
            (false, true) => Phase::HeldInTransaction,
            (false, false) => Phase::Held,
        };
        self.client.watch.enter(phase, now);
        if !is_open {
            let since = self.client.watch.end_transaction();
            let time = since.map(|since| now.saturating_sub(since));
            counters.transaction_time.add_time(time.unwrap_or_default());
        }
    }

    /// Sends to the client. If that does not take everything, the server is not read meanwhile.
    pub(super) fn send_to_client(&mut self, slices: &[IoSlice<'_>], call: &mut Call<'_, '_, '_>) {
        if slices.iter().all(|slice| slice.is_empty()) {
            return;
        }
        let Some(handle) = self.handle.clone() else {
            return;
        };
        let wire = &mut self.wire;
        let sent = call.with(&handle, |cx| {
            wire.send(cx, slices)?;
            Ok(cx.unsent())
        });
        match sent {
            Ok(0) => {}
            Ok(_) => self.read_server(Reading::Off),
            Err(error) => self.client_failed(&error, call),
        }
    }

    fn count_received(&self, count: usize) {
        if let State::Idle(member) | State::Waiting(member) | State::Bound(member, _) = &self.state
        {
            member.pool.database.counters.received.add(count as u64);
        }
    }
}

pub(crate) fn count_from_client(counters: &Counters, passed: &FromClient) {
    counters
        .client_parses
        .add(passed.counts.client_parses.into());
    counters
        .server_parses
        .add(passed.counts.server_parses.into());
    counters.binds.add(passed.counts.binds.into());
}

/// The slices that have bytes: a single one is sent by a plain call.
fn used<'s, 'b>(slices: &'s [IoSlice<'b>; 2]) -> &'s [IoSlice<'b>] {
    match (slices[0].is_empty(), slices[1].is_empty()) {
        (false, true) => &slices[..1],
        (true, _) => &slices[1..],
        (false, false) => slices,
    }
}
