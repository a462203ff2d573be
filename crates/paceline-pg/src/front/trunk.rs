//! A shared connection: the handler of a group that has a server while requests of several clients
//! are outstanding on it.
//!
//! ```text
//!   Resting --ask--> Waiting --given--> Coming --joined--> Working --give_back--> Resting
//! ```
//!
//! - To the book a trunk is a client: it waits in the same queue, and gives its server back at the
//!   latest after [`BATCHES_PER_TURN`] times `multiplex` requests. So clients that need a server for
//!   themselves have their turn, and pauses, limits and lifetimes hold.
//! - `sent` has a request for each batch without its `Z`, the oldest first. Replies up to a `Z` are
//!   the first one's.
//! - A client that has left stays in `sent`, and its replies are dropped. Meanwhile the trunk takes
//!   no more requests: the statement may last.

use std::{collections::VecDeque, io, io::IoSlice, sync::Arc};

use paceline::{scratch, Closed, Context, GroupHandler, Handle, HandleId, Interest, Members, Next};

use super::{
    buffers,
    call::Call,
    client::{Client, Ended, Letter, Phase, Pressure},
    lanes::{Request, Rest, TrunkNumber},
    registers::PoolEntry,
    server::{Server, Taken},
    session::{count_from_client, crash_report},
    sockets::{Address, Stream},
    state::Front,
    wire,
};
use crate::{
    log::Level,
    pools::{Ask, ClientId, Privilege, Refusal},
    protocol::{
        AfterLoss, Broken, ClientHalf, FromServer, Output, Relay, Release, Shared, Values,
        Violation,
    },
};

/// After so many requests for each place the server goes back to the book.
const BATCHES_PER_TURN: usize = 16;

/// The handler of a shared connection.
pub(crate) struct Trunk {
    front: Arc<Front>,
    pool: Arc<PoolEntry>,
    number: TrunkNumber,
    /// Its place in the book, and its letters.
    place: Arc<Client>,
    id: Option<ClientId>,
    stage: Stage,
    /// The batches without their `Z`.
    sent: VecDeque<Request>,
    /// The oldest request that could not be sent yet.
    next: Option<Request>,
    /// How many batches were sent in this turn.
    count: usize,
    turn: Turn,
    /// Whether the server is read: not while the oldest client does not take its replies.
    is_reading: bool,
    /// The half for what a server says without a request.
    nobody: ClientHalf,
}

enum Stage {
    Resting,
    Waiting,
    Coming(Arc<Server>),
    Working(Arc<Server>),
}

/// Whether a trunk takes more requests before it gives its server back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Lasts,
    Ends,
}

impl Trunk {
    pub(crate) fn new(front: Arc<Front>, pool: Arc<PoolEntry>, number: TrunkNumber) -> Self {
        let address = Address::Unix {
            port: 0,
            process: None,
        };
        let place = Client::new(front.next_number(), address, front.now());
        place.watch.enter(Phase::Idle, front.now());
        Self {
            front,
            pool,
            number,
            place: Arc::new(place),
            id: None,
            stage: Stage::Resting,
            sent: VecDeque::new(),
            next: None,
            count: 0,
            turn: Turn::Lasts,
            is_reading: true,
            nobody: ClientHalf::new(Values::new(), true),
        }
    }

    /// Goes as far as possible without waiting.
    fn advance(&mut self, call: &mut Call<'_, '_, '_>) {
        match &self.stage {
            Stage::Resting => self.rest_or_ask(call),
            Stage::Waiting | Stage::Coming(_) => {}
            Stage::Working(server) => {
                let server = Arc::clone(server);
                self.read_again();
                self.fill(&server, call);
                self.end_turn(&server, call);
            }
        }
    }

    /// Without a server: asks for one if requests wait.
    fn rest_or_ask(&mut self, call: &mut Call<'_, '_, '_>) {
        if self.next.is_some() {
            return self.ask(call);
        }
        match self.pool.lanes.rest(self.number) {
            Rest::No => self.ask(call),
            Rest::Yes => self.leave_book(),
            Rest::ForEver => {
                self.leave_book();
                // It has ended already, if that fails.
                let _ = call.group().close();
            }
        }
    }

