//! A stream of server-sent events that begins: what its handler does with it.

use super::{
    response::{Answer, Decided},
    upgrade::Upgrade,
    Error, IntoAnswer, Request, Result,
};
use crate::{encoding::Encoding, remote::Remote, room::Room, sse::Event};

/// A stream of server-sent events that begins, for the handler of [`Router::sse`](super::Router::sse).
///
/// What the handler sends comes first, then what the rooms and the [`Remote`] have for the
/// connection: each message is one event. The connection leaves its rooms when it closes.
pub struct Events<'e, 'r> {
    request: &'e mut Request<'r>,
    remote: Remote,
    first: Vec<u8>,
    rooms: Vec<Room>,
}

impl<'e, 'r> Events<'e, 'r> {
    pub(super) fn new(request: &'e mut Request<'r>) -> Self {
        let remote = request.around.remote();
        // A room measures a message by the encoding of its members.
        remote.link().set_encoding(Encoding::Event);
        Self {
            request,
            remote,
            first: Vec::new(),
            rooms: Vec::new(),
        }
    }

    /// The request that began the stream.
    pub fn request(&mut self) -> &mut Request<'r> {
        self.request
    }

    /// The id of the last event that the client has seen, if it connects again.
    #[must_use]
    pub fn last_id(&self) -> Option<&'r str> {
        self.request.header("last-event-id")
    }

    /// The client gets this event before all others. It may have a name and an id.
    ///
    /// # Errors
    /// The name or the id has a line break.
    pub fn send(&mut self, event: Event<'_>) -> Result<()> {
        event.append(&mut self.first)?;
        Ok(())
    }

    /// The client gets each message of the room as an event from now on.
    pub fn join(&mut self, room: &Room) {
        if room.add(self.remote.link()) {
            self.rooms.push(room.clone());
        }
    }

    /// The connection, for messages to this client alone.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// In which form the client gets messages. Default: [`Encoding::Event`]. With [`Encoding::Raw`]
    /// each message must be an event already, perhaps one with a name: see [`Event::append`].
    pub fn set_encoding(&mut self, encoding: Encoding) {
        self.remote.link().set_encoding(encoding);
    }

    /// The handler has decided.
    pub(super) fn end(self, decided: Result<()>) -> Answer {
        match decided {
            Ok(()) => Answer(Decided::Upgrade(Upgrade::of_events(self.first))),
            Err(error) => {
                let link = self.remote.link();
                self.rooms.iter().for_each(|room| {
                    room.leave(link.id());
                });
                link.set_encoding(Encoding::Raw);
                // Messages of the rooms may wait already, and are no answers.
                error.into_response().close().into_answer()
            }
        }
    }
}

impl std::fmt::Debug for Events<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events")
            .field("request", &self.request)
            .field("rooms", &self.rooms.len())
            .finish_non_exhaustive()
    }
}

/// What the handler of a stream returns: nothing, or why there is no stream.
pub trait IntoEvents {
    /// Whether the stream begins.
    ///
    /// # Errors
    /// The client gets the error as its answer.
    fn into_events(self) -> Result<()>;
}

impl IntoEvents for () {
    fn into_events(self) -> Result<()> {
        Ok(())
    }
}

impl<E: Into<Error>> IntoEvents for Result<(), E> {
    fn into_events(self) -> Result<()> {
        self.map_err(Into::into)
    }
}
