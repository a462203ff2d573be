//! A client whose request is on a shared connection (`multiplex`).
//!
//! ```text
//!   Idle ---share---> Shared ---Ended::Answered---> Idle
//! ```
//!
//! The client's half of the protocol is with the request until the replies are complete. The client
//! is not read meanwhile, as while it waits for a server of its own.

use std::{io::IoSlice, sync::Arc};

use super::{relay::Progress, Member, Reading, Session, State};
use crate::{
    front::{
        call::Call,
        client::{Ended, Phase},
        lanes::Request,
        registers::PoolEntry,
    },
    pools::{ClientId, Refusal},
    protocol::{batch, Batch},
};

/// A client whose half of the protocol is with its request.
pub(super) struct Away {
    pub(super) id: ClientId,
    pub(super) pool: Arc<PoolEntry>,
    pub(super) process: i32,
    /// It is to be closed when its replies are complete.
    pub(super) dismissed: Option<Refusal>,
}

impl Session {
    /// Puts the batch at the start of `bytes` before the shared connections. `None`: the client needs
    /// a server for itself.
    pub(super) fn share_input(&mut self, bytes: &[u8]) -> Option<Progress> {
        let State::Idle(member) = &self.state else {
            return None;
        };
        let terms = member.pool.terms();
        if terms.multiplex == 0 {
            return None;
        }
        let judged = batch(&member.half, &terms.relay, bytes);
        drop(terms);
        match judged {
            Batch::Alone => None,
            Batch::Partial => Some(Progress::Stuck),
            Batch::Whole(length) => {
                self.share(bytes[..length].to_vec());
                Some(Progress::Took(length))
            }
        }
    }

    fn share(&mut self, bytes: Vec<u8>) {
        let State::Idle(member) = self.take_state() else {
            return;
        };
        let Member {
            id,
            pool,
            half,
            process,
        } = *member;
        self.client.queue_request();
        self.client.watch.enter(Phase::Queued, self.front.now());
        self.state = State::Shared(Box::new(Away {
            id,
            pool: Arc::clone(&pool),
            process,
            dismissed: None,
        }));
        let request = Request {
            client: Arc::clone(&self.client),
            half,
            bytes,
        };
        self.front.share(&pool, request);
    }

    /// Replies have come.
    pub(super) fn shared_replies(&mut self, call: &mut Call<'_, '_, '_>) {
        let Some((bytes, ended)) = self.client.take_replies() else {
            return;
        };
        if !matches!(self.state, State::Shared(_)) {
            return;
        }
        self.pass_shared(&bytes, call);
        if let (Some(ended), State::Shared(_)) = (ended, &self.state) {
            self.shared_ended(ended, call);
        }
    }

    /// Sends replies. The trunk learns when the client has taken them.
    fn pass_shared(&mut self, bytes: &[u8], call: &mut Call<'_, '_, '_>) {
        let Some(handle) = self.handle.clone().filter(|_| !bytes.is_empty()) else {
            return;
        };
        let wire = &mut self.wire;
        let sent = call.with(&handle, |cx| {
            wire.send(cx, &[IoSlice::new(bytes)])?;
            Ok(cx.unsent())
        });
        self.owed += bytes.len();
        match sent {
            Ok(0) => self.settle_owed(),
            Ok(_) => self.listen_to_client(),
            Err(error) => self.client_failed(&error, call),
        }
    }

    /// The client may have taken what it was sent.
    pub(super) fn note_taken(&mut self, call: &mut Call<'_, '_, '_>) {
        if self.owed > 0 && self.unsent_to_client(call) == 0 {
            self.settle_owed();
            self.listen_to_client();
        }
    }

    fn settle_owed(&mut self) {
        let owed = std::mem::take(&mut self.owed);
        self.client.replies_taken(owed);
    }

    fn shared_ended(&mut self, ended: Ended, call: &mut Call<'_, '_, '_>) {
        let mut half = match ended {
            Ended::Answered(half) => *half,
            Ended::Refused(refusal) => {
                return self.refuse(refusal.code(), &refusal.to_string(), call);
            }
            Ended::Closed(words, reason) => return self.leave_with(&words, &reason, call),
        };
        if let Some(refusal) = half.take_refusal() {
            self.log_refusal(&refusal);
        }
        let State::Shared(away) = self.take_state() else {
            return;
        };
        let Away {
            id,
            pool,
            process,
            dismissed,
        } = *away;
        let now = self.front.now();
        let since = self.client.watch.end_transaction();
        let time = since.map(|since| now.saturating_sub(since));
        let counters = &pool.database.counters;
        counters.transaction_time.add_time(time.unwrap_or_default());
        self.client.watch.enter(Phase::Idle, now);
        self.state = State::Idle(Box::new(Member {
            id,
            pool,
            half,
            process,
        }));
        if let Some(refusal) = dismissed {
            return self.refuse(refusal.code(), &refusal.to_string(), call);
        }
        self.reading = Reading::On;
        self.listen_to_client();
        self.take_input(call);
    }
}