    fn enter_book(&mut self, call: &Call<'_, '_, '_>) -> Result<ClientId, Refusal> {
        if let Some(id) = self.id {
            return Ok(id);
        }
        self.place.settle(call.group());
        let now = self.front.now();
        let entered = self.front.book().enter(None, None, Privilege::Exempt, now);
        let id = entered?;
        self.id = Some(id);
        self.front.clients().name(id, Arc::clone(&self.place));
        Ok(id)
    }

    fn leave_book(&mut self) {
        let Some(id) = self.id.take() else { return };
        let (_left, orders) = self
            .front
            .with_book(|book, now, orders| book.leave(id, now, orders));
        self.front.clients().remove(self.place.number, Some(id));
        self.front.carry_out(orders);
    }

    fn ask(&mut self, call: &mut Call<'_, '_, '_>) {
        let id = match self.enter_book(call) {
            Ok(id) => id,
            Err(refusal) => return self.refuse_all(&refusal),
        };
        let pool = self.pool.id;
        let (asked, orders) = self
            .front
            .with_book(|book, now, orders| book.ask(id, pool, now, orders));
        match asked {
            Ask::Server { connection, .. } => self.fetch(connection, call),
            Ask::Waiting => self.stage = Stage::Waiting,
            Ask::Refused(refusal) => self.refuse_all(&refusal),
        }
        self.front.carry_out(orders);
    }

    /// The book has given this server to the trunk, which fetches it.
    fn fetch(&mut self, server: Arc<Server>, call: &mut Call<'_, '_, '_>) {
        self.front.note_assigned(&server, &self.place);
        match server.take(&call.group()) {
            Taken::Here => self.arrived(server, call),
            Taken::Coming => self.stage = Stage::Coming(server),
            Taken::Gone => {
                // Its end is reported to the book by the group that it was in.
                self.stage = Stage::Resting;
                let _ = call.group().notify();
            }
        }
    }

    /// The server is a member of this group.
    fn arrived(&mut self, server: Arc<Server>, call: &mut Call<'_, '_, '_>) {
        self.pool.database.counters.server_assignments.add(1);
        server.core().half.set_shared(true);
        (self.count, self.turn, self.is_reading) = (0, Turn::Lasts, true);
        self.stage = Stage::Working(server);
        self.advance(call);
    }

    /// Sends requests while there is room.
    fn fill(&mut self, server: &Arc<Server>, call: &mut Call<'_, '_, '_>) {
        let terms = self.pool.terms();
        let multiplex = terms.multiplex;
        if multiplex == 0 || self.count >= BATCHES_PER_TURN * multiplex {
            self.turn = Turn::Ends;
        }
        if self.sent.iter().any(|request| request.client.is_gone()) {
            // What it has asked for may last.
            return self.give_way();
        }
        let mut out = Vec::new();
        let mut failed = None;
        while self.turn == Turn::Lasts && self.sent.len() < multiplex {
            let next = self.next.take().or_else(|| self.pool.lanes.take());
            let Some(request) = next.filter(|request| !request.client.is_gone()) else {
                if self.pool.lanes.is_empty() {
                    break;
                }
                continue;
            };
            match self.send(request, server, &terms.relay, &mut out) {
                Ok(Sending::Sent) => {}
                Ok(Sending::NotNow(request)) => {
                    self.next = Some(*request);
                    break;
                }
                Err((request, violation)) => {
                    failed = Some((request, violation));
                    break;
                }
            }
        }
        drop(terms);
        self.pool.lanes.set_room(self.number, self.room(multiplex));
        if let Some((request, violation)) = failed {
            // Nothing of this call was sent.
            return self.violated(*request, &violation, server, call);
        }
        if out.is_empty() {
            return;
        }
        let mut core = server.core();
        let wire = &mut core.wire;
        let sent = call.with(server.handle(), |cx| wire.send(cx, &[IoSlice::new(&out)]));
        drop(core);
        if sent.is_err() {
            self.lost(server, "server conn crashed?", call);
        }
    }

