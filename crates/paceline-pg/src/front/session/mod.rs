//! The session of a client: the handler of its group.
//!
//! ```text
//!                 Idle ---share---> Shared ---> Idle
//!   Login ------> Idle ----ask----> Waiting ----given----> Bound
//!     |   Welcome   ^                                        |
//!     |             +------------ release at a boundary -----+
//!     +-> Console
//!   any of them ---> Leaving: a server may be on its way; it is passed on when it arrives
//! ```
//!
//! A transition consumes the state, so nothing of the old one is left behind. `login` is the way to
//! `Idle`, `relay` passes bytes, `shared` passes requests to shared connections, `serving` takes servers and gives them back, `letters` handles what
//! others have put before the session, `leaving` ends it.

mod arriving;
mod auth_query;
mod console;
mod encrypting;
mod leaving;
mod letters;
mod login;
mod relay;
mod serving;
mod shared;

#[cfg(test)]
mod tests;

use std::{io, sync::Arc, time::Duration};

use paceline::{Closed, Context, GroupHandler, Handle, Interest, Members, Next};

use self::{console::ConsoleSession, login::Login, shared::Away};
pub(crate) use self::{
    leaving::crash_report, login::login_settings, relay::count_from_client, serving::Passed,
};
use super::{
    call::Call,
    client::Client,
    registers::PoolEntry,
    server::Server,
    sockets::{PeerProcess, Stream},
    state::Front,
    wire::Wire,
};
use crate::{pools::ClientId, protocol::ClientHalf};

/// The session of a client.
pub(crate) struct Session {
    front: Arc<Front>,
    client: Arc<Client>,
    /// The process at the other end, of a Unix socket.
    process: Option<PeerProcess>,
    /// The client's connection, from the first call on.
    handle: Option<Handle>,
    wire: Wire,
    /// What was received and is not handled yet.
    input: Vec<u8>,
    /// Whether the client's input is wanted now.
    reading: Reading,
    /// How many bytes of a shared connection's replies the client has not taken.
    owed: usize,
    state: State,
}

/// Whether a connection is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    On,
    /// It waits: for a server, or until the other side has taken its output.
    Off,
}

/// Where a session is.
enum State {
    Login(Box<Login>),
    Idle(Box<Member>),
    Waiting(Box<Member>),
    Bound(Box<Member>, Bound),
    /// Its request is on a shared connection, or waits for one.
    Shared(Box<Away>),
    Console(Box<ConsoleSession>),
    Leaving(Option<Arc<Server>>),
}

/// A client that has logged in.
struct Member {
    id: ClientId,
    pool: Arc<PoolEntry>,
    half: ClientHalf,
    /// Its number in the place of a process, of its key.
    process: i32,
}

/// A server that a client has.
struct Bound {
    server: Arc<Server>,
    arrival: Arrival,
    /// Whether the server's output is read now.
    reading: Reading,
    /// Since when the query runs.
    query_since: Option<Duration>,
    /// Cancels are ignored: a query of the front-end's own runs.
    is_quiet: bool,
}

/// Whether the server is a member of the client's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    Here,
    Coming,
}

impl Session {
    pub(crate) fn new(
        front: Arc<Front>,
        client: Arc<Client>,
        process: Option<PeerProcess>,
    ) -> Self {
        let login = Login::new(&front, client.address.ip().is_none());
        Self {
            front,
            client,
            process,
            handle: None,
            wire: Wire::Plain,
            input: Vec::new(),
            reading: Reading::On,
            owed: 0,
            state: State::Login(Box::new(login)),
        }
    }

    /// Whose session it is.
    pub(super) fn subject(&self) -> (&Front, &Client) {
        (&self.front, &self.client)
    }

