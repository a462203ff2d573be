//! Replies on their way to the clients.

use std::{io, sync::Arc};

use paceline::{scratch, Interest};

use super::{Stage, Trunk};
use crate::{
    front::{
        buffers,
        call::Call,
        client::{Client, Ended, Pressure},
        lanes::Request,
        server::Server,
        wire,
    },
    protocol::{Broken, FromServer, Output, Relay},
};

impl Trunk {
    /// Bytes of the server.
    pub(super) fn receive(&mut self, server: &Arc<Server>, call: &mut Call<'_, '_, '_>) {
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
    pub(super) fn deliver(&mut self, client: &Arc<Client>, bytes: &[u8], ended: Option<Ended>) {
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
    pub(super) fn read_again(&mut self) {
        if self.is_reading {
            return;
        }
        let oldest = self.sent.front();
        if oldest.is_none_or(|request| !request.client.is_behind()) {
            self.read(true);
        }
    }
}
