//! How requests end without replies: the server is lost, or there is none.

use std::sync::Arc;

use super::{Stage, Trunk};
use crate::{
    front::{
        call::Call,
        client::Ended,
        lanes::{Request, Rest},
        server::Server,
        session,
    },
    log::Level,
    pg_wire::backend,
    pools::Refusal,
    protocol::{AfterLoss, Broken, Relay, Violation},
};

impl Trunk {
    /// The connection of the server has ended: each outstanding request has an unknown outcome, and
    /// none is sent again.
    pub(super) fn lost(&mut self, server: &Arc<Server>, reason: &str, call: &mut Call<'_, '_, '_>) {
        if !matches!(&self.stage, Stage::Working(own) if own.number == server.number) {
            return;
        }
        self.stage = Stage::Resting;
        let sent = std::mem::take(&mut self.sent);
        let mut ends = Vec::new();
        {
            let terms = self.pool.terms();
            let mut core = server.core();
            for (place, mut request) in sent.into_iter().enumerate() {
                let mut words = Vec::new();
                let mut relay = Relay {
                    client: &mut request.half,
                    server: &mut core.half,
                    settings: &terms.relay,
                };
                let after = relay.shared_lost(place == 0, &mut words);
                let Request { client, half, .. } = request;
                let ended = match after {
                    AfterLoss::Kept(_) => Ended::Answered(Box::new(half)),
                    AfterLoss::Closed => Ended::Closed(session::crash_report(after), reason.into()),
                };
                ends.push((client, words, ended));
            }
        }
        self.front.close_server(server, reason, call);
        self.front.note_serverless(&self.pool, self.number);
        for (client, words, ended) in ends {
            self.deliver(&client, &words, Some(ended));
        }
        self.rest_or_ask(call);
    }

    /// The server did what the model of it has not foreseen, or refused the parameters of a client.
    pub(super) fn broken(
        &mut self,
        broken: &Broken,
        server: &Arc<Server>,
        call: &mut Call<'_, '_, '_>,
    ) {
        let text = broken.to_string();
        let guilty = match (self.sent.pop_front(), broken) {
            (None, Broken::Parameter) => self.next.take(),
            (oldest, _) => oldest,
        };
        if let Some(request) = guilty {
            self.front.note_client(
                Level::Warning,
                &request.client,
                format_args!("pooler error: {text}"),
            );
            let mut words = Vec::new();
            let loss = server.core().half.loss();
            backend::error(&mut words, &broken.report(loss));
            let ended = Ended::Closed(words, text.as_str().into());
            self.deliver(&request.client, &[], Some(ended));
        }
        self.lost(server, &text, call);
    }

    /// A batch is none that may be shared: that should have been found before.
    pub(super) fn violated(
        &mut self,
        request: Request,
        violation: &Violation,
        server: &Arc<Server>,
        call: &mut Call<'_, '_, '_>,
    ) {
        let mut words = Vec::new();
        backend::error(&mut words, &violation.report());
        let ended = Ended::Closed(words, violation.to_string().into());
        self.deliver(&request.client, &[], Some(ended));
        self.lost(server, "unclean server", call);
    }

    /// What the requests wait for is refused.
    pub(super) fn refuse_all(&mut self, refusal: &Refusal) {
        self.stage = Stage::Resting;
        self.refuse_waiting(refusal);
        self.leave_book();
        let Some(group) = self.place.group() else {
            return;
        };
        // A group that has ended needs neither.
        let _ = match self.pool.lanes.rest(self.number) {
            // A session has put a request into the queue since, and notified no trunk.
            Rest::No => group.notify(),
            Rest::Yes => Ok(()),
            Rest::ForEver => group.close(),
        };
    }

    /// Refuses the requests that are not sent.
    pub(super) fn refuse_waiting(&mut self, refusal: &Refusal) {
        let waiting = self.next.take().into_iter();
        for request in waiting.chain(self.pool.lanes.take_all()) {
            let ended = Ended::Refused(refusal.clone());
            self.deliver(&request.client, &[], Some(ended));
        }
    }
}