    /// Takes the state; the caller puts the next one in its place.
    fn take_state(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Leaving(None))
    }

    fn is_client(&self, call: &Call<'_, '_, '_>) -> bool {
        match &self.handle {
            Some(handle) => call.subject() == Some(handle.id()),
            None => false,
        }
    }

    /// Whether the call is for the server that the client has.
    fn is_server(&self, call: &Call<'_, '_, '_>) -> bool {
        match &self.state {
            State::Bound(_, bound) => call.subject() == Some(bound.server.handle().id()),
            _ => false,
        }
    }

    /// The client's connection is there.
    fn begin(&mut self, cx: &Context<'_, Stream>, members: &Members<'_, Stream>) {
        self.client.settle(members.group());
        self.handle = Some(cx.handle());
    }

    fn on_ready(&mut self, call: &mut Call<'_, '_, '_>) {
        if self.is_client(call) {
            self.client_ready(call);
        } else if self.is_server(call) {
            self.server_ready(call);
        } else if self.auth_server().map(|server| server.handle().id()) == call.subject() {
            self.auth_server_ready(call);
        } else {
            self.stranger(call);
        }
    }

    /// A server that is not, or no more, this client's: it is passed on.
    fn stranger(&mut self, call: &mut Call<'_, '_, '_>) {
        let Some(id) = call.subject() else { return };
        match self.front.server_at(id) {
            Some(server) => self.return_stray(&server, call),
            None => call.finish_subject(),
        }
    }

    /// Has the client's input read, or not.
    fn read_client(&mut self, reading: Reading) {
        if self.reading == reading {
            return;
        }
        self.reading = reading;
        self.listen_to_client();
    }

    fn listen_to_client(&self) {
        let Some(handle) = &self.handle else { return };
        // While output of the client is kept, WRITE reports that it was sent.
        let is_paused =
            matches!(&self.state, State::Bound(_, bound) if bound.reading == Reading::Off);
        let awaits = is_paused || self.owed > 0;
        // A handle that is closed is of no interest.
        let _ = handle.set_interest(interest(self.reading, awaits));
    }

    /// Has the server's output read, or not.
    fn read_server(&mut self, reading: Reading) {
        let awaits = self.reading == Reading::Off;
        if let State::Bound(_, bound) = &mut self.state {
            bound.reading = reading;
            let _ = bound
                .server
                .handle()
                .set_interest(interest(reading, awaits));
        }
        self.listen_to_client();
    }
}

/// A session whose connection never was a member of its group has no end that the handler is called
/// for.
impl Drop for Session {
    fn drop(&mut self) {
        if !matches!(self.state, State::Leaving(_)) {
            let number = self.client.number;
            let id = self.client.facts().id;
            self.front.clients().remove(number, id);
        }
    }
}

fn interest(reading: Reading, awaits_room: bool) -> Interest {
    match (reading, awaits_room) {
        (Reading::On, false) => Interest::READ,
        (Reading::On, true) => Interest::READ | Interest::WRITE,
        (Reading::Off, true) => Interest::WRITE,
        (Reading::Off, false) => Interest::NONE,
    }
}

impl GroupHandler<Stream> for Session {
    fn joined(
        &mut self,
        cx: &mut Context<'_, Stream>,
        members: &mut Members<'_, Stream>,
    ) -> io::Result<Next> {
        if self.handle.is_none() {
            self.begin(cx, members);
            return Ok(Next::Continue);
        }
        let mut call = Call::for_member(cx, members);
        self.server_joined(&mut call);
        Ok(call.next())
    }

    fn ready(
        &mut self,
        cx: &mut Context<'_, Stream>,
        members: &mut Members<'_, Stream>,
    ) -> io::Result<Next> {
        let mut call = Call::for_member(cx, members);
        self.on_ready(&mut call);
        Ok(call.next())
    }

    fn notified(&mut self, members: &mut Members<'_, Stream>) {
        let mut call = Call::for_group(members);
        self.open_letters(&mut call);
    }

    fn closed(&mut self, member: &Handle, why: Closed, members: &mut Members<'_, Stream>) {
        let mut call = Call::for_group(members);
        if self.handle.as_ref() == Some(member) {
            self.client_closed(&why, &mut call);
        } else {
            self.server_closed(member, &why, &mut call);
        }
    }

    fn deserted(&mut self) -> Next {
        match &self.state {
            // A server is on its way here.
            State::Leaving(Some(_)) => Next::Continue,
            _ => Next::Close,
        }
    }
}
