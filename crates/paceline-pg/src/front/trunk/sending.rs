//! Requests on their way to the server.

use std::{io::IoSlice, sync::Arc};

use super::{Trunk, Turn, BATCHES_PER_TURN};
use crate::{
    front::{
        buffers,
        call::Call,
        client::{Phase, RequestStage},
        lanes::{Request, Waiting},
        server::Server,
        session,
    },
    protocol::{Output, Relay, RelaySettings, Release, Violation},
};

/// What became of a request that was to be sent.
enum Sending {
    Sent,
    NotNow(Box<Request>),
    /// Its client waits for it no more.
    Withdrawn,
}

impl Trunk {
    /// Sends requests while there is room.
    pub(super) fn fill(&mut self, server: &Arc<Server>, call: &mut Call<'_, '_, '_>) {
        if self.sent.is_empty() && server.core().half.is_own_query_running() {
            // The reply to the parameters of `next` is outstanding. It belongs to the client of
            // `next`, even if that has left.
            return self.give_way();
        }
        let terms = self.pool.terms();
        // The requests that wait when `multiplex` is switched off are still served here.
        let multiplex = terms.multiplex.max(1);
        if self.count >= BATCHES_PER_TURN * multiplex {
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
                Ok(Sending::Sent | Sending::Withdrawn) => {}
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
        self.note_room(self.room(multiplex));
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
    fn give_way(&self) {
        self.note_room(0);
    }

    /// Shows the room to the sessions. A request that came before they saw it is not left behind.
    fn note_room(&self, room: usize) {
        match self.pool.lanes.set_room(self.number, room) {
            Waiting::No => {}
            Waiting::Some if room == 0 => self.front.wake_other_trunk(&self.pool),
            Waiting::Some => self.place.notify(),
        }
    }

    /// Appends one batch to what is sent to the server.
    fn send(
        &mut self,
        mut request: Request,
        server: &Arc<Server>,
        settings: &RelaySettings,
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
        if !relay.can_share(&request.bytes) {
            return Ok(Sending::NotNow(Box::new(request)));
        }
        if request.client.begin_request() == RequestStage::Withdrawn {
            // Its half is still needed for the reply to its parameters.
            return Ok(if core.half.is_own_query_running() {
                Sending::NotNow(Box::new(request))
            } else {
                Sending::Withdrawn
            });
        }
        let bytes = std::mem::take(&mut request.bytes);
        let shared = relay.share(&bytes, &mut output);
        drop(core);
        match shared {
            Ok(passed) => {
                out.extend_from_slice(&bytes[..passed.direct]);
                out.append(&mut pair.to_server);
                let counters = &self.pool.database.counters;
                session::count_from_client(counters, &passed);
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
}
