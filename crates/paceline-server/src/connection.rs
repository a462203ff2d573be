//! One connection: the handler of its events in the pool.
//!
//! ```text
//!   the pool        ready, overdue, closed
//!                     |
//!   Connection      reads, decrypts, keeps the unfinished rest, watches the times
//!                     |
//!   Dialog          decodes items, calls the session     (on a worker, in the half-sync engine)
//! ```
//!
//! The pool calls [`ready`](EventHandler::ready) only when all output is sent. So at its start
//! nothing is kept, and every letter of a room that was sent before has reached its peer.

mod ending;
mod handshake;
mod input;
mod letters;
mod output;
mod settle;
mod workers;

use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::Duration,
};

use paceline::{Closed, Context, EventHandler, Handle, Next, Overdue};

pub(crate) use self::handshake::Opening;
use self::{letters::Letters, output::EndOfOutput};
use crate::{
    codec::Codec,
    dialog::Dialog,
    engine::Desk,
    events,
    limits::Limit,
    link::Link,
    moment::Moment,
    peer::{Changes, Peer, PeerAddress},
    secure::Secure,
    service::{ConnectionPlace, Service},
    session::{Ended, Session},
    stream::Stream,
    times::{Times, Verdict},
    wire::Wire,
};

/// One connection. There are thousands that are idle: what few of them have is in a box.
pub(crate) struct Connection<C: Codec, N: Session<C>> {
    service: Arc<Service>,
    /// What it begins with, until its first call.
    beginning: Option<Box<Beginning>>,
    /// What others know of it, from its first call on.
    link: Option<Arc<Link>>,
    /// `None` while a worker has it.
    dialog: Option<Dialog<C, N>>,
    /// Where a worker puts the dialog back.
    desk: Option<Arc<Desk<C, N>>>,
    secure: Option<Box<Secure>>,
    /// The session wants TLS from the end of this call on.
    #[cfg(feature = "_tls")]
    tls_due: Option<crate::tls::Tls>,
    /// Input that is no whole item yet, or was not handled yet.
    input: Vec<u8>,
    /// `input` may hold a whole item.
    holds_item: bool,
    /// The session wants to be called when all output is sent.
    wants_again: bool,
    /// The peer sends nothing more.
    input_ended: bool,
    /// The output of the connection ends when all of it is sent, or has ended.
    end_of_output: EndOfOutput,
    /// Something may wait in the mailbox.
    has_mail: bool,
    /// The pool reports input.
    is_read: bool,
    /// Since when the input is paused.
    paused_since: Option<Moment>,
    times: Times,
    /// The deadline that the pool knows.
    deadline: Option<Moment>,
    since: Moment,
    items: u64,
    bytes_in: u64,
    /// Letters of rooms that are sent and perhaps kept by the pool.
    letters: Letters,
    /// Why the connection ends, if it was the server that decided so.
    why: Option<Box<Ended>>,
    /// Its place among the connections of its service, unless a listener of the pool counts it.
    place: Option<ConnectionPlace>,
}

/// What a connection begins with.
struct Beginning {
    address: PeerAddress,
    opening: Opening,
}

impl<C: Codec, N: Session<C>> Connection<C, N> {
    pub(crate) fn new(
        service: Arc<Service>,
        address: PeerAddress,
        opening: Opening,
        codec: C,
        session: N,
    ) -> Self {
        Self {
            since: service.now(),
            items: 0,
            bytes_in: 0,
            service,
            beginning: Some(Box::new(Beginning { address, opening })),
            link: None,
            dialog: Some(Dialog::new(codec, session)),
            desk: None,
            secure: None,
            #[cfg(feature = "_tls")]
            tls_due: None,
            input: Vec::new(),
            holds_item: false,
            wants_again: false,
            input_ended: false,
            end_of_output: EndOfOutput::Open,
            has_mail: false,
            is_read: true,
            paused_since: None,
            times: Times::opening(Moment::MAX, Limit::Silent),
            deadline: None,
            letters: Letters::default(),
            why: None,
            place: None,
        }
    }

    /// Keeps `place` as long as it is open.
    pub(crate) fn at_place(mut self, place: ConnectionPlace) -> Self {
        self.place = Some(place);
        self
    }

    /// Gives the session back, if the connection never came to be.
    pub(crate) fn into_session(self) -> Option<N> {
        self.dialog.map(Dialog::into_session)
    }

    /// The session begins, when the connection stands and its handshake is done.
    fn start(&mut self, wire: &mut dyn Wire) -> io::Result<Next> {
        let until = self
            .service
            .now()
            .saturating_add(self.service.limits().silent);
        self.times.open(until, Limit::Silent);
        let next = self.call(wire, |session, cx| session.start(cx));
        let next = next.unwrap_or(Ok(Next::Continue))?;
        self.wants_again = next == Next::Again;
        Ok(next)
    }

