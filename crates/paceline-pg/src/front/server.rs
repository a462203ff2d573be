//! A server connection, as everything that has to do with it sees it.
//!
//! ```text
//!   opened ---> home ----------> a client's group ----------> the next client's group
//!               (idle, login,    (bound)          \
//!                reset, check)  <------------------+
//! ```
//!
//! The descriptor is always a member of exactly one group: its home, or that of the client that has
//! it. The book says which client may have it; the group says which thread may touch its
//! descriptor. Everything else about it is in [`Core`], under a lock that is never contended for
//! long, because only the owner of that group, and the console, take it.
//!
//! A group takes a server by [`Server::take`]. If a thread has the group where the server is at this
//! moment, the wish is written down and the home asked, which sends the server on:
//!
//! ```text
//!   client B: adopt -> Busy        the thread that has the home
//!             wanted = B           joined, ready or notified:
//!             notify the home        wanted? move the server to B
//! ```
//!
//! The notification comes after the wish is written down, so the home sees it in that call at the
//! latest.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use paceline::{Adoption, Group, Handle, HandleId};

use super::{
    call::Call,
    client::Client,
    registers::PoolEntry,
    sites::Seat,
    sockets::{Address, Stream},
    wire::Wire,
};
use crate::{pools::ServerId, protocol::ServerHalf};

/// A server connection that is logged in.
pub(crate) struct Server {
    /// Its key in the book.
    pub(crate) id: ServerId,
    /// Its number for the console and the log: clients and servers count together.
    pub(crate) number: u64,
    pub(crate) pool: Arc<PoolEntry>,
    pub(crate) address: Address,
    pub(crate) local: Option<Address>,
    pub(crate) connected_at: Duration,
    /// The number of its process, of the key for cancels.
    pub(crate) process: i32,
    pub(crate) tls: Box<str>,
    /// Its place at the host, if the front knows the roles of those.
    pub(crate) seat: Option<Arc<Seat>>,
    /// Where it is while no client has it.
    home: Group<Stream>,
    handle: Handle,
    /// The group that wants it.
    wanted: Mutex<Option<Group<Stream>>>,
    core: Mutex<Core>,
}

/// What is known of a server connection when its login is done.
pub(crate) struct NewServer {
    pub(crate) id: ServerId,
    pub(crate) number: u64,
    pub(crate) pool: Arc<PoolEntry>,
    pub(crate) address: Address,
    pub(crate) local: Option<Address>,
    pub(crate) connected_at: Duration,
    pub(crate) process: i32,
    pub(crate) tls: Box<str>,
    pub(crate) home: Group<Stream>,
    pub(crate) handle: Handle,
    pub(crate) wire: Wire,
    pub(crate) half: ServerHalf,
    pub(crate) input: Vec<u8>,
    pub(crate) seat: Option<Arc<Seat>>,
}

/// What the owner of the connection works with.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) wire: Wire,
    pub(crate) half: ServerHalf,
    /// What was received and is not handled yet.
    pub(crate) input: Vec<u8>,
    /// The client that has it, from the assignment on.
    pub(crate) client: Option<Arc<Client>>,
    pub(crate) requested_at: Duration,
    /// What its home does before it is given back to the book.
    pub(crate) errand: Errand,
    /// Why it is closed, if the front closes it.
    pub(crate) closing: Option<Box<str>>,
}

/// What a home does with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Nothing: it is idle.
    None,
    /// The reset query.
    Reset,
    /// The check query.
    Check,
    /// To the book: the client that it was for has left.
    GiveBack,
}

/// Where a server is that a group wants.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is a member of the group.
    Here,
    /// Its home sends it.
    Coming,
    /// Its connection has ended.
    Gone,
}

impl Server {
    pub(crate) fn new(new: NewServer) -> Self {
        Self {
            id: new.id,
            number: new.number,
            pool: new.pool,
            address: new.address,
            local: new.local,
            connected_at: new.connected_at,
            process: new.process,
            tls: new.tls,
            seat: new.seat,
            home: new.home,
            handle: new.handle,
            wanted: Mutex::new(None),
            core: Mutex::new(Core {
                wire: new.wire,
                half: new.half,
                input: new.input,
                client: None,
                requested_at: new.connected_at,
                errand: Errand::None,
                closing: None,
            }),
        }
    }

    pub(crate) fn home(&self) -> &Group<Stream> {
        &self.home
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn is_at(&self, handle: HandleId) -> bool {
        self.handle.id() == handle
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the server come to the group whose handler calls this. The book has given it to that.
    pub(crate) fn take(&self, call: &mut Call<'_, '_, '_>) -> Taken {
        let group = call.group();
        if call.has(&self.handle) {
            // This call may have sent it home already, which would happen at its end: it stays.
            return match call.move_to(&self.handle, &group) {
                Ok(()) => Taken::Here,
                Err(_) => Taken::Gone,
            };
        }
        match group.adopt(&self.handle) {
            Ok(Adoption::Moved) => Taken::Here,
            Ok(Adoption::Busy) => self.wish_for(&group),
            Err(_) => Taken::Gone,
        }
    }

    fn wish_for(&self, group: &Group<Stream>) -> Taken {
        *self.wanted() = Some(group.clone());
        match self.home.notify() {
            Ok(()) => Taken::Coming,
            Err(_) => Taken::Gone,
        }
    }

    /// Sends it on, if a group wants it and it is a member here.
    ///
    /// # Errors
    /// The group that wants it has ended.
    pub(crate) fn send_on(&self, call: &mut Call<'_, '_, '_>) -> io::Result<SentOn> {
        let Some(group) = self.wanted().take() else {
            return Ok(SentOn::NotWanted);
        };
        match call.move_to(&self.handle, &group) {
            Ok(()) => Ok(SentOn::Moved),
            Err(error) => {
                if call.has(&self.handle) {
                    return Err(error);
                }
                // It is on its way here: when it joins, it is sent on.
                *self.wanted() = Some(group);
                Ok(SentOn::NotHere)
            }
        }
    }

    fn wanted(&self) -> MutexGuard<'_, Option<Group<Stream>>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends its connection, from anywhere, for this reason.
    pub(crate) fn close(&self, reason: &str) {
        self.core().closing.get_or_insert_with(|| reason.into());
        // If it is over already, it need not be closed.
        let _ = self.handle.close();
    }
}

/// What became of a wish for a server.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentOn {
    Moved,
    NotWanted,
    /// The server is not a member here yet.
    NotHere,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("number", &self.number)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