    fn room(&self, multiplex: usize) -> usize {
        if self.turn == Turn::Ends || self.next.is_some() {
            0
        } else {
            multiplex.saturating_sub(self.sent.len())
        }
    }

    /// Takes no requests until the next replies: another trunk does.
    fn give_way(&mut self) {
        self.pool.lanes.set_room(self.number, 0);
        self.front.wake_other_trunk(&self.pool);
    }

    /// Appends one batch to what is sent to the server.
    fn send(
        &mut self,
        mut request: Request,
        server: &Arc<Server>,
        settings: &crate::protocol::RelaySettings,
        out: &mut Vec<u8>,
    ) -> Result<Sending, (Box<Request>, Violation)> {
        let mut pair = buffers::pair();
        let pair = &mut *pair;
        let mut core = server.core();
        let is_boundary = self.sent.is_empty() && core.half.may_release() == Release::Allowed;
        let mut relay = Relay {
            client: &mut request.half,
            server: &mut core.half,
            settings,
        };
        if is_boundary {
            relay.begin(&mut pair.to_server);
            out.append(&mut pair.to_server);
        } else if relay.needs_parameters() {
            return Ok(Sending::NotNow(Box::new(request)));
        }
        let mut output = Output {
            to_server: &mut pair.to_server,
            to_client: &mut pair.to_client,
        };
        let bytes = std::mem::take(&mut request.bytes);
        let shared = relay.share(&bytes, &mut output);
        drop(core);
        match shared {
            Ok(Shared::NotNow) => {
                request.bytes = bytes;
                Ok(Sending::NotNow(Box::new(request)))
            }
            Ok(Shared::Sent(passed)) => {
                out.extend_from_slice(&bytes[..passed.direct]);
                out.append(&mut pair.to_server);
                let counters = &self.pool.database.counters;
                count_from_client(counters, &passed);
                let now = self.front.now();
                request.client.watch.enter(Phase::Busy, now);
                request.client.watch.begin_transaction(now);
                self.count += 1;
                if !pair.to_client.is_empty() {
                    self.deliver(&request.client, &pair.to_client, None);
                }
                self.sent.push_back(request);
                Ok(Sending::Sent)
            }
            Err(violation) => Err((Box::new(request), violation)),
        }
    }

    /// Gives the server back when nothing is outstanding, and the turn or the queue is at its end.
    fn end_turn(&mut self, server: &Arc<Server>, call: &mut Call<'_, '_, '_>) {
        let is_working = matches!(&self.stage, Stage::Working(own) if own.number == server.number);
        if !is_working || !self.sent.is_empty() {
            return;
        }
        let release = {
            let core = server.core();
            if core.half.is_own_query_running() {
                // The parameters of the next request are being set.
                return;
            }
            core.half.may_release()
        };
        self.stage = Stage::Resting;
        server.core().half.set_shared(false);
        let terms = self.pool.terms();
        let resets_always = self.front.live().settings().server_reset_query_always;
        if release != Release::Allowed {
            self.front.close_server(server, "unclean server", call);
        } else if terms.reset.is_some() && resets_always {
            self.front.reset_server(server, call);
        } else {
            self.front.give_back(server, call);
        }
        drop(terms);
        self.rest_or_ask(call);
    }