    /// Calls a function of the session, unless a worker has it.
    fn call<R>(
        &mut self,
        wire: &mut dyn Wire,
        function: impl FnOnce(&mut N, &mut Peer<'_, C>) -> R,
    ) -> Option<R> {
        let (dialog, link) = (self.dialog.as_mut()?, self.link.as_ref()?);
        let (result, changes) = over(&mut self.secure, wire, |wire| {
            dialog.call(wire, link, function)
        });
        self.apply(&changes);
        Some(result)
    }

    /// What a session wanted changed, but for the codec, which the dialog has changed.
    fn apply(&mut self, changes: &Changes<C>) {
        #[cfg(feature = "_tls")]
        if let Some(tls) = &changes.start_tls {
            self.tls_due = Some(tls.clone());
        }
        if let Some(within) = changes.deadline {
            let now = self.service.now();
            self.times
                .set_own(within.map(|within| now.saturating_add(within)));
        }
    }

    /// One turn, in which all output has been sent before.
    fn turn<S: Stream>(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next>
    where
        for<'s> &'s S: Read + Write,
    {
        self.has_mail |= cx.is_notified();
        if self.dialog.is_none() {
            let turned = self.desk.as_ref().and_then(|desk| desk.take());
            return match turned {
                Some(turned) => self.take_back(turned, cx),
                None => Ok(Next::Continue),
            };
        }
        let is_due = self.has_mail || self.end_of_output == EndOfOutput::Due;
        if is_due && !self.is_handshaking() {
            if let Some(next) = self.sort_mail(cx)? {
                return Ok(next);
            }
        }
        self.take_input(cx)
    }

    /// The pool keeps no output.
    fn all_is_sent(&mut self) {
        let service = &self.service;
        self.times.output_sent(|| service.now());
        self.letters.reached();
    }

    /// The server has decided that the connection ends.
    fn note_end(&mut self, why: Ended) {
        self.why = Some(Box::new(why));
    }

    /// The address of the peer; it is always known.
    fn address(&self) -> Option<&PeerAddress> {
        let begins = self.beginning.as_ref();
        let known = self.link.as_ref().map(|link| link.address());
        known.or_else(|| begins.map(|beginning| &beginning.address))
    }

    fn is_paused(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_paused())
    }
}

impl<C: Codec, N: Session<C>, S: Stream> EventHandler<S> for Connection<C, N>
where
    for<'s> &'s S: Read + Write,
{
    fn ready(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        self.all_is_sent();
        let next = self.turn(cx);
        self.settle(cx, 0, next)
    }

    fn speaks_first(&self) -> bool {
        true
    }

    fn connected(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        let Some(beginning) = self.beginning.take() else {
            return Ok(Next::Continue);
        };
        let service = Arc::clone(&self.service);
        let link = Arc::new(Link::new(cx.handle(), beginning.address, service));
        self.service.enter(&link);
        self.link = Some(link);
        let next = self.begin(beginning.opening, cx);
        self.settle(cx, 0, next)
    }

    fn expired(&mut self, cx: &mut Context<'_, S>, _: Duration) -> io::Result<Next> {
        self.all_is_sent();
        let next = self.refuse(cx);
        self.settle(cx, 0, next)
    }

    fn overdue(&mut self, cx: &mut Context<'_, S>, what: Overdue) -> io::Result<Next> {
        let unsent = cx.unsent();
        if unsent == 0 {
            // The pool reports no event for output that it has sent: this call may be the first
            // one since then.
            self.all_is_sent();
        }
        let verdict = if what == Overdue::Idle {
            Verdict::Met(Limit::Idle)
        } else {
            // The pool forgets a deadline that has passed.
            self.deadline = None;
            self.times.overdue(
                self.service.limits(),
                self.service.now(),
                unsent,
                self.is_read,
            )
        };
        let next = match verdict {
            Verdict::GoOn => Ok(Next::Continue),
            Verdict::Met(limit) => self.meet(limit, cx),
        };
        self.settle(cx, unsent, next)
    }

    fn moved(&mut self, handle: &Handle) {
        if let Some(link) = &self.link {
            link.set_handle(handle);
            if self.wants_again {
                // From its own handler: the connection is not over.
                let _ = handle.notify();
            }
        }
    }

    fn closed(&mut self, why: Closed) {
        if matches!(why, Closed::Finished) {
            // The pool has sent all output before it says so.
            self.letters.reached();
        }
        self.letters.missed();
        self.place = None;
        let ended = self.ending(why);
        match &self.link {
            Some(link) => {
                self.service.leave(link, &ended);
                self.log(link, &ended);
            }
            None => {
                self.service.counters().ended(&ended);
                if let Some(address) = self.address() {
                    events::not_made(&self.service.name, address, &ended);
                }
            }
        }
        match (&mut self.dialog, &self.desk) {
            (Some(dialog), _) => dialog.closed(&ended),
            (None, Some(desk)) => desk.close(ended),
            (None, None) => {}
        }
    }
}

/// Calls `with` with the wire that a session writes to.
fn over<R>(
    secure: &mut Option<Box<Secure>>,
    wire: &mut dyn Wire,
    with: impl FnOnce(&mut dyn Wire) -> R,
) -> R {
    match secure {
        None => with(wire),
        Some(secure) => secure.over(wire, with),
    }
}
