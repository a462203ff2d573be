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
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use paceline::{Adoption, Group, Handle, HandleId, Members};

use super::{
    sockets::{Address, Stream},
    wire::Wire,
};
use crate::{
    pools::{PoolId, ServerId},
    protocol::ServerHalf,
};

/// A server connection.
#[derive(Debug)]
pub(crate) struct Server {
    /// Its key in the book.
    pub(crate) id: ServerId,
    /// Its number for the console and the log: clients and servers count together.
    pub(crate) number: u64,
    pub(crate) pool: PoolId,
    /// `database/user` for the log.
    pub(crate) label: Box<str>,
    /// Where it is while no client has it.
    home: OnceLock<Group<Stream>>,
    handle: OnceLock<Handle>,
    /// The group that wants it.
    wanted: Mutex<Option<Group<Stream>>>,
    core: Mutex<Core>,
}

/// What the owner of the connection works with.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) wire: Wire,
    pub(crate) half: ServerHalf,
    /// What was received and is not handled yet.
    pub(crate) input: Vec<u8>,
    pub(crate) facts: Facts,
}

/// What the console shows of it.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) address: Option<Address>,
    pub(crate) local: Option<Address>,
    pub(crate) connected_at: Duration,
    pub(crate) requested_at: Duration,
    /// The number of its process, of the key for cancels.
    pub(crate) process: i32,
    pub(crate) tls: String,
    /// Why it is closed when its client gives it back.
    pub(crate) is_condemned: bool,
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
    pub(crate) fn new(
        id: ServerId,
        number: u64,
        pool: PoolId,
        label: Box<str>,
        half: ServerHalf,
        now: Duration,
    ) -> Self {
        Self {
            id,
            number,
            pool,
            label,
            home: OnceLock::new(),
            handle: OnceLock::new(),
            wanted: Mutex::new(None),
            core: Mutex::new(Core {
                wire: Wire::Plain,
                half,
                input: Vec::new(),
                facts: Facts {
                    address: None,
                    local: None,
                    connected_at: now,
                    requested_at: now,
                    process: 0,
                    tls: String::new(),
                    is_condemned: false,
                },
            }),
        }
    }

    /// Its home, once: when it is made.
    pub(crate) fn settle(&self, home: Group<Stream>) {
        // It is set once.
        let _ = self.home.set(home);
    }

    pub(crate) fn home(&self) -> Option<&Group<Stream>> {
        self.home.get()
    }

    /// Its descriptor, once: when it is registered.
    pub(crate) fn set_handle(&self, handle: Handle) {
        // It is set once.
        let _ = self.handle.set(handle);
    }

    pub(crate) fn handle(&self) -> Option<&Handle> {
        self.handle.get()
    }

    pub(crate) fn is_at(&self, handle: HandleId) -> bool {
        self.handle.get().is_some_and(|own| own.id() == handle)
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the server come to `group`, whose handler calls this. The book has given it to that.
    pub(crate) fn take(&self, group: &Group<Stream>) -> Taken {
        let Some(handle) = self.handle() else {
            return Taken::Gone;
        };
        match group.adopt(handle) {
            Ok(Adoption::Moved) => Taken::Here,
            Ok(Adoption::Busy) => self.wish_for(group),
            Err(_) => Taken::Gone,
        }
    }

    fn wish_for(&self, group: &Group<Stream>) -> Taken {
        *self.wanted() = Some(group.clone());
        match self.home().map(Group::notify) {
            Some(Ok(())) => Taken::Coming,
            _ => Taken::Gone,
        }
    }

    /// Sends it on, if a group wants it and it is a member here.
    pub(crate) fn send_on(&self, members: &mut Members<'_, Stream>) -> io::Result<()> {
        let Some(handle) = self.handle() else {
            return Ok(());
        };
        let wanted = self.wanted().take();
        wanted.map_or(Ok(()), |group| members.move_to(handle, &group))
    }

    /// Nothing wants it any more.
    pub(crate) fn forget_wish(&self) {
        *self.wanted() = None;
    }

    fn wanted(&self) -> MutexGuard<'_, Option<Group<Stream>>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends its connection, from anywhere.
    pub(crate) fn close(&self) {
        if let Some(handle) = self.handle() {
            // If it is over already, it need not be closed.
            let _ = handle.close();
        }
    }
}