    /// Bytes of the server.
    fn receive(&mut self, server: &Arc<Server>, call: &mut Call<'_, '_, '_>) {
        let mut buffer = scratch();
        let mut core = server.core();
        let parts = &mut *core;
        let (wire, input) = (&mut parts.wire, &mut parts.input);
        let arrived = call.with(server.handle(), |cx| wire.receive(cx, &mut buffer, input));
        drop(core);
        let handled = match arrived {
            Ok(wire::Arrival::InBuffer(count)) => {
                let handled = self.replies(server, &buffer[..count]);
                if let Ok(taken) = handled {
                    server.core().input.extend_from_slice(&buffer[taken..count]);
                }
                handled
            }
            Ok(wire::Arrival::InInput) => {
                let mut input = std::mem::take(&mut server.core().input);
                let handled = self.replies(server, &input);
                if let Ok(taken) = handled {
                    input.drain(..taken);
                    server.core().input = input;
                }
                handled
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(wire::Arrival::End) | Err(_) => {
                return self.lost(server, "server conn crashed?", call);
            }
        };
        match handled {
            Ok(_) if server.core().half.farewell().is_some() => {
                self.lost(server, "server conn crashed?", call);
            }
            Ok(_) => self.advance(call),
            Err(broken) => self.broken(&broken, server, call),
        }
    }

    /// Passes replies on, each to the client of the oldest batch. How many bytes are done with.
    fn replies(&mut self, server: &Arc<Server>, bytes: &[u8]) -> Result<usize, Broken> {
        let mut taken = 0;
        let mut pair = buffers::pair();
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            let mut core = server.core();
            let piece = &rest[..core.half.up_to_ready(rest)];
            let request = self.sent.front_mut().or(self.next.as_mut());
            let half = request.map_or(&mut self.nobody, |request| &mut request.half);
            let terms = self.pool.terms();
            let mut relay = Relay {
                client: half,
                server: &mut core.half,
                settings: &terms.relay,
            };
            pair.to_client.clear();
            let pair = &mut *pair;
            let mut output = Output {
                to_server: &mut pair.to_server,
                to_client: &mut pair.to_client,
            };
            let passed = relay.from_server(piece, &mut output);
            let is_doubtful = core.half.take_doubt();
            drop(core);
            drop(terms);
            if is_doubtful {
                self.front.doubt_host(server, "25006");
            }
            let direct = passed.as_ref().map_or(0, |passed| passed.direct);
            let replies = [&piece[..direct], &pair.to_client].concat();
            self.deliver_to_oldest(&replies);
            let passed = passed?;
            taken += passed.consumed;
            self.note_answered(&passed, server);
            if passed.consumed < piece.len() || passed.has_ended {
                break;
            }
        }
        Ok(taken)
    }

    /// The `Z` of the oldest batch: its client goes on.
    fn note_answered(&mut self, passed: &FromServer, server: &Arc<Server>) {
        let counters = &self.pool.database.counters;
        if passed.counts.queries > 0 {
            counters.queries.add(passed.counts.queries.into());
            counters.transactions.add(passed.counts.transactions.into());
            if let Some(request) = self.sent.pop_front() {
                let (_, since) = request.client.watch.phase();
                let time = self.front.now().saturating_sub(since);
                counters.query_time.add_time(time);
                let Request { client, half, .. } = request;
                self.deliver(&client, &[], Some(Ended::Answered(Box::new(half))));
            }
        }
        // The front-end's own answers at the start of the next batch are due.
        let mut due = Vec::new();
        if let Some(request) = self.sent.front_mut() {
            let terms = self.pool.terms();
            let mut core = server.core();
            let mut relay = Relay {
                client: &mut request.half,
                server: &mut core.half,
                settings: &terms.relay,
            };
            relay.answer_oldest(&mut due);
        }
        self.deliver_to_oldest(&due);
    }

    fn deliver_to_oldest(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let Some(client) = self.sent.front().map(|request| Arc::clone(&request.client)) else {
            // A notice or a parameter that no request has caused.
            return;
        };
        self.deliver(&client, bytes, None);
    }

    /// Puts replies before a session. If the client does not take them, the server is not read on.
    fn deliver(&mut self, client: &Arc<Client>, bytes: &[u8], ended: Option<Ended>) {
        self.pool.database.counters.sent.add(bytes.len() as u64);
        let Some(group) = self.place.group() else {
            return;
        };
        match client.add_replies(bytes, ended, group, self.front.now()) {
            Pressure::High => self.read(false),
            Pressure::Low | Pressure::Gone => {}
        }
    }

