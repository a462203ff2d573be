//! Cancels on their way: a connection to the host of the server, which carries one key.
//!
//! The server ends the connection when it has sent the signal. Until then the book keeps the
//! server from all other clients.

use std::{io, io::IoSlice, sync::Arc};

use paceline::{Closed, Context, GroupHandler, Handle, Members, Next};

use super::{client::Letter, sockets::Stream, state::Front, wire::Wire};
use crate::{
    pg_wire::startup::{self, CancelKey},
    pools::{CancelId, CancelReady, ServerId, ServerKey},
};

/// The handler of a connection that carries a cancel.
struct Carrier {
    front: Arc<Front>,
    /// Its key in the book.
    id: ServerId,
    cancel: CancelId,
}

impl GroupHandler<Stream> for Carrier {
    fn joined(
        &mut self,
        cx: &mut Context<'_, Stream>,
        _members: &mut Members<'_, Stream>,
    ) -> io::Result<Next> {
        let ready = self.front.book().cancel_connected(self.id);
        match ready {
            CancelReady::Send(key) => {
                let mut packet = Vec::new();
                let key = CancelKey {
                    process: key.process,
                    secret: &key.secret,
                };
                startup::cancel(&mut packet, key);
                Wire::Plain.send(cx, &[IoSlice::new(&packet)])?;
                Ok(Next::Continue)
            }
            CancelReady::Drop => Ok(Next::Close),
        }
    }

    fn ready(
        &mut self,
        cx: &mut Context<'_, Stream>,
        _members: &mut Members<'_, Stream>,
    ) -> io::Result<Next> {
        let mut buffer = [0; 64];
        match cx.read(&mut buffer)? {
            0 => Ok(Next::Close),
            _ => Ok(Next::Continue),
        }
    }

    fn closed(&mut self, _member: &Handle, _why: Closed, _members: &mut Members<'_, Stream>) {
        let id = self.id;
        let (_, orders) = self
            .front
            .with_book(|book, now, orders| book.closed(id, now, orders));
        self.front.end_cancel(self.cancel);
        self.front.carry_out(orders);
    }
}

impl Front {
    /// The book wants a connection for a cancel.
    pub(crate) fn open_cancel(self: &Arc<Self>, id: ServerId, cancel: CancelId, key: &ServerKey) {
        let target = self.targets().get(key.host).cloned();
        let carrier = Carrier {
            front: Arc::clone(self),
            id,
            cancel,
        };
        let Some(threads) = self.pool() else { return };
        let within = self.live().settings().server_connect_timeout;
        let begun = match (target, threads.group(carrier)) {
            (Some(target), Ok(group)) => target.connect(&group, within).inspect_err(|_| {
                // It has ended already, if that fails.
                let _ = group.close();
            }),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        if begun.is_err() {
            let (_, orders) = self.with_book(|book, now, orders| book.closed(id, now, orders));
            self.end_cancel(cancel);
            self.carry_out(orders);
        }
    }

    /// The cancel is over: the connection that has asked for it ends.
    pub(crate) fn end_cancel(&self, cancel: CancelId) {
        let client = self.cancels().remove(&cancel);
        if let Some(client) = client {
            client.send(Letter::CancelDone);
        }
    }
}
