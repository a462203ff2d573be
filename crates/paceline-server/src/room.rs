//! Rooms: one message to many connections, in one shared buffer for each form, with an exact receipt.
//!
//! ```text
//!   Room::send --> posts a letter in the mailbox of each member --> notifies its handle
//!                    | no place there: this member misses it           |
//!                    v                                                 v
//!                  the receipt <------ reached, or missed ------ the member's own turn sends it
//! ```
//!
//! A [`Remote`](crate::Remote) sends to one connection in the same way.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
};

use crate::{
    codec::Codec,
    events,
    limits::Limit,
    link::{ConnectionId, Link},
    mailbox::{Delivery, Letter, Mail, OnDone, Posted, Receipt, Tally},
    peer::Peer,
    sync::lock,
};

/// Connections that get the same messages. Cloning gives another handle to the same room.
///
/// Each message is one buffer that all members share, or one for each [`Encoding`](crate::Encoding)
/// that members have chosen: a line session, a stream of server-sent events and a WebSocket can be
/// in one room. A member that does not read has its letters
/// wait in its mailbox, up to [`Limits::mailbox`](crate::Limits::mailbox); beyond that it misses
/// messages, and holds up no other member. All members get the messages of a room in the same
/// order. A connection may be in many rooms, and leaves them all when it closes.
///
/// ```
/// # use std::io;
/// # use paceline::Next;
/// # use paceline_server::{Peer, Room, Session, codec::Message};
/// struct Chatter(Room);
/// impl Session for Chatter {
///     fn start(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
///         self.0.join(cx);
///         Ok(Next::Continue)
///     }
///     fn handle(&mut self, line: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
///         let mut text = line.to_vec();
///         text.extend(b"\r\n");
///         self.0.message(text).except(cx.id()).send();
///         Ok(Next::Continue)
///     }
/// }
/// ```
#[derive(Clone, Default)]
pub struct Room {
    members: Arc<Members>,
}

#[derive(Default)]
pub(crate) struct Members(Mutex<HashMap<ConnectionId, Arc<Link>>>);

impl Members {
    pub(crate) fn remove(&self, id: ConnectionId) {
        lock(&self.0).remove(&id);
    }
}

impl Room {
    /// A room without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The connection joins. Whether it was not a member yet.
    pub fn join<C: Codec>(&self, cx: &Peer<'_, C>) -> bool {
        self.add(cx.link())
    }

    /// A connection joins. Whether it was not a member yet.
    pub(crate) fn add(&self, link: &Arc<Link>) -> bool {
        let is_new = lock(&self.members.0)
            .insert(link.id(), Arc::clone(link))
            .is_none();
        // A worker of the half-sync engine may run the session of a connection that is over.
        if is_new && !link.mailbox().note_room(&self.members) {
            lock(&self.members.0).remove(&link.id());
        }
        is_new
    }

    /// The connection leaves. Letters that it has already are still sent. Whether it was a member.
    pub fn leave(&self, id: ConnectionId) -> bool {
        let link = lock(&self.members.0).remove(&id);
        link.map(|link| link.mailbox().forget_room(&self.members))
            .is_some()
    }

    /// How many members it has.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.members.0).len()
    }

    /// Whether it has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends `bytes` to all members: to each in the form that it has chosen.
    pub fn send(&self, bytes: impl Into<Arc<[u8]>>) {
        self.message(bytes).send();
    }

    /// A message with exceptions, or with a receipt: ends with [`RoomMessage::send`].
    pub fn message(&self, bytes: impl Into<Arc<[u8]>>) -> RoomMessage<'_> {
        RoomMessage {
            room: self,
            bytes: bytes.into(),
            except: Vec::new(),
            on_done: None,
        }
    }

    /// Closes the connections of all members, at once.
    pub fn close(&self) {
        let members: Vec<_> = lock(&self.members.0).values().map(Arc::clone).collect();
        for link in members {
            link.close();
        }
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room")
            .field("members", &self.len())
            .finish()
    }
}

/// A message that is about to be sent: see [`Room::message`].
#[must_use = "it is sent by `send`"]
pub struct RoomMessage<'r> {
    room: &'r Room,
    bytes: Arc<[u8]>,
    except: Vec<ConnectionId>,
    on_done: Option<OnDone>,
}

impl RoomMessage<'_> {
    /// This connection does not get it.
    pub fn except(mut self, id: ConnectionId) -> Self {
        self.except.push(id);
        self
    }

    /// Calls `done` once, when it is known of every addressee whether the message reached it. The
    /// thread that learns of the last one calls it, perhaps before [`send`](Self::send) returns.
    pub fn on_done(mut self, done: impl FnOnce(Receipt) + Send + 'static) -> Self {
        self.on_done = Some(OnDone::Receipt(Box::new(done)));
        self
    }

    /// As [`on_done`](Self::on_done), which it replaces, with the numbers of the connections: to send
    /// again what some have missed, or to close them.
    ///
    /// ```
    /// # use paceline_server::{Room, Server};
    /// fn send_or_close(room: &Room, server: Server, text: &'static [u8]) {
    ///     let message = room.message(text).on_delivery(move |delivery| {
    ///         for slow in delivery.missed.iter().filter_map(|id| server.connection(*id)) {
    ///             slow.close();
    ///         }
    ///     });
    ///     message.send();
    /// }
    /// ```
    pub fn on_delivery(mut self, done: impl FnOnce(Delivery) + Send + 'static) -> Self {
        self.on_done = Some(OnDone::Delivery(Box::new(done)));
        self
    }

    /// Sends it to all members but the exceptions.
    pub fn send(self) {
        let tally = Arc::new(Tally::new(self.bytes, self.on_done));
        let mut to_notify = Vec::new();
        let mut without_place = Vec::new();
        {
            // All members get messages in one order, because this lock is held for all of them.
            let members = lock(&self.room.members.0);
            let addressees = members
                .values()
                .filter(|link| !self.except.contains(&link.id()));
            for link in addressees {
                let letter = Mail::Letter(Letter::new(&tally, link.id(), link.encoding()));
                match link.mailbox().post(letter) {
                    Posted::First => to_notify.push(Arc::clone(link)),
                    Posted::Behind => {}
                    Posted::NoPlace(letter) => without_place.push((Arc::clone(link), letter)),
                }
            }
        }
        for link in to_notify {
            // A connection that is over has dropped its letters.
            let _ = link.handle().notify();
        }
        for (link, letter) in without_place {
            link.service().counters().met(Limit::Mailbox);
            events::missed(&link);
            drop(letter);
        }
        tally.decide_sender();
    }
}

impl fmt::Debug for RoomMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomMessage")
            .field("bytes", &self.bytes.len())
            .field("except", &self.except)
            .finish_non_exhaustive()
    }
}
