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

mod ends;
mod replies;
mod sending;

use std::{collections::VecDeque, io, sync::Arc};

use paceline::{Closed, Context, GroupHandler, Handle, HandleId, Members, Next};

use super::{
    call::Call,
    client::{Client, Letter, Phase},
    lanes::{Request, Rest, TrunkNumber},
    registers::PoolEntry,
    server::{Server, Taken},
    sockets::{Address, Stream},
    state::Front,
};
use crate::{
    pools::{Ask, ClientId, Privilege, Refusal},
    protocol::{ClientHalf, Release, Values},
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
        self.next = self.next.take().filter(|next| !next.client.is_gone());
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
        match self.front.fetch(&server, &self.place, call) {
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
        self.front.note_serverless(&self.pool, self.number);
        // The server leaves this group when the call is over. It could be the next one.
        let _ = call.group().notify();
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
        // First: `lost` asks for another server if requests wait.
        self.refuse_waiting(refusal);
        if let Stage::Working(server) = &self.stage {
            let server = Arc::clone(server);
            return self.lost(&server, &refusal.to_string(), call);
        }
        // A server that is on its way here is given back when it arrives.
        self.refuse_all(refusal);
    }

    /// The connection of a server has ended that is here, or was on its way here.
    fn forget_lost(&mut self, number: u64, call: &mut Call<'_, '_, '_>) {
        let is_given = self.place.take_given_server(number).is_some();
        let is_it = match &self.stage {
            Stage::Waiting => is_given,
            Stage::Coming(server) => server.number == number,
            Stage::Working(server) if server.number == number => {
                let server = Arc::clone(server);
                return self.lost(&server, "server conn crashed?", call);
            }
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
            // It was fetched, and has been used since.
            Stage::Working(server) if server.is_at(id) => return,
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
            // It may have been on its way to this trunk, which is not noted at the server before it
            // has arrived.
            self.forget_lost(server.number, &mut call);
        }
    }

    fn deserted(&mut self) -> Next {
        Next::Continue
    }
}
