//! The register of server connections that are being opened.
//!
//! ```text
//!   begin ---> (its host's name is resolved) ---> connect ---> end   the login is done or has failed
//!     |                                              |
//!     +------------------ abort ---------------------+    the book gives it up, at any time
//! ```
//!
//! Another thread may carry out the book's order to abort before this one has carried out the order
//! to open. So the caller of `begin` asks the book afterwards, and `connect` refuses what was aborted:
//!
//! ```text
//!   opens                              aborts
//!   begin                              the book forgets it
//!   asks the book: given up? stop      abort: removes it, closes its group if it has one
//! ```
//!
//! Of the two first steps one is before the other's second: the opening is stopped by at least one.

use std::collections::HashMap;

use paceline::Group;

use super::sockets::Stream;
use crate::pools::ServerId;

/// The connections that are being opened, and the groups of those that have one.
#[derive(Debug, Default)]
pub(crate) struct Openings(HashMap<ServerId, Option<Group<Stream>>>);

/// Whether the book still wants a connection.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Yes,
    /// It was aborted.
    No,
}

impl Openings {
    /// The book has ordered this connection.
    pub(crate) fn begin(&mut self, id: ServerId) {
        self.0.insert(id, None);
    }

    /// The connection has a group now, and is about to be made.
    pub(crate) fn connect(&mut self, id: ServerId, group: &Group<Stream>) -> Wanted {
        match self.0.get_mut(&id) {
            Some(place) => {
                *place = Some(group.clone());
                Wanted::Yes
            }
            None => Wanted::No,
        }
    }

    /// The book has given it up. Its group, which the caller closes.
    pub(crate) fn abort(&mut self, id: ServerId) -> Option<Group<Stream>> {
        self.0.remove(&id).flatten()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// It is logged in, or has failed.
    pub(crate) fn end(&mut self, id: ServerId) {
        self.0.remove(&id);
    }
}