    fn read(&mut self, is_reading: bool) {
        if self.is_reading == is_reading {
            return;
        }
        self.is_reading = is_reading;
        if let Stage::Working(server) = &self.stage {
            let interest = if is_reading {
                Interest::READ
            } else {
                Interest::NONE
            };
            // A handle that is closed is of no interest.
            let _ = server.handle().set_interest(interest);
        }
    }

    /// The oldest client may have taken its replies, or have left.
    fn read_again(&mut self) {
        if self.is_reading {
            return;
        }
        let oldest = self.sent.front();
        if oldest.is_none_or(|request| !request.client.is_behind()) {
            self.read(true);
        }
    }

    /// The connection of the server has ended: each outstanding request has an unknown outcome, and
    /// none is sent again.
    fn lost(&mut self, server: &Arc<Server>, reason: &str, call: &mut Call<'_, '_, '_>) {
        if !matches!(&self.stage, Stage::Working(own) if own.number == server.number) {
            return;
        }
        self.stage = Stage::Resting;
        let sent = std::mem::take(&mut self.sent);
        let mut ends = Vec::new();
        {
            let terms = self.pool.terms();
            let mut core = server.core();
            let is_standby = core.half.hot_standby() == Some(true);
            for (place, mut request) in sent.into_iter().enumerate() {
                let mut words = Vec::new();
                let mut relay = Relay {
                    client: &mut request.half,
                    server: &mut core.half,
                    settings: &terms.relay,
                };
                let after = relay.shared_lost(is_standby, place == 0, &mut words);
                let Request { client, half, .. } = request;
                let ended = match after {
                    AfterLoss::Kept(_) => Ended::Answered(Box::new(half)),
                    AfterLoss::Closed => Ended::Closed(crash_report(after), reason.into()),
                };
                ends.push((client, words, ended));
            }
        }
        self.front.close_server(server, reason, call);
        for (client, words, ended) in ends {
            self.deliver(&client, &words, Some(ended));
        }
        self.rest_or_ask(call);
    }

    /// The server did what the model of it has not foreseen, or refused the parameters of a client.
    fn broken(&mut self, broken: &Broken, server: &Arc<Server>, call: &mut Call<'_, '_, '_>) {
        let text = broken.to_string();
        let guilty = match (self.sent.pop_front(), broken) {
            (None, Broken::Parameter) => self.next.take(),
            (oldest, _) => oldest,
        };
        if let Some(request) = guilty {
            self.front.note_client(
                Level::Warning,
                &request.client,
                format_args!("pooler error: {text}"),
            );
            let mut words = Vec::new();
            crate::pg_wire::backend::error(&mut words, &broken.report());
            let ended = Ended::Closed(words, text.as_str().into());
            self.deliver(&request.client, &[], Some(ended));
        }
        self.lost(server, &text, call);
    }

    /// A batch is none that may be shared: that should have been found before.
    fn violated(
        &mut self,
        request: Request,
        violation: &Violation,
        server: &Arc<Server>,
        call: &mut Call<'_, '_, '_>,
    ) {
        let mut words = Vec::new();
        crate::pg_wire::backend::error(&mut words, &violation.report());
        let ended = Ended::Closed(words, violation.to_string().into());
        self.deliver(&request.client, &[], Some(ended));
        self.lost(server, "unclean server", call);
    }

    /// What the requests wait for is refused.
    fn refuse_all(&mut self, refusal: &Refusal) {
        self.stage = Stage::Resting;
        let waiting = self.next.take().into_iter();
        for request in waiting.chain(self.pool.lanes.take_all()) {
            let ended = Ended::Refused(refusal.clone());
            self.deliver(&request.client, &[], Some(ended));
        }
        let _ = self.pool.lanes.rest(self.number);
        self.leave_book();
    }

    fn open(&mut self, letter: Letter, call: &mut Call<'_, '_, '_>) {
        match letter {
            // Each request has its own time; the trunk asks again for the others.
            Letter::Refuse(Refusal::QueryWaitTimeout) => {
                self.stage = Stage::Resting;
                self.advance(call);
            }
            Letter::Refuse(refusal) => self.refuse_all(&refusal),
            Letter::Dismiss(refusal) => self.dismissed(&refusal, call),
            Letter::Recall(_) => self.turn = Turn::Ends,
            Letter::Lost(number) => self.forget_lost(number, call),
            _ => {}
        }
    }

    /// An administrator ends all clients.
    fn dismissed(&mut self, refusal: &Refusal, call: &mut Call<'_, '_, '_>) {
        if let Stage::Working(server) = &self.stage {
            let server = Arc::clone(server);
            self.lost(&server, &refusal.to_string(), call);
        }
        // A server that is on its way here is given back when it arrives.
        self.refuse_all(refusal);
    }

    /// The connection of a server that was on its way here has ended.
    fn forget_lost(&mut self, number: u64, call: &mut Call<'_, '_, '_>) {
        let is_given = self.place.take_given_server(number).is_some();
        let is_it = match &self.stage {
            Stage::Waiting => is_given,
            Stage::Coming(server) => server.number == number,
            _ => false,
        };
        if is_it {
            self.stage = Stage::Resting;
            self.advance(call);
        }
    }

    /// A server is a member of this group now.
    fn server_joined(&mut self, id: HandleId, call: &mut Call<'_, '_, '_>) {
        let expected = match &self.stage {
            Stage::Coming(server) if server.is_at(id) => Some(Arc::clone(server)),
            _ => self.take_arrived(id),
        };
        match (expected, self.front.server_at(id)) {
            (Some(server), _) if !matches!(self.stage, Stage::Working(_)) => {
                self.front.note_assigned(&server, &self.place);
                self.arrived(server, call);
            }
            (_, Some(stray)) => self.front.give_back(&stray, call),
            (_, None) => call.finish_subject(),
        }
    }

    /// The server that was given to the trunk, if it is this one.
    fn take_arrived(&self, id: HandleId) -> Option<Arc<Server>> {
        let given = self.place.take_given()?;
        if given.server.is_at(id) {
            return Some(given.server);
        }
        // It is still on its way.
        let _ = self.place.give(given);
        None
    }
}

/// What became of a request that was to be sent.
enum Sending {
    Sent,
    NotNow(Box<Request>),
}

impl GroupHandler<Stream> for Trunk {
    fn joined(
        &mut self,
        cx: &mut Context<'_, Stream>,
        members: &mut Members<'_, Stream>,
    ) -> io::Result<Next> {
        let id = cx.handle().id();
        let mut call = Call::for_member(cx, members);
        self.server_joined(id, &mut call);
        Ok(call.next())
    }

    fn ready(
        &mut self,
        cx: &mut Context<'_, Stream>,
        members: &mut Members<'_, Stream>,
    ) -> io::Result<Next> {
        let id = cx.handle().id();
        let mut call = Call::for_member(cx, members);
        match &self.stage {
            Stage::Working(server) if server.is_at(id) => {
                let server = Arc::clone(server);
                if self.is_reading {
                    self.receive(&server, &mut call);
                }
            }
            _ => self.server_joined(id, &mut call),
        }
        Ok(call.next())
    }

    fn notified(&mut self, members: &mut Members<'_, Stream>) {
        let mut call = Call::for_group(members);
        if let Some(given) = self.place.take_to_fetch() {
            if matches!(self.stage, Stage::Waiting) {
                self.fetch(given.server, &mut call);
            } else {
                self.front.abandon(&given.server);
            }
        }
        for letter in self.place.take_letters() {
            self.open(letter, &mut call);
        }
        self.advance(&mut call);
    }

    fn closed(&mut self, member: &Handle, _why: Closed, members: &mut Members<'_, Stream>) {
        let mut call = Call::for_group(members);
        if let Stage::Working(server) = &self.stage {
            if server.is_at(member.id()) {
                let server = Arc::clone(server);
                return self.lost(&server, "server conn crashed?", &mut call);
            }
        }
        if let Some(server) = self.front.server_at(member.id()) {
            self.front.server_gone(&server, "server conn crashed?");
        }
    }

    fn deserted(&mut self) -> Next {
        Next::Continue
    }
}
